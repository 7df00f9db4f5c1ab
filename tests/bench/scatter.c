/* Scatter updates of one token, for the groups; see bench.h. */
#include "tests/bench/bench.h"

/* Bits of a number that look like none (splitmix64). */
static uint64_t mix(uint64_t n)
{
	n *= 0x9e3779b97f4a7c15u;
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
	n = (n ^ n >> 27) * 0x94d049bb133111ebu;
	return n ^ n >> 31;
}

void bench_scatter_draw(struct bench_scatter *scatter)
{
	const struct bench_cache *cache = scatter->cache;
	uint64_t n = scatter->n_drawn++;

	scatter->source = cache->source +
			  n % cache->n_source_tokens * cache->n_layers * 2 * BENCH_ROW_BYTES;
	n *= (uint64_t)BENCH_LAYERS * BENCH_HEADS;
	for (uint32_t layer = 0; layer < cache->n_layers; layer++)
		for (uint32_t h = 0; h < BENCH_HEADS; h++)
			scatter->slots[layer][h] = (uint32_t)(mix(++n) % scatter->n_slots);
}

int bench_scatter_update(const struct bench_scatter *scatter)
{
	const char *source = scatter->source;
	kvc_seq *seq = scatter->seq;
	int rc = kvc_update_begin(seq, 0, KVC_UPDATE_SCATTER);

	for (uint32_t layer = 0; layer < scatter->cache->n_layers; layer++) {
		rc |= kvc_scatter(seq, layer, 1, scatter->slots[layer], 0, source,
				  source + BENCH_ROW_BYTES, NULL);
		source += 2 * BENCH_ROW_BYTES;
	}
	return rc | kvc_commit(scatter->cache->writer, &seq, 1);
}

double bench_scatter_call(void *arg)
{
	struct bench_scatter *scatter = arg;
	uint64_t begin;
	double ns;
	int rc;

	bench_scatter_draw(scatter);
	begin = bench_now_ns();
	rc = bench_scatter_update(scatter);
	ns = bench_since_ns(begin);
	BENCH_CHECK(rc == 0);
	return ns;
}

double bench_scatter_back_call(void *arg)
{
	struct bench_scatter *scatter = arg;
	uint64_t begin;
	double ns;
	int rc;

	bench_scatter_draw(scatter);
	BENCH_CHECK(bench_scatter_update(scatter) == 0);
	begin = bench_now_ns();
	rc = kvc_rollback_steps(scatter->seq, 1);
	ns = bench_since_ns(begin);
	BENCH_CHECK(rc == 0);
	return ns;
}

void bench_journal(kvc_seq *seq, uint32_t mode, uint64_t n_updates, uint64_t n_rows)
{
	struct kvc_journal_options options = {.size = sizeof(options), .mode = mode};

	BENCH_CHECK(kvc_journal_set(seq, &options) == 0);
	BENCH_CHECK(kvc_reserve_scatter(seq, n_updates, n_rows, 1) == 0);
}
