/* Attention over a sequence, against sums in f64 over what the shadow holds (mc_sums.h). */
#include <math.h>
#include <string.h>

#include "tests/model/mc_sums.h"

#define CURRENT 3u   /* current tokens, at most */
#define GROUP_MAX 3u /* query heads of a query group */
#define QUERIES (CURRENT * MC_HEADS * GROUP_MAX * MC_WIDTH_MAX)

/* One call. Keys: the slots, and behind them the current tokens. */
struct attention {
	struct mc_world *w;
	const struct mc_state *state;
	uint32_t layer, n_heads, group_heads, k_width, v_width;
	uint64_t n_slots, bound, n_current;
	uint32_t current[MC_HEADS][CURRENT]; /* values */
	struct mc_keys keys[MC_HEADS];
	float q[QUERIES], out[QUERIES]; /* [token][query head] */
	float weights[MC_HEADS * (MC_TOKENS + CURRENT)];
};

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

/* Draws the current tokens of a head, and lists its keys. */
static void draw_keys(struct attention *a, uint32_t head, const char *what)
{
	struct mc_state *state = (struct mc_state *)(uintptr_t)a->state;
	struct mc_keys *keys = &a->keys[head];

	keys->w = a->w;
	keys->what = what;
	keys->layer = a->layer;
	keys->head = head;
	keys->k_width = a->k_width;
	keys->v_width = a->v_width;
	keys->n = a->n_slots + a->n_current;
	for (uint64_t slot = 0; slot < a->n_slots; slot++)
		keys->vectors[slot] = mc_cell_read(a->w,
						   mc_cell(a->w, state, a->layer, head, slot));
	for (uint64_t t = 0; t < a->n_current; t++) {
		a->current[head][t] = mc_value_new(a->w, a->layer);
		keys->vectors[a->n_slots + t] = a->w->values[a->current[head][t]].full;
	}
}

/* Draws a call; false: the layer has no values, or some that are no numbers. */
static bool draw(struct attention *a, struct mc_world *w, const struct mc_state *state,
		 const char *what)
{
	const struct kv_layer *layer;
	double largest = 0;

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
	a->n_current = 1 + mc_draw(w, CURRENT);
	if (a->bound && a->n_current > a->bound)
		a->n_current = a->bound;
	if (!a->v_width)
		return false;
	for (uint32_t h = 0; h < a->n_heads; h++) {
		draw_keys(a, h, what);
		largest = fmax(largest, mc_keys_largest(&a->keys[h]));
	}
	mc_draw_queries(w, a->q, a->n_current * a->n_heads * a->group_heads * a->k_width,
			a->k_width, largest);
	return isfinite(largest);
}

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

static void expect_head(struct attention *a, uint32_t head)
{
	struct mc_keys *keys = &a->keys[head];
	uint64_t n_after = a->bound && keys->n > a->bound ? a->bound : keys->n;
	double weights[MC_KEYS] = {0};

	for (uint64_t i = 0; i < a->n_current; i++) {
		for (uint64_t key = 0; key < keys->n; key++)
			keys->is_seen[key] = is_seen(a, key, i);
		for (uint32_t g = 0; g < a->group_heads; g++) {
			uint32_t query_head = head * a->group_heads + g;
			uint64_t query = i * a->n_heads * a->group_heads + query_head;

			mc_expect_out(keys, i, query_head, a->q + query * a->k_width,
				      a->out + query * a->v_width, weights);
		}
	}
	for (uint64_t slot = 0; slot < n_after; slot++)
		mc_expect_weight(keys, slot, weights[key_after(a, slot)] / a->group_heads,
				 a->weights[head * n_after + slot]);
}

void mc_attend(struct mc_world *w, kvc_seq *seq, const struct mc_shadow *s, const char *what)
{
	static char k[CURRENT * MC_HEADS * MC_WIDTH_MAX * 4], v[sizeof(k)];
	static struct attention a;
	struct kvc_attend_args args = {.size = sizeof(args), .scale = 1};

	if (!draw(&a, w, mc_now(s), what))
		return;
	fill_current(&a, k, v);
	args.n_query_heads = a.n_heads * a.group_heads;
	args.n_tokens = a.n_current;
	args.q = a.q;
	args.k = k;
	args.v = v;
	args.out = a.out;
	args.weights = a.weights;
	MC_CHECK(kvc_attend(seq, a.layer, &args) == 0);
	for (uint32_t h = 0; h < a.n_heads; h++)
		expect_head(&a, h);
}
