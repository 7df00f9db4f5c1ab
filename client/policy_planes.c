#include "client/policy_planes.h"

#include <string.h>
#include <xxhash.h>

#include "client/error.h"
#include "client/options.h"
#include "client/policy/policy.h"
#include "client/slots.h"

const char *const policy_side_names[POLICY_SIDES] = {"position", "policy.norm", "policy.error"};

/* ---- options -------------------------------------------------------------------------------- */

const struct kvc_policy_ops *kvc_policy_find(const char *name)
{
	const struct kvc_policy_ops *ops = kv_policy_named(name);
	char names[160];

	if (!ops) {
		kv_policy_names(names, sizeof(names));
		kvc_fail(KVC_ENOTFOUND, "there is no policy \"%s\"; there are %s", name ? name : "",
			 names);
	}
	return ops;
}

static bool has_state(const struct kvc_policy_ops *ops)
{
	return ops->state_bytes || ops->needs & KVC_POLICY_SCORES;
}

int policy_options(const struct kvc_policy_options *given, struct kvc_policy_options *options,
		   const struct kvc_policy_ops **ops)
{
	if (options_take(given, "kvc_policy_options", sizeof(*options), options, sizeof(*options)))
		return -1;
	if (options->name && options->ops)
		return kvc_fail(KVC_EINVAL, "name and ops are both given: one says the policy");
	*ops = options->ops ? options->ops : kvc_policy_find(options->name);
	if (!*ops)
		return -1;
	options->name = (*ops)->name;
	if (!options->name)
		return kvc_fail(KVC_EINVAL, "ops->name is NULL: a policy of one's own has a name, "
					    "which tells its planes from another's");
	if (!(*ops)->limit || !(*ops)->choose || (has_state(*ops) && !(*ops)->update))
		return kvc_fail(KVC_EINVAL,
				"policy %s lacks a function: limit, choose, or update where there "
				"is state or scores",
				(*ops)->name);
	if ((*ops)->state_bytes > POLICY_STATE_BYTES_MAX)
		return kvc_fail(KVC_EINVAL, "policy %s has %u bytes of state, the limit is %u",
				(*ops)->name, (*ops)->state_bytes, POLICY_STATE_BYTES_MAX);
	return 0;
}

int policy_check_options(const struct kvc_policy_options *options, const struct kvc_policy_ops *ops,
			 uint32_t layer, uint32_t n_heads, uint32_t n_slots)
{
	const struct kvc_policy_layer l = {
		.options = options, .layer = layer, .n_heads = n_heads, .n_slots = n_slots};
	const char *wrong = ops->check && n_slots ? ops->check(&l) : NULL;

	if ((uint64_t)n_slots * n_heads > POLICY_CELLS_MAX)
		return kvc_fail(KVC_ETOOBIG,
				"layer %u has %u slots for each of %u heads; a policy holds up to "
				"%u of all heads",
				layer, n_slots, n_heads, POLICY_CELLS_MAX);
	if (wrong)
		return kvc_fail(KVC_EINVAL, "policy %s, layer %u of %u slots: %s", ops->name, layer,
				n_slots, wrong);
	return 0;
}

uint64_t policy_identity(const struct kvc_policy_options *o, const struct kvc_policy_ops *ops)
{
	const struct {
		uint64_t name;
		double keep_fraction;
		uint32_t pinned, grace, reset, normalise, chunk;
		float combination;
	} all = {
		XXH64(ops->name, strlen(ops->name), 0),
		o->keep_fraction,
		o->pinned_tokens,
		o->grace_tokens,
		o->reset_grace_scores != 0,
		o->normalise_scores != 0,
		o->max_chunk_tokens,
		o->combination,
	};

	return XXH64(&all, sizeof(all), 0);
}

/* ---- planes --------------------------------------------------------------------------------- */

static size_t round_up(size_t n)
{
	return (n + 63) / 64 * 64;
}

size_t policy_scores_off(const struct kvc_policy_ops *ops)
{
	return round_up(sizeof(struct policy_stamp) + ops->state_bytes);
}

size_t policy_layer_bytes(const struct kvc_policy_ops *ops, uint32_t n_heads, uint32_t n_slots)
{
	size_t bytes = policy_scores_off(ops);

	if (n_slots == 0 || !has_state(ops))
		return 0;
	if (ops->needs & KVC_POLICY_SCORES)
		bytes += (size_t)n_heads * n_slots * sizeof(float);
	return round_up(bytes);
}

bool policy_needs(const struct kvc_policy_options *options, const struct kvc_policy_ops *ops,
		  enum policy_side side)
{
	if (side == POLICY_POSITION)
		return ops->needs & KVC_POLICY_POSITIONS ||
		       (ops->needs & KVC_POLICY_POSITIONS_NORMALISED && options->normalise_scores);
	return ops->needs & (side == POLICY_NORM ? KVC_POLICY_NORMS : KVC_POLICY_ERRORS);
}

int kvc_policy_planes(const struct kvc_policy_options *given, uint32_t n_layers,
		      const struct kvc_layer *layers, struct kvc_plane planes[KVC_POLICY_PLANES])
{
	struct kvc_policy_options options;
	const struct kvc_policy_ops *ops;
	size_t bytes = 0;
	int n = 0;

	if (policy_options(given, &options, &ops))
		return -1;
	for (uint32_t l = 0; l < n_layers; l++) {
		if (policy_check_options(&options, ops, l, layers[l].n_query_groups,
					 layers[l].bound_slots))
			return -1;
		bytes += policy_layer_bytes(ops, layers[l].n_query_groups, layers[l].bound_slots);
	}
	if (bytes > UINT32_MAX)
		return kvc_fail(KVC_ETOOBIG, "the state of policy %s has %zu bytes", ops->name,
				bytes);
	for (enum policy_side side = 0; side < POLICY_SIDES; side++)
		if (side == POLICY_POSITION || policy_needs(&options, ops, side))
			planes[n++] = (struct kvc_plane){.name = policy_side_names[side],
							 .scope = KVC_PLANE_SLOT,
							 .bytes = 4};
	if (bytes)
		planes[n++] = (struct kvc_plane){.name = POLICY_PLANE_NAME,
						 .scope = KVC_PLANE_SEQUENCE,
						 .bytes = (uint32_t)bytes};
	return n;
}

/* ---- slot planes ---------------------------------------------------------------------------- */

/* from[n][heads] becomes to[head][stride]. */
static void turn(const uint32_t *from, uint32_t n, uint32_t n_heads, uint32_t stride, uint32_t *to)
{
	for (uint32_t h = 0; h < n_heads; h++)
		for (uint32_t i = 0; i < n; i++)
			to[(size_t)h * stride + i] = from[(size_t)i * n_heads + h];
}

int policy_gather(kvc_seq *seq, const char *name, uint32_t number, uint32_t layer, uint32_t n_slots,
		  uint32_t stride, uint32_t *room, uint32_t *to)
{
	uint32_t n_heads = kv_layout_heads(seq->layout->fields, layer), n;
	size_t bytes;

	if (kv_head_has_overlay(&seq->head)) {
		if (kvc_read_plane(seq, name, layer, 0, n_slots, room))
			return -1;
		turn(room, n_slots, n_heads, stride, to);
		return 0;
	}
	for (uint32_t slot = 0; slot < n_slots; slot += n) {
		n = (uint32_t)slots_in_block(seq, slot, n_slots);
		turn((const void *)slot_part(seq, layer, KV_PART_PLANE + number, slot, &bytes), n,
		     n_heads, stride, to + slot);
	}
	return 0;
}
