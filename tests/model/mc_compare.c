/* Everything that can be read of a sequence, against its shadow. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "client/journal.h"
#include "tests/model/mc.h"

#define ATTEND_ONE_IN 50 /* of the comparisons */
#define BYTES_MAX (MC_TOKENS * MC_HEADS * 1024u)

/* ---- as it is read ------------------------------------------------------------------------ */

const char *mc_cell_read(const struct mc_world *w, const struct mc_cell *c)
{
	if (c->row && c->row_kv)
		return w->values[c->row_kv].full;
	return w->values[c->kv].read;
}

static void compare_vectors(struct mc_world *w, kvc_seq *seq, const struct mc_state *state,
			    uint32_t layer, const char *what)
{
	static char k[BYTES_MAX], v[BYTES_MAX];
	const struct kv_layer *l = &w->layout->layers[layer];
	uint32_t k_bytes = mc_k_bytes(w, layer), v_bytes = mc_full_bytes(w, layer) - k_bytes;
	uint64_t n = mc_slots(w, layer, state->length);

	MC_CHECK(kvc_slots(seq, layer) == n);
	MC_CHECK(kvc_read(seq, layer, 0, n, k, v_bytes ? v : NULL) == 0);
	for (uint64_t s = 0; s < n; s++)
		for (uint32_t h = 0; h < l->n_query_groups; h++) {
			struct mc_cell *c = mc_cell(w, (struct mc_state *)(uintptr_t)state, layer,
						    h, s);
			const char *expected = mc_cell_read(w, c);
			uint64_t i = s * l->n_query_groups + h;

			if (memcmp(k + i * k_bytes, expected, k_bytes) != 0 ||
			    memcmp(v + i * v_bytes, expected + k_bytes, v_bytes) != 0)
				MC_FAIL("%s: layer %u head %u slot %llu of %llu reads wrong "
					"(value %u, row value %u)",
					what, layer, h, (unsigned long long)s,
					(unsigned long long)n, c->kv, c->row_kv);
		}
}

static void compare_slot_planes(struct mc_world *w, kvc_seq *seq, const struct mc_state *state,
				uint32_t layer, const char *what)
{
	static char got[BYTES_MAX];
	char expected[1024];
	const struct kv_layer *l = &w->layout->layers[layer];
	uint64_t n = mc_slots(w, layer, state->length);

	for (uint32_t p = 0; p < w->n_slot_planes; p++) {
		uint32_t bytes = w->slot_plane_bytes[p];

		MC_CHECK(kvc_read_plane(seq, w->slot_plane[p], layer, 0, n, got) == 0);
		for (uint64_t i = 0; i < n * l->n_query_groups; i++) {
			struct mc_cell *c = mc_cell(w, (struct mc_state *)(uintptr_t)state, layer,
						    (uint32_t)(i % l->n_query_groups),
						    i / l->n_query_groups);

			mc_fill_plane(expected, bytes, c->row ? c->row_plane[p] : c->plane[p]);
			if (memcmp(got + i * bytes, expected, bytes) != 0)
				MC_FAIL("%s: plane %u of layer %u slot %llu head %llu is wrong",
					what, p, layer, (unsigned long long)(i / l->n_query_groups),
					(unsigned long long)(i % l->n_query_groups));
		}
	}
}

static void compare_seq_planes(struct mc_world *w, kvc_seq *seq, const struct mc_state *state,
			       const char *what)
{
	char expected[256];

	for (uint32_t p = 0; p < w->n_seq_planes; p++) {
		const void *got = kvc_plane_get(seq, w->seq_plane[p]);

		if (!got != !state->planes_set)
			MC_FAIL("%s: sequence plane %u is %s", what, p, got ? "set" : "not set");
		mc_fill_plane(expected, w->seq_plane_bytes[p], state->planes[p]);
		if (got && memcmp(got, expected, w->seq_plane_bytes[p]) != 0)
			MC_FAIL("%s: sequence plane %u is wrong", what, p);
	}
}

/* ---- as it is stored ---------------------------------------------------------------------- */

/* The bytes of one region of one head of one slot. */
static void stored_bytes(const struct mc_world *w, const struct mc_cell *c,
			 const struct kv_region *r, char *to)
{
	const struct kv_layer_map *map = &w->layout->layer_maps[r->layer];
	const char *stored = w->values[c->kv].stored;

	if (r->part >= KV_PART_PLANE) {
		mc_fill_plane(to, r->vector_bytes, c->plane[r->part - KV_PART_PLANE]);
		return;
	}
	for (uint32_t i = 0; &w->layout->regions[map->first_region + i] != r; i++)
		stored += w->layout->regions[map->first_region + i].vector_bytes;
	memcpy(to, stored, r->vector_bytes);
}

/* One row (all heads) of a region as it must be. */
static void stored_row(const struct mc_world *w, const struct mc_state *state,
		       const struct kv_region *r, uint64_t slot, char *row)
{
	for (uint32_t h = 0; h < w->layout->layers[r->layer].n_query_groups; h++)
		stored_bytes(w, mc_cell(w, (struct mc_state *)(uintptr_t)state, r->layer, h, slot),
			     r, row + h * r->vector_bytes);
}

static void compare_stored(struct mc_world *w, kvc_seq *seq, const struct mc_state *state,
			   const char *what)
{
	const struct kv_layout *layout = w->layout;
	char row[MC_HEADS * 1024];

	for (uint32_t i = 0; i < layout->groups[layout->journal_group].first_region; i++) {
		const struct kv_region *r = &layout->regions[i];
		uint32_t group = layout->layer_maps[r->layer].group;
		uint64_t n = mc_slots(w, r->layer, state->base);

		for (uint64_t s = 0; s < n; s++) {
			stored_row(w, state, r, s, row);
			if (memcmp(seq_piece(seq, i, seq_block_of(seq, group, s)) +
					   s % layout->block_tokens * r->row_bytes,
				   row, r->row_bytes) != 0)
				MC_FAIL("%s: stored bytes of layer %u part %u slot %llu are wrong",
					what, r->layer, r->part, (unsigned long long)s);
		}
	}
}

/* ---- digest ------------------------------------------------------------------------------- */

static void put(XXH3_state_t *x, const void *bytes, size_t n)
{
	XXH3_128bits_update(x, bytes, n);
}

static void put_number(XXH3_state_t *x, uint64_t number, size_t n_bytes)
{
	uint64_t le = htole64(number);

	put(x, &le, n_bytes);
}

static void put_canonical(XXH3_state_t *x, XXH3_state_t *of)
{
	XXH128_canonical_t c;

	XXH128_canonicalFromHash(&c, XXH3_128bits_digest(of));
	put(x, c.digest, sizeof(c.digest));
}

static void digest_blocks(const struct mc_world *w, const struct mc_state *state, uint32_t group,
			  XXH3_state_t *all, XXH3_state_t *one)
{
	const struct kv_group *g = &w->layout->groups[group];
	uint64_t n = kv_layout_slots(w->layout, group, state->base);
	uint32_t block_tokens = w->layout->block_tokens;
	char row[MC_HEADS * 1024];

	put_number(all, group, 4);
	put_number(all, n, 8);
	for (uint64_t first = 0; first < n; first += block_tokens) {
		XXH3_128bits_reset(one);
		for (uint32_t i = g->first_region; i < g->first_region + g->n_regions; i++)
			for (uint64_t s = first; s < n && s < first + block_tokens; s++) {
				stored_row(w, state, &w->layout->regions[i], s, row);
				put(one, row, w->layout->regions[i].row_bytes);
			}
		put_canonical(all, one);
	}
}

static void digest_row(const struct mc_world *w, const struct mc_cell *c, uint32_t layer,
		       uint32_t head, uint64_t slot, XXH3_state_t *all)
{
	char plane[1024];

	put_number(all, layer, 2);
	put_number(all, head, 2);
	put_number(all, slot, 4);
	put_number(all, c->row_kv ? 0 : KV_ROW_BASE, 2);
	if (c->row_kv)
		put(all, w->values[c->row_kv].full, mc_full_bytes(w, layer));
	for (uint32_t p = 0; p < w->n_slot_planes; p++) {
		mc_fill_plane(plane, w->slot_plane_bytes[p], c->row_plane[p]);
		put(all, plane, w->slot_plane_bytes[p]);
	}
}

static void digest_rows(const struct mc_world *w, const struct mc_state *state, XXH3_state_t *all)
{
	struct mc_state *s = (struct mc_state *)(uintptr_t)state;
	uint64_t n = 0;

	for (uint32_t i = 0; i < w->n_cells; i++)
		n += s->cells[i].row != 0;
	if (n == 0)
		return;
	put(all, "rows", 5);
	put_number(all, n, 8);
	for (uint32_t l = 0; l < w->layout->n_layers; l++)
		for (uint32_t h = 0; h < w->layout->layers[l].n_query_groups; h++)
			for (uint64_t slot = 0; slot < w->n_slots[l]; slot++)
				if (mc_cell(w, s, l, h, slot)->row)
					digest_row(w, mc_cell(w, s, l, h, slot), l, h, slot, all);
}

static void digest_states(const struct mc_world *w, const struct mc_state *state, XXH3_state_t *all)
{
	char plane[256];

	if (!state->planes_set)
		return;
	put(all, "states", 7);
	for (uint32_t p = 0; p < w->n_seq_planes; p++) {
		mc_fill_plane(plane, w->seq_plane_bytes[p], state->planes[p]);
		put(all, plane, w->seq_plane_bytes[p]);
	}
}

static void compare_digest(struct mc_world *w, kvc_seq *seq, const struct mc_state *state,
			   const char *what)
{
	static XXH3_state_t *all, *one;
	XXH128_canonical_t expected;
	uint8_t got[16];

	if (!all) {
		all = XXH3_createState();
		one = XXH3_createState();
	}
	XXH3_128bits_reset(all);
	put(all, "kvc-digest-1", 13);
	put(all, w->layout->hash, 32);
	put_number(all, state->length, 8);
	put_number(all, state->position, 8);
	for (uint32_t g = 0; g < w->layout->n_layer_groups; g++)
		digest_blocks(w, state, g, all, one);
	digest_states(w, state, all);
	digest_rows(w, state, all);
	XXH128_canonicalFromHash(&expected, XXH3_128bits_digest(all));
	MC_CHECK(kvc_digest(seq, got) == 0);
	if (memcmp(got, expected.digest, 16) != 0)
		MC_FAIL("%s: the digest is wrong", what);
}

/* ---- all ---------------------------------------------------------------------------------- */

static void compare_journal(struct mc_world *w, kvc_seq *seq, const struct mc_shadow *s,
			    const char *what)
{
	struct kvc_journal_info info;

	(void)w;
	MC_CHECK(kvc_journal_info(seq, &info) == 0);
	if (info.mode != s->mode || info.n_rows != mc_shadow_rows(s) ||
	    info.base_tokens != mc_now(s)->base ||
	    info.n_steps != (uint64_t)mc_shadow_steps(s, 0, s->now) ||
	    info.first_tokens != s->steps[0].state->length)
		MC_FAIL("%s: journal: mode %u rows %llu base %llu steps %llu from %llu, not %u "
			"%llu %llu %d %llu",
			what, info.mode, (unsigned long long)info.n_rows,
			(unsigned long long)info.base_tokens, (unsigned long long)info.n_steps,
			(unsigned long long)info.first_tokens, s->mode,
			(unsigned long long)mc_shadow_rows(s), (unsigned long long)mc_now(s)->base,
			mc_shadow_steps(s, 0, s->now),
			(unsigned long long)s->steps[0].state->length);
	if (info.n_forward != (uint64_t)mc_shadow_steps(s, s->now, s->n - 1))
		MC_FAIL("%s: %llu steps forward, not %d", what, (unsigned long long)info.n_forward,
			mc_shadow_steps(s, s->now, s->n - 1));
	if (seq->head.n_marks != (uint32_t)s->n_marks)
		MC_FAIL("%s: %u marks, not %d", what, seq->head.n_marks, s->n_marks);
}

void mc_compare(struct mc_world *w, kvc_seq *seq, const struct mc_shadow *s, const char *what)
{
	const struct mc_state *state = mc_now(s);

	if (kvc_length(seq) != state->length || kvc_position(seq) != state->position)
		MC_FAIL("%s: length %llu position %llu, not %llu and %llu", what,
			(unsigned long long)kvc_length(seq), (unsigned long long)kvc_position(seq),
			(unsigned long long)state->length, (unsigned long long)state->position);
	compare_journal(w, seq, s, what);
	for (uint32_t l = 0; l < w->layout->n_layers; l++) {
		compare_vectors(w, seq, state, l, what);
		compare_slot_planes(w, seq, state, l, what);
	}
	compare_seq_planes(w, seq, state, what);
	compare_stored(w, seq, state, what);
	compare_digest(w, seq, state, what);
}

void mc_compare_all(struct mc_world *w)
{
	char what[32];

	for (int i = 0; i < MC_SEQS; i++) {
		if (!w->seqs[i].seq)
			continue;
		snprintf(what, sizeof(what), "sequence %d", i);
		mc_compare(w, w->seqs[i].seq, &w->seqs[i].shadow, what);
		if (mc_one_in(w, ATTEND_ONE_IN))
			mc_attend(w, w->seqs[i].seq, &w->seqs[i].shadow, what);
	}
	for (int i = 0; i < MC_SNAPS; i++) {
		if (!w->snaps[i].used)
			continue;
		snprintf(what, sizeof(what), "snapshot %d", i);
		mc_compare(w, w->snaps[i].reader, &w->snaps[i].shadow, what);
		if (mc_one_in(w, ATTEND_ONE_IN))
			mc_attend(w, w->snaps[i].reader, &w->snaps[i].shadow, what);
	}
}
