/*
 * What attention keeps of the keys that a query has seen: the largest score, the sum of
 * exponentials, the sum of values; how a tile and a span come to it, and what leaves it.
 *
 * Each line is one operation in binary32, rounded to nearest, and never fused unless it says fma;
 * the exponential is kv_attend_exp. Nothing seen is m = -infinity, l = 0, o = 0.
 *
 *   tile       scores s of its keys in order: M and s' = exp(s - M) and their sum by
 *              kv_attend_softmax; if M is not m: f = exp(m - M), l = l * f, o = o * f; then
 *              l = l + sum, and the values times s' are added by kv_attend_mix
 *   span       that was summed by itself into (m', l', o'): M is the larger of m and m',
 *              b = exp(m - M), a = exp(m' - M), l = l * b + l' * a, o = fma(a, o', o * b)
 *   sink       as a span with m' = its score, l' = 1 and no values: o = o * b
 *   cap        c * tanh(s / c); tanh(x) is (1 - t) / (1 + t), t = exp(-2|x|), with the sign of x,
 *              below 0.25 the polynomial kv_attend_tanh
 *   result     o * (1 / l), or zeros where l is 0
 *
 * Thread: no state; any.
 */
#ifndef KV_CLIENT_COMPUTE_ATTEND_SUMS_H
#define KV_CLIENT_COMPUTE_ATTEND_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "client/compute/carve.h"

/* Of n queries: m [n], l [n], o [n][stride]. */
struct kv_attend_sums {
	float *m, *l, *o;
	size_t stride;
};

/* Those from query `first` on. */
static inline struct kv_attend_sums kv_attend_sums_at(const struct kv_attend_sums *sums,
						      size_t first)
{
	return (struct kv_attend_sums){sums->m + first, sums->l + first,
				       sums->o + first * sums->stride, sums->stride};
}

/* Room for those of n queries with values of `width` elements. */
static inline struct kv_attend_sums kv_attend_sums_carve(struct kv_carve *from, size_t n,
							 uint32_t width)
{
	size_t stride = ((size_t)width + 15) / 16 * 16;
	float *m = kv_carve(from, n, sizeof(float)), *l = kv_carve(from, n, sizeof(float));

	return (struct kv_attend_sums){m, l, kv_carve(from, n * stride, sizeof(float)), stride};
}

/* Nothing seen, by n queries with values of `width` elements. */
void kv_attend_sums_init(const struct kv_attend_sums *sums, uint32_t n, uint32_t width);

/* A tile of n_keys scores a query, s [n][s_stride]: they become weights for kv_attend_mix, which the
 * caller calls next. */
void kv_attend_sums_tile(const struct kv_attend_sums *sums, uint32_t n, uint32_t width, float *s,
			 size_t s_stride, uint32_t n_keys);

/* A span comes to them. */
void kv_attend_sums_span(const struct kv_attend_sums *sums, uint32_t n, uint32_t width,
			 const struct kv_attend_sums *span);

/* A sink comes to those of one query. */
void kv_attend_sums_sink(const struct kv_attend_sums *sums, uint32_t width, float score);

/* The result of one query. */
void kv_attend_sums_out(const struct kv_attend_sums *sums, uint32_t width, float *out);

/* n scores become c * tanh(s / c). */
float kv_attend_tanh(float x);
void kv_attend_cap(float *s, uint32_t n, float cap);

/* Weights of keys that a query has seen, m and l being what it had at last: s[i] becomes
 * exp(s[i] - m), then w[i] += s[i] / l (nothing where l is 0). */
void kv_attend_weigh_begin(float *s, uint32_t n, float m);
void kv_attend_weigh(float *w, const float *s, uint32_t n, float l);

/* w[i] of n_heads query heads, heads stride apart: their sum, from the first head, over `divisor`. */
void kv_attend_weights_of(const float *w, size_t stride, uint32_t n_heads, uint32_t n,
			  float divisor, float *out);

#endif
