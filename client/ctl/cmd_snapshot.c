/* kvcachectl snapshot: named snapshots of live or parked sequences, in one atomic command. */
#include <inttypes.h>

#include "client/ctl/ctl.h"
#include "proto/limits.h"

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
	ctl_print_rows(ctl, "snapshots", snapshots);
}

int cmd_snapshot(struct ctl *ctl, const struct ctl_args *args)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Snapshot message = KV__WIRE__SNAPSHOT__INIT;
	Kv__Wire__SnapshotOne ones[KV_TARGETS_MAX], *pointers[KV_TARGETS_MAX];
	Kv__Wire__Target sources[KV_TARGETS_MAX];
	size_t n = (size_t)args->n_words / 2;
	Kv__Wire__Reply *reply;
	int code;

	if (ctl_pairs(ctl, args, "snapshot", sources))
		return CTL_USAGE;
	for (size_t i = 0; i < n; i++) {
		kv__wire__snapshot_one__init(&ones[i]);
		ones[i].source = &sources[i];
		ones[i].name = args->words[2 * i + 1];
		ones[i].replace = ctl_option(args, "replace") != NULL;
		pointers[i] = &ones[i];
	}
	message.n_ones = n;
	message.ones = pointers;
	request.command_case = KV__WIRE__REQUEST__COMMAND_SNAPSHOT;
	request.snapshot = &message;
	if (ctl_ask_for(ctl, &request, KV__WIRE__REPLY__RESULT_SNAPSHOT, &reply, &code))
		return code;
	print_done(ctl, args, reply->snapshot);
	ctl_free_reply(reply);
	return CTL_OK;
}
