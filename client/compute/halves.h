/*
 * What the kernels of x86 do on 16-bit elements as they lie, f16 and bf16 alike: without the sign
 * their bits are ordered as the values are, NaN above infinity above all others. 16 at a time, by
 * AVX2.
 */
#ifndef KV_CLIENT_COMPUTE_HALVES_H
#define KV_CLIENT_COMPUTE_HALVES_H

#include <immintrin.h>
#include <stddef.h>

#include "client/compute/convert.h"

#define V_INLINE static inline __attribute__((always_inline))

typedef __m256i v_h;

V_INLINE v_h halves_load(const char *at)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

V_INLINE void halves_store(char *at, v_h halves)
{
	_mm256_storeu_si256((__m256i *)(void *)at, halves);
}

V_INLINE v_h halves_zero(void)
{
	return _mm256_setzero_si256();
}

V_INLINE v_h halves_abs_max(v_h largest, v_h x)
{
	return _mm256_max_epu16(largest, _mm256_and_si256(x, _mm256_set1_epi16(0x7fff)));
}

/* Sign and magnitude to an unsigned number of the same order; halves_unordered goes back. */
V_INLINE v_h halves_ordered(v_h x)
{
	v_h negative = _mm256_srai_epi16(x, 15);

	return _mm256_xor_si256(x, _mm256_or_si256(negative, _mm256_set1_epi16(-0x8000)));
}

V_INLINE uint16_t halves_unordered(uint16_t ordered)
{
	return (uint16_t)(ordered ^ (ordered & 0x8000 ? 0x8000 : 0xffff));
}

V_INLINE v_h halves_min(v_h x, v_h y)
{
	return _mm256_min_epu16(x, y);
}

V_INLINE v_h halves_max(v_h x, v_h y)
{
	return _mm256_max_epu16(x, y);
}

V_INLINE uint16_t halves_least(v_h x)
{
	__m128i h = _mm_min_epu16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));

	return (uint16_t)_mm_cvtsi128_si32(_mm_minpos_epu16(h));
}

/* The machine can only find the least of 8: that of the complements. */
V_INLINE uint16_t halves_largest(v_h x)
{
	return (uint16_t)~halves_least(_mm256_xor_si256(x, _mm256_set1_epi16(-1)));
}

/* An e4m3 is an f16 whose exponent is 8 less, without its last 7 bits. */
V_INLINE v_h halves_of_e4m3(__m128i codes)
{
	v_h wide = _mm256_cvtepu8_epi16(codes);
	v_h sign = _mm256_and_si256(_mm256_slli_epi16(wide, 8), _mm256_set1_epi16(-0x8000));
	v_h rest = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(0x3f80));

	return _mm256_or_si256(sign, rest);
}

#endif
