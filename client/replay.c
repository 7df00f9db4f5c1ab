/*
 * kvc_replay, kvc_replay_from: steps that are in a journal come into force again. Forward, rows
 * are where they were: a header and a swap (replay), or the new bytes once more into the slots
 * (undo). Onto another sequence, they are copied there, all in one update. Writer's thread.
 */
#include <string.h>

#include "client/error.h"
#include "client/inplace.h"
#include "client/journal.h"
#include "client/rollback.h"
#include "client/slots.h"

/* ---- forward ------------------------------------------------------------------------------ */

/* The record after n_steps steps (0: as many as there are); *n says how many. */
static uint64_t step_forward(const struct kvc_seq *seq, uint64_t n_steps, int64_t *n)
{
	uint64_t end = seq->journal.future_end, found = UINT64_MAX;

	*n = 0;
	for (uint64_t row = journal_next(seq, seq->head.journal_end, end); row < end;
	     row = journal_next(seq, row + 1, end)) {
		if (journal_row(seq, row)->flags & KV_ROW_INNER)
			continue;
		found = row;
		++*n;
		if (n_steps && (uint64_t)*n == n_steps)
			break;
	}
	return found;
}

/* An undo journal has no bytes of slots that were new. */
static int check_undo(const struct kvc_seq *seq, uint64_t length_tokens)
{
	const struct kv_layout *layout = seq->layout->fields;

	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		if (kv_layout_slots(layout, g, length_tokens) !=
		    kv_layout_slots(layout, g, seq->head.length_tokens))
			return kvc_fail(KVC_EUNSUPPORTED,
					"the steps appended tokens; an undo journal has no bytes "
					"of these: write them again");
	return 0;
}

static int open_undo(struct kvc_seq *seq, const struct kv_head *head)
{
	for (;;) {
		if (inplace_copy_frozen(seq, seq->head.journal_end, head->journal_end,
					seq->head.base_tokens) ||
		    update_open(seq->writer))
			return -1;
		if (!inplace_is_frozen_since(seq))
			return 0;
		update_close(seq->writer);
	}
}

static int forward(struct kvc_seq *seq, const struct kv_head *head)
{
	uint64_t end = seq->head.journal_end;
	bool undo = seq_mode(seq) == KV_JOURNAL_UNDO;

	seq->open_freeze = atomic_load_explicit(&seq->shm->freeze_count, memory_order_acquire);
	if (undo ? open_undo(seq, head) : update_open(seq->writer)) {
		begin_abort(seq);
		return -1;
	}
	if (undo)
		inplace_apply(seq, end, head->journal_end);
	commit_head(seq, head);
	if (!undo)
		journal_index_again(seq, end, head->journal_end);
	return 0;
}

int64_t kvc_replay(kvc_seq *seq, uint64_t n_steps)
{
	struct kv_head head;
	uint64_t record;
	int64_t n;

	if (rollback_check(seq))
		return -1;
	if (seq_mode(seq) == KV_JOURNAL_NONE)
		return kvc_fail(KVC_EUNSUPPORTED, "the sequence has no journal; kvc_journal_set");
	record = step_forward(seq, n_steps, &n);
	if (record == UINT64_MAX)
		return 0;
	if (n_steps && (uint64_t)n < n_steps)
		return kvc_fail(KVC_EJOURNAL, "%lld steps can be applied again, not %llu",
				(long long)n, (unsigned long long)n_steps);
	if (seq_mode(seq) == KV_JOURNAL_UNDO &&
	    check_undo(seq, journal_record(seq, record)->length_tokens))
		return -1;
	if (rollback_head(seq, record, &head))
		return -1;
	return forward(seq, &head) ? -1 : n;
}

/* ---- onto another sequence ----------------------------------------------------------------- */

/* The filled part of block i of a group is the same in both: shared, or equal. */
static bool same_block(const struct kvc_seq *a, const struct kvc_seq *b, uint32_t group, uint64_t i)
{
	const struct kv_layout *layout = a->layout->fields;
	const struct kv_group *g = &layout->groups[group];
	struct kvc_block x = a->groups[group].mirror[i], y = b->groups[group].mirror[i];
	uint64_t n = slots_of_block(layout, i, kv_layout_slots(layout, group, a->head.base_tokens));

	if (x.arena == y.arena && x.block == y.block)
		return true;
	for (uint32_t r = g->first_region; r < g->first_region + g->n_regions; r++)
		if (memcmp(seq_piece(a, r, x), seq_piece(b, r, y),
			   n * layout->regions[r].row_bytes) != 0)
			return false;
	return true;
}

static int check_base(const struct kvc_seq *seq, const struct kvc_seq *source)
{
	const struct kv_layout *layout = seq->layout->fields;

	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		for (uint64_t i = 0; i < seq->groups[g].end_block; i++)
			if (!same_block(seq, source, g, i))
				return kvc_fail(KVC_EINVAL,
						"the bases differ: block %llu of group %u",
						(unsigned long long)i, g);
	return 0;
}

static int check_from(kvc_seq *seq, const kvc_seq *source)
{
	const struct kv_record *floor;

	if (rollback_check(seq))
		return -1;
	if (source->writer->session != seq->writer->session || source->layout != seq->layout)
		return kvc_fail(KVC_ELAYOUT, "the sequences have different layouts or sessions");
	if (seq_mode(source) != KV_JOURNAL_REPLAY)
		return kvc_fail(KVC_EINVAL, "the source has no replay journal");
	if (seq_mode(seq) != KV_JOURNAL_REPLAY && seq->head.journal_first != seq->head.journal_end)
		return kvc_fail(KVC_EBUSY, "the sequence has an undo journal with rows");
	if (seq->head.journal_end - seq->head.journal_first > 1)
		return kvc_fail(KVC_EINVAL, "the sequence has rows of its own; roll it back to its "
					    "base, or fork the base");
	if (source->head.journal_first == source->head.journal_end)
		return 0;
	if (source->head.length_tokens > seq->max_tokens)
		return kvc_fail(KVC_ERANGE,
				"the source has %llu tokens, more than the sequence's max_tokens "
				"%llu",
				(unsigned long long)source->head.length_tokens,
				(unsigned long long)seq->max_tokens);
	floor = journal_record(source, source->head.journal_first);
	if (floor->length_tokens != seq->head.length_tokens ||
	    floor->position != seq->head.position ||
	    source->head.base_tokens != seq->head.base_tokens ||
	    floor->planes != kv_planes_now(seq->head.planes))
		return kvc_fail(KVC_EINVAL,
				"no step begins here: the source's journal begins at %llu tokens "
				"(position %llu), the sequence has %llu (position %llu)",
				(unsigned long long)floor->length_tokens,
				(unsigned long long)floor->position,
				(unsigned long long)seq->head.length_tokens,
				(unsigned long long)seq->head.position);
	return check_base(seq, source);
}

static int begin_journal(kvc_seq *seq)
{
	struct kvc_journal_options replay = {.size = sizeof(replay), .mode = KVC_JOURNAL_REPLAY};

	return seq_mode(seq) == KV_JOURNAL_REPLAY ? 0 : kvc_journal_set(seq, &replay);
}

/* Versions of the sequence planes behind the one that both have. */
static int copy_versions(struct kvc_seq *seq, const struct kvc_seq *source, struct kv_head *head)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint32_t group = layout->states_group, region;
	uint32_t now = kv_planes_now(seq->head.planes), end = kv_planes_now(source->head.planes);
	uint32_t first = kv_planes_first(seq->head.planes);
	struct seq_group *g;
	const struct seq_group *from;

	if (end == now)
		return 0;
	region = layout->groups[group].first_region;
	g = &seq->groups[group];
	from = &source->groups[group];
	update_drop_future(seq, group);
	if (begin_check_spares(seq, group, end - now))
		return -1;
	if (now == 0)
		group_restart(g, 0);
	begin_take(seq, group, g->pending_end + end - now);
	for (uint32_t v = now; v < end; v++)
		memcpy(seq_piece(seq, region, g->mirror[group_index(g, v)]),
		       seq_piece(source, region, from->mirror[group_index(from, v)]),
		       (size_t)layout->groups[group].block_bytes);
	head->planes = kv_planes(first ? first : 1, end);
	return 0;
}

/* The source's rows behind its first record, as rows of this sequence's open update. */
static void copy_rows(struct kvc_seq *seq, const struct kvc_seq *source, uint64_t to)
{
	uint64_t from = source->head.journal_first + 1, end = source->head.journal_end;
	size_t bytes = journal_shape(seq)->payload_bytes;

	for (; from < end; from++, to++) {
		const struct kv_row *r = journal_row(source, from);
		struct kv_row *copy = journal_row(seq, to);

		*copy = *r;
		memcpy(journal_payload(seq, to), journal_payload(source, from), bytes);
		if (r->kind == KV_ROW_RECORD)
			((struct kv_record *)(void *)journal_payload(seq, to))->update =
				seq->writer->update + 1;
		if (r->kind != KV_ROW_VECTOR)
			continue;
		/* Rows that it displaces are as many before it as they were there. */
		if (r->prev)
			copy->prev = r->prev > source->head.journal_first + 1 ?
					     to + r->prev - from :
					     0;
	}
}

static int append_rows(struct kvc_seq *seq, const struct kvc_seq *source)
{
	uint64_t n = source->head.journal_end - source->head.journal_first - 1;
	uint64_t end = seq->head.journal_end, row;
	struct kv_head head = seq->head;

	seq->open_freeze = atomic_load_explicit(&seq->shm->freeze_count, memory_order_acquire);
	row = journal_begin(seq);
	head.journal_end = row + n;
	head.length_tokens = source->head.length_tokens;
	head.position = source->head.position;
	if (journal_extend(seq, head.journal_end) || copy_versions(seq, source, &head))
		return -1;
	journal_put_floor(seq);
	copy_rows(seq, source, row);
	if (update_open(seq->writer))
		return -1;
	commit_head(seq, &head);
	journal_index_again(seq, end, head.journal_end);
	seq->journal.future_end = head.journal_end;
	return 0;
}

int64_t kvc_replay_from(kvc_seq *seq, kvc_seq *source)
{
	struct kvc_journal_info info;

	if (check_from(seq, source) || kvc_journal_info(source, &info) || begin_journal(seq))
		return -1;
	if (info.n_rows <= 1)
		return 0;
	if (append_rows(seq, source)) {
		begin_abort(seq);
		return -1;
	}
	return (int64_t)info.n_steps;
}
