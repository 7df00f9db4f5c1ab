#include "client/examples/kernels.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/*
 * The bodies are written once on vectors of 8 floats and are inlined into one set of functions for
 * each instruction set (at the end). Where there are no such registers the compiler splits them.
 * Vectors are passed by address: by value they would change the calling convention.
 */
#define BODY static inline __attribute__((always_inline))

typedef float v4 __attribute__((vector_size(16)));
typedef float v8 __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));
/* The same in memory that is aligned for floats only. */
typedef float v8_memory __attribute__((vector_size(32), aligned(4), may_alias));

#define LOAD(p) (*(const v8_memory *)(p))
#define STORE(p, v) (*(v8_memory *)(p) = (v))
#define SPLAT(x) ((x) - (v8){0})

/* The fixed tree at the end of 8 partial sums. */
BODY float reduce(const v8 *v)
{
	v4 a = __builtin_shufflevector(*v, *v, 0, 1, 2, 3) +
	       __builtin_shufflevector(*v, *v, 4, 5, 6, 7);
	v4 b = a + __builtin_shufflevector(a, a, 2, 3, 2, 3);

	return b[0] + b[1];
}

/*
 * n_t tokens by n_p panels; both constants where it is called, so that the sums stay in registers.
 * x rows are x_stride apart; out_n is how many outputs of the panels exist.
 */
#define TILE_TOKENS 6
#define TILE_PANELS 4
#define TILE_SUMS (TILE_TOKENS * 2)

BODY void store_sums(const v8 *sums, float *y, size_t n, bool add)
{
	float sum[MATRIX_PANEL_OUTPUTS];

	if (n >= MATRIX_PANEL_OUTPUTS && add) {
		STORE(y, LOAD(y) + sums[0]);
		STORE(y + 8, LOAD(y + 8) + sums[1]);
	} else if (n >= MATRIX_PANEL_OUTPUTS) {
		STORE(y, sums[0]);
		STORE(y + 8, sums[1]);
	} else {
		memcpy(sum, sums, sizeof(sum));
		for (size_t o = 0; o < n; o++)
			y[o] = add ? y[o] + sum[o] : sum[o];
	}
}

BODY void matmul_tile(const float *w, size_t n_in, const float *x, size_t x_stride, float *y,
		      size_t y_stride, size_t n_out, bool add, size_t n_t, size_t n_p)
{
	size_t panel = n_in * MATRIX_PANEL_OUTPUTS;
	v8 sums[TILE_SUMS] = {0};

	for (size_t i = 0; i < n_in; i++) {
#pragma GCC unroll 8
		for (size_t p = 0; p < n_p; p++) {
			const float *at = w + p * panel + i * MATRIX_PANEL_OUTPUTS;
			v8 w0 = LOAD(at), w1 = LOAD(at + 8);

#pragma GCC unroll 8
			for (size_t t = 0; t < n_t; t++) {
				sums[(p * n_t + t) * 2] += x[t * x_stride + i] * w0;
				sums[(p * n_t + t) * 2 + 1] += x[t * x_stride + i] * w1;
			}
		}
	}
#pragma GCC unroll 8
	for (size_t p = 0; p < n_p; p++)
#pragma GCC unroll 8
		for (size_t t = 0; t < n_t; t++)
			store_sums(sums + (p * n_t + t) * 2,
				   y + t * y_stride + p * MATRIX_PANEL_OUTPUTS,
				   n_out - p * MATRIX_PANEL_OUTPUTS, add);
}

/* A panel of weights stays in the nearest cache while all tokens pass it. */
BODY void matmul_body(const struct matrix *m, struct rows x, float *y, size_t y_stride, bool add)
{
	size_t panel = m->n_in * MATRIX_PANEL_OUTPUTS;
	size_t wide = x.n == 1 ? m->n_out / (TILE_PANELS * MATRIX_PANEL_OUTPUTS) *
					 (TILE_PANELS * MATRIX_PANEL_OUTPUTS) :
				 0;

	for (size_t o = 0; o < wide; o += TILE_PANELS * MATRIX_PANEL_OUTPUTS)
		matmul_tile(m->panels + o / MATRIX_PANEL_OUTPUTS * panel, m->n_in, x.at, x.stride,
			    y + o, y_stride, m->n_out - o, add, 1, TILE_PANELS);
	for (size_t o = wide; o < m->n_out; o += MATRIX_PANEL_OUTPUTS) {
		const float *w = m->panels + o / MATRIX_PANEL_OUTPUTS * panel;
		size_t t = 0;

		for (; t + TILE_TOKENS <= x.n; t += TILE_TOKENS)
			matmul_tile(w, m->n_in, x.at + t * x.stride, x.stride, y + t * y_stride + o,
				    y_stride, m->n_out - o, add, TILE_TOKENS, 1);
		for (; t < x.n; t++)
			matmul_tile(w, m->n_in, x.at + t * x.stride, x.stride, y + t * y_stride + o,
				    y_stride, m->n_out - o, add, 1, 1);
	}
}

/* Adds the last dim % 8 products to their partial sums. */
BODY void dot_tail(v8 *sums, const float *a, const float *b, size_t n)
{
	float lane[8];

	memcpy(lane, sums, sizeof(lane));
	for (size_t i = 0; i < n; i++)
		lane[i] += a[i] * b[i];
	memcpy(sums, lane, sizeof(lane));
}

/* n_q queries by n_k keys; both constants where it is called. */
BODY void scores_tile(const float *q, size_t q_stride, const float *k, size_t k_stride, size_t dim,
		      float scale, float *s, size_t s_stride, size_t n_q, size_t n_k)
{
	size_t whole = dim / 8 * 8;
	v8 sums[8] = {0};

	for (size_t d = 0; d < whole; d += 8) {
#pragma GCC unroll 4
		for (size_t j = 0; j < n_k; j++) {
			v8 key = LOAD(k + j * k_stride + d);

#pragma GCC unroll 2
			for (size_t h = 0; h < n_q; h++)
				sums[j * n_q + h] += LOAD(q + h * q_stride + d) * key;
		}
	}
#pragma GCC unroll 4
	for (size_t j = 0; j < n_k; j++) {
#pragma GCC unroll 2
		for (size_t h = 0; h < n_q; h++) {
			if (whole < dim)
				dot_tail(&sums[j * n_q + h], q + h * q_stride + whole,
					 k + j * k_stride + whole, dim - whole);
			s[h * s_stride + j] = reduce(&sums[j * n_q + h]) * scale;
		}
	}
}

BODY void scores_body(struct rows q, struct rows k, size_t dim, float scale, float *s,
		      size_t s_stride)
{
	size_t h = 0, j;

	for (; h + 2 <= q.n; h += 2) {
		for (j = 0; j + 4 <= k.n; j += 4)
			scores_tile(q.at + h * q.stride, q.stride, k.at + j * k.stride, k.stride,
				    dim, scale, s + h * s_stride + j, s_stride, 2, 4);
		for (; j < k.n; j++)
			scores_tile(q.at + h * q.stride, q.stride, k.at + j * k.stride, k.stride,
				    dim, scale, s + h * s_stride + j, s_stride, 2, 1);
	}
	for (; h < q.n; h++)
		for (j = 0; j < k.n; j++)
			scores_tile(q.at + h * q.stride, q.stride, k.at + j * k.stride, k.stride,
				    dim, scale, s + h * s_stride + j, s_stride, 1, 1);
}

/* n_h heads by n_d vectors of 8 elements; both constants where it is called. */
BODY void mix_tile(const float *s, size_t s_stride, struct rows v, float *o, size_t o_stride,
		   size_t n_h, size_t n_d)
{
	v8 sums[8];

#pragma GCC unroll 2
	for (size_t h = 0; h < n_h; h++)
#pragma GCC unroll 4
		for (size_t d = 0; d < n_d; d++)
			sums[h * n_d + d] = LOAD(o + h * o_stride + d * 8);
	for (size_t i = 0; i < v.n; i++) {
		const float *row = v.at + i * v.stride;

#pragma GCC unroll 2
		for (size_t h = 0; h < n_h; h++) {
#pragma GCC unroll 4
			for (size_t d = 0; d < n_d; d++)
				sums[h * n_d + d] += s[h * s_stride + i] * LOAD(row + d * 8);
		}
	}
#pragma GCC unroll 2
	for (size_t h = 0; h < n_h; h++)
#pragma GCC unroll 4
		for (size_t d = 0; d < n_d; d++)
			STORE(o + h * o_stride + d * 8, sums[h * n_d + d]);
}

/* The last dim % 8 elements. */
BODY void mix_tail(const float *s, struct rows v, float *o, size_t n)
{
	for (size_t i = 0; i < v.n; i++)
		for (size_t d = 0; d < n; d++)
			o[d] += s[i] * v.at[i * v.stride + d];
}

BODY void mix_body(const float *s, size_t s_stride, size_t n_heads, struct rows v, size_t dim,
		   float *o, size_t o_stride)
{
	for (size_t h = 0; h < n_heads; h += 2) {
		size_t n_h = n_heads - h < 2 ? 1 : 2, d = 0;
		const float *weights = s + h * s_stride;
		float *out = o + h * o_stride;

		for (; d + 32 <= dim; d += 32) {
			struct rows part = {v.at + d, v.stride, v.n};

			if (n_h == 2)
				mix_tile(weights, s_stride, part, out + d, o_stride, 2, 4);
			else
				mix_tile(weights, s_stride, part, out + d, o_stride, 1, 4);
		}
		for (; d + 8 <= dim; d += 8) {
			struct rows part = {v.at + d, v.stride, v.n};

			for (size_t j = 0; j < n_h; j++)
				mix_tile(weights + j * s_stride, s_stride, part,
					 out + j * o_stride + d, o_stride, 1, 1);
		}
		for (size_t j = 0; d < dim && j < n_h; j++)
			mix_tail(weights + j * s_stride, (struct rows){v.at + d, v.stride, v.n},
				 out + j * o_stride + d, dim - d);
	}
}

/*
 * exp of x, at most 2 units in the last place off between -87 and 88; beyond these it stays what it
 * is there. x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its series, 2^n by the exponent's bits.
 */
BODY void exp_v8(v8 *v)
{
	const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer */
	v8 x = *v, low = SPLAT(-87.0f), high = SPLAT(88.0f), n, r, y;
	v8u scale; /* unsigned: a NaN, from a damaged cache, makes any bits here */
	v8i mask;

	mask = x < low;
	x = (v8)(((v8i)x & ~mask) | ((v8i)low & mask));
	mask = x > high;
	x = (v8)(((v8i)x & ~mask) | ((v8i)high & mask));
	n = x * 1.44269504088896341f + round;
	scale = ((v8u)n - 0x4b400000u) << 23; /* 0x4b400000 are the bits of round */
	n = n - round;
	r = x - n * 0.693359375f;   /* ln 2 in two parts; the first has few bits, so that */
	r = r + n * 2.12194440e-4f; /* its product is exact */
	y = r * (1.0f / 5040.0f) + (1.0f / 720.0f);
	y = y * r + (1.0f / 120.0f);
	y = y * r + (1.0f / 24.0f);
	y = y * r + (1.0f / 6.0f);
	y = y * r + 0.5f;
	y = y * r * r + r + 1.0f;
	*v = (v8)((v8u)y + scale);
}

BODY float row_max(const float *s, size_t n)
{
	float lane[8], max;

	for (size_t l = 0; l < 8; l++)
		lane[l] = s[0];
	for (size_t i = 0; i + 8 <= n; i += 8)
		for (size_t l = 0; l < 8; l++)
			lane[l] = s[i + l] > lane[l] ? s[i + l] : lane[l];
	for (size_t i = n / 8 * 8; i < n; i++)
		lane[i % 8] = s[i] > lane[i % 8] ? s[i] : lane[i % 8];
	max = lane[0];
	for (size_t l = 1; l < 8; l++)
		max = lane[l] > max ? lane[l] : max;
	return max;
}

/* The last vector is filled up with elements that count as zero. */
BODY float softmax_body(float *s, size_t n)
{
	v8 max = SPLAT(row_max(s, n)), e, sum = {0};

	for (size_t i = n; i % 8 != 0; i++)
		s[i] = s[0];
	for (size_t i = 0; i < n; i += 8) {
		e = LOAD(s + i) - max;
		exp_v8(&e);
		for (size_t l = n - i; l < 8; l++)
			e[l] = 0;
		STORE(s + i, e);
		sum += e;
	}
	return reduce(&sum);
}

BODY void swiglu_body(float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i += 8) {
		size_t bytes = (n - i < 8 ? n - i : 8) * sizeof(float);
		v8 z = {0}, gate = {0}, e;

		memcpy(&z, a + i, bytes);
		memcpy(&gate, b + i, bytes);
		e = -z;
		exp_v8(&e);
		z = z / (1.0f + e) * gate;
		memcpy(a + i, &z, bytes);
	}
}

BODY void rms_norm_body(float *y, const float *x, const float *gain, size_t n, float eps)
{
	size_t whole = n / 8 * 8;
	v8 sums = {0};
	float scale;

	for (size_t i = 0; i < whole; i += 8)
		sums += LOAD(x + i) * LOAD(x + i);
	if (whole < n)
		dot_tail(&sums, x + whole, x + whole, n - whole);
	scale = 1.0f / sqrtf(reduce(&sums) / (float)n + eps);
	for (size_t i = 0; i < n; i++)
		y[i] = x[i] * scale * gain[i];
}

/* One set of functions, compiled for TARGET (an attribute or nothing). */
#define KERNELS(set, TARGET) \
	TARGET static void matmul_##set(const struct matrix *m, struct rows x, float *y, \
					size_t y_stride, bool add) \
	{ \
		matmul_body(m, x, y, y_stride, add); \
	} \
	TARGET static void scores_##set(struct rows q, struct rows k, size_t dim, float scale, \
					float *s, size_t s_stride) \
	{ \
		scores_body(q, k, dim, scale, s, s_stride); \
	} \
	TARGET static void mix_##set(const float *s, size_t s_stride, size_t n_heads, \
				     struct rows v, size_t dim, float *o, size_t o_stride) \
	{ \
		mix_body(s, s_stride, n_heads, v, dim, o, o_stride); \
	} \
	TARGET static float softmax_##set(float *s, size_t n) \
	{ \
		return softmax_body(s, n); \
	} \
	TARGET static void swiglu_##set(float *a, const float *b, size_t n) \
	{ \
		swiglu_body(a, b, n); \
	} \
	TARGET static void rms_norm_##set(float *y, const float *x, const float *gain, size_t n, \
					  float eps) \
	{ \
		rms_norm_body(y, x, gain, n, eps); \
	} \
	static const struct kernels kernels_##set = { \
		#set,          matmul_##set, scores_##set,   mix_##set, \
		softmax_##set, swiglu_##set, rms_norm_##set, \
	}

KERNELS(base, );

#ifdef __x86_64__
KERNELS(avx2, __attribute__((target("avx2"))));

static const struct kernels *kernels_best(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2") ? &kernels_avx2 : &kernels_base;
}
#else
static const struct kernels *kernels_best(void)
{
	return &kernels_base;
}
#endif

const struct kernels *kernels_get(void)
{
	return kernels_best();
}

const struct kernels *kernels_at(size_t i)
{
	const struct kernels *best = kernels_best();

	if (i == 0)
		return &kernels_base;
	return i == 1 && best != &kernels_base ? best : NULL;
}
