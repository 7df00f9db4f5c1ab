/*
 * Appending: kvc_append_begin, kvc_write*, kvc_commit, kvc_abort. The hot path: no system call,
 * no allocation, no message.
 *
 * Between begin and commit the word is idle: the new slots lie behind the committed length, in
 * blocks that nobody else reads there. Mirror entries [pending_first, pending_end) show the blocks
 * of the open update; copied_from remembers the block behind a copied one, for an abort.
 */
#include <string.h>

#include "client/error.h"
#include "client/seq.h"
#include "client/stream.h"

static struct arena_map *arena_of(const struct kvc_seq *seq, struct kvc_block block)
{
	return session_arena_mapped(seq->writer->session, block.arena);
}

static char *piece_at(const struct kvc_seq *seq, uint32_t region, struct kvc_block block)
{
	const struct arena_map *arena = arena_of(seq, block);
	const struct kv_layout *layout = seq->layout->fields;
	uint32_t in_group = region - layout->groups[arena->group].first_region;

	return arena->base + arena->region_off[in_group] +
	       (uint64_t)block.block * layout->regions[region].piece_bytes;
}

/* ---- begin -------------------------------------------------------------------------------- */

/* What begin needs of a group's spares: a block to copy the partly filled one into, new ones. */
struct want {
	bool copy;
	uint64_t first_new, end;
};

static struct want group_want(const struct kvc_seq *seq, uint32_t group, uint64_t n_tokens)
{
	const struct seq_group *g = &seq->groups[group];
	uint64_t length = seq->head.length_tokens;
	uint32_t freeze, block_tokens = seq->layout->fields->block_tokens;
	struct want want = {
		.first_new = g->n_blocks,
		.end = kv_layout_blocks(seq->layout->fields, length + n_tokens),
	};

	if (length % block_tokens == 0)
		return want;
	freeze = seq_meta_freeze(g->meta[g->n_blocks - 1]);
	if (freeze == 0)
		want.copy = true;
	else if (freeze != seq->open_freeze)
		want.copy = atomic_load_explicit(&seq->shm->frozen_slots[group],
						 memory_order_acquire) > length;
	return want;
}

static int check_append(struct kvc_seq *seq, uint64_t n_tokens)
{
	uint64_t length = seq->head.length_tokens;

	if (session_check(seq->writer->session))
		return -1;
	if (seq->head.state != KV_HEAD_LIVE)
		return kvc_fail(KVC_EREADONLY, "a snapshot cannot be appended to; fork it");
	if (seq->is_open)
		return kvc_fail(KVC_EBUSY, "an update is open; commit or abort it");
	if (n_tokens == 0)
		return kvc_fail(KVC_EINVAL, "n_tokens is 0");
	if (n_tokens > seq->max_tokens - length)
		return kvc_fail(
			KVC_ERANGE,
			"%llu tokens and %llu more are above the sequence's max_tokens %llu",
			(unsigned long long)length, (unsigned long long)n_tokens,
			(unsigned long long)seq->max_tokens);
	if (n_tokens > seq->layout->fields->max_slots - length)
		return kvc_fail(KVC_EBOUND,
				"%llu tokens and %llu more are above a layer's bound_slots %llu",
				(unsigned long long)length, (unsigned long long)n_tokens,
				(unsigned long long)seq->layout->fields->max_slots);
	return 0;
}

/* Copies the filled rows of the block at `index` into a spare. */
static void copy_block(struct kvc_seq *seq, uint32_t group, uint64_t index)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_group *lg = &layout->groups[group];
	struct seq_group *g = &seq->groups[group];
	uint32_t filled = (uint32_t)(seq->head.length_tokens % layout->block_tokens);
	struct kvc_block from = g->mirror[index], to = spare_take(seq, group);
	_Atomic uint64_t *counter = &seq->writer->shm->n_copied_bytes;
	uint64_t n_bytes = 0;

	for (uint32_t r = lg->first_region; r < lg->first_region + lg->n_regions; r++) {
		size_t bytes = (size_t)filled * layout->regions[r].row_bytes;

		memcpy(piece_at(seq, r, to), piece_at(seq, r, from), bytes);
		n_bytes += bytes;
	}
	g->copied_from = from;
	g->copied_freeze = seq_meta_freeze(g->meta[index]);
	g->mirror[index] = to;
	atomic_store_explicit(counter,
			      atomic_load_explicit(counter, memory_order_relaxed) + n_bytes,
			      memory_order_relaxed);
}

static void note_split(struct kvc_seq *seq, const struct seq_group *g, uint64_t index)
{
	if (g->mirror[index].arena == g->batch_first.arena &&
	    g->mirror[index].block == g->batch_first.block + index)
		return;
	seq->split_reason = g->copied_from.arena ? "it was written below a snapshot or fork" :
						   "blocks of its run are held by a snapshot";
}

static void begin_group(struct kvc_seq *seq, uint32_t group, const struct want *want)
{
	struct seq_group *g = &seq->groups[group];

	g->copied_from = (struct kvc_block){0, 0};
	g->pending_first = want->first_new;
	g->pending_end = want->end;
	if (want->copy)
		copy_block(seq, group, --g->pending_first);
	for (uint64_t i = want->first_new; i < want->end; i++)
		g->mirror[i] = spare_take(seq, group);
	if (g->batch_first.arena && !seq->split_reason)
		for (uint64_t i = g->pending_first; i < want->end && !seq->split_reason; i++)
			note_split(seq, g, i);
}

int kvc_append_begin(kvc_seq *seq, uint64_t n_tokens)
{
	struct want wants[KV_GROUPS_MAX];

	if (check_append(seq, n_tokens))
		return -1;
	seq->open_freeze = atomic_load_explicit(&seq->shm->freeze_count, memory_order_acquire);
	for (uint32_t g = 0; g < seq->n_groups; g++) {
		uint64_t need;

		wants[g] = group_want(seq, g, n_tokens);
		need = wants[g].end - wants[g].first_new + wants[g].copy;
		if (need > seq->groups[g].spares.n)
			return kvc_fail(
				KVC_ERESERVE,
				"%llu blocks are needed and %u are reserved; call kvc_reserve "
				"and repeat",
				(unsigned long long)need, seq->groups[g].spares.n);
	}
	for (uint32_t g = 0; g < seq->n_groups; g++)
		begin_group(seq, g, &wants[g]);
	seq->is_open = true;
	seq->open_tokens = n_tokens;
	seq->next_open = seq->writer->open;
	seq->writer->open = seq;
	return 0;
}

/* Takes what is open no more out of the list of open updates. */
static void sweep_open(struct kvc_writer *writer)
{
	struct kvc_seq **at = &writer->open;

	while (*at)
		if ((*at)->is_open)
			at = &(*at)->next_open;
		else
			*at = (*at)->next_open;
}

static void end_update(struct kvc_seq *seq)
{
	seq->is_open = false;
	seq->open_tokens = 0;
}

void append_abort(struct kvc_seq *seq)
{
	for (uint32_t i = 0; i < seq->n_groups; i++) {
		struct seq_group *g = &seq->groups[i];

		for (uint64_t b = g->pending_end; b-- > g->pending_first;)
			spare_untake(seq, i, g->mirror[b]);
		if (g->copied_from.arena)
			g->mirror[g->pending_first] = g->copied_from;
		g->copied_from = (struct kvc_block){0, 0};
		g->pending_end = g->pending_first;
	}
	end_update(seq);
	sweep_open(seq->writer);
}

int kvc_abort(kvc_seq *seq)
{
	if (session_check(seq->writer->session))
		return -1;
	if (!seq->is_open)
		return kvc_fail(KVC_EINVAL, "no update is open");
	append_abort(seq);
	return 0;
}

/* ---- write -------------------------------------------------------------------------------- */

static int check_write(const struct kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_tokens)
{
	uint32_t n_layers = seq->layout->fields->n_layers;

	if (session_check(seq->writer->session))
		return -1;
	if (!seq->is_open)
		return kvc_fail(KVC_EINVAL, "no update is open: kvc_append_begin comes first");
	if (layer >= (n_layers ? n_layers : 1))
		return kvc_fail(KVC_ERANGE, "layer %u of %u", layer, n_layers);
	if (first > seq->open_tokens || n_tokens > seq->open_tokens - first)
		return kvc_fail(KVC_ERANGE, "tokens %llu+%llu of an update of %llu",
				(unsigned long long)first, (unsigned long long)n_tokens,
				(unsigned long long)seq->open_tokens);
	return 0;
}

/* Copies rows that lie `stride` apart into slots that lie side by side. */
static void copy_rows(char *to, const char *from, size_t row_bytes, size_t stride, uint64_t n)
{
	if (stride == row_bytes) {
		stream_copy(to, from, row_bytes * n);
		return;
	}
	for (uint64_t i = 0; i < n; i++)
		stream_copy(to + i * row_bytes, from + i * stride, row_bytes);
}

/* Tokens of an update that lie in one block. */
struct part {
	struct kvc_block block;
	uint32_t in_block; /* slot of the first */
	uint64_t n_tokens;
};

static struct part part_at(const struct kvc_seq *seq, uint32_t group, uint64_t slot,
			   uint64_t n_tokens)
{
	uint32_t block_tokens = seq->layout->fields->block_tokens;
	uint64_t index = slot / block_tokens;
	struct part part = {.block = seq->groups[group].mirror[index]};

	part.in_block = (uint32_t)(slot - index * block_tokens);
	part.n_tokens = block_tokens - part.in_block;
	if (part.n_tokens > n_tokens)
		part.n_tokens = n_tokens;
	return part;
}

/* Where the rows of K and V of a layer come from; v NULL: it has none. */
struct source {
	const char *k, *v;
	size_t k_stride_bytes, v_stride_bytes;
};

/* One walk over the blocks for K and V: this is the hottest loop of all. */
static void write_layer(struct kvc_seq *seq, uint32_t layer, uint64_t slot, uint64_t n_tokens,
			struct source from)
{
	const struct kv_layout *layout = seq->layout->fields;
	const uint32_t group = layout->layer_group[layer], region = layout->layer_region[layer];
	const struct kv_region *k = &layout->regions[region], *v = k + 1;
	const uint32_t in_group = region - layout->groups[group].first_region;

	while (n_tokens) {
		struct part part = part_at(seq, group, slot, n_tokens);
		const struct arena_map *arena = arena_of(seq, part.block);
		uint64_t row = (uint64_t)part.block.block * layout->block_tokens + part.in_block;

		copy_rows(arena->base + arena->region_off[in_group] + row * k->row_bytes, from.k,
			  k->row_bytes, from.k_stride_bytes, part.n_tokens);
		from.k += part.n_tokens * from.k_stride_bytes;
		if (from.v) {
			copy_rows(arena->base + arena->region_off[in_group + 1] +
					  row * v->row_bytes,
				  from.v, v->row_bytes, from.v_stride_bytes, part.n_tokens);
			from.v += part.n_tokens * from.v_stride_bytes;
		}
		slot += part.n_tokens;
		n_tokens -= part.n_tokens;
	}
}

static bool has_value(const struct kv_layout *layout, uint32_t layer)
{
	return layout->n_layers && layout->layers[layer].v_width;
}

static int fail_source(const struct kv_layout *layout, uint32_t layer)
{
	bool both = has_value(layout, layer);

	return kvc_fail(KVC_EINVAL, "layer %u has %s: pass %s", layer, both ? "K and V" : "K only",
			both ? "both" : "v = NULL");
}

int kvc_write_rows(kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_tokens, const void *k,
		   size_t k_stride_bytes, const void *v, size_t v_stride_bytes)
{
	const struct kv_layout *layout = seq->layout->fields;

	if (check_write(seq, layer, first, n_tokens))
		return -1;
	if (!k || has_value(layout, layer) != (v != NULL))
		return fail_source(layout, layer);
	write_layer(seq, layer, seq->head.length_tokens + first, n_tokens,
		    (struct source){k, v, k_stride_bytes, v_stride_bytes});
	return 0;
}

int kvc_write(kvc_seq *seq, uint32_t layer, const void *k, const void *v)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_region *region;

	if (check_write(seq, layer, 0, 0))
		return -1;
	if (!k || has_value(layout, layer) != (v != NULL))
		return fail_source(layout, layer);
	region = &layout->regions[layout->layer_region[layer]];
	write_layer(seq, layer, seq->head.length_tokens, seq->open_tokens,
		    (struct source){k, v, region[0].row_bytes, v ? region[1].row_bytes : 0});
	return 0;
}

int64_t kvc_write_span(kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_tokens, void **k,
		       void **v)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint64_t slot, in_block, n;
	struct kvc_block block;
	uint32_t region;

	if (check_write(seq, layer, first, n_tokens))
		return -1;
	slot = seq->head.length_tokens + first;
	in_block = slot % layout->block_tokens;
	region = layout->layer_region[layer];
	block = seq->groups[layout->layer_group[layer]].mirror[slot / layout->block_tokens];
	*k = piece_at(seq, region, block) + in_block * layout->regions[region].row_bytes;
	*v = NULL;
	if (layout->n_layers && layout->layers[layer].v_width)
		*v = piece_at(seq, region + 1, block) +
		     in_block * layout->regions[region + 1].row_bytes;
	n = layout->block_tokens - in_block;
	return (int64_t)(n < n_tokens ? n : n_tokens);
}

/* ---- commit ------------------------------------------------------------------------------- */

static void fill(struct kvc_seq *seq)
{
	struct kv_head head = seq->head;

	for (uint32_t i = 0; i < seq->n_groups; i++) {
		const struct seq_group *g = &seq->groups[i];

		for (uint64_t b = g->pending_first; b < g->pending_end; b++)
			update_entry(seq, i, b, seq->open_freeze, g->mirror[b]);
	}
	head.length_tokens += seq->open_tokens;
	head.position += seq->open_tokens;
	update_head(seq, &head);
}

/* After the swap: books, and the block that was copied leaves the table. */
static void settle_group(struct kvc_seq *seq, uint32_t group)
{
	struct seq_group *g = &seq->groups[group];
	int64_t n_reserved = 0;

	if (g->pending_first < g->pending_end) {
		n_reserved = -(int64_t)(g->pending_end - g->pending_first);
		blocks_ref(seq->writer, g->mirror + g->pending_first, (uint64_t)-n_reserved);
	}
	if (g->copied_from.arena) {
		uint64_t freeze_now = atomic_load_explicit(&seq->shm->freeze_count,
							   memory_order_acquire);

		n_reserved += blocks_leave(seq->writer, &g->copied_from, &g->copied_freeze, 1,
					   freeze_now, &g->spares, &g->release);
		g->copied_from = (struct kvc_block){0, 0};
	}
	if (n_reserved)
		writer_count_reserved(
			seq->writer,
			n_reserved * (int64_t)seq->layout->fields->groups[group].block_bytes);
	g->n_blocks = g->pending_end;
	g->pending_first = g->pending_end;
}

static void settle(struct kvc_seq *seq)
{
	seq->head.length_tokens += seq->open_tokens;
	seq->head.position += seq->open_tokens;
	for (uint32_t g = 0; g < seq->n_groups; g++)
		settle_group(seq, g);
	end_update(seq);
}

static void count_tokens(struct kvc_writer *writer, uint64_t n_tokens)
{
	_Atomic uint64_t *counter = &writer->shm->n_appended_tokens;

	atomic_store_explicit(counter,
			      atomic_load_explicit(counter, memory_order_relaxed) + n_tokens,
			      memory_order_relaxed);
}

static int check_commit(const struct kvc_writer *writer, kvc_seq *const *seqs, size_t n_seqs)
{
	if (session_check(writer->session))
		return -1;
	for (size_t i = 0; i < n_seqs; i++)
		if (seqs[i]->writer != writer || !seqs[i]->is_open)
			return kvc_fail(KVC_EINVAL, "sequence %zu %s", i,
					seqs[i]->writer != writer ? "belongs to another writer" :
								    "has no open update");
	return n_seqs > 1 ? seqs_distinct(seqs, n_seqs) : 0;
}

static int commit_list(struct kvc_writer *writer, kvc_seq *const *seqs, size_t n_seqs)
{
	uint64_t n_tokens = 0;

	if (update_open(writer))
		return -1;
	for (size_t i = 0; i < n_seqs; i++) {
		n_tokens += seqs[i]->open_tokens;
		fill(seqs[i]);
	}
	update_publish(writer);
	count_tokens(writer, n_tokens);
	for (size_t i = 0; i < n_seqs; i++)
		settle(seqs[i]);
	sweep_open(writer);
	return 0;
}

static int commit_all(struct kvc_writer *writer)
{
	uint64_t n_tokens = 0;

	if (update_open(writer))
		return -1;
	for (struct kvc_seq *seq = writer->open; seq; seq = seq->next_open) {
		n_tokens += seq->open_tokens;
		fill(seq);
	}
	update_publish(writer);
	count_tokens(writer, n_tokens);
	for (struct kvc_seq *seq = writer->open; seq; seq = seq->next_open)
		settle(seq);
	writer->open = NULL;
	return 0;
}

int kvc_commit(kvc_writer *writer, kvc_seq *const *seqs, size_t n_seqs)
{
	if (check_commit(writer, seqs, n_seqs))
		return -1;
	stream_fence(); /* what was written before the swap is there after it */
	if (!seqs)
		return writer->open ? commit_all(writer) : 0;
	return n_seqs ? commit_list(writer, seqs, n_seqs) : 0;
}
