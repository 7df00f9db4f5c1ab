#include "client/jobs.h"

#include <string.h>
#include <time.h>

#include "client/clock.h"
#include "client/error.h"

#define PAUSE_LEAST_MS 1
#define PAUSE_MOST_MS 50

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

static Kv__Wire__Reply *cancel(struct kvc_session *session, uint64_t job_id)
{
	Kv__Wire__Request request;
	Kv__Wire__JobCancel command = KV__WIRE__JOB_CANCEL__INIT;

	command.job_id = job_id;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_JOB_CANCEL;
	request.job_cancel = &command;
	return rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_JOB);
}

static void pause_ms(long ms)
{
	struct timespec pause = {.tv_nsec = ms * NS_PER_MS};

	nanosleep(&pause, NULL);
}

/* Not every life of the core gives its jobs new numbers: the life must be the same too. */
static bool is_of(const Kv__Wire__Reply *reply, const Kv__Wire__Reply *before)
{
	return reply->job->job_id == before->job->job_id && reply->boot.len == before->boot.len &&
	       memcmp(reply->boot.data, before->boot.data, before->boot.len) == 0;
}

/* What the daemon says of a running job after a while; gives up the reply before. */
static Kv__Wire__Reply *look_again(struct kvc_session *session, Kv__Wire__Reply *before,
				   bool cancels, bool *is_lost)
{
	uint64_t job_id = before->job->job_id;
	Kv__Wire__Reply *reply = cancels ? cancel(session, job_id) : ask(session, job_id);

	*is_lost = reply ? !is_of(reply, before) : kvc_error() == KVC_ENOTFOUND;
	rpc_reply_free(before);
	return reply;
}

/* The core has gone, and the job with it. */
static Kv__Wire__Reply *lost(struct kvc_session *session, Kv__Wire__Request *request,
			     Kv__Wire__Reply *reply, const struct jobs_watch *watch)
{
	rpc_reply_free(reply);
	if (!watch->remedy)
		return rpc_ask(session, request, KV__WIRE__REPLY__RESULT_JOB);
	kvc_fail(KV_ERESTARTED, "the daemon's core was restarted during the %s; %s", watch->what,
		 watch->remedy);
	return NULL;
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
	Kv__Wire__Reply *reply = rpc_ask(session, request, KV__WIRE__REPLY__RESULT_JOB);
	bool cancelled = false;
	long wait_ms = PAUSE_LEAST_MS;

	while (reply && reply->job->state == JOB_RUNNING) {
		bool wanted = !cancelled && watch->progress &&
			      watch->progress(watch->arg, reply->job->n_done_bytes,
					      reply->job->n_total_bytes) != 0;
		bool is_lost;

		cancelled |= wanted;
		if (!wanted) {
			pause_ms(wait_ms);
			wait_ms = wait_ms * 2 < PAUSE_MOST_MS ? wait_ms * 2 : PAUSE_MOST_MS;
		}
		reply = look_again(session, reply, wanted, &is_lost);
		if (is_lost) {
			cancelled = false;
			reply = lost(session, request, reply, watch);
		}
	}
	return reply ? end_of(reply, watch) : NULL;
}

int jobs_digest(const Kv__Wire__JobResult *job, uint8_t digest[16])
{
	if (job->digest.len != 16)
		return kvc_fail(KV_EPROTO, "the daemon's digest has %zu bytes", job->digest.len);
	memcpy(digest, job->digest.data, 16);
	return 0;
}
