/*
 * kvcachectl replay: the steps of a replay journal, of a snapshot or of a waiting sequence, applied
 * to another waiting sequence, a fork of the same base. (What a rollback took back can only be
 * applied again by the process that did it: nobody else knows those rows.)
 */
#include "client/ctl/held.h"

/* Applies all; what is beyond n_steps is taken back, which costs nothing. */
static int apply(struct ctl *ctl, struct held *onto, const struct held *source,
		 const struct kvc_journal_info *info, uint64_t n_steps)
{
	int64_t n = kvc_replay_from(onto->seq, source->seq);

	if (n < 0 && kvc_error() == KVC_ERESERVE &&
	    kvc_reserve_scatter(onto->seq, info->n_steps, info->n_rows, 0) == 0)
		n = kvc_replay_from(onto->seq, source->seq);
	if (n < 0)
		return held_fail(ctl, onto->name);
	if (n_steps < (uint64_t)n) {
		if (kvc_rollback_steps(onto->seq, (uint64_t)n - n_steps))
			return held_fail(ctl, onto->name);
		n = (int64_t)n_steps;
	}
	if (ctl->json)
		ctl_print_json(ctl, json_pack("{s:s, s:s, s:I, s:I}", "name", onto->name, "source",
					      source->name, "n_steps", (json_int_t)n,
					      "length_tokens", (json_int_t)kvc_length(onto->seq)));
	else
		fprintf(ctl->out.stream, "%s: %s of %s, %s now\n", onto->name,
			units_of((uint64_t)n, "step").s, source->name,
			units_of(kvc_length(onto->seq), "token").s);
	return CTL_OK;
}

static int replay(struct ctl *ctl, struct held *onto, const struct held *source, uint64_t n_steps)
{
	struct kvc_journal_info info;
	struct errbuf err;

	if (kvc_journal_info(source->seq, &info))
		return held_fail(ctl, source->name);
	if (n_steps == 0)
		n_steps = UINT64_MAX;
	else if (n_steps > info.n_steps) {
		errbuf_set(&err, KV_ERANGE, "%s: its journal has %llu steps, not %llu",
			   source->name, (unsigned long long)info.n_steps,
			   (unsigned long long)n_steps);
		return ctl_fail(ctl, &err);
	}
	return apply(ctl, onto, source, &info, n_steps);
}

int cmd_replay(struct ctl *ctl, const struct ctl_args *args)
{
	const char *onto = ctl_option(args, "onto");
	struct held source, target;
	uint64_t n_steps;
	int code;

	if (!onto)
		return ctl_usage(
			ctl, args->command,
			"replay needs --onto OBJECT: what a rollback took back can only be "
			"applied again by the process that did it");
	if (ctl_option_number(ctl, args, "steps", 1, INT64_MAX, 0, &n_steps))
		return CTL_USAGE;
	if (held_open(ctl, args->words[0], HELD_READ, &source, &code))
		return code;
	if (held_open(ctl, onto, HELD_WRITE, &target, &code) == 0)
		code = replay(ctl, &target, &source, n_steps);
	held_close(&target);
	held_close(&source);
	return code;
}
