/*
 * kvc_fold: rows of a replay journal become slots of blocks, quantised as the layout has it.
 *
 * Nothing in force is ever written: a block that holds a slot which rows are laid over is copied
 * first, new slots lie behind the base. One update then changes entries, base tokens and the first
 * row. If it fails, or the writer dies before the swap, everything is as it was. Writer's thread;
 * asks the daemon for the blocks that it lacks.
 */
#include <string.h>

#include "client/codecs.h"
#include "client/error.h"
#include "client/journal.h"
#include "client/reserve.h"
#include "client/rollback.h"
#include "client/slots.h"
#include "client/stream.h"

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

	begin_copy(f->seq, group, block, slots_of_block(f->layout, block, slots));
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
	uint64_t slots = kv_layout_slots(f->layout, group, f->base_tokens);

	return slots % f->layout->block_tokens &&
	       kv_layout_slots(f->layout, group, f->end_tokens) != slots &&
	       begin_is_closed(f->seq, group, f->seq->groups[group].end_block - 1, slots);
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
	begin_take(f->seq, group, end);
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Where a part lies, and the bytes from one head to the next; NULL: there is no such part. */
static char *part_at(const struct slot_head *at, const struct kv_layer_map *map, uint32_t part,
		     size_t *stride)
{
	int8_t i = map->region[part];

	*stride = i < 0 ? 0 : at->regions[i].vector_bytes;
	return i < 0 ? NULL : slot_head_region(at, (uint32_t)i);
}

/* The next vectors come while these are stored; the processor does not foresee them across pages.
 * (What lies behind the last block is not there, and fetching it no fault.) */
static void prefetch(const char *from, size_t stride, uint32_t n, size_t vector_bytes)
{
	for (uint32_t i = 0; i < n; i++, from += stride)
		for (size_t off = 0; off < vector_bytes; off += CACHE_LINE_BYTES)
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
static int store(const struct fold *f, const struct slot_head *at, const struct kv_row *r,
		 uint32_t n, bool is_value, const char *from)
{
	const struct kv_layer_map *map = &f->layout->layer_maps[r->layer];
	const struct kv_codec *codec = &f->seq->layout->codecs[2 * r->layer + is_value];
	uint32_t codes = is_value ? KV_PART_V_CODES : KV_PART_K_CODES;
	size_t stride = journal_shape(f->seq)->payload_bytes;
	struct kv_codec_at to;

	if (codec->width == 0)
		return 0;
	to.codes = part_at(at, map, codes, &to.codes_stride);
	to.scale = part_at(at, map, codes + 1, &to.scale_stride);
	to.zero = part_at(at, map, codes + 2, &to.zero_stride);
	prefetch(from + n * stride, stride, n, (size_t)codec->width * codec->element_bytes);
	for (size_t done = 0; done < n; done++) {
		struct kv_codec_at next = kv_codec_at(&to, done);

		done += kv_quantise(codec, n - done, from + done * stride, stride, &next);
		if (done < n && !is_displaced(f, r + done))
			return codecs_refuse(is_value, r->layer, "slot", r->slot, r->head + done,
					     "roll it back, or overwrite the slot");
	}
	return 0;
}

static void store_planes(const struct fold *f, const struct slot_head *at, uint32_t layer,
			 const char *from)
{
	for (uint32_t p = 0; p < f->layout->n_slot_planes; p++) {
		size_t bytes;
		char *to = part_at(at, &f->layout->layer_maps[layer], KV_PART_PLANE + p, &bytes);

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
	struct slot_head at = slot_head(f->seq, r->layer, r->head, r->slot);

	if (!(r->flags & KV_ROW_BASE) && (store(f, &at, r, n, false, payload) ||
					  store(f, &at, r, n, true, payload + parts.k_bytes)))
		return -1;
	payload += parts.k_bytes + parts.v_bytes;
	for (uint32_t i = 0; parts.planes_bytes && i < n; i++, at.number++)
		store_planes(f, &at, r->layer, payload + i * journal_shape(f->seq)->payload_bytes);
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
	commit_head(seq, &head);
	if (head.journal_first == head.journal_end)
		seq->journal.future_end = head.journal_end;
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
		/* Slots that a layer was never given hold zeros. */
		if (f.has_void)
			begin_zero_slots(seq, g, KV_PART_K_CODES,
					 kv_layout_slots(f.layout, g, f.base_tokens),
					 kv_layout_slots(f.layout, g, f.end_tokens));
	}
	if (store_rows(&f) || commit(&f)) {
		begin_abort(seq);
		return -1;
	}
	return (int64_t)(record - first);
}
