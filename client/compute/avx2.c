/*
 * The kernels for AVX2 and F16C: the primitives of vector.h on pairs of 8 elements. Built for
 * those instructions, so nothing here may run before kernels_x86.c has asked for them.
 *
 * Of 16 elements .a has 0-3 and 8-11, .b has 4-7 and 12-15: in this order widening and packing,
 * which work inside each half of a register, need no further shuffles.
 */
#include "client/compute/x86.h"

typedef struct {
	__m256 a, b;
} v_f;
typedef struct {
	__m256i a, b;
} v_i;

/* ---- 8 at a time --------------------------------------------------------------------------- */

/* Rounds the low n bits away; a carry runs into the exponent. */
V_INLINE __m256i round_bits(__m256i bits, int n)
{
	__m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, n), _mm256_set1_epi32(1));
	__m256i half = _mm256_set1_epi32((1 << (n - 1)) - 1);

	return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, half), even), n);
}

V_INLINE __m256i bf16_bits(__m256 x)
{
	return round_bits(_mm256_castps_si256(x), 16);
}

V_INLINE __m256 abs_of(__m256 x)
{
	return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}

V_INLINE __m256 max_bits(__m256 x, __m256 y)
{
	return _mm256_castsi256_ps(
		_mm256_max_epi32(_mm256_castps_si256(x), _mm256_castps_si256(y)));
}

/* From 16 elements in a row to the order of .a and .b, and back. */
V_INLINE v_h halves_swap(v_h halves)
{
	return _mm256_permute4x64_epi64(halves, 0xd8);
}

V_INLINE v_b bytes_swap(v_b bytes)
{
	return _mm_shuffle_epi32(bytes, 0xd8);
}

V_INLINE v_f f16_widen(v_h swapped)
{
	return (v_f){_mm256_cvtph_ps(_mm256_castsi256_si128(swapped)),
		     _mm256_cvtph_ps(_mm256_extracti128_si256(swapped, 1))};
}

V_INLINE v_h f16_narrow(v_f x)
{
	return halves_swap(_mm256_set_m128i(_mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT),
					    _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT)));
}

V_INLINE __m256 load_quarters(const float *low, const float *high)
{
	return _mm256_set_m128(_mm_loadu_ps(high), _mm_loadu_ps(low));
}

V_INLINE void store_f32(float *at, v_f x)
{
	_mm256_storeu_ps(at, _mm256_permute2f128_ps(x.a, x.b, 0x20));
	_mm256_storeu_ps(at + 8, _mm256_permute2f128_ps(x.a, x.b, 0x31));
}

/* ---- elements ------------------------------------------------------------------------------ */

V_INLINE v_f v_load(uint32_t dtype, const char *at)
{
	const float *x = (const float *)(const void *)at;
	v_h halves, zero = _mm256_setzero_si256();

	if (dtype == KV_DTYPE_F32)
		return (v_f){load_quarters(x, x + 8), load_quarters(x + 4, x + 12)};
	halves = halves_load(at);
	if (dtype == KV_DTYPE_F16)
		return f16_widen(halves_swap(halves));
	return (v_f){_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, halves)),
		     _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, halves))};
}

V_INLINE void v_store(uint32_t dtype, char *at, v_f x)
{
	if (dtype == KV_DTYPE_F32)
		store_f32((float *)(void *)at, x);
	else if (dtype == KV_DTYPE_F16)
		halves_store(at, f16_narrow(x));
	else
		halves_store(at, _mm256_packus_epi32(bf16_bits(x.a), bf16_bits(x.b)));
}

/* ---- arithmetic ---------------------------------------------------------------------------- */

V_INLINE v_f v_set(float x)
{
	return (v_f){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

V_INLINE v_f v_mul(v_f x, v_f y)
{
	return (v_f){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}

V_INLINE v_f v_min(v_f x, v_f y)
{
	return (v_f){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}

V_INLINE v_f v_max(v_f x, v_f y)
{
	return (v_f){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}

V_INLINE v_f v_abs_max(v_f largest, v_f x)
{
	return (v_f){max_bits(largest.a, abs_of(x.a)), max_bits(largest.b, abs_of(x.b))};
}

V_INLINE uint32_t v_largest_bits(v_f x)
{
	__m256i m = _mm256_castps_si256(max_bits(x.a, x.b));
	__m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));

	h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
	h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1));
	return (uint32_t)_mm_cvtsi128_si32(h);
}

V_INLINE float v_least(v_f x)
{
	__m256 m = _mm256_min_ps(x.a, x.b);
	__m128 h = _mm_min_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));

	h = _mm_min_ps(h, _mm_movehl_ps(h, h));
	return _mm_cvtss_f32(_mm_min_ss(h, _mm_shuffle_ps(h, h, 1)));
}

V_INLINE float v_greatest(v_f x)
{
	__m256 m = _mm256_max_ps(x.a, x.b);
	__m128 h = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));

	h = _mm_max_ps(h, _mm_movehl_ps(h, h));
	return _mm_cvtss_f32(_mm_max_ss(h, _mm_shuffle_ps(h, h, 1)));
}

V_INLINE v_f v_narrow_bf16(v_f x)
{
	return (v_f){_mm256_castsi256_ps(_mm256_slli_epi32(bf16_bits(x.a), 16)),
		     _mm256_castsi256_ps(_mm256_slli_epi32(bf16_bits(x.b), 16))};
}

V_INLINE v_i v_rint(v_f x)
{
	return (v_i){_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
}

V_INLINE v_i v_set_i(int32_t x)
{
	return (v_i){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}

V_INLINE v_i v_add_i(v_i x, v_i y)
{
	return (v_i){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}

V_INLINE v_i v_sub_i(v_i x, v_i y)
{
	return (v_i){_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}

V_INLINE v_f v_from_i(v_i x)
{
	return (v_f){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}

/* ---- codes --------------------------------------------------------------------------------- */

V_INLINE v_b v_pack_i8(v_i x)
{
	v_h halves = _mm256_packs_epi32(x.a, x.b);
	v_b bytes = _mm_packs_epi16(_mm256_castsi256_si128(halves),
				    _mm256_extracti128_si256(halves, 1));

	return _mm_max_epi8(bytes, _mm_set1_epi8(-127));
}

V_INLINE v_b v_pack_u8(v_i x, int top)
{
	v_h halves = _mm256_packs_epi32(x.a, x.b);
	v_b bytes = _mm_packus_epi16(_mm256_castsi256_si128(halves),
				     _mm256_extracti128_si256(halves, 1));

	return top < 255 ? _mm_min_epu8(bytes, _mm_set1_epi8((char)top)) : bytes;
}

V_INLINE v_i v_unpack_i8(v_b bytes)
{
	bytes = bytes_swap(bytes);
	return (v_i){_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}

V_INLINE v_i v_unpack_u8(v_b bytes)
{
	bytes = bytes_swap(bytes);
	return (v_i){_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}

/* ---- e4m3, as in convert.h ----------------------------------------------------------------- */

V_INLINE __m256i e4m3_of(__m256 x)
{
	__m256 magnitude = abs_of(x), magic = _mm256_set1_ps(0x1p14f);
	__m256i sign = _mm256_srli_epi32(_mm256_castps_si256(_mm256_xor_ps(x, magnitude)), 24);
	__m256i denormal = _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(magnitude, magic)),
					    _mm256_castps_si256(magic));
	__m256i normal = _mm256_sub_epi32(round_bits(_mm256_castps_si256(magnitude), 20),
					  _mm256_set1_epi32(120 << 3));
	__m256 is_denormal = _mm256_cmp_ps(magnitude, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ);

	return _mm256_or_si256(
		_mm256_blendv_epi8(normal, denormal, _mm256_castps_si256(is_denormal)), sign);
}

V_INLINE v_b v_e4m3_pack(v_f x)
{
	return v_pack_u8((v_i){e4m3_of(x.a), e4m3_of(x.b)}, 255);
}

V_INLINE v_f v_e4m3_unpack(v_b codes)
{
	return v_mul(f16_widen(halves_of_e4m3(bytes_swap(codes))), v_set(256.0f));
}

#include "client/compute/vector.h"

const kv_codec_table kv_codec_avx2 = VECTOR_TABLE;
