/*
 * Appended tokens of a replay journal folded into int8 blocks, behind 4k tokens.
 *
 * The reference has a journal with the same rows, which stays: it stores them, token by token and
 * layer by layer, into the same slots of another sequence.
 */
#include "client/compute/codec.h"
#include "client/journal.h"
#include "tests/bench/bench.h"

#define TOKENS 4096u
#define FOLDED 256u
#define TOKEN_BYTES (BENCH_LAYERS * 2 * BENCH_ROW_BYTES)
#define TOKEN_ROWS (BENCH_LAYERS * BENCH_HEADS + 1) /* the last is a record */
#define SOURCE_BYTES (FOLDED * TOKEN_BYTES)
#define PAIRS 61u
#define VECTOR_BYTES (BENCH_WIDTH * 2)
#define SCALE_BYTES 2u

struct fold {
	struct bench_cache *cache;
	kvc_seq *seq; /* with the journal */
	/* reference */
	kvc_seq *target;
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
	BENCH_CHECK(n_rows == FOLDED * TOKEN_ROWS);
	BENCH_CHECK(kvc_rollback_keep(fold->seq, TOKENS) == 0);
	BENCH_CHECK(kvc_reserve(fold->seq, FOLDED) == 0);
	return ns;
}

/* ---- reference ---------------------------------------------------------------------------- */

/* The next vectors come while these are stored, as in the library. */
static void fetch(const char *from, size_t stride, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++, from += stride)
		for (size_t off = 0; off < VECTOR_BYTES; off += 64)
			__builtin_prefetch(from + off);
}

/* K or V of n heads of a layer of a token, from `head` on. */
static size_t store(const struct fold *fold, uint32_t layer, bool is_value, uint64_t token,
		    uint64_t head, const struct journal_rows *rows)
{
	const struct kvc_run *run = &fold->runs[layer];
	uint64_t number = (TOKENS + token) * BENCH_HEADS + head;
	size_t stride = journal_shape(fold->seq)->payload_bytes;
	const char *from = rows->payloads + is_value * VECTOR_BYTES;
	struct kv_codec_at at = {
		.codes = (char *)(uintptr_t)(is_value ? run->v : run->k) + number * BENCH_WIDTH,
		.scale = (char *)(uintptr_t)(is_value ? run->v_scale : run->k_scale) +
			 number * SCALE_BYTES,
		.codes_stride = BENCH_WIDTH,
		.scale_stride = SCALE_BYTES,
	};

	fetch(from + rows->n * stride, stride, rows->n);
	return kv_quantise(&fold->codec, rows->n, from, stride, &at);
}

static size_t store_token(const struct fold *fold, uint64_t token)
{
	uint64_t row = fold->seq->head.journal_first + 1 + token * TOKEN_ROWS;
	size_t done = 0;

	for (uint32_t layer = 0; layer < BENCH_LAYERS; layer++) {
		uint64_t end = row + BENCH_HEADS, head = 0;

		for (struct journal_rows rows; row < end; row += rows.n, head += rows.n) {
			rows = journal_rows(fold->seq, row, end);
			done += store(fold, layer, false, token, head, &rows);
			done += store(fold, layer, true, token, head, &rows);
		}
	}
	return done;
}

static double quantise(void *arg)
{
	const struct fold *fold = arg;
	uint64_t begin = bench_now_ns();
	size_t done = 0;
	double ns;

	for (uint64_t token = 0; token < FOLDED; token++)
		done += store_token(fold, token);
	ns = bench_since_ns(begin);
	BENCH_CHECK(done == (size_t)FOLDED * BENCH_LAYERS * BENCH_HEADS * 2);
	return ns;
}

/* ---- both --------------------------------------------------------------------------------- */

static kvc_seq *seq_with_journal(struct bench_cache *cache)
{
	struct kvc_journal_options journal = {.size = sizeof(journal), .mode = KVC_JOURNAL_REPLAY};
	kvc_seq *seq = bench_seq(cache, TOKENS, 0, NULL);

	BENCH_CHECK(kvc_journal_set(seq, &journal) == 0);
	BENCH_CHECK(kvc_reserve(seq, FOLDED) == 0);
	return seq;
}

void bench_group_fold(void)
{
	struct bench_cache cache;
	struct fold product = {.cache = &cache};
	static struct fold reference;

	bench_cache_open(&cache, BENCH_LAYERS, KVC_INT8, SOURCE_BYTES);
	reference.cache = &cache;
	reference.seq = seq_with_journal(&cache);
	bench_append(&cache, reference.seq, FOLDED);
	reference.target = bench_seq(&cache, TOKENS + FOLDED, 0, NULL);
	for (uint32_t i = 0; i < BENCH_LAYERS; i++)
		BENCH_CHECK(kvc_view_run(reference.target, i, &reference.runs[i]) == 0);
	BENCH_CHECK(kv_codec_init(&reference.codec, KV_FORMAT_INT8, KV_DTYPE_BF16, BENCH_WIDTH,
				  NULL) == 0);
	product.seq = seq_with_journal(&cache);
	bench_compare(bench_result("fold"), (struct bench_side){fold, &product},
		      (struct bench_side){quantise, &reference}, PAIRS, 1000);
	BENCH_CHECK(kvc_seq_drop(product.seq) == 0 && kvc_seq_drop(reference.seq) == 0);
	BENCH_CHECK(kvc_seq_drop(reference.target) == 0);
	bench_cache_close(&cache);
}
