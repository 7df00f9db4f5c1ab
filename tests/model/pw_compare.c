/* Everything that can be read of a sequence, against its shadow. */
#include <string.h>

#include "tests/model/pw.h"

#define BYTES_MAX (PW_TOKENS * PW_HEADS * 64u * 4u)

static void compare_vectors(struct pw_world *w, const struct pw_seq *s, uint32_t layer)
{
	static char k[BYTES_MAX], v[BYTES_MAX];
	uint32_t k_bytes = mc_k_bytes(&w->mc, layer);
	uint32_t v_bytes = mc_full_bytes(&w->mc, layer) - k_bytes;
	uint32_t n_heads = w->mc.layout->layers[layer].n_query_groups;
	uint64_t n = pw_slots(w, layer, pw_now(s)->length);

	MC_CHECK(kvc_read(s->seq, layer, 0, n, k, v_bytes ? v : NULL) == 0);
	for (uint64_t i = 0; i < n * n_heads; i++) {
		const struct pw_cell *c = pw_cell(w, pw_now(s), layer, (uint32_t)(i % n_heads),
						  i / n_heads);
		const char *expected = pw_read(w, c);

		if (memcmp(k + i * k_bytes, expected, k_bytes) != 0 ||
		    memcmp(v + i * v_bytes, expected + k_bytes, v_bytes) != 0)
			MC_FAIL("sequence %d: layer %u head %u slot %llu of %llu reads wrong "
				"(value %u, row %u)",
				(int)(s - w->seqs), layer, (uint32_t)(i % n_heads),
				(unsigned long long)(i / n_heads), (unsigned long long)n, c->value,
				c->row);
	}
}

static void compare_side(struct pw_world *w, const struct pw_seq *s, uint32_t layer, int side)
{
	static uint32_t got[PW_TOKENS * PW_HEADS];
	uint32_t n_heads = w->mc.layout->layers[layer].n_query_groups;
	uint64_t n = pw_slots(w, layer, pw_now(s)->length);

	MC_CHECK(kvc_read_plane(s->seq, policy_side_names[side], layer, 0, n, got) == 0);
	for (uint64_t i = 0; i < n * n_heads; i++) {
		uint32_t expected = pw_cell(w, pw_now(s), layer, (uint32_t)(i % n_heads),
					    i / n_heads)
					    ->side[side];

		if (got[i] != expected)
			MC_FAIL("sequence %d: %s of layer %u head %u slot %llu is %#x, not %#x",
				(int)(s - w->seqs), policy_side_names[side], layer,
				(uint32_t)(i % n_heads), (unsigned long long)(i / n_heads), got[i],
				expected);
	}
}

/* Nobody wrote it. */
static void compare_other(struct pw_world *w, const struct pw_seq *s, uint32_t layer)
{
	static char got[PW_TOKENS * PW_HEADS * 16];
	uint64_t n = pw_slots(w, layer, pw_now(s)->length) *
		     w->mc.layout->layers[layer].n_query_groups * w->other_bytes;

	if (!w->other)
		return;
	MC_CHECK(kvc_read_plane(s->seq, w->other, layer, 0, pw_slots(w, layer, pw_now(s)->length),
				got) == 0);
	for (uint64_t i = 0; i < n; i++)
		if (got[i])
			MC_FAIL("sequence %d: plane \"%s\" of layer %u is not zero",
				(int)(s - w->seqs), w->other, layer);
}

static void compare_another(struct pw_world *w, const struct pw_seq *s)
{
	static const char zeros[PW_ANOTHER_BYTES];
	const char *got = w->has_another ? kvc_plane_get(s->seq, "another") : NULL;

	if (got && memcmp(got, zeros, sizeof(zeros)) != 0)
		MC_FAIL("sequence %d: plane \"another\" is not zero", (int)(s - w->seqs));
}

static void compare_state(struct pw_world *w, const struct pw_seq *s, uint32_t layer,
			  const char *plane)
{
	const struct pw_layer_state *expected = &pw_now(s)->layers[layer];
	const struct kv_layer *l = &w->mc.layout->layers[layer];
	const struct policy_stamp stamp = {pw_now(s)->length,
					   policy_identity(&w->resolved, w->ops)};
	const char *at = plane + w->layer_off[layer];
	size_t n_scores = w->ops->needs & KVC_POLICY_SCORES ?
				  (size_t)l->n_query_groups * l->bound_slots :
				  0;

	if (memcmp(at, &stamp, sizeof(stamp)) != 0)
		MC_FAIL("sequence %d: the stamp of layer %u is wrong", (int)(s - w->seqs), layer);
	if (memcmp(at + sizeof(stamp), expected->state, w->ops->state_bytes) != 0)
		MC_FAIL("sequence %d: the state of layer %u is wrong", (int)(s - w->seqs), layer);
	at += policy_scores_off(w->ops);
	for (size_t i = 0; i < n_scores; i++)
		if (memcmp(at + i * 4, &expected->scores[i], 4) != 0)
			MC_FAIL("sequence %d: a score of layer %u head %zu slot %zu is wrong",
				(int)(s - w->seqs), layer, i / l->bound_slots, i % l->bound_slots);
}

static void compare_journal(struct pw_world *w, const struct pw_seq *s)
{
	const struct pw_shadow *sh = &s->shadow;
	struct kvc_journal_info info;

	MC_CHECK(kvc_journal_info(s->seq, &info) == 0);
	if (info.mode != sh->mode || info.n_steps != (uint64_t)sh->now ||
	    info.n_forward != (uint64_t)(sh->n - 1 - sh->now) || !info.n_rows != !sh->has_rows)
		MC_FAIL("sequence %d: journal: mode %u, %llu rows, %llu steps back, %llu forward; "
			"not mode %u, %d, %d",
			(int)(s - w->seqs), info.mode, (unsigned long long)info.n_rows,
			(unsigned long long)info.n_steps, (unsigned long long)info.n_forward,
			sh->mode, sh->now, sh->n - 1 - sh->now);
	MC_CHECK(s->is_reader || s->seq->head.n_marks == (uint32_t)sh->n_marks);
}

/* Equal history gives equal digests. */
static void compare_digest(struct pw_world *w, struct pw_seq *s)
{
	struct pw_state *state = pw_now(s);
	uint8_t got[16];

	MC_CHECK(kvc_digest(s->seq, got) == 0);
	if (state->has_digest && memcmp(got, state->digest, 16) != 0)
		MC_FAIL("sequence %d: the digest is not what it was", (int)(s - w->seqs));
	memcpy(state->digest, got, 16);
	state->has_digest = true;
}

void pw_compare(struct pw_world *w, struct pw_seq *s)
{
	const struct pw_state *now = pw_now(s);
	const char *plane;

	if (kvc_length(s->seq) != now->length || kvc_position(s->seq) != now->length)
		MC_FAIL("sequence %d: length %llu position %llu, not %llu", (int)(s - w->seqs),
			(unsigned long long)kvc_length(s->seq),
			(unsigned long long)kvc_position(s->seq), (unsigned long long)now->length);
	compare_journal(w, s);
	plane = w->has_state ? kvc_plane_get(s->seq, POLICY_PLANE_NAME) : NULL;
	MC_CHECK(!w->has_state || now->length == 0 || plane);
	for (uint32_t l = 0; l < w->mc.layout->n_layers; l++) {
		MC_CHECK(kvc_slots(s->seq, l) == pw_slots(w, l, now->length));
		compare_vectors(w, s, l);
		for (int side = 0; side < POLICY_SIDES; side++)
			if (w->has_side[side])
				compare_side(w, s, l, side);
		compare_other(w, s, l);
		if (plane && now->length && w->mc.layout->layers[l].bound_slots)
			compare_state(w, s, l, plane);
	}
	compare_another(w, s);
	if (s->policy)
		MC_CHECK(kvc_policy_limit(s->policy) == pw_limit(w, now) && kvc_error() == KVC_OK);
	compare_digest(w, s);
}
