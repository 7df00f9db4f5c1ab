/*
 * Conversions between f32 and the narrower types, exact or rounded to nearest even, without help
 * of the machine: the same bits everywhere. Denormals are kept, and what is beyond a type's range
 * becomes infinite; who must not have that saturates first.
 */
#ifndef KV_CLIENT_COMPUTE_CONVERT_H
#define KV_CLIENT_COMPUTE_CONVERT_H

#include <float.h>
#include <stdint.h>
#include <string.h>

#include "proto/format.h"

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "stored bytes must not depend on the compiler: plain IEEE binary32 arithmetic is needed"
#endif

#define KV_F32_EXPONENT 0x7f800000u
#define KV_F32_SIGN 0x80000000u

static inline uint32_t kv_f32_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float kv_f32_of_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline float kv_f32_abs(float value)
{
	return kv_f32_of_bits(kv_f32_bits(value) & ~KV_F32_SIGN);
}

/* To the nearest whole number, ties to the even one. Adding 2^23 leaves no bits behind the point. */
static inline float kv_f32_rint(float value)
{
	uint32_t sign = kv_f32_bits(value) & KV_F32_SIGN;
	float magnitude = kv_f32_abs(value);

	if (!(magnitude < 0x1p23f))
		return value;
	magnitude = (magnitude + 0x1p23f) - 0x1p23f;
	return kv_f32_of_bits(kv_f32_bits(magnitude) | sign);
}

/* The largest finite value of a dtype. */
static inline float kv_dtype_largest(uint32_t dtype)
{
	if (dtype == KV_DTYPE_F16)
		return 65504.0f;
	return dtype == KV_DTYPE_BF16 ? 0x1.fep127f : FLT_MAX;
}

static inline float kv_saturate(float value, float largest)
{
	value = value > largest ? largest : value;
	return value < -largest ? -largest : value;
}

/* Drops the low `n` bits of a magnitude, to nearest even; a carry runs into the exponent. */
static inline uint32_t kv_round_bits(uint32_t bits, unsigned n)
{
	return (bits + ((1u << (n - 1)) - 1) + ((bits >> n) & 1)) >> n;
}

static inline float kv_bf16_to_f32(uint16_t half)
{
	return kv_f32_of_bits((uint32_t)half << 16);
}

static inline uint16_t kv_bf16_of_f32(float value)
{
	return (uint16_t)kv_round_bits(kv_f32_bits(value), 16);
}

static inline float kv_f16_to_f32(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 0x1f;
	uint32_t fraction = half & 0x3ff;

	if (exponent == 0)
		return kv_f32_of_bits(kv_f32_bits((float)fraction * 0x1p-24f) | sign);
	if (exponent == 0x1f)
		return kv_f32_of_bits(KV_F32_EXPONENT | fraction << 13 | sign);
	return kv_f32_of_bits((exponent + 112) << 23 | fraction << 13 | sign);
}

/* A denormal f16 is a multiple of 2^-24, which is the last bit of a sum with 1/2. */
static inline uint16_t kv_f16_of_f32(float value)
{
	uint32_t sign = (kv_f32_bits(value) & KV_F32_SIGN) >> 16;
	float magnitude = kv_f32_abs(value);
	uint32_t bits = kv_f32_bits(magnitude);

	if (!(magnitude < 65520.0f))
		return (uint16_t)(sign | (bits > KV_F32_EXPONENT ? 0x7e00 : 0x7c00));
	if (magnitude < 0x1p-14f)
		bits = kv_f32_bits(magnitude + 0.5f) - kv_f32_bits(0.5f);
	else
		bits = kv_round_bits(bits - (112u << 23), 13);
	return (uint16_t)(sign | bits);
}

/* Rounds to a dtype, as an f32. */
static inline float kv_narrow(uint32_t dtype, float value)
{
	if (dtype == KV_DTYPE_F16)
		return kv_f16_to_f32(kv_f16_of_f32(value));
	return dtype == KV_DTYPE_BF16 ? kv_bf16_to_f32(kv_bf16_of_f32(value)) : value;
}

/* fp8 e4m3: a denormal is a multiple of 2^-9, the last bit of a sum with 2^14. |value| <= 448. */
static inline uint8_t kv_e4m3_of_f32(float value)
{
	uint32_t sign = (kv_f32_bits(value) & KV_F32_SIGN) >> 24;
	float magnitude = kv_f32_abs(value);
	uint32_t bits;

	if (magnitude < 0x1p-6f)
		bits = kv_f32_bits(magnitude + 0x1p14f) - kv_f32_bits(0x1p14f);
	else
		bits = kv_round_bits(kv_f32_bits(magnitude) - (120u << 23), 20);
	return (uint8_t)(sign | bits);
}

/* 0x7f and 0xff, which are never stored, read as +-480. */
static inline float kv_e4m3_to_f32(uint8_t code)
{
	uint32_t sign = (uint32_t)(code & 0x80) << 24, magnitude = code & 0x7f;

	if (magnitude < 8)
		return kv_f32_of_bits(kv_f32_bits((float)magnitude * 0x1p-9f) | sign);
	return kv_f32_of_bits(((magnitude << 20) + (120u << 23)) | sign);
}

/* Element i of a dense vector; any alignment. */
static inline float kv_element(uint32_t dtype, const char *vector, size_t i)
{
	uint16_t half;
	float value;

	if (dtype == KV_DTYPE_F32) {
		memcpy(&value, vector + i * sizeof(value), sizeof(value));
		return value;
	}
	memcpy(&half, vector + i * sizeof(half), sizeof(half));
	return dtype == KV_DTYPE_F16 ? kv_f16_to_f32(half) : kv_bf16_to_f32(half);
}

static inline void kv_element_set(uint32_t dtype, char *vector, size_t i, float value)
{
	uint16_t half;

	if (dtype == KV_DTYPE_F32) {
		memcpy(vector + i * sizeof(value), &value, sizeof(value));
		return;
	}
	half = dtype == KV_DTYPE_F16 ? kv_f16_of_f32(value) : kv_bf16_of_f32(value);
	memcpy(vector + i * sizeof(half), &half, sizeof(half));
}

#endif
