/*
 * kvc_verify: a job of the daemon's, watched until it ends.
 *
 * The daemon answers at once with a job; its progress is asked for in turns that grow from one
 * to fifty milliseconds. A deadline holds for each question, not for the job. A caller's cancel
 * is passed on and the end awaited. Jobs end with the core that runs them, and their numbers may be
 * given out again by the next: a job is asked for only of the life that began it, and begun anew in
 * another. Any thread.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "client/clock.h"
#include "client/error.h"
#include "client/link.h"
#include "client/rpc.h"

#define PAUSE_LEAST_MS 1
#define PAUSE_MOST_MS 50

enum job_state { JOB_RUNNING = 1, JOB_DONE = 2, JOB_FAILED = 3, JOB_CANCELLED = 4 };

static Kv__Wire__Reply *start(struct kvc_session *session, const char *name)
{
	Kv__Wire__Request request;
	Kv__Wire__Verify command = KV__WIRE__VERIFY__INIT;
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;

	if (!name) {
		kvc_fail(KV_EINVAL, "a name is missing (NULL)");
		return NULL;
	}
	if (kv_name_check(name, kvc_err()))
		return NULL;
	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = (char *)name;
	command.source = &target;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_VERIFY;
	request.verify = &command;
	return rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_JOB);
}

static Kv__Wire__Reply *ask(struct kvc_session *session, uint64_t job_id)
{
	Kv__Wire__Request request;
	Kv__Wire__JobGet command = KV__WIRE__JOB_GET__INIT;

	command.job_id = job_id;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_JOB_GET;
	request.job_get = &command;
	return rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_JOB);
}

static int cancel(struct kvc_session *session, uint64_t job_id)
{
	Kv__Wire__Request request;
	Kv__Wire__JobCancel command = KV__WIRE__JOB_CANCEL__INIT;

	command.job_id = job_id;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_JOB_CANCEL;
	request.job_cancel = &command;
	return rpc_do(session, &request);
}

static void pause_ms(long ms)
{
	struct timespec pause = {.tv_nsec = ms * NS_PER_MS};

	nanosleep(&pause, NULL);
}

static int fill_result(const Kv__Wire__JobResult *job, struct kvc_verify_result *result)
{
	*result = (struct kvc_verify_result){
		.n_bytes = job->n_total_bytes,
		.n_blocks = job->n_blocks,
		.n_known = job->n_known,
		.n_bad = job->n_bad_blocks,
		.first_bad_token = UINT64_MAX,
	};
	if (job->digest.len != sizeof(result->digest))
		return kvc_fail(KV_EPROTO, "the daemon's digest has %zu bytes", job->digest.len);
	memcpy(result->digest, job->digest.data, sizeof(result->digest));
	for (size_t i = 0; i < job->n_bad; i++)
		if (job->bad[i]->first_token < result->first_bad_token)
			result->first_bad_token = job->bad[i]->first_token;
	if (result->n_bad == 0)
		return 0;
	return kvc_fail(KV_ECORRUPT,
			"%llu of %llu blocks are not what was stored; the first holds token %llu",
			(unsigned long long)result->n_bad, (unsigned long long)result->n_blocks,
			(unsigned long long)result->first_bad_token);
}

static int end_of(const Kv__Wire__JobResult *job, struct kvc_verify_result *result)
{
	switch (job->state) {
	case JOB_DONE: return fill_result(job, result);
	case JOB_CANCELLED:
		return kvc_fail(KV_ECANCELLED,
				"verification was cancelled after %llu of %llu bytes",
				(unsigned long long)job->n_done_bytes,
				(unsigned long long)job->n_total_bytes);
	case JOB_FAILED:
		return kvc_fail(job->status ? (int)job->status : KV_EINTERNAL, "%s",
				job->detail[0] ? job->detail : kv_status_text((int)job->status));
	}
	return kvc_fail(KV_EPROTO, "the daemon's job is in state %u", job->state);
}

/* The life of the core that the session is attached to. */
static void read_boot(struct kvc_session *session, uint8_t boot[LINK_BOOT_BYTES])
{
	pthread_mutex_lock(&session->link->lock);
	memcpy(boot, session->link->boot, LINK_BOOT_BYTES);
	pthread_mutex_unlock(&session->link->lock);
}

/* A job, and the life of the core that runs it. */
struct job {
	struct kvc_session *session;
	const char *name;
	Kv__Wire__Reply *reply; /* the last about it; owned */
	uint8_t boot[LINK_BOOT_BYTES];
	bool is_told; /* to stop */
};

static int begin(struct job *job)
{
	job->reply = start(job->session, job->name);
	if (!job->reply)
		return -1;
	if (job->reply->boot.len != sizeof(job->boot))
		return kvc_fail(KV_EPROTO, "the daemon's reply has a boot id of %zu bytes",
				job->reply->boot.len);
	memcpy(job->boot, job->reply->boot.data, sizeof(job->boot));
	job->is_told = false;
	return 0;
}

/* Asks once more; 0, or -1. */
static int look(struct job *job)
{
	const uint64_t job_id = job->reply->job->job_id;
	uint8_t boot[LINK_BOOT_BYTES];

	rpc_reply_free(job->reply);
	job->reply = ask(job->session, job_id);
	if (!job->reply && kvc_error() != KVC_ENOTFOUND)
		return -1;
	read_boot(job->session, boot);
	if (job->reply && job->reply->boot.len == sizeof(boot))
		memcpy(boot, job->reply->boot.data, sizeof(boot));
	if (memcmp(boot, job->boot, sizeof(boot)) == 0)
		return job->reply ? 0 : -1;
	rpc_reply_free(job->reply);
	return begin(job);
}

/* Until it ends. 0, or -1. */
static int follow(struct job *job,
		  int (*progress)(void *arg, uint64_t n_done_bytes, uint64_t n_bytes), void *arg)
{
	bool cancelled = false;
	long wait_ms = PAUSE_LEAST_MS;
	int rc = 0;

	while (rc == 0 && job->reply->job->state == JOB_RUNNING) {
		const Kv__Wire__JobResult *now = job->reply->job;

		if (!cancelled && progress)
			cancelled = progress(arg, now->n_done_bytes, now->n_total_bytes) != 0;
		if (cancelled && !job->is_told)
			job->is_told = cancel(job->session, now->job_id) == 0;
		pause_ms(wait_ms);
		wait_ms = wait_ms * 2 < PAUSE_MOST_MS ? wait_ms * 2 : PAUSE_MOST_MS;
		rc = look(job);
	}
	return rc;
}

int kvc_verify(kvc_session *session, const char *name,
	       int (*progress)(void *arg, uint64_t n_done_bytes, uint64_t n_bytes), void *arg,
	       struct kvc_verify_result *result)
{
	struct job job = {.session = session, .name = name};
	struct kvc_verify_result unwanted;
	int rc;

	if (session_check(session))
		return -1;
	rc = begin(&job);
	if (rc == 0)
		rc = follow(&job, progress, arg);
	if (rc == 0)
		rc = end_of(job.reply->job, result ? result : &unwanted);
	rpc_reply_free(job.reply);
	return rc;
}
