#include "tests/unit/attend-world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/compute/convert.h"
#include "tests/support/runner.h"

/* ---- tokens -------------------------------------------------------------------------------- */

static float element(uint64_t key, uint32_t i)
{
	uint64_t x = (key + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xd1342543de82ef95);

	x ^= x >> 31;
	x *= UINT64_C(0x7fb5d329728ea185);
	x ^= x >> 27;
	x *= UINT64_C(0x81dadef4bc2dd44d);
	x ^= x >> 33;
	return (float)(int32_t)(x >> 40) / 4194304.0f - 2.0f;
}

static uint32_t width_of(const struct jw *w, bool is_value)
{
	return is_value ? w->layout->layers[0].v_width : w->layout->layers[0].k_width;
}

void *aw_vectors(const struct jw *w, bool is_value, uint64_t first, uint64_t n)
{
	uint32_t n_heads = w->layout->layers[0].n_query_groups, width = width_of(w, is_value);
	char *vectors = calloc(n * n_heads * width + 1, 4);

	for (uint64_t i = 0; i < n * n_heads; i++)
		for (uint32_t d = 0; d < width; d++)
			kv_element_set(
				w->layout->dtype, vectors, i * width + d,
				element(((first + i / n_heads) * 64 + i % n_heads) * 2 + is_value,
					d));
	return vectors;
}

float *aw_queries(const struct jw *w, uint32_t n_query_heads, uint64_t first, uint64_t n)
{
	uint32_t width = width_of(w, false);
	float *q = calloc(n * n_query_heads * width + 1, sizeof(*q));

	for (uint64_t i = 0; i < n * n_query_heads; i++)
		for (uint32_t d = 0; d < width; d++)
			q[i * width + d] = element((first + i / n_query_heads) * 1000003 +
							   i % n_query_heads + 77777777,
						   d);
	return q;
}

void aw_append(struct jw *w, kvc_seq *seq, uint64_t first, uint64_t n, uint64_t chunk)
{
	uint32_t n_heads = w->layout->layers[0].n_query_groups;

	for (uint64_t end = first + n; first < end; first += n) {
		void *k, *v;

		n = end - first < chunk ? end - first : chunk;
		k = aw_vectors(w, false, first, n);
		v = aw_vectors(w, true, first, n);
		jw_reserve(w, seq, n, n * n_heads);
		jw_ok(kvc_append_begin(seq, n));
		jw_ok(kvc_write(seq, 0, k, v));
		jw_ok(kvc_commit(w->writer, &seq, 1));
		free(k);
		free(v);
	}
}

/* ---- a call -------------------------------------------------------------------------------- */

void aw_call_init(struct aw_call *call, struct jw *w, uint32_t n_query_heads, uint64_t first,
		  uint64_t n_tokens, bool is_current)
{
	memset(call, 0, sizeof(*call));
	call->q = aw_queries(w, n_query_heads, first, n_tokens);
	if (is_current) {
		call->k = aw_vectors(w, false, first, n_tokens);
		call->v = aw_vectors(w, true, first, n_tokens);
	}
	call->n_out = n_tokens * n_query_heads * width_of(w, true);
	call->out = malloc(call->n_out * sizeof(float));
	memset(call->out, 0xff, call->n_out * sizeof(float));
	call->args = (struct kvc_attend_args){
		.size = sizeof(call->args),
		.n_query_heads = n_query_heads,
		.n_tokens = n_tokens,
		.q = call->q,
		.k = call->k,
		.v = call->v,
		.out = call->out,
	};
}

void aw_call_weights(struct aw_call *call, struct jw *w, uint64_t n_slots)
{
	call->n_weights = n_slots * w->layout->layers[0].n_query_groups;
	call->weights = malloc(call->n_weights * sizeof(float) + 1);
	memset(call->weights, 0xff, call->n_weights * sizeof(float));
	call->args.weights = call->weights;
}

void aw_call_free(struct aw_call *call)
{
	free(call->k);
	free(call->v);
	free(call->q);
	free(call->out);
	free(call->weights);
}

/* ---- keys ---------------------------------------------------------------------------------- */

struct aw_keys *aw_keys_new(void)
{
	struct aw_keys *keys = calloc(1, sizeof(*keys));

	for (uint32_t h = 0; h < AW_HEADS; h++)
		keys->keys[h] = calloc(AW_KEYS, sizeof(struct aw_key));
	return keys;
}

void aw_keys_free(struct aw_keys *keys)
{
	for (uint32_t h = 0; h < AW_HEADS; h++)
		free(keys->keys[h]);
	free(keys);
}

static struct aw_key *next_key(struct aw_keys *keys, uint32_t head)
{
	assert_true(head < AW_HEADS && keys->n[head] < AW_KEYS);
	return &keys->keys[head][keys->n[head]++];
}

void aw_key_cached(struct jw *w, kvc_seq *seq, struct aw_keys *keys, uint32_t head, uint64_t slot,
		   int64_t position)
{
	struct aw_key *key = next_key(keys, head);
	static float k[AW_HEADS * 256], v[AW_HEADS * 256];

	jw_ok(kvc_read(seq, 0, slot, 1, k, v));
	for (uint32_t d = 0; d < width_of(w, false); d++)
		key->k[d] = kv_element(w->layout->dtype, (const char *)k,
				       head * width_of(w, false) + d);
	for (uint32_t d = 0; d < width_of(w, true); d++)
		key->v[d] = kv_element(w->layout->dtype, (const char *)v,
				       head * width_of(w, true) + d);
	key->position = position;
	key->current = -1;
	key->slot = (uint32_t)slot;
}

void aw_key_current(struct jw *w, const struct aw_call *call, struct aw_keys *keys, uint32_t head,
		    uint64_t token, int64_t position, uint32_t slot)
{
	struct aw_key *key = next_key(keys, head);
	uint64_t i = token * w->layout->layers[0].n_query_groups + head;

	for (uint32_t d = 0; d < width_of(w, false); d++)
		key->k[d] = kv_element(w->layout->dtype, call->k, i * width_of(w, false) + d);
	for (uint32_t d = 0; d < width_of(w, true); d++)
		key->v[d] = kv_element(w->layout->dtype, call->v, i * width_of(w, true) + d);
	key->position = position;
	key->current = (int64_t)token;
	key->slot = slot;
}

static uint64_t length_of(kvc_seq *seq, const struct aw_call *call)
{
	return call->args.length_tokens ? call->args.length_tokens : kvc_length(seq);
}

static int64_t first_position_of(kvc_seq *seq, const struct aw_call *call)
{
	uint64_t length = length_of(seq, call);

	return (int64_t)(call->k ? length : length - call->args.n_tokens);
}

struct aw_keys *aw_keys_of(struct jw *w, kvc_seq *seq, const struct aw_call *call)
{
	struct aw_keys *keys = aw_keys_new();
	uint64_t bound = w->layout->layers[0].bound_slots, length = length_of(seq, call);
	uint64_t committed = kvc_length(seq);
	uint64_t oldest = bound && committed > bound ? committed - bound : 0;
	uint64_t after = length + (call->k ? call->args.n_tokens : 0);

	for (uint32_t h = 0; h < w->layout->layers[0].n_query_groups; h++) {
		for (uint64_t p = oldest; p < length; p++) {
			aw_key_cached(w, seq, keys, h, bound ? p % bound : p, (int64_t)p);
			if (bound && p + bound < after) /* overwritten */
				keys->keys[h][keys->n[h] - 1].slot = UINT32_MAX;
		}
		for (uint64_t t = 0; call->k && t < call->args.n_tokens; t++) {
			uint64_t p = length + t;
			bool gone = bound && p + bound < after;

			aw_key_current(w, call, keys, h, t, (int64_t)p,
				       gone  ? UINT32_MAX :
				       bound ? (uint32_t)(p % bound) :
					       (uint32_t)p);
		}
	}
	return keys;
}

/* ---- reference ----------------------------------------------------------------------------- */

struct one_query {
	double out[256];
	double p[AW_KEYS];
	double error; /* of a score */
	double most;  /* largest |v| */
};

static double score_of(const struct jw *w, const struct aw_call *call, const float *q,
		       const struct aw_key *key, double *error)
{
	uint32_t width = width_of(w, false);
	double dot = 0, a = 0, b = 0, most = 0;
	double scale = call->args.scale != 0 ? call->args.scale : 1 / sqrt(width);

	for (uint32_t d = 0; d < width; d++) {
		dot += (double)q[d] * key->k[d];
		a += fabs((double)q[d] * key->k[d]);
		b += fabs((double)key->k[d]);
		most = fmax(most, fabs((double)q[d]));
	}
	*error = fabs(scale) * a * (width / 8.0 + 8) * 0x1p-24;
	if (w->layout->k_format != KV_FORMAT_RAW && w->layout->k_format != KV_FORMAT_FP8)
		*error += fabs(scale) * (b * most * exp2(-15.9) + a * 0x1p-20);
	/* what kvc_read has rounded */
	*error += fabs(scale) * a *
		  (w->layout->dtype == KV_DTYPE_F32 || w->layout->k_format == KV_FORMAT_RAW ?
			   0x1p-23 :
			   0x1p-8);
	dot *= scale;
	if (call->args.softcap != 0)
		dot = call->args.softcap * tanh(dot / call->args.softcap);
	return dot;
}

static bool sees(const struct aw_key *key, int64_t token, int64_t first_position, uint64_t window)
{
	int64_t position = first_position + token;

	if (key->current > token)
		return false;
	return !window || position - key->position < (int64_t)window;
}

/* seen[i]: of the head's keys. */
static void refer(const struct jw *w, const struct aw_call *call, const struct aw_keys *keys,
		  const bool *seen, uint64_t token, uint32_t query_head, struct one_query *one)
{
	uint32_t group = call->args.n_query_heads / w->layout->layers[0].n_query_groups;
	uint32_t head = query_head / group;
	const float *q = call->q +
			 (token * call->args.n_query_heads + query_head) * width_of(w, false);
	double m = call->args.sinks ? (double)call->args.sinks[query_head] : -INFINITY;
	double sum = 0, error;

	memset(one, 0, sizeof(*one));
	for (uint32_t i = 0; i < keys->n[head]; i++) {
		if (!seen[i])
			continue;
		one->p[i] = score_of(w, call, q, &keys->keys[head][i], &error);
		one->error = fmax(one->error, error);
		m = fmax(m, one->p[i]);
	}
	if (call->args.sinks)
		sum = exp((double)call->args.sinks[query_head] - m);
	for (uint32_t i = 0; i < keys->n[head]; i++) {
		one->p[i] = seen[i] ? exp(one->p[i] - m) : 0;
		sum += one->p[i];
	}
	for (uint32_t i = 0; sum > 0 && i < keys->n[head]; i++) {
		one->p[i] /= sum;
		for (uint32_t d = 0; seen[i] && d < width_of(w, true); d++) {
			one->out[d] += one->p[i] * keys->keys[head][i].v[d];
			one->most = fmax(one->most, fabs((double)keys->keys[head][i].v[d]));
		}
	}
}

static double value_error(const struct jw *w)
{
	return w->layout->dtype == KV_DTYPE_F32 || w->layout->v_format == KV_FORMAT_RAW ? 0 :
											  0x1p-8;
}

static void check_out(const struct jw *w, const struct aw_call *call, uint64_t token,
		      uint32_t query_head, const struct one_query *one)
{
	uint32_t width = width_of(w, true);
	const float *out = call->out + (token * call->args.n_query_heads + query_head) * width;
	double bound = (2 * one->error + 0x1p-16 + value_error(w)) * one->most;

	for (uint32_t d = 0; d < width; d++)
		if (!(fabs((double)out[d] - one->out[d]) <= bound))
			fail_msg("token %llu, query head %u, element %u: %.9g, want %.9g within %g",
				 (unsigned long long)token, query_head, d, (double)out[d],
				 one->out[d], bound);
}

static void check_weights(const struct jw *w, const struct aw_call *call, const double *want,
			  double bound)
{
	uint64_t n_slots = call->n_weights / w->layout->layers[0].n_query_groups;

	for (uint64_t i = 0; i < call->n_weights; i++)
		if (!(fabs((double)call->weights[i] - want[i]) <= bound * (want[i] + 0x1p-20)))
			fail_msg("weight of head %llu, slot %llu: %.9g, want %.9g",
				 (unsigned long long)(i / n_slots),
				 (unsigned long long)(i % n_slots), (double)call->weights[i],
				 want[i]);
}

void aw_check(struct jw *w, const struct aw_call *call, const struct aw_keys *keys,
	      int64_t first_position, uint64_t window)
{
	uint32_t n_heads = w->layout->layers[0].n_query_groups;
	uint32_t group = call->args.n_query_heads / n_heads;
	double *weights = calloc(call->n_weights + 1, sizeof(*weights)), error = 0;
	double share = call->args.weights_how == KVC_WEIGHTS_MEAN ? 1.0 / group : 1;
	bool *seen = calloc(AW_KEYS, sizeof(*seen));
	static struct one_query one;

	for (uint64_t t = 0; t < call->args.n_tokens; t++)
		for (uint32_t h = 0; h < call->args.n_query_heads; h++) {
			uint32_t head = h / group;

			for (uint32_t i = 0; i < keys->n[head]; i++)
				seen[i] = sees(&keys->keys[head][i], (int64_t)t, first_position,
					       window);
			refer(w, call, keys, seen, t, h, &one);
			check_out(w, call, t, h, &one);
			error = fmax(error, one.error);
			for (uint32_t i = 0; call->weights && i < keys->n[head]; i++)
				if (keys->keys[head][i].slot != UINT32_MAX)
					weights[head * (call->n_weights / n_heads) +
						keys->keys[head][i].slot] += one.p[i] * share;
		}
	if (call->weights)
		check_weights(w, call, weights, 2 * error + 0x1p-16);
	free(seen);
	free(weights);
}

void aw_attend_checked(struct jw *w, kvc_seq *seq, struct aw_call *call)
{
	uint64_t window = call->args.window_tokens, bound = w->layout->layers[0].bound_slots;
	struct aw_keys *keys = aw_keys_of(w, seq, call);

	if (bound && (!window || bound < window))
		window = bound;
	/* Cached tokens behind a query are not seen, whatever the window. */
	for (uint32_t h = 0; h < w->layout->layers[0].n_query_groups; h++)
		for (uint32_t i = 0; !call->k && i < keys->n[h]; i++)
			keys->keys[h][i].current = keys->keys[h][i].position -
						   first_position_of(seq, call);
	jw_ok(kvc_attend(seq, 0, &call->args));
	aw_check(w, call, keys, first_position_of(seq, call), window);
	aw_keys_free(keys);
}
