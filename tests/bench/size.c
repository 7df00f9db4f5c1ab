/*
 * Bytes of a quantised cache of 4k tokens, everything counted: blocks, also what is set aside to
 * copy into, control pages, catalogue, private memory of the core and of this process.
 */
#include "tests/bench/bench.h"

#define TOKENS 4096u

static double all_bytes(struct bench_cache *cache)
{
	struct bench_gauges gauges = bench_gauges(cache);

	return (double)(gauges.live_bytes + gauges.reserved_bytes + gauges.cached_bytes) +
	       bench_bookkeeping_bytes(&gauges);
}

static void measure(const char *name, uint32_t format)
{
	struct bench_result *result = bench_result(name);
	struct bench_cache cache;
	double before;
	kvc_seq *seq;

	bench_cache_open(&cache, BENCH_LAYERS, format, BENCH_SOURCE_BYTES);
	seq = bench_seq(&cache, 1, 0, NULL); /* what is made once, is made for this one */
	BENCH_CHECK(kvc_seq_drop(seq) == 0);
	before = all_bytes(&cache);
	seq = bench_seq(&cache, TOKENS, 0, NULL);
	*result = (struct bench_result){
		.measured = true,
		.value = (all_bytes(&cache) - before) / TOKENS,
	};
	BENCH_CHECK(kvc_seq_drop(seq) == 0);
	bench_cache_close(&cache);
}

void bench_group_size(void)
{
	measure("bytes_per_token_int8", KVC_INT8);
	measure("bytes_per_token_u8", KVC_U8);
	measure("bytes_per_token_u4", KVC_U4);
}
