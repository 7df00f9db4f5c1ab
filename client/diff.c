/*
 * kvc_diff: where two sequences of one layout differ. Stored bytes are compared where both lie in
 * blocks; with a replay journal in force in one of them, vectors are compared as kvc_read gives
 * them. Slots that only one of them has are not compared: the length says so. Reads every byte;
 * not a hot-path call. Writer's thread of both.
 */
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "client/journal.h"
#include "client/slots.h"

#define TILE_BYTES ((size_t)64 << 10) /* or one slot, if that is larger */

struct diff {
	struct kvc_seq *a, *b;
	const struct kv_layout *layout;
	int (*report)(void *arg, const struct kvc_difference *difference);
	void *arg;
	int64_t n_found;
	bool ended;                  /* report() wants no more */
	struct kvc_difference *runs; /* of slots that differ, one a head; n_slots 0: none */
	char *tiles[2];
	size_t tile_bytes;
};

static void tell(struct diff *d, const struct kvc_difference *difference)
{
	d->n_found += (int64_t)difference->n_slots;
	if (d->report && d->report(d->arg, difference))
		d->ended = true;
}

static void tell_one(struct diff *d, const char *part)
{
	tell(d, &(struct kvc_difference){.part = part, .n_slots = 1});
}

/* ---- one part of one layer ------------------------------------------------------------------ */

/* Slots of both, all heads side by side. */
struct rows {
	uint32_t layer, n_heads;
	const char *part;
	uint64_t first, n;
	size_t vector_bytes;
	const char *a, *b;
};

static void end_run(struct diff *d, uint32_t head)
{
	if (d->runs[head].n_slots && !d->ended)
		tell(d, &d->runs[head]);
	d->runs[head].n_slots = 0;
}

static void end_runs(struct diff *d, uint32_t n_heads)
{
	for (uint32_t h = 0; h < n_heads; h++)
		end_run(d, h);
}

static void compare_head(struct diff *d, const struct rows *rows, uint32_t head, uint64_t i)
{
	size_t off = (i * rows->n_heads + head) * rows->vector_bytes;
	struct kvc_difference *run = &d->runs[head];

	if (memcmp(rows->a + off, rows->b + off, rows->vector_bytes) == 0) {
		end_run(d, head);
		return;
	}
	if (run->n_slots == 0)
		*run = (struct kvc_difference){
			.layer = rows->layer,
			.head = head,
			.part = rows->part,
			.first_slot = rows->first + i,
		};
	run->n_slots++;
}

static void compare_rows(struct diff *d, const struct rows *rows)
{
	if (memcmp(rows->a, rows->b, rows->n * rows->n_heads * rows->vector_bytes) == 0) {
		end_runs(d, rows->n_heads);
		return;
	}
	for (uint64_t i = 0; i < rows->n && !d->ended; i++)
		for (uint32_t h = 0; h < rows->n_heads; h++)
			compare_head(d, rows, h, i);
}

static uint64_t slots_of_both(const struct diff *d, uint32_t layer)
{
	uint64_t a = kvc_slots(d->a, layer), b = kvc_slots(d->b, layer);

	return a < b ? a : b;
}

static const char *plane_name(const struct kv_layout *layout, uint32_t number)
{
	for (uint32_t i = 0; i < layout->n_planes; i++)
		if (layout->planes[i].scope == KV_PLANE_SLOT && layout->plane_off[i] == number)
			return layout->planes[i].name;
	return "";
}

static const char *part_name(const struct kv_layout *layout, uint32_t part)
{
	static const char *const names[] = {"k", "k_scale", "k_zero", "v", "v_scale", "v_zero"};

	return part < KV_PART_PLANE ? names[part] : plane_name(layout, part - KV_PART_PLANE);
}

/* ---- stored bytes --------------------------------------------------------------------------- */

static void compare_stored(struct diff *d, uint32_t layer, uint32_t part)
{
	struct rows rows = {
		.layer = layer,
		.n_heads = kv_layout_heads(d->layout, layer),
		.part = part_name(d->layout, part),
	};
	uint64_t end = slots_of_both(d, layer);

	for (uint64_t slot = 0; slot < end && !d->ended; slot += rows.n) {
		rows.first = slot;
		rows.n = slots_in_block(d->a, slot, end);
		rows.a = slot_part(d->a, layer, part, slot, &rows.vector_bytes);
		rows.b = slot_part(d->b, layer, part, slot, &rows.vector_bytes);
		if (rows.a != rows.b)
			compare_rows(d, &rows);
		else
			end_runs(d, rows.n_heads);
	}
	end_runs(d, rows.n_heads);
}

/* ---- as they count -------------------------------------------------------------------------- */

static int read_part(struct kvc_seq *seq, const struct rows *rows, uint32_t part, char *to)
{
	switch (part) {
	case KV_PART_K_CODES: return kvc_read(seq, rows->layer, rows->first, rows->n, to, NULL);
	case KV_PART_V_CODES: return kvc_read(seq, rows->layer, rows->first, rows->n, NULL, to);
	default: return kvc_read_plane(seq, rows->part, rows->layer, rows->first, rows->n, to);
	}
}

/* Bytes of one head of what kvc_read and kvc_read_plane give. */
static size_t counted_bytes(const struct diff *d, uint32_t layer, uint32_t part)
{
	struct kv_row_parts parts = kv_row_parts(d->layout, layer);

	switch (part) {
	case KV_PART_K_CODES: return parts.k_bytes;
	case KV_PART_V_CODES: return parts.v_bytes;
	default: return d->layout->regions[kv_layout_region(d->layout, layer, part)].vector_bytes;
	}
}

static int compare_counted(struct diff *d, uint32_t layer, uint32_t part)
{
	struct rows rows = {
		.layer = layer,
		.n_heads = kv_layout_heads(d->layout, layer),
		.part = part_name(d->layout, part),
		.vector_bytes = counted_bytes(d, layer, part),
		.a = d->tiles[0],
		.b = d->tiles[1],
	};
	uint64_t end = slots_of_both(d, layer);
	uint64_t step = d->tile_bytes / (rows.vector_bytes * rows.n_heads);

	for (uint64_t slot = 0; slot < end && !d->ended; slot += rows.n) {
		rows.first = slot;
		rows.n = end - slot < step ? end - slot : step;
		if (read_part(d->a, &rows, part, d->tiles[0]) ||
		    read_part(d->b, &rows, part, d->tiles[1]))
			return -1;
		compare_rows(d, &rows);
	}
	end_runs(d, rows.n_heads);
	return 0;
}

static int compare_layer(struct diff *d, uint32_t layer)
{
	bool counted = kv_head_has_overlay(&d->a->head) || kv_head_has_overlay(&d->b->head);

	for (uint32_t part = 0; part < KV_PARTS_MAX && !d->ended; part++) {
		bool is_codes = part == KV_PART_K_CODES || part == KV_PART_V_CODES;

		if (kv_layout_region(d->layout, layer, part) == UINT32_MAX)
			continue;
		if (!counted)
			compare_stored(d, layer, part);
		else if ((is_codes || part >= KV_PART_PLANE) && compare_counted(d, layer, part))
			return -1;
	}
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static bool state_differs(const struct diff *d, const struct kv_plane *plane)
{
	const char *a = kvc_plane_get(d->a, plane->name), *b = kvc_plane_get(d->b, plane->name);
	const char *set = a ? a : b;

	if (a && b)
		return memcmp(a, b, plane->bytes) != 0;
	for (uint32_t i = 0; set && i < plane->bytes; i++)
		if (set[i])
			return true;
	return false;
}

static int compare_all(struct diff *d)
{
	if (d->a->head.length_tokens != d->b->head.length_tokens)
		tell_one(d, "length");
	if (!d->ended && d->a->head.position != d->b->head.position)
		tell_one(d, "position");
	for (uint32_t layer = 0; layer < kv_layout_layers(d->layout) && !d->ended; layer++)
		if (compare_layer(d, layer))
			return -1;
	for (uint32_t i = 0; i < d->layout->n_planes && !d->ended; i++)
		if (d->layout->planes[i].scope == KV_PLANE_SEQUENCE &&
		    state_differs(d, &d->layout->planes[i]))
			tell_one(d, d->layout->planes[i].name);
	return 0;
}

/* Bytes of the widest slot of one part. */
static size_t widest_slot_bytes(const struct kv_layout *layout, uint32_t *most_heads)
{
	size_t most = TILE_BYTES;

	*most_heads = 1;
	for (uint32_t i = 0; i < layout->n_layers; i++) {
		struct kv_row_parts parts = kv_row_parts(layout, i);
		uint32_t heads = kv_layout_heads(layout, i);
		uint32_t bytes = parts.k_bytes > parts.v_bytes ? parts.k_bytes : parts.v_bytes;

		if (bytes < parts.planes_bytes)
			bytes = parts.planes_bytes;
		if ((size_t)bytes * heads > most)
			most = (size_t)bytes * heads;
		if (heads > *most_heads)
			*most_heads = heads;
	}
	return most;
}

int64_t kvc_diff(kvc_seq *a, kvc_seq *b,
		 int (*report)(void *arg, const struct kvc_difference *difference), void *arg)
{
	struct diff d = {
		.a = a,
		.b = b,
		.layout = a->layout->fields,
		.report = report,
		.arg = arg,
	};
	uint32_t most_heads;
	int rc;

	if (session_check(a->writer->session) || session_check(b->writer->session) ||
	    kv_layout_differs(a->layout->fields, b->layout->fields, kvc_err()))
		return -1;
	d.tile_bytes = widest_slot_bytes(d.layout, &most_heads);
	d.runs = calloc(most_heads, sizeof(d.runs[0]));
	d.tiles[0] = malloc(2 * d.tile_bytes);
	if (d.runs && d.tiles[0]) {
		d.tiles[1] = d.tiles[0] + d.tile_bytes;
		rc = compare_all(&d);
	} else {
		rc = kvc_fail(KVC_ENOMEM, "no memory to compare %zu bytes at a time", d.tile_bytes);
	}
	free(d.runs);
	free(d.tiles[0]);
	return rc ? -1 : d.n_found;
}
