/*
 * Attention where the cache is more than one run of blocks, and where it is long; int8, one thread,
 * one query head a query group.
 *
 * attend_overlay: a base of 32k tokens with rows of a replay journal over it, against one without.
 * Twice: 256 appended tokens, and 256 rows over slots of the base here and there; the worse counts.
 *
 * attend_fork: a fork of a fork, a third of 32k tokens each, against as many in one run.
 *
 * attend_linear: time a token of 1,000,000 against 100,000; between the two no private memory of
 * this process is added.
 */
#include <stdio.h>
#include <unistd.h>

#include "tests/bench/attend.h"

#define OVERLAY_TOKENS 256u
#define OVERLAY_UPDATES (256u / BENCH_HEADS)         /* of a row a head */
#define THIRD_TOKENS (ATTEND_TOKENS / 3 / 256 * 256) /* whole blocks: nothing is copied */
#define LONG_TOKENS 1000000u
#define SHORT_TOKENS 100000u
#define RESERVE_TOKENS 50000u

static void compare(const char *name, struct bench_attend *product, struct bench_attend *reference,
		    size_t n_pairs, double scale)
{
	struct bench_result result;

	bench_compare(&result, (struct bench_side){bench_attend_call, product},
		      (struct bench_side){bench_attend_call, reference}, n_pairs, scale);
	bench_keep_worse(bench_result(name), &result);
}

/* ---- attend_overlay --------------------------------------------------------------------------- */

/* Two sequences each, for one another's sake. */
static void measure_overlay(struct bench_cache *cache, struct bench_attend *product,
			    struct bench_attend *reference, bool is_scattered)
{
	static struct bench_scatter scatter;

	for (unsigned i = 0; i < 2; i++) {
		kvc_seq *seq = bench_seq(cache, ATTEND_TOKENS, 0, NULL);

		product->seqs[i] = seq;
		bench_journal(seq, KVC_JOURNAL_REPLAY, OVERLAY_UPDATES,
			      OVERLAY_UPDATES * BENCH_HEADS);
		scatter = (struct bench_scatter){
			.cache = cache, .seq = seq, .n_slots = ATTEND_TOKENS};
		for (unsigned u = 0; is_scattered && u < OVERLAY_UPDATES; u++) {
			bench_scatter_draw(&scatter);
			BENCH_CHECK(bench_scatter_update(&scatter) == 0);
		}
		BENCH_CHECK(is_scattered || kvc_reserve(seq, OVERLAY_TOKENS) == 0);
		bench_append(cache, seq, is_scattered ? 0 : OVERLAY_TOKENS);
	}
	product->n_seqs = 2;
	compare("attend_overlay", product, reference, ATTEND_PAIRS, 1000);
	bench_attend_drop(product);
}

void bench_group_attend_overlay(void)
{
	struct bench_attend product, reference;
	struct bench_cache cache;

	bench_cache_open(&cache, 1, KVC_INT8, BENCH_SOURCE_BYTES);
	bench_attend_make(&product, &cache, 1, 1, 1);
	bench_attend_make(&reference, &cache, 1, 1, 1);
	for (; reference.n_seqs < 2; reference.n_seqs++)
		reference.seqs[reference.n_seqs] = bench_seq(&cache, ATTEND_TOKENS, 0, NULL);
	measure_overlay(&cache, &product, &reference, false);
	measure_overlay(&cache, &product, &reference, true);
	bench_attend_drop(&reference);
	bench_attend_free(&product);
	bench_attend_free(&reference);
	bench_cache_close(&cache);
}

/* ---- attend_fork ------------------------------------------------------------------------------ */

struct family {
	kvc_seq *seqs[3];   /* each a fork of the one before */
	kvc_seq *others[3]; /* that took the blocks between their runs */
};

static void make_family(struct family *family, struct bench_cache *cache)
{
	static const uint32_t n_tokens[3] = {THIRD_TOKENS, THIRD_TOKENS,
					     ATTEND_TOKENS - 2 * THIRD_TOKENS};
	kvc_seq **seqs = family->seqs;
	struct kvc_run run;

	for (unsigned i = 0; i < 3; i++) {
		seqs[i] = i ? kvc_fork_local(seqs[i - 1], 0) : bench_seq(cache, 0, 0, NULL);
		BENCH_CHECK(seqs[i] && kvc_reserve(seqs[i], n_tokens[i]) == 0);
		bench_append(cache, seqs[i], n_tokens[i]);
		BENCH_CHECK(kvc_reserve_forks(seqs[i], 1) == 0 && kvc_reserve(seqs[i], 1) == 0);
		family->others[i] = bench_seq(cache, cache->block_tokens, 0, NULL);
	}
	BENCH_CHECK(kvc_length(seqs[2]) == ATTEND_TOKENS);
	BENCH_CHECK(kvc_view_runs(seqs[2], 0, &run, 1) == 3);
}

static void drop_family(struct family *family)
{
	for (unsigned i = 0; i < 3; i++)
		BENCH_CHECK(kvc_seq_drop(family->others[i]) == 0 &&
			    kvc_seq_drop(family->seqs[2 - i]) == 0);
}

void bench_group_attend_fork(void)
{
	struct bench_attend product, reference;
	struct family families[2];
	struct bench_cache cache;
	struct kvc_run run;

	bench_cache_open(&cache, 1, KVC_INT8, BENCH_SOURCE_BYTES);
	bench_attend_make(&product, &cache, 1, 1, 1);
	bench_attend_make(&reference, &cache, 1, 1, 1);
	for (unsigned i = 0; i < 2; i++) {
		reference.seqs[i] = bench_seq(&cache, ATTEND_TOKENS, 0, NULL);
		BENCH_CHECK(kvc_view_run(reference.seqs[i], 0, &run) == 0);
		make_family(&families[i], &cache);
		product.seqs[i] = families[i].seqs[2];
	}
	product.n_seqs = reference.n_seqs = 2;
	compare("attend_fork", &product, &reference, ATTEND_PAIRS, 1000);
	for (unsigned i = 0; i < 2; i++)
		drop_family(&families[i]);
	bench_attend_drop(&reference);
	bench_attend_free(&product);
	bench_attend_free(&reference);
	bench_cache_close(&cache);
}

/* ---- attend_linear ---------------------------------------------------------------------------- */

/* Private memory that a first call over the long sequence takes beyond what the short one took. */
static uint64_t scratch_growth(struct bench_attend *of_short, struct bench_attend *of_long)
{
	uint64_t before, after;

	bench_attend_call(of_short);
	before = bench_private_bytes((uint64_t)getpid());
	bench_attend_call(of_long);
	after = bench_private_bytes((uint64_t)getpid());
	return after > before ? after - before : 0;
}

/* The daemon puts memory in place within a deadline, so not all at once. */
static kvc_seq *long_seq(struct bench_cache *cache, uint64_t n_tokens)
{
	kvc_seq *seq = bench_seq(cache, 0, 0, NULL);

	for (uint64_t n; n_tokens; n_tokens -= n) {
		n = n_tokens < RESERVE_TOKENS ? n_tokens : RESERVE_TOKENS;
		BENCH_CHECK(kvc_reserve(seq, n) == 0);
		bench_append(cache, seq, n);
	}
	return seq;
}

void bench_group_attend_linear(void)
{
	struct bench_result *result = bench_result("attend_linear");
	struct bench_attend product, reference;
	struct bench_cache cache;
	uint64_t growth;

	bench_cache_open(&cache, 1, KVC_INT8, BENCH_SOURCE_BYTES);
	bench_attend_make(&reference, &cache, 1, 1, 1);
	bench_attend_make(&product, &cache, 1, 1, 1);
	reference.seqs[reference.n_seqs++] = long_seq(&cache, SHORT_TOKENS);
	product.seqs[product.n_seqs++] = long_seq(&cache, LONG_TOKENS);
	reference.unit = SHORT_TOKENS;
	product.unit = LONG_TOKENS;
	growth = scratch_growth(&reference, &product);
	if (growth >= LONG_TOKENS / 16) /* a few pages of tables that are looked at first */
		bench_die("scratch memory grows with the length: by %llu bytes",
			  (unsigned long long)growth);
	compare("attend_linear", &product, &reference, 21, 1);
	snprintf(result->note, sizeof(result->note),
		 "ns a token; private memory grows by %llu bytes from 100k to 1 M tokens",
		 (unsigned long long)growth);
	bench_attend_drop(&product);
	bench_attend_drop(&reference);
	bench_attend_free(&product);
	bench_attend_free(&reference);
	bench_cache_close(&cache);
}
