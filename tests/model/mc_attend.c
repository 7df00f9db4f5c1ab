/*
 * Attention over a sequence, against sums in f64 over what the shadow holds. Scores are kept small
 * whatever the vectors are like, so that every key that is seen weighs about as much as another: a
 * key too many, too few or wrong shows. Vectors are taken as kvc_read gives them, rounded to the
 * dtype, which kvc_attend does not: the tolerance is for that.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/compute/convert.h"
#include "tests/model/mc.h"

#define KEYS_MAX (MC_TOKENS + MC_CURRENT)
#define MC_CURRENT 3u /* current tokens */
#define WIDTH_MAX 64u
#define GROUP_MAX 3u /* query heads of a query group */
#define TOLERANCE (1.0 / 32)

/* One call. Keys: the slots, and behind them the current tokens. */
struct attention {
	struct mc_world *w;
	const struct mc_state *state;
	uint32_t layer, n_heads, group_heads, k_width, v_width;
	uint64_t n_slots, bound, n_current;
	uint32_t current[MC_HEADS][MC_CURRENT]; /* values */
	float q[MC_CURRENT][MC_HEADS * GROUP_MAX][WIDTH_MAX];
};

static double element(const struct attention *a, const char *vector, uint32_t i)
{
	uint32_t dtype = a->w->layout->dtype;
	uint16_t half;
	float x;

	if (dtype == KV_DTYPE_F32) {
		memcpy(&x, vector + (size_t)i * 4, 4);
		return (double)x;
	}
	memcpy(&half, vector + (size_t)i * 2, 2);
	return (double)(dtype == KV_DTYPE_F16 ? kv_f16_to_f32(half) : kv_bf16_to_f32(half));
}

/* K and behind it V of a key. */
static const char *key_of(const struct attention *a, uint32_t head, uint64_t key)
{
	struct mc_state *state = (struct mc_state *)(uintptr_t)a->state;

	if (key >= a->n_slots)
		return a->w->values[a->current[head][key - a->n_slots]].full;
	return mc_cell_read(a->w, mc_cell(a->w, state, a->layer, head, key));
}

/* Does query i see the key? */
static bool is_seen(const struct attention *a, uint64_t key, uint64_t i)
{
	uint64_t overwritten;

	if (key >= a->n_slots)
		return key - a->n_slots <= i;
	if (!a->bound || a->state->length + i < a->bound)
		return true;
	/* a ring: token p of the slot is seen while it is one of the last `bound` */
	overwritten = a->state->length + i - a->bound;
	for (uint64_t p = 0; p < a->state->length && p <= overwritten; p++)
		if (p % a->bound == key && p + a->bound >= a->state->length)
			return false;
	return true;
}

/* The largest magnitude of the keys; not finite if a key or a value is not: raw formats keep all. */
static double largest_of(const struct attention *a)
{
	double largest = 1e-30;

	for (uint32_t h = 0; h < a->n_heads; h++)
		for (uint64_t key = 0; key < a->n_slots + a->n_current; key++)
			for (uint32_t d = 0; d < a->k_width + a->v_width; d++) {
				double x = fabs(element(a, key_of(a, h, key), d));

				if (!isfinite(x))
					return INFINITY;
				if (d < a->k_width)
					largest = fmax(largest, x);
			}
	return largest;
}

static void draw_queries(struct attention *a, double largest)
{
	for (uint64_t i = 0; i < MC_CURRENT; i++)
		for (uint32_t h = 0; h < a->n_heads * a->group_heads; h++)
			for (uint32_t d = 0; d < a->k_width; d++)
				a->q[i][h][d] = (float)(((double)mc_draw(a->w, 2001) / 1000 - 1) /
							largest / a->k_width);
}

/* Draws a call; false: the layer has no values, or some that are no numbers. */
static bool draw(struct attention *a, struct mc_world *w, const struct mc_state *state)
{
	const struct kv_layer *layer;
	double largest;

	a->w = w;
	a->state = state;
	a->layer = (uint32_t)mc_draw(w, w->layout->n_layers);
	layer = &w->layout->layers[a->layer];
	a->n_heads = layer->n_query_groups;
	a->group_heads = 1 + (uint32_t)mc_draw(w, GROUP_MAX);
	a->k_width = layer->k_width;
	a->v_width = layer->v_width;
	a->bound = layer->bound_slots;
	a->n_slots = mc_slots(w, a->layer, state->length);
	a->n_current = 1 + mc_draw(w, MC_CURRENT);
	if (a->bound && a->n_current > a->bound)
		a->n_current = a->bound;
	if (!a->v_width)
		return false;
	for (uint32_t h = 0; h < a->n_heads; h++)
		for (uint64_t t = 0; t < a->n_current; t++)
			a->current[h][t] = mc_value_new(w, a->layer);
	largest = largest_of(a);
	draw_queries(a, largest);
	return isfinite(largest);
}

/* ---- what it must be ----------------------------------------------------------------------- */

static double dot(const struct attention *a, const float *q, const char *key)
{
	double sum = 0;

	for (uint32_t d = 0; d < a->k_width; d++)
		sum += (double)q[d] * element(a, key, d);
	return sum;
}

/* Adds the weights of a query head to `weights`; its out must be what they make of the values. */
static void expect(const struct attention *a, uint64_t i, uint32_t query_head, const float *out,
		   double *weights, const char *what)
{
	uint32_t head = query_head / a->group_heads;
	uint64_t n = a->n_slots + a->n_current;
	double p[KEYS_MAX], total = 0;

	for (uint64_t key = 0; key < n; key++) {
		p[key] = is_seen(a, key, i) ?
				 exp(dot(a, a->q[i][query_head], key_of(a, head, key))) :
				 0;
		total += p[key];
	}
	for (uint64_t key = 0; key < n; key++)
		weights[key] += p[key] / total / a->group_heads;
	for (uint32_t d = 0; d < a->v_width; d++) {
		double sum = 0, size = 0;

		for (uint64_t key = 0; key < n; key++) {
			double x = element(a, key_of(a, head, key), a->k_width + d);

			sum += p[key] > 0 ? p[key] / total * x : 0;
			size += p[key] > 0 ? p[key] / total * fabs(x) : 0;
		}
		if (!(fabs(sum - (double)out[d]) <= size * TOLERANCE + 1e-30))
			MC_FAIL("%s: attention of layer %u query %llu head %u element %u is %g, "
				"not %g",
				what, a->layer, (unsigned long long)i, query_head, d,
				(double)out[d], sum);
	}
}

/* Which key is in a slot with the update: a current one may have taken it. */
static uint64_t key_after(const struct attention *a, uint64_t slot)
{
	for (uint64_t t = 0; t < a->n_current; t++) {
		uint64_t position = a->state->length + t;

		if ((a->bound ? position % a->bound : position) == slot)
			return a->n_slots + t;
	}
	return slot;
}

static void expect_weights(const struct attention *a, uint32_t head, const double *weights,
			   const float *got, uint64_t n_after, const char *what)
{
	for (uint64_t s = 0; s < n_after; s++) {
		double expected = weights[key_after(a, s)];

		if (!(fabs(expected - (double)got[s]) <= expected * TOLERANCE + 1e-6))
			MC_FAIL("%s: weight of layer %u head %u slot %llu is %g, not %g", what,
				a->layer, head, (unsigned long long)s, (double)got[s], expected);
	}
}

/* ---- the call ------------------------------------------------------------------------------ */

/* Current tokens as kvc_attend takes them: [token][head]. */
static void fill_current(const struct attention *a, char *k, char *v)
{
	uint32_t k_bytes = mc_k_bytes(a->w, a->layer);
	uint32_t v_bytes = mc_full_bytes(a->w, a->layer) - k_bytes;

	for (uint64_t t = 0; t < a->n_current; t++)
		for (uint32_t h = 0; h < a->n_heads; h++) {
			const char *full = a->w->values[a->current[h][t]].full;

			memcpy(k + (t * a->n_heads + h) * k_bytes, full, k_bytes);
			memcpy(v + (t * a->n_heads + h) * v_bytes, full + k_bytes, v_bytes);
		}
}

void mc_attend(struct mc_world *w, kvc_seq *seq, const struct mc_shadow *s, const char *what)
{
	static char k[MC_CURRENT * MC_HEADS * WIDTH_MAX * 4], v[sizeof(k)];
	static float q[MC_CURRENT * MC_HEADS * GROUP_MAX * WIDTH_MAX], out[sizeof(q) / sizeof(*q)];
	static float weights[MC_HEADS * KEYS_MAX];
	static struct attention a;
	uint32_t n_query_heads;
	uint64_t n_after;
	struct kvc_attend_args args = {.size = sizeof(args)};

	if (!draw(&a, w, mc_now(s)))
		return;
	n_query_heads = a.n_heads * a.group_heads;
	for (uint64_t i = 0; i < a.n_current * n_query_heads; i++)
		memcpy(q + i * a.k_width, a.q[i / n_query_heads][i % n_query_heads],
		       a.k_width * sizeof(float));
	fill_current(&a, k, v);
	args.n_query_heads = n_query_heads;
	args.n_tokens = a.n_current;
	args.q = q;
	args.k = k;
	args.v = v;
	args.out = out;
	args.scale = 1;
	args.weights = weights;
	MC_CHECK(kvc_attend(seq, a.layer, &args) == 0);
	n_after = a.n_slots + a.n_current;
	if (a.bound && n_after > a.bound)
		n_after = a.bound;
	for (uint32_t h = 0; h < a.n_heads; h++) {
		double sums[KEYS_MAX] = {0};

		for (uint64_t i = 0; i < a.n_current; i++)
			for (uint32_t g = h * a.group_heads; g < (h + 1) * a.group_heads; g++)
				expect(&a, i, g, out + (i * n_query_heads + g) * a.v_width, sums,
				       what);
		expect_weights(&a, h, sums, weights + h * n_after, n_after, what);
	}
}
