/*
 * kvc_convert: the same tokens in other formats, or in blocks of another size. One update of the
 * new sequence, which nobody knows before it is whole: block by block, from block memory straight
 * to block memory. Vectors of one format are copied as they are stored, raw ones are quantised
 * where they lie, others go through a tile of a few vectors; rows of a replay journal come last.
 * So no more than the new sequence itself is ever needed.
 *
 * Failure: the new sequence is dropped, the old one was only read. A name is given last: whoever
 * finds it finds the whole sequence. Writer's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "client/codecs.h"
#include "client/error.h"
#include "client/handles.h"
#include "client/journal.h"
#include "client/reserve.h"
#include "client/slots.h"
#include "client/stream.h"

#define TILE_BYTES ((size_t)64 << 10) /* or one vector, if that is larger */

struct conversion {
	struct kvc_seq *from, *to;
	char *tile;
	size_t tile_bytes;
};

/* ---- checks ------------------------------------------------------------------------------- */

static int check_layouts(const struct kv_layout *from, const struct kv_layout *to)
{
	struct kv_layout alike = *to;

	alike.k_format = from->k_format;
	alike.v_format = from->v_format;
	alike.block_tokens = from->block_tokens;
	if (kv_layout_differs(from, &alike, kvc_err()) == 0)
		return 0;
	errbuf_wrap(kvc_err(), "only formats and block_tokens can be converted");
	return -1;
}

/* A snapshot's table is no longer than it is: what goes on needs more. */
static uint64_t default_max_tokens(const struct kvc_seq *from)
{
	if (seq_is_live(from) || from->max_tokens > KV_TOKENS_DEFAULT)
		return from->max_tokens;
	return KV_TOKENS_DEFAULT;
}

static int check_options(const struct kvc_seq *from, const struct kvc_seq_options *given,
			 struct kvc_seq_options *options)
{
	char *name;

	if (handles_seq_options(given, options) || handles_name(options->name, &name))
		return -1;
	options->size = sizeof(*options);
	if (options->max_tokens == 0)
		options->max_tokens = default_max_tokens(from);
	if (options->max_tokens < from->head.length_tokens)
		return kvc_fail(KVC_ERANGE, "max_tokens is %llu, the sequence has %llu tokens",
				(unsigned long long)options->max_tokens,
				(unsigned long long)from->head.length_tokens);
	return 0;
}

/* ---- blocks ------------------------------------------------------------------------------- */

static int fail_value(uint32_t layer, bool is_value, uint64_t slot, uint64_t head)
{
	return codecs_refuse(is_value, layer, "slot", slot, head,
			     "overwrite the slot, or convert to a format that can (raw)");
}

static void copy_part(const struct conversion *c, uint32_t layer, uint32_t part, uint64_t slot,
		      uint64_t n_slots)
{
	uint32_t n_heads = kv_layout_heads(c->from->layout->fields, layer);
	size_t vector_bytes;
	const char *from = slot_part(c->from, layer, part, slot, &vector_bytes);

	if (from)
		stream_copy(slot_part(c->to, layer, part, slot, &vector_bytes), from,
			    n_slots * n_heads * vector_bytes);
}

/* n vectors that are stored in one format, into another one; returns how many could be stored. */
static uint64_t store(const struct conversion *c, const struct kv_codec *in,
		      const struct kv_codec *out, uint64_t n, const struct kv_codec_at *from,
		      const struct kv_codec_at *to)
{
	size_t vector_bytes = (size_t)in->width * in->element_bytes;
	uint64_t step = c->tile_bytes / vector_bytes, done = 0, m;

	if (in->format == KV_FORMAT_RAW)
		return kv_quantise(out, n, from->codes, vector_bytes, to);
	for (; done < n; done += m) {
		struct kv_codec_at at = kv_codec_at(from, done), target = kv_codec_at(to, done);

		m = n - done < step ? n - done : step;
		kv_dequantise(in, m, &at, c->tile, vector_bytes);
		if (kv_quantise(out, m, c->tile, vector_bytes, &target) < m)
			break;
	}
	return done;
}

/* K or V of slots that lie in one block on either side. */
static int convert_vectors(const struct conversion *c, uint32_t layer, bool is_value, uint64_t slot,
			   uint64_t n_slots)
{
	const struct kv_codec *codecs = c->from->layout->codecs;
	uint32_t first_part = is_value ? KV_PART_V_CODES : KV_PART_K_CODES;
	const struct kv_codec *in, *out;
	struct kv_codec_at from, to;
	uint64_t n, done;

	in = codecs ? &codecs[2 * layer + is_value] : NULL;
	out = codecs ? &c->to->layout->codecs[2 * layer + is_value] : NULL;
	if (!in || in->format == out->format) {
		for (uint32_t part = 0; part < 3; part++)
			copy_part(c, layer, first_part + part, slot, n_slots);
		return 0;
	}
	if (in->width == 0)
		return 0;
	n = n_slots * kv_layout_heads(c->from->layout->fields, layer);
	from = slot_vectors(c->from, layer, is_value, slot);
	to = slot_vectors(c->to, layer, is_value, slot);
	done = store(c, in, out, n, &from, &to);
	if (done == n)
		return 0;
	n /= n_slots;
	return fail_value(layer, is_value, slot + done / n, done % n);
}

/* Slots of a layer that the blocks of the old sequence hold. */
static int convert_slots(const struct conversion *c, uint32_t layer, uint64_t slot, uint64_t end)
{
	uint32_t n_planes = c->from->layout->fields->n_slot_planes;

	for (uint64_t n; slot < end; slot += n) {
		n = slots_in_block(c->to, slot, slots_in_block(c->from, slot, end) + slot);
		if (convert_vectors(c, layer, false, slot, n) ||
		    convert_vectors(c, layer, true, slot, n))
			return -1;
		for (uint32_t p = 0; p < n_planes; p++)
			copy_part(c, layer, KV_PART_PLANE + p, slot, n);
	}
	return 0;
}

/* ---- rows of a replay journal --------------------------------------------------------------- */

static int store_row_vector(const struct conversion *c, const struct kv_row *row, bool is_value,
			    const char *vector)
{
	const struct kv_codec *codec = &c->to->layout->codecs[2 * row->layer + is_value];
	struct kv_codec_at to = slot_vectors(c->to, row->layer, is_value, row->slot);

	to = kv_codec_at(&to, row->head);
	if (codec->width == 0 ||
	    kv_quantise(codec, 1, vector, (size_t)codec->width * codec->element_bytes, &to) == 1)
		return 0;
	return fail_value(row->layer, is_value, row->slot, row->head);
}

static int convert_row(const struct conversion *c, const struct kv_row *row, uint64_t number)
{
	const struct kv_layout *layout = c->from->layout->fields;
	struct kv_row_parts parts = kv_row_parts(layout, row->layer);
	const char *payload = journal_payload(c->from, number);
	const char *plane = payload + parts.k_bytes + parts.v_bytes;

	if (!(row->flags & KV_ROW_BASE) &&
	    (store_row_vector(c, row, false, payload) ||
	     store_row_vector(c, row, true, payload + parts.k_bytes)))
		return -1;
	for (uint32_t p = 0; p < layout->n_slot_planes; p++) {
		size_t bytes;
		char *to = slot_part(c->to, row->layer, KV_PART_PLANE + p, row->slot, &bytes);

		memcpy(to + row->head * bytes, plane, bytes);
		plane += bytes;
	}
	return 0;
}

/* Those that no later row displaces. */
static int convert_rows(const struct conversion *c)
{
	uint64_t end = c->from->head.journal_end;

	if (seq_mode(c->from) != KV_JOURNAL_REPLAY)
		return 0;
	for (uint64_t number = c->from->head.journal_first; number < end; number++) {
		struct kv_row row;

		if (journal_vector(c->from, number, &row) &&
		    row.slot < kvc_slots(c->from, row.layer) &&
		    journal_is_newest(c->from, &row, number) && convert_row(c, &row, number))
			return -1;
	}
	return 0;
}

/* ---- the update ----------------------------------------------------------------------------- */

/* Was a slot of the old sequence ever overwritten? Then a length does not say what was before. */
static bool is_scattered(const struct kvc_seq *seq)
{
	const struct kv_layout *layout = seq->layout->fields;

	if (seq->head.state & KV_HEAD_SCATTERED || seq->head.length_tokens > layout->max_slots)
		return true;
	for (uint64_t number = seq->head.journal_first; number < seq->head.journal_end; number++) {
		struct kv_row row;

		if (journal_vector(seq, number, &row) &&
		    (seq_mode(seq) == KV_JOURNAL_UNDO || row.prev || row.flags & KV_ROW_BASE ||
		     row.slot < kv_layout_slots(layout, layout->layer_maps[row.layer].group,
						seq->head.base_tokens)))
			return true;
	}
	return false;
}

static int begin(const struct conversion *c)
{
	const struct kv_layout *layout = c->to->layout->fields;
	uint64_t length = c->from->head.length_tokens;
	uint32_t n_blocks[KV_GROUPS_MAX] = {0};

	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		n_blocks[g] = (uint32_t)kv_layout_blocks(layout,
							 kv_layout_slots(layout, g, length));
	if (kv_planes_now(c->from->head.planes))
		n_blocks[layout->states_group] = 1;
	if (reserve_blocks(c->to, n_blocks) || begin_whole(c->to, length))
		return -1;
	c->to->open_scattered = is_scattered(c->from);
	return 0;
}

static int convert_states(const struct conversion *c)
{
	const struct kv_layout *layout = c->from->layout->fields;

	if (kv_planes_now(c->from->head.planes) == 0)
		return 0;
	for (uint32_t i = 0; i < layout->n_planes; i++)
		if (layout->planes[i].scope == KV_PLANE_SEQUENCE &&
		    kvc_plane_set(c->to, layout->planes[i].name,
				  kvc_plane_get(c->from, layout->planes[i].name),
				  layout->planes[i].bytes))
			return -1;
	return 0;
}

static int convert_all(const struct conversion *c,
		       int (*progress)(void *arg, uint64_t n_done, uint64_t n_tokens), void *arg)
{
	const struct kv_layout *layout = c->from->layout->fields;
	uint64_t length = c->from->head.length_tokens, end;

	for (uint64_t first = 0; first < length; first = end) {
		end = first + slots_in_block(c->to, first, length);
		for (uint32_t layer = 0; layer < kv_layout_layers(layout); layer++) {
			uint64_t slots = kv_layout_slots(layout, layout->layer_maps[layer].group,
							 c->from->head.base_tokens);

			if (convert_slots(c, layer, first, end < slots ? end : slots))
				return -1;
		}
		if (end < length && progress && progress(arg, end, length))
			return kvc_fail(KVC_ECANCELLED, "cancelled at token %llu of %llu",
					(unsigned long long)end, (unsigned long long)length);
	}
	if (convert_rows(c) || convert_states(c))
		return -1;
	if (progress && progress(arg, length, length))
		return kvc_fail(KVC_ECANCELLED, "cancelled at the last token");
	return 0;
}

/* The new sequence goes on as the old one does: a ring needs its journal. */
static int set_journal(const struct conversion *c)
{
	struct kvc_journal_options options = {
		.size = sizeof(options),
		.mode = (uint32_t)seq_mode(c->from),
		.when_full = c->from->journal.when_full,
		.max_rows = c->from->journal.max_rows,
		.keep_steps = c->from->journal.keep_steps,
	};

	return seq_mode(c->from) == KV_JOURNAL_NONE ? 0 : kvc_journal_set(c->to, &options);
}

static int run(const struct conversion *c, const char *name,
	       int (*progress)(void *arg, uint64_t n_done, uint64_t n_tokens), void *arg)
{
	if (begin(c) || convert_all(c, progress, arg) || kvc_commit(c->to->writer, &c->to, 1) ||
	    set_journal(c))
		return -1;
	return name ? kvc_seq_name(c->to, name) : 0;
}

/* Widest vector of all layers, in the dtype. */
static size_t widest_bytes(const struct kv_layout *layout)
{
	uint32_t width = 0;

	for (uint32_t i = 0; i < layout->n_layers; i++) {
		if (layout->layers[i].k_width > width)
			width = layout->layers[i].k_width;
		if (layout->layers[i].v_width > width)
			width = layout->layers[i].v_width;
	}
	return (size_t)width * kv_dtype_bytes(layout->dtype);
}

kvc_seq *kvc_convert(kvc_seq *seq, const kvc_layout *layout, const struct kvc_seq_options *given,
		     int (*progress)(void *arg, uint64_t n_done, uint64_t n_tokens), void *arg)
{
	struct conversion c = {.from = seq};
	struct kvc_seq_options options;
	const char *name;
	struct errbuf why;

	if (session_check(seq->writer->session) ||
	    check_layouts(seq->layout->fields, layout->fields) ||
	    check_options(seq, given, &options))
		return NULL;
	name = options.name;
	options.name = NULL;
	c.tile_bytes = widest_bytes(layout->fields);
	if (c.tile_bytes < TILE_BYTES)
		c.tile_bytes = TILE_BYTES;
	c.tile = malloc(c.tile_bytes);
	if (!c.tile) {
		kvc_fail(KVC_ENOMEM, "no memory for a tile of %zu bytes", c.tile_bytes);
		return NULL;
	}
	c.to = kvc_seq_new(seq->writer, layout, &options);
	if (c.to && run(&c, name, progress, arg)) {
		why = *kvc_err();
		kvc_seq_drop(c.to);
		*kvc_err() = why;
		c.to = NULL;
	}
	free(c.tile);
	return c.to;
}
