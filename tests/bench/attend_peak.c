/*
 * peak: the most memory that this process ever had, all that is mapped counted once, when it filled
 * 131,072 tokens of four layers as Llama-3.1-8B has them (8 query groups of width 128, 4 query
 * heads each) in int8 and attended over each layer, two threads; against the bytes of the cache.
 * The process has no weights.
 */
#include <stdio.h>

#include "tests/bench/attend.h"

#define LAYERS 4u
#define TOKENS 131072u
#define STEPS 4u

static double peak_kib(void)
{
	unsigned long long kib = 0;
	char line[256];
	FILE *file = fopen("/proc/self/status", "re");

	BENCH_CHECK(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
			break;
	fclose(file);
	BENCH_CHECK(kib);
	return (double)kib;
}

void bench_group_attend_peak(void)
{
	struct bench_result *result = bench_result("peak");
	struct bench_attend attend;
	struct bench_cache cache;

	bench_cache_open(&cache, LAYERS, KVC_INT8, BENCH_SOURCE_BYTES);
	bench_attend_make(&attend, &cache, 1, ATTEND_GROUP_MAX, 2);
	attend.seqs[attend.n_seqs++] = bench_seq(&cache, TOKENS, STEPS, NULL);
	for (unsigned step = 0; step < STEPS; step++) {
		for (attend.layer = 0; attend.layer < LAYERS; attend.layer++)
			bench_attend_call(&attend);
		bench_append(&cache, attend.seqs[0], 1);
	}
	*result = (struct bench_result){
		.measured = true,
		.has_reference = true,
		.value = peak_kib(),
		.reference_value = (double)kvc_layout_token_bytes(cache.layout) * (TOKENS + STEPS) /
				   1024,
	};
	result->ratio = result->value / result->reference_value;
	bench_attend_drop(&attend);
	bench_attend_free(&attend);
	bench_cache_close(&cache);
}
