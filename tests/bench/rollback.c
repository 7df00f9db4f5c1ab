/*
 * Rollback in process: the call alone, of 1 and of 100 tokens, the dropped tokens appended again
 * untimed. The 128k sequence and the 1k sequence take turns, 100,000 calls each; no gauge of the
 * daemon may change from beginning to end.
 */
#include <string.h>

#include "tests/bench/bench.h"

#define CALLS 100000u
#define SHORT 1024u
#define LONG 131072u
#define MANY_TOKENS 100u

struct rollback {
	struct bench_cache *cache;
	kvc_seq *seq;
	uint64_t n_tokens;
};

static double roll_back(void *arg)
{
	struct rollback *rollback = arg;
	uint64_t begin = bench_now_ns();
	int rc = kvc_rollback_remove(rollback->seq, rollback->n_tokens);
	double ns = bench_since_ns(begin);

	BENCH_CHECK(rc == 0);
	bench_append(rollback->cache, rollback->seq, rollback->n_tokens);
	return ns;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* Both rows, the slower count in each column. */
static void measure(struct rollback *at_long, struct rollback *at_short, uint64_t n_tokens)
{
	struct bench_result *long_row = bench_result("rollback_128k");
	struct bench_result *short_row = bench_result("rollback_1k");
	struct bench_result pair;

	at_long->n_tokens = at_short->n_tokens = n_tokens;
	bench_compare(&pair, (struct bench_side){roll_back, at_long},
		      (struct bench_side){roll_back, at_short}, CALLS / 2, 1000);
	long_row->value = larger(long_row->value, pair.value);
	long_row->reference_value = larger(long_row->reference_value, pair.reference_value);
	long_row->ratio = larger(long_row->ratio, pair.ratio);
	long_row->measured = long_row->has_reference = true;
	short_row->value = long_row->reference_value;
	short_row->measured = true;
	long_row->note[0] = short_row->note[0] = '\0';
}

/* Both copies of each table entry that is to change: pages of the control segment. */
static void touch(struct rollback *rollback)
{
	rollback->n_tokens = MANY_TOKENS;
	for (int i = 0; i < 4; i++)
		roll_back(rollback);
}

void bench_group_rollback(void)
{
	struct bench_cache cache;
	struct rollback at_long = {.cache = &cache}, at_short = {.cache = &cache};
	struct bench_gauges before, after;

	bench_cache_open(&cache, 1, KVC_RAW, BENCH_SOURCE_BYTES);
	at_long.seq = bench_seq(&cache, LONG, 0, NULL);
	at_short.seq = bench_seq(&cache, SHORT, 0, NULL);
	touch(&at_long);
	touch(&at_short);
	before = bench_gauges(&cache);
	measure(&at_long, &at_short, 1);
	measure(&at_long, &at_short, MANY_TOKENS);
	after = bench_gauges(&cache);
	if (memcmp(&before, &after, sizeof(before)) != 0) {
		bench_result("rollback_1k")->measured = false;
		bench_result("rollback_128k")->measured = false;
		bench_die("gauges changed: live %+lld reserved %+lld cached %+lld control %+lld "
			  "catalogue %+lld",
			  (long long)(after.live_bytes - before.live_bytes),
			  (long long)(after.reserved_bytes - before.reserved_bytes),
			  (long long)(after.cached_bytes - before.cached_bytes),
			  (long long)(after.control_bytes - before.control_bytes),
			  (long long)(after.catalogue_bytes - before.catalogue_bytes));
	}
	BENCH_CHECK(kvc_seq_drop(at_long.seq) == 0 && kvc_seq_drop(at_short.seq) == 0);
	bench_cache_close(&cache);
}
