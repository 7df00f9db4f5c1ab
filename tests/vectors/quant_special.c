/*
 * Special rows by our own rules, for every format, dtype and set of kernels:
 *
 *   - a vector with a NaN or an infinity is refused and nothing of it or behind it is written;
 *   - every other vector is stored, with finite scales, and comes back finite and within the
 *     bound that the codec promises;
 *   - u8 and u4 give back a constant of 256 and more, and two neighbours, exactly.
 *
 * What the file says that others store is not looked at.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/compute/convert.h"
#include "proto/limits.h"
#include "tests/vectors/quant.h"

/* What a vector is. */
struct shape {
	bool is_finite, is_far; /* far: from 256 on, at most two neighbouring values of f32 */
	float least, greatest;
};

static struct shape shape_of(const struct kv_codec *codec, const char *vector)
{
	struct shape s = {.is_finite = true, .least = FLT_MAX, .greatest = -FLT_MAX};

	for (size_t i = 0; i < codec->width; i++) {
		float x = kv_element(codec->dtype, vector, i);

		s.is_finite = s.is_finite && isfinite(x);
		s.least = fminf(s.least, x);
		s.greatest = fmaxf(s.greatest, x);
	}
	s.is_far = s.is_finite && fminf(fabsf(s.least), fabsf(s.greatest)) >= 256 &&
		   nextafterf(s.least, INFINITY) >= s.greatest;
	return s;
}

static bool is_untouched(const void *bytes, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i++)
		if (((const unsigned char *)bytes)[i] != STORED_PATTERN)
			return false;
	return true;
}

/* The vector alone, so that one in front of it does not hide it. */
static const char *check_refused(const struct kv_codec *codec, const char *vector)
{
	struct stored s = stored_new(codec, 1);
	size_t n = kv_quantise(codec, 1, vector, s.back_stride, &s.at);
	const char *reason = NULL;

	if (n != 0)
		reason = "a vector with NaN or infinity was stored";
	else if (!is_untouched(s.at.codes, codec->bytes.codes) ||
		 !is_untouched(s.at.scale, codec->bytes.scale) ||
		 !is_untouched(s.at.zero, codec->bytes.zero))
		reason = "a refused vector was written in part";
	stored_free(&s);
	return reason;
}

static bool is_within(const struct kv_codec *codec, const char *vector, const char *back,
		      double bound)
{
	for (size_t i = 0; i < codec->width; i++) {
		double x = (double)kv_element(codec->dtype, vector, i);
		double y = (double)kv_element(codec->dtype, back, i);

		if (!isfinite(y) || fabs(x - y) > bound)
			return false;
	}
	return true;
}

static const char *check_stored(const struct kv_codec *codec, const char *vector,
				const struct shape *shape)
{
	bool is_affine = codec->format == KV_FORMAT_U8 || codec->format == KV_FORMAT_U4;
	double bound = (double)kv_codec_error_bound(codec, shape->least, shape->greatest);
	struct stored s = stored_new(codec, 1);
	const char *reason = NULL;

	if (kv_quantise(codec, 1, vector, s.back_stride, &s.at) != 1) {
		reason = "a finite vector was refused";
	} else {
		kv_dequantise(codec, 1, &s.at, s.back, s.back_stride);
		if (!is_within(codec, vector, s.back, bound))
			reason = "came back further away than the bound, or not finite";
		else if (is_affine && shape->is_far && memcmp(vector, s.back, s.back_stride) != 0)
			reason = "values that rule 3 stores exactly came back as others";
	}
	stored_free(&s);
	return reason;
}

static void run_vectors(const struct kv_codec *codec, const struct kv_codec_kernels *kernels,
			const char *vectors, size_t n)
{
	size_t vector_bytes = codec->width * codec->element_bytes;

	for (size_t i = 0; i < n; i++) {
		const char *vector = vectors + i * vector_bytes, *reason;
		struct shape shape = shape_of(codec, vector);
		char what[64];

		reason = shape.is_finite ? check_stored(codec, vector, &shape) :
					   check_refused(codec, vector);
		snprintf(what, sizeof(what), "special.%s.w%u, vector %zu",
			 kv_dtype_name(codec->dtype), codec->width, i);
		tally(!reason, what, codec, kernels, reason);
	}
}

static void run_input(const struct safetensors_tensor *input, uint32_t dtype, uint32_t format)
{
	struct kv_codec codec = {0};
	size_t n;

	/* Widths that this format cannot hold are another file's business. */
	if (kv_codec_init(&codec, format, dtype, (uint32_t)input->dims[1], NULL))
		return;
	n = input->n_bytes / (codec.width * codec.element_bytes);
	for (size_t i = 0; i < kv_codec_n_kernels; i++) {
		if (!kv_codec_kernels[i].is_supported())
			continue;
		kv_codec_use(&codec, &kv_codec_kernels[i]);
		run_vectors(&codec, &kv_codec_kernels[i], (const char *)input->data, n);
	}
}

void run_special(const struct safetensors *file)
{
	for (uint32_t dtype = KV_DTYPE_F32; dtype <= KV_DTYPE_MAX; dtype++)
		for (uint32_t width = 1; width <= KV_WIDTH_MAX; width++) {
			const struct safetensors_tensor *input;
			char name[64];

			snprintf(name, sizeof(name), "%s.w%u.input", kv_dtype_name(dtype), width);
			input = safetensors_find(file, name);
			if (!input)
				continue;
			if (input->type != tensor_type_of(dtype) || input->n_dims != 2 ||
			    input->dims[1] != width) {
				tally(false, name, NULL, NULL,
				      "not of the type and shape it names");
				continue;
			}
			for (uint32_t f = KV_FORMAT_INT8; f <= KV_FORMAT_MAX; f++)
				run_input(input, dtype, f);
		}
}
