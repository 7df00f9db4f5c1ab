/*
 * The data plane: writing and committing tokens, updates without data, the first write of a fork.
 *
 * The destination of a token's memcpy reference is the memory of a second sequence, in the same
 * arena. Both destinations are 512 MiB and were written once before; both sources rotate over 64
 * MiB, half a turn apart, so that neither finds in the cache what the other has just read.
 */
#include <string.h>

#include "tests/bench/bench.h"

#define TOKENS 4096u
#define SOURCE_BYTES (64u << 20)
#define BATCH_SEQS 32u
#define UPDATES 1000u
#define FILLED_SLOTS 8u

/* ---- token_commit ------------------------------------------------------------------------- */

struct token {
	struct bench_cache *cache;
	kvc_seq *seq;
	size_t source;
};

static const char *next_source(struct token *token)
{
	const char *source = token->cache->source +
			     token->source * token->cache->n_layers * 2 * BENCH_ROW_BYTES;

	token->source = (token->source + 1) % token->cache->n_source_tokens;
	return source;
}

static double commit_token(void *arg)
{
	struct token *token = arg;
	const char *source = next_source(token);
	uint64_t begin = bench_now_ns();
	int rc = kvc_append_begin(token->seq, 1);

	for (uint32_t layer = 0; layer < BENCH_LAYERS; layer++) {
		rc |= kvc_write(token->seq, layer, source, source + BENCH_ROW_BYTES);
		source += 2 * BENCH_ROW_BYTES;
	}
	rc |= kvc_commit(token->cache->writer, &token->seq, 1);
	BENCH_CHECK(rc == 0);
	return bench_since_ns(begin);
}

static void measure_token(struct bench_cache *cache)
{
	struct token product = {.cache = cache, .seq = bench_seq(cache, TOKENS, 0, NULL)};
	struct bench_copy reference = {.source = cache->n_source_tokens / 2};

	BENCH_CHECK(kvc_rollback_keep(product.seq, 0) == 0);
	bench_copy_make(&reference, cache, TOKENS);
	bench_compare(bench_result("token_commit"), (struct bench_side){commit_token, &product},
		      (struct bench_side){bench_copy_call, &reference}, TOKENS - 2, 1000);
	bench_copy_free(&reference);
	BENCH_CHECK(kvc_seq_drop(product.seq) == 0);
}

/* ---- updates without data ----------------------------------------------------------------- */

struct updates {
	struct bench_cache *cache;
	kvc_seq *seqs[BATCH_SEQS];
	size_t n_seqs;
};

/* Many in a row, for one is hardly longer than asking the clock. */
static double commit_nothing(void *arg)
{
	struct updates *updates = arg;
	kvc_seq *seq = updates->seqs[0];
	uint64_t begin = bench_now_ns();
	double ns;
	int rc = 0;

	for (unsigned i = 0; i < UPDATES; i++) {
		rc |= kvc_append_begin(seq, 1);
		rc |= kvc_commit(updates->cache->writer, &seq, 1);
	}
	ns = bench_since_ns(begin) / UPDATES;
	BENCH_CHECK(rc == 0 && kvc_rollback_keep(seq, 0) == 0);
	return ns;
}

static double commit_batch(void *arg)
{
	struct updates *updates = arg;
	uint64_t begin;
	double ns;
	int rc = 0;

	for (size_t i = 0; i < updates->n_seqs; i++)
		rc |= kvc_append_begin(updates->seqs[i], 1);
	begin = bench_now_ns();
	rc |= kvc_commit(updates->cache->writer, updates->seqs, updates->n_seqs);
	ns = bench_since_ns(begin);
	BENCH_CHECK(rc == 0);
	return ns;
}

static void measure_updates(struct bench_cache *cache)
{
	struct updates updates = {.cache = cache};

	updates.seqs[updates.n_seqs++] = bench_seq(cache, 0, UPDATES, NULL);
	bench_alone(bench_result("commit_only"), (struct bench_side){commit_nothing, &updates}, 101,
		    1000);
	while (updates.n_seqs < BATCH_SEQS)
		updates.seqs[updates.n_seqs++] = bench_seq(cache, 0, UPDATES / 10, NULL);
	bench_alone(bench_result("commit_batch"), (struct bench_side){commit_batch, &updates}, 95,
		    1000);
	for (size_t i = 0; i < updates.n_seqs; i++)
		BENCH_CHECK(kvc_seq_drop(updates.seqs[i]) == 0);
}

/* ---- first write -------------------------------------------------------------------------- */

struct first_write {
	struct bench_cache *cache;
	kvc_seq *parent;
	char *rows_from[2 * BENCH_LAYERS], *rows_to[2 * BENCH_LAYERS];
};

static double write_first(void *arg)
{
	struct first_write *first = arg;
	const char *source = first->cache->source;
	kvc_seq *fork = kvc_fork_local(first->parent, 1);
	uint64_t begin;
	double ns;
	int rc;

	BENCH_CHECK(fork);
	begin = bench_now_ns();
	rc = kvc_append_begin(fork, 1);
	for (uint32_t layer = 0; layer < BENCH_LAYERS; layer++) {
		rc |= kvc_write(fork, layer, source, source + BENCH_ROW_BYTES);
		source += 2 * BENCH_ROW_BYTES;
	}
	rc |= kvc_commit(first->cache->writer, &fork, 1);
	ns = bench_since_ns(begin);
	BENCH_CHECK(rc == 0);
	BENCH_CHECK(kvc_seq_drop(fork) == 0 && kvc_reserve(first->parent, 2) == 0);
	return ns;
}

static double copy_filled(void *arg)
{
	struct first_write *first = arg;
	uint64_t begin = bench_now_ns();

	for (unsigned i = 0; i < 2 * BENCH_LAYERS; i++)
		memcpy(first->rows_to[i], first->rows_from[i], FILLED_SLOTS * BENCH_ROW_BYTES);
	return bench_since_ns(begin);
}

/* The filled slots of the parent's last block, and a block of another sequence. */
static void find_filled(struct first_write *first, kvc_seq *other)
{
	BENCH_CHECK(kvc_append_begin(other, FILLED_SLOTS) == 0);
	for (uint32_t layer = 0; layer < BENCH_LAYERS; layer++) {
		struct kvc_run runs[2];
		void *k, *v;

		BENCH_CHECK(kvc_view_runs(first->parent, layer, runs, 2) == 1);
		first->rows_from[2 * layer] = (char *)(uintptr_t)runs[0].k;
		first->rows_from[2 * layer + 1] = (char *)(uintptr_t)runs[0].v;
		BENCH_CHECK(kvc_write_span(other, layer, 0, FILLED_SLOTS, &k, &v) == FILLED_SLOTS);
		first->rows_to[2 * layer] = k;
		first->rows_to[2 * layer + 1] = v;
	}
}

static void measure_first_write(struct bench_cache *cache)
{
	struct first_write first = {.cache = cache};
	kvc_seq *other = bench_seq(cache, cache->block_tokens, 0, NULL);

	first.parent = bench_seq(cache, FILLED_SLOTS, 2, NULL);
	BENCH_CHECK(kvc_rollback_keep(other, 0) == 0);
	BENCH_CHECK(kvc_reserve_forks(first.parent, 1) == 0);
	find_filled(&first, other);
	bench_compare(bench_result("fork_first_write"), (struct bench_side){write_first, &first},
		      (struct bench_side){copy_filled, &first}, 301, 1000);
	BENCH_CHECK(kvc_seq_drop(first.parent) == 0 && kvc_seq_drop(other) == 0);
}

void bench_group_data(void)
{
	struct bench_cache cache;

	bench_cache_open(&cache, BENCH_LAYERS, KVC_RAW, SOURCE_BYTES);
	measure_token(&cache);
	measure_updates(&cache);
	measure_first_write(&cache);
	bench_cache_close(&cache);
}
