/*
 * A policy's hand: made, asked for limits, freed. Writer's thread.
 */
#include "client/policy.h"

#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "client/planes.h"
#include "client/slots.h"

#define PIECE_TOKENS_LEAST 64u

/* ---- what the planes say -------------------------------------------------------------------- */

static int check_stamp(const struct kvc_policy *p, uint32_t layer, const struct policy_stamp *stamp)
{
	if (stamp->identity && stamp->identity != p->identity)
		return kvc_fail(KVC_EINVAL,
				"layer %u was written with another policy than %s, or with other "
				"options; use those",
				layer, p->ops->name);
	if (!stamp->identity || stamp->position != p->seq->head.position)
		return kvc_fail(
			KVC_EINVAL,
			"layer %u: policy %s knows of %llu tokens and the sequence has seen %llu: "
			"an update was committed without kvc_policy_write and kvc_policy_score; "
			"roll back behind it",
			layer, p->ops->name, (unsigned long long)stamp->position,
			(unsigned long long)p->seq->head.position);
	return 0;
}

int policy_view(const struct kvc_policy *p, uint32_t layer, struct kvc_policy_layer *view)
{
	const struct kvc_seq *seq = p->seq;
	const struct kv_layout *layout = seq->layout->fields;
	const char *state = p->zeros;

	*view = (struct kvc_policy_layer){
		.options = &p->options,
		.layer = layer,
		.n_heads = kv_layout_heads(layout, layer),
		.n_slots = (uint32_t)layout->layers[layer].bound_slots,
		.n_used = (uint32_t)kvc_slots(seq, layer),
		.position = seq->head.position,
		.scratch = p->scratch,
	};
	if (p->state_plane < 0 || view->n_slots == 0)
		return 0;
	if (view->position) {
		const char *now = planes_now(seq, (uint32_t)p->state_plane, p->layer_off[layer]);

		if (now)
			state = now;
		if (check_stamp(p, layer, (const void *)state))
			return -1;
	}
	view->state = state + sizeof(struct policy_stamp);
	if (p->ops->needs & KVC_POLICY_SCORES)
		view->scores = (const void *)(state + policy_scores_off(p->ops));
	return 0;
}

uint64_t policy_limit(const struct kvc_policy *p, const struct kvc_policy_layer *view)
{
	uint64_t n, room = view->n_slots - view->n_used;

	if (view->n_slots == 0)
		return UINT64_MAX;
	n = p->ops->limit(view);
	if (n > view->n_slots) /* what memory is sized for, whatever a policy says */
		n = view->n_slots;
	return room && room < n ? room : n;
}

uint64_t kvc_policy_limit(kvc_policy *policy)
{
	const struct kv_layout *layout = policy->seq->layout->fields;
	uint64_t least = UINT64_MAX, n;
	struct kvc_policy_layer view;

	if (session_check(policy->seq->writer->session))
		return 0;
	for (uint32_t layer = 0; layer < layout->n_layers; layer++) {
		if (policy_view(policy, layer, &view))
			return 0;
		n = policy_limit(policy, &view);
		least = n < least ? n : least;
	}
	*kvc_err() = (struct errbuf){0};
	return least;
}

uint64_t kvc_policy_rows(const kvc_policy *policy, uint64_t n_tokens)
{
	const struct kv_layout *layout = policy->seq->layout->fields;
	const struct kvc_policy_options *o = &policy->options;
	uint64_t n_rows = 0;

	for (uint32_t layer = 0; layer < layout->n_layers; layer++) {
		uint64_t n_moves = o->grace_tokens;

		if (!layout->layers[layer].bound_slots)
			continue;
		if (policy->ops == kvc_policy_log_ops())
			n_moves = policy_log_moves(o->user, layer);
		if (n_moves > n_tokens)
			n_moves = n_tokens;
		n_rows += (n_tokens + n_moves) * layout->layers[layer].n_query_groups;
	}
	return n_rows;
}

int kvc_policy_protect(kvc_policy *policy, const struct kvc_policy_range *range)
{
	const struct kv_layout *layout = policy->seq->layout->fields;

	for (uint32_t layer = 0; range && layer < layout->n_layers; layer++) {
		uint64_t n_slots = layout->layers[layer].bound_slots;

		if (n_slots && (range->start >= n_slots || range->end > n_slots))
			return kvc_fail(KVC_ERANGE, "slots %u to %u: layer %u has %llu",
					range->start, range->end, layer,
					(unsigned long long)n_slots);
		if (n_slots && range->start == 0 && range->end == n_slots)
			return kvc_fail(KVC_ERANGE,
					"slots 0 to %u are all that layer %u has: protect fewer, "
					"or no token can come",
					range->end, layer);
	}
	policy->has_range = range != NULL;
	policy->range_committed = policy->seq->n_committed;
	if (range)
		policy->range = *range;
	return 0;
}

/* ---- life ----------------------------------------------------------------------------------- */

/* Numbers of the planes that the policy needs. */
static int find_planes(struct kvc_policy *p, size_t state_bytes)
{
	const struct kv_layout *layout = p->seq->layout->fields;

	for (enum policy_side side = 0; side < POLICY_SIDES; side++) {
		int i = kv_layout_find_plane(layout, KV_PLANE_SLOT, policy_side_names[side]);
		bool is_needed = side == POLICY_POSITION || policy_needs(&p->options, p->ops, side);

		p->side_plane[side] = -1;
		if (is_needed && (i < 0 || layout->planes[i].bytes != 4))
			return kvc_fail(KVC_ENOTFOUND,
					"the layout has no slot plane \"%s\" of 4 bytes; take the "
					"planes of kvc_policy_planes",
					policy_side_names[side]);
		if (is_needed)
			p->side_plane[side] = (int)layout->plane_off[i];
	}
	p->state_plane = kv_layout_find_plane(layout, KV_PLANE_SEQUENCE, POLICY_PLANE_NAME);
	if (state_bytes == 0)
		p->state_plane = -1;
	else if (p->state_plane < 0 || layout->planes[p->state_plane].bytes != state_bytes)
		return kvc_fail(KVC_ENOTFOUND,
				"the layout has no sequence plane \"" POLICY_PLANE_NAME
				"\" of %zu bytes, which policy %s needs; take the planes of "
				"kvc_policy_planes",
				state_bytes, p->ops->name);
	return 0;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* Sizes, and where each layer's state lies; -1 if the options do not suit a layer. */
static int survey(struct kvc_policy *p, size_t *state_bytes)
{
	const struct kv_layout *layout = p->seq->layout->fields;

	*state_bytes = 0;
	for (uint32_t l = 0; l < layout->n_layers; l++) {
		uint32_t n_heads = layout->layers[l].n_query_groups;
		uint32_t n_slots = (uint32_t)layout->layers[l].bound_slots;

		if (policy_check_options(&p->options, p->ops, l, n_heads, n_slots))
			return -1;
		p->layer_off[l] = *state_bytes;
		*state_bytes += policy_layer_bytes(p->ops, n_heads, n_slots);
		p->slots_max = larger(p->slots_max, n_slots);
		p->cells_max = larger(p->cells_max, n_slots * n_heads);
		p->heads_max = larger(p->heads_max, n_heads);
	}
	p->piece_tokens = larger(p->slots_max, PIECE_TOKENS_LEAST);
	if ((uint64_t)p->piece_tokens * p->heads_max > POLICY_CELLS_MAX)
		return kvc_fail(KVC_ETOOBIG,
				"%u slots in one layer and %u heads in another: their product is "
				"at most %u",
				p->piece_tokens, p->heads_max, POLICY_CELLS_MAX);
	return 0;
}

static bool make_room(struct kvc_policy *p)
{
	size_t cells = (size_t)p->cells_max + 1, fresh = (size_t)p->piece_tokens * p->heads_max;
	bool good = true;

	for (enum policy_side side = 0; side < POLICY_SIDES; side++) {
		p->side[side] = calloc(cells, sizeof(uint32_t));
		p->fresh[side] = calloc(fresh, sizeof(uint32_t));
		good &= p->side[side] && p->fresh[side];
	}
	p->scratch = calloc(cells, sizeof(float));
	p->slots = calloc(cells, sizeof(uint32_t));
	p->from = calloc(cells, sizeof(uint32_t));
	p->to = calloc(cells, sizeof(uint32_t));
	p->index = calloc(cells, sizeof(uint32_t));
	p->seen = calloc(p->slots_max / 64 + 1, sizeof(uint64_t));
	p->zeros = calloc(1, policy_scores_off(p->ops) + cells * sizeof(float));
	p->value_errors = calloc(fresh, sizeof(float));
	return good && p->scratch && p->slots && p->from && p->to && p->index && p->seen &&
	       p->zeros && p->value_errors;
}

static int begin(struct kvc_policy *p, const struct kvc_policy_options *options)
{
	size_t state_bytes;

	if (policy_options(options, &p->options, &p->ops))
		return -1;
	p->layer_off = calloc(p->seq->layout->fields->n_layers + 1, sizeof(p->layer_off[0]));
	if (!p->layer_off)
		return kvc_fail(KVC_ENOMEM, "no memory for a policy");
	p->identity = policy_identity(&p->options, p->ops);
	if (survey(p, &state_bytes) || find_planes(p, state_bytes))
		return -1;
	if (!make_room(p))
		return kvc_fail(KVC_ENOMEM, "no memory for a policy over %u slots a head",
				p->slots_max);
	return 0;
}

kvc_policy *kvc_policy_new(kvc_seq *seq, const struct kvc_policy_options *options)
{
	struct kvc_policy *p;

	if (session_check(seq->writer->session))
		return NULL;
	if (seq->layout->fields->n_layers == 0) {
		kvc_fail(KVC_EUNSUPPORTED, "an opaque layout has no policy");
		return NULL;
	}
	p = calloc(1, sizeof(*p));
	if (!p) {
		kvc_fail(KVC_ENOMEM, "no memory for a policy");
		return NULL;
	}
	p->seq = seq;
	if (begin(p, options)) {
		kvc_policy_free(p);
		return NULL;
	}
	return p;
}

void kvc_policy_free(kvc_policy *policy)
{
	if (!policy)
		return;
	for (enum policy_side side = 0; side < POLICY_SIDES; side++) {
		free(policy->side[side]);
		free(policy->fresh[side]);
	}
	free(policy->scratch);
	free(policy->slots);
	free(policy->from);
	free(policy->to);
	free(policy->index);
	free(policy->seen);
	free(policy->zeros);
	free(policy->value_errors);
	free(policy->layer_off);
	free(policy);
}
