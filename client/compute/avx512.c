/*
 * The kernels for AVX-512: the primitives of vector.h on 16 elements. Only the foundation (F) is
 * used, beside AVX2 and F16C; not the bf16 instructions, which flush denormals.
 */
#include "client/compute/x86.h"

typedef __m512 v_f;
typedef __m512i v_i;

/* ---- elements ------------------------------------------------------------------------------ */

/* Rounds the low n bits away; a carry runs into the exponent. */
V_INLINE __m512i round_bits(__m512i bits, unsigned n)
{
	__m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, n), _mm512_set1_epi32(1));
	__m512i half = _mm512_set1_epi32((1 << (n - 1)) - 1);

	return _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, half), even), n);
}

V_INLINE __m512i bf16_bits(__m512 x)
{
	return round_bits(_mm512_castps_si512(x), 16);
}

V_INLINE __m512 abs_of(__m512 x)
{
	return _mm512_castsi512_ps(
		_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
}

V_INLINE v_f v_load(uint32_t dtype, const char *at)
{
	if (dtype == KV_DTYPE_F32)
		return _mm512_loadu_ps(at);
	if (dtype == KV_DTYPE_F16)
		return _mm512_cvtph_ps(halves_load(at));
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves_load(at)), 16));
}

V_INLINE void v_store(uint32_t dtype, char *at, v_f x)
{
	if (dtype == KV_DTYPE_F32)
		_mm512_storeu_ps(at, x);
	else if (dtype == KV_DTYPE_F16)
		halves_store(at, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
	else
		halves_store(at, _mm512_cvtepi32_epi16(bf16_bits(x)));
}

/* ---- arithmetic ---------------------------------------------------------------------------- */

V_INLINE v_f v_set(float x)
{
	return _mm512_set1_ps(x);
}

V_INLINE v_f v_mul(v_f x, v_f y)
{
	return _mm512_mul_ps(x, y);
}

V_INLINE v_f v_min(v_f x, v_f y)
{
	return _mm512_min_ps(x, y);
}

V_INLINE v_f v_max(v_f x, v_f y)
{
	return _mm512_max_ps(x, y);
}

V_INLINE v_f v_abs_max(v_f largest, v_f x)
{
	return _mm512_castsi512_ps(
		_mm512_max_epi32(_mm512_castps_si512(largest), _mm512_castps_si512(abs_of(x))));
}

V_INLINE uint32_t v_largest_bits(v_f x)
{
	return (uint32_t)_mm512_reduce_max_epi32(_mm512_castps_si512(x));
}

V_INLINE float v_least(v_f x)
{
	return _mm512_reduce_min_ps(x);
}

V_INLINE float v_greatest(v_f x)
{
	return _mm512_reduce_max_ps(x);
}

V_INLINE v_f v_narrow_bf16(v_f x)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(bf16_bits(x), 16));
}

V_INLINE v_i v_rint(v_f x)
{
	return _mm512_cvtps_epi32(x);
}

V_INLINE v_i v_set_i(int32_t x)
{
	return _mm512_set1_epi32(x);
}

V_INLINE v_i v_add_i(v_i x, v_i y)
{
	return _mm512_add_epi32(x, y);
}

V_INLINE v_i v_sub_i(v_i x, v_i y)
{
	return _mm512_sub_epi32(x, y);
}

V_INLINE v_f v_from_i(v_i x)
{
	return _mm512_cvtepi32_ps(x);
}

/* ---- codes --------------------------------------------------------------------------------- */

V_INLINE v_b v_pack_i8(v_i x)
{
	return _mm512_cvtepi32_epi8(_mm512_max_epi32(_mm512_min_epi32(x, _mm512_set1_epi32(127)),
						     _mm512_set1_epi32(-127)));
}

V_INLINE v_b v_pack_u8(v_i x, int top)
{
	return _mm512_cvtepi32_epi8(_mm512_max_epi32(_mm512_min_epi32(x, _mm512_set1_epi32(top)),
						     _mm512_setzero_si512()));
}

V_INLINE v_i v_unpack_i8(v_b bytes)
{
	return _mm512_cvtepi8_epi32(bytes);
}

V_INLINE v_i v_unpack_u8(v_b bytes)
{
	return _mm512_cvtepu8_epi32(bytes);
}

/* ---- e4m3, as in convert.h ----------------------------------------------------------------- */

V_INLINE v_b v_e4m3_pack(v_f x)
{
	__m512 magnitude = abs_of(x), magic = _mm512_set1_ps(0x1p14f);
	__m512i bits = _mm512_castps_si512(magnitude);
	__m512i sign = _mm512_srli_epi32(_mm512_xor_si512(_mm512_castps_si512(x), bits), 24);
	__m512i denormal = _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(magnitude, magic)),
					    _mm512_castps_si512(magic));
	__m512i normal = _mm512_sub_epi32(round_bits(bits, 20), _mm512_set1_epi32(120 << 3));
	__mmask16 is_denormal = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0x1p-6f), _CMP_LT_OQ);

	return _mm512_cvtepi32_epi8(
		_mm512_or_si512(_mm512_mask_mov_epi32(normal, is_denormal, denormal), sign));
}

V_INLINE v_f v_e4m3_unpack(v_b codes)
{
	return _mm512_mul_ps(_mm512_cvtph_ps(halves_of_e4m3(codes)), _mm512_set1_ps(256.0f));
}

#include "client/compute/vector.h"

const kv_codec_table kv_codec_avx512 = VECTOR_TABLE;
