#include "client/jobs.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "client/clock.h"
#include "client/error.h"
#include "client/link.h"

#define PAUSE_LEAST_MS 1
#define PAUSE_MOST_MS 50

/* Asks after a job, or tells it to stop; the answer is the same. */
static Kv__Wire__Reply *ask(struct kvc_session *session, uint64_t job_id, bool stop)
{
	Kv__Wire__Request request;
	Kv__Wire__JobGet get = KV__WIRE__JOB_GET__INIT;
	Kv__Wire__JobCancel cancel = KV__WIRE__JOB_CANCEL__INIT;

	get.job_id = cancel.job_id = job_id;
	rpc_request_init(&request);
	request.command_case = stop ? KV__WIRE__REQUEST__COMMAND_JOB_CANCEL :
				      KV__WIRE__REQUEST__COMMAND_JOB_GET;
	if (stop)
		request.job_cancel = &cancel;
	else
		request.job_get = &get;
	return rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_JOB);
}

static void pause_ms(long ms)
{
	struct timespec pause = {.tv_nsec = ms * NS_PER_MS};

	nanosleep(&pause, NULL);
}

/* A job, and the life of the core that runs it. */
struct job {
	struct kvc_session *session;
	Kv__Wire__Request *request; /* that begins it */
	Kv__Wire__Reply *reply;     /* the last about it; owned */
	uint8_t boot[LINK_BOOT_BYTES];
	bool is_told; /* to stop */
};

static int begin(struct job *job)
{
	job->reply = rpc_ask(job->session, job->request, KV__WIRE__REPLY__RESULT_JOB);
	if (!job->reply)
		return -1;
	if (job->reply->boot.len != sizeof(job->boot))
		return kvc_fail(KV_EPROTO, "the daemon's reply has a boot id of %zu bytes",
				job->reply->boot.len);
	memcpy(job->boot, job->reply->boot.data, sizeof(job->boot));
	job->is_told = false;
	return 0;
}

/* The life of the core that has answered last, with a reply or without one. */
static void read_boot(const struct job *job, uint8_t boot[LINK_BOOT_BYTES])
{
	struct session_link *link = job->session->link;

	pthread_mutex_lock(&link->lock);
	memcpy(boot, link->boot, LINK_BOOT_BYTES);
	pthread_mutex_unlock(&link->lock);
	if (job->reply && job->reply->boot.len == LINK_BOOT_BYTES)
		memcpy(boot, job->reply->boot.data, LINK_BOOT_BYTES);
}

/* The core went and took the job along. */
static int lost(struct job *job, const struct jobs_watch *watch)
{
	rpc_reply_free(job->reply);
	job->reply = NULL;
	if (!watch->remedy)
		return begin(job);
	return kvc_fail(KV_ERESTARTED, "the daemon's core was restarted during the %s; %s",
			watch->what, watch->remedy);
}

/* Asks once more, or tells it to stop. 0 or -1. */
static int look(struct job *job, bool stop, const struct jobs_watch *watch)
{
	uint64_t job_id = job->reply->job->job_id;
	uint8_t boot[LINK_BOOT_BYTES];

	rpc_reply_free(job->reply);
	job->reply = ask(job->session, job_id, stop);
	if (!job->reply && kvc_error() != KVC_ENOTFOUND)
		return -1;
	job->is_told |= stop;
	read_boot(job, boot);
	if (memcmp(boot, job->boot, sizeof(boot)) != 0)
		return lost(job, watch);
	return job->reply ? 0 : -1;
}

/* Until it ends. 0 or -1. */
static int follow(struct job *job, const struct jobs_watch *watch)
{
	bool cancelled = false;
	long wait_ms = PAUSE_LEAST_MS;
	int rc = 0;

	while (rc == 0 && job->reply->job->state == JOB_RUNNING) {
		const Kv__Wire__JobResult *now = job->reply->job;
		bool stop;

		if (!cancelled && watch->progress)
			cancelled = watch->progress(watch->arg, now->n_done_bytes,
						    now->n_total_bytes) != 0;
		stop = cancelled && !job->is_told;
		if (!stop) {
			pause_ms(wait_ms);
			wait_ms = wait_ms * 2 < PAUSE_MOST_MS ? wait_ms * 2 : PAUSE_MOST_MS;
		}
		rc = look(job, stop, watch);
	}
	return rc;
}

/* The reply of a job that is done; of any other an error. */
static Kv__Wire__Reply *end_of(Kv__Wire__Reply *reply, const struct jobs_watch *watch)
{
	const Kv__Wire__JobResult *job = reply->job;

	switch (job->state) {
	case JOB_DONE: return reply;
	case JOB_CANCELLED:
		kvc_fail(KV_ECANCELLED, "the %s was cancelled after %llu of %llu bytes",
			 watch->what, (unsigned long long)job->n_done_bytes,
			 (unsigned long long)job->n_total_bytes);
		break;
	case JOB_FAILED:
		kvc_fail(job->status ? (int)job->status : KV_EINTERNAL, "%s",
			 job->detail[0] ? job->detail : kv_status_text((int)job->status));
		break;
	default: kvc_fail(KV_EPROTO, "the daemon's job is in state %u", job->state);
	}
	rpc_reply_free(reply);
	return NULL;
}

Kv__Wire__Reply *jobs_run(struct kvc_session *session, Kv__Wire__Request *request,
			  const struct jobs_watch *watch)
{
	struct job job = {.session = session, .request = request};

	if (begin(&job) == 0 && follow(&job, watch) == 0)
		return end_of(job.reply, watch);
	rpc_reply_free(job.reply);
	return NULL;
}

int jobs_digest(const Kv__Wire__JobResult *job, uint8_t digest[16])
{
	if (job->digest.len != 16)
		return kvc_fail(KV_EPROTO, "the daemon's digest has %zu bytes", job->digest.len);
	memcpy(digest, job->digest.data, 16);
	return 0;
}
