/*
 * kvcachectl rollback: sequences go back to a shorter length, also under a writer at work.
 *
 * The daemon does it by headers alone. Where slots were overwritten (an undo journal) only a writer
 * can put their bytes back: then all are taken over, rolled back in one update and wait again. So
 * do marks and steps, which are the journal's.
 */
#include <stdlib.h>

#include "client/ctl/held.h"
#include "proto/limits.h"

enum { MODE_KEEP = 1, MODE_REMOVE = 2 };

/* ---- by the library ------------------------------------------------------------------------- */

/* How many tokens each is to lose; -1 if one has not as many as are to be kept. */
static int count_removed(const struct held *held, size_t n, bool keep, uint64_t n_tokens,
			 uint64_t *remove)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t length = kvc_length(held[i].seq);

		if (keep && n_tokens > length)
			return kvc_rollback_keep(held[i].seq, n_tokens);
		remove[i] = keep ? length - n_tokens : n_tokens;
	}
	return 0;
}

static int roll_back_many(struct ctl *ctl, struct held *held, size_t n, bool keep,
			  uint64_t n_tokens)
{
	uint64_t remove[KV_TARGETS_MAX];
	kvc_seq *seqs[KV_TARGETS_MAX];
	uint32_t n_reserved[KV_TARGETS_MAX] = {0};

	for (size_t i = 0; i < n; i++)
		seqs[i] = held[i].seq;
	if (count_removed(held, n, keep, n_tokens, remove))
		return -1;
	while (kvc_rollback_many(ctl->writer, seqs, remove, n)) {
		if (kvc_error() != KVC_ERESERVE)
			return -1;
		for (size_t i = 0; i < n; i++)
			if (held_may_reserve(&held[i]) && held_reserve(&held[i], &n_reserved[i]))
				return -1;
	}
	return 0;
}

static void print_held(struct ctl *ctl, const struct held *held, size_t n)
{
	json_t *sequences = json_array();

	for (size_t i = 0; i < n; i++) {
		uint64_t length = kvc_length(held[i].seq);

		json_array_append_new(sequences, json_pack("{s:s, s:I}", "name", held[i].name,
							   "length_tokens", (json_int_t)length));
		if (!ctl->json)
			fprintf(ctl->out.stream, "%s: %s tokens now\n", held[i].name,
				units_count(length).s);
	}
	ctl_print_rows(ctl, "sequences", sequences);
}

static int by_library(struct ctl *ctl, const struct ctl_args *args, bool keep, uint64_t n_tokens)
{
	size_t n = (size_t)args->n_words, n_held = 0;
	struct held held[KV_TARGETS_MAX];
	int code = CTL_OK;

	while (n_held < n &&
	       held_open(ctl, args->words[n_held], HELD_WRITE, &held[n_held], &code) == 0)
		n_held++;
	if (n_held == n && roll_back_many(ctl, held, n, keep, n_tokens))
		code = held_fail(ctl, n == 1 ? held[0].name : "rollback");
	else if (n_held == n)
		print_held(ctl, held, n);
	while (n_held)
		held_close(&held[--n_held]);
	return code;
}

/* ---- to a mark, by steps -------------------------------------------------------------------- */

static int to_step(const struct held *held, uint64_t n_steps, uint64_t mark_id)
{
	kvc_mark mark;

	if (n_steps)
		return kvc_rollback_steps(held->seq, n_steps);
	return held_mark(held, mark_id, &mark) ? -1 : kvc_rollback_mark(held->seq, &mark);
}

static int by_journal(struct ctl *ctl, const struct ctl_args *args)
{
	uint64_t n_steps, mark_id;
	uint32_t n_reserved = 0;
	struct held held;
	int code = CTL_OK;

	if (args->n_words > 1)
		return ctl_usage(ctl, args->command, "--mark and --steps take one object");
	if (ctl_option_number(ctl, args, "steps", 1, INT64_MAX, 0, &n_steps) ||
	    ctl_option_number(ctl, args, "mark", 1, UINT64_MAX, 0, &mark_id))
		return CTL_USAGE;
	if (held_open(ctl, args->words[0], HELD_WRITE, &held, &code))
		return code;
	while (code == CTL_OK && to_step(&held, n_steps, mark_id))
		if (!held_may_reserve(&held) || held_reserve(&held, &n_reserved))
			code = held_fail(ctl, held.name);
	if (code == CTL_OK)
		print_held(ctl, &held, 1);
	held_close(&held);
	return code;
}

/* ---- by the daemon -------------------------------------------------------------------------- */

static void print_done(struct ctl *ctl, const struct ctl_args *args,
		       const Kv__Wire__RollbackResult *result)
{
	json_t *sequences = json_array();

	for (size_t i = 0; i < result->n_ones && (int)i < args->n_words; i++) {
		uint64_t length = result->ones[i]->length_tokens;

		json_array_append_new(sequences, json_pack("{s:s, s:I}", "name", args->words[i],
							   "length_tokens", (json_int_t)length));
		if (!ctl->json)
			fprintf(ctl->out.stream, "%s: %s tokens now\n", args->words[i],
				units_count(length).s);
	}
	ctl_print_rows(ctl, "sequences", sequences);
}

static int n_ways(const struct ctl_args *args)
{
	static const char *const ways[] = {"keep", "remove", "steps", "mark"};
	int n = 0;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		n += ctl_option(args, ways[i]) != NULL;
	return n;
}

int cmd_rollback(struct ctl *ctl, const struct ctl_args *args)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Rollback message = KV__WIRE__ROLLBACK__INIT;
	Kv__Wire__RollbackOne ones[KV_TARGETS_MAX], *pointers[KV_TARGETS_MAX];
	Kv__Wire__Target sources[KV_TARGETS_MAX];
	size_t n = (size_t)args->n_words;
	bool keep = ctl_option(args, "keep") != NULL;
	struct errbuf err = {KV_OK, ""};
	Kv__Wire__Reply *reply = NULL;
	uint64_t n_tokens;

	if (n_ways(args) != 1)
		return ctl_usage(ctl, args->command,
				 "rollback needs one of --keep N, --remove N, --steps N and --mark "
				 "MARK");
	if (!keep && !ctl_option(args, "remove"))
		return by_journal(ctl, args);
	if (ctl_option_number(ctl, args, keep ? "keep" : "remove", 0, KV_TOKENS_MAX, 0, &n_tokens))
		return CTL_USAGE;
	for (size_t i = 0; i < n; i++) {
		if (ctl_target(ctl, args->words[i], &sources[i]))
			return CTL_USAGE;
		kv__wire__rollback_one__init(&ones[i]);
		ones[i].source = &sources[i];
		ones[i].mode = keep ? MODE_KEEP : MODE_REMOVE;
		ones[i].n_tokens = n_tokens;
		pointers[i] = &ones[i];
	}
	message.n_ones = n;
	message.ones = pointers;
	request.command_case = KV__WIRE__REQUEST__COMMAND_ROLLBACK;
	request.rollback = &message;
	if (ctl->call(ctl, &request, &reply, &err))
		return err.status == KV_EUNSUPPORTED ? by_library(ctl, args, keep, n_tokens) :
						       ctl_fail(ctl, &err);
	if (reply->result_case != KV__WIRE__REPLY__RESULT_ROLLBACK) {
		ctl_free_reply(reply);
		return ctl_unexpected(ctl);
	}
	print_done(ctl, args, reply->rollback);
	ctl_free_reply(reply);
	return CTL_OK;
}
