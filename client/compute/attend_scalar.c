/*
 * Attention's reference: every format, one element after the other, in plain C. What these functions
 * give is what attend.h promises, bit for bit; every other set of kernels gives the same.
 */
#include <math.h>

#include "client/compute/arithmetic.h"
#include "client/compute/attend_exp.h"
#include "client/compute/kernels.h"

#define N_SUMS 8u
#define STEP 16u

/* ---- rows ---------------------------------------------------------------------------------- */

static bool is_float(const struct kv_codec *codec)
{
	return codec->format == KV_FORMAT_RAW || codec->format == KV_FORMAT_FP8;
}

/* The elements of raw and fp8 (there without the scale). */
static void floats_of(const struct kv_codec *codec, const struct kv_codec_at *at, float *values)
{
	const uint8_t *codes = at->codes;

	for (uint32_t i = 0; i < codec->width; i++)
		values[i] = codec->format == KV_FORMAT_FP8 ? kv_e4m3_to_f32(codes[i]) :
							     kv_element(codec->dtype, at->codes, i);
}

/* Element i of a vector of pairs of nibbles that are `half` elements apart. */
static int32_t nibble(const uint8_t *pairs, uint32_t i, uint32_t half)
{
	return i < half ? pairs[i] >> 4 : pairs[i - half] & 15;
}

/* The codes of the other formats; of u8 and u4 with the zero point in them. */
static void codes_of(const struct kv_codec *codec, const struct kv_codec_at *at, int32_t *values)
{
	const uint8_t *codes = at->codes;
	uint32_t half = KV_Q4_GROUP / 2;

	for (uint32_t i = 0; i < codec->width; i++) {
		switch (codec->format) {
		case KV_FORMAT_U8: values[i] = codes[i]; break;
		case KV_FORMAT_U4: values[i] = nibble(codes, i, codec->width / 2); break;
		case KV_FORMAT_Q4:
			values[i] = nibble(codes + i / KV_Q4_GROUP * half, i % KV_Q4_GROUP, half) -
				    8;
			break;
		default: values[i] = (int8_t)codes[i];
		}
	}
}

/* 1 where a row has none, or several. */
static float scale_of(const struct kv_codec *codec, const struct kv_codec_at *at)
{
	switch (codec->format) {
	case KV_FORMAT_RAW:
	case KV_FORMAT_Q4: return 1;
	case KV_FORMAT_INT8:
	case KV_FORMAT_INT8_MODEL: return kv_element(codec->dtype, at->scale, 0);
	default: return kv_element(KV_DTYPE_F32, at->scale, 0);
	}
}

static float group_scale(const struct kv_codec_at *at, uint32_t i)
{
	return kv_element(KV_DTYPE_BF16, at->scale, i / KV_Q4_GROUP);
}

/* 0 where a format has none. */
static int32_t zero_of(const struct kv_codec *codec, const struct kv_codec_at *at)
{
	int32_t zero = 0;

	if (codec->bytes.zero)
		memcpy(&zero, at->zero, sizeof(zero));
	return zero;
}

/* ---- scores -------------------------------------------------------------------------------- */

static float tree(const float *p)
{
	return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
}

/* The query goes on with zeros up to n, a multiple of 16. */
static float dot8(const float *q, const float *values, uint32_t width, size_t n)
{
	float p[N_SUMS] = {0};

	for (size_t i = 0; i < n; i++)
		p[i % N_SUMS] = __builtin_fmaf(q[i], i < width ? values[i] : 0, p[i % N_SUMS]);
	return tree(p);
}

static int32_t sum_of_codes(const int16_t *q16, const int32_t *codes, uint32_t width)
{
	int32_t sum = 0;

	for (uint32_t i = 0; i < width; i++)
		sum += q16[i] * codes[i];
	return sum;
}

static float sum_of_groups(const int16_t *q16, const int32_t *codes, uint32_t width,
			   const struct kv_codec_at *at)
{
	float p[N_SUMS] = {0};

	for (uint32_t first = 0; first < width; first += KV_Q4_GROUP) {
		int32_t sums[N_SUMS] = {0};

		for (uint32_t i = first; i < first + KV_Q4_GROUP; i++)
			sums[i % STEP / 2] += q16[i] * codes[i];
		for (uint32_t l = 0; l < N_SUMS; l++)
			p[l] = __builtin_fmaf((float)sums[l], group_scale(at, first), p[l]);
	}
	return tree(p);
}

static float float_score(const struct kv_codec *codec, const struct kv_attend_query *query,
			 uint32_t j, const struct kv_codec_at *at, float scale)
{
	float values[KV_ATTEND_WIDTH_MAX], score;

	floats_of(codec, at, values);
	score = dot8(query->f32 + j * query->stride, values, codec->width, query->stride) * scale;
	return codec->format == KV_FORMAT_RAW ? score : score * scale_of(codec, at);
}

static float code_score(const struct kv_codec *codec, const struct kv_attend_query *query,
			uint32_t j, const struct kv_codec_at *at, float scale)
{
	const int16_t *q16 = query->q16 + j * query->stride;
	float factor = query->unit[j] * scale;
	int32_t codes[KV_ATTEND_WIDTH_MAX];
	double sum;

	codes_of(codec, at, codes);
	if (codec->format == KV_FORMAT_Q4)
		return sum_of_groups(q16, codes, codec->width, at) * factor;
	sum = sum_of_codes(q16, codes, codec->width);
	if (codec->bytes.zero)
		sum = __builtin_fma(-(double)zero_of(codec, at), query->sum16[j], sum);
	return (float)sum * factor * scale_of(codec, at);
}

static void scores(const struct kv_codec *codec, const struct kv_attend_query *query, uint32_t n,
		   const struct kv_codec_at *rows, const struct kv_attend_ahead *ahead, float scale,
		   float *s, size_t s_stride)
{
	(void)ahead;
	for (uint32_t i = 0; i < n; i++) {
		struct kv_codec_at at = kv_codec_at(rows, i);

		for (uint32_t j = 0; j < query->n; j++)
			s[j * s_stride + i] = is_float(codec) ?
						      float_score(codec, query, j, &at, scale) :
						      code_score(codec, query, j, &at, scale);
	}
}

/* ---- sums of values ------------------------------------------------------------------------ */

/* What is multiplied with the weights; *scale: what these are multiplied with before. */
static void values_of(const struct kv_codec *codec, const struct kv_codec_at *at, float *values,
		      float *scale)
{
	int32_t codes[KV_ATTEND_WIDTH_MAX], zero = zero_of(codec, at);

	*scale = scale_of(codec, at);
	if (is_float(codec)) {
		floats_of(codec, at, values);
		return;
	}
	codes_of(codec, at, codes);
	for (uint32_t d = 0; d < codec->width; d++) {
		values[d] = (float)(int32_t)((uint32_t)codes[d] - (uint32_t)zero);
		if (codec->format == KV_FORMAT_Q4)
			values[d] *= group_scale(at, d);
	}
}

static void mix(const struct kv_codec *codec, uint32_t n_queries, const float *w, size_t w_stride,
		uint32_t n, const struct kv_codec_at *rows, const struct kv_attend_ahead *ahead,
		float *o, size_t o_stride)
{
	float values[KV_ATTEND_WIDTH_MAX], scale, weight;

	(void)ahead;
	for (uint32_t i = 0; i < n; i++) {
		struct kv_codec_at at = kv_codec_at(rows, i);

		values_of(codec, &at, values, &scale);
		for (uint32_t j = 0; j < n_queries; j++) {
			weight = w[j * w_stride + i] * scale;
			for (uint32_t d = 0; d < codec->width; d++)
				o[j * o_stride + d] = __builtin_fmaf(weight, values[d],
								     o[j * o_stride + d]);
		}
	}
}

/* ---- softmax ------------------------------------------------------------------------------- */

static float softmax(float *s, uint32_t n, float m, float *sum)
{
	float p[N_SUMS] = {0}, shift;

	for (uint32_t i = 0; i < n; i++)
		m = s[i] > m ? s[i] : m;
	m += 0.0f;
	shift = m == -INFINITY ? 0 : m;
	for (uint32_t i = 0; i < n; i++) {
		s[i] = kv_exp(s[i] - shift);
		p[i % N_SUMS] += s[i];
	}
	*sum = tree(p);
	return m;
}

static void scale_all(float *o, uint32_t n, float x)
{
	for (uint32_t i = 0; i < n; i++)
		o[i] *= x;
}

static void merge(float *o, uint32_t n, float b, const float *x, float a)
{
	for (uint32_t i = 0; i < n; i++)
		o[i] = __builtin_fmaf(a, x[i], b * o[i]);
}

/* ---- queries ------------------------------------------------------------------------------- */

static float magnitude_of(const float *q, uint32_t n)
{
	uint32_t largest = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t bits = kv_f32_bits(kv_f32_abs(q[i]));

		largest = bits > largest ? bits : largest;
	}
	return kv_f32_of_bits(largest);
}

static int32_t integers(const float *q, uint32_t n, int16_t *q16, float *unit)
{
	float reciprocal = kv_q16_of(magnitude_of(q, n), unit);
	int32_t sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		float x = reciprocal == 0 ? 0 : kv_f32_rint(q[i] * reciprocal);

		q16[i] = (int16_t)kv_saturate(x, KV_Q16_TOP);
		sum += q16[i];
	}
	return sum;
}

const struct kv_attend_ops kv_attend_scalar = {scores, mix, integers, softmax, scale_all, merge};
