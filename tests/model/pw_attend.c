/*
 * Attention inside an update whose slots a policy has chosen, against sums in f64 over what the
 * shadow has in the slots then. Scores are kept small, so that every key that is seen weighs about
 * as much as another: one too many, too few or wrong shows. The tolerance is for vectors that the
 * shadow has as kvc_read gives them, rounded to the dtype.
 */
#include <math.h>
#include <string.h>

#include "client/compute/convert.h"
#include "tests/model/pw.h"

#define WIDTH_MAX 64u
#define GROUP_MAX 2u
#define TOLERANCE (1.0 / 32)

struct key {
	const char *vector; /* K, and V behind it */
	int64_t position;
	int64_t token; /* of the update; -1: it was there before */
};

struct attention {
	struct pw_world *w;
	const struct pw_update *u;
	uint32_t layer, n_heads, group_heads, k_width, v_width;
	uint64_t n_slots, window;
	uint64_t n_keys[PW_HEADS]; /* slots, then tokens that are in none */
	struct key keys[PW_HEADS][PW_KEYS];
	float q[PW_TOKENS * PW_HEADS * GROUP_MAX * WIDTH_MAX];
	float out[PW_TOKENS * PW_HEADS * GROUP_MAX * WIDTH_MAX];
};

static double element(const struct attention *a, const char *vector, uint32_t i)
{
	uint32_t dtype = a->w->mc.layout->dtype;
	uint16_t half;
	float x;

	if (dtype == KV_DTYPE_F32) {
		memcpy(&x, vector + (size_t)i * 4, 4);
		return (double)x;
	}
	memcpy(&half, vector + (size_t)i * 2, 2);
	return (double)(dtype == KV_DTYPE_F16 ? kv_f16_to_f32(half) : kv_bf16_to_f32(half));
}

/* ---- keys --------------------------------------------------------------------------------- */

static uint64_t slot_of(const struct attention *a, const struct kvc_policy_plan *plan,
			uint32_t head, uint64_t t)
{
	if (!plan->slots)
		return a->u->from->length + t;
	return plan->slots[(plan->shared ? 0 : head) * plan->n_tokens + t];
}

static void list_keys(struct attention *a, const struct kvc_policy_plan *plan,
		      const struct pw_tokens *tokens, uint32_t head)
{
	struct key *keys = a->keys[head];
	uint64_t n = a->n_slots;

	for (uint64_t slot = 0; slot < n; slot++) {
		const struct pw_cell *cell = pw_cell(a->w, a->u->to, a->layer, head, slot);

		keys[slot] = (struct key){pw_read(a->w, cell), (int32_t)cell->side[POLICY_POSITION],
					  -1};
	}
	for (uint64_t t = 0; t < plan->n_tokens; t++) {
		uint64_t slot = slot_of(a, plan, head, t);

		if (slot == KVC_POLICY_NONE)
			slot = n++;
		keys[slot] = (struct key){
			a->w->mc.values[tokens->value[t * a->n_heads + head]].full,
			(int64_t)(a->u->from->length + t), (int64_t)t};
	}
	a->n_keys[head] = n;
}

static bool is_seen(const struct attention *a, const struct key *key, uint64_t query)
{
	int64_t position = (int64_t)(a->u->from->length + query);

	if (key->token > (int64_t)query)
		return false;
	return a->window == 0 || position - key->position < (int64_t)a->window;
}

/* The largest magnitude of the keys; not finite if something is not. */
static double largest_of(const struct attention *a)
{
	double largest = 1e-30;

	for (uint32_t h = 0; h < a->n_heads; h++)
		for (uint64_t key = 0; key < a->n_keys[h]; key++)
			for (uint32_t d = 0; d < a->k_width + a->v_width; d++) {
				double x = fabs(element(a, a->keys[h][key].vector, d));

				if (!isfinite(x))
					return INFINITY;
				if (d < a->k_width)
					largest = fmax(largest, x);
			}
	return largest;
}

static void draw_queries(struct attention *a, double largest)
{
	uint64_t n = a->u->n_tokens * a->n_heads * a->group_heads * a->k_width;

	for (uint64_t i = 0; i < n; i++)
		a->q[i] = (float)(((double)mc_draw(&a->w->mc, 2001) / 1000 - 1) / largest /
				  a->k_width);
}

/* ---- what it must be ---------------------------------------------------------------------- */

static double weigh(const struct attention *a, const struct key *key, uint64_t query,
		    uint32_t query_head)
{
	const float *q = a->q + (query * a->n_heads * a->group_heads + query_head) * a->k_width;
	double sum = 0;

	if (!is_seen(a, key, query))
		return 0;
	for (uint32_t d = 0; d < a->k_width; d++)
		sum += (double)q[d] * element(a, key->vector, d);
	return exp(sum);
}

static void check_query(const struct attention *a, uint64_t query, uint32_t query_head,
			double *weights)
{
	uint32_t head = query_head / a->group_heads;
	const float *out = a->out + (query * a->n_heads * a->group_heads + query_head) * a->v_width;
	double p[PW_KEYS], total = 0;

	for (uint64_t key = 0; key < a->n_keys[head]; key++)
		total += p[key] = weigh(a, &a->keys[head][key], query, query_head);
	for (uint64_t key = 0; key < a->n_keys[head]; key++)
		weights[key] += p[key] /= total;
	for (uint32_t d = 0; d < a->v_width; d++) {
		double sum = 0, size = 0;

		for (uint64_t key = 0; key < a->n_keys[head]; key++) {
			double x = element(a, a->keys[head][key].vector, a->k_width + d);

			sum += p[key] * x;
			size += p[key] * fabs(x);
		}
		if (!(fabs(sum - (double)out[d]) <= size * TOLERANCE + 1e-30))
			MC_FAIL("attention of layer %u query %llu head %u element %u is %g, not %g",
				a->layer, (unsigned long long)query, query_head, d, (double)out[d],
				sum);
	}
}

static void check_head(const struct attention *a, uint32_t head, const float *got, bool is_sum)
{
	double weights[PW_KEYS] = {0};

	for (uint64_t i = 0; i < a->u->n_tokens; i++)
		for (uint32_t g = 0; g < a->group_heads; g++)
			check_query(a, i, head * a->group_heads + g, weights);
	for (uint64_t slot = 0; slot < a->n_slots; slot++) {
		double expected = weights[slot] / (is_sum ? 1 : a->group_heads);

		if (!(fabs(expected - (double)got[slot]) <= expected * TOLERANCE + 1e-6))
			MC_FAIL("weight of layer %u head %u slot %llu is %g, not %g", a->layer,
				head, (unsigned long long)slot, (double)got[slot], expected);
	}
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
	double largest;

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
	for (uint32_t h = 0; h < a.n_heads; h++)
		list_keys(&a, &plan->plan, tokens, h);
	largest = largest_of(&a);
	if (!isfinite(largest))
		return false;
	draw_queries(&a, largest);
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
