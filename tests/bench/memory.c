/*
 * What is kept about a cache, and what forks cost.
 *
 * memory_table: growth of everything but block memory (private memory of the core and of this
 * process, control segments, catalogue), divided by the blocks that the new sequences name; of
 * forks of a long snapshot, and of a sequence that was appended. The larger counts.
 * memory_forks: bytes in use in the pool, but for what is reserved ahead, with four forks of a
 * snapshot that did not write yet, against one.
 */
#include <stdio.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define LONG 131072u
#define MANY 16u
#define FORKS 4u

uint64_t bench_private_bytes(uint64_t pid)
{
	unsigned long long kib = 0;
	char path[64], line[256];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%llu/smaps_rollup", (unsigned long long)pid);
	file = fopen(path, "re");
	BENCH_CHECK(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Anonymous: %llu kB", &kib) == 1)
			break;
	fclose(file);
	BENCH_CHECK(kib);
	return kib * 1024;
}

double bench_bookkeeping_bytes(const struct bench_gauges *gauges)
{
	return (double)(gauges->control_bytes + gauges->catalogue_bytes +
			bench_private_bytes(gauges->core_pid) +
			bench_private_bytes((uint64_t)getpid()));
}

static double bookkeeping_bytes(struct bench_cache *cache)
{
	struct bench_gauges gauges = bench_gauges(cache);

	return bench_bookkeeping_bytes(&gauges);
}

static void fork_base(struct bench_cache *cache, kvc_seq **forks, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		BENCH_CHECK(forks[i] = kvc_fork(cache->writer, "bench/memory", NULL));
}

/* The sequence that the forks come from. */
static kvc_seq *measure_table(struct bench_cache *cache)
{
	struct kvc_snapshot_options options = {.size = sizeof(options), .name = "bench/memory"};
	double n_blocks = LONG / cache->block_tokens, before;
	struct bench_result appended = {.measured = true}, forked = {.measured = true};
	kvc_seq *seq = bench_seq(cache, 1, 0, NULL); /* what is made once, is made for this one */
	kvc_seq *forks[MANY];

	BENCH_CHECK(kvc_seq_drop(seq) == 0);
	before = bookkeeping_bytes(cache);
	seq = bench_seq(cache, LONG, 0, NULL);
	appended.value = (bookkeeping_bytes(cache) - before) / n_blocks;
	BENCH_CHECK(kvc_snapshot(seq, &options, NULL) == 0);
	before = bookkeeping_bytes(cache);
	fork_base(cache, forks, MANY);
	forked.value = (bookkeeping_bytes(cache) - before) / n_blocks / MANY;
	bench_keep_worse(bench_result("memory_table"), &appended);
	bench_keep_worse(bench_result("memory_table"), &forked);
	for (unsigned i = 0; i < MANY; i++)
		BENCH_CHECK(kvc_seq_drop(forks[i]) == 0);
	return seq;
}

static double used_kib(struct bench_cache *cache)
{
	struct bench_gauges gauges = bench_gauges(cache);

	return (double)(gauges.live_bytes + gauges.cached_bytes) / 1024;
}

static void measure_forks(struct bench_cache *cache)
{
	struct bench_result *result = bench_result("memory_forks");
	kvc_seq *forks[FORKS];

	fork_base(cache, forks, 1);
	result->reference_value = used_kib(cache);
	fork_base(cache, forks + 1, FORKS - 1);
	result->value = used_kib(cache);
	result->ratio = result->value / result->reference_value;
	result->note[0] = '\0';
	result->measured = result->has_reference = true;
	for (unsigned i = 0; i < FORKS; i++)
		BENCH_CHECK(kvc_seq_drop(forks[i]) == 0);
}

void bench_group_memory(void)
{
	struct bench_cache cache;
	kvc_seq *seq;

	bench_cache_open(&cache, 1, KVC_RAW, BENCH_SOURCE_BYTES);
	seq = measure_table(&cache);
	measure_forks(&cache);
	BENCH_CHECK(kvc_seq_drop(seq) == 0);
	BENCH_CHECK(kvc_remove(cache.session, "bench/memory") == 0);
	bench_cache_close(&cache);
}
