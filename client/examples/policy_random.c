#include "client/examples/policy_random.h"

#include <stdbool.h>

static const struct policy_random *random_of(const struct kvc_policy_layer *layer)
{
	return layer->options->user;
}

/* Bits that look like none (splitmix64). */
static uint64_t mix(uint64_t n)
{
	n *= 0x9e3779b97f4a7c15u;
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
	n = (n ^ n >> 27) * 0x94d049bb133111ebu;
	return n ^ n >> 31;
}

static const char *check(const struct kvc_policy_layer *layer)
{
	if (!random_of(layer))
		return "options.user is not a struct policy_random";
	return random_of(layer)->keep_newest < layer->n_slots ?
		       NULL :
		       "keep_newest leaves no slot to draw from";
}

/* Until the layer is full, slots are taken in order; later any but those that are kept. */
static uint64_t limit(const struct kvc_policy_layer *layer)
{
	if (layer->n_used < layer->n_slots)
		return layer->n_slots - layer->n_used;
	return layer->n_slots - random_of(layer)->keep_newest;
}

static bool is_kept(const struct kvc_policy_layer *layer, uint32_t head, uint32_t slot)
{
	int64_t age = (int64_t)layer->position -
		      layer->positions[(size_t)head * layer->n_slots + slot];

	return age <= (int64_t)random_of(layer)->keep_newest;
}

static bool is_taken(const uint32_t *slots, uint64_t n, uint32_t slot)
{
	for (uint64_t i = 0; i < n; i++)
		if (slots[i] == slot)
			return true;
	return false;
}

/* A slot is drawn; from there on, the first that may go. */
static void choose_head(const struct kvc_policy_layer *layer, uint32_t head, uint64_t n,
			uint32_t *slots)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t draw = random_of(layer)->seed + (layer->position + i) * 4096 + head;
		uint32_t slot = (uint32_t)(mix(draw) % layer->n_slots);

		while (is_kept(layer, head, slot) || is_taken(slots, i, slot))
			slot = (slot + 1) % layer->n_slots;
		slots[i] = slot;
	}
}

static void choose(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	uint64_t n = plan->n_tokens;

	plan->shared = layer->n_used < layer->n_slots;
	for (uint64_t i = 0; plan->shared && i < n; i++)
		plan->slots[i] = layer->n_used + (uint32_t)i;
	for (uint32_t h = 0; !plan->shared && h < layer->n_heads; h++)
		choose_head(layer, h, n, plan->slots + h * n);
}

const struct kvc_policy_ops policy_random_ops = {
	.name = "random",
	.needs = KVC_POLICY_POSITIONS,
	.check = check,
	.limit = limit,
	.choose = choose,
};
