/* kvcachectl rollback: sequences go back to a shorter length, also under a writer at work. */
#include "client/ctl/ctl.h"
#include "proto/limits.h"

enum { MODE_KEEP = 1, MODE_REMOVE = 2 };

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

int cmd_rollback(struct ctl *ctl, const struct ctl_args *args)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Rollback message = KV__WIRE__ROLLBACK__INIT;
	Kv__Wire__RollbackOne ones[KV_TARGETS_MAX], *pointers[KV_TARGETS_MAX];
	Kv__Wire__Target sources[KV_TARGETS_MAX];
	size_t n = (size_t)args->n_words;
	bool keep = ctl_option(args, "keep") != NULL;
	Kv__Wire__Reply *reply;
	uint64_t n_tokens;
	int code;

	if (keep == (ctl_option(args, "remove") != NULL))
		return ctl_usage(ctl, args->command,
				 "rollback needs one of --keep N and --remove N");
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
	if (ctl_ask_for(ctl, &request, KV__WIRE__REPLY__RESULT_ROLLBACK, &reply, &code))
		return code;
	print_done(ctl, args, reply->rollback);
	ctl_free_reply(reply);
	return CTL_OK;
}
