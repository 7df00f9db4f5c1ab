/* Queries as the kernels of attention want them, and the way to the kernels. */
#include "client/compute/attend.h"

#include "client/compute/attend_exp.h"
#include "client/compute/kernels.h"

/* ---- queries ------------------------------------------------------------------------------- */

#define STEP 16u /* elements */
#define Q16_BEHIND \
	(2u * STEP) /* readable, whatever is there: u4 takes a half of any width by steps */

static size_t stride_of(uint32_t width)
{
	return (width + STEP - 1) / STEP * STEP;
}

size_t kv_attend_query_bytes(uint32_t width, uint32_t n)
{
	size_t elements = stride_of(width) * n;

	return elements * (sizeof(float) + sizeof(int16_t)) +
	       n * (sizeof(float) + sizeof(int32_t)) + Q16_BEHIND * sizeof(int16_t);
}

void kv_attend_query_init(struct kv_attend_query *query, uint32_t width, uint32_t n, const float *q,
			  size_t q_stride, void *memory)
{
	size_t stride = stride_of(width), n_behind = stride - width;
	float *f32 = memory, *unit;
	int16_t *q16 = (int16_t *)(void *)(f32 + stride * n);
	const struct kv_attend_ops *ops = kv_codec_kernels_chosen()->attend();
	int32_t *sum16;

	unit = (float *)(void *)(q16 + stride * n);
	sum16 = (int32_t *)(void *)(unit + n);
	*query = (struct kv_attend_query){n, width, stride, f32, q16, unit, sum16};
	for (uint32_t j = 0; j < n; j++, q += q_stride, f32 += stride, q16 += stride) {
		memcpy(f32, q, width * sizeof(*f32));
		memset(f32 + width, 0, n_behind * sizeof(*f32));
		sum16[j] = ops->integers(f32, (uint32_t)stride, q16, &unit[j]);
	}
	memset(sum16 + n, 0, Q16_BEHIND * sizeof(*q16));
}

struct kv_attend_query kv_attend_query_part(const struct kv_attend_query *query, uint32_t first,
					    uint32_t n)
{
	return (struct kv_attend_query){.n = n,
					.width = query->width,
					.stride = query->stride,
					.f32 = query->f32 + first * query->stride,
					.q16 = query->q16 + first * query->stride,
					.unit = query->unit + first,
					.sum16 = query->sum16 + first};
}

/* ---- calls --------------------------------------------------------------------------------- */

void kv_attend_scores(const struct kv_codec *codec, const struct kv_attend_query *query, uint32_t n,
		      const struct kv_codec_at *rows, const struct kv_attend_ahead *ahead,
		      float scale, float *s, size_t s_stride)
{
	codec->attend->scores(codec, query, n, rows, ahead, scale, s, s_stride);
}

void kv_attend_mix(const struct kv_codec *codec, uint32_t n_queries, const float *w,
		   size_t w_stride, uint32_t n, const struct kv_codec_at *rows,
		   const struct kv_attend_ahead *ahead, float *o, size_t o_stride)
{
	codec->attend->mix(codec, n_queries, w, w_stride, n, rows, ahead, o, o_stride);
}

float kv_attend_exp(float x)
{
	return kv_exp(x);
}

float kv_attend_softmax(float *s, uint32_t n, float m, float *sum)
{
	return kv_codec_kernels_chosen()->attend()->softmax(s, n, m, sum);
}

void kv_attend_scale(float *o, uint32_t n, float x)
{
	kv_codec_kernels_chosen()->attend()->scale(o, n, x);
}

void kv_attend_merge(float *o, uint32_t n, float b, const float *x, float a)
{
	kv_codec_kernels_chosen()->attend()->merge(o, n, b, x, a);
}
