/*
 * Beginning an update and dropping it again: kvc_update_begin, kvc_append_begin, kvc_abort. Takes
 * from the reserve what the tokens need: blocks behind the committed slots, journal rows, and one
 * block to copy into where the partly filled one may not be added to. Hot path: no system call, no
 * allocation, no message.
 *
 * Between begin and commit the word is idle: new slots lie behind the committed ones, new rows
 * behind the journal's end, in blocks that nobody else reads there. Mirror entries [end_block,
 * pending_end) show the blocks of the open update; `copied` remembers what was replaced.
 */
#include <string.h>

#include "client/error.h"
#include "client/journal.h"
#include "client/slots.h"

/* ---- blocks ------------------------------------------------------------------------------- */

int begin_check_spares(const struct kvc_seq *seq, uint32_t group, uint64_t need)
{
	if (need <= seq->groups[group].spares.n)
		return 0;
	return kvc_fail(KVC_ERESERVE,
			"%llu blocks are needed and %u are reserved; call kvc_reserve%s and repeat",
			(unsigned long long)need, seq->groups[group].spares.n,
			seq->is_open ? ", or kvc_reserve_scatter for slots that are there," : "");
}

bool begin_is_closed(const struct kvc_seq *seq, uint32_t group, uint64_t index, uint64_t n_filled)
{
	uint32_t freeze = seq_meta_freeze(seq->groups[group].meta[index]);
	_Atomic uint64_t *frozen = group == seq->layout->fields->journal_group ?
					   &seq->shm->frozen_rows :
					   &seq->shm->frozen_slots[group];

	if (freeze == 0)
		return true;
	return freeze != seq->open_freeze &&
	       atomic_load_explicit(frozen, memory_order_acquire) > n_filled;
}

/* Rows of a journal block: headers, then payloads. */
static uint64_t copy_rows(const struct kvc_seq *seq, struct kvc_block to, struct kvc_block from,
			  uint64_t n_rows)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_journal_shape *shape = journal_shape(seq);
	uint32_t region = layout->groups[layout->journal_group].first_region;
	char *t = seq_piece(seq, region, to), *f = seq_piece(seq, region, from);

	memcpy(t, f, n_rows * sizeof(struct kv_row));
	memcpy(t + shape->payload_off, f + shape->payload_off, n_rows * shape->payload_bytes);
	return n_rows * (sizeof(struct kv_row) + shape->payload_bytes);
}

static uint64_t copy_slots(const struct kvc_seq *seq, uint32_t group, struct kvc_block to,
			   struct kvc_block from, uint64_t n_slots)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_group *g = &layout->groups[group];
	uint64_t n_bytes = 0;

	for (uint32_t r = g->first_region; r < g->first_region + g->n_regions; r++) {
		size_t bytes = (size_t)n_slots * layout->regions[r].row_bytes;

		memcpy(seq_piece(seq, r, to), seq_piece(seq, r, from), bytes);
		n_bytes += bytes;
	}
	return n_bytes;
}

void begin_copy(struct kvc_seq *seq, uint32_t group, uint64_t index, uint64_t n_units)
{
	struct seq_group *g = &seq->groups[group];
	struct kvc_block from = g->mirror[index], to = spare_take(seq, group);
	uint64_t n_bytes = group == seq->layout->fields->journal_group ?
				   copy_rows(seq, to, from, n_units) :
				   copy_slots(seq, group, to, from, n_units);

	writer_count(&seq->writer->shm->n_copied_bytes, n_bytes);
	g->copied[g->n_copied++] = (struct seq_copied){
		.index = (uint32_t)index,
		.freeze = seq_meta_freeze(g->meta[index]),
		.from = from,
	};
	g->mirror[index] = to;
	group_set_freeze(g, index, seq->open_freeze);
}

void begin_take(struct kvc_seq *seq, uint32_t group, uint64_t end)
{
	struct seq_group *g = &seq->groups[group];

	for (; g->pending_end < end; g->pending_end++) {
		uint64_t index = group_index(g, g->pending_end);

		g->mirror[index] = spare_take(seq, group);
		group_set_freeze(g, index, seq->open_freeze);
	}
}

void begin_zero_slots(const struct kvc_seq *seq, uint32_t group, uint32_t first_part,
		      uint64_t first, uint64_t end)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_group *g = &layout->groups[group];

	for (uint32_t r = g->first_region; r < g->first_region + g->n_regions; r++) {
		const struct kv_region *region = &layout->regions[r];

		for (uint64_t s = first, n; region->part >= first_part && s < end; s += n) {
			n = slots_in_block(seq, s, end);
			memset(seq_piece(seq, r, seq_block_of(seq, group, s)) +
				       s % layout->block_tokens * region->row_bytes,
			       0, n * region->row_bytes);
		}
	}
}

/* What begin needs of a layer group's spares: a block to copy the partly filled one into, new
 * ones. */
struct want {
	bool copy;
	uint64_t end;
};

static struct want group_want(const struct kvc_seq *seq, uint32_t group, uint64_t n_tokens)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct seq_group *g = &seq->groups[group];
	uint64_t slots = kv_layout_slots(layout, group, seq->head.base_tokens);
	uint64_t slots_end = kv_layout_slots(layout, group, seq->head.base_tokens + n_tokens);
	struct want want = {.end = g->end_block};
	uint64_t room; /* slots of its blocks */

	if (seq_mode(seq) == KV_JOURNAL_REPLAY || slots_end == slots)
		return want;
	room = g->end_block * layout->block_tokens;
	if (slots_end > room)
		want.end = kv_layout_blocks(layout, slots_end);
	want.copy = slots < room && begin_is_closed(seq, group, g->end_block - 1, slots);
	return want;
}

static void note_split(struct kvc_seq *seq, const struct seq_group *g, uint64_t index)
{
	if (g->mirror[index].arena == g->batch_first.arena &&
	    g->mirror[index].block == g->batch_first.block + index)
		return;
	seq->split_reason = g->n_copied ? "it was written below a snapshot or fork" :
					  "blocks of its run are held by a snapshot";
}

static void begin_group(struct kvc_seq *seq, uint32_t group, const struct want *want)
{
	const struct kv_layout *layout = seq->layout->fields;
	struct seq_group *g = &seq->groups[group];
	uint64_t slots = kv_layout_slots(layout, group, seq->head.base_tokens),
		 first = g->end_block;

	if (want->copy)
		begin_copy(seq, group, --first, slots % layout->block_tokens);
	begin_take(seq, group, want->end);
	if (g->batch_first.arena && !seq->split_reason)
		for (uint64_t i = first; i < want->end; i++)
			note_split(seq, g, i);
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Slot planes of a token's rows are zero until they are written; nothing is written yet. */
static void void_rows(const struct kvc_seq *seq, uint64_t first, uint64_t end)
{
	bool planes = seq->layout->fields->n_planes != 0;

	for (struct journal_rows rows; first < end; first += rows.n) {
		rows = journal_rows(seq, first, end);
		memset(rows.headers, 0, rows.n * sizeof(rows.headers[0]));
		if (planes)
			memset(rows.payloads, 0, rows.n * journal_shape(seq)->payload_bytes);
	}
}

/* Rows of the update's tokens, and before them the record of what is below a new journal. */
static int begin_rows(struct kvc_seq *seq)
{
	uint64_t n = journal_rows_before(seq, seq->open_tokens);

	seq->open_row = journal_begin(seq);
	seq->open_extra = seq->open_rows_end = seq->open_row + n;
	journal_trim(seq, seq->open_rows_end + 1 - seq->head.journal_end);
	if (journal_extend(seq, seq->open_rows_end + 1))
		return -1;
	journal_put_floor(seq);
	void_rows(seq, seq->open_row, seq->open_rows_end);
	return 0;
}

/* ---- begin -------------------------------------------------------------------------------- */

static int check_bounds(const struct kvc_seq *seq, uint64_t n_tokens, uint32_t flags)
{
	uint64_t bound = seq->layout->fields->max_slots, length = seq->head.length_tokens;

	if (seq_mode(seq) == KV_JOURNAL_NONE && (length > bound || n_tokens > bound - length))
		return kvc_fail(KVC_EBOUND,
				"%llu tokens and %llu more are above a layer's bound_slots %llu; a "
				"ring needs a journal (kvc_journal_set)",
				(unsigned long long)length, (unsigned long long)n_tokens,
				(unsigned long long)bound);
	if (n_tokens > bound && !(flags & KVC_UPDATE_SCATTER))
		return kvc_fail(KVC_EBOUND,
				"%llu tokens in one update are more than a layer's bound_slots "
				"%llu; prefill in chunks",
				(unsigned long long)n_tokens, (unsigned long long)bound);
	return 0;
}

static int check_begin(struct kvc_seq *seq, uint64_t n_tokens, uint32_t flags)
{
	uint64_t length = seq->head.length_tokens;

	if (session_check(seq->writer->session))
		return -1;
	if (!seq_is_live(seq))
		return kvc_fail(KVC_EREADONLY, "a snapshot cannot be appended to; fork it");
	if (seq->is_open)
		return kvc_fail(KVC_EBUSY, "an update is open; commit or abort it");
	if (flags & ~(uint32_t)KVC_UPDATE_SCATTER)
		return kvc_fail(KVC_EINVAL, "flags %#x: only KVC_UPDATE_SCATTER is known", flags);
	if (n_tokens == 0 && seq_mode(seq) == KV_JOURNAL_NONE)
		return kvc_fail(KVC_EUNSUPPORTED,
				"n_tokens is 0; an update that only overwrites needs a journal "
				"(kvc_journal_set)");
	if (n_tokens > seq->max_tokens - length)
		return kvc_fail(
			KVC_ERANGE,
			"%llu tokens and %llu more are above the sequence's max_tokens %llu",
			(unsigned long long)length, (unsigned long long)n_tokens,
			(unsigned long long)seq->max_tokens);
	return check_bounds(seq, n_tokens, flags);
}

static int begin(struct kvc_seq *seq, uint64_t n_tokens, uint32_t flags)
{
	const struct kv_layout *layout = seq->layout->fields;
	struct want wants[KV_LAYER_GROUPS_MAX];

	seq->open_freeze = atomic_load_explicit(&seq->shm->freeze_count, memory_order_acquire);
	for (uint32_t g = 0; g < layout->n_layer_groups; g++) {
		wants[g] = group_want(seq, g, n_tokens);
		if (begin_check_spares(seq, g,
				       wants[g].end - seq->groups[g].end_block + wants[g].copy))
			return -1;
	}
	seq->open_tokens = n_tokens;
	seq->open_flags = flags;
	seq->open_states = 0;
	seq->open_scattered = false;
	seq->open_first = seq->head.journal_first;
	if (seq_mode(seq) != KV_JOURNAL_NONE && begin_rows(seq))
		return -1;
	for (uint32_t g = 0; g < layout->n_layer_groups; g++) {
		begin_group(seq, g, &wants[g]);
		/* Slot planes of new slots are zero until they are written. */
		if (layout->n_planes && seq_mode(seq) != KV_JOURNAL_REPLAY)
			begin_zero_slots(seq, g, KV_PART_PLANE,
					 kv_layout_slots(layout, g, seq->head.base_tokens),
					 kv_layout_slots(layout, g,
							 seq->head.base_tokens + n_tokens));
	}
	seq->is_open = true;
	seq->n_begun++;
	seq->next_open = seq->writer->open;
	seq->writer->open = seq;
	return 0;
}

int kvc_update_begin(kvc_seq *seq, uint64_t n_tokens, uint32_t flags)
{
	return check_begin(seq, n_tokens, flags) ? -1 : begin(seq, n_tokens, flags);
}

int begin_whole(struct kvc_seq *seq, uint64_t n_tokens)
{
	return begin(seq, n_tokens, KVC_UPDATE_SCATTER);
}

int kvc_append_begin(kvc_seq *seq, uint64_t n_tokens)
{
	if (n_tokens == 0)
		return kvc_fail(KVC_EINVAL, "n_tokens is 0");
	return kvc_update_begin(seq, n_tokens, 0);
}

/* ---- abort -------------------------------------------------------------------------------- */

void begin_sweep(struct kvc_writer *writer)
{
	struct kvc_seq **at = &writer->open;

	while (*at)
		if ((*at)->is_open)
			at = &(*at)->next_open;
		else
			*at = (*at)->next_open;
}

static void abort_group(struct kvc_seq *seq, uint32_t group)
{
	struct seq_group *g = &seq->groups[group];

	while (g->pending_end > g->end_block)
		spare_untake(seq, group, g->mirror[group_index(g, --g->pending_end)]);
	while (g->n_copied) {
		const struct seq_copied *copied = &g->copied[--g->n_copied];

		spare_untake(seq, group, g->mirror[copied->index]);
		g->mirror[copied->index] = copied->from;
		group_set_freeze(g, copied->index, copied->freeze);
	}
}

void begin_abort(struct kvc_seq *seq)
{
	commit_unprepare(seq);
	for (uint32_t g = 0; g < seq->n_groups; g++)
		abort_group(seq, g);
	seq->is_open = false;
	seq->open_tokens = 0;
	begin_sweep(seq->writer);
}

int kvc_abort(kvc_seq *seq)
{
	if (session_check(seq->writer->session))
		return -1;
	if (!seq->is_open)
		return kvc_fail(KVC_EINVAL, "no update is open");
	begin_abort(seq);
	return 0;
}
