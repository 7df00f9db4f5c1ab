#include "client/compute/attend_sums.h"

#include <math.h>
#include <string.h>

#include "client/compute/attend.h"

/* ---- keys ---------------------------------------------------------------------------------- */

void kv_attend_sums_init(const struct kv_attend_sums *sums, uint32_t n, uint32_t width)
{
	for (uint32_t j = 0; j < n; j++) {
		sums->m[j] = -INFINITY;
		sums->l[j] = 0;
		memset(sums->o + j * sums->stride, 0, width * sizeof(float));
	}
}

void kv_attend_sums_tile(const struct kv_attend_sums *sums, uint32_t n, uint32_t width, float *s,
			 size_t s_stride, uint32_t n_keys)
{
	for (uint32_t j = 0; j < n; j++, s += s_stride) {
		float sum, m = kv_attend_softmax(s, n_keys, sums->m[j], &sum);

		if (m != sums->m[j]) {
			float factor = kv_attend_exp(sums->m[j] - m);

			sums->l[j] *= factor;
			kv_attend_scale(sums->o + j * sums->stride, width, factor);
			sums->m[j] = m;
		}
		sums->l[j] += sum;
	}
}

/* The larger of two, -INFINITY: neither has seen anything; and what the sums of both are worth. */
static float larger(float m, float other, float *b, float *a)
{
	float most = other > m ? other : m;

	*b = kv_attend_exp(m - most);
	*a = kv_attend_exp(other - most);
	return most;
}

void kv_attend_sums_span(const struct kv_attend_sums *sums, uint32_t n, uint32_t width,
			 const struct kv_attend_sums *span)
{
	float a, b;

	for (uint32_t j = 0; j < n; j++) {
		if (span->m[j] == -INFINITY && span->l[j] == 0)
			continue;
		sums->m[j] = larger(sums->m[j], span->m[j], &b, &a);
		sums->l[j] = sums->l[j] * b + span->l[j] * a;
		kv_attend_merge(sums->o + j * sums->stride, width, b, span->o + j * span->stride,
				a);
	}
}

void kv_attend_sums_sink(const struct kv_attend_sums *sums, uint32_t width, float score)
{
	float a, b;

	if (score == -INFINITY)
		return;
	sums->m[0] = larger(sums->m[0], score, &b, &a);
	sums->l[0] = sums->l[0] * b + a;
	kv_attend_scale(sums->o, width, b);
}

void kv_attend_sums_out(const struct kv_attend_sums *sums, uint32_t width, float *out)
{
	memcpy(out, sums->o, width * sizeof(float));
	if (sums->l[0] != 0)
		kv_attend_scale(out, width, 1 / sums->l[0]);
}

/* ---- scores -------------------------------------------------------------------------------- */

float kv_attend_tanh(float x)
{
	float size = fabsf(x), square = x * x, t, p;

	if (!(size >= 0.25f)) {
		p = square * 0x1.664f48p-6f - 0x1.ba1ba2p-5f; /* 62 / 2835, -17 / 315 */
		p = square * p + 0x1.111112p-3f;              /* 2 / 15 */
		p = square * p - 0x1.555556p-2f;              /* -1 / 3 */
		return x + x * (square * p);
	}
	t = kv_attend_exp(-2 * size);
	return copysignf((1 - t) / (1 + t), x);
}

void kv_attend_cap(float *s, uint32_t n, float cap)
{
	for (uint32_t i = 0; i < n; i++)
		s[i] = cap * kv_attend_tanh(s[i] / cap);
}

/* ---- weights ------------------------------------------------------------------------------- */

void kv_attend_weigh_begin(float *s, uint32_t n, float m)
{
	float sum;

	kv_attend_softmax(s, n, m, &sum);
}

void kv_attend_weigh(float *w, const float *s, uint32_t n, float l)
{
	for (uint32_t i = 0; l != 0 && i < n; i++)
		w[i] += s[i] / l;
}

void kv_attend_weights_of(const float *w, size_t stride, uint32_t n_heads, uint32_t n,
			  float divisor, float *out)
{
	for (uint32_t i = 0; i < n; i++) {
		float sum = w[i];

		for (uint32_t h = 1; h < n_heads; h++)
			sum += w[h * stride + i];
		out[i] = sum / divisor;
	}
}
