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
#define TILE_SUMS 12 /* n_t * n_p * 2, at most */

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

/* All tokens by n_p panels, from output o on; n_p constant where it is called. The panels stay in
 * the nearest caches while the tokens pass them. */
BODY void matmul_panels(const struct matrix *m, struct rows x, float *y, size_t y_stride, bool add,
			size_t o, size_t n_p)
{
	const float *w = m->panels + o * m->n_in;
	size_t n_out = m->n_out - o, t = 0;

	for (; t + 3 <= x.n; t += 3)
		matmul_tile(w, m->n_in, x.at + t * x.stride, x.stride, y + t * y_stride + o,
			    y_stride, n_out, add, 3, n_p);
	if (t + 2 <= x.n)
		matmul_tile(w, m->n_in, x.at + t * x.stride, x.stride, y + t * y_stride + o,
			    y_stride, n_out, add, 2, n_p);
	else if (t < x.n)
		matmul_tile(w, m->n_in, x.at + t * x.stride, x.stride, y + t * y_stride + o,
			    y_stride, n_out, add, 1, n_p);
}

/* Several panels at once: memory hands out several streams faster than one, and there are enough
 * sums in flight to hide how long an addition takes. */
BODY void matmul_body(const struct matrix *m, struct rows x, float *y, size_t y_stride, bool add)
{
	size_t o = 0;

	for (; x.n == 1 && o + 4 * MATRIX_PANEL_OUTPUTS <= m->n_out; o += 4 * MATRIX_PANEL_OUTPUTS)
		matmul_tile(m->panels + o * m->n_in, m->n_in, x.at, x.stride, y + o, y_stride,
			    m->n_out - o, add, 1, 4);
	for (; o + 2 * MATRIX_PANEL_OUTPUTS <= m->n_out; o += 2 * MATRIX_PANEL_OUTPUTS)
		matmul_panels(m, x, y, y_stride, add, o, 2);
	for (; o < m->n_out; o += MATRIX_PANEL_OUTPUTS)
		matmul_panels(m, x, y, y_stride, add, o, 1);
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
	TARGET static void swiglu_##set(float *a, const float *b, size_t n) \
	{ \
		swiglu_body(a, b, n); \
	} \
	TARGET static void rms_norm_##set(float *y, const float *x, const float *gain, size_t n, \
					  float eps) \
	{ \
		rms_norm_body(y, x, gain, n, eps); \
	} \
	static const struct kernels kernels_##set = {#set, matmul_##set, swiglu_##set, \
						     rms_norm_##set}

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
