/*
 * attend_prefill: a chunk of 512 queries, four heads a query group, over 4k tokens of one layer and
 * over the chunk itself, int8 and bf16 (the worse counts), against a plain blocked f32 matrix
 * product of as many floating-point operations: two for each pair of a query and a token that it
 * sees, for each element of the key, and two for each of the value. One thread.
 */
#include <stdio.h>

#include "tests/bench/attend.h"
#include "tests/bench/matrix.h"

#define CACHED_TOKENS 4096u
#define CHUNK_TOKENS 512u
#define PAIRS 21u

static double flops(void)
{
	double seen = (double)CHUNK_TOKENS * CACHED_TOKENS +
		      (double)CHUNK_TOKENS * (CHUNK_TOKENS + 1) / 2;

	return seen * BENCH_HEADS * ATTEND_GROUP_MAX * 2 * 2 * BENCH_WIDTH;
}

/* As many products as the operations are worth, spread over the call that they are compared with. */
static double multiply(void *matrix)
{
	unsigned n = (unsigned)(flops() / BENCH_MATRIX_FLOPS);
	double ns = 0;

	for (unsigned i = 0; i < n; i++)
		ns += bench_matrix_call(matrix);
	return ns / n * (flops() / BENCH_MATRIX_FLOPS);
}

static void measure(struct bench_matrix *matrix, uint32_t format)
{
	struct bench_attend product;
	struct bench_result result;
	struct bench_cache cache;

	bench_cache_open(&cache, 1, format, 2 * BENCH_SOURCE_BYTES);
	bench_attend_make(&product, &cache, CHUNK_TOKENS, ATTEND_GROUP_MAX, 1);
	product.seqs[product.n_seqs++] = bench_seq(&cache, CACHED_TOKENS, 0, NULL);
	bench_compare(&result, (struct bench_side){bench_attend_call, &product},
		      (struct bench_side){multiply, matrix}, PAIRS, 1000);
	snprintf(result.note, sizeof(result.note), "%.1f GFLOP/s as %s, the product %.1f",
		 flops() / (result.value * 1000), format == KVC_RAW ? "bf16" : "int8",
		 flops() / (result.reference_value * 1000));
	bench_keep_worse(bench_result("attend_prefill"), &result);
	bench_attend_drop(&product);
	bench_attend_free(&product);
	bench_cache_close(&cache);
}

void bench_group_attend_prefill(void)
{
	struct bench_matrix *matrix = bench_matrix_new();

	measure(matrix, KVC_INT8);
	measure(matrix, KVC_RAW);
	bench_matrix_free(matrix);
}
