/*
 * Appended tokens of a replay journal folded into int8 blocks, behind 4k tokens.
 *
 * The reference stores the same rows, from a source of as many bytes, into the same slots of a
 * second sequence, block by block and layer by layer.
 */
#include "client/compute/codec.h"
#include "tests/bench/bench.h"

#define TOKENS 4096u
#define FOLDED 256u
#define TOKEN_BYTES (BENCH_LAYERS * 2 * BENCH_ROW_BYTES)
#define SOURCE_BYTES (FOLDED * TOKEN_BYTES)
#define PAIRS 41u
#define CODES_ROW (BENCH_HEADS * BENCH_WIDTH)
#define SCALES_ROW (BENCH_HEADS * 2)

struct fold {
	struct bench_cache *cache;
	kvc_seq *seq;
	struct kv_codec codec;
	struct kvc_run runs[BENCH_LAYERS];
};

static double fold(void *arg)
{
	struct fold *fold = arg;
	uint64_t begin;
	int64_t n_rows;
	double ns;

	bench_append(fold->cache, fold->seq, FOLDED);
	begin = bench_now_ns();
	n_rows = kvc_fold(fold->seq, 0);
	ns = bench_since_ns(begin);
	BENCH_CHECK(n_rows == FOLDED * (BENCH_LAYERS * BENCH_HEADS + 1));
	BENCH_CHECK(kvc_rollback_keep(fold->seq, TOKENS) == 0);
	BENCH_CHECK(kvc_reserve(fold->seq, FOLDED) == 0);
	return ns;
}

/* K or V of the tokens of a block. */
static size_t store_block(const struct fold *fold, uint32_t layer, bool is_value, uint64_t token)
{
	const struct kvc_run *run = &fold->runs[layer];
	uint64_t slot = TOKENS + token;
	char *codes = (char *)(uintptr_t)(is_value ? run->v : run->k) + slot * CODES_ROW;
	char *scale = (char *)(uintptr_t)(is_value ? run->v_scale : run->k_scale) +
		      slot * SCALES_ROW;
	const char *source = fold->cache->source + token * TOKEN_BYTES +
			     (2 * layer + is_value) * BENCH_ROW_BYTES;
	size_t done = 0;

	for (uint32_t i = 0; i < fold->cache->block_tokens; i++) {
		struct kv_codec_at at = {.codes = codes,
					 .scale = scale,
					 .codes_stride = BENCH_WIDTH,
					 .scale_stride = 2};

		done += kv_quantise(&fold->codec, BENCH_HEADS, source, BENCH_WIDTH * 2, &at);
		codes += CODES_ROW;
		scale += SCALES_ROW;
		source += TOKEN_BYTES;
	}
	return done;
}

static double quantise(void *arg)
{
	const struct fold *fold = arg;
	uint64_t begin = bench_now_ns();
	size_t done = 0;
	double ns;

	for (uint64_t token = 0; token < FOLDED; token += fold->cache->block_tokens)
		for (uint32_t layer = 0; layer < BENCH_LAYERS; layer++) {
			done += store_block(fold, layer, false, token);
			done += store_block(fold, layer, true, token);
		}
	ns = bench_since_ns(begin);
	BENCH_CHECK(done == (size_t)FOLDED * BENCH_LAYERS * BENCH_HEADS * 2);
	return ns;
}

void bench_group_fold(void)
{
	struct kvc_journal_options journal = {.size = sizeof(journal), .mode = KVC_JOURNAL_REPLAY};
	struct bench_cache cache;
	struct fold product = {.cache = &cache};
	static struct fold reference;

	bench_cache_open(&cache, BENCH_LAYERS, KVC_INT8, SOURCE_BYTES);
	reference.cache = &cache;
	reference.seq = bench_seq(&cache, TOKENS + FOLDED, 0, NULL);
	for (uint32_t i = 0; i < BENCH_LAYERS; i++)
		BENCH_CHECK(kvc_view_run(reference.seq, i, &reference.runs[i]) == 0);
	BENCH_CHECK(kv_codec_init(&reference.codec, KV_FORMAT_INT8, KV_DTYPE_BF16, BENCH_WIDTH,
				  NULL) == 0);
	product.seq = bench_seq(&cache, TOKENS, 0, NULL);
	BENCH_CHECK(kvc_journal_set(product.seq, &journal) == 0);
	BENCH_CHECK(kvc_reserve(product.seq, FOLDED) == 0);
	bench_compare(bench_result("fold"), (struct bench_side){fold, &product},
		      (struct bench_side){quantise, &reference}, PAIRS, 1000);
	BENCH_CHECK(kvc_seq_drop(product.seq) == 0 && kvc_seq_drop(reference.seq) == 0);
	bench_cache_close(&cache);
}
