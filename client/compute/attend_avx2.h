/*
 * What the AVX2 kernels of attention are made of: rows as they are read, 16 elements at a time, and
 * sums across a register.
 *
 * Everything is inlined into functions for one way to read a row, so `load` is a constant there and
 * loops over registers have constant bounds.
 */
#ifndef KV_CLIENT_COMPUTE_ATTEND_AVX2_H
#define KV_CLIENT_COMPUTE_ATTEND_AVX2_H

#include "client/compute/kernels.h"
#include "client/compute/x86.h"

/* Loops over registers: no register can be chosen by a number, so none may stay a loop. */
#ifdef __clang__
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif
#define EACH(i, n) UNROLLED for (uint32_t i = 0; i < (n); i++)

#define STEP 16u  /* elements */
#define N_SUMS 8u /* accumulators of a block: so many registers are left for them */

/* Ways to read a row. */
enum load { LOAD_F32, LOAD_F16, LOAD_BF16, LOAD_FP8, LOAD_I8, LOAD_U8, LOAD_U4, LOAD_Q4, N_LOADS };

V_INLINE bool load_is_float(enum load load)
{
	return load <= LOAD_FP8;
}

/* One of the row. */
V_INLINE bool load_has_scale(enum load load)
{
	return load >= LOAD_FP8 && load != LOAD_Q4;
}

V_INLINE bool load_has_zero(enum load load)
{
	return load == LOAD_U8 || load == LOAD_U4;
}

/* 16 elements of a row: their codes, or pairs of them, from byte `at` on; the first 8 of them are
 * elements `first` .., the others `second` ..: of pairs one has the high nibbles, one the low ones.
 * The group of their scale (q4). */
struct place {
	uint32_t at, first, second, group;
};

/* The i-th 16 of them; half: of the elements of a vector, a multiple of 16 in u4. */
V_INLINE struct place place_of(enum load load, uint32_t half, uint32_t i)
{
	uint32_t at = i * 8, group = i / 2, first = group * KV_Q4_GROUP + i % 2 * 8;

	switch (load) {
	case LOAD_U4: return (struct place){at, at, half + at, 0};
	case LOAD_Q4: return (struct place){at, first, first + STEP, group};
	default: return (struct place){i * STEP, i * STEP, i * STEP + 8, 0};
	}
}

/* ---- floats -------------------------------------------------------------------------------- */

V_INLINE __m128i load_half(const char *at)
{
	return _mm_loadl_epi64((const __m128i *)(const void *)at);
}

V_INLINE __m256 bf16_widen(v_b halves)
{
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* An e4m3 is an f32 whose exponent is 120 less, without its last 20 bits; its sign is copied to
 * bits 27 .. 31 when the byte is widened as a signed one. */
V_INLINE __m256 e4m3_widen(v_b codes)
{
	__m256i bits = _mm256_and_si256(_mm256_slli_epi32(_mm256_cvtepi8_epi32(codes), 20),
					_mm256_set1_epi32((int32_t)0x87f00000));

	return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
}

/* Elements i .. i + 8 of a row of raw or fp8, without a scale. */
V_INLINE __m256 load_floats(enum load load, const char *row, uint32_t i)
{
	switch (load) {
	case LOAD_F32: return _mm256_loadu_ps((const float *)(const void *)row + i);
	case LOAD_F16: return _mm256_cvtph_ps(v_bytes_load(row + (size_t)i * 2));
	case LOAD_BF16: return bf16_widen(v_bytes_load(row + (size_t)i * 2));
	default: return e4m3_widen(load_half(row + i));
	}
}

/* ---- codes --------------------------------------------------------------------------------- */

/* 16 codes of bytes, zero points in them. */
V_INLINE __m256i load_codes(enum load load, const char *at)
{
	v_b codes = v_bytes_load(at);

	return load == LOAD_I8 ? _mm256_cvtepi8_epi16(codes) : _mm256_cvtepu8_epi16(codes);
}

/* 16 high nibbles and 16 low ones, of u4 zero points in them. */
V_INLINE void load_nibbles(enum load load, const char *at, __m256i *high, __m256i *low)
{
	__m256i pairs = _mm256_cvtepu8_epi16(v_bytes_load(at)), eight = _mm256_set1_epi16(8);

	*high = _mm256_srli_epi16(pairs, 4);
	*low = _mm256_and_si256(pairs, _mm256_set1_epi16(15));
	if (load == LOAD_Q4) {
		*high = _mm256_sub_epi16(*high, eight);
		*low = _mm256_sub_epi16(*low, eight);
	}
}

/* What is multiplied with weights: 16 elements, of codes the code less the zero point; scale: of the
 * group. */
V_INLINE void load_values(enum load load, const char *row, struct place p, const int32_t *zero,
			  const float *scale, __m256 *first, __m256 *second)
{
	__m256i a, b;

	if (load_is_float(load)) {
		*first = load_floats(load, row, p.at);
		*second = load_floats(load, row, p.at + 8);
		return;
	}
	if (load == LOAD_I8) {
		a = _mm256_cvtepi8_epi32(load_half(row + p.at));
		b = _mm256_cvtepi8_epi32(load_half(row + p.at + 8));
	} else if (load == LOAD_U8) {
		a = _mm256_cvtepu8_epi32(load_half(row + p.at));
		b = _mm256_cvtepu8_epi32(load_half(row + p.at + 8));
	} else {
		b = _mm256_cvtepu8_epi32(load_half(row + p.at));
		a = _mm256_srli_epi32(b, 4);
		b = _mm256_and_si256(b, _mm256_set1_epi32(15));
	}
	if (load != LOAD_I8) {
		__m256i less = _mm256_set1_epi32(load == LOAD_Q4 ? 8 : *zero);

		a = _mm256_sub_epi32(a, less);
		b = _mm256_sub_epi32(b, less);
	}
	*first = _mm256_cvtepi32_ps(a);
	*second = _mm256_cvtepi32_ps(b);
	if (load == LOAD_Q4) {
		*first = _mm256_mul_ps(*first, _mm256_broadcast_ss(scale));
		*second = _mm256_mul_ps(*second, _mm256_broadcast_ss(scale));
	}
}

/* ---- sums across --------------------------------------------------------------------------- */

/* hadd, which takes twice as long: neighbours of a, then of b, added in each half. */
V_INLINE __m256 add_pairs(__m256 a, __m256 b)
{
	return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

/* Accumulators of integers: not __m256i, which the compiler moves from one register to another
 * around every operation on 32-bit elements. */
typedef int32_t counts __attribute__((vector_size(32)));

V_INLINE counts add_code_pairs(counts a, counts b)
{
	return (counts)_mm256_shuffle_ps((__m256)a, (__m256)b, 0x88) +
	       (counts)_mm256_shuffle_ps((__m256)a, (__m256)b, 0xdd);
}

/* Of eight registers: ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7)) of each. */
V_INLINE __m256 trees(const __m256 *p)
{
	__m256 a = add_pairs(add_pairs(p[0], p[1]), add_pairs(p[2], p[3]));
	__m256 b = add_pairs(add_pairs(p[4], p[5]), add_pairs(p[6], p[7]));

	return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20),
			     _mm256_permute2f128_ps(a, b, 0x31));
}

V_INLINE __m256i sums(const counts *p)
{
	counts a = add_code_pairs(add_code_pairs(p[0], p[1]), add_code_pairs(p[2], p[3]));
	counts b = add_code_pairs(add_code_pairs(p[4], p[5]), add_code_pairs(p[6], p[7]));

	return _mm256_add_epi32(_mm256_permute2x128_si256((__m256i)a, (__m256i)b, 0x20),
				_mm256_permute2x128_si256((__m256i)a, (__m256i)b, 0x31));
}

/* memcpy, which is slow to begin where the number is not known. */
V_INLINE void copy_floats(float *to, const float *from, uint32_t n)
{
	uint32_t i = 0;

	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(to + i, _mm256_loadu_ps(from + i));
	for (; i < n; i++)
		to[i] = from[i];
}

/* ---- rows of a call ------------------------------------------------------------------------ */

/* One tile, and what a block may write behind it. */
#define T_STRIDE (KV_ATTEND_TILE + N_SUMS)

#define GROUPS_MAX (KV_ATTEND_WIDTH_MAX / KV_Q4_GROUP)

/* Rows of a call, looked through once. */
struct tile {
	const char *codes;
	size_t codes_stride;
	uint32_t n, width, half; /* width: a multiple of 16 */
	const struct kv_attend_ahead *ahead;
	float scale[T_STRIDE]; /* of each row, in the formats that have one */
	int32_t zero[T_STRIDE];
	float groups[KV_ATTEND_TILE][GROUPS_MAX]; /* scales of q4 */
};

static inline void read_scales(struct tile *t, const struct kv_codec *codec,
			       const struct kv_codec_at *rows)
{
	const char *at = rows->scale;

	if (codec->bytes.scale == sizeof(float)) {
		for (uint32_t i = 0; i < t->n; i++, at += rows->scale_stride)
			memcpy(&t->scale[i], at, sizeof(t->scale[i]));
		return;
	}
	for (uint32_t i = 0; i < t->n; i++, at += rows->scale_stride)
		t->scale[i] = kv_element(codec->dtype, at, 0);
}

static inline void read_groups(struct tile *t, const struct kv_codec_at *rows)
{
	const char *at = rows->scale;
	uint32_t n = t->width / KV_Q4_GROUP;

	for (uint32_t i = 0; i < t->n; i++, at += rows->scale_stride) {
		uint32_t g = 0;

		for (; g + 4 <= n; g += 4)
			_mm_storeu_ps(&t->groups[i][g],
				      _mm256_castps256_ps128(bf16_widen(load_half(at + 2 * g))));
		for (; g < n; g++)
			t->groups[i][g] = kv_element(KV_DTYPE_BF16, at, g);
	}
}

V_INLINE void tile_init(enum load load, struct tile *t, const struct kv_codec *codec, uint32_t n,
			const struct kv_codec_at *rows, const struct kv_attend_ahead *ahead)
{
	t->codes = rows->codes;
	t->codes_stride = rows->codes_stride;
	t->n = n;
	t->ahead = ahead;
	t->width = (codec->width + STEP - 1) / STEP * STEP;
	t->half = codec->width / 2;
	memset(t->scale + n, 0, N_SUMS * sizeof(t->scale[0]));
	if (load_has_scale(load))
		read_scales(t, codec, rows);
	if (load == LOAD_Q4)
		read_groups(t, rows);
	memset(t->zero + n, 0, N_SUMS * sizeof(t->zero[0]));
	for (uint32_t i = 0; load_has_zero(load) && i < n; i++)
		memcpy(&t->zero[i], (char *)rows->zero + i * rows->zero_stride, sizeof(t->zero[i]));
}

/* Asks for what belongs to row i. Evenly spread, or requests wait for each other, and all for them. */
V_INLINE void fetch(const struct tile *t, uint32_t i)
{
	const char *at;

	if (!t->ahead || i >= t->n)
		return;
	at = (const char *)t->ahead->at + i * t->ahead->stride;
	for (uint32_t k = 0; k < t->ahead->bytes; k += 64)
		_mm_prefetch(at + k, _MM_HINT_T1);
}

/* ---- the rest of the table (attend_softmax_avx2.c) ------------------------------------------ */

int32_t kv_attend_integers_avx2(const float *q, uint32_t n, int16_t *q16, float *unit);
float kv_attend_softmax_avx2(float *s, uint32_t n, float m, float *sum);
void kv_attend_scale_avx2(float *o, uint32_t n, float x);
void kv_attend_merge_avx2(float *o, uint32_t n, float b, const float *x, float a);

#endif
