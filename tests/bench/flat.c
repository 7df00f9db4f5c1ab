/*
 * An update costs the same in a long sequence: a scatter update of 8 heads and its rollback in one
 * of 128k tokens, against the same in 128 sequences of 1k taken in turn (as many bytes, the caches
 * as cold). One layer, int8.
 */
#include "tests/bench/bench.h"

#define LONG 131072u
#define SHORT 1024u
#define N_SHORT (LONG / SHORT)
#define WARM_UPS 16384u /* pages of index, rows and tables that a first update touches */
#define PAIRS 20001u

struct side {
	struct bench_scatter scatter;
	kvc_seq *seqs[N_SHORT];
	unsigned n_seqs, at;
};

static double update_and_roll_back(void *arg)
{
	struct side *side = arg;
	uint64_t begin;
	double ns;
	int rc;

	side->scatter.seq = side->seqs[side->at];
	side->at = (side->at + 1) % side->n_seqs;
	bench_scatter_draw(&side->scatter);
	begin = bench_now_ns();
	rc = bench_scatter_update(&side->scatter);
	rc |= kvc_rollback_steps(side->scatter.seq, 1);
	ns = bench_since_ns(begin);
	BENCH_CHECK(rc == 0);
	return ns;
}

static void make(struct side *side, struct bench_cache *cache, unsigned n_seqs, uint32_t n_tokens,
		 uint32_t mode)
{
	*side = (struct side){.scatter = {.cache = cache, .n_slots = n_tokens}, .n_seqs = n_seqs};
	for (unsigned i = 0; i < n_seqs; i++) {
		side->seqs[i] = bench_seq(cache, n_tokens, 0, NULL);
		bench_journal(side->seqs[i], mode, 2, 2 * BENCH_HEADS);
	}
	for (unsigned i = 0; i < WARM_UPS; i++)
		update_and_roll_back(side);
}

static void drop(struct side *side)
{
	for (unsigned i = 0; i < side->n_seqs; i++)
		BENCH_CHECK(kvc_seq_drop(side->seqs[i]) == 0);
}

static void measure(struct bench_cache *cache, const char *name, uint32_t mode)
{
	static struct side product, reference;

	make(&product, cache, 1, LONG, mode);
	make(&reference, cache, N_SHORT, SHORT, mode);
	bench_compare(bench_result(name), (struct bench_side){update_and_roll_back, &product},
		      (struct bench_side){update_and_roll_back, &reference}, PAIRS, 1000);
	drop(&product);
	drop(&reference);
}

void bench_group_flat(void)
{
	struct bench_cache cache;

	bench_cache_open(&cache, 1, KVC_INT8, BENCH_SOURCE_BYTES);
	measure(&cache, "undo_flat", KVC_JOURNAL_UNDO);
	measure(&cache, "replay_flat", KVC_JOURNAL_REPLAY);
	bench_cache_close(&cache);
}
