/*
 * Many queries, for AVX2: rows are unpacked once for all of them, side by side, 32 at a time, so that
 * they stay in the first-level cache (where they are stored they lie some power of two apart, and it
 * holds only a few of them), and go with 6 queries at a time: twelve sums in registers. Results are
 * the same: what is multiplied is, and in the same order. Included by attend_avx2.c.
 */
#ifndef KV_CLIENT_COMPUTE_ATTEND_MANY_AVX2_H
#define KV_CLIENT_COMPUTE_ATTEND_MANY_AVX2_H

#include "client/compute/attend_mix_avx2.h"
#include "client/compute/attend_scores_avx2.h"

#define MANY 16u /* queries */
#define MANY_ROWS 32u
#define MANY_AT_ONCE 6u

/* Rows [first, first + n) of a tile. */
struct part {
	uint32_t first, n;
};

V_INLINE struct part part_of(const struct tile *t, uint32_t first)
{
	return (struct part){first, t->n - first < MANY_ROWS ? t->n - first : MANY_ROWS};
}

/* How many of n queries go together. */
V_INLINE uint32_t at_once(uint32_t n)
{
	return n >= MANY_AT_ONCE ? MANY_AT_ONCE : n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

/* ---- scores -------------------------------------------------------------------------------- */

/* Elements as f32 or int16, row after row; an odd number of rows is followed by one of zeros. */
union unpacked {
	_Alignas(64) float f32[MANY_ROWS * KV_ATTEND_WIDTH_MAX];
	int16_t q16[MANY_ROWS * KV_ATTEND_WIDTH_MAX];
};

/* Not q4, whose scales come in between, nor u4 with halves that are no whole steps. */
V_INLINE bool can_unpack(enum load load, const struct tile *t)
{
	return load != LOAD_Q4 && (load != LOAD_U4 || t->half % STEP == 0);
}

V_INLINE void unpack_floats(enum load load, const struct tile *t, const char *row, float *to)
{
	for (uint32_t d = 0; d < t->width; d += 8)
		_mm256_storeu_ps(to + d, load_floats(load, row, d));
}

V_INLINE void unpack_codes(enum load load, const struct tile *t, const char *row, int16_t *to)
{
	for (uint32_t d = 0; load != LOAD_U4 && d < t->width; d += STEP)
		_mm256_storeu_si256((__m256i *)(void *)(to + d), load_codes(load, row + d));
	for (uint32_t d = 0; load == LOAD_U4 && d < t->half; d += STEP) {
		__m256i high, low;

		load_nibbles(load, row + d, &high, &low);
		_mm256_storeu_si256((__m256i *)(void *)(to + d), high);
		_mm256_storeu_si256((__m256i *)(void *)(to + t->half + d), low);
	}
}

V_INLINE void unpack(enum load load, const struct tile *t, struct part part, union unpacked *to)
{
	size_t width = t->width;

	for (uint32_t r = 0; r < part.n; r++) {
		const char *row = t->codes + (part.first + r) * t->codes_stride;

		fetch(t, part.first + r);
		if (load_is_float(load))
			unpack_floats(load, t, row, to->f32 + r * width);
		else
			unpack_codes(load, t, row, to->q16 + r * width);
	}
	if (part.n % 2 != 0 && load_is_float(load))
		memset(to->f32 + part.n * width, 0, width * sizeof(to->f32[0]));
	else if (part.n % 2 != 0)
		memset(to->q16 + part.n * width, 0, width * sizeof(to->q16[0]));
}

/* Sums of n_q queries with two rows. */
V_INLINE void float_pair(uint32_t n_q, uint32_t width, const float *row, const float *q,
			 size_t q_stride, float *x)
{
	__m256 p[2 * N_SUMS];

	EACH(k, 2 * N_SUMS)
		p[k] = _mm256_setzero_ps();
	for (uint32_t i = 0; i < width; i += 8) {
		__m256 first = _mm256_loadu_ps(row + i), second = _mm256_loadu_ps(row + width + i);

		EACH(k, n_q) {
			__m256 more = _mm256_loadu_ps(q + k * q_stride + i);

			p[2 * k] = _mm256_fmadd_ps(more, first, p[2 * k]);
			p[2 * k + 1] = _mm256_fmadd_ps(more, second, p[2 * k + 1]);
		}
	}
	store_sums(4, x, trees(p));
	if (n_q > 4)
		store_sums(4, x + 4 * (size_t)T_STRIDE, trees(p + N_SUMS));
}

V_INLINE void code_pair(uint32_t n_q, uint32_t width, const int16_t *row, const int16_t *q,
			size_t q_stride, float *x)
{
	counts p[2 * N_SUMS];

	EACH(k, 2 * N_SUMS)
		p[k] = (counts){0};
	for (uint32_t i = 0; i < width; i += STEP) {
		__m256i first = load_q16(row + i), second = load_q16(row + width + i);

		EACH(k, n_q) {
			__m256i more = load_q16(q + k * q_stride + i);

			p[2 * k] += (counts)_mm256_madd_epi16(more, first);
			p[2 * k + 1] += (counts)_mm256_madd_epi16(more, second);
		}
	}
	store_sums(4, x, _mm256_castsi256_ps(sums(p)));
	if (n_q > 4)
		store_sums(4, x + 4 * (size_t)T_STRIDE, _mm256_castsi256_ps(sums(p + N_SUMS)));
}

V_INLINE void score_part(enum load load, uint32_t n_q, const struct tile *t, struct part part,
			 const union unpacked *rows, const struct kv_attend_query *query,
			 uint32_t j, float scale, float *s, size_t s_stride)
{
	float x[N_SUMS][T_STRIDE];
	size_t first = j * query->stride;

	for (uint32_t r = 0; r < part.n; r += 2) {
		if (load_is_float(load))
			float_pair(n_q, t->width, rows->f32 + r * (size_t)t->width,
				   query->f32 + first, query->stride, &x[0][r]);
		else
			code_pair(n_q, t->width, rows->q16 + r * (size_t)t->width,
				  query->q16 + first, query->stride, &x[0][r]);
	}
	EACH(k, n_q)
		finish(load, t, part.first, part.n, x[k], query->unit[j + k], query->sum16[j + k],
		       scale, s + (j + k) * s_stride + part.first);
}

V_INLINE void scores_of_many(enum load load, const struct tile *t,
			     const struct kv_attend_query *query, float scale, float *s,
			     size_t s_stride)
{
	union unpacked rows;

	for (uint32_t first = 0; first < t->n; first += MANY_ROWS) {
		struct part part = part_of(t, first);

		unpack(load, t, part, &rows);
		for (uint32_t j = 0, n; j < query->n; j += n) {
			n = at_once(query->n - j);
			if (n == MANY_AT_ONCE)
				score_part(load, 6, t, part, &rows, query, j, scale, s, s_stride);
			else if (n == 4)
				score_part(load, 4, t, part, &rows, query, j, scale, s, s_stride);
			else if (n == 2)
				score_part(load, 2, t, part, &rows, query, j, scale, s, s_stride);
			else
				score_part(load, 1, t, part, &rows, query, j, scale, s, s_stride);
		}
	}
}

/* ---- sums of values ------------------------------------------------------------------------ */

/* 16 elements of all rows, then the next 16 of all. */
struct panels {
	_Alignas(64) float at[KV_ATTEND_WIDTH_MAX / STEP][MANY_ROWS][STEP];
};

V_INLINE void unpack_panels(enum load load, const struct tile *t, struct part part,
			    struct panels *panels)
{
	for (uint32_t r = 0; r < part.n; r++) {
		size_t i = part.first + r;

		fetch(t, (uint32_t)i);
		for (uint32_t d = 0; d < t->width; d += STEP) {
			float *to = panels->at[d / STEP][r];
			__m256 low, high;

			struct place place = place_of(load, t->half, d / STEP);

			load_values(load, t->codes + i * t->codes_stride, place, &t->zero[i],
				    &t->groups[i][place.group], &low, &high);
			_mm256_storeu_ps(to, low);
			_mm256_storeu_ps(to + 8, high);
		}
	}
}

/* 16 elements of n_q queries, in two places of o. w: [n_q][MANY_ROWS] */
V_INLINE void mix_panel(uint32_t n_q, uint32_t n_rows, const float *values, const float *w,
			struct place place, float *o, size_t o_stride)
{
	__m256 p[2 * MANY_AT_ONCE];

	EACH(j, n_q) {
		p[2 * j] = _mm256_loadu_ps(o + j * o_stride + place.first);
		p[2 * j + 1] = _mm256_loadu_ps(o + j * o_stride + place.second);
	}
	for (uint32_t i = 0; i < n_rows; i++, values += STEP, w++) {
		__m256 low = _mm256_loadu_ps(values), high = _mm256_loadu_ps(values + 8);

		EACH(j, n_q) {
			__m256 weight = _mm256_broadcast_ss(w + j * MANY_ROWS);

			p[2 * j] = _mm256_fmadd_ps(weight, low, p[2 * j]);
			p[2 * j + 1] = _mm256_fmadd_ps(weight, high, p[2 * j + 1]);
		}
	}
	EACH(j, n_q) {
		_mm256_storeu_ps(o + j * o_stride + place.first, p[2 * j]);
		_mm256_storeu_ps(o + j * o_stride + place.second, p[2 * j + 1]);
	}
}

V_INLINE void mix_part(enum load load, uint32_t n_q, const struct tile *t, struct part part,
		       const struct panels *panels, const float *w, size_t w_stride, float *o,
		       size_t o_stride)
{
	float weights[MANY_AT_ONCE][MANY_ROWS];

	for (uint32_t j = 0; j < n_q; j++) {
		copy_floats(weights[j], w + j * w_stride + part.first, part.n);
		for (uint32_t i = 0; load_has_scale(load) && i < part.n; i += N_SUMS)
			_mm256_storeu_ps(&weights[j][i],
					 _mm256_mul_ps(_mm256_loadu_ps(&weights[j][i]),
						       _mm256_loadu_ps(t->scale + part.first + i)));
	}
	for (uint32_t d = 0; d < t->width; d += STEP)
		mix_panel(n_q, part.n, panels->at[d / STEP][0], weights[0],
			  place_of(load, t->half, d / STEP), o, o_stride);
}

V_INLINE void mix_of_many(enum load load, const struct tile *t, uint32_t n_queries, const float *w,
			  size_t w_stride, float *o, size_t o_stride)
{
	struct panels panels;

	for (uint32_t first = 0; first < t->n; first += MANY_ROWS) {
		struct part part = part_of(t, first);

		unpack_panels(load, t, part, &panels);
		for (uint32_t j = 0, n; j < n_queries; j += n) {
			const float *from = w + j * w_stride;
			float *to = o + j * o_stride;

			n = at_once(n_queries - j);
			if (n == MANY_AT_ONCE)
				mix_part(load, 6, t, part, &panels, from, w_stride, to, o_stride);
			else if (n == 4)
				mix_part(load, 4, t, part, &panels, from, w_stride, to, o_stride);
			else if (n == 2)
				mix_part(load, 2, t, part, &panels, from, w_stride, to, o_stride);
			else
				mix_part(load, 1, t, part, &panels, from, w_stride, to, o_stride);
		}
	}
}

#endif
