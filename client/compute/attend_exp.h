/*
 * The exponential of attention, one element: what every set of kernels does, operation by operation.
 *
 * exp(x) = 2^k * exp(r) with k = rint(x / ln 2), r = x - k ln 2 and so |r| <= 0.35: 1 + r + r^2 * p,
 * where p is a minimax polynomial (relative error of the whole 2^-28). 2^k comes as two factors, for
 * it may be below the normal numbers; the first product is exact.
 */
#ifndef KV_CLIENT_COMPUTE_ATTEND_EXP_H
#define KV_CLIENT_COMPUTE_ATTEND_EXP_H

#include "client/compute/convert.h"

#define KV_EXP_LEAST (-104.0f) /* 0 from here on */
#define KV_EXP_MOST 88.0f
#define KV_EXP_LOG2E 0x1.715476p+0f
#define KV_EXP_MAGIC 0x1.8p23f /* a sum with it has no bits behind the point */
#define KV_EXP_LN2 0x1.62e43p-1f
#define KV_EXP_LN2_REST -0x1.05c61p-29f
#define KV_EXP_P2 0x1.fffffcp-2f
#define KV_EXP_P3 0x1.55549p-3f
#define KV_EXP_P4 0x1.5558f4p-5f
#define KV_EXP_P5 0x1.123a6cp-7f
#define KV_EXP_P6 0x1.6a239ap-10f

/* 2^k by its bits. Of a NaN k is anything, and its product NaN all the same. */
static inline float kv_exp_power(int32_t k)
{
	return kv_f32_of_bits(((uint32_t)k + 127) << 23);
}

static inline float kv_exp(float x)
{
	float t, k, r, p;
	int32_t steps;

	x = KV_EXP_LEAST > x ? KV_EXP_LEAST : x;
	x = KV_EXP_MOST < x ? KV_EXP_MOST : x;
	t = __builtin_fmaf(x, KV_EXP_LOG2E, KV_EXP_MAGIC);
	k = t - KV_EXP_MAGIC;
	r = __builtin_fmaf(-k, KV_EXP_LN2, x);
	r = __builtin_fmaf(-k, KV_EXP_LN2_REST, r);
	p = __builtin_fmaf(KV_EXP_P6, r, KV_EXP_P5);
	p = __builtin_fmaf(p, r, KV_EXP_P4);
	p = __builtin_fmaf(p, r, KV_EXP_P3);
	p = __builtin_fmaf(p, r, KV_EXP_P2);
	p = __builtin_fmaf(p, r * r, r);
	p += 1.0f;
	steps = (int32_t)(kv_f32_bits(t) - kv_f32_bits(KV_EXP_MAGIC));
	return p * kv_exp_power(steps >> 1) * kv_exp_power(steps - (steps >> 1));
}

#endif
