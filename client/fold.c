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
	bool scattered;                          /* a row is laid over something */
	bool has_void;                           /* a slot that nobody wrote */
	uint64_t n_covered[KV_LAYER_GROUPS_MAX]; /* blocks to be copied because of them: needs() */
};

static uint64_t first_row(const struct fold *f)
{
	return f->seq->head.journal_first + 1;
}

/* Copies the block of a base slot, its filled part. */
static void copy_covered(const struct fold *f, uint32_t group, uint64_t block)
{
	uint64_t slots = kv_layout_slots(f->layout, group, f->base_tokens);
	uint64_t left = slots - block * f->layout->block_tokens;

	begin_copy(f->seq, group, block,
		   left < f->layout->block_tokens ? left : f->layout->block_tokens);
}

/* Counts, or copies, each block of a group, once, that holds a base slot which a folded row
 * names. */
static uint64_t each_covered(struct fold *f, uint32_t group, bool copy)
{
	const struct kv_layout *layout = f->layout;
	uint64_t slots = kv_layout_slots(layout, group, f->base_tokens), n = 0;
	uint64_t *seen = f->seq->journal.seen;
	struct journal_rows rows;

	for (uint64_t row = first_row(f); row <= f->record; row += rows.n) {
		rows = journal_rows(f->seq, row, f->record + 1);
		for (uint64_t i = 0; i < rows.n; i++) {
			const struct kv_row *r = &rows.headers[i];
			uint32_t block;

			f->has_void |= r->kind == KV_ROW_VOID;
			if (r->kind != KV_ROW_VECTOR || layout->layer_maps[r->layer].group != group)
				continue;
			f->scattered |= r->prev != 0 || r->slot < slots;
			if (r->slot >= slots)
				continue;
			block = r->slot / layout->block_tokens;
			if (seen[block / 64] >> block % 64 & 1)
				continue;
			seen[block / 64] |= UINT64_C(1) << block % 64;
			n++;
			if (copy)
				copy_covered(f, group, block);
		}
	}
	if (n)
		memset(seen, 0, (kv_layout_blocks(layout, slots) + 63) / 64 * sizeof(seen[0]));
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
	for (uint32_t g = 0; g < f->layout->n_layer_groups; g++) {
		f->n_covered[g] = each_covered(f, g, false);
		need[g] = (uint32_t)(f->n_covered[g] + must_copy_last(f, g) +
				     kv_layout_blocks(f->layout, kv_layout_slots(f->layout, g,
										 f->end_tokens)) -
				     f->seq->groups[g].end_block);
	}
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
	bool is_copied = false;

	if (f->n_covered[group])
		each_covered(f, group, true);
	for (uint32_t c = 0; c < g->n_copied; c++)
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

/* Slot and head of a row: part i of them is `number` vectors behind the beginning of its region. */
struct target {
	const struct kv_layer_map *map;
	const struct kv_region *regions;
	const uint64_t *off;
	char *base;
	uint64_t number;
};

static struct target target_of(const struct fold *f, const struct kv_row *r)
{
	const struct kv_layout *layout = f->layout;
	const struct kv_layer_map *map = &layout->layer_maps[r->layer];
	uint32_t in_table = r->slot / layout->block_tokens;
	uint32_t in_block = r->slot - in_table * layout->block_tokens;
	struct kvc_block block = f->seq->groups[map->group].mirror[in_table];
	const struct arena_map *arena = session_arena_mapped(f->seq->writer->session, block.arena);

	return (struct target){
		.map = map,
		.regions = &layout->regions[map->first_region],
		.off = &arena->region_off[map->first_region -
					  layout->groups[map->group].first_region],
		.base = arena->base,
		.number = ((uint64_t)block.block * layout->block_tokens + in_block) *
				  layout->layers[r->layer].n_query_groups +
			  r->head,
	};
}

/* Where a part lies, and the bytes from one head to the next; NULL: there is no such part. */
static char *part_at(const struct target *t, uint32_t part, size_t *stride)
{
	int8_t region = t->map->region[part];

	if (region < 0) {
		*stride = 0;
		return NULL;
	}
	*stride = t->regions[region].vector_bytes;
	return t->base + t->off[region] + t->number * *stride;
}

/* The next vectors come while these are stored; the processor does not foresee them across pages.
 * (What lies behind the last block is not there, and fetching it no fault.) */
static void prefetch(const char *from, size_t stride, uint32_t n, size_t vector_bytes)
{
	for (uint32_t i = 0; i < n; i++, from += stride)
		for (size_t off = 0; off < vector_bytes; off += 64)
			__builtin_prefetch(from + off);
}

/* A row behind this one, which is folded too, is laid over it. */
static bool is_displaced(const struct fold *f, const struct kv_row *r)
{
	uint64_t newest = journal_find(f->seq, r->layer, r->head, r->slot,
				       f->seq->head.journal_end);

	while (newest != UINT64_MAX && newest > f->record)
		newest = journal_row(f->seq, newest)->prev - 1;
	return newest == UINT64_MAX || journal_row(f->seq, newest) != r;
}

/* K or V of n rows whose heads follow one another in one slot. What cannot be stored does not
 * matter where a later row is laid over it. */
static int store(const struct fold *f, const struct target *t, const struct kv_row *r, uint32_t n,
		 bool is_value, const char *from)
{
	const struct kv_codec *codec = &f->seq->layout->codecs[2 * r->layer + is_value];
	uint32_t codes = is_value ? KV_PART_V_CODES : KV_PART_K_CODES;
	size_t stride = journal_shape(f->seq)->payload_bytes;
	struct kv_codec_at to;

	if (codec->width == 0)
		return 0;
	to.codes = part_at(t, codes, &to.codes_stride);
	to.scale = part_at(t, codes + 1, &to.scale_stride);
	to.zero = part_at(t, codes + 2, &to.zero_stride);
	prefetch(from + n * stride, stride, n, (size_t)codec->width * codec->element_bytes);
	for (size_t done = 0; done < n; done++) {
		struct kv_codec_at at = kv_codec_at(&to, done);

		done += kv_quantise(codec, n - done, from + done * stride, stride, &at);
		if (done < n && !is_displaced(f, r + done))
			return kvc_fail(KVC_EVALUE,
					"%s of layer %u, slot %u, head %zu has a NaN or an "
					"infinity, which the storage format cannot hold; roll it "
					"back, or overwrite the slot",
					is_value ? "V" : "K", r->layer, r->slot, r->head + done);
	}
	return 0;
}

static void store_planes(const struct target *t, const char *from)
{
	for (uint32_t p = KV_PART_PLANE; t->map->region[p] >= 0; p++) {
		size_t bytes;
		char *to = part_at(t, p, &bytes);

		memcpy(to, from, bytes);
		from += bytes;
	}
}

/* How many of n rows that lie side by side are heads of one slot, from the first on. */
static uint32_t run_of(const struct kv_row *r, uint64_t n_rows)
{
	uint32_t n = 1;

	while (n < n_rows && r[n].kind == KV_ROW_VECTOR && r[n].layer == r->layer &&
	       r[n].slot == r->slot && r[n].head == r->head + n && r[n].flags == r->flags)
		n++;
	return n;
}

/* n heads of one slot. */
static int store_run(const struct fold *f, const struct kv_row *r, uint32_t n, const char *payload)
{
	struct kv_row_parts parts = kv_row_parts(f->layout, r->layer);
	struct target target = target_of(f, r);

	if (!(r->flags & KV_ROW_BASE) && (store(f, &target, r, n, false, payload) ||
					  store(f, &target, r, n, true, payload + parts.k_bytes)))
		return -1;
	payload += parts.k_bytes + parts.v_bytes;
	for (uint32_t i = 0; parts.planes_bytes && i < n; i++, target.number++)
		store_planes(&target, payload + i * journal_shape(f->seq)->payload_bytes);
	KV_FAULT_POINT();
	return 0;
}

#define AHEAD 64u /* headers */

static int store_rows(const struct fold *f)
{
	size_t payload_bytes = journal_shape(f->seq)->payload_bytes;
	struct journal_rows rows;

	for (uint64_t row = first_row(f); row <= f->record; row += rows.n) {
		rows = journal_rows(f->seq, row, f->record + 1);
		for (uint64_t i = 0, n; i < rows.n; i += n) {
			const struct kv_row *r = &rows.headers[i];
			const char *payload = rows.payloads + i * payload_bytes;

			__builtin_prefetch(r + AHEAD);
			n = r->kind == KV_ROW_VECTOR ? run_of(r, rows.n - i) : 1;
			if (r->kind == KV_ROW_VECTOR && store_run(f, r, (uint32_t)n, payload))
				return -1;
		}
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
