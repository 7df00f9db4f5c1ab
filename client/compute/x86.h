/*
 * What the kernels of x86 share, 16 at a time, by AVX2: codes of 8 and 4 bits, and 16-bit elements
 * as they lie, f16 and bf16 alike: without the sign their bits are ordered as the values are, NaN
 * above infinity above all others.
 */
#ifndef KV_CLIENT_COMPUTE_X86_H
#define KV_CLIENT_COMPUTE_X86_H

#include <immintrin.h>
#include <stddef.h>

#include "client/compute/convert.h"

#define V_INLINE static inline __attribute__((always_inline))

typedef __m256i v_h; /* 16 elements */
typedef __m128i v_b; /* 16 codes */

/* ---- codes --------------------------------------------------------------------------------- */

V_INLINE v_b v_bytes_load(const void *at)
{
	return _mm_loadu_si128((const __m128i *)at);
}

V_INLINE void v_bytes_store(void *at, v_b bytes)
{
	_mm_storeu_si128((__m128i *)at, bytes);
}

V_INLINE v_b v_join(v_b high, v_b low)
{
	return _mm_or_si128(_mm_slli_epi16(high, 4), low);
}

V_INLINE v_b v_high(v_b pairs)
{
	return _mm_and_si128(_mm_srli_epi16(pairs, 4), _mm_set1_epi8(15));
}

V_INLINE v_b v_low(v_b pairs)
{
	return _mm_and_si128(pairs, _mm_set1_epi8(15));
}

/* ---- elements ------------------------------------------------------------------------------ */

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
V_INLINE v_h halves_of_e4m3(v_b codes)
{
	v_h wide = _mm256_cvtepu8_epi16(codes);
	v_h sign = _mm256_and_si256(_mm256_slli_epi16(wide, 8), _mm256_set1_epi16(-0x8000));
	v_h rest = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(0x3f80));

	return _mm256_or_si256(sign, rest);
}

#endif
