/*
 * The reference: every format, one element after the other, in plain C.
 *
 * What these functions store and read is what the formats are; every other set of kernels gives
 * the same bytes. A vector is looked through first (extent_of), and refused before a byte of it
 * is stored.
 */
#include "client/compute/arithmetic.h"
#include "client/compute/kernels.h"

struct extent {
	float least, greatest, magnitude;
};

/* Of n elements from `begin` on. False if one is NaN or infinite. */
static bool extent_of(const struct kv_codec *codec, const char *src, size_t begin, size_t n,
		      struct extent *extent)
{
	float least = FLT_MAX, greatest = -FLT_MAX;

	for (size_t i = begin; i < begin + n; i++) {
		float x = kv_element(codec->dtype, src, i);

		if (!(kv_f32_abs(x) <= FLT_MAX))
			return false;
		least = x < least ? x : least;
		greatest = x > greatest ? x : greatest;
	}
	extent->least = least;
	extent->greatest = greatest;
	extent->magnitude = kv_f32_max(kv_f32_abs(least), kv_f32_abs(greatest));
	return true;
}

static void put_value(const struct kv_codec *codec, char *dst, size_t i, float value)
{
	value = kv_saturate(value, kv_dtype_largest(codec->dtype));
	kv_element_set(codec->dtype, dst, i, value);
}

static float get_f32(const void *at)
{
	return kv_element(KV_DTYPE_F32, at, 0);
}

/* ---- int8 ---------------------------------------------------------------------------------- */

static void store_int8(const struct kv_codec *codec, const char *src, float magnitude,
		       const struct kv_codec_at *to)
{
	bool in_bf16 = kv_is_in_bf16(codec->format, codec->dtype);
	struct kv_symmetric p = kv_int8_of(codec->dtype, in_bf16, magnitude);
	int8_t *codes = to->codes;

	kv_element_set(codec->dtype, to->scale, 0, p.scale);
	for (size_t i = 0; i < codec->width; i++) {
		float product = kv_element(codec->dtype, src, i) * p.reciprocal;

		if (in_bf16)
			product = kv_narrow(KV_DTYPE_BF16, product);
		codes[i] = (int8_t)kv_saturate(kv_f32_rint(product), KV_INT8_TOP);
	}
}

static size_t quantise_int8(const struct kv_codec *codec, size_t n, const char *src,
			    size_t src_stride, const struct kv_codec_at *to)
{
	for (size_t i = 0; i < n; i++, src += src_stride) {
		struct kv_codec_at at = kv_codec_at(to, i);
		struct extent extent;

		if (!extent_of(codec, src, 0, codec->width, &extent))
			return i;
		store_int8(codec, src, extent.magnitude, &at);
	}
	return n;
}

static void dequantise_int8(const struct kv_codec *codec, size_t n, const struct kv_codec_at *from,
			    char *dst, size_t dst_stride)
{
	for (size_t i = 0; i < n; i++, dst += dst_stride) {
		struct kv_codec_at at = kv_codec_at(from, i);
		float scale = kv_element(codec->dtype, at.scale, 0);
		const int8_t *codes = at.codes;

		for (size_t k = 0; k < codec->width; k++)
			put_value(codec, dst, k, (float)codes[k] * scale);
	}
}

/* ---- u8, u4 -------------------------------------------------------------------------------- */

static void put_affine(const struct kv_affine *p, const struct kv_codec_at *to)
{
	memcpy(to->scale, &p->scale, sizeof(p->scale));
	memcpy(to->zero, &p->zero, sizeof(p->zero));
}

static void store_u8(const struct kv_codec *codec, const char *src, const struct kv_affine *p,
		     uint8_t *codes)
{
	for (size_t i = 0; i < codec->width; i++)
		codes[i] = (uint8_t)kv_affine_code(kv_element(codec->dtype, src, i), p, 255.0f);
}

/* The first half of the vector in the high nibbles, the second in the low ones. */
static void store_u4(const struct kv_codec *codec, const char *src, const struct kv_affine *p,
		     uint8_t *codes)
{
	size_t half = codec->width / 2;

	for (size_t i = 0; i < half; i++) {
		float high = kv_affine_code(kv_element(codec->dtype, src, i), p, 15.0f);
		float low = kv_affine_code(kv_element(codec->dtype, src, i + half), p, 15.0f);

		codes[i] = (uint8_t)((unsigned)high << 4 | (unsigned)low);
	}
}

static size_t quantise_affine(const struct kv_codec *codec, size_t n, const char *src,
			      size_t src_stride, const struct kv_codec_at *to)
{
	float top = codec->format == KV_FORMAT_U8 ? 255.0f : 15.0f;

	for (size_t i = 0; i < n; i++, src += src_stride) {
		struct kv_codec_at at = kv_codec_at(to, i);
		struct extent extent;
		struct kv_affine p;

		if (!extent_of(codec, src, 0, codec->width, &extent))
			return i;
		p = kv_affine_of(extent.least, extent.greatest, top);
		put_affine(&p, &at);
		if (codec->format == KV_FORMAT_U8)
			store_u8(codec, src, &p, at.codes);
		else
			store_u4(codec, src, &p, at.codes);
	}
	return n;
}

static void dequantise_affine(const struct kv_codec *codec, size_t n,
			      const struct kv_codec_at *from, char *dst, size_t dst_stride)
{
	size_t half = codec->width / 2;

	for (size_t i = 0; i < n; i++, dst += dst_stride) {
		struct kv_codec_at at = kv_codec_at(from, i);
		const uint8_t *codes = at.codes;
		float scale = get_f32(at.scale);
		int32_t zero;

		memcpy(&zero, at.zero, sizeof(zero));
		for (size_t k = 0; k < codec->width; k++) {
			uint8_t code = codec->format == KV_FORMAT_U8 ? codes[k] :
				       k < half                      ? codes[k] >> 4 :
								       codes[k - half] & 15;

			put_value(codec, dst, k, kv_affine_value(code, zero, scale));
		}
	}
}

/* ---- q4 ------------------------------------------------------------------------------------ */

static unsigned q4_code(float x, float reciprocal)
{
	return (unsigned)(kv_saturate(kv_f32_rint(x * reciprocal), KV_Q4_TOP) + 8.0f);
}

/* A group: 16 bytes, its first half in the high nibbles. */
static void store_q4_group(const struct kv_codec *codec, const char *src, size_t begin,
			   const struct kv_codec_at *to)
{
	uint8_t *codes = (uint8_t *)to->codes + begin / 2;
	struct extent extent = {0};
	struct kv_symmetric p;

	extent_of(codec, src, begin, KV_Q4_GROUP, &extent);
	p = kv_q4_of(extent.magnitude);
	kv_element_set(KV_DTYPE_BF16, to->scale, begin / KV_Q4_GROUP, p.scale);
	for (size_t i = begin; i < begin + KV_Q4_GROUP / 2; i++) {
		unsigned high = q4_code(kv_element(codec->dtype, src, i), p.reciprocal);
		unsigned low = q4_code(kv_element(codec->dtype, src, i + KV_Q4_GROUP / 2),
				       p.reciprocal);

		codes[i - begin] = (uint8_t)(high << 4 | low);
	}
}

static size_t quantise_q4(const struct kv_codec *codec, size_t n, const char *src,
			  size_t src_stride, const struct kv_codec_at *to)
{
	for (size_t i = 0; i < n; i++, src += src_stride) {
		struct kv_codec_at at = kv_codec_at(to, i);
		struct extent extent;

		if (!extent_of(codec, src, 0, codec->width, &extent))
			return i;
		for (size_t begin = 0; begin < codec->width; begin += KV_Q4_GROUP)
			store_q4_group(codec, src, begin, &at);
	}
	return n;
}

static void dequantise_q4(const struct kv_codec *codec, size_t n, const struct kv_codec_at *from,
			  char *dst, size_t dst_stride)
{
	const size_t half = KV_Q4_GROUP / 2;

	for (size_t i = 0; i < n; i++, dst += dst_stride) {
		struct kv_codec_at at = kv_codec_at(from, i);
		const uint8_t *codes = at.codes;

		for (size_t k = 0; k < codec->width; k++) {
			size_t group = k / KV_Q4_GROUP, place = k % KV_Q4_GROUP;
			uint8_t pair = codes[group * half + place % half];
			int code = (place < half ? pair >> 4 : pair & 15) - 8;

			put_value(codec, dst, k,
				  (float)code * kv_element(KV_DTYPE_BF16, at.scale, group));
		}
	}
}

/* ---- fp8 ----------------------------------------------------------------------------------- */

static size_t quantise_fp8(const struct kv_codec *codec, size_t n, const char *src,
			   size_t src_stride, const struct kv_codec_at *to)
{
	for (size_t i = 0; i < n; i++, src += src_stride) {
		struct kv_codec_at at = kv_codec_at(to, i);
		uint8_t *codes = at.codes;
		struct kv_symmetric p;
		struct extent extent;

		if (!extent_of(codec, src, 0, codec->width, &extent))
			return i;
		p = kv_fp8_of(extent.magnitude);
		memcpy(at.scale, &p.scale, sizeof(p.scale));
		for (size_t k = 0; k < codec->width; k++)
			codes[k] = kv_e4m3_of_f32(kv_element(codec->dtype, src, k) * p.reciprocal);
	}
	return n;
}

static void dequantise_fp8(const struct kv_codec *codec, size_t n, const struct kv_codec_at *from,
			   char *dst, size_t dst_stride)
{
	for (size_t i = 0; i < n; i++, dst += dst_stride) {
		struct kv_codec_at at = kv_codec_at(from, i);
		const uint8_t *codes = at.codes;
		float scale = get_f32(at.scale);

		for (size_t k = 0; k < codec->width; k++)
			put_value(codec, dst, k, kv_e4m3_to_f32(codes[k]) * scale);
	}
}

/* The dtype is asked for at each element. */
#define ALL_DTYPES(name) \
	{ \
		[KV_DTYPE_F32] = {quantise_##name, dequantise_##name}, \
		[KV_DTYPE_F16] = {quantise_##name, dequantise_##name}, \
		[KV_DTYPE_BF16] = {quantise_##name, dequantise_##name}, \
	}

const kv_codec_table kv_codec_scalar = {
	[KV_FORMAT_INT8] = ALL_DTYPES(int8), [KV_FORMAT_INT8_MODEL] = ALL_DTYPES(int8),
	[KV_FORMAT_U8] = ALL_DTYPES(affine), [KV_FORMAT_U4] = ALL_DTYPES(affine),
	[KV_FORMAT_Q4] = ALL_DTYPES(q4),     [KV_FORMAT_FP8] = ALL_DTYPES(fp8),
};
