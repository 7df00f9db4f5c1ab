/* The kernels of machines for which there are none of their own. */
#include "client/compute/kernels.h"

static bool always(void)
{
	return true;
}

static const struct kv_attend_ops *attend_scalar(void)
{
	return &kv_attend_scalar;
}

const struct kv_codec_kernels kv_codec_kernels[] = {
	{"scalar", always, &kv_codec_scalar, attend_scalar},
};
const size_t kv_codec_n_kernels = sizeof(kv_codec_kernels) / sizeof(kv_codec_kernels[0]);
