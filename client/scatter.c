/*
 * kvc_scatter: vectors for slots that the caller names, other ones for every head. Each becomes a
 * row of the open update, behind the rows of its tokens; the commit does the rest. Nothing but the
 * named (layer, head, slot) is ever touched. Hot path.
 *
 * What a row does not say (K and V when only planes are written, planes that are not given) is
 * filled in by the commit, in the order of the calls: until then `prev` holds which parts are
 * given, a bit for each of struct row_parts.
 */
#include <string.h>

#include "client/compute/codec.h"
#include "client/error.h"
#include "client/journal.h"
#include "client/scatter.h"

struct scatter {
	struct kvc_seq *seq;
	const struct kv_layout *layout;
	const struct kv_layer *layer;
	const struct kv_layer_map *map;
	uint32_t number; /* of the layer */
	uint64_t n;
	const uint32_t *index;
	bool shared;
	const char *k, *v;
	const void *const *planes;
	uint64_t n_slots, n_slots_before; /* with the update, and without */
};

static uint32_t slot_at(const struct scatter *s, uint32_t head, uint64_t i)
{
	return s->index[(s->shared ? 0 : head) * s->n + i];
}

/* ---- checks ------------------------------------------------------------------------------- */

static int check_call(const struct kvc_seq *seq, uint32_t layer, const uint32_t *index,
		      const void *k, const void *v)
{
	const struct kv_layout *layout = seq->layout->fields;

	if (session_check(seq->writer->session))
		return -1;
	if (!seq->is_open)
		return kvc_fail(KVC_EINVAL, "no update is open: kvc_update_begin comes first");
	if (seq_mode(seq) == KV_JOURNAL_NONE)
		return kvc_fail(KVC_EUNSUPPORTED,
				"a sequence without a journal cannot overwrite slots; call "
				"kvc_journal_set first");
	if (layer >= layout->n_layers)
		return kvc_fail(KVC_ERANGE, "layer %u of %u", layer, layout->n_layers);
	if (!index)
		return kvc_fail(KVC_EINVAL, "index is NULL");
	if ((k == NULL) != (v == NULL) && layout->layers[layer].v_width)
		return kvc_fail(KVC_EINVAL, "pass both K and V, or neither (planes only)");
	if (v && !layout->layers[layer].v_width)
		return kvc_fail(KVC_EINVAL, "layer %u has K only: pass v = NULL", layer);
	return 0;
}

/* A slot that holds nothing, or is named twice for one head. Clears `seen` behind itself. */
static int check_head(const struct scatter *s, uint32_t head)
{
	uint64_t *seen = s->seq->journal.seen, i;
	int rc = 0;

	for (i = 0; i < s->n; i++) {
		uint32_t slot = slot_at(s, head, i);
		uint64_t bit = UINT64_C(1) << slot % 64;

		if (slot >= s->n_slots) {
			rc = kvc_fail(KVC_ERANGE, "slot %u of head %u: layer %u has %llu slots",
				      slot, head, s->number, (unsigned long long)s->n_slots);
			break;
		}
		if (s->n > 1 && seen[slot / 64] & bit) {
			rc = kvc_fail(KVC_EINVAL, "slot %u of head %u of layer %u is there twice",
				      slot, head, s->number);
			break;
		}
		if (s->n > 1)
			seen[slot / 64] |= bit;
	}
	while (s->n > 1 && i-- > 0)
		seen[slot_at(s, head, i) / 64] = 0;
	return rc;
}

static int check_index(const struct scatter *s)
{
	for (uint32_t h = 0; h < (s->shared ? 1 : s->layer->n_query_groups); h++)
		if (check_head(s, h))
			return -1;
	return 0;
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Bits of the parts that the call gives: regions of the layer in written order. */
static uint32_t given_parts(const struct scatter *s)
{
	uint32_t given = 0;

	for (uint32_t part = 0; part + 1 < KV_PARTS_MAX; part++) {
		bool is_given = part < KV_PART_PLANE ? s->k != NULL :
						       s->planes && s->map->region[part] >= 0 &&
							       s->planes[part - KV_PART_PLANE];

		if (s->map->region[part] >= 0 && is_given)
			given |= UINT32_C(1) << s->map->region[part];
	}
	return given;
}

/* The given planes of entry i of a head go to `to`, where the layer's planes begin. */
static void put_planes(const struct scatter *s, uint32_t head, uint64_t i, char *to)
{
	for (uint32_t p = 0; s->map->region[KV_PART_PLANE + p] >= 0; p++) {
		const struct kv_region *r =
			&s->layout->regions[s->map->first_region +
					    (uint8_t)s->map->region[KV_PART_PLANE + p]];

		if (s->planes && s->planes[p])
			memcpy(to,
			       (const char *)s->planes[p] + i * r->row_bytes +
				       head * r->vector_bytes,
			       r->vector_bytes);
		to += r->vector_bytes;
	}
}

static int fail_value(const struct scatter *s, bool is_value, uint64_t i, uint32_t head)
{
	return kvc_fail(KVC_EVALUE,
			"%s of layer %u, entry %llu, head %u has a NaN or an infinity, which the "
			"storage format cannot hold",
			is_value ? "V" : "K", s->number, (unsigned long long)i, head);
}

/* One vector, stored as the format has it, at the parts `to`. */
static int store(const struct scatter *s, bool is_value, uint64_t i, uint32_t head,
		 struct kv_codec_at to)
{
	const struct kv_codec *codec = &s->seq->layout->codecs[2 * s->number + is_value];
	size_t bytes = (size_t)codec->width * codec->element_bytes;
	const char *from = (is_value ? s->v : s->k) + (i * s->layer->n_query_groups + head) * bytes;

	if (kv_quantise(codec, 1, from, bytes, &to) == 1)
		return 0;
	return fail_value(s, is_value, i, head);
}

static int stage_undo(const struct scatter *s, uint32_t head, uint64_t i, char *payload)
{
	const struct kvc_seq *seq = s->seq;
	char *stored = payload + journal_shape(seq)->new_off;
	uint32_t planes_bytes = kv_row_parts(s->layout, s->number).planes_bytes;

	if (s->k &&
	    (store(s, false, i, head, journal_stored_at(seq, s->number, false, stored)) ||
	     (s->v && store(s, true, i, head, journal_stored_at(seq, s->number, true, stored)))))
		return -1;
	put_planes(s, head, i, stored + s->map->stored_bytes - planes_bytes);
	return 0;
}

static void stage_replay(const struct scatter *s, uint32_t head, uint64_t i, char *payload)
{
	struct kv_row_parts parts = kv_row_parts(s->layout, s->number);
	uint64_t vector = i * s->layer->n_query_groups + head;

	if (s->k)
		memcpy(payload, s->k + vector * parts.k_bytes, parts.k_bytes);
	if (s->v)
		memcpy(payload + parts.k_bytes, s->v + vector * parts.v_bytes, parts.v_bytes);
	put_planes(s, head, i, payload + parts.k_bytes + parts.v_bytes);
}

static int stage_row(const struct scatter *s, uint64_t row, uint32_t head, uint64_t i,
		     uint32_t given)
{
	char *payload = journal_payload(s->seq, row);

	*journal_row(s->seq, row) = (struct kv_row){
		.prev = given,
		.slot = slot_at(s, head, i),
		.token = (uint32_t)i,
		.layer = (uint16_t)s->number,
		.head = (uint16_t)head,
		.kind = KV_ROW_VECTOR,
	};
	if (seq_mode(s->seq) == KV_JOURNAL_UNDO)
		return stage_undo(s, head, i, payload);
	stage_replay(s, head, i, payload);
	return 0;
}

/* A slot that comes with this update (undo): it is not in force, and written at once. */
static int write_new(const struct scatter *s, uint32_t head, uint64_t i, uint32_t given,
		     uint64_t scratch_row)
{
	char *payload = journal_payload(s->seq, scratch_row);

	if (stage_undo(s, head, i, payload))
		return -1;
	journal_restore_slot(s->seq, s->number, head, slot_at(s, head, i), given,
			     payload + journal_shape(s->seq)->new_off);
	return 0;
}

/* The slot's lines are fetched while the next rows are made. */
static void prefetch_slot(const struct scatter *s, uint32_t head, uint64_t slot)
{
	struct kvc_block block = seq_block_of(s->seq, s->map->group, slot);
	uint64_t in_block = slot % s->layout->block_tokens;

	for (uint32_t i = 0; i < s->map->n_regions; i++) {
		const struct kv_region *r = &s->layout->regions[s->map->first_region + i];
		const char *at = seq_piece(s->seq, s->map->first_region + i, block) +
				 in_block * r->row_bytes + (uint64_t)head * r->vector_bytes;

		for (uint32_t off = 0; off < r->vector_bytes; off += 64)
			__builtin_prefetch(at + off, 1);
	}
}

static int stage_all(const struct scatter *s)
{
	struct kvc_seq *seq = s->seq;
	uint64_t row = seq->open_rows_end;
	uint32_t given = given_parts(s);
	bool undo = seq_mode(seq) == KV_JOURNAL_UNDO;

	for (uint64_t i = 0; i < s->n; i++) {
		for (uint32_t h = 0; h < s->layer->n_query_groups; h++) {
			uint32_t slot = slot_at(s, h, i);

			if (undo && slot >= s->n_slots_before) {
				if (write_new(s, h, i, given, row))
					return -1;
				continue;
			}
			if (undo)
				prefetch_slot(s, h, slot);
			if (stage_row(s, row++, h, i, given))
				return -1;
		}
	}
	seq->open_rows_end = row;
	return 0;
}

int kvc_scatter(kvc_seq *seq, uint32_t layer, uint64_t n, const uint32_t *index, int shared,
		const void *k, const void *v, const void *const *planes)
{
	const struct kv_layout *layout = seq->layout->fields;
	struct scatter s;

	if (check_call(seq, layer, index, k, v))
		return -1;
	if (n == 0 || (!k && !planes))
		return 0;
	s = (struct scatter){
		.seq = seq,
		.layout = layout,
		.layer = &layout->layers[layer],
		.map = &layout->layer_maps[layer],
		.number = layer,
		.n = n,
		.index = index,
		.shared = shared != 0,
		.k = k,
		.v = v,
		.planes = planes,
	};
	s.n_slots = kv_layout_slots(layout, s.map->group,
				    seq->head.length_tokens + seq->open_tokens);
	s.n_slots_before = kv_layout_slots(layout, s.map->group, seq->head.length_tokens);
	if (n > s.n_slots)
		return kvc_fail(KVC_ERANGE, "%llu slots of %llu", (unsigned long long)n,
				(unsigned long long)s.n_slots);
	if (check_index(&s) ||
	    journal_extend(seq, seq->open_rows_end + n * s.layer->n_query_groups + 1))
		return -1;
	return stage_all(&s);
}

/* ---- what the commit fills in -------------------------------------------------------------- */

/* Parts of a replay row that were not given come from what counts now: an older row, or the
 * block. Its `prev` becomes the row that it displaces. */
void scatter_complete_replay(struct kvc_seq *seq, uint64_t row)
{
	const struct kv_layout *layout = seq->layout->fields;
	struct kv_row *header = journal_row(seq, row);
	const struct kv_layer_map *map = &layout->layer_maps[header->layer];
	struct kv_row_parts parts = kv_row_parts(layout, header->layer);
	uint32_t vectors_bytes = parts.k_bytes + parts.v_bytes, given = (uint32_t)header->prev;
	uint64_t prev = journal_find(seq, header->layer, header->head, header->slot, row);
	const char *old = prev == UINT64_MAX ? NULL : journal_payload(seq, prev);
	char *payload = journal_payload(seq, row), *to = payload + vectors_bytes;
	char stored[KV_PLANES_MAX * KV_SLOT_PLANE_BYTES_MAX];

	if (!(given & 1) && old && !(journal_row(seq, prev)->flags & KV_ROW_BASE))
		memcpy(payload, old, vectors_bytes);
	else if (!(given & 1))
		header->flags |= KV_ROW_BASE;
	for (uint32_t p = 0; map->region[KV_PART_PLANE + p] >= 0; p++) {
		uint32_t i = (uint8_t)map->region[KV_PART_PLANE + p];
		uint32_t bytes = layout->regions[map->first_region + i].vector_bytes;

		if (!(given & UINT32_C(1) << i) && old) {
			memcpy(to, old + (to - payload), bytes);
		} else if (!(given & UINT32_C(1) << i)) {
			scatter_base_plane(seq, header, p, stored);
			memcpy(to, stored, bytes);
		}
		to += bytes;
	}
	header->prev = prev == UINT64_MAX ? 0 : prev + 1;
}

/* The bytes of a slot plane in its block; zeros where the slot is in none. */
void scatter_base_plane(const struct kvc_seq *seq, const struct kv_row *header, uint32_t number,
			char *bytes)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map = &layout->layer_maps[header->layer];
	uint32_t region = map->first_region + (uint8_t)map->region[KV_PART_PLANE + number];
	const struct kv_region *r = &layout->regions[region];
	uint64_t slot = header->slot;

	if (slot >= kv_layout_slots(layout, map->group, seq->head.base_tokens)) {
		memset(bytes, 0, r->vector_bytes);
		return;
	}
	memcpy(bytes,
	       seq_piece(seq, region, seq_block_of(seq, map->group, slot)) +
		       slot % layout->block_tokens * r->row_bytes +
		       (uint64_t)header->head * r->vector_bytes,
	       r->vector_bytes);
}
