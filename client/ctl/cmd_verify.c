/*
 * kvcachectl verify: the daemon reads every stored byte of objects and compares digests.
 *
 * One job an object, one after the other; a progress bar on standard error if that is a terminal.
 * SIGINT cancels the job and leaves. A corrupt object does not stop the rest; the exit code is
 * then 4.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/ctl/object.h"
#include "client/ctl/progress.h"

#define POLL_FIRST_MS 2
#define POLL_LAST_MS 100

enum { JOB_RUNNING = 1, JOB_DONE = 2, JOB_FAILED = 3, JOB_CANCELLED = 4 };

static Kv__Wire__Reply *job_ask(struct ctl *ctl, Kv__Wire__Request *request, struct errbuf *err)
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

static Kv__Wire__Reply *job_start(struct ctl *ctl, Kv__Wire__Target *target, struct errbuf *err)
{
	Kv__Wire__Verify message = KV__WIRE__VERIFY__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;

	message.source = target;
	request.command_case = KV__WIRE__REQUEST__COMMAND_VERIFY;
	request.verify = &message;
	return job_ask(ctl, &request, err);
}

static Kv__Wire__Reply *job_get(struct ctl *ctl, uint64_t job_id, bool cancel, struct errbuf *err)
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
	return job_ask(ctl, &request, err);
}

/* Follows a job to its end; the last reply, or NULL with err. */
static Kv__Wire__Reply *job_follow(struct ctl *ctl, const char *label, Kv__Wire__Reply *reply,
				   struct errbuf *err)
{
	long poll_ms = POLL_FIRST_MS;

	while (reply && reply->job->state == JOB_RUNNING) {
		uint64_t job_id = reply->job->job_id;
		struct timespec pause = {0, poll_ms * 1000000};

		progress_draw(ctl, label, reply->job->n_done_bytes, reply->job->n_total_bytes);
		ctl_free_reply(reply);
		nanosleep(&pause, NULL);
		poll_ms = 2 * poll_ms < POLL_LAST_MS ? 2 * poll_ms : POLL_LAST_MS;
		reply = job_get(ctl, job_id, progress_interrupted(), err);
		if (progress_interrupted()) {
			ctl_free_reply(reply);
			reply = NULL;
			errbuf_set(err, KV_ECANCELLED, "%s: cancelled", label);
		}
	}
	progress_clear(ctl);
	return reply;
}

static json_t *job_json(const char *label, const Kv__Wire__JobResult *job)
{
	json_t *bad = json_array();

	for (size_t i = 0; i < job->n_bad; i++)
		json_array_append_new(bad,
				      json_pack("{s:I, s:I, s:I, s:I}", "group",
						(json_int_t)job->bad[i]->group, "index",
						(json_int_t)job->bad[i]->index, "first_token",
						(json_int_t)job->bad[i]->first_token, "n_tokens",
						(json_int_t)job->bad[i]->n_tokens));
	return json_pack("{s:s, s:b, s:o, s:I, s:I, s:I, s:I, s:o}", "name", label, "intact",
			 job->n_bad_blocks == 0, "digest", object_hex(&job->digest), "n_bytes",
			 (json_int_t)job->n_total_bytes, "n_blocks", (json_int_t)job->n_blocks,
			 "n_known", (json_int_t)job->n_known, "n_bad_blocks",
			 (json_int_t)job->n_bad_blocks, "bad", bad);
}

static void print_bad(const struct ctl *ctl, const Kv__Wire__JobResult *job)
{
	for (size_t i = 0; i < job->n_bad; i++) {
		const Kv__Wire__BadBlock *bad = job->bad[i];
		uint64_t last = bad->first_token + (bad->n_tokens ? bad->n_tokens - 1 : 0);

		fprintf(ctl->out.stream, "    group %" PRIu32 ", block %s: tokens %s to %s\n",
			bad->group, units_count(bad->index).s, units_count(bad->first_token).s,
			units_count(last).s);
	}
	if (job->n_bad_blocks > job->n_bad)
		fprintf(ctl->out.stream, "    and %s more\n",
			units_count(job->n_bad_blocks - job->n_bad).s);
}

static void print_text(const struct ctl *ctl, const char *label, const Kv__Wire__JobResult *job)
{
	enum colour colour = job->n_bad_blocks ? RED : GREEN;
	char hex[2 * 64 + 1] = "";

	if (job->digest.len <= 64)
		units_hex(hex, job->digest.data, job->digest.len);
	fprintf(ctl->out.stream, "%s: %s%s%s\n", label, out_colour(&ctl->out, colour),
		job->n_bad_blocks ? "CORRUPT" : "intact", out_plain(&ctl->out, colour));
	fprintf(ctl->out.stream, "    %s in %s read, %s known before",
		units_bytes(job->n_total_bytes).s, units_of(job->n_blocks, "block").s,
		units_count(job->n_known).s);
	if (job->n_bad_blocks)
		fprintf(ctl->out.stream, ", %s%s not what it was%s", out_colour(&ctl->out, colour),
			units_count(job->n_bad_blocks).s, out_plain(&ctl->out, colour));
	fprintf(ctl->out.stream, "\n    digest %s\n", hex[0] ? hex : "-");
	print_bad(ctl, job);
}

static int verify_one(struct ctl *ctl, Kv__Wire__Target *target, const char *label,
		      json_t *verified)
{
	struct errbuf err = {KV_OK, ""};
	Kv__Wire__Reply *reply = job_follow(ctl, label, job_start(ctl, target, &err), &err);
	const Kv__Wire__JobResult *job;
	int code = CTL_OK;

	if (!reply)
		return ctl_fail(ctl, &err);
	job = reply->job;
	if (job->state != JOB_DONE && job->n_bad_blocks == 0) {
		errbuf_set(&err, job->status ? (int)job->status : KV_ECANCELLED, "%s: %s", label,
			   job->detail && job->detail[0] ? job->detail :
							   kv_status_text((int)job->status));
		code = ctl_fail(ctl, &err);
		goto out;
	}
	if (ctl->json)
		json_array_append_new(verified, job_json(label, job));
	else
		print_text(ctl, label, job);
	if (job->n_bad_blocks)
		code = CTL_CORRUPT;
out:
	ctl_free_reply(reply);
	return code;
}

/* Corruption is remembered while the rest is read; every other fault ends the command. */
static bool goes_on(int *code, int one)
{
	if (one != CTL_OK)
		*code = one;
	return one == CTL_OK || one == CTL_CORRUPT;
}

static int verify_words(struct ctl *ctl, const struct ctl_args *args, json_t *verified)
{
	int code = CTL_OK;

	for (int i = 0; i < args->n_words; i++) {
		Kv__Wire__Target target;

		if (ctl_target(ctl, args->words[i], &target))
			return CTL_USAGE;
		if (!goes_on(&code, verify_one(ctl, &target, args->words[i], verified)))
			break;
	}
	return code;
}

static int verify_all(struct ctl *ctl, json_t *verified)
{
	struct object_list list;
	int code = CTL_OK;

	if (object_list_get(ctl, "", &list, &code))
		return code;
	for (size_t i = 0; i < list.n_objects; i++) {
		Kv__Wire__Object *o = list.objects[i];
		Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
		bool live = strcmp(object_state(o), "live") == 0;

		if (live || o->local)
			continue;
		target.which_case = KV__WIRE__TARGET__WHICH_ID;
		target.id = o->id;
		if (!goes_on(&code, verify_one(ctl, &target, object_label(o).s, verified)))
			break;
	}
	object_list_fini(&list);
	return code;
}

int cmd_verify(struct ctl *ctl, const struct ctl_args *args)
{
	struct progress progress;
	bool all = ctl_option(args, "all") != NULL;
	json_t *verified;
	int code;

	if (all == (args->n_words > 0))
		return ctl_usage(ctl, args->command, "verify needs either objects or --all");
	verified = json_array();
	progress_begin(&progress);
	code = all ? verify_all(ctl, verified) : verify_words(ctl, args, verified);
	progress_end(&progress);
	if (ctl->json && (code == CTL_OK || code == CTL_CORRUPT))
		ctl_print_json(ctl, json_pack("{s:O}", "verified", verified));
	json_decref(verified);
	return code;
}
