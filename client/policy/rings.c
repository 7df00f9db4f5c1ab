/*
 * dense, ring, lastrec: slots that follow from how many tokens came. All heads have the same ones.
 */
#include "client/policy/policy.h"

/* ---- dense --------------------------------------------------------------------------------- */

static uint64_t dense_limit(const struct kvc_policy_layer *layer)
{
	if (layer->n_slots == 0)
		return UINT64_MAX;
	return layer->position < layer->n_slots ? layer->n_slots - layer->position : 0;
}

static void dense_choose(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	plan->shared = 1;
	for (uint64_t i = 0; plan->slots && i < plan->n_tokens; i++)
		plan->slots[i] = (uint32_t)(layer->position + i);
}

const struct kvc_policy_ops kv_policy_dense = {
	.name = "dense",
	.limit = dense_limit,
	.choose = dense_choose,
};

/* ---- ring ---------------------------------------------------------------------------------- */

static uint64_t ring_limit(const struct kvc_policy_layer *layer)
{
	return layer->n_slots;
}

static void ring_choose(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	plan->shared = 1;
	for (uint64_t i = 0; i < plan->n_tokens; i++)
		plan->slots[i] = (uint32_t)((layer->position + i) % layer->n_slots);
}

const struct kvc_policy_ops kv_policy_ring = {
	.name = "ring",
	.limit = ring_limit,
	.choose = ring_choose,
};

/* ---- lastrec: the first tokens stay -------------------------------------------------------- */

static uint32_t pinned(const struct kvc_policy_layer *layer)
{
	uint32_t wanted = layer->options->pinned_tokens, eighth = layer->n_slots / 8;

	if (wanted)
		return wanted == KVC_POLICY_NONE ? 0 : wanted;
	if (eighth < 1)
		eighth = 1;
	return eighth < 16 ? eighth : 16;
}

static const char *lastrec_check(const struct kvc_policy_layer *layer)
{
	return pinned(layer) < layer->n_slots ?
		       NULL :
		       "pinned_tokens leaves no slot for others: pin fewer";
}

static uint64_t lastrec_limit(const struct kvc_policy_layer *layer)
{
	return layer->position ? layer->n_slots - pinned(layer) : layer->n_slots;
}

/* A prompt shorter than the pinned part is followed by the ring at once. */
static void lastrec_choose(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	const struct kv_policy_lastrec_state *state = layer->state;
	uint32_t slot = layer->position ? state->next : 0;

	plan->shared = 1;
	for (uint64_t i = 0; i < plan->n_tokens; i++, slot++) {
		if (slot == layer->n_slots)
			slot = pinned(layer);
		plan->slots[i] = slot;
	}
}

static void lastrec_update(const struct kvc_policy_layer *layer, const struct kvc_policy_plan *plan,
			   const float *weights, void *state, float *scores)
{
	struct kv_policy_lastrec_state *to = state;

	(void)weights;
	(void)scores;
	to->next = plan->slots[plan->n_tokens - 1] + 1;
	if (to->next == layer->n_slots)
		to->next = pinned(layer);
}

const struct kvc_policy_ops kv_policy_lastrec = {
	.name = "lastrec",
	.state_bytes = sizeof(struct kv_policy_lastrec_state),
	.check = lastrec_check,
	.limit = lastrec_limit,
	.choose = lastrec_choose,
	.update = lastrec_update,
};
