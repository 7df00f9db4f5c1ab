/* The kernels of x86-64. F16C is asked of the processor itself: not every compiler's
 * __builtin_cpu_supports knows it. That the system saves the wide registers, AVX2 says. */
#include <cpuid.h>

#include "client/compute/kernels.h"

static bool always(void)
{
	return true;
}

static bool has_avx2(void)
{
	unsigned a, b, c = 0, d;

	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx512(void)
{
	return has_avx2() && __builtin_cpu_supports("avx512f");
}

static const struct kv_attend_ops *attend_scalar(void)
{
	return &kv_attend_scalar;
}

/* Attention wants FMA too, which some machines with AVX2 have not. */
static const struct kv_attend_ops *attend_avx2(void)
{
	return __builtin_cpu_supports("fma") ? &kv_attend_avx2 : &kv_attend_scalar;
}

const struct kv_codec_kernels kv_codec_kernels[] = {
	{"scalar", always, &kv_codec_scalar, attend_scalar},
	{"avx2", has_avx2, &kv_codec_avx2, attend_avx2},
	{"avx512", has_avx512, &kv_codec_avx512, attend_avx2},
};
const size_t kv_codec_n_kernels = sizeof(kv_codec_kernels) / sizeof(kv_codec_kernels[0]);
