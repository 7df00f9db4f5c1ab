/*
 * smart-lastrec: a ring that leaves a protected range out. The caller gives the range, for example
 * where the instructions of a prompt lie; it guides the updates after the one it was given with. Until
 * the layer is full nothing is evicted, and slots are taken in order, protected ones too.
 *
 * A range that wraps over the end of the layer counts negative in the capacity of keys_values, which
 * therefore lets an update meet a slot twice; so does this one. The later token stays.
 */
#include "client/policy/policy.h"

static const struct kv_policy_smart_state *state_of(const struct kvc_policy_layer *layer)
{
	return layer->state;
}

/* The slot that follows one: `slot` is one more than the last that was used. */
static uint32_t follow(const struct kv_policy_smart_state *state, uint32_t n_slots, uint32_t slot)
{
	const struct kvc_policy_range *range = &state->range;

	if (state->is_protected && slot == range->start)
		return range->end % n_slots;
	if (slot < n_slots)
		return slot;
	return state->is_protected && (range->start == 0 || range->start > range->end) ?
		       range->end % n_slots :
		       0;
}

static const char *smart_check(const struct kvc_policy_layer *layer)
{
	return layer->n_slots >= 2 ? NULL : "a ring needs at least two slots";
}

/* Twice what is free: an update is at most two rounds. */
static uint64_t smart_limit(const struct kvc_policy_layer *layer)
{
	const struct kv_policy_smart_state *state = state_of(layer);
	uint64_t capacity = layer->n_slots;

	if (layer->n_used < layer->n_slots)
		return capacity;
	if (state->is_protected && state->range.start < state->range.end)
		capacity -= state->range.end - state->range.start;
	return 2 * capacity < layer->n_slots ? 2 * capacity : layer->n_slots;
}

/* Slots outside of the range. So many tokens meet none twice, wherever they begin. */
static uint32_t n_free(const struct kv_policy_smart_state *state, uint32_t n_slots)
{
	if (!state->is_protected)
		return n_slots;
	return n_slots - (state->range.end + n_slots - state->range.start) % n_slots;
}

/* Is it the slot of a later token too? */
static bool is_taken_later(const struct kvc_policy_plan *plan, uint64_t i)
{
	for (uint64_t later = i + 1; later < plan->n_tokens; later++)
		if (plan->slots[later] == plan->slots[i])
			return true;
	return false;
}

static void smart_choose(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	const struct kv_policy_smart_state *state = state_of(layer);
	const struct kv_policy_smart_state plain = {0};
	uint32_t room = layer->n_slots - layer->n_used;
	uint32_t slot = room ? layer->n_used : state->next;

	if (!layer->position)
		state = &plain;
	plan->shared = 1;
	for (uint64_t i = 0; i < plan->n_tokens; i++) {
		if (i >= room)
			slot = follow(state, layer->n_slots, slot);
		plan->slots[i] = slot++;
	}
	for (uint64_t i = 0; plan->n_tokens > n_free(state, layer->n_slots) && i < plan->n_tokens;
	     i++)
		if (is_taken_later(plan, i))
			plan->slots[i] = KVC_POLICY_NONE;
}

static void smart_update(const struct kvc_policy_layer *layer, const struct kvc_policy_plan *plan,
			 const float *weights, void *state, float *scores)
{
	struct kv_policy_smart_state *to = state;
	uint32_t next = plan->slots[plan->n_tokens - 1] + 1;

	(void)weights;
	(void)scores;
	*to = (struct kv_policy_smart_state){0};
	if (layer->position)
		*to = *state_of(layer);
	if (layer->range) {
		to->range = *layer->range;
		to->is_protected = to->range.start != to->range.end;
	}
	if (kv_policy_used_then(layer, plan->n_tokens) < layer->n_slots)
		to->next = next; /* rows of a batch stay together, whatever they protect */
	else
		to->next = follow(to, layer->n_slots, next);
}

const struct kvc_policy_ops kv_policy_smart_lastrec = {
	.name = "smart-lastrec",
	.state_bytes = sizeof(struct kv_policy_smart_state),
	.check = smart_check,
	.limit = smart_limit,
	.choose = smart_choose,
	.update = smart_update,
};
