/*
 * A plain blocked product of f32 matrices, one thread: what arithmetic costs on this machine, for
 * attend_prefill.
 *
 * c += a b in blocks: a panel of b stays in the second cache, a block of a in the first, both
 * copied to where a kernel of 6 x 16 sums, all in registers, reads them one behind the other.
 */
#include "tests/bench/matrix.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/attend.h"

#define ROWS 6u     /* of a kernel */
#define COLUMNS 16u /* of a kernel: two vectors */
#define BLOCK_ROWS (16 * ROWS)
#define BLOCK_COLUMNS (48 * COLUMNS)
#define BLOCK_DEPTH 256u

typedef float vector __attribute__((vector_size(32), may_alias));

/* a is [depth][ROWS], b is [depth][COLUMNS]; rows of c are `stride` floats apart. */
static inline __attribute__((always_inline)) void kernel_body(size_t depth, const float *a,
							      const float *b, float *c,
							      size_t stride)
{
	vector sums[ROWS][2] = {0};

	for (size_t k = 0; k < depth; k++, a += ROWS, b += COLUMNS) {
		vector b0 = ((const vector *)b)[0], b1 = ((const vector *)b)[1];

#pragma GCC unroll 6
		for (size_t i = 0; i < ROWS; i++) {
			sums[i][0] += a[i] * b0;
			sums[i][1] += a[i] * b1;
		}
	}
#pragma GCC unroll 6
	for (size_t i = 0; i < ROWS; i++) {
		vector *row = (vector *)(c + i * stride);

		row[0] += sums[i][0];
		row[1] += sums[i][1];
	}
}

typedef void kernel(size_t depth, const float *a, const float *b, float *c, size_t stride);

static void kernel_base(size_t depth, const float *a, const float *b, float *c, size_t stride)
{
	kernel_body(depth, a, b, c, stride);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void kernel_avx2(size_t depth, const float *a,
							    const float *b, float *c, size_t stride)
{
	kernel_body(depth, a, b, c, stride);
}

static kernel *kernel_best(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? kernel_avx2 :
										 kernel_base;
}
#else
static kernel *kernel_best(void)
{
	return kernel_base;
}
#endif

/* ---- blocks --------------------------------------------------------------------------------- */

struct bench_matrix {
	kernel *kernel;
	float *a, *b, *c;
	float *block, *panel; /* what kernels read */
};

/* Rows [row, row + BLOCK_ROWS) of a, columns from `depth` on. */
static void pack_block(struct bench_matrix *m, size_t row, size_t depth)
{
	float *to = m->block;

	for (size_t i = 0; i < BLOCK_ROWS; i += ROWS)
		for (size_t k = 0; k < BLOCK_DEPTH; k++)
			for (size_t r = 0; r < ROWS; r++)
				*to++ = m->a[(row + i + r) * BENCH_MATRIX_N + depth + k];
}

static void pack_panel(struct bench_matrix *m, size_t depth)
{
	float *to = m->panel;

	for (size_t j = 0; j < BLOCK_COLUMNS; j += COLUMNS)
		for (size_t k = 0; k < BLOCK_DEPTH; k++, to += COLUMNS)
			memcpy(to, m->b + (depth + k) * BENCH_MATRIX_N + j,
			       COLUMNS * sizeof(float));
}

static void multiply_block(const struct bench_matrix *m, size_t row)
{
	for (size_t j = 0; j < BLOCK_COLUMNS; j += COLUMNS)
		for (size_t i = 0; i < BLOCK_ROWS; i += ROWS)
			m->kernel(BLOCK_DEPTH, m->block + i * BLOCK_DEPTH,
				  m->panel + j * BLOCK_DEPTH, m->c + (row + i) * BENCH_MATRIX_N + j,
				  BENCH_MATRIX_N);
}

double bench_matrix_call(void *arg)
{
	struct bench_matrix *m = arg;
	uint64_t begin = bench_now_ns();

	memset(m->c, 0, sizeof(float) * BENCH_MATRIX_N * BENCH_MATRIX_N);
	for (size_t depth = 0; depth < BENCH_MATRIX_N; depth += BLOCK_DEPTH) {
		pack_panel(m, depth);
		for (size_t row = 0; row < BENCH_MATRIX_N; row += BLOCK_ROWS) {
			pack_block(m, row, depth);
			multiply_block(m, row);
		}
	}
	return bench_since_ns(begin);
}

/* ---- its memory ----------------------------------------------------------------------------- */

static float *room(size_t n)
{
	float *at = aligned_alloc(64, n * sizeof(float));

	BENCH_CHECK(at);
	return at;
}

/* One element by the definition. */
static void check(const struct bench_matrix *m, size_t i, size_t j)
{
	double sum = 0, error;

	for (size_t k = 0; k < BENCH_MATRIX_N; k++)
		sum += (double)m->a[i * BENCH_MATRIX_N + k] * (double)m->b[k * BENCH_MATRIX_N + j];
	error = sum - (double)m->c[i * BENCH_MATRIX_N + j];
	BENCH_CHECK(error < 1e-2 && error > -1e-2);
}

struct bench_matrix *bench_matrix_new(void)
{
	const size_t n = BENCH_MATRIX_N * BENCH_MATRIX_N;
	struct bench_matrix *m = calloc(1, sizeof(*m));

	static_assert(BENCH_MATRIX_N == BLOCK_COLUMNS && BENCH_MATRIX_N % BLOCK_ROWS == 0 &&
			      BENCH_MATRIX_N % BLOCK_DEPTH == 0,
		      "whole blocks only");
	BENCH_CHECK(m);
	*m = (struct bench_matrix){.kernel = kernel_best(),
				   .a = room(n),
				   .b = room(n),
				   .c = room(n),
				   .block = room(BLOCK_ROWS * BLOCK_DEPTH),
				   .panel = room(BLOCK_COLUMNS * BLOCK_DEPTH)};
	bench_attend_fill(m->a, n, 1);
	bench_attend_fill(m->b, n, 2);
	bench_matrix_call(m);
	check(m, 0, 0);
	check(m, 100, 701);
	check(m, BENCH_MATRIX_N - 1, BENCH_MATRIX_N - 1);
	return m;
}

void bench_matrix_free(struct bench_matrix *m)
{
	free(m->a);
	free(m->b);
	free(m->c);
	free(m->block);
	free(m->panel);
	free(m);
}
