#include "client/ctl/job.h"

#include <string.h>
#include <time.h>

#include "client/ctl/progress.h"
#include "client/jobs.h"

#define POLL_FIRST_MS 2
#define POLL_LAST_MS 100

static Kv__Wire__Reply *ask(struct ctl *ctl, Kv__Wire__Request *request, struct errbuf *err)
{
	Kv__Wire__Reply *reply = NULL;

	if (ctl->call(ctl, request, &reply, err))
		return NULL;
	if (reply->result_case == KV__WIRE__REPLY__RESULT_JOB)
		return reply;
	ctl_free_reply(reply);
	errbuf_set(err, KV_EPROTO, "the daemon's reply does not hold a job");
	return NULL;
}

static Kv__Wire__Reply *ask_about(struct ctl *ctl, uint64_t job_id, bool cancel, struct errbuf *err)
{
	Kv__Wire__JobGet get = KV__WIRE__JOB_GET__INIT;
	Kv__Wire__JobCancel stop = KV__WIRE__JOB_CANCEL__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;

	get.job_id = job_id;
	stop.job_id = job_id;
	request.command_case = cancel ? KV__WIRE__REQUEST__COMMAND_JOB_CANCEL :
					KV__WIRE__REQUEST__COMMAND_JOB_GET;
	if (cancel)
		request.job_cancel = &stop;
	else
		request.job_get = &get;
	return ask(ctl, &request, err);
}

/* Jobs go with their core; the next one may give the same number to another. This is the only job
 * of its session, so one that is not known is lost too. */
static bool is_lost(const Kv__Wire__Reply *before, const Kv__Wire__Reply *reply,
		    const struct errbuf *err)
{
	if (!reply)
		return err->status == KV_ENOTFOUND;
	return reply->boot.len != before->boot.len ||
	       (before->boot.len &&
		memcmp(reply->boot.data, before->boot.data, before->boot.len) != 0);
}

/* The next answer about a running job, in place of the one before. */
static Kv__Wire__Reply *look(struct ctl *ctl, Kv__Wire__Reply *before, bool cancel,
			     struct errbuf *err)
{
	Kv__Wire__Reply *reply = ask_about(ctl, before->job->job_id, cancel, err);

	if (is_lost(before, reply, err)) {
		ctl_free_reply(reply);
		reply = NULL;
		errbuf_set(err, KV_ERESTARTED,
			   "the daemon's core was restarted meanwhile; look what is there and "
			   "repeat the command");
	}
	ctl_free_reply(before);
	return reply;
}

static Kv__Wire__Reply *follow(struct ctl *ctl, const char *label, Kv__Wire__Reply *reply,
			       struct errbuf *err)
{
	long poll_ms = POLL_FIRST_MS;
	bool is_told = false;

	while (reply && reply->job->state == JOB_RUNNING) {
		struct timespec pause = {0, poll_ms * 1000000};
		bool cancel;

		progress_draw(ctl, label, reply->job->n_done_bytes, reply->job->n_total_bytes);
		nanosleep(&pause, NULL);
		poll_ms = 2 * poll_ms < POLL_LAST_MS ? 2 * poll_ms : POLL_LAST_MS;
		cancel = progress_interrupted() && !is_told;
		is_told |= cancel;
		reply = look(ctl, reply, cancel, err);
	}
	progress_clear(ctl);
	return reply;
}

static bool begins_with(const char *text, const char *label)
{
	size_t n = strlen(label);

	return strncmp(text, label, n) == 0 && text[n] == ':';
}

Kv__Wire__Reply *job_run(struct ctl *ctl, const char *label, Kv__Wire__Request *request,
			 struct errbuf *err)
{
	Kv__Wire__Reply *reply = NULL;
	const Kv__Wire__JobResult *job;

	if (progress_interrupted())
		errbuf_set(err, KV_ECANCELLED, "not begun: interrupted");
	else
		reply = follow(ctl, label, ask(ctl, request, err), err);
	if (reply && reply->job->state == JOB_DONE)
		return reply;
	if (reply) {
		job = reply->job;
		errbuf_set(err, job->status ? (int)job->status : KV_ECANCELLED, "%s",
			   job->detail && job->detail[0] ? job->detail :
							   kv_status_text((int)job->status));
		ctl_free_reply(reply);
	}
	if (!begins_with(err->text, label))
		errbuf_wrap(err, "%s", label);
	return NULL;
}
