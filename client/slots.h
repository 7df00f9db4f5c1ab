/*
 * Where the bytes of slots lie: what writing, reading, folding, converting and comparing share. A
 * slot is one of those that blocks hold, or that the open update has taken; it lies in the block
 * that the mirror names now. Writer's thread; inline, for the hot path.
 */
#ifndef KV_CLIENT_SLOTS_H
#define KV_CLIENT_SLOTS_H

#include <string.h>

#include "client/compute/codec.h"
#include "client/error.h"
#include "client/seq.h"

/* -1 with KVC_ERANGE if the layout has no such layer. */
static inline int slots_check_layer(const struct kv_layout *layout, uint32_t layer)
{
	if (layer < kv_layout_layers(layout))
		return 0;
	return kvc_fail(KVC_ERANGE, "layer %u is not there: the layout has %u, counted from 0",
			layer, kv_layout_layers(layout));
}

/* A part of a slot: all heads, vector_bytes each, side by side; the slots behind it in its block
 * follow. NULL, and 0 bytes, where the layer has no such part. */
static inline char *slot_part(const struct kvc_seq *seq, uint32_t layer, uint32_t part,
			      uint64_t slot, size_t *vector_bytes)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint32_t region = kv_layout_region(layout, layer, part);
	uint32_t group = layout->layer_maps[layer].group;

	if (region == UINT32_MAX) {
		*vector_bytes = 0;
		return NULL;
	}
	*vector_bytes = layout->regions[region].vector_bytes;
	return seq_piece(seq, region, seq_block_of(seq, group, slot)) +
	       slot % layout->block_tokens * layout->regions[region].row_bytes;
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

/* Copies a slot plane of one head (n_bytes) out of its block; zeros where no block has the slot. */
static inline void slot_plane_copy(const struct kvc_seq *seq, uint32_t layer, uint32_t head,
				   uint64_t slot, uint32_t number, char *to, size_t n_bytes)
{
	const struct kv_layout *layout = seq->layout->fields;
	size_t stride;
	const char *from;

	if (slot >=
	    kv_layout_slots(layout, layout->layer_maps[layer].group, seq->head.base_tokens)) {
		memset(to, 0, n_bytes);
		return;
	}
	from = slot_part(seq, layer, KV_PART_PLANE + number, slot, &stride);
	memcpy(to, from + head * n_bytes, n_bytes);
}

/* How many of the slots [slot, end) lie in one block. */
static inline uint64_t slots_in_block(const struct kvc_seq *seq, uint64_t slot, uint64_t end)
{
	uint32_t block_tokens = seq->layout->fields->block_tokens;
	uint64_t n = block_tokens - slot % block_tokens;

	return n < end - slot ? n : end - slot;
}

/* How many of the first n_slots slots of a layer group lie in the block of that index. */
static inline uint64_t slots_of_block(const struct kv_layout *layout, uint64_t index,
				      uint64_t n_slots)
{
	uint64_t left = n_slots - index * layout->block_tokens;

	return left < layout->block_tokens ? left : layout->block_tokens;
}

/*
 * One head of one slot, in all parts of its layer: the bytes of region first_region + i lie
 * `number` vectors behind where that region begins in the arena.
 */
struct slot_head {
	const struct kv_region *regions;
	uint32_t n_regions;
	char *arena;
	const uint64_t *region_off;
	uint64_t number;
};

static inline struct slot_head slot_head(const struct kvc_seq *seq, uint32_t layer, uint32_t head,
					 uint64_t slot)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map = &layout->layer_maps[layer];
	uint32_t index = (uint32_t)slot / layout->block_tokens;
	uint32_t in_block = (uint32_t)slot - index * layout->block_tokens;
	struct kvc_block block = seq->groups[map->group].mirror[index];
	const struct arena_map *arena = session_arena_mapped(seq->writer->session, block.arena);

	return (struct slot_head){
		.regions = &layout->regions[map->first_region],
		.n_regions = map->n_regions,
		.arena = arena->base,
		.region_off = &arena->region_off[map->first_region -
						 layout->groups[map->group].first_region],
		.number = ((uint64_t)block.block * layout->block_tokens + in_block) *
				  layout->layers[layer].n_query_groups +
			  head,
	};
}

static inline char *slot_head_region(const struct slot_head *at, uint32_t i)
{
	return at->arena + at->region_off[i] + at->number * at->regions[i].vector_bytes;
}

#endif
