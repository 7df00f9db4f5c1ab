/*
 * Writing the tokens of the open update: kvc_write*, kvc_write_span, kvc_write_planes. The hot
 * path: no system call, no allocation, no message.
 *
 * A token's vectors go to one of three places. New slots of blocks: stored there at once, nobody
 * reads behind the committed length. Rows of a replay journal: in the compute dtype. Slots of a
 * ring that hold something (undo): stored in the row, and put into the slot by the commit.
 */
#include <string.h>

#include "client/codecs.h"
#include "client/error.h"
#include "client/journal.h"
#include "client/slots.h"
#include "client/stream.h"

static int check_write(const struct kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_tokens)
{
	if (session_check(seq->writer->session))
		return -1;
	if (!seq->is_open)
		return kvc_fail(KVC_EINVAL, "no update is open: kvc_append_begin comes first");
	if (slots_check_layer(seq->layout->fields, layer))
		return -1;
	if (first > seq->open_tokens || n_tokens > seq->open_tokens - first)
		return kvc_fail(KVC_ERANGE, "tokens %llu+%llu of an update of %llu",
				(unsigned long long)first, (unsigned long long)n_tokens,
				(unsigned long long)seq->open_tokens);
	return 0;
}

/* Where the rows of K and V of a layer come from; v NULL: it has none. */
struct source {
	const char *k, *v;
	size_t k_stride_bytes, v_stride_bytes;
};

static struct source source_at(struct source from, uint64_t token)
{
	from.k += token * from.k_stride_bytes;
	if (from.v)
		from.v += token * from.v_stride_bytes;
	return from;
}

static int fail_value(uint32_t layer, bool is_value, uint64_t token, uint64_t head)
{
	return codecs_refuse(is_value, layer, "token (of the update)", token, head,
			     "abort the update");
}

/* ---- new slots ---------------------------------------------------------------------------- */

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

/* Raw K and V in one walk over the blocks: this is the hottest loop of all. */
static void copy_tokens(const struct kvc_seq *seq, uint32_t layer, uint64_t slot, uint64_t n_tokens,
			struct source from)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map = &layout->layer_maps[layer];
	const struct kv_region *k = &layout->regions[map->first_region];
	const struct kv_region *v = k + 1; /* raw: codes and nothing else */
	const uint32_t in_group = map->first_region - layout->groups[map->group].first_region;

	for (uint64_t end = slot + n_tokens, n; slot < end; slot += n, from = source_at(from, n)) {
		uint64_t index = slot / layout->block_tokens;
		uint64_t in_block = slot - index * layout->block_tokens;
		struct kvc_block block = seq->groups[map->group].mirror[index];
		const struct arena_map *arena = session_arena_mapped(seq->writer->session,
								     block.arena);
		uint64_t row = (uint64_t)block.block * layout->block_tokens + in_block;

		n = layout->block_tokens - in_block;
		if (n > end - slot)
			n = end - slot;
		copy_rows(arena->base + arena->region_off[in_group] + row * k->row_bytes, from.k,
			  k->row_bytes, from.k_stride_bytes, n);
		if (from.v)
			copy_rows(arena->base + arena->region_off[in_group + 1] +
					  row * v->row_bytes,
				  from.v, v->row_bytes, from.v_stride_bytes, n);
	}
}

/* K or V of a layer: how it is stored, and where the tokens come from. */
struct vectors {
	const struct kv_codec *codec;
	uint32_t n_heads;
	const char *from;
	size_t stride_bytes;
};

static struct vectors vectors_of(const struct kvc_seq *seq, uint32_t layer, bool is_value,
				 struct source from)
{
	return (struct vectors){
		.codec = &seq->layout->codecs[2 * layer + is_value],
		.n_heads = kv_layout_heads(seq->layout->fields, layer),
		.from = is_value ? from.v : from.k,
		.stride_bytes = is_value ? from.v_stride_bytes : from.k_stride_bytes,
	};
}

/* Quantises tokens whose slots lie side by side; returns how many vectors, less if one cannot be
 * stored. */
static uint64_t quantise_tokens(const struct vectors *v, uint64_t n_tokens,
				const struct kv_codec_at *to)
{
	size_t vector_bytes = (size_t)v->codec->width * v->codec->element_bytes;
	uint64_t done = 0;

	if (v->stride_bytes == vector_bytes * v->n_heads)
		return kv_quantise(v->codec, n_tokens * v->n_heads, v->from, vector_bytes, to);
	for (uint64_t t = 0; t < n_tokens; t++) {
		struct kv_codec_at at = kv_codec_at(to, t * v->n_heads);
		uint64_t n = kv_quantise(v->codec, v->n_heads, v->from + t * v->stride_bytes,
					 vector_bytes, &at);

		done += n;
		if (n < v->n_heads)
			break;
	}
	return done;
}

static int store_vectors(const struct kvc_seq *seq, uint32_t layer, bool is_value, uint64_t first,
			 uint64_t slot, uint64_t n_tokens, struct source from)
{
	struct vectors v = vectors_of(seq, layer, is_value, from);

	for (uint64_t end = slot + n_tokens, n, done; slot < end; slot += n, first += n) {
		struct kv_codec_at to = slot_vectors(seq, layer, is_value, slot);

		n = slots_in_block(seq, slot, end);
		done = quantise_tokens(&v, n, &to);
		if (done < n * v.n_heads)
			return fail_value(layer, is_value, first + done / v.n_heads,
					  done % v.n_heads);
		v.from += n * v.stride_bytes;
	}
	return 0;
}

/* Tokens [first, first + n_tokens) of the update go to new slots. */
static int store_tokens(const struct kvc_seq *seq, uint32_t layer, uint64_t first,
			uint64_t n_tokens, struct source from)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint64_t slot = seq->head.length_tokens + first;

	if (!seq->layout->codecs ||
	    (layout->k_format == KV_FORMAT_RAW && layout->v_format == KV_FORMAT_RAW)) {
		copy_tokens(seq, layer, slot, n_tokens, from);
		return 0;
	}
	if (store_vectors(seq, layer, false, first, slot, n_tokens, from))
		return -1;
	return from.v ? store_vectors(seq, layer, true, first, slot, n_tokens, from) : 0;
}

/* ---- rows --------------------------------------------------------------------------------- */

static void head_rows(const struct kvc_seq *seq, uint64_t row, uint32_t layer, uint64_t token)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint64_t slot = journal_token_slot(seq, layout->layer_maps[layer].group, token);
	uint64_t end = row + layout->layers[layer].n_query_groups;
	uint32_t head = 0;

	for (struct journal_rows rows; row < end; row += rows.n) {
		rows = journal_rows(seq, row, end);
		for (uint64_t i = 0; i < rows.n; i++)
			rows.headers[i] = (struct kv_row){
				.slot = (uint32_t)slot,
				.token = (uint32_t)token,
				.layer = (uint16_t)layer,
				.head = (uint16_t)head++,
				.kind = KV_ROW_VECTOR,
			};
	}
}

static int row_token(const struct kvc_seq *seq, uint32_t layer, uint64_t token, struct source from)
{
	uint32_t n_heads = seq->layout->fields->layers[layer].n_query_groups;
	uint64_t row = journal_token_row(seq, layer, token), done;
	bool is_value;

	done = journal_store(seq, layer, row, n_heads, from.k, from.v, &is_value);
	if (done < n_heads)
		return fail_value(layer, is_value, token, done);
	head_rows(seq, row, layer, token);
	return 0;
}

/* ---- all tokens of a call ----------------------------------------------------------------- */

/* Tokens [first, end) that go to new slots; behind them those that go to rows. Past the bound of
 * a scatter update nothing is taken: kvc_scatter gives the slots. */
static int write_tokens(struct kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_tokens,
			struct source from)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint32_t group = layout->layer_maps[layer].group;
	uint64_t bound = layout->groups[group].bound_slots, length = seq->head.length_tokens;
	uint64_t room = bound ? (bound > length ? bound - length : 0) : UINT64_MAX;
	uint64_t end = first + n_tokens;
	uint64_t slots_end = end < room ? end : room; /* tokens below are new slots */

	if (seq_mode(seq) == KV_JOURNAL_REPLAY)
		slots_end = 0;
	if (slots_end > first) {
		if (store_tokens(seq, layer, first, slots_end - first, from))
			return -1;
		from = source_at(from, slots_end - first);
		first = slots_end;
	}
	for (; first < end; first++, from = source_at(from, 1)) {
		if (!journal_has_rows(seq, group, first))
			return kvc_fail(KVC_EINVAL,
					"layer %u is full: in a scatter update token %llu gets its "
					"slot from kvc_scatter",
					layer, (unsigned long long)first);
		if (row_token(seq, layer, first, from))
			return -1;
	}
	return 0;
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
	return write_tokens(seq, layer, first, n_tokens,
			    (struct source){k, v, k_stride_bytes, v_stride_bytes});
}

int kvc_write(kvc_seq *seq, uint32_t layer, const void *k, const void *v)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer *l;
	size_t element;

	if (check_write(seq, layer, 0, 0))
		return -1;
	if (!k || has_value(layout, layer) != (v != NULL))
		return fail_source(layout, layer);
	if (layout->n_layers == 0)
		return write_tokens(seq, layer, 0, seq->open_tokens,
				    (struct source){k, v, layout->opaque_bytes, 0});
	l = &layout->layers[layer];
	element = kv_dtype_bytes(layout->dtype) * (size_t)l->n_query_groups;
	return write_tokens(seq, layer, 0, seq->open_tokens,
			    (struct source){k, v, element * l->k_width, element * l->v_width});
}

/* ---- in place ----------------------------------------------------------------------------- */

/* The first n tokens of the open update have slots of their own. */
static bool is_below_bound(const struct kvc_seq *seq, uint32_t group, uint64_t n)
{
	uint64_t end = seq->head.length_tokens + n;

	return kv_layout_slots(seq->layout->fields, group, end) == end;
}

static int check_span(const struct kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_tokens)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint32_t group = layout->layer_maps[layer].group;

	if (layout->n_layers &&
	    (layout->k_format != KV_FORMAT_RAW || layout->v_format != KV_FORMAT_RAW))
		return kvc_fail(KVC_EUNSUPPORTED,
				"formats %s and %s are not written in place; use "
				"kvc_write",
				kv_format_name(layout->k_format), kv_format_name(layout->v_format));
	if (seq_mode(seq) != KV_JOURNAL_NONE && n_tokens &&
	    journal_has_rows(seq, group, first + n_tokens - 1))
		return kvc_fail(KVC_EUNSUPPORTED,
				"tokens that go to the journal are not written in place; use "
				"kvc_write");
	if (n_tokens && seq->open_flags & KVC_UPDATE_SCATTER &&
	    !is_below_bound(seq, group, first + n_tokens))
		return kvc_fail(KVC_EUNSUPPORTED,
				"layer %u is full: in a scatter update kvc_scatter gives the slots",
				layer);
	return 0;
}

int64_t kvc_write_span(kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_tokens, void **k,
		       void **v)
{
	uint64_t slot = seq->head.length_tokens + first;
	size_t vector_bytes;

	if (check_write(seq, layer, first, n_tokens) || check_span(seq, layer, first, n_tokens))
		return -1;
	*k = *v = NULL;
	if (n_tokens == 0)
		return 0;
	*k = slot_part(seq, layer, KV_PART_K_CODES, slot, &vector_bytes);
	*v = slot_part(seq, layer, KV_PART_V_CODES, slot, &vector_bytes);
	return (int64_t)slots_in_block(seq, slot, slot + n_tokens);
}

/* ---- slot planes -------------------------------------------------------------------------- */

/* One token: all heads in its slot, or each head in its row. */
static void write_plane(struct kvc_seq *seq, uint32_t layer, uint32_t number, uint64_t token,
			const char *bytes)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint32_t group = layout->layer_maps[layer].group, off;
	uint32_t part = KV_PART_PLANE + number;
	uint32_t n_heads = layout->layers[layer].n_query_groups;
	uint64_t row, slot = journal_token_slot(seq, group, token);
	size_t vector_bytes;
	char *to;

	if (seq_mode(seq) == KV_JOURNAL_NONE || !journal_has_rows(seq, group, token)) {
		to = slot_part(seq, layer, part, slot, &vector_bytes);
		memcpy(to, bytes, n_heads * vector_bytes);
		return;
	}
	vector_bytes = layout->regions[kv_layout_region(layout, layer, part)].vector_bytes;
	row = journal_token_row(seq, layer, token);
	off = journal_plane_off(seq, layer, number);
	for (uint32_t h = 0; h < n_heads; h++)
		memcpy(journal_payload(seq, row + h) + off, bytes + h * vector_bytes, vector_bytes);
}

int kvc_write_planes(kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_tokens,
		     const void *const *planes)
{
	const struct kv_layout *layout = seq->layout->fields;

	if (check_write(seq, layer, first, n_tokens))
		return -1;
	if (!planes)
		return kvc_fail(KVC_EINVAL, "planes is NULL");
	if (layout->n_slot_planes == 0)
		return kvc_fail(KVC_ENOTFOUND, "the layout has no slot planes");
	if (n_tokens && seq->open_flags & KVC_UPDATE_SCATTER && seq_mode(seq) != KV_JOURNAL_NONE &&
	    !is_below_bound(seq, layout->layer_maps[layer].group, first + n_tokens))
		return kvc_fail(KVC_EINVAL, "layer %u is full: kvc_scatter gives slots and planes",
				layer);
	for (uint32_t p = 0; p < layout->n_slot_planes; p++) {
		uint32_t region = kv_layout_region(layout, layer, KV_PART_PLANE + p);

		for (uint64_t t = 0; planes[p] && t < n_tokens; t++)
			write_plane(seq, layer, p, first + t,
				    (const char *)planes[p] +
					    t * layout->regions[region].row_bytes);
	}
	return 0;
}
