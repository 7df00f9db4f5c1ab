/*
 * What a vector is stored with: scale, reciprocal and zero point, from the least and greatest of
 * its elements. The same code for every set of kernels, so that these differ in their loops only.
 *
 * Each line is one binary32 operation; none may be fused or replaced by another that is equal on
 * paper, for the bits are those of other programs (kvcache-formats(7) says whose). Built without
 * contraction of products and sums.
 */
#ifndef KV_CLIENT_COMPUTE_ARITHMETIC_H
#define KV_CLIENT_COMPUTE_ARITHMETIC_H

#include <stdbool.h>

#include "client/compute/convert.h"

#define KV_INT8_TOP 127.0f
#define KV_Q4_TOP 7.0f
#define KV_E4M3_TOP 448.0f

/* Smallest scales. */
#define KV_AFFINE_FLOOR 0x1p-23f
#define KV_INT8_FLOOR 1e-5f /* rounded to the dtype */
#define KV_Q4_FLOOR 0x1p-126f
#define KV_FP8_FLOOR_EXPONENT 1u /* 2^-126 */

static inline float kv_f32_max(float a, float b)
{
	return a > b ? a : b;
}

/* ---- symmetric: code = rint(x * reciprocal) ------------------------------------------------ */

struct kv_symmetric {
	float scale, reciprocal;
};

/* The scale is in the dtype. The model's own arithmetic rounds the reciprocal to bf16 too. */
static inline struct kv_symmetric kv_int8_of(uint32_t dtype, bool in_bf16, float magnitude)
{
	struct kv_symmetric p;

	p.scale = kv_narrow(dtype, magnitude / KV_INT8_TOP);
	p.scale = kv_f32_max(p.scale, kv_narrow(dtype, KV_INT8_FLOOR));
	p.reciprocal = 1.0f / p.scale;
	if (in_bf16)
		p.reciprocal = kv_narrow(KV_DTYPE_BF16, p.reciprocal);
	return p;
}

/* Does int8-model round to bf16 between the steps? (In f16 torchao does not.) */
static inline bool kv_is_in_bf16(uint32_t format, uint32_t dtype)
{
	return format == KV_FORMAT_INT8_MODEL && dtype == KV_DTYPE_BF16;
}

static inline struct kv_symmetric kv_q4_of(float magnitude)
{
	struct kv_symmetric p;

	p.scale = kv_narrow(KV_DTYPE_BF16, magnitude / KV_Q4_TOP);
	p.scale = kv_f32_max(p.scale, KV_Q4_FLOOR);
	p.reciprocal = 1.0f / p.scale;
	return p;
}

/*
 * The smallest power of two for which the magnitude is at most 448 times it; 1 for a vector of
 * zeros. It and its reciprocal are normal numbers, so both products are exact.
 */
static inline struct kv_symmetric kv_fp8_of(float magnitude)
{
	uint32_t bits = kv_f32_bits(magnitude), exponent = bits >> 23;

	if (bits == 0)
		return (struct kv_symmetric){1.0f, 1.0f};
	exponent += (bits & 0x7fffff) > 0x600000; /* above 1.75 times its power of two */
	exponent = exponent > 8 + KV_FP8_FLOOR_EXPONENT ? exponent - 8 : KV_FP8_FLOOR_EXPONENT;
	return (struct kv_symmetric){kv_f32_of_bits(exponent << 23),
				     kv_f32_of_bits((254 - exponent) << 23)};
}

/* ---- queries of attention: 16 bits ---------------------------------------------------------- */

#define KV_Q16_TOP 32767.0f
#define KV_Q16_FLOOR 0x1p-100f /* what is below has no reciprocal to rely on, and counts as 0 */

/* The reciprocal of the unit, which is NaN if the magnitude is not finite; 0: all codes are 0. */
static inline float kv_q16_of(float magnitude, float *unit)
{
	*unit = magnitude / KV_Q16_TOP;
	if (magnitude >= KV_Q16_FLOOR && magnitude <= FLT_MAX)
		return KV_Q16_TOP / magnitude;
	*unit = magnitude < KV_Q16_FLOOR ? 0 : magnitude - magnitude;
	return 0;
}

/* ---- affine: code = rint(x * reciprocal) + zero -------------------------------------------- */

struct kv_affine {
	float scale, reciprocal;
	int32_t zero; /* not clamped to the codes */
};

static inline float kv_affine_code(float x, const struct kv_affine *p, float top)
{
	float u = kv_f32_rint(x * p->reciprocal) + (float)p->zero;

	u = u > 0 ? u : 0;
	return u < top ? u : top;
}

/* Does code - zero fit for every code up to that of `greatest`? (256 - 2^-16 and 256 in u8: no.) */
static inline bool kv_affine_fits(const struct kv_affine *p, float greatest, float top)
{
	int64_t code = (int64_t)kv_affine_code(greatest, p, top);

	return code - p->zero <= INT32_MAX;
}

/*
 * Where the zero point does not fit 32 bits, the elements are one value or two adjacent f32
 * values. Either the scale is range / 255: with values m steps of an f32 from 0 (m <= 2^24) and n
 * of them apart the zero point is about 255 * m / n, so that n is 1. Or it is at its floor: then
 * the values are 256 and more and less than 255 * 2^-23 apart, and a step there is half of that
 * and more. With the step as scale all is exact. The step is that of the value nearer to 0, for
 * the other may be the power of two where steps double.
 */
static inline struct kv_affine kv_affine_by_steps(float least, float greatest)
{
	float near_zero = least > 0 ? least : -greatest;
	uint32_t exponent = kv_f32_bits(near_zero) >> 23;
	struct kv_affine p;

	p.scale = kv_f32_of_bits((exponent - 23) << 23);
	p.reciprocal = kv_f32_of_bits((254 - (exponent - 23)) << 23);
	p.zero = -(int32_t)(least * p.reciprocal);
	return p;
}

static inline struct kv_affine kv_affine_of(float least, float greatest, float top)
{
	float range = greatest - least, at_least;
	struct kv_affine p;

	p.scale = range / top;
	if (range > FLT_MAX)
		p.scale = greatest / top - least / top;
	p.scale = kv_f32_max(p.scale, KV_AFFINE_FLOOR);
	at_least = kv_f32_rint(least / p.scale);
	if (!(kv_f32_abs(at_least) < 0x1p31f))
		return kv_affine_by_steps(least, greatest);
	p.zero = -(int32_t)at_least;
	p.reciprocal = 1.0f / p.scale;
	if (at_least > 0x1p30f && !kv_affine_fits(&p, greatest, top))
		return kv_affine_by_steps(least, greatest);
	return p;
}

static inline float kv_affine_value(uint8_t code, int32_t zero, float scale)
{
	int32_t steps = (int32_t)((uint32_t)code - (uint32_t)zero);

	return (float)steps * scale;
}

#endif
