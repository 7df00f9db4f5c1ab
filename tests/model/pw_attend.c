/*
 * Attention inside an update whose slots a policy has chosen, against sums in f64 over what the
 * shadow has in the slots then (mc_sums.h).
 */
#include <math.h>

#include "tests/model/mc_sums.h"
#include "tests/model/pw.h"

#define GROUP_MAX 2u
#define QUERIES (PW_TOKENS * PW_HEADS * GROUP_MAX * MC_WIDTH_MAX)

static_assert(MC_KEYS >= 2 * PW_TOKENS, "slots, and tokens that are in none");

struct attention {
	struct pw_world *w;
	const struct pw_update *u;
	uint32_t layer, n_heads, group_heads, k_width, v_width;
	uint64_t n_slots, window;
	struct mc_keys keys[PW_HEADS]; /* slots, then tokens that are in none */
	struct {
		int64_t position;
		int64_t token; /* of the update; -1: it was there before */
	} of[PW_HEADS][MC_KEYS];
	float q[QUERIES], out[QUERIES];
};

/* ---- keys --------------------------------------------------------------------------------- */

static uint64_t slot_of(const struct attention *a, const struct kvc_policy_plan *plan,
			uint32_t head, uint64_t t)
{
	if (!plan->slots)
		return a->u->from->length + t;
	return plan->slots[(plan->shared ? 0 : head) * plan->n_tokens + t];
}

static void put_key(struct attention *a, uint32_t head, uint64_t key, const char *vector,
		    int64_t position, int64_t token)
{
	a->keys[head].vectors[key] = vector;
	a->of[head][key].position = position;
	a->of[head][key].token = token;
}

static void list_keys(struct attention *a, const struct kvc_policy_plan *plan,
		      const struct pw_tokens *tokens, uint32_t head)
{
	uint64_t n = a->n_slots;

	for (uint64_t slot = 0; slot < n; slot++) {
		const struct pw_cell *cell = pw_cell(a->w, a->u->to, a->layer, head, slot);

		put_key(a, head, slot, pw_read(a->w, cell), (int32_t)cell->side[POLICY_POSITION],
			-1);
	}
	for (uint64_t t = 0; t < plan->n_tokens; t++) {
		uint64_t slot = slot_of(a, plan, head, t);

		if (slot == KVC_POLICY_NONE)
			slot = n++;
		put_key(a, head, slot, a->w->mc.values[tokens->value[t * a->n_heads + head]].full,
			(int64_t)(a->u->from->length + t), (int64_t)t);
	}
	a->keys[head].w = &a->w->mc;
	a->keys[head].what = "an update";
	a->keys[head].layer = a->layer;
	a->keys[head].head = head;
	a->keys[head].k_width = a->k_width;
	a->keys[head].v_width = a->v_width;
	a->keys[head].n = n;
}

static bool is_seen(const struct attention *a, uint32_t head, uint64_t key, uint64_t query)
{
	int64_t position = (int64_t)(a->u->from->length + query);

	if (a->of[head][key].token > (int64_t)query)
		return false;
	return a->window == 0 || position - a->of[head][key].position < (int64_t)a->window;
}

static void check_head(struct attention *a, uint32_t head, const float *got, bool is_sum)
{
	struct mc_keys *keys = &a->keys[head];
	double weights[MC_KEYS] = {0};

	for (uint64_t i = 0; i < a->u->n_tokens; i++) {
		for (uint64_t key = 0; key < keys->n; key++)
			keys->is_seen[key] = is_seen(a, head, key, i);
		for (uint32_t g = 0; g < a->group_heads; g++) {
			uint32_t query_head = head * a->group_heads + g;
			uint64_t query = i * a->n_heads * a->group_heads + query_head;

			mc_expect_out(keys, i, query_head, a->q + query * a->k_width,
				      a->out + query * a->v_width, weights);
		}
	}
	for (uint64_t slot = 0; slot < a->n_slots; slot++)
		mc_expect_weight(keys, slot, weights[slot] / (is_sum ? 1 : a->group_heads),
				 got[slot]);
}

/* ---- the call ------------------------------------------------------------------------------ */

/* [head][slot], as they are with the update. */
static void fill_positions(const struct attention *a, int32_t *positions)
{
	for (uint32_t h = 0; h < a->n_heads; h++)
		for (uint64_t slot = 0; slot < a->n_slots; slot++)
			positions[h * a->n_slots + slot] = (int32_t)pw_cell(a->w, a->u->to,
									    a->layer, h, slot)
								   ->side[POLICY_POSITION];
}

bool pw_attend(struct pw_world *w, const struct pw_update *u, uint32_t layer,
	       const struct pw_plan *plan, const struct pw_tokens *tokens, const char *k,
	       const char *v, float *weights)
{
	static struct attention a;
	static int32_t positions[PW_HEADS * PW_TOKENS];
	const struct kv_layer *l = &w->mc.layout->layers[layer];
	struct kvc_attend_args args = {.size = sizeof(args), .k = k, .v = v, .scale = 1};
	double largest = 0;

	a.w = w;
	a.u = u;
	a.layer = layer;
	a.n_heads = l->n_query_groups;
	a.group_heads = 1 + (uint32_t)mc_draw(&w->mc, GROUP_MAX);
	a.k_width = l->k_width;
	a.v_width = l->v_width;
	a.n_slots = pw_slots(w, layer, u->to->length);
	a.window = mc_one_in(&w->mc, 3) ? 1 + mc_draw(&w->mc, PW_SLOTS) : 0;
	if (!a.v_width)
		return false;
	for (uint32_t h = 0; h < a.n_heads; h++) {
		list_keys(&a, &plan->plan, tokens, h);
		largest = fmax(largest, mc_keys_largest(&a.keys[h]));
	}
	if (!isfinite(largest))
		return false;
	mc_draw_queries(&w->mc, a.q, u->n_tokens * a.n_heads * a.group_heads * a.k_width, a.k_width,
			largest);
	args.n_query_heads = a.n_heads * a.group_heads;
	args.n_tokens = u->n_tokens;
	args.q = a.q;
	args.out = a.out;
	args.window_tokens = a.window;
	args.weights = weights;
	args.weights_how = mc_one_in(&w->mc, 2) ? KVC_WEIGHTS_SUM : KVC_WEIGHTS_MEAN;
	if (plan->plan.slots) {
		args.slots = plan->plan.slots;
		args.shared_slots = plan->plan.shared;
		fill_positions(&a, positions);
		args.positions = positions;
		args.first_position = (int64_t)u->from->length;
	}
	if (kvc_attend(u->s->seq, layer, &args))
		MC_FAIL("attend: %s", kvc_error_text());
	for (uint32_t h = 0; h < a.n_heads; h++)
		check_head(&a, h, weights + h * a.n_slots, args.weights_how == KVC_WEIGHTS_SUM);
	return true;
}
