/*
 * The example decoder on sequences of the library, over bare memory: after forks, drafts and
 * rollbacks logits and cached bytes are, bit for bit, those of a decoder on private buffers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decode.h"
#include "client/examples/kv_private.h"
#include "client/examples/kv_shared.h"
#include "client/examples/prompt.h"
#include "tests/support/bare.h"
#include "tests/support/runner.h"

#define MAX_TOKENS 2048
#define BLOCK_TOKENS 16
/* Ends inside a block, and in the second chunk of the prefill. */
#define N_PROMPT 101
#define N_SAMPLED 60

static struct errbuf err;
static struct llama *model;
static struct prompt prompt;

#define OK(call) assert_true((call) == 0 || (fprintf(stderr, "%s\n", err.text), false))

/* What the library does with a daemon, here with the little core of tests/support/bare.h. */
static struct bare *bare;
static unsigned int n_reserves;

int kvc_reserve(kvc_seq *seq, uint64_t n_tokens)
{
	n_reserves++;
	return bare_reserve(bare, seq, n_tokens);
}

struct world {
	struct kvc_writer *writer;
	struct kvc_seq *seq;
	struct kv_cache *shared, *private;
};

static int load(void **state)
{
	const char *top = getenv("top_srcdir");
	char path[4096];
	struct tokenizer *tok;
	int rc = -1;

	(void)state;
	snprintf(path, sizeof(path), "%s/client/examples/model/kjv-3m.safetensors",
		 top ? top : ".");
	if (llama_open(&model, path, &err) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/client/examples/model/tokenizer.txt", top ? top : ".");
	if (tokenizer_open(&tok, path, &err) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/client/examples/model/prompt.txt", top ? top : ".");
	rc = prompt_from_text(&prompt, tok, path, &err);
	tokenizer_close(tok);
	return rc;
}

static int unload(void **state)
{
	(void)state;
	prompt_fini(&prompt);
	llama_close(model);
	return 0;
}

static void world_open(struct world *w)
{
	const struct llama_geometry *g = llama_geometry(model);
	struct kv_layer layers[8];

	for (size_t i = 0; i < g->n_layers; i++)
		layers[i] = (struct kv_layer){(uint32_t)g->n_kv_heads, (uint32_t)g->head_dim,
					      (uint32_t)g->head_dim, 0};
	n_reserves = 0;
	bare = bare_new(bare_layout((uint32_t)g->n_layers, layers, BLOCK_TOKENS));
	w->writer = bare_writer(bare, 0);
	w->seq = bare_seq(bare, w->writer, MAX_TOKENS, NULL);
	assert_non_null(w->seq);
	w->shared = kv_shared_new(w->writer, w->seq, model, MAX_TOKENS, &err);
	w->private = kv_private_new(model, KV_FORMATS_RAW, MAX_TOKENS, &err);
	assert_non_null(w->shared);
	assert_non_null(w->private);
}

static void world_close(struct world *w)
{
	kv_free(w->shared);
	kv_free(w->private);
	segment_place(&bare->segment, w->seq->place)->seq_id = 0;
	seq_end(w->seq, SEQ_END_DROPPED);
	writer_free(w->writer);
	bare_free(bare);
}

/* All cached rows, [layer][K or V][position][row]. */
static float *cached_rows(struct kv_cache *kv)
{
	size_t n = kv->n_tokens * kv->row_floats;
	float *rows = malloc(kv->n_layers * 2 * n * sizeof(*rows) + 1);

	assert_non_null(rows);
	for (size_t i = 0; i < kv->n_layers; i++)
		OK(kv->ops->read(kv, i, 0, kv->n_tokens, rows + i * 2 * n, rows + (i * 2 + 1) * n,
				 &err));
	return rows;
}

static void assert_same_cache(struct kv_cache *a, struct kv_cache *b)
{
	float *x = cached_rows(a), *y = cached_rows(b);

	assert_int_equal(a->n_tokens, b->n_tokens);
	assert_memory_equal(x, y, a->n_layers * 2 * a->n_tokens * a->row_floats * sizeof(*x));
	free(x);
	free(y);
}

/* One decoder's tokens and logits. */
struct output {
	uint32_t ids[N_SAMPLED];
	float logits[N_SAMPLED][1024];
	size_t n;
};

static int keep(void *arg, uint32_t id, const float *logits, struct errbuf *e)
{
	struct output *out = arg;

	(void)e;
	out->ids[out->n] = id;
	memcpy(out->logits[out->n++], logits, sizeof(out->logits[0]));
	return 0;
}

static void decode(struct kv_cache *kv, uint64_t seed, size_t n, struct output *out)
{
	struct decode d = {model, kv, 0.8, seed, keep, out};
	uint32_t last = out->n ? out->ids[out->n - 1] : prompt.ids[N_PROMPT - 1];
	uint32_t ids[N_SAMPLED];

	OK(decode_run(&d, last, n, ids, &err));
}

static void prefill(struct kv_cache *kv)
{
	OK(llama_forward(model, kv, prompt.ids, N_PROMPT - 1, NULL, 0, &err));
}

static struct output *output_new(void)
{
	struct output *out = calloc(1, sizeof(*out));

	assert_non_null(out);
	return out;
}

static void assert_same_output(struct output *a, struct output *b)
{
	assert_int_equal(a->n, b->n);
	assert_memory_equal(a->ids, b->ids, a->n * sizeof(a->ids[0]));
	assert_memory_equal(a->logits, b->logits, a->n * sizeof(a->logits[0]));
	free(a);
	free(b);
}

static void test_decode(void **state)
{
	struct output *a = output_new(), *b = output_new();
	struct world w;

	(void)state;
	world_open(&w);
	prefill(w.shared);
	prefill(w.private);
	assert_same_cache(w.shared, w.private);
	decode(w.shared, 1, N_SAMPLED, a);
	decode(w.private, 1, N_SAMPLED, b);
	assert_same_cache(w.shared, w.private);
	assert_same_output(a, b);
	/* 160 tokens fit the first reserve. */
	assert_int_equal(n_reserves, 1);
	world_close(&w);
}

/* Drafts eight tokens, takes five back, goes on. */
static void decode_with_rollback(struct kv_cache *kv, uint64_t seed, struct output *out)
{
	decode(kv, seed, 8, out);
	OK(kv->ops->truncate(kv, kv->n_tokens - 5, &err));
	out->n -= 5;
	decode(kv, seed, N_SAMPLED - 3, out);
}

static void test_forks(void **state)
{
	struct output *a = output_new(), *b = output_new(), *plain = output_new();
	struct kv_cache *kv;
	struct kvc_seq *fork;
	struct world w;

	(void)state;
	world_open(&w);
	prefill(w.shared);
	prefill(w.private);
	bare_spare_places(bare, w.writer, MAX_TOKENS, 1);
	fork = kvc_fork_local(w.seq, 0);
	assert_non_null(fork);
	kv = kv_shared_new(w.writer, fork, model, MAX_TOKENS, &err);
	assert_non_null(kv);
	assert_int_equal(kv->n_tokens, N_PROMPT - 1);

	decode(w.shared, 1, N_SAMPLED, a);
	decode_with_rollback(kv, 2, b);
	/* Or this is no test of a split cache. */
	assert_true(kvc_view_runs(fork, 0, NULL, 0) > 1);
	decode(w.private, 2, N_SAMPLED, plain);
	assert_same_cache(kv, w.private);
	assert_same_output(b, plain);

	plain = output_new();
	OK(w.private->ops->truncate(w.private, N_PROMPT - 1, &err));
	decode(w.private, 1, N_SAMPLED, plain);
	assert_same_cache(w.shared, w.private);
	assert_same_output(a, plain);
	kv_free(kv);
	seq_end(fork, SEQ_END_LOCAL);
	world_close(&w);
}

static uint64_t updates_of(const struct kvc_writer *w)
{
	return kv_word_update(kv_word_load(w->shm));
}

/* Several sequences go back by their own numbers in one update, or none does. */
static void test_many(void **state)
{
	size_t wrong[2] = {90, N_PROMPT}, right[2] = {90, 71};
	struct kv_cache *kvs[2];
	struct kvc_seq *fork;
	uint64_t before;
	struct world w;

	(void)state;
	world_open(&w);
	prefill(w.shared);
	bare_spare_places(bare, w.writer, MAX_TOKENS, 1);
	fork = kvc_fork_local(w.seq, 0);
	assert_non_null(fork);
	kvs[0] = w.shared;
	kvs[1] = kv_shared_new(w.writer, fork, model, MAX_TOKENS, &err);
	assert_non_null(kvs[1]);
	/* The second one's step is still open. */
	OK(kvs[1]->ops->begin(kvs[1], 1, &err));

	before = updates_of(w.writer);
	assert_int_equal(kvs[0]->ops->truncate_many(kvs, wrong, 2, &err), -1);
	assert_int_equal(err.status, KV_ERANGE);
	assert_int_equal(updates_of(w.writer), before);
	assert_int_equal(kvs[0]->n_tokens, N_PROMPT - 1);
	assert_int_equal(kvc_length(w.seq), N_PROMPT - 1);
	OK(kvs[0]->ops->truncate_many(kvs, right, 2, &err));
	assert_int_equal(updates_of(w.writer), before + 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kvs[i]->n_tokens, right[i]);
		OK(llama_forward(model, w.private, prompt.ids, right[i], NULL, 0, &err));
		assert_same_cache(kvs[i], w.private);
		OK(w.private->ops->truncate(w.private, 0, &err));
	}
	kv_free(kvs[1]);
	seq_end(fork, SEQ_END_LOCAL);
	world_close(&w);
}

static void test_moved(void **state)
{
	struct world w;
	float *rows;

	(void)state;
	world_open(&w);
	prefill(w.shared);
	rows = calloc(w.shared->row_floats, sizeof(*rows));
	assert_non_null(rows);
	OK(w.shared->ops->begin(w.shared, 1, &err));
	for (size_t i = 0; i < w.shared->n_layers; i++)
		OK(w.shared->ops->write(w.shared, i, rows, rows, &err));
	assert_int_equal(bare_operator_rollback(bare, w.seq->place, 40), 0);
	assert_int_equal(w.shared->ops->commit(w.shared, &err), -1);
	assert_int_equal(err.status, KV_EMOVED);
	assert_int_equal(w.shared->n_tokens, 40);
	/* Going on from there is what a private run of these tokens gives. */
	OK(llama_forward(model, w.shared, prompt.ids + 40, 30, NULL, 0, &err));
	OK(llama_forward(model, w.private, prompt.ids, 70, NULL, 0, &err));
	assert_same_cache(w.shared, w.private);
	free(rows);
	world_close(&w);
}

static void test_left_open(void **state)
{
	struct world w;

	(void)state;
	world_open(&w);
	prefill(w.shared);
	prefill(w.private);
	OK(w.shared->ops->begin(w.shared, 9, &err));
	/* The step goes no further: the next one starts anew. */
	OK(llama_forward(model, w.shared, prompt.ids + N_PROMPT - 1, 5, NULL, 0, &err));
	OK(llama_forward(model, w.private, prompt.ids + N_PROMPT - 1, 5, NULL, 0, &err));
	OK(w.shared->ops->begin(w.shared, 9, &err));
	OK(w.shared->ops->truncate(w.shared, 80, &err));
	OK(w.private->ops->truncate(w.private, 80, &err));
	assert_same_cache(w.shared, w.private);
	world_close(&w);
}

static void test_room(void **state)
{
	struct world w;

	(void)state;
	world_open(&w);
	assert_int_equal(w.shared->ops->begin(w.shared, MAX_TOKENS + 1, &err), -1);
	assert_int_equal(err.status, KV_ERESERVE);
	assert_int_equal(w.shared->ops->truncate(w.shared, 1, &err), -1);
	assert_int_equal(err.status, KV_ERANGE);
	assert_int_equal(w.shared->n_tokens, 0);
	world_close(&w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a sequence gives the bits of private buffers", test_decode),
	KT_TEST("forks of one prompt, one with a rollback, give the bits of private runs",
		test_forks),
	KT_TEST("several sequences go back by their own numbers in one update, or none does",
		test_many),
	KT_TEST("an operator's rollback during a step is told, and the step is gone", test_moved),
	KT_TEST("a step that was left open does not hinder the next one", test_left_open),
	KT_TEST("a step beyond the cache's room is refused and changes nothing", test_room),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), load, unload};

	return kt_run(argc, argv, &group, 1);
}
