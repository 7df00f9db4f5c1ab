/*
 * What storing costs: the measured error of a vector, and the bound that is promised.
 *
 * The error is the same arithmetic for all formats and kernels (lines 12 to 15 of the affine
 * formats in kvcache-formats(7)): differences rounded to the dtype, squares summed in eight
 * columns, then the columns, then what does not fill eight.
 */
#include <math.h>

#include "client/compute/arithmetic.h"
#include "client/compute/fpmode.h"
#include "client/compute/kernels.h"
#include "proto/limits.h"

#define COLUMNS 8u

/* ---- measured ------------------------------------------------------------------------------ */

static float square_of(const struct kv_codec *codec, const char *src, const char *back, size_t i)
{
	float e = kv_element(codec->dtype, src, i) - kv_element(codec->dtype, back, i);

	e = kv_narrow(codec->dtype, e);
	return e * e;
}

static float norm(const struct kv_codec *codec, const char *src, const char *back)
{
	size_t n_columned = codec->width - codec->width % COLUMNS;
	float columns[COLUMNS] = {0}, sum;

	for (size_t i = 0; i < n_columned; i++)
		columns[i % COLUMNS] += square_of(codec, src, back, i);
	sum = columns[0];
	for (size_t j = 1; j < COLUMNS; j++)
		sum += columns[j];
	for (size_t i = n_columned; i < codec->width; i++)
		sum += square_of(codec, src, back, i);
	return sqrtf(sum);
}

void kv_quantise_error(const struct kv_codec *codec, size_t n, const void *src, size_t src_stride,
		       const struct kv_codec_at *stored, float *error, size_t error_stride)
{
	kv_fpmode mode = kv_fpmode_enter();
	char back[KV_WIDTH_MAX * sizeof(float)];

	for (size_t i = 0; i < n; i++) {
		struct kv_codec_at at = kv_codec_at(stored, i);
		float e;

		codec->ops->dequantise(codec, 1, &at, back, 0);
		e = norm(codec, (const char *)src + i * src_stride, back);
		memcpy((char *)error + i * error_stride, &e, sizeof(e));
	}
	kv_fpmode_leave(mode);
}

/* ---- promised ------------------------------------------------------------------------------ */

/* What rounding to a dtype moves a value of at most this magnitude by. */
static float narrow_bound(uint32_t dtype, float magnitude)
{
	if (dtype == KV_DTYPE_F16)
		return magnitude * 0x1p-11f + 0x1p-25f;
	return dtype == KV_DTYPE_BF16 ? magnitude * 0x1p-8f + 0x1p-133f :
					magnitude * 0x1p-24f + 0x1p-149f;
}

/* The largest step that a symmetric scale can be: it is rounded to the dtype. */
static float scale_bound(uint32_t dtype, float magnitude, float top, float floor)
{
	float scale = magnitude / top;

	scale = kv_f32_max(scale, floor);
	return scale + narrow_bound(dtype, scale);
}

/* Half a step, or one and a half where reciprocal and product are rounded to bf16. */
static float bound_int8(const struct kv_codec *codec, float magnitude)
{
	float step = scale_bound(codec->dtype, magnitude, KV_INT8_TOP, KV_INT8_FLOOR);

	return step * (kv_is_in_bf16(codec->format, codec->dtype) ? 1.5f : 0.5f);
}

static float bound_affine(float least, float greatest, float top)
{
	float step = kv_f32_max(greatest / top - least / top, KV_AFFINE_FLOOR);

	return step * 0.5f;
}

/* Half of a fraction's last bit of three, or half of the smallest step. */
static float bound_fp8(float magnitude)
{
	return kv_f32_max(magnitude * 0x1p-4f, 0x1p-136f);
}

static float code_bound(const struct kv_codec *codec, float least, float greatest, float magnitude)
{
	switch (codec->format) {
	case KV_FORMAT_INT8:
	case KV_FORMAT_INT8_MODEL: return bound_int8(codec, magnitude);
	case KV_FORMAT_U8: return bound_affine(least, greatest, 255.0f);
	case KV_FORMAT_U4: return bound_affine(least, greatest, 15.0f);
	case KV_FORMAT_Q4:
		return scale_bound(KV_DTYPE_BF16, magnitude, KV_Q4_TOP, KV_Q4_FLOOR) * 0.5f;
	default: return bound_fp8(magnitude);
	}
}

/* The parts: half a step, the f32 operations on the way (2^-20 of the magnitude), the dtype. */
float kv_codec_error_bound(const struct kv_codec *codec, float least, float greatest)
{
	kv_fpmode mode = kv_fpmode_enter();
	float magnitude = kv_f32_max(kv_f32_abs(least), kv_f32_abs(greatest)), bound = 0;

	if (codec->format != KV_FORMAT_RAW) {
		bound = code_bound(codec, least, greatest, magnitude);
		bound += narrow_bound(codec->dtype, magnitude + bound) + magnitude * 0x1p-20f;
	}
	kv_fpmode_leave(mode);
	return bound;
}
