/*
 * kvcachectl verify: the daemon reads every stored byte of objects and compares digests.
 *
 * One job an object, one after the other; a progress bar on standard error if that is a terminal.
 * SIGINT cancels the job and leaves. A corrupt object does not stop the rest; the exit code is
 * then 4.
 */
#include <inttypes.h>
#include <string.h>

#include "client/ctl/job.h"
#include "client/ctl/object.h"
#include "client/ctl/progress.h"

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
	Kv__Wire__Verify message = KV__WIRE__VERIFY__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	struct errbuf err = {KV_OK, ""};
	Kv__Wire__Reply *reply;
	int code;

	message.source = target;
	request.command_case = KV__WIRE__REQUEST__COMMAND_VERIFY;
	request.verify = &message;
	reply = job_run(ctl, label, &request, &err);
	if (!reply)
		return ctl_fail(ctl, &err);
	if (ctl->json)
		json_array_append_new(verified, job_json(label, reply->job));
	else
		print_text(ctl, label, reply->job);
	code = reply->job->n_bad_blocks ? CTL_CORRUPT : CTL_OK;
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
