/*
 * Updates that go to a replay journal over an int8 cache of 4k tokens, and their rollback.
 *
 * Rows of the product go on through journal blocks that were written once before; the reference
 * copies the same bytes of a token on through a cache of 512 MiB, as that of token_commit does.
 */
#include "tests/bench/bench.h"

#define TOKENS 4096u
#define SOURCE_BYTES (64u << 20)
#define UPDATES 512u
#define ROLLBACKS 501u
#define TOKEN_ROWS (BENCH_LAYERS * BENCH_HEADS)

static double roll_back_append(void *arg)
{
	struct bench_scatter *scatter = arg;
	uint64_t begin;
	double ns;
	int rc;

	bench_append(scatter->cache, scatter->seq, 1);
	begin = bench_now_ns();
	rc = kvc_rollback_remove(scatter->seq, 1);
	ns = bench_since_ns(begin);
	BENCH_CHECK(rc == 0);
	return ns;
}

/* Half of the updates that the journal has room for are there already. */
static void measure_rollbacks(struct bench_scatter *scatter)
{
	for (unsigned i = 0; i < UPDATES / 2; i++)
		bench_scatter_call(scatter);
	bench_alone(bench_result("replay_rollback_append"),
		    (struct bench_side){roll_back_append, scatter}, ROLLBACKS, 1000);
	bench_alone(bench_result("replay_rollback_scatter"),
		    (struct bench_side){bench_scatter_back_call, scatter}, ROLLBACKS, 1000);
}

void bench_group_replay(void)
{
	struct bench_cache cache, full;
	struct bench_scatter product = {.cache = &cache, .n_slots = TOKENS};
	struct bench_copy reference = {0};

	bench_cache_open(&cache, BENCH_LAYERS, KVC_INT8, SOURCE_BYTES);
	bench_cache_open(&full, BENCH_LAYERS, KVC_RAW, SOURCE_BYTES);
	product.seq = bench_seq(&cache, TOKENS, 0, NULL);
	bench_copy_make(&reference, &full, TOKENS);
	bench_journal(product.seq, KVC_JOURNAL_REPLAY, UPDATES + 2, (UPDATES + 2) * TOKEN_ROWS);
	for (unsigned i = 0; i < UPDATES + 2; i++)
		bench_scatter_call(&product);
	BENCH_CHECK(kvc_rollback_steps(product.seq, UPDATES + 2) == 0);
	bench_compare(bench_result("replay_update"),
		      (struct bench_side){bench_scatter_call, &product},
		      (struct bench_side){bench_copy_call, &reference}, UPDATES, 1000);
	BENCH_CHECK(kvc_rollback_steps(product.seq, UPDATES + 2) == 0);
	measure_rollbacks(&product);
	bench_copy_free(&reference);
	BENCH_CHECK(kvc_seq_drop(product.seq) == 0);
	bench_cache_close(&full);
	bench_cache_close(&cache);
}
