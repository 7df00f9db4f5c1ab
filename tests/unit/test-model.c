/*
 * The example decoder with the real models: golden values, and that its results do not depend on
 * how they are computed.
 *
 * Golden data come from client/examples/model/reference.py (numpy, f32, another order of sums):
 * within 1e-3. Where two of our own ways are compared, bits must be equal.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decode.h"
#include "client/examples/kv_private.h"
#include "client/examples/llama_model.h"
#include "client/examples/prompt.h"
#include "client/examples/safetensors.h"
#include "client/examples/sample.h"
#include "client/examples/score.h"
#include "tests/support/runner.h"

#define N_POSITIONS 5
#define N_GREEDY 64
#define TOLERANCE 1e-3

enum { MAIN, DRAFT };

static const struct model_name {
	const char *name, *file;
	/* Of prompt.txt; from the losses that Decoder.step of reference.py gives, summed in f64. */
	double nats_per_token, bits_per_byte;
} names[] = {
	[MAIN] = {"main", "kjv-3m.safetensors", 2.833057, 1.541026},
	[DRAFT] = {"draft", "kjv-draft.safetensors", 3.380528, 1.838820},
};

static struct errbuf err;
static struct llama *models[2];
static struct tokenizer *tok;
static struct safetensors *golden;
static struct prompt prompt;

#define OK(call) assert_true((call) == 0 || (fprintf(stderr, "%s\n", err.text), false))

static const char *model_path(const char *file)
{
	static char path[4096];
	const char *top = getenv("top_srcdir");

	snprintf(path, sizeof(path), "%s/client/examples/model/%s", top ? top : ".", file);
	return path;
}

static int set_up(void **state)
{
	(void)state;
	for (int i = MAIN; i <= DRAFT; i++)
		if (llama_open(&models[i], model_path(names[i].file), &err) < 0)
			return -1;
	if (tokenizer_open(&tok, model_path("tokenizer.txt"), &err) < 0 ||
	    safetensors_open(&golden, model_path("golden.safetensors"), &err) < 0 ||
	    prompt_from_text(&prompt, tok, model_path("prompt.txt"), &err) < 0)
		return -1;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	llama_close(models[MAIN]);
	llama_close(models[DRAFT]);
	tokenizer_close(tok);
	safetensors_close(golden);
	prompt_fini(&prompt);
	return 0;
}

/* Values of a golden tensor, named "model.what" or "what"; aligned, freed by the caller. */
static void *golden_values(const char *model, const char *what, size_t *n)
{
	const struct safetensors_tensor *t;
	char name[64];
	void *copy;

	snprintf(name, sizeof(name), "%s%s%s", model, *model ? "." : "", what);
	t = safetensors_find(golden, name);
	assert_non_null(t);
	copy = malloc(t->n_bytes + 1);
	assert_non_null(copy);
	memcpy(copy, t->data, t->n_bytes);
	*n = t->n_elements;
	return copy;
}

static struct kv_cache *new_cache(const struct llama *m, size_t max_tokens)
{
	struct kv_cache *kv = kv_private_new(m, KV_FORMATS_RAW, max_tokens, &err);

	assert_non_null(kv);
	return kv;
}

static void assert_near(const float *a, const float *b, size_t n)
{
	double worst = 0;

	for (size_t i = 0; i < n; i++)
		worst = fmax(worst, isnan(a[i]) ? INFINITY : fabs((double)a[i] - (double)b[i]));
	if (worst > TOLERANCE)
		fail_msg("differs by %g", worst);
}

/* ---- tokenizer ---- */

static void test_strings(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++) {
		char name[32];
		size_t n_bytes, n_ids, n = 0;
		unsigned char *bytes;
		uint32_t *want, got[512];

		snprintf(name, sizeof(name), "string%d.bytes", i);
		bytes = golden_values("", name, &n_bytes);
		snprintf(name, sizeof(name), "string%d.ids", i);
		want = golden_values("", name, &n_ids);
		assert_in_range(n_bytes, 0, 512);
		assert_int_equal(tokenizer_encode(tok, bytes, n_bytes, got), n_ids);
		assert_memory_equal(got, want, n_ids * sizeof(*got));
		for (size_t j = 0; j < n_ids; j++) {
			size_t n_token;
			const unsigned char *token = tokenizer_decode(tok, got[j], &n_token);

			assert_in_range(n_token, 1, n_bytes - n);
			assert_memory_equal(token, bytes + n, n_token);
			n += n_token;
		}
		assert_int_equal(n, n_bytes);
		free(bytes);
		free(want);
	}
}

static void test_prompt_ids(void **state)
{
	size_t n;
	uint32_t *want = golden_values("", "prompt", &n);

	(void)state;
	assert_int_equal(prompt.n, n);
	assert_memory_equal(prompt.ids, want, n * sizeof(*want));
	free(want);
}

static void test_long_chunk(void **state)
{
	/* 200,000 letters without a space are one chunk; a naive search of pairs takes minutes. */
	size_t n_bytes = 200000, n = 0;
	unsigned char *text = malloc(n_bytes);
	uint32_t *ids = malloc(n_bytes * sizeof(*ids));

	(void)state;
	assert_non_null(text);
	assert_non_null(ids);
	for (size_t i = 0; i < n_bytes; i++)
		text[i] = (unsigned char)('a' + i * i % 23);
	for (size_t i = 0, n_ids = tokenizer_encode(tok, text, n_bytes, ids); i < n_ids; i++) {
		size_t n_token;
		const unsigned char *token = tokenizer_decode(tok, ids[i], &n_token);

		assert_memory_equal(token, text + n, n_token);
		n += n_token;
	}
	assert_int_equal(n, n_bytes);
	free(text);
	free(ids);
}

/* ---- golden values ---- */

/* K or V of one position over all layers, as the golden file has it. */
static void cached_row(struct kv_cache *kv, size_t position, int want_v, float *out)
{
	float rows[2][1024];

	assert_in_range(kv->row_floats, 1, 1024);
	for (size_t layer = 0; layer < kv->n_layers; layer++) {
		OK(kv->ops->read(kv, layer, position, 1, rows[0], rows[1], &err));
		memcpy(out + layer * kv->row_floats, rows[want_v], kv->row_floats * sizeof(*out));
	}
}

static void test_golden_values(void **state)
{
	const struct model_name *name = *state;
	struct llama *m = models[name - names];
	struct kv_cache *kv = new_cache(m, prompt.n);
	size_t n, at = 0, row = m->g.n_layers * llama_row_floats(m);
	float logits[1024], cached[1024];
	int32_t *positions = golden_values("", "positions", &n);
	float *want_logits = golden_values(name->name, "logits", &n);
	float *want_k = golden_values(name->name, "k", &n);
	float *want_v = golden_values(name->name, "v", &n);

	assert_int_equal(n, N_POSITIONS * row);
	for (int i = 0; i < N_POSITIONS; i++) {
		size_t end = (size_t)positions[i] + 1;

		OK(llama_forward(m, kv, prompt.ids + at, end - at, logits, 1, &err));
		at = end;
		assert_near(logits, want_logits + (size_t)i * 1024, 1024);
		cached_row(kv, end - 1, 0, cached);
		assert_near(cached, want_k + (size_t)i * row, row);
		cached_row(kv, end - 1, 1, cached);
		assert_near(cached, want_v + (size_t)i * row, row);
	}
	assert_int_equal(kv->n_tokens, prompt.n);
	free(positions);
	free(want_logits);
	free(want_k);
	free(want_v);
	kv_free(kv);
}

static void prefill(struct llama *m, struct kv_cache *kv, size_t n)
{
	OK(llama_forward(m, kv, prompt.ids, n, NULL, 0, &err));
}

static void test_greedy(void **state)
{
	const struct model_name *name = *state;
	struct llama *m = models[name - names];
	struct kv_cache *kv = new_cache(m, prompt.n + N_GREEDY);
	struct decode d = {.model = m, .kv = kv};
	uint32_t got[N_GREEDY], *want;
	size_t n;

	want = golden_values(name->name, "greedy", &n);
	assert_int_equal(n, N_GREEDY);
	prefill(m, kv, prompt.n - 1);
	OK(decode_run(&d, prompt.ids[prompt.n - 1], N_GREEDY, got, &err));
	assert_memory_equal(got, want, sizeof(got));
	free(want);
	kv_free(kv);
}

static void test_score(void **state)
{
	const struct model_name *name = *state;
	struct llama *m = models[name - names];
	struct kv_cache *kv = new_cache(m, prompt.n);
	struct score score;

	OK(score_ids(m, kv, tok, prompt.ids, prompt.n, false, &score, &err));
	assert_int_equal(score.n_tokens, 1599);
	assert_int_equal(score.n_bytes, 4241);
	assert_true(fabs(score.nats / 1599 - name->nats_per_token) < 1e-4);
	assert_true(fabs(score_bits_per_byte(&score) - name->bits_per_byte) < 1e-4);
	assert_int_equal(kv->n_tokens, 0);
	kv_free(kv);
}

/* ---- one order of sums ---- */

/* Logits after each of the first n tokens of the prompt. */
static float *run(struct llama *m, struct kv_cache *kv, size_t n, size_t chunk)
{
	float *logits = malloc(n * m->g.vocab * sizeof(*logits));

	assert_non_null(logits);
	llama_set_chunk(m, chunk);
	OK(llama_forward(m, kv, prompt.ids, n, logits, n, &err));
	llama_set_chunk(m, LLAMA_CHUNK_TOKENS);
	return logits;
}

/* Frees got. */
static void assert_same(const struct llama *m, const float *want, float *got, size_t n)
{
	assert_memory_equal(want, got, n * m->g.vocab * sizeof(*got));
	free(got);
}

static void test_chunks(void **state)
{
	static const size_t sizes[] = {1, 7, 13, 63};
	struct llama *m = models[(const struct model_name *)*state - names];
	size_t n = 300;
	struct kv_cache *kv = new_cache(m, n);
	float *want = run(m, kv, n, 64);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		OK(kv->ops->truncate(kv, 0, &err));
		assert_same(m, want, run(m, kv, n, sizes[i]), n);
	}
	free(want);
	kv_free(kv);
}

static void test_kernels(void **state)
{
	struct llama *m = models[DRAFT];
	size_t n = 300;
	struct kv_cache *kv = new_cache(m, n);
	float *want = run(m, kv, n, 64);
	const struct kernels *best = m->kernels;

	(void)state;
	for (size_t i = 0; kernels_at(i); i++) {
		m->kernels = kernels_at(i);
		OK(kv->ops->truncate(kv, 0, &err));
		assert_same(m, want, run(m, kv, n, 64), n);
	}
	m->kernels = best;
	free(want);
	kv_free(kv);
}

/* ---- rollback ---- */

static int keep_rows(void *arg, uint32_t id, const float *logits, struct errbuf *e)
{
	float **to = arg;

	(void)id;
	(void)e;
	memcpy(*to, logits, 1024 * sizeof(*logits));
	*to += 1024;
	return 0;
}

static void test_rollback(void **state)
{
	enum { N = 40, PREFIX = 200 };
	struct llama *m = models[DRAFT];
	struct kv_cache *kv = new_cache(m, PREFIX + N);
	float *rows = malloc(2 * N * 1024 * sizeof(*rows)), *to = rows;
	struct decode d = {m, kv, 0.8, 7, keep_rows, &to};
	struct decode draft = {m, kv, 1.5, 99, NULL, NULL};
	uint32_t want[N], got[N], drafted[8];

	(void)state;
	assert_non_null(rows);
	prefill(m, kv, PREFIX - 1);
	OK(decode_run(&d, prompt.ids[PREFIX - 1], N, want, &err));
	OK(kv->ops->truncate(kv, PREFIX - 1, &err));
	OK(decode_run(&d, prompt.ids[PREFIX - 1], 10, got, &err));
	/* Eight other tokens, all of which go again; then five of the right ones go and come back. */
	OK(decode_run(&draft, got[9], 8, drafted, &err));
	assert_memory_not_equal(drafted, want + 10, sizeof(drafted));
	OK(kv->ops->truncate(kv, kv->n_tokens - 8, &err));
	OK(decode_run(&d, got[9], 8, got + 10, &err));
	OK(kv->ops->truncate(kv, kv->n_tokens - 5, &err));
	to -= 5 * 1024;
	OK(decode_run(&d, got[12], N - 13, got + 13, &err));
	assert_memory_equal(got, want, sizeof(want));
	assert_memory_equal(rows, rows + N * 1024, N * 1024 * sizeof(*rows));
	free(rows);
	kv_free(kv);
}

/* ---- sampling ---- */

static void test_sampling(void **state)
{
	float logits[4] = {1.0f, 3.0f, 3.0f, -INFINITY}, bad[3] = {NAN, 1.0f, 2.0f};
	size_t count[4] = {0};

	(void)state;
	assert_int_equal(sample_greedy(logits, 4), 1);
	assert_int_equal(sample_token(logits, 4, 0, 1, 1), 1);
	assert_in_range(sample_token(bad, 3, 0.8, 1, 1), 0, 2);
	for (uint64_t i = 0; i < 20000; i++) {
		uint32_t id = sample_token(logits, 4, 2.0, 5, i);

		assert_int_equal(id, sample_token(logits, 4, 2.0, 5, i));
		count[id]++;
	}
	/* exp(-1) : 1 : 1 : 0, four standard deviations wide */
	assert_in_range(count[0], 20000 * 0.1554 - 205, 20000 * 0.1554 + 205);
	assert_in_range(count[1], 20000 * 0.4223 - 280, 20000 * 0.4223 + 280);
	assert_int_equal(count[3], 0);
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
	struct llama *m = models[DRAFT];
	struct kv_cache *small = new_cache(m, 10), *wrong = new_cache(models[MAIN], 10);
	uint32_t bad = 1024;

	(void)state;
	assert_int_equal(llama_forward(m, small, &bad, 1, NULL, 0, &err), -1);
	assert_string_equal(err.text, "token id 1024; the model knows 0 to 1023");
	assert_int_equal(llama_forward(m, wrong, prompt.ids, 1, NULL, 0, &err), -1);
	assert_int_equal(err.status, KV_ELAYOUT);
	assert_int_equal(llama_forward(m, small, prompt.ids, 11, NULL, 0, &err), -1);
	assert_int_equal(err.status, KV_ERESERVE);
	assert_int_equal(small->n_tokens, 0);
	assert_int_equal(llama_forward(m, small, prompt.ids, 10, NULL, 0, &err), 0);
	assert_int_equal(small->n_tokens, 10);
	assert_int_equal(small->ops->truncate(small, 11, &err), -1);
	small->n_tokens = 2048; /* full */
	assert_int_equal(llama_forward(m, small, prompt.ids, 1, NULL, 0, &err), -1);
	assert_string_equal(err.text,
			    "1 tokens behind 2048 are beyond the model's context of 2048");
	kv_free(small);
	kv_free(wrong);
}

#define BOTH(sentence, fn) \
	KT_TEST_PARAM(sentence " (main)", fn, (void *)&names[MAIN]), \
		KT_TEST_PARAM(sentence " (draft)", fn, (void *)&names[DRAFT])

static const struct CMUnitTest tests[] = {
	KT_TEST("the tokenizer gives the golden ids of five strings, and the bytes back",
		test_strings),
	KT_TEST("the prompt's text gives the golden ids", test_prompt_ids),
	KT_TEST("a chunk of 200,000 letters is encoded in reasonable time", test_long_chunk),
	BOTH("logits, keys and values are the golden ones within 1e-3", test_golden_values),
	BOTH("64 greedy tokens are the golden ones", test_greedy),
	BOTH("the loss on the prompt is that of the reference", test_score),
	BOTH("logits do not depend on the chunk size by a bit", test_chunks),
	KT_TEST("all versions of the kernels give the same bits", test_kernels),
	KT_TEST("tokens drawn after a rollback are those of a run without one", test_rollback),
	KT_TEST("sampling follows the probabilities and repeats itself", test_sampling),
	KT_TEST("wrong ids, caches and lengths are refused and change nothing", test_refusals),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), set_up, tear_down};

	return kt_run(argc, argv, &group, 1);
}
