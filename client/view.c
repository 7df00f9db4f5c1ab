/*
 * Looking at a sequence: kvc_length, kvc_seq_layout, kvc_version_of, kvc_view_*. Writer's thread,
 * hot path.
 */
#include "client/batch.h"
#include "client/error.h"
#include "client/slots.h"

uint64_t kvc_length(const kvc_seq *seq)
{
	return seq->head.length_tokens;
}

const kvc_layout *kvc_seq_layout(const kvc_seq *seq)
{
	return seq->layout;
}

int kvc_version_of(const kvc_seq *seq, uint64_t *generation, uint64_t *update)
{
	if (session_check(seq->writer->session))
		return -1;
	*generation = kv_word_generation(kv_word_load(seq->writer->shm));
	*update = seq->writer->update;
	return 0;
}

static int check_view(const struct kvc_seq *seq, uint32_t layer)
{
	return session_check(seq->writer->session) ||
			       slots_check_layer(seq->layout->fields, layer) ?
		       -1 :
		       0;
}

/* The layer as geometry: of an opaque layout one "head" of opaque_bytes. */
struct shape {
	uint32_t layer, group;
	uint32_t n_query_groups, k_width, v_width;
	size_t k_row_bytes, v_row_bytes;
};

static size_t row_bytes(const struct kv_layout *layout, uint32_t layer, enum kv_part part)
{
	uint32_t region = kv_layout_region(layout, layer, part);

	return region == UINT32_MAX ? 0 : layout->regions[region].row_bytes;
}

static struct shape shape_of(const struct kvc_seq *seq, uint32_t layer)
{
	const struct kv_layout *layout = seq->layout->fields;
	struct shape shape = {
		.layer = layer,
		.group = layout->layer_maps[layer].group,
		.n_query_groups = kv_layout_heads(layout, layer),
		.k_width = layout->opaque_bytes,
		.k_row_bytes = row_bytes(layout, layer, KV_PART_K_CODES),
		.v_row_bytes = row_bytes(layout, layer, KV_PART_V_CODES),
	};

	if (layout->n_layers) {
		shape.k_width = layout->layers[layer].k_width;
		shape.v_width = layout->layers[layer].v_width;
	}
	return shape;
}

/* Where a part of the layer begins in a block; NULL: it has none. */
static void *piece_at(const struct kvc_seq *seq, const struct shape *shape, enum kv_part part,
		      struct kvc_block block)
{
	uint32_t region = kv_layout_region(seq->layout->fields, shape->layer, part);

	return region == UINT32_MAX ? NULL : seq_piece(seq, region, block);
}

static uint64_t n_base_slots(const struct kvc_seq *seq, const struct shape *shape)
{
	return kv_layout_slots(seq->layout->fields, shape->group, seq->head.base_tokens);
}

static uint64_t n_rows(const struct kvc_seq *seq)
{
	return seq_mode(seq) == KV_JOURNAL_REPLAY ?
		       seq->head.journal_end - seq->head.journal_first :
		       0;
}

int kvc_view_table(kvc_seq *seq, uint32_t layer, struct kvc_layer_view *view)
{
	struct shape shape;

	if (check_view(seq, layer))
		return -1;
	shape = shape_of(seq, layer);
	*view = (struct kvc_layer_view){
		.blocks = seq->groups[shape.group].mirror,
		.n_blocks = seq->groups[shape.group].end_block,
		.length_tokens = seq->head.length_tokens,
		.n_slots = kv_layout_slots(seq->layout->fields, shape.group,
					   seq->head.length_tokens),
		.n_base_slots = n_base_slots(seq, &shape),
		.n_rows = n_rows(seq),
		.k_format = seq->layout->fields->k_format,
		.v_format = seq->layout->fields->v_format,
		.block_tokens = seq->layout->fields->block_tokens,
		.n_query_groups = shape.n_query_groups,
		.k_width = shape.k_width,
		.v_width = shape.v_width,
		.k_row_bytes = shape.k_row_bytes,
		.v_row_bytes = shape.v_row_bytes,
		.generation = kv_word_generation(kv_word_load(seq->writer->shm)),
		.update = seq->writer->update,
	};
	return 0;
}

int kvc_view_arena(kvc_seq *seq, uint32_t layer, uint32_t arena, struct kvc_paged *paged)
{
	const struct kvc_block first = {arena, 0};
	const struct arena_map *map;
	struct shape shape;

	if (check_view(seq, layer))
		return -1;
	shape = shape_of(seq, layer);
	*paged = (struct kvc_paged){.n_blocks = 0};
	map = arena < KV_ARENAS_MAX ? session_arena_mapped(seq->writer->session, arena) : NULL;
	if (!map || map->layout_id != seq->layout->id || map->group != shape.group)
		return 0;
	*paged = (struct kvc_paged){
		.k = piece_at(seq, &shape, KV_PART_K_CODES, first),
		.v = piece_at(seq, &shape, KV_PART_V_CODES, first),
		.k_scale = piece_at(seq, &shape, KV_PART_K_SCALE, first),
		.k_zero = piece_at(seq, &shape, KV_PART_K_ZERO, first),
		.v_scale = piece_at(seq, &shape, KV_PART_V_SCALE, first),
		.v_zero = piece_at(seq, &shape, KV_PART_V_ZERO, first),
		.n_blocks = map->n_blocks,
	};
	return 0;
}

/* Index behind the run of blocks that begins at `first`. */
static uint64_t run_end(const struct seq_group *g, uint64_t first)
{
	uint64_t i = first + 1;

	while (i < g->end_block && g->mirror[i].arena == g->mirror[first].arena &&
	       g->mirror[i].block == g->mirror[i - 1].block + 1)
		i++;
	return i;
}

static void fill_run(const struct kvc_seq *seq, const struct shape *shape, uint64_t first,
		     uint64_t end, struct kvc_run *run)
{
	uint32_t block_tokens = seq->layout->fields->block_tokens;
	struct kvc_block block = seq->groups[shape->group].mirror[first];
	uint64_t end_token = end * block_tokens;

	if (end_token > n_base_slots(seq, shape))
		end_token = n_base_slots(seq, shape);
	*run = (struct kvc_run){
		.k = piece_at(seq, shape, KV_PART_K_CODES, block),
		.v = piece_at(seq, shape, KV_PART_V_CODES, block),
		.k_scale = piece_at(seq, shape, KV_PART_K_SCALE, block),
		.k_zero = piece_at(seq, shape, KV_PART_K_ZERO, block),
		.v_scale = piece_at(seq, shape, KV_PART_V_SCALE, block),
		.v_zero = piece_at(seq, shape, KV_PART_V_ZERO, block),
		.first_token = first * block_tokens,
		.n_tokens = end_token - first * block_tokens,
		.k_row_bytes = shape->k_row_bytes,
		.v_row_bytes = shape->v_row_bytes,
	};
}

int64_t kvc_view_runs(kvc_seq *seq, uint32_t layer, struct kvc_run *runs, size_t max_runs)
{
	const struct seq_group *g;
	struct shape shape;
	int64_t n = 0;

	if (check_view(seq, layer))
		return -1;
	shape = shape_of(seq, layer);
	g = &seq->groups[shape.group];
	for (uint64_t first = 0; first < g->end_block; n++) {
		uint64_t end = run_end(g, first);

		if ((uint64_t)n < max_runs)
			fill_run(seq, &shape, first, end, &runs[n]);
		first = end;
	}
	return n;
}

int kvc_view_run(kvc_seq *seq, uint32_t layer, struct kvc_run *run)
{
	int64_t n = kvc_view_runs(seq, layer, run, 1);

	if (n < 0)
		return -1;
	if (n == 0)
		*run = (struct kvc_run){.k = NULL};
	if (n > 1)
		return kvc_fail(KVC_ESPLIT,
				"layer %u lies in %lld runs, the first of %llu tokens: blocks are "
				"shared, copied or were reserved apart; use kvc_view_runs",
				layer, (long long)n, (unsigned long long)run->n_tokens);
	return 0;
}

int kvc_batch_view(kvc_batch *batch, uint32_t layer, struct kvc_batch_tensor *tensor)
{
	struct kvc_seq *first = batch->seqs[0];
	const struct kv_layout *layout = first->layout->fields;
	struct shape shape;
	struct kvc_block block;

	if (check_view(first, layer))
		return -1;
	for (uint32_t i = 0; i < batch->n_rows; i++)
		if (batch->seqs[i]->split_reason)
			return kvc_fail(KVC_ESPLIT, "row %u is no longer one run: %s", i,
					batch->seqs[i]->split_reason);
	shape = shape_of(first, layer);
	block = first->groups[shape.group].batch_first;
	*tensor = (struct kvc_batch_tensor){
		.k = piece_at(first, &shape, KV_PART_K_CODES, block),
		.v = piece_at(first, &shape, KV_PART_V_CODES, block),
		.n_rows = batch->n_rows,
		.n_query_groups = shape.n_query_groups,
		.k_width = shape.k_width,
		.v_width = shape.v_width,
		.max_tokens = batch->max_tokens,
		.k_seq_stride_bytes = batch->n_row_blocks[shape.group] * layout->block_tokens *
				      shape.k_row_bytes,
		.v_seq_stride_bytes = batch->n_row_blocks[shape.group] * layout->block_tokens *
				      shape.v_row_bytes,
		.k_row_bytes = shape.k_row_bytes,
		.v_row_bytes = shape.v_row_bytes,
	};
	return 0;
}
