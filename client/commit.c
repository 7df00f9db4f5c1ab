/*
 * kvc_commit: an update becomes true, of all sequences named, or of none. Hot path.
 *
 * Prepared while the word is idle: records of the steps; of an undo journal the old bytes of the
 * slots that will be overwritten, and copies of blocks that a freeze covers; of a replay journal
 * the index. Then the word is opened. If a freeze has come since, it is closed again and more
 * blocks are copied. Slots are overwritten behind the count of complete rows (rows_end), so that
 * whoever comes next can put them back; then entries and headers are filled and the word is
 * swapped.
 */
#include "client/error.h"
#include "client/inplace.h"
#include "client/journal.h"
#include "client/planes.h"
#include "client/scatter.h"
#include "client/stream.h"

/* ---- prepare ------------------------------------------------------------------------------ */

static bool is_inner(const struct kvc_seq *seq)
{
	return seq->open_flags & KVC_UPDATE_SCATTER || seq->open_rows_end > seq->open_extra;
}

/* Records behind the rows of each token, and behind those of kvc_scatter. */
static void put_records(struct kvc_seq *seq)
{
	struct kv_record record = journal_record_now(seq);
	uint64_t row = seq->open_row, last = row;
	bool extra = seq->open_rows_end > seq->open_extra || seq->open_tokens == 0, inner;

	record.update = seq->writer->update + 1;
	if (seq->head.journal_end > seq->head.journal_first)
		record.n_steps = journal_record(seq, journal_last(seq))->n_steps;
	for (uint64_t t = 1; t <= seq->open_tokens; t++, last = row) {
		bool is_last = t == seq->open_tokens && !extra;

		row = seq->open_row + journal_rows_before(seq, t);
		record.length_tokens++;
		record.position++;
		record.n_rows = (uint32_t)(row - last - 1);
		inner = !is_last && (is_inner(seq) || seq->open_states);
		record.n_steps += !inner;
		if (is_last && seq->open_states)
			record.planes = seq->open_states;
		journal_put_record(seq, row - 1, &record, inner ? KV_ROW_INNER : 0);
	}
	if (!extra)
		return;
	if (seq->open_states)
		record.planes = seq->open_states;
	record.n_rows = (uint32_t)(seq->open_rows_end - last);
	record.n_steps++;
	journal_put_record(seq, seq->open_rows_end++, &record, 0);
}

/* Rows of a replay journal come into force in this process; undone by unprepare. */
static void prepare_replay(struct kvc_seq *seq)
{
	bool fresh = !(seq->open_flags & KVC_UPDATE_SCATTER);

	for (uint32_t g = 0; fresh && g < seq->layout->fields->n_layer_groups; g++)
		fresh = kv_layout_slots(seq->layout->fields, g,
					seq->head.length_tokens + seq->open_tokens) ==
			seq->head.length_tokens + seq->open_tokens;
	for (uint64_t row = seq->open_row; row < seq->open_extra; row++) {
		struct kv_row *header = journal_row(seq, row);
		uint64_t prev;

		if (fresh || header->kind != KV_ROW_VECTOR)
			continue;
		prev = journal_find(seq, header->layer, header->head, header->slot,
				    seq->head.journal_end);
		header->prev = prev == UINT64_MAX ? 0 : prev + 1;
	}
	journal_index_add(seq, seq->open_row, seq->open_extra);
	scatter_complete_replay(seq, seq->open_extra, seq->open_rows_end);
}

/* The update's rows end where they are no more than set aside. */
static int prepare(struct kvc_seq *seq)
{
	planes_complete(seq);
	if (seq_mode(seq) == KV_JOURNAL_NONE || seq->is_prepared)
		return 0;
	if (seq_mode(seq) == KV_JOURNAL_UNDO &&
	    inplace_copy_frozen(seq, seq->open_row, seq->open_rows_end, seq->head.base_tokens))
		return -1;
	put_records(seq);
	if (seq_mode(seq) == KV_JOURNAL_REPLAY)
		prepare_replay(seq);
	else
		inplace_save_old(seq, seq->open_row, seq->open_rows_end);
	seq->is_prepared = true;
	return 0;
}

/* What was filled in stays: `prev` says again which parts are given. */
static void forget_prev(struct kvc_seq *seq, uint64_t row)
{
	struct kv_row *header = journal_row(seq, row);

	if (header->kind != KV_ROW_VECTOR)
		return;
	header->prev = journal_all_parts(seq, header->layer);
	if (header->flags & KV_ROW_BASE)
		header->prev &= ~journal_vector_parts(seq, header->layer);
}

void commit_unprepare(struct kvc_seq *seq)
{
	if (!seq->is_prepared)
		return;
	seq->is_prepared = false;
	if (seq_mode(seq) == KV_JOURNAL_REPLAY) {
		journal_index_remove(seq, seq->open_row, seq->open_rows_end);
		for (uint64_t row = seq->open_extra; row < seq->open_rows_end; row++)
			forget_prev(seq, row);
	}
	if (seq->open_rows_end > seq->open_extra || seq->open_tokens == 0)
		seq->open_rows_end--; /* the last record */
}

/* ---- fill and settle ----------------------------------------------------------------------- */

static uint64_t planes_after(const struct kvc_seq *seq)
{
	uint32_t first = kv_planes_first(seq->head.planes), now = kv_planes_now(seq->head.planes);

	if (seq->open_states)
		now = seq->open_states;
	if (seq_mode(seq) == KV_JOURNAL_NONE)
		first = now;
	else if (seq->open_first != seq->head.journal_first)
		first = journal_record(seq, seq->open_first)->planes;
	return kv_planes(now && !first ? 1 : first, now);
}

static void head_after(const struct kvc_seq *seq, struct kv_head *head)
{
	*head = seq->head;
	head->length_tokens += seq->open_tokens;
	head->position += seq->open_tokens;
	if (seq_mode(seq) != KV_JOURNAL_REPLAY)
		head->base_tokens = head->length_tokens;
	if (seq_mode(seq) != KV_JOURNAL_NONE) {
		head->journal_first = seq->open_first;
		head->journal_end = seq->open_rows_end;
	}
	if (seq->open_scattered)
		head->state |= KV_HEAD_SCATTERED;
	if (head->planes || seq->open_states)
		head->planes = planes_after(seq);
}

void commit_fill_group(struct kvc_seq *seq, uint32_t group)
{
	const struct seq_group *g = &seq->groups[group];

	for (uint32_t c = 0; c < g->n_copied; c++)
		update_entry(seq, group, g->copied[c].index, seq->open_freeze,
			     g->mirror[g->copied[c].index]);
	for (uint64_t b = g->end_block; b < g->pending_end; b++)
		update_entry(seq, group, group_index(g, b), seq->open_freeze,
			     g->mirror[group_index(g, b)]);
}

/* Groups that the open update may change: without journal and sequence planes those of layers. */
static uint32_t n_touched(const struct kvc_seq *seq)
{
	return seq_mode(seq) == KV_JOURNAL_NONE && !seq->open_states ?
		       seq->layout->fields->n_layer_groups :
		       seq->n_groups;
}

/* Entries and header; those of an undo journal's blocks are there before its rows are counted,
 * so that whoever comes next finds the rows. */
static void fill(struct kvc_seq *seq)
{
	const struct kv_layout *layout = seq->layout->fields;
	bool undo = seq_mode(seq) == KV_JOURNAL_UNDO;

	head_after(seq, &seq->fresh);
	if (undo) {
		commit_fill_group(seq, layout->journal_group);
		inplace_apply(seq, seq->open_row, seq->open_rows_end);
	}
	for (uint32_t g = 0, n = n_touched(seq); g < n; g++)
		if (seq_group_changes(&seq->groups[g]) && (!undo || g != layout->journal_group))
			commit_fill_group(seq, g);
	update_head(seq, &seq->fresh);
}

void commit_settle_blocks(struct kvc_seq *seq, uint32_t group)
{
	struct seq_group *g = &seq->groups[group];
	int64_t n_reserved = 0;
	uint64_t freeze_now;

	if (!seq_group_changes(g))
		return;
	for (; g->end_block < g->pending_end; g->end_block++, n_reserved--)
		blocks_ref(seq->writer, &g->mirror[group_index(g, g->end_block)], 1);
	if (g->n_copied) {
		freeze_now = atomic_load_explicit(&seq->shm->freeze_count, memory_order_acquire);
		for (uint32_t c = 0; c < g->n_copied; c++, n_reserved--) {
			const struct seq_copied *copied = &g->copied[c];

			blocks_ref(seq->writer, &g->mirror[copied->index], 1);
			n_reserved += blocks_leave(seq->writer, &copied->from, &copied->freeze, 1,
						   freeze_now, &g->spares, &g->release);
		}
		g->n_copied = 0;
	}
	writer_count_reserved(seq->writer,
			      n_reserved * (int64_t)seq->layout->fields->groups[group].block_bytes);
}

void commit_head(struct kvc_seq *seq, const struct kv_head *head)
{
	for (uint32_t g = 0; g < seq->n_groups; g++)
		commit_fill_group(seq, g);
	update_head(seq, head);
	update_publish(seq->writer);
	for (uint32_t g = 0; g < seq->n_groups; g++)
		commit_settle_blocks(seq, g);
	update_settle(seq, head);
}

/* Does a block leave because of it? Then only of the windows: journal and states. */
static bool window_moves(const struct kv_head *before, const struct kv_head *now)
{
	return before->journal_first != now->journal_first ||
	       kv_planes_first(before->planes) != kv_planes_first(now->planes);
}

static void settle(struct kvc_seq *seq)
{
	for (uint32_t g = 0, n = n_touched(seq); g < n; g++)
		if (seq_group_changes(&seq->groups[g]))
			commit_settle_blocks(seq, g);
	if (seq_mode(seq) != KV_JOURNAL_NONE)
		seq->journal.future_end = seq->fresh.journal_end;
	if (window_moves(&seq->head, &seq->fresh))
		update_settle(seq, &seq->fresh);
	else
		seq->head = seq->fresh;
	seq->n_committed++;
	seq->is_open = false;
	seq->is_prepared = false;
	seq->open_tokens = 0;
}

/* ---- commit ------------------------------------------------------------------------------- */

/* The sequences of a commit: those of the list, or all that are open. */
struct commit {
	struct kvc_writer *writer;
	kvc_seq *const *seqs;
	size_t n_seqs;
	bool has_more; /* one has a journal or sequence planes */
	bool in_place; /* one has an undo journal */
};

static struct kvc_seq *first_of(const struct commit *c)
{
	return c->seqs ? c->seqs[0] : c->writer->open;
}

static struct kvc_seq *next_of(const struct commit *c, const struct kvc_seq *seq, size_t *i)
{
	if (!c->seqs)
		return seq->next_open;
	return ++*i < c->n_seqs ? c->seqs[*i] : NULL;
}

#define EACH(c, seq, i) \
	for (size_t i = 0, once = 1; once; once = 0) \
		for (struct kvc_seq *seq = first_of(c); seq; seq = next_of(c, seq, &i))

static int fail_listed(const struct commit *c, const struct kvc_seq *seq, size_t i)
{
	return kvc_fail(KVC_EINVAL, "sequence %zu %s", i,
			seq->writer != c->writer ? "belongs to another writer" :
			!seq->is_open            ? "has no open update" :
						   "is in the list twice");
}

/* All that is to be known of the sequences before the word is opened, in one walk. */
static int survey(struct commit *c)
{
	uint64_t list = ++c->writer->n_lists;

	EACH(c, seq, i) {
		if (seq->writer != c->writer || !seq->is_open || seq->listed == list)
			return fail_listed(c, seq, i);
		seq->listed = list;
		c->has_more |= seq_mode(seq) != KV_JOURNAL_NONE || seq->open_states;
		c->in_place |= seq_mode(seq) == KV_JOURNAL_UNDO;
	}
	return 0;
}

static int prepare_all(const struct commit *c)
{
	if (c->has_more)
		EACH(c, seq, i) {
			if (prepare(seq))
				return -1;
		}
	stream_fence(); /* what was written before the swap is there after it */
	return 0;
}

static void unprepare_all(const struct commit *c)
{
	if (c->has_more)
		EACH(c, seq, i) {
			commit_unprepare(seq);
		}
}

static bool is_frozen_since(const struct commit *c)
{
	if (c->in_place)
		EACH(c, seq, i) {
			if (seq_mode(seq) == KV_JOURNAL_UNDO && inplace_is_frozen_since(seq))
				return true;
		}
	return false;
}

/* Prepares all and opens the word. -1: nothing has happened, the updates are open. */
static int open_prepared(const struct commit *c)
{
	while (prepare_all(c) == 0 && update_open(c->writer) == 0) {
		if (!is_frozen_since(c))
			return 0;
		update_close(c->writer);
		unprepare_all(c);
	}
	/* After KVC_EMOVED none is open any more, nor prepared. */
	unprepare_all(c);
	return -1;
}

static int commit(struct commit *c)
{
	uint64_t n_tokens = 0;

	if (open_prepared(c))
		return -1;
	EACH(c, seq, i) {
		n_tokens += seq->open_tokens;
		fill(seq);
	}
	update_publish(c->writer);
	writer_count(&c->writer->shm->n_appended_tokens, n_tokens);
	EACH(c, seq, i) {
		settle(seq);
	}
	if (c->seqs)
		begin_sweep(c->writer);
	else
		c->writer->open = NULL;
	return 0;
}

int kvc_commit(kvc_writer *writer, kvc_seq *const *seqs, size_t n_seqs)
{
	struct commit c = {.writer = writer, .seqs = seqs, .n_seqs = n_seqs};

	if (session_check(writer->session))
		return -1;
	if (!seqs && n_seqs)
		return kvc_fail(KVC_EINVAL, "seqs is NULL and n_seqs %zu", n_seqs);
	if (seqs ? n_seqs == 0 : !writer->open)
		return 0;
	return survey(&c) ? -1 : commit(&c);
}
