/*
 * A policy that chooses anything that it may: slots of its own for each head, moves from anywhere,
 * tokens that go nowhere. It notes what it is shown, so that a wrong side value shows in its state.
 */
#include <string.h>

#include "tests/model/pw.h"

struct own_state {
	uint64_t n_updates, seen;
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= UINT64_C(0xff51afd7ed558ccd);
	x ^= x >> 33;
	x *= UINT64_C(0xc4ceb9fe1a85ec53);
	return x ^ x >> 33;
}

static uint64_t draw(uint64_t *random, uint64_t n)
{
	*random += UINT64_C(0x9e3779b97f4a7c15);
	return mix(*random) % n;
}

static uint64_t begin(const struct kvc_policy_layer *layer)
{
	const struct own_state *state = layer->state;
	const uint64_t *seed = layer->options->user;

	return mix(*seed + layer->layer * 1000003 + layer->position) ^
	       (layer->position ? state->seen : 0);
}

static uint64_t own_limit(const struct kvc_policy_layer *layer)
{
	uint64_t random = begin(layer);

	return layer->position ? 1 + draw(&random, layer->n_slots) : layer->n_slots;
}

/* Slots of a head in random order. */
static void shuffle(uint64_t *random, uint32_t n, uint32_t *slots)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = (uint32_t)draw(random, i + 1);

		slots[i] = slots[j];
		slots[j] = i;
	}
}

static void own_choose(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	uint64_t random = begin(layer) + plan->n_tokens, nowhere, n = plan->n_tokens;
	uint32_t order[PW_SLOTS],
		most = layer->n_slots - (uint32_t)(n < layer->n_slots ? n : layer->n_slots);

	plan->shared = 1;
	if (layer->n_used < layer->n_slots) {
		for (uint64_t i = 0; i < n; i++)
			plan->slots[i] = layer->n_used + (uint32_t)i;
		return;
	}
	plan->shared = draw(&random, 3) == 0;
	nowhere = draw(&random, 4) ? 0 : mix(random);
	if (most > n)
		most = (uint32_t)n;
	plan->n_moves = draw(&random, 2) ? (uint32_t)draw(&random, most + 1) : 0;
	for (uint32_t h = 0; h < (plan->shared ? 1 : layer->n_heads); h++) {
		shuffle(&random, layer->n_slots, order);
		for (uint64_t i = 0; i < n; i++)
			plan->slots[h * n + i] = nowhere >> i % 64 & 1 ? KVC_POLICY_NONE : order[i];
		for (uint32_t i = 0; i < plan->n_moves; i++) {
			plan->to[h * plan->n_moves + i] = order[n + i];
			plan->from[h * plan->n_moves + i] = (uint32_t)draw(&random, layer->n_slots);
		}
	}
}

static uint64_t note(uint64_t seen, const struct kvc_policy_layer *layer, const void *side,
		     uint32_t n_used)
{
	for (uint32_t h = 0; side && h < layer->n_heads; h++)
		for (uint32_t i = 0; i < n_used; i++) {
			uint32_t x;

			memcpy(&x, (const char *)side + ((size_t)h * layer->n_slots + i) * 4, 4);
			seen = mix(seen + x);
		}
	return seen;
}

static void own_update(const struct kvc_policy_layer *layer, const struct kvc_policy_plan *plan,
		       const float *weights, void *state, float *scores)
{
	struct own_state now = {0}, *to = state;
	uint32_t n_used = kv_policy_used_then(layer, plan->n_tokens);

	if (layer->position)
		memcpy(&now, layer->state, sizeof(now));
	now.n_updates++;
	now.seen = note(now.seen, layer, layer->positions, n_used);
	now.seen = note(now.seen, layer, layer->norms, n_used);
	now.seen = note(now.seen, layer, layer->errors, n_used);
	*to = now;
	for (uint32_t i = 0; scores && i < layer->n_heads * layer->n_slots; i++)
		scores[i] = layer->scores[i] * 0.5f + 1;
	for (uint32_t h = 0; scores && weights && h < layer->n_heads; h++)
		for (uint32_t i = 0; i < n_used; i++)
			scores[h * layer->n_slots + i] += weights[h * n_used + i];
}

const struct kvc_policy_ops pw_own_ops[2] = {
	{
		.name = "own",
		.needs = KVC_POLICY_SCORES | KVC_POLICY_POSITIONS | KVC_POLICY_NORMS |
			 KVC_POLICY_ERRORS,
		.state_bytes = sizeof(struct own_state),
		.limit = own_limit,
		.choose = own_choose,
		.update = own_update,
	},
	{
		.name = "own-few",
		.needs = KVC_POLICY_POSITIONS,
		.state_bytes = sizeof(struct own_state),
		.limit = own_limit,
		.choose = own_choose,
		.update = own_update,
	},
};
