/*
 * Reading a sequence as it counts: kvc_read, kvc_read_plane, and what is counted (kvc_slots,
 * kvc_position). Vectors come from blocks, dequantised, and over them the rows of a replay
 * journal: the newest of each (layer, head, slot). Writer's thread.
 */
#include "client/read.h"

#include <string.h>

#include "client/error.h"
#include "client/journal.h"
#include "client/slots.h"

uint64_t kvc_slots(const kvc_seq *seq, uint32_t layer)
{
	const struct kv_layout *layout = seq->layout->fields;

	if (layer >= kv_layout_layers(layout))
		return 0;
	return kv_layout_slots(layout, layout->layer_maps[layer].group, seq->head.length_tokens);
}

uint64_t kvc_position(const kvc_seq *seq)
{
	return seq->head.position;
}

/* ---- blocks ------------------------------------------------------------------------------- */

/* Slots of one call. */
struct span {
	uint32_t layer, n_heads, group;
	uint64_t first, end;
};

/* K or V of the slots that lie in one block, from `slot` on; returns how many slots. */
static uint64_t read_block(const struct kvc_seq *seq, const struct span *s, bool is_value,
			   uint64_t slot, uint64_t end, char *to)
{
	struct kv_codec_at from = slot_vectors(seq, s->layer, is_value, slot);
	uint64_t n = slots_in_block(seq, slot, end);

	if (seq->layout->codecs) {
		const struct kv_codec *codec = &seq->layout->codecs[2 * s->layer + is_value];

		kv_dequantise(codec, n * s->n_heads, &from, to,
			      (size_t)codec->width * codec->element_bytes);
	} else {
		memcpy(to, from.codes, n * from.codes_stride);
	}
	return n;
}

static void read_base(const struct kvc_seq *seq, const struct span *s, bool is_value, char *to,
		      size_t row_bytes)
{
	uint64_t end = kv_layout_slots(seq->layout->fields, s->group, seq->head.base_tokens);

	if (end > s->end)
		end = s->end;
	for (uint64_t slot = s->first, n; slot < end; slot += n, to += n * row_bytes)
		n = read_block(seq, s, is_value, slot, end, to);
	/* Behind the base rows tell all; what a layer was never given is zero. */
	if (end < s->first)
		end = s->first;
	if (end < s->end)
		memset(to, 0, (s->end - end) * row_bytes);
}

/* ---- rows --------------------------------------------------------------------------------- */

#define AHEAD 4u /* slots whose rows are fetched: the rows of a layer lie far apart */

static void fetch_ahead(const struct kvc_seq *seq, const struct span *s, uint64_t slot,
			uint32_t head, struct kv_row_parts parts, const char *k, const char *v)
{
	const uint32_t *at = journal_index_at(seq, s->layer, head, slot);

	if (k)
		journal_prefetch_payload(seq, at, seq->head.journal_end, 0, parts.k_bytes);
	if (v)
		journal_prefetch_payload(seq, at, seq->head.journal_end, parts.k_bytes,
					 parts.v_bytes);
}

static void lay_over(const struct kvc_seq *seq, const struct span *s, char *k, char *v)
{
	struct kv_row_parts parts = kv_row_parts(seq->layout->fields, s->layer);
	uint64_t low = seq->journal.index_low[s->group];

	if (low < s->first)
		low = s->first;
	for (uint64_t slot = low; slot < s->end; slot++) {
		for (uint32_t h = 0; slot + AHEAD < s->end && h < s->n_heads; h++)
			fetch_ahead(seq, s, slot + AHEAD, h, parts, k, v);
		for (uint32_t h = 0; h < s->n_heads; h++) {
			uint64_t row = journal_find(seq, s->layer, h, slot, seq->head.journal_end);
			uint64_t i = (slot - s->first) * s->n_heads + h;
			const char *payload;

			if (row == UINT64_MAX || journal_row(seq, row)->flags & KV_ROW_BASE)
				continue;
			payload = journal_payload(seq, row);
			if (k)
				memcpy(k + i * parts.k_bytes, payload, parts.k_bytes);
			if (v)
				memcpy(v + i * parts.v_bytes, payload + parts.k_bytes,
				       parts.v_bytes);
		}
	}
}

static int check_read(const struct kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_slots,
		      struct span *s)
{
	const struct kv_layout *layout = seq->layout->fields;

	if (session_check(seq->writer->session) || slots_check_layer(layout, layer))
		return -1;
	if (first > kvc_slots(seq, layer) || n_slots > kvc_slots(seq, layer) - first)
		return kvc_fail(KVC_ERANGE,
				"slots %llu+%llu of layer %u, which has %llu (kvc_slots)",
				(unsigned long long)first, (unsigned long long)n_slots, layer,
				(unsigned long long)kvc_slots(seq, layer));
	*s = (struct span){
		.layer = layer,
		.n_heads = kv_layout_heads(layout, layer),
		.group = layout->layer_maps[layer].group,
		.first = first,
		.end = first + n_slots,
	};
	return 0;
}

int kvc_read(kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_slots, void *k, void *v)
{
	const struct kv_layout *layout = seq->layout->fields;
	struct span s;
	size_t k_bytes = layout->opaque_bytes, v_bytes = 0;

	if (check_read(seq, layer, first, n_slots, &s))
		return -1;
	if (layout->n_layers) {
		struct kv_row_parts parts = kv_row_parts(layout, layer);

		k_bytes = (size_t)parts.k_bytes * s.n_heads;
		v_bytes = (size_t)parts.v_bytes * s.n_heads;
	}
	if (v && v_bytes == 0)
		return kvc_fail(KVC_EINVAL, "layer %u has K only: pass v = NULL", layer);
	if (k)
		read_base(seq, &s, false, k, k_bytes);
	if (v)
		read_base(seq, &s, true, v, v_bytes);
	if (kv_head_has_overlay(&seq->head))
		lay_over(seq, &s, k, v);
	return 0;
}

/* ---- slot planes -------------------------------------------------------------------------- */

/* Number of a slot plane among them; -1: there is none of that name. */
static int slot_plane(const struct kv_layout *layout, const char *name)
{
	int i = kv_layout_find_plane(layout, KV_PLANE_SLOT, name);

	if (i >= 0)
		return (int)layout->plane_off[i];
	return kvc_fail(KVC_ENOTFOUND, "the layout has no slot plane \"%s\"", name ? name : "");
}

/* One head of a slot plane as it counts: of the newest row, of the block, or zeros. */
static void read_plane(const struct kvc_seq *seq, const struct span *s, uint32_t number,
		       uint64_t slot, uint32_t head, char *to, size_t n_bytes)
{
	uint64_t row = UINT64_MAX;

	if (seq_mode(seq) == KV_JOURNAL_REPLAY)
		row = journal_find(seq, s->layer, head, slot, seq->head.journal_end);
	if (row != UINT64_MAX)
		memcpy(to, journal_payload(seq, row) + journal_plane_off(seq, s->layer, number),
		       n_bytes);
	else
		slot_plane_copy(seq, s->layer, head, slot, number, to, n_bytes);
}

/* ---- one head of one slot ------------------------------------------------------------------ */

/* K or V out of the block; zeros where no block has the slot. */
static void read_vector(const struct kvc_seq *seq, const struct span *s, bool is_value,
			uint32_t head, uint64_t slot, char *to)
{
	const struct kv_codec *codec = &seq->layout->codecs[2 * s->layer + is_value];
	size_t n_bytes = (size_t)codec->width * codec->element_bytes;
	struct kv_codec_at from;

	if (slot >= kv_layout_slots(seq->layout->fields, s->group, seq->head.base_tokens)) {
		memset(to, 0, n_bytes);
		return;
	}
	from = slot_vectors(seq, s->layer, is_value, slot);
	from = kv_codec_at(&from, head);
	kv_dequantise(codec, 1, &from, to, n_bytes);
}

void read_slot(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot, char *to)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct span s = {.layer = layer, .group = layout->layer_maps[layer].group};
	struct kv_row_parts parts = kv_row_parts(layout, layer);
	uint64_t row = journal_find(seq, layer, head, slot, seq->head.journal_end);

	if (row != UINT64_MAX && !(journal_row(seq, row)->flags & KV_ROW_BASE)) {
		memcpy(to, journal_payload(seq, row), parts.k_bytes + parts.v_bytes);
	} else {
		read_vector(seq, &s, false, head, slot, to);
		if (parts.v_bytes)
			read_vector(seq, &s, true, head, slot, to + parts.k_bytes);
	}
	to += parts.k_bytes + parts.v_bytes;
	for (uint32_t p = 0; p < layout->n_slot_planes; p++) {
		size_t n_bytes = layout->regions[kv_layout_region(layout, layer, KV_PART_PLANE + p)]
					 .vector_bytes;

		read_plane(seq, &s, p, slot, head, to, n_bytes);
		to += n_bytes;
	}
}

/* ---- kvc_read_plane ------------------------------------------------------------------------ */

int kvc_read_plane(kvc_seq *seq, const char *name, uint32_t layer, uint64_t first, uint64_t n_slots,
		   void *bytes)
{
	const struct kv_layout *layout = seq->layout->fields;
	char *to = bytes;
	struct span s;
	size_t n_bytes;
	int number;

	if (check_read(seq, layer, first, n_slots, &s))
		return -1;
	number = slot_plane(layout, name);
	if (number < 0)
		return -1;
	n_bytes = layout->regions[kv_layout_region(layout, layer, KV_PART_PLANE + (uint32_t)number)]
			  .vector_bytes;
	for (uint64_t slot = s.first; slot < s.end; slot++)
		for (uint32_t h = 0; h < s.n_heads; h++, to += n_bytes)
			read_plane(seq, &s, (uint32_t)number, slot, h, to, n_bytes);
	return 0;
}
