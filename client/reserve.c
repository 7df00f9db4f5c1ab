/*
 * Blocks and places ahead of need: after these calls the data plane asks nobody.
 *
 * kvc_reserve asks for what is missing, in one message, next to where the sequence's last block
 * is, so that runs grow. Blocks that wait to go back are given back first: they may be what the
 * pool lacks. When pool or quota is used up, blocks that this writer keeps for later go back too,
 * and it is tried once more. All or nothing. Writer's thread.
 */
#include <string.h>

#include "client/error.h"
#include "client/handles.h"
#include "client/link.h"
#include "client/reserve.h"
#include "client/rpc.h"

/* ---- blocks --------------------------------------------------------------------------------- */

/* The granted runs are what was asked for, and their arenas can be used. */
static int check_runs(struct kvc_session *session, const struct kvc_layout *layout,
		      const Kv__Wire__RunsResult *result, const uint32_t need[KV_GROUPS_MAX])
{
	uint64_t got[KV_GROUPS_MAX] = {0};

	if (result->n_runs > KV_RUNS_MAX)
		return kvc_fail(KV_EPROTO, "the daemon granted %zu runs, the limit is %u",
				result->n_runs, KV_RUNS_MAX);
	for (size_t i = 0; i < result->n_runs; i++) {
		if (result->runs[i]->group >= layout->fields->n_groups)
			return kvc_fail(KV_EPROTO, "the daemon granted blocks of group %u",
					result->runs[i]->group);
		got[result->runs[i]->group] += result->runs[i]->n_blocks;
		if (!session_arena(session, result->runs[i]->arena))
			return -1;
	}
	for (uint32_t g = 0; g < layout->fields->n_groups; g++)
		if (got[g] < need[g])
			return kvc_fail(KV_EPROTO,
					"the daemon granted %llu blocks of group %u, not %u",
					(unsigned long long)got[g], g, need[g]);
	return 0;
}

Kv__Wire__Reply *reserve_ask(struct kvc_session *session, const struct kvc_layout *layout,
			     const struct reserve_need *needs)
{
	Kv__Wire__Request request;
	Kv__Wire__Reserve command = KV__WIRE__RESERVE__INIT;
	Kv__Wire__Need wants[KV_GROUPS_MAX];
	Kv__Wire__Need *want_at[KV_GROUPS_MAX];
	Kv__Wire__Reply *reply;

	for (uint32_t g = 0; g < layout->fields->n_groups; g++) {
		Kv__Wire__Need *want = &wants[command.n_needs];

		if (needs->n_blocks[g] == 0)
			continue;
		kv__wire__need__init(want);
		want->group = g;
		want->n_blocks = needs->n_blocks[g];
		want->after_arena = needs->after[g].arena;
		want->after_block = needs->after[g].block;
		want->contiguous = needs->contiguous;
		want_at[command.n_needs++] = want;
	}
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_RESERVE;
	request.reserve = &command;
	command.layout_id = layout->id;
	command.needs = want_at;
	reply = rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_RUNS);
	if (reply && check_runs(session, layout, reply->runs, needs->n_blocks)) {
		handles_tell_release(session, layout->id, reply->runs->runs, reply->runs->n_runs);
		rpc_reply_free(reply);
		reply = NULL;
	}
	return reply;
}

/* Where the sequence's run goes on: behind the spare that is used last, or its last block. */
static struct kvc_block next_of(const struct kvc_seq *seq, uint32_t group)
{
	const struct seq_group *g = &seq->groups[group];
	uint64_t n = g->pending_end;
	struct kvc_block last = {0, 0};
	struct arena_map *map;

	if (g->spares.n)
		last = (struct kvc_block){kv_ref_arena(g->spares.refs[0]),
					  kv_ref_block(g->spares.refs[0])};
	else if (n > g->first_block)
		last = g->mirror[group_index(g, n - 1)];
	map = last.arena < KV_ARENAS_MAX ? session_arena_mapped(seq->writer->session, last.arena) :
					   NULL;
	if (!map || !map->writable)
		return (struct kvc_block){0, 0};
	last.block++;
	return last;
}

static int grant_all(struct kvc_seq *seq, const Kv__Wire__RunsResult *result)
{
	for (size_t i = 0; i < result->n_runs; i++) {
		const Kv__Wire__Run *run = result->runs[i];

		if (seq_grant(seq, run->group, run->arena, run->first_block, run->n_blocks)) {
			handles_tell_release(seq->writer->session, seq->layout->id,
					     result->runs + i + 1, result->n_runs - i - 1);
			return -1;
		}
	}
	return 0;
}

static Kv__Wire__Reply *ask_for(struct kvc_seq *seq, struct reserve_need *needs)
{
	struct kvc_writer *writer = seq->writer;
	Kv__Wire__Reply *reply;

	handles_release(writer, false);
	reply = reserve_ask(writer->session, seq->layout, needs);
	if (reply || (kvc_error() != KVC_EPOOL && kvc_error() != KVC_EQUOTA))
		return reply;
	if (!handles_release_pooled(writer))
		return NULL;
	return reserve_ask(writer->session, seq->layout, needs);
}

static int check_length(const struct kvc_seq *seq, uint64_t n_tokens)
{
	const struct kv_layout *fields = seq->layout->fields;
	uint64_t length = seq->head.length_tokens + (seq->is_open ? seq->open_tokens : 0);

	if (!seq_is_live(seq))
		return kvc_fail(KV_EREADONLY, "a snapshot takes no tokens; fork it");
	if (n_tokens > KV_TOKENS_MAX || length + n_tokens > seq->max_tokens)
		return kvc_fail(
			KV_ERANGE,
			"%llu tokens behind %llu are more than the sequence's max_tokens, %llu",
			(unsigned long long)n_tokens, (unsigned long long)length,
			(unsigned long long)seq->max_tokens);
	if (length + n_tokens > fields->max_slots && seq_mode(seq) == KV_JOURNAL_NONE)
		return kvc_fail(
			KV_EBOUND,
			"%llu tokens behind %llu are more than a layer group's bound, %llu slots; "
			"a ring needs a journal (kvc_journal_set)",
			(unsigned long long)n_tokens, (unsigned long long)length,
			(unsigned long long)fields->max_slots);
	return 0;
}

/* A replay journal forgets nothing. An update has room for one record more than it may need. */
static int check_rows(const struct kvc_seq *seq, uint64_t n_tokens)
{
	uint64_t end = seq->is_open ? seq->open_rows_end : seq->head.journal_end;
	uint64_t rows = end - seq->head.journal_first;

	if (seq_mode(seq) != KV_JOURNAL_REPLAY || n_tokens == 0)
		return 0;
	rows += seq_token_rows(seq, n_tokens) - (rows != 0); /* its first record is there */
	if (rows < seq->journal.max_rows)
		return 0;
	return kvc_fail(KV_EJOURNAL,
			"the journal would have %llu rows with %llu tokens more, it may have %llu; "
			"reserve fewer, and fold in between",
			(unsigned long long)rows, (unsigned long long)n_tokens,
			(unsigned long long)seq->journal.max_rows);
}

/* What is set aside fits into the stacks of the handle. */
static int check_room(const struct kvc_seq *seq, const struct reserve_need *needs)
{
	for (uint32_t g = 0; g < seq->n_groups; g++) {
		const struct block_stack *spares = &seq->groups[g].spares;

		if (needs->n_blocks[g] > spares->cap - spares->n)
			return kvc_fail(KV_ELIMIT,
					"%u blocks of group %u on top of %u are more than a "
					"sequence keeps in reserve, %u",
					needs->n_blocks[g], g, spares->n, spares->cap);
	}
	return 0;
}

/* Asks for what is missing. */
static int reserve(struct kvc_seq *seq, struct reserve_need needs)
{
	Kv__Wire__Reply *reply;
	bool missing = false;
	int rc;

	for (uint32_t g = 0; g < seq->n_groups; g++) {
		missing |= needs.n_blocks[g] != 0;
		needs.after[g] = next_of(seq, g);
	}
	if (!missing)
		return 0;
	if (check_room(seq, &needs))
		return -1;
	reply = ask_for(seq, &needs);
	if (!reply)
		return -1;
	rc = grant_all(seq, reply->runs);
	rpc_reply_free(reply);
	return rc;
}

int kvc_reserve(kvc_seq *seq, uint64_t n_tokens)
{
	struct reserve_need needs = {.contiguous = false};

	if (session_check(seq->writer->session) || check_length(seq, n_tokens) ||
	    check_rows(seq, n_tokens))
		return -1;
	seq_need(seq, n_tokens, needs.n_blocks);
	return reserve(seq, needs);
}

int reserve_blocks(struct kvc_seq *seq, const uint32_t n_blocks[KV_GROUPS_MAX])
{
	struct reserve_need needs = {.contiguous = false};

	for (uint32_t g = 0; g < seq->n_groups; g++)
		needs.n_blocks[g] = seq_short_of(seq, g, n_blocks[g]);
	return reserve(seq, needs);
}

int kvc_reserve_scatter(kvc_seq *seq, uint64_t n_updates, uint64_t n_rows, uint32_t n_blocks)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint32_t need[KV_GROUPS_MAX] = {0};
	uint64_t rows;

	if (session_check(seq->writer->session))
		return -1;
	if (!seq_is_live(seq))
		return kvc_fail(KV_EREADONLY, "a snapshot takes no updates; fork it");
	if (seq_mode(seq) == KV_JOURNAL_NONE)
		return kvc_fail(KV_EUNSUPPORTED, "the sequence has no journal; kvc_journal_set");
	if (n_rows > UINT32_MAX || n_updates > UINT32_MAX ||
	    n_rows + n_updates + 1 > seq->journal.max_rows)
		return kvc_fail(
			KV_EJOURNAL,
			"%llu rows of %llu updates are more than the journal may have, %llu",
			(unsigned long long)n_rows, (unsigned long long)n_updates,
			(unsigned long long)seq->journal.max_rows);
	rows = n_rows + n_updates + 1;
	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		need[g] = seq_mode(seq) == KV_JOURNAL_UNDO ? n_blocks : 0;
	need[layout->journal_group] = (uint32_t)seq_row_blocks(seq, rows);
	if (layout->states_group < layout->n_groups)
		need[layout->states_group] = (uint32_t)seq_blocks_wanted(seq, layout->states_group,
									 n_updates);
	return reserve_blocks(seq, need);
}

/* ---- places --------------------------------------------------------------------------------- */

static uint32_t count_spares(const struct kvc_seq *like)
{
	uint32_t n = 0;

	for (const struct kvc_seq *s = like->writer->spare; s; s = s->next)
		n += s->layout == like->layout && s->max_tokens >= like->max_tokens;
	return n;
}

static int attach_spares(struct kvc_seq *like, const Kv__Wire__PlacesResult *result,
			 uint32_t n_asked)
{
	struct kvc_session *session = like->writer->session;

	if (result->n_places != n_asked)
		return kvc_fail(KV_EPROTO, "the daemon gave %zu places, not %u", result->n_places,
				n_asked);
	for (size_t i = 0; i < result->n_places; i++) {
		if (result->places[i]->place >= session->segment->n_places)
			return kvc_fail(KV_EPROTO, "the daemon gave place %u of %u",
					result->places[i]->place, session->segment->n_places);
		if (seq_attach_spare(like->writer, like->layout, result->places[i]->place))
			return -1;
	}
	return 0;
}

static int ask_places(struct kvc_seq *like, uint32_t n_places)
{
	Kv__Wire__Request request;
	Kv__Wire__PlacesReserve command = KV__WIRE__PLACES_RESERVE__INIT;
	Kv__Wire__Reply *reply;
	int rc;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_PLACES_RESERVE;
	request.places_reserve = &command;
	command.writer = like->writer->index;
	command.layout_id = like->layout->id;
	command.n_places = n_places;
	command.max_tokens = like->max_tokens;
	reply = rpc_ask(like->writer->session, &request, KV__WIRE__REPLY__RESULT_PLACES);
	if (!reply)
		return -1;
	rc = attach_spares(like, reply->places, n_places);
	rpc_reply_free(reply);
	return rc;
}

int kvc_reserve_forks(kvc_seq *seq, uint32_t n_forks)
{
	uint32_t have;

	if (session_check(seq->writer->session))
		return -1;
	if (n_forks > KV_PLACES_MAX)
		return kvc_fail(KV_ELIMIT, "%u forks are more than a session has places, %u",
				n_forks, KV_PLACES_MAX);
	for (have = count_spares(seq); have < n_forks; have = count_spares(seq)) {
		uint32_t n = n_forks - have;

		if (ask_places(seq, n < KV_TARGETS_MAX ? n : KV_TARGETS_MAX))
			return -1;
	}
	return 0;
}
