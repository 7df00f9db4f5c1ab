/*
 * One layer of one update under a policy: chosen, written, scored. Hot path: no allocation.
 *
 * A choice is bound to the update that it was made in: whoever ends that makes it void, and so does
 * an operator's rollback. What a policy of the caller's own chose is checked before anything is
 * done with it.
 */
#include <string.h>

#include "client/error.h"
#include "client/planes.h"
#include "client/policy.h"
#include "client/policy/policy.h"
#include "client/slots.h"

/* ---- choosing ------------------------------------------------------------------------------- */

static int check_choose(const struct kvc_policy *p, uint32_t layer, uint64_t n_tokens)
{
	const struct kvc_seq *seq = p->seq;

	if (session_check(seq->writer->session) || slots_check_layer(seq->layout->fields, layer))
		return -1;
	if (!seq->is_open || seq->open_tokens != n_tokens || n_tokens == 0)
		return kvc_fail(KVC_EINVAL,
				"no update of %llu tokens is open: kvc_update_begin comes first",
				(unsigned long long)n_tokens);
	return 0;
}

static int check_view(const struct kvc_policy *p, const struct kvc_policy_layer *view,
		      uint64_t n_tokens)
{
	uint64_t limit = policy_limit(p, view);
	bool is_full = view->n_slots && view->n_used == view->n_slots;

	if (n_tokens > limit)
		return kvc_fail(KVC_EBOUND,
				"%llu tokens: policy %s takes at most %llu in layer %u now "
				"(kvc_policy_limit)",
				(unsigned long long)n_tokens, p->ops->name,
				(unsigned long long)limit, view->layer);
	if (is_full && !(p->seq->open_flags & KVC_UPDATE_SCATTER))
		return kvc_fail(KVC_EINVAL,
				"layer %u is full: begin the update with KVC_UPDATE_SCATTER",
				view->layer);
	return 0;
}

static int gather(struct kvc_policy *p, struct kvc_policy_layer *view)
{
	for (enum policy_side side = 0; side < POLICY_SIDES; side++)
		if (view->n_slots && policy_needs(&p->options, p->ops, side) &&
		    policy_gather(p->seq, policy_side_names[side], (uint32_t)p->side_plane[side],
				  view->layer, view->n_used, view->n_slots, (uint32_t *)p->scratch,
				  p->side[side]))
			return -1;
	if (policy_needs(&p->options, p->ops, POLICY_POSITION))
		view->positions = (const int32_t *)p->side[POLICY_POSITION];
	if (policy_needs(&p->options, p->ops, POLICY_NORM))
		view->norms = (const float *)p->side[POLICY_NORM];
	if (policy_needs(&p->options, p->ops, POLICY_ERROR))
		view->errors = (const float *)p->side[POLICY_ERROR];
	return 0;
}

/* Marks a slot; -1 if it is none of the n_slots, or marked. */
static int see(struct kvc_policy *p, uint32_t head, uint32_t slot, uint32_t n_slots)
{
	uint64_t bit = UINT64_C(1) << slot % 64;

	if (slot >= n_slots)
		return kvc_fail(KVC_ERANGE,
				"policy %s: slot %u of head %u; layer %u has %u slots for it",
				p->ops->name, slot, head, p->view.layer, n_slots);
	if (p->seen[slot / 64] & bit)
		return kvc_fail(KVC_EINVAL,
				"policy %s: slot %u of head %u of layer %u is there "
				"twice",
				p->ops->name, slot, head, p->view.layer);
	p->seen[slot / 64] |= bit;
	return 0;
}

/* One head of a plan for a full layer. */
static int check_head(struct kvc_policy *p, uint32_t head)
{
	const struct kvc_policy_plan *plan = &p->plan;
	uint32_t n_slots = p->view.n_slots;

	memset(p->seen, 0, (n_slots / 64 + 1) * sizeof(p->seen[0]));
	for (uint64_t i = 0; i < plan->n_tokens; i++) {
		uint32_t slot = plan->slots[head * plan->n_tokens + i];

		if ((slot == KVC_POLICY_NONE) != (plan->slots[i] == KVC_POLICY_NONE))
			return kvc_fail(KVC_EINVAL,
					"policy %s: token %llu has a slot of some heads only",
					p->ops->name, (unsigned long long)i);
		if (slot != KVC_POLICY_NONE && see(p, head, slot, n_slots))
			return -1;
	}
	for (uint32_t i = 0; i < plan->n_moves; i++) {
		size_t at = (size_t)head * plan->n_moves + i;

		if (see(p, head, plan->to[at], n_slots))
			return -1;
		if (plan->from[at] >= n_slots)
			return kvc_fail(KVC_ERANGE,
					"policy %s: slot %u of head %u is moved; layer "
					"%u has %u",
					p->ops->name, plan->from[at], head, p->view.layer, n_slots);
	}
	return 0;
}

/* A layer that is not full takes slots in the order of tokens. */
static int check_in_order(const struct kvc_policy *p)
{
	const struct kvc_policy_plan *plan = &p->plan;
	uint32_t n_lines = plan->shared ? 1 : p->view.n_heads;

	for (uint64_t i = 0; i < n_lines * plan->n_tokens; i++)
		if (plan->slots[i] != p->view.n_used + i % plan->n_tokens)
			return kvc_fail(KVC_EUNSUPPORTED,
					"policy %s: slot %u for token %llu of layer %u, which has "
					"%u of its slots: until it is full, slots are in order",
					p->ops->name, plan->slots[i],
					(unsigned long long)(i % plan->n_tokens), p->view.layer,
					p->view.n_used);
	if (plan->n_moves)
		return kvc_fail(KVC_EUNSUPPORTED,
				"policy %s moves slots in layer %u, which is not "
				"full",
				p->ops->name, p->view.layer);
	return 0;
}

static int check_plan(struct kvc_policy *p)
{
	const struct kvc_policy_plan *plan = &p->plan;

	if (plan->slots != p->slots || plan->from != p->from || plan->to != p->to)
		return kvc_fail(KVC_EINVAL,
				"policy %s has changed pointers of the plan: it fills the arrays "
				"that are there",
				p->ops->name);
	if (plan->n_moves > plan->n_tokens || plan->n_moves > p->view.n_slots)
		return kvc_fail(KVC_ERANGE, "policy %s moves %u slots for %llu tokens",
				p->ops->name, plan->n_moves, (unsigned long long)plan->n_tokens);
	if (p->view.n_used < p->view.n_slots)
		return check_in_order(p);
	for (uint32_t h = 0; h < (plan->shared ? 1 : p->view.n_heads); h++)
		if (check_head(p, h))
			return -1;
	return 0;
}

int kvc_policy_choose(kvc_policy *policy, uint32_t layer, uint64_t n_tokens,
		      struct kvc_policy_plan *plan)
{
	struct kvc_policy *p = policy;

	p->stage = POLICY_IDLE;
	if (check_choose(p, layer, n_tokens) || policy_view(p, layer, &p->view) ||
	    check_view(p, &p->view, n_tokens) || gather(p, &p->view))
		return -1;
	p->plan = (struct kvc_policy_plan){.n_tokens = n_tokens, .shared = 1};
	if (p->view.n_slots) {
		p->plan.slots = p->slots;
		p->plan.from = p->from;
		p->plan.to = p->to;
		p->ops->choose(&p->view, &p->plan);
		p->plan.n_tokens = n_tokens;
		if (check_plan(p))
			return -1;
	}
	p->layer = layer;
	p->begun = p->seq->n_begun;
	p->is_settled = p->has_fresh_sides = false;
	p->stage = POLICY_CHOSEN;
	*plan = p->plan;
	return 0;
}

/* ---- side values ---------------------------------------------------------------------------- */

static void fresh_positions(struct kvc_policy *p, uint64_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n * p->view.n_heads; i++)
		p->fresh[POLICY_POSITION][i] = (uint32_t)(p->view.position + first +
							  i / p->view.n_heads);
}

static void fresh_norms(struct kvc_policy *p, uint32_t n, const char *v)
{
	const struct kv_layout *layout = p->seq->layout->fields;
	uint32_t width = layout->layers[p->layer].v_width;
	size_t bytes = kv_row_parts(layout, p->layer).v_bytes;
	float *to = (float *)p->fresh[POLICY_NORM];

	for (uint32_t i = 0; i < n * p->view.n_heads; i++)
		to[i] = width ? kv_policy_norm(layout->dtype, width, v + i * bytes) : 0;
}

static int fresh_errors(struct kvc_policy *p, uint32_t n, const char *k, const char *v)
{
	float *to = (float *)p->fresh[POLICY_ERROR];

	if (kvc_quantisation_error(p->seq->layout, p->layer, n, k, v, to,
				   v ? p->value_errors : NULL))
		return -1;
	for (uint32_t i = 0; v && i < n * p->view.n_heads; i++)
		to[i] += p->value_errors[i];
	return 0;
}

/* Tokens to be written, from the first of a piece on. */
struct tokens {
	uint64_t first;
	uint32_t n;
	const char *k, *v;
	const float *norms, *errors; /* NULL: measured */
};

static int make_fresh(struct kvc_policy *p, const struct tokens *t)
{
	size_t bytes = (size_t)t->n * p->view.n_heads * sizeof(float);

	fresh_positions(p, t->first, t->n);
	if (p->side_plane[POLICY_NORM] >= 0) {
		if (t->norms)
			memcpy(p->fresh[POLICY_NORM], t->norms, bytes);
		else
			fresh_norms(p, t->n, t->v);
	}
	if (p->side_plane[POLICY_ERROR] >= 0) {
		if (t->errors)
			memcpy(p->fresh[POLICY_ERROR], t->errors, bytes);
		else
			return fresh_errors(p, t->n, t->k, t->v);
	}
	return 0;
}

/* Side values of one head as they are with the update: moved ones all at once, then new ones. */
static void settle_head(struct kvc_policy *p, uint32_t head, uint32_t *side, const uint32_t *fresh,
			uint64_t first, uint64_t n)
{
	const struct kvc_policy_plan *plan = &p->plan;
	uint32_t line = plan->shared ? 0 : head, *moved = p->index;
	const uint32_t *from = plan->from + (size_t)line * plan->n_moves;
	const uint32_t *to = plan->to + (size_t)line * plan->n_moves;

	for (uint32_t i = 0; i < plan->n_moves; i++)
		moved[i] = side[from[i]];
	for (uint32_t i = 0; i < plan->n_moves; i++)
		side[to[i]] = moved[i];
	for (uint64_t i = 0; i < n; i++) {
		uint32_t slot = plan->slots[line * plan->n_tokens + first + i];

		if (slot != KVC_POLICY_NONE)
			side[slot] = fresh[i * p->view.n_heads + head];
	}
}

static void settle_sides(struct kvc_policy *p, uint64_t first, uint64_t n)
{
	for (enum policy_side side = 0; p->plan.slots && side < POLICY_SIDES; side++)
		for (uint32_t h = 0; policy_needs(&p->options, p->ops, side) && h < p->view.n_heads;
		     h++)
			settle_head(p, h, p->side[side] + (size_t)h * p->view.n_slots,
				    p->fresh[side], first, n);
}

/* ---- writing -------------------------------------------------------------------------------- */

/* The planes of fresh tokens from `first` on, by their numbers. */
static void name_planes(const struct kvc_policy *p, uint64_t first,
			const void *planes[KV_PLANES_MAX])
{
	memset(planes, 0, KV_PLANES_MAX * sizeof(planes[0]));
	for (enum policy_side side = 0; side < POLICY_SIDES; side++)
		if (p->side_plane[side] >= 0)
			planes[p->side_plane[side]] = p->fresh[side] + first * p->view.n_heads;
}

static struct tokens tokens_from(const struct kvc_policy *p, struct tokens all, uint64_t first)
{
	struct kv_row_parts parts = kv_row_parts(p->seq->layout->fields, p->layer);
	uint64_t n_rows = first * p->view.n_heads;

	all.first = first;
	all.k += n_rows * parts.k_bytes;
	if (all.v)
		all.v += n_rows * parts.v_bytes;
	if (all.norms)
		all.norms += n_rows;
	if (all.errors)
		all.errors += n_rows;
	return all;
}

/* Slots in order: the tokens are appended. */
static int append(struct kvc_policy *p, const struct tokens *all)
{
	const void *planes[KV_PLANES_MAX];

	if (kvc_write(p->seq, p->layer, all->k, all->v))
		return -1;
	for (uint64_t done = 0; done < p->plan.n_tokens;) {
		struct tokens piece = tokens_from(p, *all, done);
		uint64_t left = p->plan.n_tokens - done;

		piece.n = left < p->piece_tokens ? (uint32_t)left : p->piece_tokens;
		if (make_fresh(p, &piece))
			return -1;
		name_planes(p, 0, planes);
		if (kvc_write_planes(p->seq, p->layer, done, piece.n, planes))
			return -1;
		settle_sides(p, done, piece.n);
		done += piece.n;
	}
	return 0;
}

/* Tokens [first, end) of a full layer, which all have a slot. */
static int scatter_run(struct kvc_policy *p, const struct tokens *all, uint64_t first, uint64_t end)
{
	struct tokens run = tokens_from(p, *all, first);
	uint64_t n = end - first, n_lines = p->plan.shared ? 1 : p->view.n_heads;
	const void *planes[KV_PLANES_MAX];
	const uint32_t *index = p->plan.slots;

	if (n == 0)
		return 0;
	if (n < p->plan.n_tokens) {
		index = p->index;
		for (uint64_t h = 0; h < n_lines; h++)
			memcpy(p->index + h * n, p->plan.slots + h * p->plan.n_tokens + first,
			       n * sizeof(index[0]));
	}
	name_planes(p, first, planes);
	return kvc_scatter(p->seq, p->layer, n, index, p->plan.shared, run.k, run.v, planes);
}

static int overwrite(struct kvc_policy *p, const struct tokens *all)
{
	const struct kvc_policy_plan *plan = &p->plan;
	uint64_t first = 0;

	if (make_fresh(p, all))
		return -1;
	if (plan->n_moves &&
	    kvc_move(p->seq, p->layer, plan->n_moves, plan->from, plan->to, plan->shared))
		return -1;
	for (uint64_t i = 0; i < plan->n_tokens; i++) {
		if (plan->slots[i] != KVC_POLICY_NONE)
			continue;
		if (scatter_run(p, all, first, i))
			return -1;
		first = i + 1;
	}
	if (scatter_run(p, all, first, plan->n_tokens))
		return -1;
	if (!p->has_fresh_sides)
		settle_sides(p, 0, plan->n_tokens);
	p->has_fresh_sides = true; /* a call that is repeated moves nothing twice */
	return 0;
}

/* ---- the state behind the update ------------------------------------------------------------ */

static int settle(struct kvc_policy *p, const float *weights)
{
	const struct policy_stamp stamp = {p->view.position + p->plan.n_tokens, p->identity};
	char *to = NULL;

	if (p->is_settled)
		return 0;
	if (p->state_plane >= 0 && p->view.n_slots) {
		to = planes_write(p->seq, (uint32_t)p->state_plane, p->layer_off[p->layer],
				  policy_layer_bytes(p->ops, p->view.n_heads, p->view.n_slots));
		if (!to)
			return -1;
		memset(to, 0, policy_scores_off(p->ops));
		memcpy(to, &stamp, sizeof(stamp));
		p->view.range = p->has_range && p->range_committed == p->seq->n_committed ?
					&p->range :
					NULL;
		p->ops->update(&p->view, &p->plan, weights, to + sizeof(stamp),
			       p->view.scores ? (void *)(to + policy_scores_off(p->ops)) : NULL);
	}
	p->is_settled = true;
	return 0;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int check_stage(const struct kvc_policy *p, uint32_t layer, enum policy_stage stage)
{
	const struct kvc_seq *seq = p->seq;

	if (session_check(seq->writer->session))
		return -1;
	if (p->stage != stage || p->layer != layer)
		return kvc_fail(KVC_EINVAL, "kvc_policy_%s comes first, for layer %u",
				stage == POLICY_CHOSEN ? "choose" : "write", layer);
	if (policy_is_overtaken(p) || !seq->is_open || seq->n_begun != p->begun)
		return kvc_fail(KVC_EMOVED,
				"the sequence was rolled back, or its update ended, since slots of "
				"layer %u were chosen; begin the update again",
				layer);
	return 0;
}

int kvc_policy_write(kvc_policy *policy, uint32_t layer, const void *k, const void *v,
		     const float *norms, const float *errors)
{
	struct kvc_policy *p = policy;
	struct tokens all = {.k = k, .v = v, .norms = norms, .errors = errors};
	bool is_full = p->view.n_slots && p->view.n_used == p->view.n_slots;

	if (check_stage(p, layer, POLICY_CHOSEN))
		return -1;
	if (!k || (p->seq->layout->fields->layers[layer].v_width && !v))
		return kvc_fail(KVC_EINVAL, "k or v is NULL");
	all.n = is_full ? (uint32_t)p->plan.n_tokens : 0;
	if (is_full ? overwrite(p, &all) : append(p, &all))
		return -1;
	if ((!p->view.scores || p->view.position == 0) && settle(p, NULL))
		return -1;
	p->stage = POLICY_WRITTEN;
	return 0;
}

int kvc_policy_score(kvc_policy *policy, uint32_t layer, const float *weights)
{
	if (check_stage(policy, layer, POLICY_WRITTEN))
		return -1;
	return settle(policy, weights);
}
