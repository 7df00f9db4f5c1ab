/*
 * kvc_attend over bare memory: against attention in f64, for every format and every way in which
 * keys can lie; and bit against bit, where only the way is another.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/compute/attend_sums.h"
#include "client/workers.h"
#include "tests/support/runner.h"
#include "tests/unit/attend-world.h"

/* ---- formats and structures ----------------------------------------------------------------- */

static const struct jw_shape shapes[] = {
	{1, {{2, 64, 32, 0}}, KV_FORMAT_RAW, KV_FORMAT_RAW, 16, false, 0, 0},
	{1, {{2, 32, 64, 0}}, KV_FORMAT_RAW, KV_FORMAT_RAW, 16, false, 0, KV_DTYPE_BF16},
	{1, {{2, 48, 48, 0}}, KV_FORMAT_RAW, KV_FORMAT_RAW, 8, false, 0, KV_DTYPE_F16},
	{1, {{2, 64, 64, 0}}, KV_FORMAT_INT8, KV_FORMAT_INT8, 16, false, 0, 0},
	{1, {{2, 64, 96, 0}}, KV_FORMAT_INT8, KV_FORMAT_U8, 16, false, 0, KV_DTYPE_BF16},
	{1, {{2, 64, 32, 0}}, KV_FORMAT_U8, KV_FORMAT_INT8, 16, false, 0, 0},
	{1, {{2, 64, 64, 0}}, KV_FORMAT_U4, KV_FORMAT_U4, 16, false, 0, 0},
	{1, {{2, 64, 64, 0}}, KV_FORMAT_Q4, KV_FORMAT_Q4, 16, false, 0, 0},
	{1, {{2, 64, 64, 0}}, KV_FORMAT_FP8, KV_FORMAT_FP8, 16, false, 0, 0},
	{1, {{2, 64, 64, 0}}, KV_FORMAT_INT8_MODEL, KV_FORMAT_RAW, 16, false, 0, KV_DTYPE_BF16},
};
#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* One call against the reference: n current tokens, or queries of cached ones. */
static void check(struct jw *w, kvc_seq *seq, uint32_t n_query_heads, uint64_t n, bool is_current)
{
	uint64_t length = kvc_length(seq);
	struct aw_call call;

	aw_call_init(&call, w, n_query_heads, is_current ? length : length - n, n, is_current);
	aw_call_weights(&call, w, is_current ? length + n : length);
	aw_attend_checked(w, seq, &call);
	aw_call_free(&call);
}

static void check_both(struct jw *w, kvc_seq *seq)
{
	check(w, seq, 2, 1, true);
	check(w, seq, 8, 3, true);
	check(w, seq, 4, 11, true);
	check(w, seq, 4, 1, false);
	check(w, seq, 2, 12, false);
}

static void test_formats(void **state)
{
	static const uint64_t lengths[] = {12, 63, 64, 65, 200};

	(void)state;
	for (size_t i = 0; i < N_SHAPES; i++)
		for (size_t n = 0; n < 5; n++) {
			struct jw *w = jw_new(&shapes[i]);
			kvc_seq *seq = jw_seq(w);

			aw_append(w, seq, 0, lengths[n], 50);
			check_both(w, seq);
			jw_free(w);
		}
}

/* One update writes tokens 1000, ... over 5 slots of each head; in some tiles of one head alone. */
static void lay_over(struct jw *w, kvc_seq *seq, const uint32_t *index)
{
	void *k = aw_vectors(w, false, 1000, 5), *v = aw_vectors(w, true, 1000, 5);

	jw_reserve(w, seq, 1, 10);
	jw_ok(kvc_update_begin(seq, 0, 0));
	jw_ok(kvc_scatter(seq, 0, 5, index, 0, k, v, NULL));
	jw_ok(kvc_commit(w->writer, &seq, 1));
	free(k);
	free(v);
}

/* 100 tokens in blocks, 60 in rows, and rows laid over some of the first. */
static kvc_seq *overlaid(struct jw *w)
{
	static const uint32_t index[] = {70, 71, 99, 120, 121, 4, 70, 5, 6, 159};
	kvc_seq *seq = jw_seq(w);

	aw_append(w, seq, 0, 100, 50);
	jw_journal(w, seq, KVC_JOURNAL_REPLAY);
	aw_append(w, seq, 100, 60, 7);
	lay_over(w, seq, index);
	return seq;
}

/* The first rows of a journal, and later ones, are laid over blocks. */
static void test_scattered(void **state)
{
	static const uint32_t first[] = {1, 2, 3, 4, 5, 130, 131, 132, 133, 134};
	static const uint32_t later[] = {3, 70, 71, 0, 199, 130, 10, 11, 65, 66};

	(void)state;
	for (size_t i = 0; i < N_SHAPES; i++) {
		struct jw *w = jw_new(&shapes[i]);
		kvc_seq *seq = jw_seq(w);

		aw_append(w, seq, 0, 200, 50);
		jw_journal(w, seq, KVC_JOURNAL_REPLAY);
		lay_over(w, seq, first);
		check_both(w, seq);
		lay_over(w, seq, later);
		check_both(w, seq);
		jw_ok(kvc_rollback_steps(seq, 1));
		check_both(w, seq);
		jw_free(w);
	}
}

static void test_overlays(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SHAPES; i++) {
		struct jw *w = jw_new(&shapes[i]);

		check_both(w, overlaid(w));
		jw_free(w);
	}
}

static void test_forks(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SHAPES; i++) {
		struct jw *w = jw_new(&shapes[i]);
		kvc_seq *seq = jw_seq(w), *fork, *other, *snapshot;

		aw_append(w, seq, 0, 53, 50);
		fork = jw_fork(w, seq);
		aw_append(w, seq, 500, 30, 30);
		aw_append(w, fork, 53, 50, 20);
		snapshot = jw_snapshot(w, fork);
		other = jw_fork(w, fork);
		aw_append(w, fork, 600, 30, 30);
		aw_append(w, other, 103, 57, 57);
		check_both(w, seq);
		check_both(w, fork);
		check_both(w, other);
		check_both(w, snapshot);
		jw_free(w);
	}
}

static void test_widths(void **state)
{
	static const uint32_t widths[][2] = {{16, 256}, {256, 16}, {80, 112}, {128, 128},
					     {17, 33},  {96, 64},  {200, 72}};

	(void)state;
	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
		for (uint32_t format = KV_FORMAT_RAW; format <= KV_FORMAT_INT8; format++) {
			struct jw_shape shape = {1,      {{3, widths[i][0], widths[i][1], 0}},
						 format, format,
						 16,     0,
						 0,      0};
			struct jw *w = jw_new(&shape);
			kvc_seq *seq = jw_seq(w);

			aw_append(w, seq, 0, 77, 50);
			check(w, seq, 3, 1, true);
			check(w, seq, 24, 2, true);
			check(w, seq, 12, 10, true);
			jw_free(w);
		}
}

/* ---- bits ----------------------------------------------------------------------------------- */

static void assert_same(const struct aw_call *a, const struct aw_call *b)
{
	assert_int_equal(a->n_out, b->n_out);
	assert_memory_equal(a->out, b->out, a->n_out * sizeof(float));
	assert_int_equal(a->n_weights, b->n_weights);
	if (a->weights)
		assert_memory_equal(a->weights, b->weights, a->n_weights * sizeof(float));
}

static void attend(kvc_seq *seq, struct aw_call *call, struct jw *w, uint32_t n_query_heads,
		   uint64_t n, kvc_workers *workers)
{
	aw_call_init(call, w, n_query_heads, kvc_length(seq), n, true);
	aw_call_weights(call, w, kvc_length(seq) + n);
	call->args.workers = workers;
	jw_ok(kvc_attend(seq, 0, &call->args));
}

/* The same tokens in blocks of several sizes, in one piece and in forks of forks. */
static void test_structure(void **state)
{
	static const uint32_t block_tokens[] = {1, 8, 16, 48, 256};
	struct aw_call want[2], got;

	(void)state;
	for (size_t f = 0; f < N_SHAPES; f++) {
		for (size_t i = 0; i < 5; i++) {
			struct jw_shape shape = shapes[f];
			struct jw *w;
			kvc_seq *seq;

			shape.block_tokens = block_tokens[i];
			w = jw_new(&shape);
			seq = jw_seq(w);
			aw_append(w, seq, 0, 61, 40);
			for (uint64_t n = 61; i % 2 && n < 300; n += 64) {
				seq = jw_fork(w, seq);
				aw_append(w, seq, n, n + 64 < 300 ? 64 : 300 - n, 30);
			}
			if (i % 2 == 0)
				aw_append(w, seq, 61, 300 - 61, 50);
			for (int many = 0; many < 2; many++) {
				attend(seq, i ? &got : &want[many], w, 4, many ? 20 : 2, NULL);
				if (i)
					assert_same(&want[many], &got);
				if (i)
					aw_call_free(&got);
			}
			jw_free(w);
		}
		aw_call_free(&want[0]);
		aw_call_free(&want[1]);
	}
}

#define LONG_TOKENS 13000u /* some spans */

static kvc_seq *long_seq(struct jw *w, uint64_t n_tokens)
{
	kvc_seq *seq = bare_seq(w->bare, w->writer, 1 << 15, NULL);

	aw_append(w, seq, 0, n_tokens, 1000);
	return seq;
}

static void test_workers(void **state)
{
	static const uint64_t n_tokens[] = {1, 4, 30};
	struct jw *w = jw_new(&shapes[3]);
	kvc_seq *seqs[2] = {long_seq(w, LONG_TOKENS), long_seq(w, 300)};

	(void)state;
	for (size_t s = 0; s < 2; s++)
		for (size_t i = 0; i < 3; i++) {
			struct aw_call want, got;

			attend(seqs[s], &want, w, 8, n_tokens[i], NULL);
			for (uint32_t n = 1; n <= 3; n++) {
				kvc_workers *workers = kvc_workers_new(n);

				assert_non_null(workers);
				attend(seqs[s], &got, w, 8, n_tokens[i], workers);
				assert_same(&want, &got);
				aw_call_free(&got);
				kvc_workers_free(workers);
			}
			aw_call_free(&want);
		}
	jw_free(w);
}

static void test_long(void **state)
{
	struct jw_shape shape = {1, {{1, 16, 16, 0}}, KV_FORMAT_INT8, KV_FORMAT_INT8, 64, false, 0,
				 0};
	struct jw *w = jw_new(&shape);
	kvc_seq *seq = long_seq(w, LONG_TOKENS);
	struct aw_call call;
	size_t bytes;
	double sum = 0;

	(void)state;
	attend(seq, &call, w, 4, 1, NULL);
	for (size_t i = 0; i < call.n_weights; i++)
		sum += (double)call.weights[i];
	assert_true(fabs(sum - 1) < 1e-4);
	aw_call_free(&call);
	/* As much scratch as at a tenth of the length. */
	bytes = workers_scratch_bytes(w->writer->alone);
	jw_ok(kvc_rollback_keep(seq, LONG_TOKENS / 10));
	attend(seq, &call, w, 4, 1, NULL);
	assert_int_equal(workers_scratch_bytes(w->writer->alone), bytes);
	aw_call_free(&call);
	jw_free(w);
}

/* Tokens computed together, then one by one, each committed before the next: n outputs. */
static void check_chunk(struct jw *w, kvc_seq *seq, uint64_t n, uint64_t window)
{
	uint64_t length = kvc_length(seq);
	struct aw_call chunk, one;
	size_t bytes;

	aw_call_init(&chunk, w, 4, length, n, true);
	chunk.args.window_tokens = window;
	jw_ok(kvc_attend(seq, 0, &chunk.args));
	bytes = chunk.n_out / n * sizeof(float);
	for (uint64_t t = 0; t < n; t++) {
		aw_call_init(&one, w, 4, length + t, 1, true);
		one.args.window_tokens = window;
		jw_ok(kvc_attend(seq, 0, &one.args));
		assert_memory_equal((char *)chunk.out + t * bytes, one.out, bytes);
		aw_call_free(&one);
		aw_append(w, seq, length + t, 1, 1);
	}
	aw_call_free(&chunk);
	/* And as queries of cached tokens, where all that they see is still there. */
	if (w->layout->layers[0].bound_slots)
		return;
	aw_call_init(&chunk, w, 4, length, n, true);
	aw_call_init(&one, w, 4, length, n, false);
	chunk.args.window_tokens = one.args.window_tokens = window;
	chunk.args.length_tokens = length;
	if (length)
		jw_ok(kvc_attend(seq, 0, &chunk.args));
	jw_ok(kvc_attend(seq, 0, &one.args));
	if (length)
		assert_same(&chunk, &one);
	aw_call_free(&chunk);
	aw_call_free(&one);
}

static void test_chunks(void **state)
{
	static const struct {
		uint32_t format, bound;
		enum kvc_journal_mode mode;
		uint64_t base, window;
	} cases[] = {
		{KV_FORMAT_RAW, 0, KVC_JOURNAL_NONE, 0, 0},
		{KV_FORMAT_RAW, 0, KVC_JOURNAL_NONE, 100, 0},
		{KV_FORMAT_RAW, 0, KVC_JOURNAL_NONE, 150, 37},
		{KV_FORMAT_INT8, 0, KVC_JOURNAL_REPLAY, 100, 0},
		{KV_FORMAT_U4, 0, KVC_JOURNAL_REPLAY, 130, 50},
		{KV_FORMAT_RAW, 70, KVC_JOURNAL_UNDO, 200, 0},
		{KV_FORMAT_RAW, 64, KVC_JOURNAL_UNDO, 60, 30},
		{KV_FORMAT_RAW, 100, KVC_JOURNAL_REPLAY, 90, 0},
		{KV_FORMAT_Q4, 100, KVC_JOURNAL_REPLAY, 250, 1000},
	};
	static const uint64_t chunks[] = {2, 8, 9, 33, 64};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct jw_shape shape = {1,
					 {{2, 32, 32, cases[i].bound}},
					 cases[i].format,
					 cases[i].format,
					 16,
					 false,
					 0,
					 0};
		struct jw *w = jw_new(&shape);

		for (size_t c = 0; c < 5; c++) {
			kvc_seq *seq = jw_seq(w);
			uint64_t early = cases[i].bound && cases[i].bound < cases[i].base ?
						 cases[i].bound :
						 cases[i].base;

			if (cases[i].mode == KVC_JOURNAL_UNDO)
				jw_journal(w, seq, cases[i].mode);
			aw_append(w, seq, 0, early, 50);
			if (cases[i].mode == KVC_JOURNAL_REPLAY)
				jw_journal(w, seq, cases[i].mode);
			aw_append(w, seq, early, cases[i].base - early, 1);
			check_chunk(w, seq, chunks[c], cases[i].window);
			jw_drop(w, seq);
		}
		jw_free(w);
	}
}

/* ---- what a query sees ---------------------------------------------------------------------- */

static void test_windows(void **state)
{
	static const uint64_t windows[] = {1, 2, 63, 64, 65, 128, 199, 1000};

	(void)state;
	for (size_t f = 0; f < N_SHAPES; f += 3)
		for (size_t i = 0; i < 8; i++) {
			struct jw *w = jw_new(&shapes[f]);
			kvc_seq *seq = overlaid(w);

			for (uint64_t n = 1; n < 30; n += 12) {
				struct aw_call call;

				aw_call_init(&call, w, 4, 160, n, true);
				aw_call_weights(&call, w, 160 + n);
				call.args.window_tokens = windows[i];
				aw_attend_checked(w, seq, &call);
				aw_call_free(&call);
			}
			jw_free(w);
		}
}

static void test_rings(void **state)
{
	static const uint32_t bounds[] = {1, 16, 50, 64, 100, 150};
	static const uint64_t windows[] = {0, 7, 90};

	(void)state;
	for (int mode = KVC_JOURNAL_UNDO; mode <= KVC_JOURNAL_REPLAY; mode++)
		for (size_t i = 0; i < 6; i++) {
			struct jw_shape shape = {1,
						 {{2, 32, 32, bounds[i]}},
						 KV_FORMAT_INT8,
						 KV_FORMAT_U8,
						 16,
						 false,
						 0,
						 0};
			struct jw *w = jw_new(&shape);
			kvc_seq *seq = jw_seq(w);

			aw_append(w, seq, 0, bounds[i] / 2, 50);
			jw_journal(w, seq, mode);
			for (uint64_t n = 1, length; n < 80; n += 26)
				for (size_t j = 0; j < 3; j++) {
					struct aw_call call;

					aw_append(w, seq, kvc_length(seq), 13, 1);
					length = kvc_length(seq);
					aw_call_init(&call, w, 4, length, n, true);
					aw_call_weights(&call, w,
							length + n < bounds[i] ? length + n :
										 bounds[i]);
					call.args.window_tokens = windows[j];
					aw_attend_checked(w, seq, &call);
					aw_call_free(&call);
				}
			jw_free(w);
		}
}

static void test_lengths(void **state)
{
	static const uint64_t lengths[] = {1, 40, 64, 99, 100, 128, 160};

	(void)state;
	for (size_t i = 0; i < 7; i++)
		for (uint64_t n = 1; n < 30; n += 12) {
			struct jw *w = jw_new(&shapes[3]);
			kvc_seq *seq = overlaid(w);
			struct aw_call call;

			aw_call_init(&call, w, 4, lengths[i], n, true);
			aw_call_weights(&call, w, lengths[i] + n > 160 ? lengths[i] + n : 160);
			call.args.length_tokens = lengths[i];
			aw_attend_checked(w, seq, &call);
			aw_call_free(&call);
			if (n <= lengths[i]) {
				aw_call_init(&call, w, 4, lengths[i] - n, n, false);
				aw_call_weights(&call, w, 160);
				call.args.length_tokens = lengths[i];
				aw_attend_checked(w, seq, &call);
				aw_call_free(&call);
			}
			jw_free(w);
		}
}

/* Nothing cached: the tokens see themselves alone. */
static void test_empty(void **state)
{
	struct jw *w = jw_new(&shapes[0]);
	kvc_seq *seq = jw_seq(w);
	struct aw_call call;
	float *v;

	(void)state;
	check(w, seq, 2, 1, true);
	check(w, seq, 4, 70, true);
	aw_call_init(&call, w, 2, 0, 1, true);
	jw_ok(kvc_attend(seq, 0, &call.args));
	v = aw_vectors(w, true, 0, 1);
	assert_memory_equal(call.out, v, call.n_out * sizeof(float)); /* one key: its value */
	free(v);
	aw_call_free(&call);
	aw_call_init(&call, w, 2, 0, 1, false);
	jw_fails(kvc_attend(seq, 0, &call.args), KVC_ERANGE, "cached are 0");
	aw_call_free(&call);
	aw_append(w, seq, 0, 1, 1);
	check(w, seq, 2, 1, false);
	check(w, seq, 2, 1, true);
	jw_free(w);
}

/* ---- scores --------------------------------------------------------------------------------- */

static void test_scores(void **state)
{
	static const float scales[] = {0, 0.03f, 1.5f, -0.5f};
	static const float caps[] = {0, 0.25f, 5, 50};
	float sinks[4] = {-3, 0.5f, 20, -INFINITY};

	(void)state;
	for (size_t f = 0; f < N_SHAPES; f += 3)
		for (size_t i = 0; i < 16; i++)
			for (uint64_t n = 1; n < 20; n += 9) {
				struct jw *w = jw_new(&shapes[f]);
				kvc_seq *seq = overlaid(w);
				struct aw_call call;

				aw_call_init(&call, w, 4, 160, n, true);
				aw_call_weights(&call, w, 160 + n);
				call.args.scale = scales[i % 4];
				call.args.softcap = caps[i / 4];
				call.args.sinks = i % 2 ? sinks : NULL;
				call.args.weights_how = i % 2 ? KVC_WEIGHTS_SUM : KVC_WEIGHTS_MEAN;
				aw_attend_checked(w, seq, &call);
				aw_call_free(&call);
				jw_free(w);
			}
}

/* Where it changes from one way to the other, too. */
static void test_tanh(void **state)
{
	(void)state;
	for (int i = -4000; i <= 4000; i++) {
		float x = (float)i * (i % 2 ? 0x1p-10f : 0x1p-7f);
		double want = tanh((double)x);

		assert_true(fabs((double)kv_attend_tanh(x) - want) <= fabs(want) * 0x1p-21);
	}
	assert_true(kv_attend_tanh(INFINITY) == 1);
	assert_true(kv_attend_tanh(-INFINITY) == -1);
	assert_true(isnan(kv_attend_tanh(NAN)));
}

static void test_weights_add_up(void **state)
{
	struct jw *w = jw_new(&shapes[6]);
	kvc_seq *seq = overlaid(w);

	(void)state;
	for (uint64_t n = 1; n < 40; n += 19)
		for (uint32_t how = KVC_WEIGHTS_MEAN; how <= KVC_WEIGHTS_SUM; how++) {
			struct aw_call call;

			aw_call_init(&call, w, 8, 160, n, true);
			aw_call_weights(&call, w, 160 + n);
			call.args.weights_how = how;
			jw_ok(kvc_attend(seq, 0, &call.args));
			for (uint32_t h = 0; h < 2; h++) {
				double sum = 0;

				for (uint64_t i = 0; i < 160 + n; i++)
					sum += (double)call.weights[h * (160 + n) + i];
				sum /= how == KVC_WEIGHTS_SUM ? 4 : 1;
				assert_true(fabs(sum - (double)n) < 1e-5 * (double)n);
			}
			aw_call_free(&call);
		}
	jw_free(w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("every format gives attention, for few and many queries", test_formats),
	KT_TEST("rows of a replay journal count over the blocks", test_overlays),
	KT_TEST("rows over the blocks count in the tiles and heads that they name, until rolled "
		"back",
		test_scattered),
	KT_TEST("forks of forks and snapshots are attended to as they are", test_forks),
	KT_TEST("K and V may have any widths from 16 to 256, and not the same", test_widths),
	KT_TEST("blocks and forks change no bit", test_structure),
	KT_TEST("the number of workers changes no bit", test_workers),
	KT_TEST("a long sequence needs no more scratch memory than a short one", test_long),
	KT_TEST("tokens one by one and in chunks have the same bits", test_chunks),
	KT_TEST("a window hides what is before it", test_windows),
	KT_TEST("a ring is seen by position, tokens that a chunk overwrites too", test_rings),
	KT_TEST("as much of the cache counts as the call says", test_lengths),
	KT_TEST("an empty sequence, and one of one token", test_empty),
	KT_TEST("scale, cap and sinks are those of the call", test_scores),
	KT_TEST("tanh is within 2^-21 of itself", test_tanh),
	KT_TEST("weights add up to the number of queries", test_weights_add_up),
};

KT_MAIN(tests)
