/*
 * Speculative decoding of the example models on private caches: tokens, logits and caches are those
 * of plain decoding, whatever is drafted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decode.h"
#include "client/examples/draft.h"
#include "client/examples/kv_private.h"
#include "client/examples/llama_model.h"
#include "client/examples/prompt.h"
#include "client/examples/safetensors.h"
#include "tests/support/runner.h"

#define VOCAB 1024
#define MAX_TOKENS 2048
#define N_TOKENS 50
#define MAX_ROWS 3

static struct errbuf err;
static struct llama *model, *small;
static struct prompt prompt;
static char folder[2048];

#define OK(call) \
	do { \
		if ((call) != 0) \
			fail_msg("%s: %s", #call, err.text); \
	} while (0)

static int load(void **state)
{
	const char *top = getenv("top_srcdir");
	struct tokenizer *tok;
	char path[4096];
	int rc;

	(void)state;
	snprintf(folder, sizeof(folder), "%s/client/examples/model", top ? top : ".");
	snprintf(path, sizeof(path), "%s/kjv-3m.safetensors", folder);
	if (llama_open(&model, path, &err) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/kjv-draft.safetensors", folder);
	if (llama_open(&small, path, &err) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/tokenizer.txt", folder);
	if (tokenizer_open(&tok, path, &err) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/prompt.txt", folder);
	rc = prompt_from_text(&prompt, tok, path, &err);
	tokenizer_close(tok);
	return rc;
}

static int unload(void **state)
{
	(void)state;
	prompt_fini(&prompt);
	llama_close(small);
	llama_close(model);
	return 0;
}

struct mode {
	struct kv_formats formats;
	bool replay;
	double temperature;
};

static const struct mode greedy_raw = {{KV_FORMAT_RAW, KV_FORMAT_RAW}, false, 0};

/* What a row gives. */
struct output {
	uint32_t ids[N_TOKENS];
	float logits[N_TOKENS][VOCAB];
	size_t n;
};

static int keep(void *arg, size_t row, uint32_t id, const float *logits, struct errbuf *e)
{
	struct output *out = (struct output *)arg + row;

	(void)e;
	assert_true(out->n < N_TOKENS);
	out->ids[out->n] = id;
	memcpy(out->logits[out->n++], logits, sizeof(out->logits[0]));
	return 0;
}

static int keep_plain(void *arg, uint32_t id, const float *logits, struct errbuf *e)
{
	return keep(arg, 0, id, logits, e);
}

/* Prompts of these lengths, the last token of which is not in the cache. */
static const size_t n_prompts[MAX_ROWS] = {263, 37, 120};

static struct kv_cache *cache_new(const struct mode *mode, struct llama *m, size_t row)
{
	struct kv_cache *kv = kv_private_new(m, mode->formats, MAX_TOKENS, &err);

	assert_non_null(kv);
	OK(llama_forward(m, kv, prompt.ids, n_prompts[row] - 1, NULL, 0, &err));
	if (mode->replay)
		OK(kv->ops->replay(kv, &err));
	return kv;
}

struct world {
	struct draft d;
	struct draft_row rows[MAX_ROWS];
	struct output *out; /* [MAX_ROWS] */
};

static void world_open(struct world *w, const struct mode *mode, size_t n_rows, size_t n_drafts)
{
	w->out = calloc(MAX_ROWS, sizeof(*w->out));
	assert_non_null(w->out);
	for (size_t i = 0; i < n_rows; i++)
		w->rows[i] = (struct draft_row){.main = cache_new(mode, model, i),
						.small = cache_new(mode, small, i),
						.last = prompt.ids[n_prompts[i] - 1],
						.seed = 5 + i,
						.n_left = N_TOKENS - 10 * i};
	w->d = (struct draft){.main = model,
			      .small = small,
			      .n_tokens = n_drafts,
			      .temperature = mode->temperature,
			      .rows = w->rows,
			      .n_rows = n_rows,
			      .each = keep,
			      .arg = w->out};
}

static void world_close(struct world *w)
{
	draft_fini(&w->d);
	for (size_t i = 0; i < w->d.n_rows; i++) {
		kv_free(w->rows[i].main);
		kv_free(w->rows[i].small);
	}
	free(w->out);
}

/* A row against decode_run. */
static void assert_plain(const struct world *w, const struct mode *mode, size_t row)
{
	const struct output *got = &w->out[row];
	struct output *plain = calloc(1, sizeof(*plain));
	struct decode d = {.model = model,
			   .kv = cache_new(mode, model, row),
			   .temperature = mode->temperature,
			   .seed = 5 + row,
			   .each = keep_plain,
			   .arg = plain};
	uint32_t ids[N_TOKENS];

	assert_non_null(plain);
	assert_int_equal(got->n, N_TOKENS - 10 * row);
	OK(decode_run(&d, prompt.ids[n_prompts[row] - 1], got->n, ids, &err));
	assert_memory_equal(got->ids, plain->ids, got->n * sizeof(got->ids[0]));
	assert_memory_equal(got->logits, plain->logits, got->n * sizeof(got->logits[0]));
	kv_free(d.kv);
	free(plain);
}

/* After each step, of all rows: what is in the caches, what is to come. */
static void assert_lengths(const struct world *w)
{
	for (size_t i = 0; i < w->d.n_rows; i++) {
		const struct draft_row *row = &w->rows[i];
		size_t n = n_prompts[i] - 1 + w->out[i].n;

		assert_int_equal(row->main->n_tokens, n);
		assert_int_equal(row->small->n_tokens, n);
		assert_int_equal(row->n_left + w->out[i].n, N_TOKENS - 10 * i);
		assert_int_equal(row->n_accepted + row->n_steps, w->out[i].n);
		assert_int_equal(row->last,
				 w->out[i].n ? w->out[i].ids[w->out[i].n - 1] : row->last);
	}
}

/* Steps in which not all rows kept equally many. */
static size_t run_checked(struct world *w)
{
	size_t n_different = 0;
	int rc;

	OK(draft_init(&w->d, &err));
	do {
		uint64_t before[MAX_ROWS] = {0}, first;

		for (size_t i = 0; i < w->d.n_rows; i++)
			before[i] = w->rows[i].n_accepted;
		rc = draft_step(&w->d, &err);
		assert_in_range(rc, 0, 1);
		assert_lengths(w);
		first = w->rows[0].n_accepted - before[0];
		for (size_t i = 1; i < w->d.n_rows; i++)
			n_different += w->rows[i].n_accepted - before[i] != first;
	} while (rc);
	return n_different;
}

static void test_plain(void **state)
{
	static const struct mode modes[] = {
		{{KV_FORMAT_RAW, KV_FORMAT_RAW}, false, 0},
		{{KV_FORMAT_RAW, KV_FORMAT_RAW}, false, 0.8},
		{{KV_FORMAT_RAW, KV_FORMAT_RAW}, true, 0.8},
		{{KV_FORMAT_INT8, KV_FORMAT_U4}, true, 0},
		{{KV_FORMAT_INT8, KV_FORMAT_U4}, true, 0.8},
	};

	(void)state;
	for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
		struct world w;

		world_open(&w, &modes[m], MAX_ROWS, 4);
		assert_true(run_checked(&w) > 0); /* or this is no test of different counts */
		for (size_t i = 0; i < MAX_ROWS; i++)
			assert_plain(&w, &modes[m], i);
		world_close(&w);
	}
}

static void test_numbers(void **state)
{
	static const size_t numbers[] = {1, 2, 7, DRAFT_TOKENS_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct world w;

		world_open(&w, &greedy_raw, 1, numbers[i]);
		run_checked(&w);
		assert_plain(&w, &greedy_raw, 0);
		/* At most as many as are to come but one, in the first step. */
		assert_true(w.rows[0].n_drafted >= (numbers[i] < N_TOKENS ? numbers[i] : 49));
		world_close(&w);
	}
}

static int keep_id(void *arg, size_t row, uint32_t id, const float *logits, struct errbuf *e)
{
	uint32_t **to = arg;

	(void)row;
	(void)logits;
	(void)e;
	*(*to)++ = id;
	return 0;
}

/* How many are kept is what the reference kept (spec.accepted), the text main.greedy. */
static void test_golden(void **state)
{
	const struct safetensors_tensor *accepted, *greedy;
	struct safetensors *st;
	uint32_t ids[400], *to = ids;
	struct draft_row row = {.last = prompt.ids[prompt.n - 1], .n_left = 400};
	struct draft d = {.main = model,
			  .small = small,
			  .n_tokens = 4,
			  .rows = &row,
			  .n_rows = 1,
			  .each = keep_id,
			  .arg = &to};
	char path[4096];

	(void)state;
	snprintf(path, sizeof(path), "%s/golden.safetensors", folder);
	OK(safetensors_open(&st, path, &err));
	accepted = safetensors_find(st, "spec.accepted");
	greedy = safetensors_find(st, "main.greedy");
	assert_true(accepted && greedy);
	row.main = kv_private_new(model, KV_FORMATS_RAW, MAX_TOKENS, &err);
	row.small = kv_private_new(small, KV_FORMATS_RAW, MAX_TOKENS, &err);
	assert_true(row.main && row.small);
	OK(llama_forward(model, row.main, prompt.ids, prompt.n - 1, NULL, 0, &err));
	OK(llama_forward(small, row.small, prompt.ids, prompt.n - 1, NULL, 0, &err));
	OK(draft_init(&d, &err));
	assert_true(accepted->n_elements > 12);
	for (size_t i = 0; i < accepted->n_elements; i++) {
		uint64_t before = row.n_accepted;

		assert_int_equal(draft_step(&d, &err), 1);
		assert_int_equal(row.n_accepted - before, accepted->data[i * 4]);
	}
	assert_true(to - ids >= (ptrdiff_t)greedy->n_elements);
	assert_memory_equal(ids, greedy->data, greedy->n_bytes);
	draft_fini(&d);
	kv_free(row.main);
	kv_free(row.small);
	safetensors_close(st);
}

/* A model is its own best draft model. */
static void test_all_accepted(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &greedy_raw, 1, 4);
	kv_free(w.rows[0].small);
	w.rows[0].small = cache_new(&greedy_raw, model, 0);
	w.d.small = model;
	run_checked(&w);
	assert_plain(&w, &greedy_raw, 0);
	assert_int_equal(w.rows[0].n_steps, N_TOKENS / 5);
	assert_int_equal(w.rows[0].n_drafted, N_TOKENS / 5 * 4);
	assert_int_equal(w.rows[0].n_accepted, w.rows[0].n_drafted);
	world_close(&w);
}

/* The draft model's context ends in the middle of the text. */
static void test_context(void **state)
{
	size_t context = small->g.context, n = n_prompts[0] - 1 + 20;
	struct world w;

	(void)state;
	world_open(&w, &greedy_raw, 1, 4);
	small->g.context = n;
	OK(draft_init(&w.d, &err));
	while (w.rows[0].small->n_tokens < n)
		assert_int_equal(draft_step(&w.d, &err), 1);
	assert_int_equal(w.rows[0].main->n_tokens, n);
	assert_true(w.rows[0].n_drafted > 0 && w.rows[0].n_left > 0);
	w.rows[0].n_drafted = 0;
	OK(draft_run(&w.d, &err));
	assert_int_equal(w.rows[0].n_drafted, 0);
	assert_int_equal(w.rows[0].small->n_tokens, n);
	assert_plain(&w, &greedy_raw, 0);
	small->g.context = context;
	world_close(&w);
}

/* Main model and row fill the context to the last place. */
static void test_main_context(void **state)
{
	size_t context = model->g.context;
	struct world w;

	(void)state;
	world_open(&w, &greedy_raw, 1, 4);
	model->g.context = n_prompts[0] - 1 + N_TOKENS;
	run_checked(&w);
	assert_plain(&w, &greedy_raw, 0);
	model->g.context = context;
	world_close(&w);
}

static void assert_refused(struct draft *d, int status, const char *text)
{
	assert_int_equal(draft_init(d, &err), -1);
	assert_int_equal(err.status, status);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" is not in \"%s\"", text, err.text);
	draft_fini(d);
}

static void test_refusals(void **state)
{
	struct kv_cache *kv;
	struct kv_ops ops;
	struct world w;

	(void)state;
	world_open(&w, &greedy_raw, 1, 4);
	small->g.vocab--;
	assert_refused(&w.d, KV_EINVAL, "the draft model knows 1023 tokens, the main model 1024");
	small->g.vocab++;
	w.d.n_tokens = 0;
	assert_refused(&w.d, KV_ERANGE, "0 drafts a step; it must be 1 to 63");
	w.d.n_tokens = DRAFT_TOKENS_MAX + 1;
	assert_refused(&w.d, KV_ERANGE, "64 drafts a step; it must be 1 to 63");
	w.d.n_tokens = 4;
	w.d.n_rows = 0;
	assert_refused(&w.d, KV_ERANGE, "0 rows; it must be 1 to 64");
	w.d.n_rows = DRAFT_ROWS_MAX + 1;
	assert_refused(&w.d, KV_ERANGE, "65 rows; it must be 1 to 64");
	w.d.n_rows = 1;
	kv = w.rows[0].small;
	ops = *kv->ops;
	kv->ops = &ops;
	assert_refused(&w.d, KV_EINVAL, "not all of one kind");
	kv->ops = w.rows[0].main->ops;
	OK(kv->ops->truncate(kv, 100, &err));
	assert_refused(&w.d, KV_EINVAL, "main model's cache has 262 tokens, the draft model's 100");
	world_close(&w);
}

static int refuse_third(void *arg, size_t row, uint32_t id, const float *logits, struct errbuf *e)
{
	int *n = arg;

	(void)row;
	(void)id;
	(void)logits;
	return ++*n == 3 ? errbuf_set(e, KV_EINVAL, "the third") : 0;
}

static void test_ended(void **state)
{
	struct world w;
	int n = 0;

	(void)state;
	world_open(&w, &greedy_raw, 1, 4);
	w.d.each = refuse_third;
	w.d.arg = &n;
	OK(draft_init(&w.d, &err));
	assert_int_equal(draft_run(&w.d, &err), -1);
	assert_string_equal(err.text, "the third");
	assert_int_equal(n, 3);
	world_close(&w);
}

static void test_truncate_many(void **state)
{
	const struct mode int8 = {{KV_FORMAT_INT8, KV_FORMAT_INT8}, false, 0};
	const struct mode *modes[] = {&greedy_raw, &int8};

	(void)state;
	for (int m = 0; m < 2; m++) {
		struct kv_cache *kvs[] = {cache_new(modes[m], small, 0),
					  cache_new(modes[m], small, 1)};
		size_t wrong[] = {100, n_prompts[1]}, right[] = {100, 0};

		assert_int_equal(kvs[0]->ops->truncate_many(kvs, wrong, 2, &err), -1);
		assert_int_equal(err.status, KV_ERANGE);
		assert_int_equal(kvs[0]->n_tokens, n_prompts[0] - 1);
		assert_int_equal(kvs[1]->n_tokens, n_prompts[1] - 1);
		OK(kvs[0]->ops->truncate_many(kvs, right, 2, &err));
		assert_int_equal(kvs[0]->n_tokens, 100);
		assert_int_equal(kvs[1]->n_tokens, 0);
		kv_free(kvs[0]);
		kv_free(kvs[1]);
	}
}

static const struct CMUnitTest tests[] = {
	KT_TEST("rows of a batch keep different numbers of drafts, and have text and logits of "
		"plain decoding, greedy and with seeds, on raw caches and with replay",
		test_plain),
	KT_TEST("one draft a step, some, and as many as a chunk takes", test_numbers),
	KT_TEST("after the golden prompt each step keeps as many drafts as the reference, and the "
		"text is the golden one",
		test_golden),
	KT_TEST("a model that drafts for itself has all drafts kept", test_all_accepted),
	KT_TEST("behind the end of the draft model's context a row goes on token by token",
		test_context),
	KT_TEST("a row fills the main model's context to the last place", test_main_context),
	KT_TEST("other vocabularies, numbers out of range and unlike caches are refused",
		test_refusals),
	KT_TEST("an error of the caller ends the run", test_ended),
	KT_TEST("several private caches are cut all or none", test_truncate_many),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), load, unload};

	return kt_run(argc, argv, &group, 1);
}
