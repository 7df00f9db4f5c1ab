/* kvcachectl snapshot: named snapshots of live or parked sequences, in one atomic command. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/ctl/ctl.h"

static void print_done(struct ctl *ctl, const struct ctl_args *args,
		       const Kv__Wire__SnapshotResult *result)
{
	json_t *snapshots = json_array();

	for (size_t i = 0; i < result->n_ones && (int)i < args->n_words / 2; i++) {
		const Kv__Wire__SnapshotDone *done = result->ones[i];
		const char *source = args->words[2 * i], *name = args->words[2 * i + 1];

		json_array_append_new(snapshots,
				      json_pack("{s:s, s:s, s:I, s:I, s:I}", "source", source,
						"name", name, "id", (json_int_t)done->id,
						"length_tokens", (json_int_t)done->length_tokens,
						"update", (json_int_t)done->update));
		if (!ctl->json)
			fprintf(ctl->out.stream, "%s: snapshot @%" PRIu64 " of %s, %s tokens\n",
				name, done->id, source, units_count(done->length_tokens).s);
	}
	if (ctl->json)
		ctl_print_json(ctl, json_pack("{s:o}", "snapshots", snapshots));
	else
		json_decref(snapshots);
}

static int ask(struct ctl *ctl, const struct ctl_args *args, Kv__Wire__Snapshot *message)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Reply *reply;
	int code = CTL_OK;

	request.command_case = KV__WIRE__REQUEST__COMMAND_SNAPSHOT;
	request.snapshot = message;
	if (ctl_ask(ctl, &request, &reply, &code))
		return code;
	if (reply->result_case == KV__WIRE__REPLY__RESULT_SNAPSHOT)
		print_done(ctl, args, reply->snapshot);
	else
		code = ctl_unexpected(ctl);
	ctl_free_reply(reply);
	return code;
}

int cmd_snapshot(struct ctl *ctl, const struct ctl_args *args)
{
	Kv__Wire__Snapshot message = KV__WIRE__SNAPSHOT__INIT;
	size_t n = (size_t)args->n_words / 2;
	Kv__Wire__SnapshotOne *ones = ctl_alloc(n, sizeof(*ones));
	Kv__Wire__SnapshotOne **pointers = ctl_alloc(n, sizeof(*pointers));
	Kv__Wire__Target *sources = ctl_alloc(n, sizeof(*sources));
	Kv__Wire__Target name;
	int code = CTL_OK;

	if (args->n_words % 2) {
		code = ctl_usage(ctl, args->command, "%s has no name for its snapshot",
				 args->words[args->n_words - 1]);
		goto out;
	}
	for (size_t i = 0; i < n; i++) {
		code = CTL_USAGE;
		if (ctl_target(ctl, args->words[2 * i], &sources[i]) ||
		    ctl_new_name(ctl, args->words[2 * i + 1], &name))
			goto out;
		kv__wire__snapshot_one__init(&ones[i]);
		ones[i].source = &sources[i];
		ones[i].name = name.name;
		ones[i].replace = ctl_option(args, "replace") != NULL;
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
