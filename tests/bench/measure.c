/* The clock, medians, and calls in turns; see bench.h. */
#include <stdlib.h>
#include <time.h>

#include "tests/bench/bench.h"

#define WARM_UP_PAIRS 2
#define CLOCK_TRIES 1001

uint64_t bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double bench_clock_ns(void)
{
	static double known;
	double tries[CLOCK_TRIES];

	for (size_t i = 0; known == 0 && i < CLOCK_TRIES; i++) {
		uint64_t begin = bench_now_ns();

		tries[i] = (double)(bench_now_ns() - begin);
	}
	if (known == 0)
		known = bench_median(tries, CLOCK_TRIES);
	return known;
}

double bench_since_ns(uint64_t begin)
{
	double ns = (double)(bench_now_ns() - begin) - bench_clock_ns();

	return ns > 1 ? ns : 1;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double bench_median(double *values, size_t n)
{
	qsort(values, n, sizeof(values[0]), compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static double call(struct bench_side side)
{
	return side.call(side.arg);
}

void bench_pairs(struct bench_result *result, double *values, double *references, size_t n_pairs,
		 double scale)
{
	double *ratios = calloc(n_pairs, sizeof(ratios[0]));

	BENCH_CHECK(ratios);
	for (size_t i = 0; i < n_pairs; i++)
		ratios[i] = values[i] / references[i];
	*result = (struct bench_result){
		.measured = true,
		.has_reference = true,
		.value = bench_median(values, n_pairs) / scale,
		.reference_value = bench_median(references, n_pairs) / scale,
		.ratio = bench_median(ratios, n_pairs),
	};
	free(ratios);
}

void bench_compare(struct bench_result *result, struct bench_side product,
		   struct bench_side reference, size_t n_pairs, double scale)
{
	double *values = calloc(2 * n_pairs, sizeof(values[0]));
	double *references = values + n_pairs;

	BENCH_CHECK(values);
	bench_clock_ns();
	for (size_t i = 0; i < WARM_UP_PAIRS; i++) {
		call(product);
		call(reference);
	}
	for (size_t i = 0; i < n_pairs; i++) {
		if (i % 2)
			references[i] = call(reference);
		values[i] = call(product);
		if (i % 2 == 0)
			references[i] = call(reference);
	}
	bench_pairs(result, values, references, n_pairs, scale);
	free(values);
}

void bench_alone(struct bench_result *result, struct bench_side product, size_t n_calls,
		 double scale)
{
	double *values = calloc(n_calls, sizeof(values[0]));

	BENCH_CHECK(values);
	bench_clock_ns();
	for (size_t i = 0; i < WARM_UP_PAIRS; i++)
		call(product);
	for (size_t i = 0; i < n_calls; i++)
		values[i] = call(product);
	*result = (struct bench_result){
		.measured = true,
		.value = bench_median(values, n_calls) / scale,
	};
	free(values);
}

void bench_keep_worse(struct bench_result *result, const struct bench_result *other)
{
	double now = result->has_reference ? result->ratio : result->value;
	double new = other->has_reference ? other->ratio : other->value;

	if (!result->measured || new > now)
		*result = *other;
}
