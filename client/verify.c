/*
 * kvc_verify: a job of the daemon's, watched until it ends.
 *
 * The daemon answers at once with a job; its progress is asked for in turns that grow from one
 * to fifty milliseconds. A deadline holds for each question, not for the job. A caller's cancel
 * is passed on and the end awaited. Any thread.
 */
#include <string.h>
#include <time.h>

#include "client/clock.h"
#include "client/error.h"
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

int kvc_verify(kvc_session *session, const char *name,
	       int (*progress)(void *arg, uint64_t n_done_bytes, uint64_t n_bytes), void *arg,
	       struct kvc_verify_result *result)
{
	struct kvc_verify_result unwanted;
	Kv__Wire__Reply *reply;
	bool cancelled = false;
	long wait_ms = PAUSE_LEAST_MS;
	uint64_t job_id;
	int rc;

	if (session_check(session))
		return -1;
	reply = start(session, name);
	if (!reply)
		return -1;
	job_id = reply->job->job_id;
	while (reply->job->state == JOB_RUNNING) {
		if (!cancelled && progress &&
		    progress(arg, reply->job->n_done_bytes, reply->job->n_total_bytes) != 0) {
			cancelled = true;
			cancel(session, job_id);
		}
		rpc_reply_free(reply);
		pause_ms(wait_ms);
		wait_ms = wait_ms * 2 < PAUSE_MOST_MS ? wait_ms * 2 : PAUSE_MOST_MS;
		reply = ask(session, job_id);
		if (!reply)
			return -1;
	}
	rc = end_of(reply->job, result ? result : &unwanted);
	rpc_reply_free(reply);
	return rc;
}
