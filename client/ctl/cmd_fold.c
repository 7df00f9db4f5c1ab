/* kvcachectl fold: rows of a waiting sequence's replay journal become blocks. */
#include "client/ctl/held.h"

static int fold(struct ctl *ctl, const struct held *held, uint64_t keep_rows)
{
	int64_t n = kvc_fold(held->seq, keep_rows);
	struct kvc_journal_info info;

	if (n < 0 || kvc_journal_info(held->seq, &info))
		return held_fail(ctl, held->name);
	if (ctl->json)
		ctl_print_json(ctl, json_pack("{s:s, s:I, s:I, s:I, s:I}", "name", held->name,
					      "n_folded_rows", (json_int_t)n, "n_rows",
					      (json_int_t)info.n_rows, "base_tokens",
					      (json_int_t)info.base_tokens, "length_tokens",
					      (json_int_t)kvc_length(held->seq)));
	else
		fprintf(ctl->out.stream, "%s: %s folded, %s left; %s of %s in blocks\n", held->name,
			units_of((uint64_t)n, "row").s, units_of(info.n_rows, "row").s,
			units_count(info.base_tokens).s,
			units_of(kvc_length(held->seq), "token").s);
	return CTL_OK;
}

int cmd_fold(struct ctl *ctl, const struct ctl_args *args)
{
	uint64_t keep_rows;
	struct held held;
	int code;

	if (ctl_option_number(ctl, args, "keep-rows", 0, INT64_MAX, 0, &keep_rows))
		return CTL_USAGE;
	if (held_open(ctl, args->words[0], HELD_WRITE, &held, &code))
		return code;
	code = fold(ctl, &held, keep_rows);
	held_close(&held);
	return code;
}
