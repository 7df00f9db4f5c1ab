/*
 * kernels: the arithmetic of the decoder, in f32.
 *
 * Promise: every result has one order of operations, whatever is computed with it. The row of a
 * token is bit for bit the same whether it is computed alone or among others:
 *
 *   matmul     y[o] is summed over the inputs one by one, from the first
 *   rms_norm   8 partial sums (element i into sum i mod 8), then a fixed tree
 *
 * (Attention, with the same promise, is the cache's: kv.h.)
 *
 * Products are rounded before they are added (the file is compiled without contraction into fused
 * operations), and no operation here is left to a mathematical library but the square root, which
 * IEEE 754 fixes. So all versions in the table below, of all compilers, give the same bits.
 *
 * Thread: no state; any.
 */
#ifndef KV_EXAMPLES_KERNELS_H
#define KV_EXAMPLES_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#define MATRIX_PANEL_OUTPUTS 16

/* [n_out][n_in], kept in panels of 16 outputs: in a panel input after input, each with its 16
 * weights. Outputs beyond n_out are zero. panels is aligned to 64 bytes. */
struct matrix {
	size_t n_out, n_in;
	float *panels;
};

/* Rows of equal length, stride floats apart. */
struct rows {
	const float *at;
	size_t stride, n;
};

struct kernels {
	const char *name;

	/* y[t] = m x[t], or y[t] += m x[t] when add, for the rows x; y has rows y_stride apart. */
	void (*matmul)(const struct matrix *m, struct rows x, float *y, size_t y_stride, bool add);

	/* a = silu(a) * b. */
	void (*swiglu)(float *a, const float *b, size_t n);

	/* y = x / sqrt(mean(x^2) + eps) * gain. */
	void (*rms_norm)(float *y, const float *x, const float *gain, size_t n, float eps);
};

/* The best version for this processor. */
const struct kernels *kernels_get(void);

/* All versions that this processor runs, for tests: number i from 0, NULL after the last. */
const struct kernels *kernels_at(size_t i);

#endif
