/* kvcachectl fork: new parked sequences from snapshots or sequences, in one atomic command. */
#include <inttypes.h>

#include "client/ctl/ctl.h"
#include "proto/limits.h"

static void print_done(struct ctl *ctl, const struct ctl_args *args,
		       const Kv__Wire__PlacesResult *result)
{
	json_t *forks = json_array();

	for (size_t i = 0; i < result->n_places && (int)i < args->n_words / 2; i++) {
		const Kv__Wire__Place *place = result->places[i];
		const char *source = args->words[2 * i], *name = args->words[2 * i + 1];

		json_array_append_new(forks,
				      json_pack("{s:s, s:s, s:I, s:I}", "source", source, "name",
						name, "id", (json_int_t)place->seq_id,
						"length_tokens", (json_int_t)place->length_tokens));
		if (!ctl->json)
			fprintf(ctl->out.stream, "%s: sequence @%" PRIu64 " from %s, %s tokens\n",
				name, place->seq_id, source, units_count(place->length_tokens).s);
	}
	ctl_print_rows(ctl, "forks", forks);
}

int cmd_fork(struct ctl *ctl, const struct ctl_args *args)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Fork message = KV__WIRE__FORK__INIT;
	Kv__Wire__ForkOne ones[KV_TARGETS_MAX], *pointers[KV_TARGETS_MAX];
	Kv__Wire__Target sources[KV_TARGETS_MAX];
	size_t n = (size_t)args->n_words / 2;
	Kv__Wire__Reply *reply;
	uint64_t max_tokens;
	int code;

	if (ctl_option_number(ctl, args, "max-tokens", 1, KV_TOKENS_MAX, 0, &max_tokens) ||
	    ctl_pairs(ctl, args, "fork", sources))
		return CTL_USAGE;
	for (size_t i = 0; i < n; i++) {
		kv__wire__fork_one__init(&ones[i]);
		ones[i].source = &sources[i];
		ones[i].name = args->words[2 * i + 1];
		ones[i].max_tokens = max_tokens;
		ones[i].parked = true;
		pointers[i] = &ones[i];
	}
	message.n_ones = n;
	message.ones = pointers;
	request.command_case = KV__WIRE__REQUEST__COMMAND_FORK;
	request.fork = &message;
	if (ctl_ask_for(ctl, &request, KV__WIRE__REPLY__RESULT_PLACES, &reply, &code))
		return code;
	print_done(ctl, args, reply->places);
	ctl_free_reply(reply);
	return CTL_OK;
}
