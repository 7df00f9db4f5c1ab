/*
 * kvc_fold: rows of a replay journal become slots of blocks, quantised as the layout has it.
 *
 * Nothing in force is ever written: a block that holds a slot which rows are laid over is copied
 * first, new slots lie behind the base. One update then changes entries, base tokens and the first
 * row. If it fails, or the writer dies before the swap, everything is as it was. Writer's thread;
 * asks the daemon for the blocks that it lacks.
 */
#include "client/fold.h"

#include <string.h>

#include "client/compute/codec.h"
#include "client/error.h"
#include "client/journal.h"
#include "client/reserve.h"
#include "client/rollback.h"
#include "client/scatter.h"

/* ---- what is folded ----------------------------------------------------------------------- */

/* The last record of the steps that are folded; UINT64_MAX: none. */
static uint64_t last_folded(const struct kvc_seq *seq, uint64_t keep_rows)
{
	uint64_t record, end = seq->head.journal_end;

	if (seq->head.journal_first == end)
		return UINT64_MAX;
	record = journal_last(seq);
	while (record != UINT64_MAX &&
	       (end - (record + 1) < keep_rows || journal_row(seq, record)->flags & KV_ROW_INNER))
		record = journal_previous(seq, record);
	return record == seq->head.journal_first ? UINT64_MAX : record;
}

struct fold {
	struct kvc_seq *seq;
	const struct kv_layout *layout;
	uint64_t record; /* last row that is folded */
	uint64_t base_tokens, end_tokens;
	bool scattered; /* a row is laid over something */
	bool has_void;  /* a slot that nobody wrote */
};

static uint64_t first_row(const struct fold *f)
{
	return f->seq->head.journal_first + 1;
}

/* Calls act for each block of a group, once, that holds a base slot which a folded row names. */
static uint64_t each_covered(struct fold *f, uint32_t group, bool copy)
{
	struct kvc_seq *seq = f->seq;
	const struct kv_layout *layout = f->layout;
	uint64_t slots = kv_layout_slots(layout, group, f->base_tokens), n = 0;
	uint64_t *seen = seq->journal.seen;

	for (uint64_t row = first_row(f); row <= f->record; row++) {
		const struct kv_row *r = journal_row(seq, row);
		uint64_t block = r->slot / layout->block_tokens, left;

		if (r->kind == KV_ROW_VOID)
			f->has_void = true;
		if (r->kind != KV_ROW_VECTOR || layout->layer_maps[r->layer].group != group)
			continue;
		f->scattered |= r->prev != 0 || r->slot < slots;
		if (r->slot >= slots || seen[block / 64] >> block % 64 & 1)
			continue;
		seen[block / 64] |= UINT64_C(1) << block % 64;
		n++;
		left = slots - block * layout->block_tokens;
		if (copy)
			begin_copy(seq, group, block,
				   left < layout->block_tokens ? left : layout->block_tokens);
	}
	memset(seen, 0, (slots / layout->block_tokens / 64 + 1) * sizeof(seen[0]));
	return n;
}

/* The partly filled block takes new slots and may not be added to. */
static bool must_copy_last(const struct fold *f, uint32_t group)
{
	const struct seq_group *g = &f->seq->groups[group];
	uint64_t slots = kv_layout_slots(f->layout, group, f->base_tokens);
	uint32_t freeze;

	if (slots % f->layout->block_tokens == 0 ||
	    kv_layout_slots(f->layout, group, f->end_tokens) == slots)
		return false;
	freeze = seq_meta_freeze(g->meta[g->end_block - 1]);
	return freeze == 0 || (freeze != f->seq->open_freeze &&
			       atomic_load_explicit(&f->seq->shm->frozen_slots[group],
						    memory_order_acquire) > slots);
}

static struct fold fold_of(struct kvc_seq *seq, uint64_t record)
{
	seq->open_freeze = atomic_load_explicit(&seq->shm->freeze_count, memory_order_acquire);
	return (struct fold){
		.seq = seq,
		.layout = seq->layout->fields,
		.record = record,
		.base_tokens = seq->head.base_tokens,
		.end_tokens = journal_record(seq, record)->length_tokens,
	};
}

static void needs(struct fold *f, uint32_t need[KV_GROUPS_MAX])
{
	for (uint32_t g = 0; g < f->layout->n_layer_groups; g++)
		need[g] = (uint32_t)(each_covered(f, g, false) + must_copy_last(f, g) +
				     kv_layout_blocks(f->layout, kv_layout_slots(f->layout, g,
										 f->end_tokens)) -
				     f->seq->groups[g].end_block);
}

void fold_need(struct kvc_seq *seq, uint64_t keep_rows, uint32_t need[KV_GROUPS_MAX])
{
	uint64_t record = last_folded(seq, keep_rows);
	struct fold f;

	memset(need, 0, KV_GROUPS_MAX * sizeof(need[0]));
	if (record == UINT64_MAX)
		return;
	f = fold_of(seq, record);
	needs(&f, need);
}

/* ---- blocks ------------------------------------------------------------------------------- */

static void take_blocks(struct fold *f, uint32_t group)
{
	struct seq_group *g = &f->seq->groups[group];
	uint64_t slots = kv_layout_slots(f->layout, group, f->base_tokens);
	uint64_t end = kv_layout_blocks(f->layout,
					kv_layout_slots(f->layout, group, f->end_tokens));
	uint64_t n_covered = each_covered(f, group, true);
	bool is_copied = false;

	for (uint32_t c = 0; c < g->n_copied && n_covered; c++)
		is_copied |= g->copied[c].index == g->end_block - 1;
	if (!is_copied && must_copy_last(f, group))
		begin_copy(f->seq, group, g->end_block - 1, slots % f->layout->block_tokens);
	for (; g->pending_end < end; g->pending_end++) {
		g->mirror[g->pending_end] = spare_take(f->seq, group);
		g->meta[g->pending_end] = (g->meta[g->pending_end] & SEQ_META_COPY) |
					  (uint32_t)f->seq->open_freeze;
	}
}

/* Slots that a layer was never given hold zeros. */
static void zero_new_slots(const struct fold *f, uint32_t group)
{
	const struct kv_group *g = &f->layout->groups[group];
	uint64_t slots = kv_layout_slots(f->layout, group, f->base_tokens);
	uint64_t end = kv_layout_slots(f->layout, group, f->end_tokens);

	for (uint32_t r = g->first_region; r < g->first_region + g->n_regions; r++)
		for (uint64_t s = slots; s < end; s++)
			memset(seq_piece(f->seq, r, seq_block_of(f->seq, group, s)) +
				       s % f->layout->block_tokens *
					       f->layout->regions[r].row_bytes,
			       0, f->layout->regions[r].row_bytes);
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Where a part of a slot lies, from `head` on; the stride to the next head. */
static char *part_at(const struct fold *f, const struct kv_row *r, uint32_t part, size_t *stride)
{
	const struct kv_layer_map *map = &f->layout->layer_maps[r->layer];
	const struct kv_region *region;

	*stride = 0;
	if (map->region[part] < 0)
		return NULL;
	region = &f->layout->regions[map->first_region + (uint8_t)map->region[part]];
	*stride = region->vector_bytes;
	return seq_piece(f->seq, map->first_region + (uint8_t)map->region[part],
			 seq_block_of(f->seq, map->group, r->slot)) +
	       r->slot % f->layout->block_tokens * region->row_bytes +
	       (uint64_t)r->head * region->vector_bytes;
}

/* K or V of n rows whose heads follow one another in one slot. */
static int store(const struct fold *f, const struct kv_row *r, uint32_t n, bool is_value,
		 const char *from)
{
	const struct kv_codec *codec = &f->seq->layout->codecs[2 * r->layer + is_value];
	uint32_t codes = is_value ? KV_PART_V_CODES : KV_PART_K_CODES;
	struct kv_codec_at to;
	size_t done;

	if (codec->width == 0)
		return 0;
	to.codes = part_at(f, r, codes, &to.codes_stride);
	to.scale = part_at(f, r, codes + 1, &to.scale_stride);
	to.zero = part_at(f, r, codes + 2, &to.zero_stride);
	done = kv_quantise(codec, n, from, journal_shape(f->seq)->payload_bytes, &to);
	if (done == n)
		return 0;
	return kvc_fail(KVC_EVALUE,
			"%s of layer %u, slot %u, head %zu has a NaN or an infinity, which the "
			"storage format cannot hold; roll it back, or overwrite the slot",
			is_value ? "V" : "K", r->layer, r->slot, r->head + done);
}

static void store_planes(const struct fold *f, const struct kv_row *r, const char *from)
{
	const struct kv_layer_map *map = &f->layout->layer_maps[r->layer];

	for (uint32_t p = KV_PART_PLANE; map->region[p] >= 0; p++) {
		size_t bytes;
		char *to = part_at(f, r, p, &bytes);

		memcpy(to, from, bytes);
		from += bytes;
	}
}

/* How many rows from `row` on are heads of one slot, side by side in one journal block. */
static uint32_t run_of(const struct fold *f, uint64_t row)
{
	const struct kv_row *r = journal_row(f->seq, row);
	uint64_t in_block = (UINT64_C(1) << journal_shape(f->seq)->rows_log2) - 1;
	uint32_t n = 1;

	while (row + n <= f->record && ((row + n) & in_block) && r[n].kind == KV_ROW_VECTOR &&
	       r[n].layer == r->layer && r[n].slot == r->slot && r[n].head == r->head + n &&
	       r[n].flags == r->flags)
		n++;
	return n;
}

static int store_rows(const struct fold *f)
{
	uint32_t n;

	for (uint64_t row = first_row(f); row <= f->record; row += n) {
		const struct kv_row *r = journal_row(f->seq, row);
		struct kv_row_parts parts;
		const char *payload;

		n = 1;
		if (r->kind != KV_ROW_VECTOR)
			continue;
		n = run_of(f, row);
		parts = kv_row_parts(f->layout, r->layer);
		payload = journal_payload(f->seq, row);
		if (!(r->flags & KV_ROW_BASE) && (store(f, r, n, false, payload) ||
						  store(f, r, n, true, payload + parts.k_bytes)))
			return -1;
		for (uint32_t i = 0; parts.planes_bytes && i < n; i++)
			store_planes(f, r + i,
				     payload + i * journal_shape(f->seq)->payload_bytes +
					     parts.k_bytes + parts.v_bytes);
		KV_FAULT_POINT();
	}
	return 0;
}

/* ---- the update --------------------------------------------------------------------------- */

static struct kv_head head_after(const struct fold *f)
{
	const struct kvc_seq *seq = f->seq;
	struct kv_head head = seq->head;
	uint32_t first = journal_record(seq, f->record)->planes;

	head.base_tokens = f->end_tokens;
	/* A mark needs the record that it names. */
	head.journal_first = f->record == journal_last(seq) && head.n_marks == 0 ?
				     head.journal_end :
				     f->record;
	if (f->scattered)
		head.state |= KV_HEAD_SCATTERED;
	if (kv_planes_now(head.planes))
		head.planes = kv_planes(first ? first : 1, kv_planes_now(head.planes));
	return head;
}

static int commit(struct fold *f)
{
	struct kvc_seq *seq = f->seq;
	struct kv_head head = head_after(f);

	if (update_open(seq->writer))
		return -1;
	for (uint32_t g = 0; g < f->layout->n_layer_groups; g++)
		commit_fill_group(seq, g);
	update_head(seq, &head);
	update_publish(seq->writer);
	for (uint32_t g = 0; g < f->layout->n_layer_groups; g++)
		commit_settle_blocks(seq, g);
	if (head.journal_first == head.journal_end)
		seq->journal.future_end = head.journal_end;
	update_settle(seq, &head);
	return 0;
}

int64_t kvc_fold(kvc_seq *seq, uint64_t keep_rows)
{
	uint32_t need[KV_GROUPS_MAX] = {0};
	uint64_t record, first;
	struct fold f;

	if (rollback_check(seq))
		return -1;
	if (seq_mode(seq) != KV_JOURNAL_REPLAY)
		return kvc_fail(KVC_EUNSUPPORTED, "only a replay journal can be folded");
	record = last_folded(seq, keep_rows);
	if (record == UINT64_MAX)
		return 0;
	first = seq->head.journal_first;
	f = fold_of(seq, record);
	needs(&f, need);
	if (reserve_blocks(seq, need))
		return -1;
	for (uint32_t g = 0; g < f.layout->n_layer_groups; g++) {
		take_blocks(&f, g);
		if (f.has_void)
			zero_new_slots(&f, g);
	}
	if (store_rows(&f) || commit(&f)) {
		begin_abort(seq);
		return -1;
	}
	return (int64_t)(record - first);
}
