/* States as plain arrays, and what the policy makes of them. */
#include <stdlib.h>
#include <string.h>

#include "tests/model/pw.h"

/* ---- states ------------------------------------------------------------------------------- */

struct pw_state *pw_state_copy(struct pw_world *w, const struct pw_state *from)
{
	size_t bytes = sizeof(*from) + w->n_cells * sizeof(from->cells[0]);
	struct pw_state *state = from ? aligned_alloc(16, (bytes + 15) & ~(size_t)15) : NULL;

	if (from) {
		MC_CHECK(state);
		memcpy(state, from, bytes);
	} else {
		state = aligned_alloc(16, (bytes + 15) & ~(size_t)15);
		MC_CHECK(state);
		memset(state, 0, bytes);
	}
	state->n_refs = 1;
	state->has_digest = false;
	return state;
}

struct pw_state *pw_state_ref(struct pw_state *state)
{
	state->n_refs++;
	return state;
}

void pw_state_unref(struct pw_state *state)
{
	if (--state->n_refs == 0)
		free(state);
}

struct pw_cell *pw_cell(const struct pw_world *w, const struct pw_state *state, uint32_t layer,
			uint32_t head, uint64_t slot)
{
	uint32_t n_heads = w->mc.layout->layers[layer].n_query_groups;

	return (struct pw_cell *)(uintptr_t)&state
		->cells[w->first_cell[layer] + slot * n_heads + head];
}

uint64_t pw_slots(const struct pw_world *w, uint32_t layer, uint64_t length)
{
	uint64_t bound = w->mc.layout->layers[layer].bound_slots;

	return bound && length > bound ? bound : length;
}

const char *pw_read(const struct pw_world *w, const struct pw_cell *cell)
{
	const struct mc_value *value = &w->mc.values[cell->value];

	return cell->row ? value->full : value->read;
}

/* ---- the policy --------------------------------------------------------------------------- */

void pw_see(struct pw_world *w, const struct pw_state *state, const struct pw_state *sides,
	    uint32_t layer, struct pw_view *view)
{
	const struct kv_layer *l = &w->mc.layout->layers[layer];
	const struct pw_layer_state *ls = &state->layers[layer];
	uint64_t n = pw_slots(w, layer, sides->length);

	memset(view->side, 0xee, sizeof(view->side)); /* nobody looks behind what is used */
	for (int side = 0; side < POLICY_SIDES; side++)
		for (uint64_t slot = 0; l->bound_slots && slot < n; slot++)
			for (uint32_t h = 0; h < l->n_query_groups; h++)
				view->side[side][h * l->bound_slots + slot] =
					pw_cell(w, sides, layer, h, slot)->side[side];
	view->layer = (struct kvc_policy_layer){
		.options = &w->resolved,
		.layer = layer,
		.n_heads = l->n_query_groups,
		.n_slots = (uint32_t)l->bound_slots,
		.n_used = (uint32_t)pw_slots(w, layer, state->length),
		.position = state->length,
		.scratch = view->scratch,
		.state = ls->state,
	};
	if (w->ops->needs & KVC_POLICY_SCORES)
		view->layer.scores = ls->scores;
	if (policy_needs(&w->resolved, w->ops, POLICY_POSITION))
		view->layer.positions = (const int32_t *)view->side[POLICY_POSITION];
	if (policy_needs(&w->resolved, w->ops, POLICY_NORM))
		view->layer.norms = (const float *)view->side[POLICY_NORM];
	if (policy_needs(&w->resolved, w->ops, POLICY_ERROR))
		view->layer.errors = (const float *)view->side[POLICY_ERROR];
}

uint64_t pw_limit(struct pw_world *w, const struct pw_state *state)
{
	static struct pw_view view;
	uint64_t least = UINT64_MAX;

	for (uint32_t l = 0; l < w->mc.layout->n_layers; l++) {
		uint64_t n, room;

		if (!w->mc.layout->layers[l].bound_slots)
			continue;
		pw_see(w, state, state, l, &view);
		n = w->ops->limit(&view.layer);
		room = view.layer.n_slots - view.layer.n_used;
		n = room && room < n ? room : n;
		least = n < least ? n : least;
	}
	return least;
}

void pw_choose(struct pw_world *w, const struct pw_state *state, uint32_t layer, uint64_t n,
	       struct pw_plan *plan)
{
	static struct pw_view view;

	plan->plan = (struct kvc_policy_plan){.n_tokens = n, .shared = 1};
	if (!w->mc.layout->layers[layer].bound_slots)
		return;
	plan->plan.slots = plan->slots;
	plan->plan.from = plan->from;
	plan->plan.to = plan->to;
	pw_see(w, state, state, layer, &view);
	w->ops->choose(&view.layer, &plan->plan);
}

static void put_token(struct pw_world *w, struct pw_update *u, uint32_t layer, uint32_t head,
		      uint64_t slot, uint64_t t, const struct pw_tokens *tokens)
{
	uint64_t i = t * w->mc.layout->layers[layer].n_query_groups + head;
	struct pw_cell *cell = pw_cell(w, u->to, layer, head, slot);

	cell->value = tokens->value[i];
	cell->row = u->row;
	cell->side[POLICY_POSITION] = (uint32_t)(u->from->length + t);
	if (w->has_side[POLICY_NORM])
		memcpy(&cell->side[POLICY_NORM], &tokens->norm[i], 4);
	if (w->has_side[POLICY_ERROR])
		memcpy(&cell->side[POLICY_ERROR], &tokens->error[i], 4);
}

/* All at once: what is moved is what was there before. Into a row goes what is read. */
static void put_moves(struct pw_world *w, struct pw_update *u, uint32_t layer, uint32_t head,
		      const struct kvc_policy_plan *plan)
{
	size_t line = plan->shared ? 0 : head;

	for (uint32_t i = 0; i < plan->n_moves; i++) {
		size_t at = line * plan->n_moves + i;
		struct pw_cell *to = pw_cell(w, u->to, layer, head, plan->to[at]);

		*to = *pw_cell(w, u->from, layer, head, plan->from[at]);
		if (u->row && !to->row)
			to->value = mc_value_as_read(&w->mc, to->value);
		to->row = u->row;
	}
}

void pw_put(struct pw_world *w, struct pw_update *u, uint32_t layer, const struct pw_plan *p,
	    const struct pw_tokens *tokens)
{
	const struct kvc_policy_plan *plan = &p->plan;
	uint32_t n_heads = w->mc.layout->layers[layer].n_query_groups;

	for (uint32_t h = 0; h < n_heads; h++) {
		size_t line = plan->shared ? 0 : h;

		if (plan->slots)
			put_moves(w, u, layer, h, plan);
		for (uint64_t t = 0; t < u->n_tokens; t++) {
			uint64_t slot = plan->slots ? plan->slots[line * u->n_tokens + t] :
						      u->from->length + t;

			if (slot != KVC_POLICY_NONE)
				put_token(w, u, layer, h, slot, t, tokens);
		}
	}
}

void pw_settle(struct pw_world *w, struct pw_update *u, uint32_t layer, const struct pw_plan *plan,
	       const float *weights)
{
	static struct pw_view view;
	struct pw_layer_state *to = &u->to->layers[layer];

	if (!w->mc.layout->layers[layer].bound_slots || !w->has_state)
		return;
	pw_see(w, u->from, u->to, layer, &view);
	if (u->s->has_range)
		view.layer.range = &u->s->range;
	memset(to->state, 0, sizeof(to->state));
	w->ops->update(&view.layer, &plan->plan, weights, to->state,
		       view.layer.scores ? to->scores : NULL);
}

/* ---- shadows ------------------------------------------------------------------------------ */

void pw_shadow_init(struct pw_world *w, struct pw_shadow *s)
{
	*s = (struct pw_shadow){.keep_steps = 64};
	pw_push(s, pw_state_copy(w, NULL));
	s->now = 0;
}

void pw_shadow_fini(struct pw_shadow *s)
{
	for (int i = 0; i < s->n; i++)
		pw_state_unref(s->steps[i]);
	free(s->steps);
	*s = (struct pw_shadow){0};
}

void pw_drop_future(struct pw_shadow *s)
{
	while (s->n > s->now + 1)
		pw_state_unref(s->steps[--s->n]);
}

void pw_push(struct pw_shadow *s, struct pw_state *state)
{
	if (s->n)
		pw_drop_future(s);
	s->steps = realloc(s->steps, (size_t)(s->n + 1) * sizeof(struct pw_state *));
	MC_CHECK(s->steps);
	s->steps[s->n] = state;
	s->now = s->n++;
}

void pw_forget(struct pw_shadow *s, int floor)
{
	for (int i = 0; i < floor; i++)
		pw_state_unref(s->steps[i]);
	memmove(s->steps, s->steps + floor, (size_t)(s->n - floor) * sizeof(struct pw_state *));
	s->n -= floor;
	s->now -= floor;
	for (int i = 0; i < s->n_marks; i++)
		s->marks[i].step = s->marks[i].step < floor ? -1 : s->marks[i].step - floor;
}

struct pw_shadow pw_shadow_share(const struct pw_shadow *s)
{
	struct pw_shadow share = {
		.mode = s->mode, .when_full = s->when_full, .keep_steps = s->keep_steps};
	bool stays = s->mode == KVC_JOURNAL_REPLAY && s->has_rows;

	share.has_rows = stays;
	for (int i = stays ? 0 : s->now; i <= s->now; i++)
		pw_push(&share, pw_state_ref(s->steps[i]));
	return share;
}
