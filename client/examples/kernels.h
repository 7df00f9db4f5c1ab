/*
 * kernels: the arithmetic of the decoder, in f32.
 *
 * Promise: every result has one order of operations, whatever is computed with it. The row of a
 * token is bit for bit the same whether it is computed alone or among others, and an attention
 * result does not depend on the pieces in which the cached slots are handed over:
 *
 *   matmul   y[o] is summed over the inputs one by one, from the first
 *   scores   a dot product is 8 partial sums (element i into sum i mod 8), then a fixed tree
 *   mix      o is summed over the slots one by one, from the first
 *   softmax, rms_norm   as scores, over the row
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

	/* s[h][i] = q[h] . k[i] * scale over dim elements; s has rows s_stride apart. */
	void (*scores)(struct rows q, struct rows k, size_t dim, float scale, float *s,
		       size_t s_stride);

	/* o[h] += sum_i s[h][i] v[i] over dim elements, s the n_heads rows of weights. */
	void (*mix)(const float *s, size_t s_stride, size_t n_heads, struct rows v, size_t dim,
		    float *o, size_t o_stride);

	/* s[i] = exp(s[i] - max s) for n elements; returns their sum. s has room up to the next
	 * multiple of 8. */
	float (*softmax)(float *s, size_t n);

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
