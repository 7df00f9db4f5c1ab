/*
 * Writing the tokens of the open update: kvc_write*, kvc_write_span, kvc_write_planes. The hot
 * path: no system call, no allocation, no message.
 *
 * A token's vectors go to one of three places. New slots of blocks: stored there at once, nobody
 * reads behind the committed length. Rows of a replay journal: in the compute dtype. Slots of a
 * ring that hold something (undo): stored in the row, and put into the slot by the commit.
 */
#include <string.h>

#include "client/compute/codec.h"
#include "client/error.h"
#include "client/journal.h"
#include "client/stream.h"

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
	return kvc_fail(KVC_EVALUE,
			"%s of layer %u, token %llu of the update, head %llu has a NaN or an "
			"infinity, which the storage format cannot hold; abort the update",
			is_value ? "V" : "K", layer, (unsigned long long)token,
			(unsigned long long)head);
}

/* ---- new slots ---------------------------------------------------------------------------- */

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

/* K or V of a layer: regions, codec, and where the tokens come from. */
struct vectors {
	const struct kv_codec *codec;
	uint32_t regions[3]; /* codes, scale, zero point */
	uint32_t n_heads;
	const char *from;
	size_t stride_bytes;
};

static struct vectors vectors_of(const struct kvc_seq *seq, uint32_t layer, bool is_value,
				 struct source from)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map = &layout->layer_maps[layer];
	struct vectors vectors = {
		.codec = seq->layout->codecs ? &seq->layout->codecs[2 * layer + is_value] : NULL,
		.n_heads = layout->n_layers ? layout->layers[layer].n_query_groups : 1,
		.from = is_value ? from.v : from.k,
		.stride_bytes = is_value ? from.v_stride_bytes : from.k_stride_bytes,
	};

	for (uint32_t i = 0; i < 3; i++) {
		int8_t region = map->region[(is_value ? KV_PART_V_CODES : KV_PART_K_CODES) + i];

		vectors.regions[i] = region < 0 ? UINT32_MAX : map->first_region + (uint8_t)region;
	}
	return vectors;
}

static char *stored_at(const struct kvc_seq *seq, const struct part *part, uint32_t region)
{
	if (region == UINT32_MAX)
		return NULL;
	return seq_piece(seq, region, part->block) +
	       (uint64_t)part->in_block * seq->layout->fields->regions[region].row_bytes;
}

/* Stores the tokens of one part; returns how many vectors, less if one cannot be stored. */
static uint64_t store_part(const struct kvc_seq *seq, const struct vectors *v,
			   const struct part *part)
{
	const struct kv_format_bytes *bytes = &v->codec->bytes;
	size_t vector_bytes = (size_t)v->codec->width * v->codec->element_bytes;
	struct kv_codec_at to = {
		.codes = stored_at(seq, part, v->regions[0]),
		.scale = stored_at(seq, part, v->regions[1]),
		.zero = stored_at(seq, part, v->regions[2]),
		.codes_stride = bytes->codes,
		.scale_stride = bytes->scale,
		.zero_stride = bytes->zero,
	};
	uint64_t done = 0;

	if (v->stride_bytes == vector_bytes * v->n_heads)
		return kv_quantise(v->codec, part->n_tokens * v->n_heads, v->from, vector_bytes,
				   &to);
	for (uint64_t t = 0; t < part->n_tokens; t++) {
		struct kv_codec_at at = kv_codec_at(&to, t * v->n_heads);
		uint64_t n = kv_quantise(v->codec, v->n_heads, v->from + t * v->stride_bytes,
					 vector_bytes, &at);

		done += n;
		if (n < v->n_heads)
			break;
	}
	return done;
}

static int store_tokens(const struct kvc_seq *seq, uint32_t layer, bool is_value, uint64_t first,
			uint64_t n_tokens, struct source from)
{
	struct vectors v = vectors_of(seq, layer, is_value, from);
	uint32_t group = seq->layout->fields->layer_maps[layer].group;
	uint64_t slot = kv_layout_slots(seq->layout->fields, group,
					seq->head.length_tokens + first);

	while (n_tokens) {
		struct part part = part_at(seq, group, slot, n_tokens);

		if (!v.codec || v.codec->format == KV_FORMAT_RAW) {
			copy_rows(stored_at(seq, &part, v.regions[0]), v.from,
				  seq->layout->fields->regions[v.regions[0]].row_bytes,
				  v.stride_bytes, part.n_tokens);
		} else {
			uint64_t n = store_part(seq, &v, &part);

			if (n < part.n_tokens * v.n_heads)
				return fail_value(layer, is_value, first + n / v.n_heads,
						  n % v.n_heads);
		}
		v.from += part.n_tokens * v.stride_bytes;
		slot += part.n_tokens;
		first += part.n_tokens;
		n_tokens -= part.n_tokens;
	}
	return 0;
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
		if (store_tokens(seq, layer, false, first, slots_end - first, from) ||
		    (from.v && store_tokens(seq, layer, true, first, slots_end - first, from)))
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
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map;
	struct part part;
	uint64_t slot;

	if (check_write(seq, layer, first, n_tokens) || check_span(seq, layer, first, n_tokens))
		return -1;
	*k = *v = NULL;
	if (n_tokens == 0)
		return 0;
	map = &layout->layer_maps[layer];
	slot = seq->head.length_tokens + first;
	part = part_at(seq, map->group, slot, n_tokens);
	*k = stored_at(seq, &part, map->first_region);
	if (has_value(layout, layer))
		*v = stored_at(seq, &part,
			       map->first_region + (uint8_t)map->region[KV_PART_V_CODES]);
	return (int64_t)part.n_tokens;
}

/* ---- slot planes -------------------------------------------------------------------------- */

/* Where the bytes of a slot plane of a token lie: all heads in a block, one head in a row. */
static char *plane_in_row(const struct kvc_seq *seq, uint32_t layer, uint64_t row, uint32_t number)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map = &layout->layer_maps[layer];
	struct kv_row_parts parts = kv_row_parts(layout, layer);
	char *at = journal_payload(seq, row);

	if (seq_mode(seq) == KV_JOURNAL_REPLAY)
		at += parts.k_bytes + parts.v_bytes;
	else
		at += journal_shape(seq)->new_off + map->stored_bytes - parts.planes_bytes;
	for (uint32_t p = 0; p < number; p++)
		at += layout->regions[map->first_region + (uint8_t)map->region[KV_PART_PLANE + p]]
			      .vector_bytes;
	return at;
}

static void write_plane(struct kvc_seq *seq, uint32_t layer, uint32_t number, uint64_t token,
			const char *bytes)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map = &layout->layer_maps[layer];
	uint32_t region = map->first_region + (uint8_t)map->region[KV_PART_PLANE + number];
	const struct kv_region *r = &layout->regions[region];
	uint64_t slot = journal_token_slot(seq, map->group, token), row;

	if (seq_mode(seq) == KV_JOURNAL_NONE || !journal_has_rows(seq, map->group, token)) {
		memcpy(seq_piece(seq, region, seq_block_of(seq, map->group, slot)) +
			       slot % layout->block_tokens * r->row_bytes,
		       bytes, r->row_bytes);
		return;
	}
	row = journal_token_row(seq, layer, token);
	for (uint32_t h = 0; h < layout->layers[layer].n_query_groups; h++)
		memcpy(plane_in_row(seq, layer, row + h, number), bytes + h * r->vector_bytes,
		       r->vector_bytes);
}

int kvc_write_planes(kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_tokens,
		     const void *const *planes)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map;

	if (check_write(seq, layer, first, n_tokens))
		return -1;
	if (!planes)
		return kvc_fail(KVC_EINVAL, "planes is NULL");
	map = &layout->layer_maps[layer];
	if (map->region[KV_PART_PLANE] < 0)
		return kvc_fail(KVC_ENOTFOUND, "the layout has no slot planes");
	if (n_tokens && seq->open_flags & KVC_UPDATE_SCATTER && seq_mode(seq) != KV_JOURNAL_NONE &&
	    journal_token_slot(seq, map->group, first + n_tokens - 1) !=
		    seq->head.length_tokens + first + n_tokens - 1)
		return kvc_fail(KVC_EINVAL, "layer %u is full: kvc_scatter gives slots and planes",
				layer);
	for (uint32_t p = 0; p < KV_PLANES_MAX && map->region[KV_PART_PLANE + p] >= 0; p++) {
		uint32_t region = map->first_region + (uint8_t)map->region[KV_PART_PLANE + p];
		uint32_t row_bytes = layout->regions[region].row_bytes;

		for (uint64_t t = 0; planes[p] && t < n_tokens; t++)
			write_plane(seq, layer, p, first + t,
				    (const char *)planes[p] + t * row_bytes);
	}
	return 0;
}
