/*
 * What is shared through the daemon: snapshots, forks, opened snapshots, takeover, removal.
 *
 * None of these touches data. A snapshot or fork is taken at the committed state of the moment at
 * which the daemon holds the writer's commit word; the writer's own thread asks, so its word is
 * idle. Writer's thread, where a writer or sequence is named.
 */
#include <string.h>

#include "client/error.h"
#include "client/handles.h"
#include "client/link.h"
#include "client/options.h"
#include "client/rpc.h"

/* ---- snapshots ------------------------------------------------------------------------------ */

struct snapshot_one {
	Kv__Wire__SnapshotOne one;
	Kv__Wire__Target source;
};

static int fill_one(struct snapshot_one *one, const struct kvc_seq *seq,
		    const struct kvc_snapshot_options *given)
{
	struct kvc_snapshot_options options;

	kv__wire__snapshot_one__init(&one->one);
	kv__wire__target__init(&one->source);
	if (options_take(given, "kvc_snapshot_options", sizeof(options), &options,
			 sizeof(options)) ||
	    handles_name(options.name, &one->one.name))
		return -1;
	one->source.which_case = KV__WIRE__TARGET__WHICH_PLACE;
	one->source.place = seq->place;
	one->one.source = &one->source;
	one->one.replace = options.replace != 0;
	return 0;
}

static int ask_snapshots(struct kvc_session *session, Kv__Wire__Snapshot *command, uint64_t *ids)
{
	Kv__Wire__Request request;
	Kv__Wire__Reply *reply;
	int rc = 0;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SNAPSHOT;
	request.snapshot = command;
	reply = rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_SNAPSHOT);
	if (!reply)
		return -1;
	if (reply->snapshot->n_ones != command->n_ones)
		rc = kvc_fail(KV_EPROTO, "the daemon took %zu snapshots, not %zu",
			      reply->snapshot->n_ones, command->n_ones);
	for (size_t i = 0; rc == 0 && ids && i < command->n_ones; i++)
		ids[i] = reply->snapshot->ones[i]->id;
	rpc_reply_free(reply);
	return rc;
}

int kvc_snapshot_many(kvc_seq *const *seqs, const struct kvc_snapshot_options *options,
		      uint64_t *ids, size_t n_seqs)
{
	struct snapshot_one ones[KV_TARGETS_MAX];
	Kv__Wire__SnapshotOne *one_at[KV_TARGETS_MAX];
	Kv__Wire__Snapshot command = KV__WIRE__SNAPSHOT__INIT;
	struct kvc_session *session;

	if (n_seqs == 0)
		return 0;
	session = seqs[0]->writer->session;
	if (session_check(session))
		return -1;
	if (n_seqs > KV_TARGETS_MAX)
		return kvc_fail(KV_ETOOBIG, "%zu sequences in one snapshot, the limit is %u",
				n_seqs, KV_TARGETS_MAX);
	for (size_t i = 0; i < n_seqs; i++) {
		if (seqs[i]->writer->session != session)
			return kvc_fail(KV_EINVAL, "sequence %zu belongs to another session", i);
		if (fill_one(&ones[i], seqs[i], options_element(options, i)))
			return -1;
		one_at[i] = &ones[i].one;
	}
	command.n_ones = n_seqs;
	command.ones = one_at;
	return ask_snapshots(session, &command, ids);
}

int kvc_snapshot(kvc_seq *seq, const struct kvc_snapshot_options *options, uint64_t *id)
{
	kvc_seq *one[1] = {seq};

	return kvc_snapshot_many(one, options, id, 1);
}

/* ---- handles on what others made ------------------------------------------------------------ */

/*
 * Asks for a place that shares a snapshot's blocks and attaches to it. Until its base is counted,
 * no pin of this session is given back (client/pins.c).
 */
static struct kvc_seq *ask_place(struct kvc_writer *writer, Kv__Wire__Request *request)
{
	struct kvc_session *session = writer->session;
	const Kv__Wire__Place *place;
	Kv__Wire__Reply *reply;
	struct kvc_seq *seq = NULL;

	pins_hold(session);
	reply = rpc_ask(session, request, KV__WIRE__REPLY__RESULT_PLACES);
	if (reply) {
		place = handles_only_place(reply);
		if (place)
			seq = handles_attach(writer, place);
		rpc_reply_free(reply);
	}
	pins_unhold(session);
	return seq;
}

static struct kvc_seq *fork_from(struct kvc_writer *writer, Kv__Wire__Target *source,
				 const struct kvc_seq_options *given)
{
	struct kvc_seq_options options;
	Kv__Wire__Request request;
	Kv__Wire__Fork command = KV__WIRE__FORK__INIT;
	Kv__Wire__ForkOne one = KV__WIRE__FORK_ONE__INIT;
	Kv__Wire__ForkOne *one_at[1] = {&one};
	struct kvc_seq *seq;

	if (handles_seq_options(given, &options) || handles_name(options.name, &one.name))
		return NULL;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_FORK;
	request.fork = &command;
	command.n_ones = 1;
	command.ones = one_at;
	one.source = source;
	one.max_tokens = options.max_tokens;
	one.writer = writer->index;
	seq = ask_place(writer, &request);
	if (seq)
		seq->named = options.name != NULL;
	return seq;
}

kvc_seq *kvc_fork(kvc_writer *writer, const char *source, const struct kvc_seq_options *options)
{
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;

	if (session_check(writer->session) || handles_target(&target, source))
		return NULL;
	return fork_from(writer, &target, options);
}

kvc_seq *kvc_fork_id(kvc_writer *writer, uint64_t source_id, const struct kvc_seq_options *options)
{
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;

	if (session_check(writer->session))
		return NULL;
	target.which_case = KV__WIRE__TARGET__WHICH_ID;
	target.id = source_id;
	return fork_from(writer, &target, options);
}

kvc_seq *kvc_open_snapshot(kvc_writer *writer, const char *name)
{
	Kv__Wire__Request request;
	Kv__Wire__Open command = KV__WIRE__OPEN__INIT;
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;

	if (session_check(writer->session) || handles_target(&target, name))
		return NULL;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_OPEN;
	request.open = &command;
	command.source = &target;
	command.writer = writer->index;
	return ask_place(writer, &request);
}

kvc_seq *kvc_takeover(kvc_writer *writer, const char *name)
{
	Kv__Wire__Request request;
	Kv__Wire__Takeover command = KV__WIRE__TAKEOVER__INIT;
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	struct kvc_seq *seq;

	if (session_check(writer->session) || handles_target(&target, name))
		return NULL;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_TAKEOVER;
	request.takeover = &command;
	command.name = target.name;
	command.writer = writer->index;
	seq = ask_place(writer, &request);
	if (seq)
		seq->named = true;
	return seq;
}

int kvc_remove(kvc_session *session, const char *name)
{
	Kv__Wire__Request request;
	Kv__Wire__Remove command = KV__WIRE__REMOVE__INIT;
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;

	if (session_check(session) || handles_target(&target, name))
		return -1;
	pins_flush(session);
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_REMOVE;
	request.remove = &command;
	command.source = &target;
	return rpc_do(session, &request);
}
