#include "daemon/digest_rest.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/arena_store.h"
#include "daemon/objects.h"

#define CHUNK_BYTES (256u << 10)
#define RUN_ROWS 16384u

/* The newest row of a (layer, head, slot): enough to find it again. */
struct row_key {
	uint64_t key; /* layer, head, slot: from the top, 16, 16, 32 bits */
	uint64_t row; /* number << 1 | KV_ROW_BASE */
};

static struct row_key key_of(const struct kv_row *row, uint64_t number)
{
	return (struct row_key){
		(uint64_t)row->layer << 48 | (uint64_t)row->head << 32 | row->slot,
		number << 1 | (row->flags & KV_ROW_BASE),
	};
}

static struct kv_row row_of(const struct row_key *key)
{
	return (struct kv_row){.layer = (uint16_t)(key->key >> 48),
			       .head = (uint16_t)(key->key >> 32),
			       .slot = (uint32_t)key->key,
			       .kind = KV_ROW_VECTOR,
			       .flags = key->row & KV_ROW_BASE};
}

static const struct kv_layout *layout_of(const struct digest_rest *rest)
{
	return rest->state->layout->layout;
}

void digest_state_begin(struct kv_digest *digest, const struct state *state)
{
	if (kv_digest_begin(digest, state->layout->layout, state->head.length_tokens,
			    state->head.position))
		state_die("no memory for a digest");
}

void digest_rest_begin(struct digest_rest *rest, const struct state *state)
{
	*rest = (struct digest_rest){.state = state, .next_row = state->head.journal_first};
	rest->n_runs = 1;
}

void digest_rest_end(struct digest_rest *rest)
{
	free(rest->keys);
	free(rest->spare);
	free(rest->buffer);
	*rest = (struct digest_rest){0};
}

uint64_t digest_rest_bytes(const struct state *state)
{
	const struct kv_layout *layout = state->layout->layout;
	const struct kv_journal_shape *shape = &layout->journal[KV_JOURNAL_REPLAY];
	uint64_t bytes = 0;

	for (uint32_t i = 0; kv_planes_now(state->head.planes) && i < layout->n_planes; i++)
		if (layout->planes[i].scope == KV_PLANE_SEQUENCE)
			bytes += layout->planes[i].bytes;
	if (kv_head_has_overlay(&state->head))
		bytes += (state->head.journal_end - state->head.journal_first) *
			 (sizeof(struct kv_row) + shape->payload_bytes);
	return bytes;
}

/* Reads from the block of that number in a group that has one region. */
static int read_block(struct core *core, const struct digest_rest *rest, uint32_t group,
		      uint64_t number, uint64_t off, size_t n_bytes, void *out, struct errbuf *err)
{
	const uint64_t *ref = state_block(rest->state, group, number);
	const struct arena *arena = arenas_find(core, gref_arena(*ref));

	return arena_read(arena, gref_block(*ref), 0, off, n_bytes, out, err);
}

/* ---- sequence planes ---------------------------------------------------------------------- */

/* To the next one that has bytes left; false: none. */
static bool next_plane(struct digest_rest *rest)
{
	const struct kv_layout *layout = layout_of(rest);

	while (rest->plane < layout->n_planes) {
		const struct kv_plane *plane = &layout->planes[rest->plane];

		if (plane->scope == KV_PLANE_SEQUENCE && rest->plane_off < plane->bytes)
			return true;
		rest->plane++;
		rest->plane_off = 0;
	}
	return false;
}

/* 1: all planes are in the digest. */
static int planes_step(struct core *core, struct digest_rest *rest, struct kv_digest *digest,
		       uint64_t max_bytes, uint64_t *n_bytes, struct errbuf *err)
{
	const struct kv_layout *layout = layout_of(rest);
	uint32_t version = kv_planes_now(rest->state->head.planes);

	if (version == 0)
		return 1;
	if (rest->plane == 0 && rest->plane_off == 0)
		kv_digest_states_begin(digest);
	while (next_plane(rest)) {
		uint64_t left = layout->planes[rest->plane].bytes - rest->plane_off;
		size_t n = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;

		if (*n_bytes >= max_bytes)
			return 0;
		if (read_block(core, rest, layout->states_group, version - 1,
			       layout->plane_off[rest->plane] + rest->plane_off, n, rest->buffer,
			       err))
			return -1;
		kv_digest_states_part(digest, rest->buffer, n);
		rest->plane_off += n;
		*n_bytes += n;
	}
	return 1;
}

/* ---- which rows are in force --------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
	const struct row_key *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->row < y->row ? -1 : x->row > y->row;
}

/* Sorts the run that was filled; of the rows with one key the last stays. */
static void sort_run(struct digest_rest *rest)
{
	size_t first = rest->runs[rest->n_runs - 1], n = first;
	struct row_key *keys = rest->keys;

	if (rest->n_keys == first)
		return;
	qsort(keys + first, rest->n_keys - first, sizeof(keys[0]), compare_keys);
	for (size_t i = first + 1; i < rest->n_keys; i++) {
		if (keys[i].key != keys[n].key)
			n++;
		keys[n] = keys[i];
	}
	rest->n_keys = n + 1;
}

static int make_room(struct row_key **keys, size_t *cap, size_t n, struct errbuf *err)
{
	size_t more = *cap ? *cap : RUN_ROWS;
	struct row_key *grown;

	if (n <= *cap)
		return 0;
	while (more < n)
		more *= 2;
	grown = realloc(*keys, more * sizeof(grown[0]));
	if (!grown)
		return errbuf_set(err, KV_ENOMEM, "no memory to sort %zu rows of a journal", n);
	*keys = grown;
	*cap = more;
	return 0;
}

/* The two last runs as one. The later one has the newer rows. */
static int merge_last(struct digest_rest *rest, struct errbuf *err)
{
	size_t first = rest->runs[rest->n_runs - 2], middle = rest->runs[rest->n_runs - 1];
	const struct row_key *a, *a_end, *b, *b_end;
	struct row_key *out;

	if (make_room(&rest->spare, &rest->spare_cap, middle - first, err))
		return -1;
	memcpy(rest->spare, rest->keys + first, (middle - first) * sizeof(*out));
	a = rest->spare;
	a_end = a + (middle - first);
	b = rest->keys + middle;
	b_end = rest->keys + rest->n_keys;
	out = rest->keys + first;
	while (a < a_end) {
		if (b == b_end || a->key < b->key) {
			*out++ = *a++;
			continue;
		}
		a += a->key == b->key;
		*out++ = *b++;
	}
	memmove(out, b, (size_t)(b_end - b) * sizeof(*out));
	rest->n_keys = (size_t)(out - rest->keys) + (size_t)(b_end - b);
	rest->n_runs--;
	return 0;
}

/* A run is full, or all are. Of those that stay, each is more than twice as long as the next: they
 * are few. */
static int end_run(struct digest_rest *rest, bool is_last, struct errbuf *err)
{
	sort_run(rest);
	while (rest->n_runs > 1) {
		size_t middle = rest->runs[rest->n_runs - 1];
		size_t before = middle - rest->runs[rest->n_runs - 2];

		if (!is_last && before / 2 > rest->n_keys - middle)
			break;
		if (merge_last(rest, err))
			return -1;
	}
	if (!is_last)
		rest->runs[rest->n_runs++] = rest->n_keys;
	return 0;
}

static bool makes_sense(const struct digest_rest *rest, const struct kv_row *row)
{
	const struct kv_layout *layout = layout_of(rest);

	return kv_row_names_head(layout, row) &&
	       row->slot < kv_layout_slots(layout, layout->layer_maps[row->layer].group,
					   rest->state->head.length_tokens);
}

/* The headers of one journal block. */
static int collect_block(struct core *core, struct digest_rest *rest, uint64_t *n_bytes,
			 struct errbuf *err)
{
	const struct kv_layout *layout = layout_of(rest);
	const struct kv_journal_shape *shape = &layout->journal[KV_JOURNAL_REPLAY];
	uint64_t number = rest->next_row >> shape->rows_log2;
	uint64_t end = (number + 1) << shape->rows_log2;
	const struct kv_row *rows = (const void *)rest->buffer;
	size_t n;

	if (end > rest->state->head.journal_end)
		end = rest->state->head.journal_end;
	n = (size_t)(end - rest->next_row);
	if (read_block(core, rest, layout->journal_group, number, kv_row_off(shape, rest->next_row),
		       n * sizeof(rows[0]), rest->buffer, err) ||
	    make_room(&rest->keys, &rest->keys_cap, rest->n_keys + n, err))
		return -1;
	for (size_t i = 0; i < n; i++)
		if (makes_sense(rest, &rows[i]))
			rest->keys[rest->n_keys++] = key_of(&rows[i], rest->next_row + i);
	*n_bytes += n * sizeof(rows[0]);
	rest->next_row = end;
	if (rest->n_keys - rest->runs[rest->n_runs - 1] < RUN_ROWS)
		return 0;
	return end_run(rest, false, err);
}

/* 1: all are known and sorted. */
static int collect_step(struct core *core, struct digest_rest *rest, uint64_t max_bytes,
			uint64_t *n_bytes, struct errbuf *err)
{
	while (rest->next_row < rest->state->head.journal_end) {
		if (*n_bytes >= max_bytes)
			return 0;
		if (collect_block(core, rest, n_bytes, err))
			return -1;
	}
	return end_run(rest, true, err) ? -1 : 1;
}

/* ---- their payloads ----------------------------------------------------------------------- */

static int payload_step(struct core *core, struct digest_rest *rest, struct kv_digest *digest,
			uint64_t max_bytes, uint64_t *n_bytes, struct errbuf *err)
{
	const struct kv_layout *layout = layout_of(rest);
	const struct kv_journal_shape *shape = &layout->journal[KV_JOURNAL_REPLAY];

	for (; rest->next_key < rest->n_keys; rest->next_key++) {
		const struct row_key *key = &rest->keys[rest->next_key];
		struct kv_row row = row_of(key);
		struct kv_row_parts parts = kv_row_parts(layout, row.layer);
		size_t n = (size_t)parts.k_bytes + parts.v_bytes + parts.planes_bytes;
		uint64_t number = key->row >> 1;

		if (*n_bytes >= max_bytes)
			return 0;
		if (read_block(core, rest, layout->journal_group, number >> shape->rows_log2,
			       kv_row_payload_off(shape, number), n, rest->buffer, err))
			return -1;
		kv_digest_row(digest, layout, &row, rest->buffer);
		*n_bytes += n;
	}
	return 1;
}

static int rows_step(struct core *core, struct digest_rest *rest, struct kv_digest *digest,
		     uint64_t max_bytes, uint64_t *n_bytes, struct errbuf *err)
{
	int rc;

	if (!rest->is_sorted) {
		rc = collect_step(core, rest, max_bytes, n_bytes, err);
		if (rc <= 0)
			return rc;
		rest->is_sorted = true;
		if (rest->n_keys)
			kv_digest_rows(digest, rest->n_keys);
	}
	return payload_step(core, rest, digest, max_bytes, n_bytes, err);
}

int digest_rest_step(struct core *core, struct digest_rest *rest, struct kv_digest *digest,
		     uint64_t max_bytes, uint64_t *n_bytes, struct errbuf *err)
{
	int rc;

	*n_bytes = 0;
	if (!rest->buffer)
		rest->buffer = malloc(CHUNK_BYTES);
	if (!rest->buffer)
		return errbuf_set(err, KV_ENOMEM, "no memory to read a journal");
	rc = planes_step(core, rest, digest, max_bytes, n_bytes, err);
	if (rc <= 0 || !kv_head_has_overlay(&rest->state->head))
		return rc;
	return rows_step(core, rest, digest, max_bytes, n_bytes, err);
}
