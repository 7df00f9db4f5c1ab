/*
 * Sequences: made, named and ended by the daemon's leave; blocks given back to it.
 *
 * Failure. A handle is freed only when the daemon has heard of it. If it cannot be reached, the
 * handle stays in the writer's books, so that its blocks are not used again while the daemon
 * still counts on them; the session's end frees it. Writer's thread.
 */
#include <string.h>

#include "client/batch.h"
#include "client/error.h"
#include "client/handles.h"
#include "client/layout.h"
#include "client/link.h"
#include "client/options.h"
#include "client/rpc.h"

/* ---- blocks back ---------------------------------------------------------------------------- */

#define RELEASE_RUNS 256

/* Runs of one layout that wait for their message. */
struct releasing {
	struct kvc_session *session;
	uint64_t layout_id;
	size_t n_runs;
	Kv__Wire__Run runs[RELEASE_RUNS];
	Kv__Wire__Run *run_at[RELEASE_RUNS];
};

void handles_tell_release(struct kvc_session *session, uint64_t layout_id, Kv__Wire__Run **runs,
			  size_t n_runs)
{
	Kv__Wire__Request request;
	Kv__Wire__Release command = KV__WIRE__RELEASE__INIT;
	struct errbuf saved = *kvc_err();

	if (n_runs == 0)
		return;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_RELEASE;
	request.release = &command;
	command.layout_id = layout_id;
	command.n_runs = n_runs;
	command.runs = runs;
	rpc_do(session, &request);
	*kvc_err() = saved; /* nobody asked for this call */
}

static void send_release(struct releasing *releasing)
{
	handles_tell_release(releasing->session, releasing->layout_id, releasing->run_at,
			     releasing->n_runs);
	releasing->n_runs = 0;
}

static void add_run(void *arg, uint64_t layout_id, uint32_t group, uint32_t arena,
		    uint32_t first_block, uint32_t n_blocks)
{
	struct releasing *releasing = arg;
	Kv__Wire__Run *run;

	if (releasing->n_runs == RELEASE_RUNS || releasing->layout_id != layout_id)
		send_release(releasing);
	releasing->layout_id = layout_id;
	run = &releasing->runs[releasing->n_runs];
	kv__wire__run__init(run);
	run->group = group;
	run->arena = arena;
	run->first_block = first_block;
	run->n_blocks = n_blocks;
	releasing->run_at[releasing->n_runs++] = run;
}

static bool has_pooled(const struct kvc_writer *writer)
{
	for (const struct block_pool *pool = writer->pools; pool; pool = pool->next)
		if (pool->blocks.n)
			return true;
	return false;
}

void handles_release(struct kvc_writer *writer, bool all)
{
	struct releasing releasing;

	if (writer_release_count(writer) == 0 && !(all && has_pooled(writer)))
		return;
	releasing.session = writer->session;
	releasing.layout_id = 0;
	releasing.n_runs = 0;
	writer_release(writer, all, add_run, &releasing);
	send_release(&releasing);
}

bool handles_release_pooled(struct kvc_writer *writer)
{
	if (!has_pooled(writer))
		return false;
	handles_release(writer, true);
	pins_flush(writer->session);
	return true;
}

/* ---- making --------------------------------------------------------------------------------- */

int handles_name(const char *name, char **out)
{
	static char none[1];

	*out = none;
	if (!name)
		return 0;
	*out = (char *)name;
	return kv_name_check(name, kvc_err());
}

int handles_target(Kv__Wire__Target *target, const char *name)
{
	if (!name)
		return kvc_fail(KV_EINVAL, "a name is missing (NULL)");
	target->which_case = KV__WIRE__TARGET__WHICH_NAME;
	return handles_name(name, &target->name);
}

int handles_seq_options(const struct kvc_seq_options *given, struct kvc_seq_options *options)
{
	if (options_take(given, "kvc_seq_options", sizeof(*options), options, sizeof(*options)))
		return -1;
	if (options->max_tokens > KV_TOKENS_MAX)
		return kvc_fail(KV_ERANGE, "max_tokens is %llu, the limit is %u",
				(unsigned long long)options->max_tokens, KV_TOKENS_MAX);
	return 0;
}

const Kv__Wire__Place *handles_only_place(const Kv__Wire__Reply *reply)
{
	if (reply->places->n_places == 1)
		return reply->places->places[0];
	kvc_fail(KV_EPROTO, "the daemon gave %zu places, not 1", reply->places->n_places);
	return NULL;
}

static int tell_drop(struct kvc_session *session, uint32_t *places, size_t n_places, bool park)
{
	Kv__Wire__Request request;
	Kv__Wire__SeqDrop command = KV__WIRE__SEQ_DROP__INIT;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SEQ_DROP;
	request.seq_drop = &command;
	command.n_places = n_places;
	command.places = places;
	command.park = park;
	return rpc_do(session, &request);
}

struct kvc_seq *handles_attach(struct kvc_writer *writer, const Kv__Wire__Place *place)
{
	struct kvc_session *session = writer->session;
	struct kvc_layout *layout;
	struct kvc_seq *seq = NULL;
	uint32_t index = place->place;
	struct errbuf why;

	if (place->place >= session->segment->n_places || place->seq_id == 0) {
		kvc_fail(KV_EPROTO, "the daemon gave place %u of %u for sequence %llu",
			 place->place, session->segment->n_places,
			 (unsigned long long)place->seq_id);
		return NULL;
	}
	layout = session_layout(session, place->layout_id);
	if (layout)
		seq = seq_attach(writer, layout, place->place, place->seq_id, place->base_id);
	if (seq)
		return seq;
	why = *kvc_err();
	tell_drop(session, &index, 1, false);
	*kvc_err() = why;
	return NULL;
}

kvc_seq *kvc_seq_new(kvc_writer *writer, const kvc_layout *layout,
		     const struct kvc_seq_options *given)
{
	struct kvc_seq_options options;
	Kv__Wire__Request request;
	Kv__Wire__SeqNew command = KV__WIRE__SEQ_NEW__INIT;
	const Kv__Wire__Place *place;
	Kv__Wire__Reply *reply;
	struct kvc_seq *seq = NULL;

	if (session_check(writer->session) || handles_seq_options(given, &options) ||
	    handles_name(options.name, &command.name))
		return NULL;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SEQ_NEW;
	request.seq_new = &command;
	command.writer = writer->index;
	command.layout_id = layout->id;
	command.max_tokens = options.max_tokens;
	reply = rpc_ask(writer->session, &request, KV__WIRE__REPLY__RESULT_PLACES);
	if (!reply)
		return NULL;
	place = handles_only_place(reply);
	if (place)
		seq = handles_attach(writer, place);
	if (seq)
		seq->named = options.name != NULL;
	rpc_reply_free(reply);
	return seq;
}

/* ---- ending --------------------------------------------------------------------------------- */

static int end_seq(struct kvc_seq *seq, bool park)
{
	struct kvc_writer *writer = seq->writer;
	struct kvc_session *session = writer->session;

	if (seq->is_open)
		kvc_abort(seq);
	if (seq->seq_id == 0) {
		seq_end(seq, SEQ_END_LOCAL);
	} else {
		if (tell_drop(session, &seq->place, 1, park))
			return -1;
		seq_end(seq, park ? SEQ_END_PARKED : SEQ_END_DROPPED);
		handles_release(writer, true);
	}
	pins_flush(session);
	return 0;
}

void handles_end_many(struct kvc_writer *writer, struct kvc_seq *const *seqs, size_t n_seqs)
{
	uint32_t places[KV_TARGETS_MAX];

	for (size_t done = 0; done < n_seqs;) {
		size_t n = n_seqs - done < KV_TARGETS_MAX ? n_seqs - done : KV_TARGETS_MAX;
		bool told;

		for (size_t i = 0; i < n; i++) {
			if (seqs[done + i]->is_open)
				kvc_abort(seqs[done + i]);
			places[i] = seqs[done + i]->place;
		}
		told = tell_drop(writer->session, places, n, false) == 0;
		for (size_t i = 0; told && i < n; i++)
			seq_end(seqs[done + i], SEQ_END_DROPPED);
		done += n;
	}
	handles_release(writer, true);
	pins_flush(writer->session);
}

bool handles_leave(struct kvc_writer *writer)
{
	bool heard = true;

	while (heard && writer->seqs) {
		struct kvc_seq *seqs[KV_TARGETS_MAX];
		uint32_t places[KV_TARGETS_MAX];
		size_t n = 0;

		while (writer->seqs && writer->seqs->seq_id == 0)
			seq_end(writer->seqs, SEQ_END_LOCAL);
		for (struct kvc_seq *seq = writer->seqs; seq && n < KV_TARGETS_MAX;
		     seq = seq->next) {
			if (seq->seq_id == 0)
				continue;
			seqs[n] = seq;
			places[n++] = seq->place;
		}
		heard = n == 0 || tell_drop(writer->session, places, n, true) == 0;
		for (size_t i = 0; heard && i < n; i++)
			seq_end(seqs[i], seqs[i]->named ? SEQ_END_PARKED : SEQ_END_DROPPED);
	}
	if (heard)
		handles_release(writer, true);
	return heard;
}

static int check_not_batched(const struct kvc_seq *seq)
{
	if (seq->groups[0].batch_first.arena == 0)
		return 0;
	return kvc_fail(KV_EINVAL, "the sequence belongs to a batch: kvc_batch_free drops it");
}

void kvc_seq_free(kvc_seq *seq)
{
	if (!seq || session_check(seq->writer->session) || check_not_batched(seq))
		return;
	end_seq(seq, seq->named);
}

int kvc_seq_drop(kvc_seq *seq)
{
	if (session_check(seq->writer->session) || check_not_batched(seq))
		return -1;
	return end_seq(seq, false);
}

int kvc_seq_name(kvc_seq *seq, const char *name)
{
	Kv__Wire__Request request;
	Kv__Wire__SeqName command = KV__WIRE__SEQ_NAME__INIT;

	if (session_check(seq->writer->session) || handles_name(name, &command.name))
		return -1;
	if (seq->seq_id == 0)
		return kvc_fail(KV_EUNSUPPORTED,
				"a local fork has no name; fork the snapshot of it that has one");
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SEQ_NAME;
	request.seq_name = &command;
	command.place = seq->place;
	if (rpc_do(seq->writer->session, &request))
		return -1;
	seq->named = name != NULL;
	return 0;
}
