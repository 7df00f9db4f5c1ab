/* Queries, the softmax of a tile, and merging of sums, 8 at a time: operation by operation as
 * attend_exp.h and attend_scalar.c have it. */
#include <math.h>

#include "client/compute/arithmetic.h"
#include "client/compute/attend_avx2.h"
#include "client/compute/attend_exp.h"

V_INLINE __m256 power(__m256i k)
{
	return _mm256_castsi256_ps(
		_mm256_slli_epi32(_mm256_add_epi32(k, _mm256_set1_epi32(127)), 23));
}

V_INLINE __m256 exponential(__m256 x)
{
	__m256 magic = _mm256_set1_ps(KV_EXP_MAGIC), t, k, r, p;
	__m256i steps, half;

	x = _mm256_max_ps(_mm256_set1_ps(KV_EXP_LEAST), x);
	x = _mm256_min_ps(_mm256_set1_ps(KV_EXP_MOST), x);
	t = _mm256_fmadd_ps(x, _mm256_set1_ps(KV_EXP_LOG2E), magic);
	k = _mm256_sub_ps(t, magic);
	r = _mm256_fnmadd_ps(k, _mm256_set1_ps(KV_EXP_LN2), x);
	r = _mm256_fnmadd_ps(k, _mm256_set1_ps(KV_EXP_LN2_REST), r);
	p = _mm256_fmadd_ps(_mm256_set1_ps(KV_EXP_P6), r, _mm256_set1_ps(KV_EXP_P5));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(KV_EXP_P4));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(KV_EXP_P3));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(KV_EXP_P2));
	p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
	p = _mm256_add_ps(p, _mm256_set1_ps(1));
	steps = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_castps_si256(magic));
	half = _mm256_srai_epi32(steps, 1);
	p = _mm256_mul_ps(p, power(half));
	return _mm256_mul_ps(p, power(_mm256_sub_epi32(steps, half)));
}

static float largest_of(__m256 x)
{
	__m128 h = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

	h = _mm_max_ps(h, _mm_movehl_ps(h, h));
	return _mm_cvtss_f32(_mm_max_ss(h, _mm_shuffle_ps(h, h, 1)));
}

/* ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7)) */
static float tree(__m256 p)
{
	p = _mm256_hadd_ps(p, p);
	p = _mm256_hadd_ps(p, p);
	return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(p), _mm256_extractf128_ps(p, 1)));
}

/* Of a multiple of 8 scores. _mm256_max_ps gives the second one if either is NaN. */
static float softmax_whole(float *s, uint32_t n, float m, float *sum)
{
	__m256 most = _mm256_set1_ps(m), shift, x, p = _mm256_setzero_ps();

	for (uint32_t i = 0; i < n; i += 8)
		most = _mm256_max_ps(_mm256_loadu_ps(s + i), most);
	m = largest_of(most) + 0.0f;
	shift = _mm256_set1_ps(m == -INFINITY ? 0 : m);
	for (uint32_t i = 0; i < n; i += 8) {
		x = exponential(_mm256_sub_ps(_mm256_loadu_ps(s + i), shift));
		_mm256_storeu_ps(s + i, x);
		p = _mm256_add_ps(p, x);
	}
	*sum = tree(p);
	return m;
}

/* Other numbers go on with -infinity, in a copy. */
float kv_attend_softmax_avx2(float *s, uint32_t n, float m, float *sum)
{
	float copy[KV_ATTEND_TILE];
	uint32_t n_whole = (n + 7) / 8 * 8;

	if (n == n_whole)
		return softmax_whole(s, n, m, sum);
	memcpy(copy, s, n * sizeof(*s));
	for (uint32_t i = n; i < n_whole; i++)
		copy[i] = -INFINITY;
	m = softmax_whole(copy, n_whole, m, sum);
	memcpy(s, copy, n * sizeof(*s));
	return m;
}

/* The largest magnitude, compared as bits: NaN is largest. */
static float magnitude_of(const float *q, uint32_t n)
{
	__m256i magnitude = _mm256_set1_epi32(0x7fffffff), most = _mm256_setzero_si256();
	__m128i h;

	for (uint32_t i = 0; i < n; i += 8) {
		__m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(q + i));

		most = _mm256_max_epi32(most, _mm256_and_si256(bits, magnitude));
	}
	h = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
	h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
	h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1));
	return kv_f32_of_bits((uint32_t)_mm_cvtsi128_si32(h));
}

/* What is saturated to 16 bits is at most 32768. */
static __m256i integers_of(const float *q, float reciprocal)
{
	__m256 x = _mm256_mul_ps(_mm256_loadu_ps(q), _mm256_set1_ps(reciprocal));
	__m256i least = _mm256_set1_epi32(-(int32_t)KV_Q16_TOP);

	return _mm256_max_epi32(_mm256_cvtps_epi32(x), least);
}

int32_t kv_attend_integers_avx2(const float *q, uint32_t n, int16_t *q16, float *unit)
{
	float reciprocal = kv_q16_of(magnitude_of(q, n), unit);
	__m256i sum = _mm256_setzero_si256(), ones = _mm256_set1_epi16(1), x;
	__m128i h;

	if (reciprocal == 0) {
		memset(q16, 0, n * sizeof(*q16));
		return 0;
	}
	for (uint32_t i = 0; i < n; i += STEP) {
		x = _mm256_packs_epi32(integers_of(q + i, reciprocal),
				       integers_of(q + i + 8, reciprocal));
		x = _mm256_permute4x64_epi64(x, 0xd8);
		_mm256_storeu_si256((__m256i *)(void *)(q16 + i), x);
		sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, ones));
	}
	h = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
	h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
	return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}

void kv_attend_scale_avx2(float *o, uint32_t n, float x)
{
	uint32_t i = 0;

	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(o + i, _mm256_mul_ps(_mm256_loadu_ps(o + i), _mm256_set1_ps(x)));
	for (; i < n; i++)
		o[i] *= x;
}

void kv_attend_merge_avx2(float *o, uint32_t n, float b, const float *x, float a)
{
	uint32_t i = 0;

	for (; i + 8 <= n; i += 8) {
		__m256 old = _mm256_mul_ps(_mm256_set1_ps(b), _mm256_loadu_ps(o + i));

		_mm256_storeu_ps(o + i,
				 _mm256_fmadd_ps(_mm256_set1_ps(a), _mm256_loadu_ps(x + i), old));
	}
	for (; i < n; i++)
		o[i] = __builtin_fmaf(a, x[i], b * o[i]);
}
