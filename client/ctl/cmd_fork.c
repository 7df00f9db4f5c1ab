/* kvcachectl fork: new parked sequences from snapshots or sequences, in one atomic command. */
#include <inttypes.h>
#include <stdlib.h>

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
	if (ctl->json)
		ctl_print_json(ctl, json_pack("{s:o}", "forks", forks));
	else
		json_decref(forks);
}

static int ask(struct ctl *ctl, const struct ctl_args *args, Kv__Wire__Fork *message)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Reply *reply;
	int code = CTL_OK;

	request.command_case = KV__WIRE__REQUEST__COMMAND_FORK;
	request.fork = message;
	if (ctl_ask(ctl, &request, &reply, &code))
		return code;
	if (reply->result_case == KV__WIRE__REPLY__RESULT_PLACES)
		print_done(ctl, args, reply->places);
	else
		code = ctl_unexpected(ctl);
	ctl_free_reply(reply);
	return code;
}

int cmd_fork(struct ctl *ctl, const struct ctl_args *args)
{
	Kv__Wire__Fork message = KV__WIRE__FORK__INIT;
	size_t n = (size_t)args->n_words / 2;
	Kv__Wire__ForkOne *ones = ctl_alloc(n, sizeof(*ones));
	Kv__Wire__ForkOne **pointers = ctl_alloc(n, sizeof(*pointers));
	Kv__Wire__Target *sources = ctl_alloc(n, sizeof(*sources));
	Kv__Wire__Target name;
	uint64_t max_tokens;
	int code = CTL_USAGE;

	if (args->n_words % 2) {
		ctl_usage(ctl, args->command, "%s has no name for its fork",
			  args->words[args->n_words - 1]);
		goto out;
	}
	if (ctl_option_number(ctl, args, "max-tokens", 1, KV_TOKENS_MAX, 0, &max_tokens))
		goto out;
	for (size_t i = 0; i < n; i++) {
		if (ctl_target(ctl, args->words[2 * i], &sources[i]) ||
		    ctl_new_name(ctl, args->words[2 * i + 1], &name))
			goto out;
		kv__wire__fork_one__init(&ones[i]);
		ones[i].source = &sources[i];
		ones[i].name = name.name;
		ones[i].max_tokens = max_tokens;
		ones[i].parked = true;
		pointers[i] = &ones[i];
	}
	message.n_ones = n;
	message.ones = pointers;
	code = ask(ctl, args, &message);
out:
	free(sources);
	free(pointers);
	free(ones);
	return code;
}
