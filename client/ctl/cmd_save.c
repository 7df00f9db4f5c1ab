/*
 * kvcachectl save, load: snapshots and sequences to the disk pool and back.
 *
 * One job an object, one after the other; what is refused is named and does not stop the rest. An
 * interrupt cancels the one that is under way and leaves.
 */
#include <string.h>

#include "client/ctl/job.h"
#include "client/ctl/object.h"
#include "client/ctl/progress.h"

struct transfer {
	struct ctl *ctl;
	const struct ctl_args *args;
	const char *as; /* "" if not given */
	bool replace;
	uint64_t n_tokens;
	const char *done;  /* "saved" */
	bool counts_known; /* blocks that were on the disk already are told */
	json_t *list, *refused;
	/* Asks for one object; NULL with err, or with CTL_USAGE in *code: said already. */
	Kv__Wire__Reply *(*run)(const struct transfer *transfer, const char *word,
				struct errbuf *err, int *code);
};

static Kv__Wire__Reply *run_save(const struct transfer *transfer, const char *word,
				 struct errbuf *err, int *code)
{
	Kv__Wire__Save message = KV__WIRE__SAVE__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Target target;

	if (ctl_target(transfer->ctl, word, &target)) {
		*code = CTL_USAGE;
		return NULL;
	}
	message.source = &target;
	message.name = (char *)(uintptr_t)transfer->as;
	message.replace = transfer->replace;
	request.command_case = KV__WIRE__REQUEST__COMMAND_SAVE;
	request.save = &message;
	return job_run(transfer->ctl, word, &request, err);
}

static Kv__Wire__Reply *run_load(const struct transfer *transfer, const char *word,
				 struct errbuf *err, int *code)
{
	Kv__Wire__Load message = KV__WIRE__LOAD__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Target target;

	if (ctl_new_name(transfer->ctl, word, &target)) {
		*code = CTL_USAGE;
		return NULL;
	}
	message.name = target.name;
	message.as_name = (char *)(uintptr_t)transfer->as;
	message.replace = transfer->replace;
	message.n_tokens = transfer->n_tokens;
	request.command_case = KV__WIRE__REQUEST__COMMAND_LOAD;
	request.load = &message;
	return job_run(transfer->ctl, word, &request, err);
}

/* ---- what is said ------------------------------------------------------------------------- */

static json_t *job_json(const struct transfer *transfer, const char *word,
			const Kv__Wire__JobResult *job)
{
	json_t *one = json_pack("{s:s, s:I, s:I, s:o}", "name", word, "n_bytes",
				(json_int_t)job->n_total_bytes, "n_blocks",
				(json_int_t)job->n_blocks, "digest", object_hex(&job->digest));

	if (transfer->as[0])
		json_object_set_new(one, "as", json_string(transfer->as));
	if (transfer->counts_known)
		json_object_set_new(one, "n_known", json_integer((json_int_t)job->n_known));
	return one;
}

static void say_done(const struct transfer *transfer, const char *word,
		     const Kv__Wire__JobResult *job)
{
	const struct ctl *ctl = transfer->ctl;
	char hex[2 * 64 + 1] = "-";

	if (ctl->json) {
		json_array_append_new(transfer->list, job_json(transfer, word, job));
		return;
	}
	if (job->digest.len && job->digest.len <= 64)
		units_hex(hex, job->digest.data, job->digest.len);
	fprintf(ctl->out.stream, "%s: %s", word, transfer->done);
	if (transfer->as[0])
		fprintf(ctl->out.stream, " as %s", transfer->as);
	fprintf(ctl->out.stream, "\n    %s in %s", units_bytes(job->n_total_bytes).s,
		units_of(job->n_blocks, "block").s);
	if (transfer->counts_known)
		fprintf(ctl->out.stream, ", %s on the disk before", units_count(job->n_known).s);
	fprintf(ctl->out.stream, "\n    digest %s\n", hex);
}

static void say_refused(const struct transfer *transfer, const char *word, const struct errbuf *err)
{
	fprintf(transfer->ctl->out.errors, "kvcachectl: %s\n", units_clean(err->text).s);
	json_array_append_new(transfer->refused, json_pack("{s:s, s:s, s:s}", "name", word,
							   "status", kv_status_name(err->status),
							   "text", units_clean(err->text).s));
}

/* ---- the words one by one ----------------------------------------------------------------- */

static int transfer_one(const struct transfer *transfer, const char *word)
{
	struct errbuf err = {KV_OK, ""};
	int code = CTL_OK;
	Kv__Wire__Reply *reply = transfer->run(transfer, word, &err, &code);

	if (reply) {
		say_done(transfer, word, reply->job);
		ctl_free_reply(reply);
	} else if (code == CTL_OK) {
		say_refused(transfer, word, &err);
		code = ctl_exit_code(err.status);
	}
	return code;
}

/* The worst is what a script must know of: nobody answers, then damage, then refusals. */
static int worse(int code, int one)
{
	if (one == CTL_OK || code == CTL_NO_DAEMON)
		return code;
	return one == CTL_FAILED && code == CTL_CORRUPT ? code : one;
}

static int transfer_all(struct transfer *transfer)
{
	const struct ctl_args *args = transfer->args;
	struct ctl *ctl = transfer->ctl;
	struct progress progress;
	int code = CTL_OK, one = CTL_OK;

	transfer->list = json_array();
	transfer->refused = json_array();
	progress_begin(&progress);
	for (int i = 0; i < args->n_words; i++) {
		one = transfer_one(transfer, args->words[i]);
		code = worse(code, one);
		if (one == CTL_USAGE || one == CTL_NO_DAEMON || progress_interrupted())
			break;
	}
	progress_end(&progress);
	if (ctl->json && code != CTL_USAGE)
		ctl_print_json(ctl, json_pack("{s:O, s:O}", transfer->done, transfer->list,
					      "refused", transfer->refused));
	json_decref(transfer->list);
	json_decref(transfer->refused);
	return code;
}

/* Options that both have. 0, or CTL_USAGE. */
static int begin(struct ctl *ctl, const struct ctl_args *args, struct transfer *transfer)
{
	const char *as = ctl_option(args, "as");
	Kv__Wire__Target target;

	transfer->ctl = ctl;
	transfer->args = args;
	transfer->as = as ? as : "";
	transfer->replace = ctl_option(args, "replace") != NULL;
	if (as && args->n_words > 1)
		return ctl_usage(ctl, args->command, "--as names one object, not %d",
				 args->n_words);
	return as && ctl_new_name(ctl, as, &target) ? CTL_USAGE : CTL_OK;
}

int cmd_save(struct ctl *ctl, const struct ctl_args *args)
{
	struct transfer transfer = {.run = run_save, .done = "saved", .counts_known = true};

	if (begin(ctl, args, &transfer))
		return CTL_USAGE;
	return transfer_all(&transfer);
}

int cmd_load(struct ctl *ctl, const struct ctl_args *args)
{
	struct transfer transfer = {.run = run_load, .done = "loaded"};

	if (begin(ctl, args, &transfer) ||
	    ctl_option_number(ctl, args, "tokens", 1, UINT64_MAX, 0, &transfer.n_tokens))
		return CTL_USAGE;
	return transfer_all(&transfer);
}
