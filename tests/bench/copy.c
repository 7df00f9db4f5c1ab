/* The memcpy reference of tokens; see bench.h. */
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

double bench_copy_call(void *arg)
{
	struct bench_copy *copy = arg;
	const char *source = copy->cache->source +
			     copy->source * copy->cache->n_layers * 2 * BENCH_ROW_BYTES;
	uint32_t block_tokens = copy->cache->block_tokens;
	uint64_t begin = bench_now_ns();
	char *const *rows = copy->rows + copy->at / block_tokens * BENCH_LAYERS * 2;
	size_t off = copy->at % block_tokens * BENCH_ROW_BYTES;
	double ns;

	for (uint32_t layer = 0; layer < BENCH_LAYERS; layer++) {
		memcpy(rows[2 * layer] + off, source, BENCH_ROW_BYTES);
		memcpy(rows[2 * layer + 1] + off, source + BENCH_ROW_BYTES, BENCH_ROW_BYTES);
		source += 2 * BENCH_ROW_BYTES;
	}
	ns = bench_since_ns(begin);
	copy->at++;
	copy->source = (copy->source + 1) % copy->cache->n_source_tokens;
	return ns;
}

static void find_rows(struct bench_copy *copy, uint64_t n_tokens)
{
	uint32_t block_tokens = copy->cache->block_tokens;
	size_t n = n_tokens / block_tokens * BENCH_LAYERS * 2;

	BENCH_CHECK(copy->rows = calloc(n, sizeof(copy->rows[0])));
	for (size_t i = 0; i < n; i += 2) {
		uint64_t first = i / 2 / BENCH_LAYERS * block_tokens;
		void *k, *v;

		BENCH_CHECK(kvc_write_span(copy->seq, (uint32_t)(i / 2 % BENCH_LAYERS), first,
					   block_tokens, &k, &v) == block_tokens);
		copy->rows[i] = k;
		copy->rows[i + 1] = v;
	}
}

void bench_copy_make(struct bench_copy *copy, struct bench_cache *cache, uint64_t n_tokens)
{
	copy->cache = cache;
	copy->seq = bench_seq(cache, n_tokens, 0, NULL);
	BENCH_CHECK(kvc_rollback_keep(copy->seq, 0) == 0);
	BENCH_CHECK(kvc_append_begin(copy->seq, n_tokens) == 0);
	find_rows(copy, n_tokens);
}

void bench_copy_free(struct bench_copy *copy)
{
	free(copy->rows);
	BENCH_CHECK(kvc_seq_drop(copy->seq) == 0);
}
