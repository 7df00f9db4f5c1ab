/* What follows from the fields of a checked layout: groups, plane regions, shape of the journal. */
#include <stdlib.h>
#include <string.h>

#include "proto/journal.h"

#define JOURNAL_BLOCK_BYTES (UINT32_C(128) << 10) /* aimed at */
#define JOURNAL_ROWS_LEAST_LOG2 3u
#define JOURNAL_ROWS_MOST_LOG2 10u

static uint32_t round_up(uint32_t n, uint32_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

/* Group of a bound, made if it is new; -1 when there are too many. */
static int group_of(struct kv_layout *layout, uint32_t bound)
{
	for (uint32_t g = 0; g < layout->n_groups; g++)
		if (layout->groups[g].bound_slots == bound)
			return (int)g;
	if (layout->n_groups == KV_LAYER_GROUPS_MAX)
		return -1;
	layout->groups[layout->n_groups] = (struct kv_group){.bound_slots = bound};
	return (int)layout->n_groups++;
}

static void add_region(struct kv_layout *layout, struct kv_group *group, struct kv_region region)
{
	group->n_regions++;
	group->block_bytes += region.piece_bytes;
	layout->regions[layout->n_regions++] = region;
}

/* A part of a layer; nothing if it has no bytes. */
static void add_part(struct kv_layout *layout, uint32_t layer, uint32_t part, uint32_t bytes)
{
	struct kv_layer_map *map = &layout->layer_maps[layer];
	uint32_t heads = kv_layout_heads(layout, layer);
	struct kv_region region = {
		.layer = layer,
		.part = part,
		.vector_bytes = bytes,
		.row_bytes = heads * bytes,
		.piece_bytes = heads * bytes * layout->block_tokens,
	};

	map->region[part] = -1;
	if (bytes == 0)
		return;
	map->region[part] = (int8_t)map->n_regions++;
	map->stored_bytes += bytes;
	add_region(layout, &layout->groups[map->group], region);
}

static void add_vector(struct kv_layout *layout, uint32_t layer, uint32_t first_part,
		       uint32_t format, uint32_t width)
{
	struct kv_format_bytes bytes;

	kv_format_bytes(format, layout->dtype, width, &bytes, NULL);
	add_part(layout, layer, first_part, bytes.codes);
	add_part(layout, layer, first_part + 1, bytes.scale);
	add_part(layout, layer, first_part + 2, bytes.zero);
}

static void add_layer(struct kv_layout *layout, uint32_t layer)
{
	struct kv_layer_map *map = &layout->layer_maps[layer];
	struct kv_group *group = &layout->groups[map->group];
	uint32_t n_slot_planes = 0;

	memset(map->region, -1, sizeof(map->region));
	map->first_region = layout->n_regions;
	map->first_head = group->n_heads;
	group->n_layers++;
	if (layout->opaque_bytes) {
		add_part(layout, layer, KV_PART_K_CODES, layout->opaque_bytes);
		return;
	}
	group->n_heads += layout->layers[layer].n_query_groups;
	add_vector(layout, layer, KV_PART_K_CODES, layout->k_format, layout->layers[layer].k_width);
	add_vector(layout, layer, KV_PART_V_CODES, layout->v_format, layout->layers[layer].v_width);
	for (uint32_t i = 0; i < layout->n_planes; i++)
		if (layout->planes[i].scope == KV_PLANE_SLOT)
			add_part(layout, layer, KV_PART_PLANE + n_slot_planes++,
				 layout->planes[i].bytes);
}

static void add_layer_groups(struct kv_layout *layout)
{
	for (uint32_t g = 0; g < layout->n_groups; g++) {
		struct kv_group *group = &layout->groups[g];

		group->first_region = layout->n_regions;
		for (uint32_t i = 0; i < layout->n_layers; i++)
			if (layout->layer_maps[i].group == g)
				add_layer(layout, i);
		if (layout->opaque_bytes)
			add_layer(layout, 0);
		layout->n_heads += group->n_heads;
	}
	layout->n_layer_groups = layout->n_groups;
}

/* A group whose blocks are `bytes` of something that is no slot. */
static uint32_t add_other_group(struct kv_layout *layout, enum kv_group_kind kind, uint32_t bytes)
{
	struct kv_group *group = &layout->groups[layout->n_groups];

	*group = (struct kv_group){.kind = kind, .first_region = layout->n_regions};
	add_region(layout, group,
		   (struct kv_region){
			   .vector_bytes = bytes, .row_bytes = bytes, .piece_bytes = bytes});
	return layout->n_groups++;
}

/* ---- journal ------------------------------------------------------------------------------ */

struct payloads {
	uint32_t stored, replay; /* widest of all layers */
};

static struct payloads payloads_of(const struct kv_layout *layout)
{
	struct payloads most = {0, 0};

	for (uint32_t i = 0; i < layout->n_layers; i++) {
		const struct kv_layer *layer = &layout->layers[i];
		uint32_t replay = (layer->k_width + layer->v_width) * kv_dtype_bytes(layout->dtype);

		for (uint32_t p = 0; p < layout->n_planes; p++)
			if (layout->planes[p].scope == KV_PLANE_SLOT)
				replay += layout->planes[p].bytes;
		if (replay > most.replay)
			most.replay = replay;
		if (layout->layer_maps[i].stored_bytes > most.stored)
			most.stored = layout->layer_maps[i].stored_bytes;
	}
	return most;
}

static uint32_t shape_bytes(const struct kv_journal_shape *shape)
{
	return shape->payload_off + (shape->payload_bytes << shape->rows_log2);
}

/* As many rows as fit into a block of `bytes`, a power of two, but not fewer than the least. */
static void fit(struct kv_journal_shape *shape, uint32_t bytes)
{
	for (shape->rows_log2 = JOURNAL_ROWS_MOST_LOG2;; shape->rows_log2--) {
		shape->payload_off = round_up((uint32_t)sizeof(struct kv_row) << shape->rows_log2,
					      64);
		if (shape->rows_log2 == JOURNAL_ROWS_LEAST_LOG2 || shape_bytes(shape) <= bytes)
			return;
	}
}

static void shape_journal(struct kv_layout *layout)
{
	struct payloads most = payloads_of(layout);
	struct kv_journal_shape *undo = &layout->journal[KV_JOURNAL_UNDO];
	struct kv_journal_shape *replay = &layout->journal[KV_JOURNAL_REPLAY];
	uint32_t bytes;

	undo->new_off = round_up(most.stored, 16);
	undo->payload_bytes = round_up(2 * undo->new_off, 64);
	replay->payload_bytes = round_up(most.replay, 16);
	if (replay->payload_bytes < sizeof(struct kv_record))
		replay->payload_bytes = sizeof(struct kv_record);
	fit(replay, JOURNAL_BLOCK_BYTES);
	fit(undo, shape_bytes(replay));
	bytes = shape_bytes(replay) > shape_bytes(undo) ? shape_bytes(replay) : shape_bytes(undo);
	layout->journal_group = add_other_group(layout, KV_GROUP_JOURNAL, round_up(bytes, 4096));
}

static void shape_states(struct kv_layout *layout)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < layout->n_planes; i++) {
		if (layout->planes[i].scope == KV_PLANE_SLOT) {
			layout->plane_off[i] = layout->n_slot_planes++;
			continue;
		}
		layout->plane_off[i] = bytes;
		bytes += round_up(layout->planes[i].bytes, 64);
	}
	layout->states_group = layout->n_groups;
	if (bytes)
		add_other_group(layout, KV_GROUP_STATES, bytes);
}

/* ---- all ---------------------------------------------------------------------------------- */

static int make_groups(struct kv_layout *layout, struct errbuf *err)
{
	for (uint32_t i = 0; i < layout->n_layers; i++) {
		uint32_t bound = layout->layers[i].bound_slots;
		int g = group_of(layout, bound);

		if (g < 0)
			return errbuf_set(
				err, KV_ETOOBIG,
				"layout field bound_slots has more than %u different values",
				KV_LAYER_GROUPS_MAX);
		layout->layer_maps[i].group = (uint32_t)g;
		if (bound && bound < layout->max_slots)
			layout->max_slots = bound;
	}
	if (layout->opaque_bytes)
		group_of(layout, 0);
	return 0;
}

int kv_layout_derive(struct kv_layout *layout, struct errbuf *err)
{
	uint32_t n = kv_layout_layers(layout);

	layout->n_groups = 0;
	layout->n_regions = 0;
	layout->n_heads = 0;
	layout->n_slot_planes = 0;
	layout->max_slots = UINT64_MAX;
	layout->layer_maps = calloc(n, sizeof(layout->layer_maps[0]));
	layout->regions = calloc((size_t)n * (6 + layout->n_planes) + 2,
				 sizeof(layout->regions[0]));
	if (!layout->layer_maps || !layout->regions)
		return errbuf_set(err, KV_ENOMEM, "no memory for a layout of %u layers", n);
	if (make_groups(layout, err))
		return -1;
	add_layer_groups(layout);
	layout->journal_group = layout->states_group = layout->n_groups;
	if (!layout->opaque_bytes) {
		shape_journal(layout);
		shape_states(layout);
	}
	kv_layout_hash(layout, layout->hash);
	return 0;
}
