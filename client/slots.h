/*
 * Where the bytes of a slot lie: what reading, converting and comparing share. The slot is one of
 * those that blocks hold, or that the open update has taken. Writer's thread.
 */
#ifndef KV_CLIENT_SLOTS_H
#define KV_CLIENT_SLOTS_H

#include "client/compute/codec.h"
#include "client/seq.h"

/* A part of a slot: all heads, vector_bytes each, side by side; the slots behind it in its block
 * follow. NULL, and 0 bytes, where the layer has no such part. */
static inline char *slot_part(const struct kvc_seq *seq, uint32_t layer, uint32_t part,
			      uint64_t slot, size_t *vector_bytes)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map = &layout->layer_maps[layer];
	const struct kv_region *r;
	uint32_t region;

	*vector_bytes = 0;
	if (map->region[part] < 0)
		return NULL;
	region = map->first_region + (uint8_t)map->region[part];
	r = &layout->regions[region];
	*vector_bytes = r->vector_bytes;
	return seq_piece(seq, region, seq_block_of(seq, map->group, slot)) +
	       slot % layout->block_tokens * r->row_bytes;
}

/* The vectors of K or V of a slot, head by head, and of those behind it in its block. */
static inline struct kv_codec_at slot_vectors(const struct kvc_seq *seq, uint32_t layer,
					      bool is_value, uint64_t slot)
{
	uint32_t codes = is_value ? KV_PART_V_CODES : KV_PART_K_CODES;
	struct kv_codec_at at;

	at.codes = slot_part(seq, layer, codes, slot, &at.codes_stride);
	at.scale = slot_part(seq, layer, codes + 1, slot, &at.scale_stride);
	at.zero = slot_part(seq, layer, codes + 2, slot, &at.zero_stride);
	return at;
}

/* How many of the slots [slot, end) lie in one block. */
static inline uint64_t slots_in_block(const struct kvc_seq *seq, uint64_t slot, uint64_t end)
{
	uint32_t block_tokens = seq->layout->fields->block_tokens;
	uint64_t n = block_tokens - slot % block_tokens;

	return n < end - slot ? n : end - slot;
}

/* Heads of a layer; of an opaque layout one. */
static inline uint32_t layer_heads(const struct kv_layout *layout, uint32_t layer)
{
	return layout->n_layers ? layout->layers[layer].n_query_groups : 1;
}

static inline uint32_t layout_layers(const struct kv_layout *layout)
{
	return layout->n_layers ? layout->n_layers : 1;
}

#endif
