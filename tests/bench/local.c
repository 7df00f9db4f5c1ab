/* Forks inside a session: made and dropped again without a message, at full and part blocks. */
#include "tests/bench/bench.h"

static double fork_and_drop(void *arg)
{
	kvc_seq *seq = arg;
	uint64_t n_requests = bench_meter.n_requests;
	uint64_t begin = bench_now_ns();
	kvc_seq *fork = kvc_fork_local(seq, 1);
	double ns;

	BENCH_CHECK(fork && kvc_seq_drop(fork) == 0);
	ns = bench_since_ns(begin);
	BENCH_CHECK(bench_meter.n_requests == n_requests);
	BENCH_CHECK(kvc_reserve(seq, 2) == 0);
	return ns;
}

static void measure(const char *name, uint32_t n_layers, uint64_t n_tokens)
{
	struct bench_result result;
	struct bench_cache cache;
	kvc_seq *seq;

	bench_cache_open(&cache, n_layers, KVC_RAW, BENCH_SOURCE_BYTES);
	seq = bench_seq(&cache, n_tokens, 2, NULL);
	BENCH_CHECK(kvc_reserve_forks(seq, 1) == 0);
	bench_alone(&result, (struct bench_side){fork_and_drop, seq}, 501, 1000);
	bench_keep_worse(bench_result(name), &result);
	BENCH_CHECK(kvc_rollback_remove(seq, 5) == 0);
	bench_alone(&result, (struct bench_side){fork_and_drop, seq}, 501, 1000);
	bench_keep_worse(bench_result(name), &result);
	BENCH_CHECK(kvc_seq_drop(seq) == 0);
	bench_cache_close(&cache);
}

void bench_group_local(void)
{
	measure("fork_local_4k", BENCH_LAYERS, 4096);
	measure("fork_local_128k", 1, 131072);
}
