/* A plain blocked product of two square f32 matrices; see matrix.c. One thread. */
#ifndef KVCACHED_TESTS_BENCH_MATRIX_H
#define KVCACHED_TESTS_BENCH_MATRIX_H

#define BENCH_MATRIX_N 768u
#define BENCH_MATRIX_FLOPS (2.0 * BENCH_MATRIX_N * BENCH_MATRIX_N * BENCH_MATRIX_N)

struct bench_matrix;

struct bench_matrix *bench_matrix_new(void);
void bench_matrix_free(struct bench_matrix *matrix);

/* Multiplies once; a bench_call. */
double bench_matrix_call(void *matrix);

#endif
