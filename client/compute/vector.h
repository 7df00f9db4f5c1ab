/*
 * The kernels on 16 elements at a time: included once by each file that has the primitives for a
 * machine (avx2.c, avx512.c). Nothing here knows a machine.
 *
 * Every operation on an element is the one that scalar.c does, in the same order, so the bytes are
 * the same; scales and zero points come from the same code (arithmetic.h). Two things differ in
 * form only. Vectors whose width is no multiple of 16 end with a step that begins 16 elements
 * before their end and does some elements a second time; shorter ones are left to the scalar set.
 * And the affine codes are summed as integers, which is the same while zero points stay within
 * 2^30; the others are left to the scalar set too.
 *
 * What the including file gives, all V_INLINE; f: 16 floats, i: 16 int32, b: 16 bytes:
 *
 *   v_load(dtype, at) v_store(dtype, at, f)   elements; v_store rounds, the value is in range
 *   v_set(x) v_mul(f, f) v_min(f, f) v_max(f, f)   the second one if either is no number
 *   v_abs_max(f, f)       larger of a magnitude and |second|, compared as bits: NaN is largest
 *   v_least(f) v_greatest(f) v_largest_bits(f)   of the 16
 *   v_narrow_bf16(f)
 *   v_rint(f)             to int32, ties to even
 *   v_set_i(x) v_add_i(i, i) v_sub_i(i, i) v_from_i(i)
 *   v_bytes_load(at) v_bytes_store(at, b)
 *   v_pack_i8(i)          cut to -127 .. 127
 *   v_pack_u8(i, top)     cut to 0 .. top
 *   v_unpack_i8(b) v_unpack_u8(b)
 *   v_join(b, b)          first << 4 | second
 *   v_high(b) v_low(b)    nibbles
 *   v_e4m3_pack(f) v_e4m3_unpack(b)
 *   v_h, halves_...       what x86.h has, on elements of 16 bits as they lie
 */
#include "client/compute/arithmetic.h"
#include "client/compute/kernels.h"
#include "proto/limits.h"

#define STEP 16u

/* ---- steps --------------------------------------------------------------------------------- */

/* i = 0, 16, .. and last n - 16; n is at least 16. */
#define EACH_STEP(i, n) \
	for (size_t i = 0, i##_last = (n)-STEP, i##_more = 1; i##_more; \
	     i##_more = i != i##_last, i = i + STEP < i##_last ? i + STEP : i##_last)

V_INLINE const char *element_at(uint32_t dtype, const char *vector, size_t i)
{
	return vector + i * (dtype == KV_DTYPE_F32 ? 4 : 2);
}

V_INLINE bool is_finite(float x)
{
	return kv_f32_abs(x) <= FLT_MAX;
}

V_INLINE float half_to_f32(uint32_t dtype, uint16_t half)
{
	return dtype == KV_DTYPE_F16 ? kv_f16_to_f32(half) : kv_bf16_to_f32(half);
}

V_INLINE float magnitude_of_halves(uint32_t dtype, const char *src, size_t n)
{
	v_h largest = halves_zero();

	EACH_STEP(i, n)
		largest = halves_abs_max(largest, halves_load(element_at(dtype, src, i)));
	return half_to_f32(dtype, halves_largest(largest));
}

/* The largest magnitude of n elements. Not finite if one of them is not. */
V_INLINE float magnitude_of(uint32_t dtype, const char *src, size_t n)
{
	v_f largest = v_set(0);

	if (dtype != KV_DTYPE_F32)
		return magnitude_of_halves(dtype, src, n);
	EACH_STEP(i, n)
		largest = v_abs_max(largest, v_load(dtype, element_at(dtype, src, i)));
	return kv_f32_of_bits(v_largest_bits(largest));
}

V_INLINE bool extent_of_halves(uint32_t dtype, const char *src, size_t n, float *least,
			       float *greatest)
{
	v_h low = halves_ordered(halves_load(src)), high = low;

	EACH_STEP(i, n) {
		v_h x = halves_ordered(halves_load(element_at(dtype, src, i)));

		low = halves_min(low, x);
		high = halves_max(high, x);
	}
	*least = half_to_f32(dtype, halves_unordered(halves_least(low)));
	*greatest = half_to_f32(dtype, halves_unordered(halves_largest(high)));
	return is_finite(*least) && is_finite(*greatest);
}

/* Least and greatest of n elements. False if one of them is not finite. */
V_INLINE bool extent_of(uint32_t dtype, const char *src, size_t n, float *least, float *greatest)
{
	v_f low = v_set(FLT_MAX), high = v_set(-FLT_MAX), largest = v_set(0);

	if (dtype != KV_DTYPE_F32)
		return extent_of_halves(dtype, src, n, least, greatest);
	EACH_STEP(i, n) {
		v_f x = v_load(dtype, element_at(dtype, src, i));

		largest = v_abs_max(largest, x);
		low = v_min(low, x);
		high = v_max(high, x);
	}
	*least = v_least(low);
	*greatest = v_greatest(high);
	return v_largest_bits(largest) < KV_F32_EXPONENT;
}

/* As kv_saturate: what is no number stays so. */
V_INLINE void put_values(uint32_t dtype, char *dst, size_t i, v_f values)
{
	v_f largest = v_set(kv_dtype_largest(dtype)), least = v_set(-kv_dtype_largest(dtype));

	values = v_max(least, v_min(largest, values));
	v_store(dtype, dst + i * (dtype == KV_DTYPE_F32 ? 4 : 2), values);
}

/* ---- vectors ------------------------------------------------------------------------------- */

/* What a vector is stored with. */
struct params {
	float scale, reciprocal;
	int32_t zero;
	bool is_for_scalar;
};

typedef bool prepare_fn(uint32_t dtype, const struct kv_codec *codec, const char *src,
			struct params *p);
typedef void store_fn(uint32_t dtype, const struct kv_codec *codec, const char *src,
		      const struct params *p, const struct kv_codec_at *to);
typedef void load_fn(uint32_t dtype, const struct kv_codec *codec, const struct kv_codec_at *from,
		     char *dst);

/*
 * Vectors go in small batches: parameters of all, then codes of all. Two divisions and what hangs
 * on them take as long as the codes of a vector; so they overlap. The compiler puts the functions
 * in place of their calls.
 */
#define BATCH 4u

V_INLINE size_t quantise_each(prepare_fn *prepare, store_fn *store, uint32_t dtype,
			      const struct kv_codec *codec, size_t n, const char *src,
			      size_t src_stride, const struct kv_codec_at *to)
{
	struct params p[BATCH];
	size_t i = 0, n_batch, n_ready;

	for (; i < n; i += n_batch) {
		const char *batch = src + i * src_stride;

		n_batch = n - i < BATCH ? n - i : BATCH;
		for (n_ready = 0; n_ready < n_batch; n_ready++)
			if (!prepare(dtype, codec, batch + n_ready * src_stride, &p[n_ready]))
				break;
		for (size_t k = 0; k < n_ready; k++) {
			struct kv_codec_at at = kv_codec_at(to, i + k);

			store(dtype, codec, batch + k * src_stride, &p[k], &at);
		}
		if (n_ready < n_batch)
			return i + n_ready;
	}
	return n;
}

V_INLINE void dequantise_each(load_fn *load, uint32_t dtype, const struct kv_codec *codec, size_t n,
			      const struct kv_codec_at *from, char *dst, size_t dst_stride)
{
	for (size_t i = 0; i < n; i++) {
		struct kv_codec_at at = kv_codec_at(from, i);

		load(dtype, codec, &at, dst + i * dst_stride);
	}
}

/* ---- int8 ---------------------------------------------------------------------------------- */

V_INLINE bool prepare_int8_as(uint32_t dtype, bool in_bf16, const struct kv_codec *codec,
			      const char *src, struct params *p)
{
	float magnitude = magnitude_of(dtype, src, codec->width);
	struct kv_symmetric s = kv_int8_of(dtype, in_bf16, magnitude);

	*p = (struct params){.scale = s.scale, .reciprocal = s.reciprocal};
	return is_finite(magnitude);
}

V_INLINE void store_int8_as(uint32_t dtype, bool in_bf16, const struct kv_codec *codec,
			    const char *src, const struct params *p, const struct kv_codec_at *to)
{
	v_f reciprocal = v_set(p->reciprocal);
	int8_t *codes = to->codes;
	size_t width = codec->width;

	kv_element_set(dtype, to->scale, 0, p->scale);
	EACH_STEP(i, width) {
		v_f product = v_mul(v_load(dtype, element_at(dtype, src, i)), reciprocal);

		if (in_bf16)
			product = v_narrow_bf16(product);
		v_bytes_store(codes + i, v_pack_i8(v_rint(product)));
	}
}

V_INLINE bool prepare_int8(uint32_t dtype, const struct kv_codec *codec, const char *src,
			   struct params *p)
{
	return prepare_int8_as(dtype, false, codec, src, p);
}

V_INLINE void store_int8(uint32_t dtype, const struct kv_codec *codec, const char *src,
			 const struct params *p, const struct kv_codec_at *to)
{
	store_int8_as(dtype, false, codec, src, p, to);
}

V_INLINE bool prepare_int8_model(uint32_t dtype, const struct kv_codec *codec, const char *src,
				 struct params *p)
{
	return prepare_int8_as(dtype, dtype == KV_DTYPE_BF16, codec, src, p);
}

V_INLINE void store_int8_model(uint32_t dtype, const struct kv_codec *codec, const char *src,
			       const struct params *p, const struct kv_codec_at *to)
{
	store_int8_as(dtype, dtype == KV_DTYPE_BF16, codec, src, p, to);
}

V_INLINE void load_int8(uint32_t dtype, const struct kv_codec *codec,
			const struct kv_codec_at *from, char *dst)
{
	v_f scale = v_set(kv_element(dtype, from->scale, 0));
	const int8_t *codes = from->codes;
	size_t width = codec->width;

	EACH_STEP(i, width) {
		v_i values = v_unpack_i8(v_bytes_load(codes + i));

		put_values(dtype, dst, i, v_mul(v_from_i(values), scale));
	}
}

V_INLINE void load_int8_model(uint32_t dtype, const struct kv_codec *codec,
			      const struct kv_codec_at *from, char *dst)
{
	load_int8(dtype, codec, from, dst);
}

/* ---- u8, u4 -------------------------------------------------------------------------------- */

#define ZERO_MAX (1 << 30)

V_INLINE bool prepare_affine(uint32_t dtype, const struct kv_codec *codec, const char *src,
			     float top, struct params *p)
{
	float least, greatest;
	struct kv_affine a;

	if (!extent_of(dtype, src, codec->width, &least, &greatest))
		return false;
	a = kv_affine_of(least, greatest, top);
	*p = (struct params){.scale = a.scale,
			     .reciprocal = a.reciprocal,
			     .zero = a.zero,
			     .is_for_scalar = a.zero > ZERO_MAX || a.zero < -ZERO_MAX};
	return true;
}

V_INLINE bool prepare_u8(uint32_t dtype, const struct kv_codec *codec, const char *src,
			 struct params *p)
{
	return prepare_affine(dtype, codec, src, 255.0f, p);
}

V_INLINE bool prepare_u4(uint32_t dtype, const struct kv_codec *codec, const char *src,
			 struct params *p)
{
	return prepare_affine(dtype, codec, src, 15.0f, p);
}

V_INLINE void store_by_scalar(uint32_t dtype, const struct kv_codec *codec, const char *src,
			      const struct kv_codec_at *to)
{
	kv_codec_scalar[codec->format][dtype].quantise(codec, 1, src, 0, to);
}

V_INLINE void put_affine(const struct params *p, const struct kv_codec_at *to)
{
	memcpy(to->scale, &p->scale, sizeof(p->scale));
	memcpy(to->zero, &p->zero, sizeof(p->zero));
}

V_INLINE v_b affine_codes(uint32_t dtype, const char *src, size_t i, v_f reciprocal, v_i zero,
			  int top)
{
	v_f product = v_mul(v_load(dtype, element_at(dtype, src, i)), reciprocal);

	return v_pack_u8(v_add_i(v_rint(product), zero), top);
}

V_INLINE void store_u8(uint32_t dtype, const struct kv_codec *codec, const char *src,
		       const struct params *p, const struct kv_codec_at *to)
{
	v_f reciprocal = v_set(p->reciprocal);
	v_i zero = v_set_i(p->zero);
	uint8_t *codes = to->codes;
	size_t width = codec->width;

	if (p->is_for_scalar) {
		store_by_scalar(dtype, codec, src, to);
		return;
	}
	put_affine(p, to);
	EACH_STEP(i, width)
		v_bytes_store(codes + i, affine_codes(dtype, src, i, reciprocal, zero, 255));
}

V_INLINE void store_u4(uint32_t dtype, const struct kv_codec *codec, const char *src,
		       const struct params *p, const struct kv_codec_at *to)
{
	v_f reciprocal = v_set(p->reciprocal);
	size_t half = codec->width / 2;
	v_i zero = v_set_i(p->zero);
	uint8_t *codes = to->codes;

	if (p->is_for_scalar) {
		store_by_scalar(dtype, codec, src, to);
		return;
	}
	put_affine(p, to);
	EACH_STEP(i, half) {
		v_b high = affine_codes(dtype, src, i, reciprocal, zero, 15);
		v_b low = affine_codes(dtype, src, i + half, reciprocal, zero, 15);

		v_bytes_store(codes + i, v_join(high, low));
	}
}

V_INLINE v_i zero_of(const struct kv_codec_at *from)
{
	int32_t zero;

	memcpy(&zero, from->zero, sizeof(zero));
	return v_set_i(zero);
}

V_INLINE void put_affine_values(uint32_t dtype, char *dst, size_t i, v_b codes, v_f scale, v_i zero)
{
	v_i steps = v_sub_i(v_unpack_u8(codes), zero);

	put_values(dtype, dst, i, v_mul(v_from_i(steps), scale));
}

V_INLINE void load_u8(uint32_t dtype, const struct kv_codec *codec, const struct kv_codec_at *from,
		      char *dst)
{
	v_f scale = v_set(kv_element(KV_DTYPE_F32, from->scale, 0));
	const uint8_t *codes = from->codes;
	size_t width = codec->width;
	v_i zero = zero_of(from);

	EACH_STEP(i, width)
		put_affine_values(dtype, dst, i, v_bytes_load(codes + i), scale, zero);
}

V_INLINE void load_u4(uint32_t dtype, const struct kv_codec *codec, const struct kv_codec_at *from,
		      char *dst)
{
	v_f scale = v_set(kv_element(KV_DTYPE_F32, from->scale, 0));
	const uint8_t *codes = from->codes;
	size_t half = codec->width / 2;
	v_i zero = zero_of(from);

	EACH_STEP(i, half) {
		v_b pairs = v_bytes_load(codes + i);

		put_affine_values(dtype, dst, i, v_high(pairs), scale, zero);
		put_affine_values(dtype, dst, i + half, v_low(pairs), scale, zero);
	}
}

/* ---- q4 ------------------------------------------------------------------------------------ */

#define HALF_GROUP (KV_Q4_GROUP / 2)

V_INLINE bool prepare_q4(uint32_t dtype, const struct kv_codec *codec, const char *src,
			 float *magnitudes)
{
	bool is_good = true;

	for (size_t i = 0; i < codec->width; i += KV_Q4_GROUP) {
		float magnitude = magnitude_of(dtype, element_at(dtype, src, i), KV_Q4_GROUP);

		magnitudes[i / KV_Q4_GROUP] = magnitude;
		is_good = is_good && is_finite(magnitude);
	}
	return is_good;
}

/* A product is at most 7.03 here, so that the codes need no cut. */
V_INLINE v_b q4_codes(uint32_t dtype, const char *src, v_f reciprocal)
{
	v_f product = v_mul(v_load(dtype, src), reciprocal);

	return v_pack_u8(v_add_i(v_rint(product), v_set_i(8)), 255);
}

V_INLINE void store_q4(uint32_t dtype, const struct kv_codec *codec, const char *src,
		       const float *magnitudes, const struct kv_codec_at *to)
{
	uint8_t *codes = to->codes;

	for (size_t i = 0; i < codec->width; i += KV_Q4_GROUP) {
		struct kv_symmetric p = kv_q4_of(magnitudes[i / KV_Q4_GROUP]);
		const char *first = element_at(dtype, src, i);
		const char *second = element_at(dtype, src, i + HALF_GROUP);
		v_f reciprocal = v_set(p.reciprocal);

		kv_element_set(KV_DTYPE_BF16, to->scale, i / KV_Q4_GROUP, p.scale);
		v_bytes_store(codes + i / 2, v_join(q4_codes(dtype, first, reciprocal),
						    q4_codes(dtype, second, reciprocal)));
	}
}

/* No batches: the groups of a vector overlap each other. */
V_INLINE size_t quantise_q4(uint32_t dtype, const struct kv_codec *codec, size_t n, const char *src,
			    size_t src_stride, const struct kv_codec_at *to)
{
	float magnitudes[KV_WIDTH_MAX / KV_Q4_GROUP];

	for (size_t i = 0; i < n; i++, src += src_stride) {
		struct kv_codec_at at = kv_codec_at(to, i);

		if (!prepare_q4(dtype, codec, src, magnitudes))
			return i;
		store_q4(dtype, codec, src, magnitudes, &at);
	}
	return n;
}

V_INLINE void put_q4_values(uint32_t dtype, char *dst, size_t i, v_b codes, v_f scale)
{
	v_i values = v_sub_i(v_unpack_u8(codes), v_set_i(8));

	put_values(dtype, dst, i, v_mul(v_from_i(values), scale));
}

V_INLINE void load_q4(uint32_t dtype, const struct kv_codec *codec, const struct kv_codec_at *from,
		      char *dst)
{
	const uint8_t *codes = from->codes;

	for (size_t i = 0; i < codec->width; i += KV_Q4_GROUP) {
		v_f scale = v_set(kv_element(KV_DTYPE_BF16, from->scale, i / KV_Q4_GROUP));
		v_b pairs = v_bytes_load(codes + i / 2);

		put_q4_values(dtype, dst, i, v_high(pairs), scale);
		put_q4_values(dtype, dst, i + HALF_GROUP, v_low(pairs), scale);
	}
}

/* ---- fp8 ----------------------------------------------------------------------------------- */

V_INLINE bool prepare_fp8(uint32_t dtype, const struct kv_codec *codec, const char *src,
			  struct params *p)
{
	float magnitude = magnitude_of(dtype, src, codec->width);
	struct kv_symmetric s = kv_fp8_of(magnitude);

	*p = (struct params){.scale = s.scale, .reciprocal = s.reciprocal};
	return is_finite(magnitude);
}

V_INLINE void store_fp8(uint32_t dtype, const struct kv_codec *codec, const char *src,
			const struct params *p, const struct kv_codec_at *to)
{
	v_f reciprocal = v_set(p->reciprocal);
	uint8_t *codes = to->codes;
	size_t width = codec->width;

	memcpy(to->scale, &p->scale, sizeof(p->scale));
	EACH_STEP(i, width) {
		v_f x = v_load(dtype, element_at(dtype, src, i));

		v_bytes_store(codes + i, v_e4m3_pack(v_mul(x, reciprocal)));
	}
}

V_INLINE void load_fp8(uint32_t dtype, const struct kv_codec *codec, const struct kv_codec_at *from,
		       char *dst)
{
	v_f scale = v_set(kv_element(KV_DTYPE_F32, from->scale, 0));
	const uint8_t *codes = from->codes;
	size_t width = codec->width;

	EACH_STEP(i, width)
		put_values(dtype, dst, i, v_mul(v_e4m3_unpack(v_bytes_load(codes + i)), scale));
}

/* ---- the table ----------------------------------------------------------------------------- */

#define BY_BATCHES(name) \
	V_INLINE size_t quantise_##name(uint32_t dtype, const struct kv_codec *codec, size_t n, \
					const char *src, size_t src_stride, \
					const struct kv_codec_at *to) \
	{ \
		return quantise_each(prepare_##name, store_##name, dtype, codec, n, src, \
				     src_stride, to); \
	}

BY_BATCHES(int8)
BY_BATCHES(int8_model)
BY_BATCHES(u8)
BY_BATCHES(u4)
BY_BATCHES(fp8)

/* Too short for a step? u4 takes steps through each half. */
static inline bool is_short(const struct kv_codec *codec)
{
	return codec->width < (codec->format == KV_FORMAT_U4 ? 2 * STEP : STEP);
}

#define DEFINE(name, suffix, dtype) \
	static size_t quantise_##name##_##suffix(const struct kv_codec *codec, size_t n, \
						 const char *src, size_t src_stride, \
						 const struct kv_codec_at *to) \
	{ \
		if (is_short(codec)) \
			return kv_codec_scalar[codec->format][dtype].quantise(codec, n, src, \
									      src_stride, to); \
		return quantise_##name(dtype, codec, n, src, src_stride, to); \
	} \
	static void dequantise_##name##_##suffix(const struct kv_codec *codec, size_t n, \
						 const struct kv_codec_at *from, char *dst, \
						 size_t dst_stride) \
	{ \
		if (is_short(codec)) \
			kv_codec_scalar[codec->format][dtype].dequantise(codec, n, from, dst, \
									 dst_stride); \
		else \
			dequantise_each(load_##name, dtype, codec, n, from, dst, dst_stride); \
	}

#define DEFINE_ALL(name) \
	DEFINE(name, f32, KV_DTYPE_F32) \
	DEFINE(name, f16, KV_DTYPE_F16) \
	DEFINE(name, bf16, KV_DTYPE_BF16)

DEFINE_ALL(int8)
DEFINE_ALL(int8_model)
DEFINE_ALL(u8)
DEFINE_ALL(u4)
DEFINE_ALL(q4)
DEFINE_ALL(fp8)

#define ROW(name) \
	{ \
		[KV_DTYPE_F32] = {quantise_##name##_f32, dequantise_##name##_f32}, \
		[KV_DTYPE_F16] = {quantise_##name##_f16, dequantise_##name##_f16}, \
		[KV_DTYPE_BF16] = {quantise_##name##_bf16, dequantise_##name##_bf16}, \
	}

#define VECTOR_TABLE \
	{ \
		[KV_FORMAT_INT8] = ROW(int8), [KV_FORMAT_INT8_MODEL] = ROW(int8_model), \
		[KV_FORMAT_U8] = ROW(u8), [KV_FORMAT_U4] = ROW(u4), [KV_FORMAT_Q4] = ROW(q4), \
		[KV_FORMAT_FP8] = ROW(fp8), \
	}
