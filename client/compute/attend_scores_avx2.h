/*
 * Scores, for AVX2. Eight sums at a time are in registers, of 4 queries with 2 rows, of 2 with 4 or of
 * 1 with 8, and are added up across together. Included by attend_avx2.c.
 */
#ifndef KV_CLIENT_COMPUTE_ATTEND_SCORES_AVX2_H
#define KV_CLIENT_COMPUTE_ATTEND_SCORES_AVX2_H

#include "client/compute/attend_avx2.h"

/* ---- products ------------------------------------------------------------------------------ */

/* The rows of a block; those behind the last one are the last one again. */
struct rows {
	const char *at[N_SUMS];
	const float *groups[N_SUMS];
	uint32_t first;
};

V_INLINE struct rows rows_of(const struct tile *t, uint32_t first, uint32_t n_rows)
{
	struct rows rows;

	rows.first = first;
	EACH(r, n_rows) {
		size_t i = first + r < t->n ? first + r : t->n - 1;

		rows.at[r] = t->codes + i * t->codes_stride;
		rows.groups[r] = t->groups[i];
	}
	return rows;
}

/* Step by step through a block of many rows, what belongs to them is asked for. */
V_INLINE void fetch_at(const struct tile *t, const struct rows *rows, uint32_t n_rows,
		       uint32_t step)
{
	if (n_rows == N_SUMS && step < n_rows)
		fetch(t, rows->first + step);
}

/* x has row after row for each query. */
V_INLINE void store_sums(uint32_t n_q, float *to, __m256 x)
{
	__m128 low = _mm256_castps256_ps128(x), high = _mm256_extractf128_ps(x, 1);

	if (n_q == 1) {
		_mm256_storeu_ps(to, x);
	} else if (n_q == 2) {
		_mm_storeu_ps(to, low);
		_mm_storeu_ps(to + T_STRIDE, high);
	} else {
		_mm_storel_pi((__m64 *)(void *)to, low);
		_mm_storeh_pi((__m64 *)(void *)(to + T_STRIDE), low);
		_mm_storel_pi((__m64 *)(void *)(to + 2 * (size_t)T_STRIDE), high);
		_mm_storeh_pi((__m64 *)(void *)(to + 3 * (size_t)T_STRIDE), high);
	}
}

V_INLINE __m256 float_block(enum load load, uint32_t n_q, const struct tile *t,
			    const struct rows *rows, const float *q, size_t q_stride)
{
	uint32_t n_rows = N_SUMS / n_q;
	__m256 p[N_SUMS], x[N_SUMS];

	EACH(k, N_SUMS)
		p[k] = _mm256_setzero_ps();
	for (uint32_t i = 0; i < t->width; i += 8) {
		__m256 first = _mm256_loadu_ps(q + i);

		fetch_at(t, rows, n_rows, i / 8);
		EACH(r, n_rows) {
			x[r] = load_floats(load, rows->at[r], i);
			p[r] = _mm256_fmadd_ps(first, x[r], p[r]);
		}
		EACH(k, n_q - 1) {
			__m256 more = _mm256_loadu_ps(q + (k + 1) * q_stride + i);
			__m256 *sum = p + (k + 1) * n_rows;

			EACH(r, n_rows)
				sum[r] = _mm256_fmadd_ps(more, x[r], sum[r]);
		}
	}
	return trees(p);
}

V_INLINE __m256i load_q16(const int16_t *q)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)q);
}

/* Products of 16 codes of each row, pairs of them added. */
V_INLINE void add_products(uint32_t n_q, uint32_t n_rows, const __m256i *codes, const int16_t *q,
			   size_t q_stride, counts *p)
{
	EACH(k, n_q) {
		__m256i x = load_q16(q + k * q_stride);

		EACH(r, n_rows)
			p[k * n_rows + r] += (counts)_mm256_madd_epi16(x, codes[r]);
	}
}

V_INLINE __m256i code_block(enum load load, uint32_t n_q, const struct tile *t,
			    const struct rows *rows, const int16_t *q, size_t q_stride)
{
	uint32_t n_rows = N_SUMS / n_q;
	__m256i codes[N_SUMS];
	counts p[N_SUMS];

	EACH(k, N_SUMS)
		p[k] = (counts){0};
	for (uint32_t i = 0; i < t->width; i += STEP) {
		fetch_at(t, rows, n_rows, i / STEP);
		EACH(r, n_rows)
			codes[r] = load_codes(load, rows->at[r] + i);
		add_products(n_q, n_rows, codes, q + i, q_stride, p);
	}
	return sums(p);
}

/* u4: the halves of a vector. */
V_INLINE __m256i nibble_block(uint32_t n_q, const struct tile *t, const struct rows *rows,
			      const int16_t *q, size_t q_stride)
{
	uint32_t n_rows = N_SUMS / n_q;
	__m256i high[N_SUMS], low[N_SUMS];
	counts p[N_SUMS];

	EACH(k, N_SUMS)
		p[k] = (counts){0};
	for (uint32_t i = 0; i < t->half; i += STEP) {
		fetch_at(t, rows, n_rows, i / STEP);
		EACH(r, n_rows)
			load_nibbles(LOAD_U4, rows->at[r] + i, &high[r], &low[r]);
		add_products(n_q, n_rows, high, q + i, q_stride, p);
		add_products(n_q, n_rows, low, q + t->half + i, q_stride, p);
	}
	return sums(p);
}

/* q4: the pairs of a group's two halves, then its scale. */
V_INLINE __m256 group_block(uint32_t n_q, const struct tile *t, const struct rows *rows,
			    const int16_t *q, size_t q_stride)
{
	uint32_t n_rows = N_SUMS / n_q;
	__m256 p[N_SUMS];

	EACH(k, N_SUMS)
		p[k] = _mm256_setzero_ps();
	for (uint32_t g = 0; g < t->width / KV_Q4_GROUP; g++, q += KV_Q4_GROUP) {
		fetch_at(t, rows, n_rows, g);
		EACH(r, n_rows) {
			__m256 scale = _mm256_broadcast_ss(&rows->groups[r][g]);
			__m256i high, low;

			load_nibbles(LOAD_Q4, rows->at[r] + g * STEP, &high, &low);
			EACH(j, n_q) {
				const int16_t *x = q + j * q_stride;
				counts sum = (counts)_mm256_madd_epi16(load_q16(x), high) +
					     (counts)_mm256_madd_epi16(load_q16(x + STEP), low);

				p[j * n_rows + r] = _mm256_fmadd_ps(
					_mm256_cvtepi32_ps((__m256i)sum), scale, p[j * n_rows + r]);
			}
		}
	}
	return trees(p);
}

/* ---- scores of them ------------------------------------------------------------------------ */

/* Exact sums, less the zero points' part. */
V_INLINE __m256 less_zeros(__m256i sums, const int32_t *zero, int32_t sum16)
{
	__m256d q = _mm256_set1_pd(sum16);
	__m256d low = _mm256_cvtepi32_pd(_mm256_castsi256_si128(sums));
	__m256d high = _mm256_cvtepi32_pd(_mm256_extracti128_si256(sums, 1));

	low = _mm256_fnmadd_pd(_mm256_cvtepi32_pd(v_bytes_load(zero)), q, low);
	high = _mm256_fnmadd_pd(_mm256_cvtepi32_pd(v_bytes_load(zero + 4)), q, high);
	return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
}

/* One query's products with rows first .. first + n become scores. */
V_INLINE void finish(enum load load, const struct tile *t, uint32_t first, uint32_t n, float *x,
		     float unit, int32_t sum16, float scale, float *s)
{
	__m256 factor = _mm256_set1_ps(load_is_float(load) ? scale : unit * scale);

	for (uint32_t i = 0; i < n; i += N_SUMS) {
		__m256 v = _mm256_loadu_ps(x + i);

		if (load == LOAD_I8)
			v = _mm256_cvtepi32_ps(_mm256_castps_si256(v));
		if (load_has_zero(load))
			v = less_zeros(_mm256_castps_si256(v), t->zero + first + i, sum16);
		v = _mm256_mul_ps(v, factor);
		if (load_has_scale(load))
			v = _mm256_mul_ps(v, _mm256_loadu_ps(t->scale + first + i));
		_mm256_storeu_ps(x + i, v);
	}
	copy_floats(s, x, n);
}

/* How many steps such a block has. */
V_INLINE uint32_t steps_of(enum load load, const struct tile *t)
{
	uint32_t step = load_is_float(load) ? 8 : load == LOAD_Q4 ? KV_Q4_GROUP : STEP;

	return (load == LOAD_U4 ? t->half : t->width) / step;
}

V_INLINE __m256 block(enum load load, uint32_t n_q, const struct tile *t, uint32_t i,
		      const struct kv_attend_query *query, uint32_t j)
{
	struct rows rows = rows_of(t, i, N_SUMS / n_q);
	const int16_t *q16 = query->q16 + j * query->stride;

	for (uint32_t r = n_q == 1 ? steps_of(load, t) : 0; r < N_SUMS / n_q; r++)
		fetch(t, i + r);
	if (load_is_float(load))
		return float_block(load, n_q, t, &rows, query->f32 + j * query->stride,
				   query->stride);
	if (load == LOAD_Q4)
		return group_block(n_q, t, &rows, q16, query->stride);
	if (load == LOAD_U4)
		return _mm256_castsi256_ps(nibble_block(n_q, t, &rows, q16, query->stride));
	return _mm256_castsi256_ps(code_block(load, n_q, t, &rows, q16, query->stride));
}

/* Queries j .. j + n_q with all rows. Only the first ones ask for what comes next. */
V_INLINE void score(enum load load, uint32_t n_q, struct tile *t,
		    const struct kv_attend_query *query, uint32_t j, float scale, float *s,
		    size_t s_stride)
{
	float x[4][T_STRIDE];

	for (uint32_t i = 0; i < t->n; i += N_SUMS / n_q)
		store_sums(n_q, &x[0][i], block(load, n_q, t, i, query, j));
	EACH(k, n_q)
		finish(load, t, 0, t->n, x[k], query->unit[j + k], query->sum16[j + k], scale,
		       s + (j + k) * s_stride);
	t->ahead = NULL;
}

V_INLINE void scores_of(enum load load, struct tile *t, const struct kv_attend_query *query,
			float scale, float *s, size_t s_stride)
{
	uint32_t j = 0;

	for (; j + 4 <= query->n; j += 4)
		score(load, 4, t, query, j, scale, s, s_stride);
	if (j + 2 <= query->n) {
		score(load, 2, t, query, j, scale, s, s_stride);
		j += 2;
	}
	if (j < query->n)
		score(load, 1, t, query, j, scale, s, s_stride);
}

#endif
