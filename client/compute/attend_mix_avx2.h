/*
 * Sums of values, for AVX2. 4 queries' sums of 16 elements, or 1 query's of 64, stay in registers for
 * BLOCK rows, so that the rows of a block are read from the first-level cache again and again: it
 * would not hold more of them, for they lie some power of two apart. Included by attend_avx2.c.
 */
#ifndef KV_CLIENT_COMPUTE_ATTEND_MIX_AVX2_H
#define KV_CLIENT_COMPUTE_ATTEND_MIX_AVX2_H

#include "client/compute/attend_avx2.h"

#define BLOCK 16u /* rows */

/* n_sets times 16 elements from d on: rows first .. last of n_q queries. w: [n_q][T_STRIDE] */
V_INLINE void mix_sets(enum load load, uint32_t n_q, uint32_t n_sets, const struct tile *t,
		       uint32_t first, uint32_t last, uint32_t d, const float *w, float *o,
		       size_t o_stride)
{
	__m256 p[N_SUMS], low, high;
	struct place place[4];

	EACH(k, n_sets) {
		place[k] = place_of(load, t->half, d / STEP + k);
		EACH(j, n_q) {
			const float *x = o + j * o_stride;

			p[(j * n_sets + k) * 2] = _mm256_loadu_ps(x + place[k].first);
			p[(j * n_sets + k) * 2 + 1] = _mm256_loadu_ps(x + place[k].second);
		}
	}
	for (uint32_t i = first; i < last; i++) {
		const char *row = t->codes + i * t->codes_stride;

		if (d == 0)
			fetch(t, i);
		EACH(k, n_sets) {
			load_values(load, row, place[k], &t->zero[i], &t->groups[i][place[k].group],
				    &low, &high);
			EACH(j, n_q) {
				__m256 weight = _mm256_broadcast_ss(w + j * T_STRIDE + i);
				__m256 *sum = &p[(j * n_sets + k) * 2];

				sum[0] = _mm256_fmadd_ps(weight, low, sum[0]);
				sum[1] = _mm256_fmadd_ps(weight, high, sum[1]);
			}
		}
	}
	EACH(k, n_sets)
		EACH(j, n_q) {
			float *x = o + j * o_stride;

			_mm256_storeu_ps(x + place[k].first, p[(j * n_sets + k) * 2]);
			_mm256_storeu_ps(x + place[k].second, p[(j * n_sets + k) * 2 + 1]);
		}
}

/* Weights, times the rows' scales where there are such. */
V_INLINE void weigh(enum load load, const struct tile *t, const float *w, float *weights)
{
	copy_floats(weights, w, t->n);
	if (!load_has_scale(load))
		return;
	for (uint32_t i = 0; i < t->n; i += N_SUMS)
		_mm256_storeu_ps(weights + i, _mm256_mul_ps(_mm256_loadu_ps(weights + i),
							    _mm256_loadu_ps(t->scale + i)));
}

/* n_q queries with all rows. */
V_INLINE void mix_queries(enum load load, uint32_t n_q, struct tile *t, const float *w,
			  size_t w_stride, float *o, size_t o_stride)
{
	float weights[4][T_STRIDE];
	uint32_t n_sets = 4 / n_q;

	for (uint32_t j = 0; j < n_q; j++)
		weigh(load, t, w + j * w_stride, weights[j]);
	for (uint32_t first = 0; first < t->n; first += BLOCK) {
		uint32_t last = first + BLOCK < t->n ? first + BLOCK : t->n, d = 0;

		for (; d + n_sets * STEP <= t->width; d += n_sets * STEP)
			mix_sets(load, n_q, n_sets, t, first, last, d, weights[0], o, o_stride);
		for (; d < t->width; d += STEP)
			mix_sets(load, n_q, 1, t, first, last, d, weights[0], o, o_stride);
	}
	t->ahead = NULL;
}

V_INLINE void mix_of(enum load load, struct tile *t, uint32_t n_queries, const float *w,
		     size_t w_stride, float *o, size_t o_stride)
{
	uint32_t j = 0;

	for (; j + 4 <= n_queries; j += 4)
		mix_queries(load, 4, t, w + j * w_stride, w_stride, o + j * o_stride, o_stride);
	if (j + 2 <= n_queries) {
		mix_queries(load, 2, t, w + j * w_stride, w_stride, o + j * o_stride, o_stride);
		j += 2;
	}
	if (j < n_queries)
		mix_queries(load, 1, t, w + j * w_stride, w_stride, o + j * o_stride, o_stride);
}

#endif
