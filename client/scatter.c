/*
 * kvc_scatter: vectors for slots that the caller names, other ones for every head; and kvc_move,
 * where they come from slots that are there. Each becomes a row of the open update, behind the rows
 * of its tokens; the commit does the rest. Nothing but the named (layer, head, slot) is ever
 * touched. Hot path.
 *
 * What a row does not say (K and V when only planes are written, planes that are not given) is
 * filled in by the commit, in the order of the calls: until then `prev` holds which parts are
 * given (journal_all_parts).
 */
#include <string.h>

#include "client/codecs.h"
#include "client/error.h"
#include "client/journal.h"
#include "client/read.h"
#include "client/scatter.h"
#include "client/slots.h"

struct scatter {
	struct kvc_seq *seq;
	const struct kv_layout *layout;
	const struct kv_layer *layer;
	const struct kv_layer_map *map;
	uint32_t number; /* of the layer */
	uint64_t n;
	const uint32_t *index;
	const uint32_t
		*from; /* slots that the vectors come from; NULL: k, v and planes have them */
	bool shared;
	const char *k, *v;
	const void *const *planes;
	uint32_t given;                   /* which parts: given_parts() */
	uint64_t n_slots, n_slots_before; /* with the update, and without */
};

static uint32_t slot_at(const struct scatter *s, uint32_t head, uint64_t i)
{
	return s->index[(s->shared ? 0 : head) * s->n + i];
}

static uint32_t from_at(const struct scatter *s, uint32_t head, uint64_t i)
{
	return s->from[(s->shared ? 0 : head) * s->n + i];
}

/* ---- checks ------------------------------------------------------------------------------- */

/* name: of the index, for the text. */
static int check_call(const struct kvc_seq *seq, uint32_t layer, const char *name,
		      const uint32_t *index, const void *k, const void *v)
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
	if (slots_check_layer(layout, layer))
		return -1;
	if (!index)
		return kvc_fail(KVC_EINVAL, "%s is NULL", name);
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

/* Only what was committed can be moved. */
static int check_from(const struct scatter *s, uint32_t head)
{
	for (uint64_t i = 0; i < s->n; i++)
		if (from_at(s, head, i) >= s->n_slots_before)
			return kvc_fail(KVC_ERANGE,
					"from: slot %u of head %u: layer %u has %llu committed "
					"slots",
					from_at(s, head, i), head, s->number,
					(unsigned long long)s->n_slots_before);
	return 0;
}

static int check_index(const struct scatter *s)
{
	for (uint32_t h = 0; h < (s->shared ? 1 : s->layer->n_query_groups); h++)
		if (check_head(s, h) || (s->from && check_from(s, h)))
			return -1;
	return 0;
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Bits of the parts that the call gives: regions of the layer in written order. */
static uint32_t given_parts(const struct scatter *s)
{
	uint32_t given = 0;

	if (s->from)
		return journal_all_parts(s->seq, s->number);
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
	for (uint32_t p = 0; p < s->layout->n_slot_planes; p++) {
		const struct kv_region *r = &s->layout->regions[kv_layout_region(
			s->layout, s->number, KV_PART_PLANE + p)];

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
	return codecs_refuse(is_value, s->number, "entry", i, head, "abort the update");
}

/* The same, of slots that are there: their stored bytes, or, in a replay row, as they count. */
static void store_moved(const struct scatter *s, uint64_t row, uint64_t first, uint64_t n)
{
	uint32_t n_heads = s->layer->n_query_groups;

	for (uint64_t i = first; i < first + n; i++, row++) {
		uint32_t head = (uint32_t)(i % n_heads), slot = from_at(s, head, i / n_heads);
		char *payload = journal_payload(s->seq, row);

		if (seq_mode(s->seq) == KV_JOURNAL_REPLAY)
			read_slot(s->seq, s->number, head, slot, payload);
		else
			journal_save_slot(s->seq, s->number, head, slot, s->given,
					  payload + journal_shape(s->seq)->new_off);
	}
}

/* Vectors of a call are counted through its entries and, in each, through the heads. */
static int store(const struct scatter *s, uint64_t row, uint64_t first, uint64_t n)
{
	uint32_t n_heads = s->layer->n_query_groups;
	uint32_t off = journal_plane_off(s->seq, s->number, 0);
	struct kv_row_parts parts = kv_row_parts(s->layout, s->number);
	bool is_value;

	if (s->from)
		store_moved(s, row, first, n);
	if (s->k) {
		uint64_t done = journal_store(s->seq, s->number, row, n,
					      s->k + first * parts.k_bytes,
					      s->v ? s->v + first * parts.v_bytes : NULL,
					      &is_value);

		if (done < n)
			return fail_value(s, is_value, (first + done) / n_heads,
					  (uint32_t)((first + done) % n_heads));
	}
	for (uint64_t i = first; s->planes && i < first + n; i++)
		put_planes(s, (uint32_t)(i % n_heads), i / n_heads,
			   journal_payload(s->seq, row + i - first) + off);
	return 0;
}

static void put_header(const struct scatter *s, struct kv_row *header, uint64_t i)
{
	uint32_t head = (uint32_t)(i % s->layer->n_query_groups);
	uint64_t entry = i / s->layer->n_query_groups;

	*header = (struct kv_row){
		.prev = s->given,
		.slot = slot_at(s, head, entry),
		.token = (uint32_t)entry,
		.layer = (uint16_t)s->number,
		.head = (uint16_t)head,
		.kind = KV_ROW_VECTOR,
	};
}

/* What the commit will look for is fetched while the rows are made. */
static void prefetch(const struct scatter *s, const struct kv_row *header)
{
	if (seq_mode(s->seq) == KV_JOURNAL_UNDO)
		journal_prefetch_slot(s->seq, s->number, header->head, header->slot);
	else
		__builtin_prefetch(journal_index_at(s->seq, s->number, header->head, header->slot),
				   1);
}

/* Rows of vectors [first, first + n). */
static int stage(const struct scatter *s, uint64_t row, uint64_t first, uint64_t n)
{
	struct journal_rows rows;

	for (uint64_t done = 0; done < n; done += rows.n) {
		rows = journal_rows(s->seq, row + done, row + n);
		for (uint64_t i = 0; i < rows.n; i++) {
			put_header(s, &rows.headers[i], first + done + i);
			prefetch(s, &rows.headers[i]);
		}
	}
	return store(s, row, first, n);
}

/* A slot that comes with this update (undo): it is not in force, and written at once. The row is
 * set aside and not used yet. */
static int write_new(const struct scatter *s, uint64_t i, uint64_t row)
{
	uint32_t head = (uint32_t)(i % s->layer->n_query_groups);

	if (store(s, row, i, 1))
		return -1;
	journal_restore_slot(s->seq, s->number, head,
			     slot_at(s, head, i / s->layer->n_query_groups), s->given,
			     journal_payload(s->seq, row) + journal_shape(s->seq)->new_off);
	return 0;
}

static bool is_new(const struct scatter *s, uint64_t i)
{
	uint32_t head = (uint32_t)(i % s->layer->n_query_groups);

	return seq_mode(s->seq) == KV_JOURNAL_UNDO &&
	       slot_at(s, head, i / s->layer->n_query_groups) >= s->n_slots_before;
}

/* As many rows at a time as there are prefetches that the processor keeps in mind. */
#define STAGE_ROWS 16u

static int stage_all(const struct scatter *s)
{
	uint64_t row = s->seq->open_rows_end, n_vectors = s->n * s->layer->n_query_groups, n;

	for (uint64_t i = 0; i < n_vectors; i += n) {
		n = 0;
		while (n < STAGE_ROWS && i + n < n_vectors && !is_new(s, i + n))
			n++;
		if (n == 0) {
			n = 1;
			if (write_new(s, i, row))
				return -1;
			continue;
		}
		if (stage(s, row, i, n))
			return -1;
		KV_FAULT_POINT();
		row += n;
	}
	s->seq->open_rows_end = row;
	return 0;
}

static int scatter(struct scatter *s)
{
	struct kvc_seq *seq = s->seq;
	const uint32_t group = s->map->group;
	uint64_t rows_end;

	s->given = given_parts(s);
	if (s->given == 0)
		return 0;
	s->n_slots = kv_layout_slots(s->layout, group, seq->head.length_tokens + seq->open_tokens);
	s->n_slots_before = kv_layout_slots(s->layout, group, seq->head.length_tokens);
	if (s->n > s->n_slots)
		return kvc_fail(KVC_ERANGE, "n is %llu; layer %u has %llu slots",
				(unsigned long long)s->n, s->number,
				(unsigned long long)s->n_slots);
	if (check_index(s))
		return -1;
	rows_end = seq->open_rows_end + s->n * s->layer->n_query_groups + 1;
	journal_trim(seq, rows_end - seq->head.journal_end);
	if (journal_extend(seq, rows_end))
		return -1;
	return stage_all(s);
}

static struct scatter scatter_of(kvc_seq *seq, uint32_t layer, uint64_t n, const uint32_t *index,
				 int shared)
{
	const struct kv_layout *layout = seq->layout->fields;

	return (struct scatter){
		.seq = seq,
		.layout = layout,
		.layer = &layout->layers[layer],
		.map = &layout->layer_maps[layer],
		.number = layer,
		.n = n,
		.index = index,
		.shared = shared != 0,
	};
}

int kvc_scatter(kvc_seq *seq, uint32_t layer, uint64_t n, const uint32_t *index, int shared,
		const void *k, const void *v, const void *const *planes)
{
	struct scatter s;

	if (check_call(seq, layer, "index", index, k, v))
		return -1;
	if (n == 0 || (!k && !planes))
		return 0;
	s = scatter_of(seq, layer, n, index, shared);
	s.k = k;
	s.v = v;
	s.planes = planes;
	return scatter(&s);
}

int kvc_move(kvc_seq *seq, uint32_t layer, uint64_t n, const uint32_t *from, const uint32_t *to,
	     int shared)
{
	struct scatter s;

	if (check_call(seq, layer, "to", to, NULL, NULL))
		return -1;
	if (!from)
		return kvc_fail(KVC_EINVAL, "from is NULL");
	if (n == 0)
		return 0;
	s = scatter_of(seq, layer, n, to, shared);
	s.from = from;
	return scatter(&s);
}

/* ---- what the commit fills in -------------------------------------------------------------- */

/* Parts of a replay row that were not given come from what counts now: an older row, or the
 * block. */
static void complete(struct kvc_seq *seq, struct kv_row *header, char *payload, uint64_t prev)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map = &layout->layer_maps[header->layer];
	uint32_t off = journal_plane_off(seq, header->layer, 0), given = (uint32_t)header->prev;
	const char *old = prev == UINT64_MAX ? NULL : journal_payload(seq, prev);

	if (!(given & 1) && old && !(journal_row(seq, prev)->flags & KV_ROW_BASE))
		memcpy(payload, old, off);
	else if (!(given & 1))
		header->flags |= KV_ROW_BASE;
	for (uint32_t p = 0; p < layout->n_slot_planes; p++) {
		uint32_t i = (uint32_t)map->region[KV_PART_PLANE + p];
		uint32_t bytes = layout->regions[map->first_region + i].vector_bytes;

		if (!(given & UINT32_C(1) << i) && old)
			memcpy(payload + off, old + off, bytes);
		else if (!(given & UINT32_C(1) << i))
			slot_plane_copy(seq, header->layer, header->head, header->slot, p,
					payload + off, bytes);
		off += bytes;
	}
}

/* Rows that lie side by side, from `first` on: each may displace one before it. */
static void complete_rows(struct kvc_seq *seq, const struct journal_rows *rows, uint64_t first)
{
	size_t payload_bytes = journal_shape(seq)->payload_bytes;

	for (uint64_t i = 0; i < rows->n; i++) {
		struct kv_row *header = &rows->headers[i];
		uint32_t *at;
		uint64_t prev;

		if (header->kind != KV_ROW_VECTOR)
			continue;
		at = journal_index_at(seq, header->layer, header->head, header->slot);
		prev = journal_entry(seq, at, first + i);
		if (header->prev != journal_all_parts(seq, header->layer))
			complete(seq, header, rows->payloads + i * payload_bytes,
				 journal_find_at(seq, at, header, first + i));
		/* What the entry said is kept as it was, and looked at when it is needed. */
		header->prev = prev == UINT64_MAX ? 0 : prev + 1;
		journal_index_put(seq, at, header, first + i);
	}
}

void scatter_complete_replay(struct kvc_seq *seq, uint64_t first, uint64_t end)
{
	for (struct journal_rows rows; first < end; first += rows.n) {
		rows = journal_rows(seq, first, end);
		complete_rows(seq, &rows, first);
	}
}
