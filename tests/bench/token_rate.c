/*
 * token_rate_512, token_rate_2k: how fast the example model decodes behind so many tokens, over an
 * int8 cache against a raw one, both of bf16 vectors, as a model in bf16 has them.
 *
 * The example's own cache gives rows in f32; here they are made bf16 first, the same for both. Each
 * side decodes some tokens and goes back, in turns; sequences of one writer, one thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decode.h"
#include "client/examples/prompt.h"
#include "tests/bench/bench.h"

#define N_TOKENS 32u /* of a turn */
#define PAIRS 41u

static void must(int rc, const struct errbuf *err)
{
	if (rc)
		bench_die("token_rate: %s", err->text);
}

/* ---- a cache of bf16 rows ------------------------------------------------------------------- */

struct cache {
	struct kv_cache base;
	kvc_writer *writer;
	kvc_seq *seq;
	uint16_t *k, *v; /* rows of the step in one layer */
};

static void narrow(uint16_t *to, const float *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &from[i], sizeof(bits));
		to[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
	}
}

static int begin(struct kv_cache *base, size_t n_tokens, struct errbuf *err)
{
	struct cache *c = (struct cache *)base;

	(void)err;
	BENCH_CHECK(kvc_reserve(c->seq, n_tokens) == 0);
	BENCH_CHECK(kvc_append_begin(c->seq, n_tokens) == 0);
	return 0;
}

/* Nothing yet: rows become bf16 once, for the cache and for attention. */
static int write_layer(struct kv_cache *base, size_t layer, const float *k, const float *v,
		       struct errbuf *err)
{
	(void)base;
	(void)layer;
	(void)k;
	(void)v;
	(void)err;
	return 0;
}

static int attend(struct kv_cache *base, size_t layer, const struct kv_queries *q,
		  struct errbuf *err)
{
	struct cache *c = (struct cache *)base;
	const struct kvc_attend_args args = {
		.size = sizeof(args),
		.n_query_heads = (uint32_t)q->n_heads,
		.n_tokens = q->n_tokens,
		.q = q->q,
		.k = c->k,
		.v = c->v,
		.out = q->out,
	};

	(void)err;
	narrow(c->k, q->k, q->n_tokens * base->row_floats);
	narrow(c->v, q->v, q->n_tokens * base->row_floats);
	BENCH_CHECK(kvc_write(c->seq, (uint32_t)layer, c->k, c->v) == 0);
	BENCH_CHECK(kvc_attend(c->seq, (uint32_t)layer, &args) == 0);
	return 0;
}

static int commit(struct kv_cache *base, struct errbuf *err)
{
	struct cache *c = (struct cache *)base;

	(void)err;
	BENCH_CHECK(kvc_commit(c->writer, &c->seq, 1) == 0);
	base->n_tokens = (size_t)kvc_length(c->seq);
	return 0;
}

static const struct kv_ops ops = {
	.begin = begin, .write = write_layer, .attend = attend, .commit = commit};

/* ---- a side --------------------------------------------------------------------------------- */

struct side {
	struct llama *model;
	const struct prompt *prompt;
	struct cache cache;
	kvc_layout *layout;
	size_t n_context;
};

static void make(struct side *s, kvc_session *session, kvc_writer *writer, uint32_t format,
		 size_t n_context)
{
	const struct llama_geometry *g = llama_geometry(s->model);
	struct kvc_layer layers[BENCH_LAYERS];
	const struct kvc_layout_options options = {
		.size = sizeof(options),
		.fingerprint = "kvcbench",
		.n_layers = (uint32_t)g->n_layers,
		.layers = layers,
		.dtype = KVC_BF16,
		.k_format = format,
		.v_format = format,
	};
	size_t n_row = llama_row_floats(s->model), n = n_row * LLAMA_CHUNK_TOKENS;
	struct errbuf err;

	BENCH_CHECK(g->n_layers <= BENCH_LAYERS && g->context >= n_context);
	for (size_t i = 0; i < g->n_layers; i++)
		layers[i] = (struct kvc_layer){.n_query_groups = (uint32_t)g->n_kv_heads,
					       .k_width = (uint32_t)g->head_dim,
					       .v_width = (uint32_t)g->head_dim};
	s->n_context = n_context;
	BENCH_CHECK(s->layout = kvc_layout_register(session, &options));
	s->cache = (struct cache){.base = {&ops, 0, g->context, g->n_layers, n_row},
				  .writer = writer,
				  .k = calloc(n, sizeof(uint16_t)),
				  .v = calloc(n, sizeof(uint16_t))};
	BENCH_CHECK(s->cache.k && s->cache.v);
	BENCH_CHECK(s->cache.seq = kvc_seq_new(writer, s->layout, NULL));
	for (uint32_t i = 0; i < n_context - N_TOKENS; i++)
		must(llama_forward(s->model, &s->cache.base, &s->prompt->ids[i % s->prompt->n], 1,
				   NULL, 0, &err),
		     &err);
}

static void drop(struct side *s)
{
	BENCH_CHECK(kvc_seq_drop(s->cache.seq) == 0);
	kvc_layout_free(s->layout);
	free(s->cache.k);
	free(s->cache.v);
}

/* Tokens a second, of those up to n_context. */
static double decode(void *arg)
{
	struct side *s = arg;
	struct decode d = {.model = s->model, .kv = &s->cache.base};
	size_t keep = s->n_context - N_TOKENS;
	uint32_t ids[N_TOKENS];
	struct errbuf err;
	uint64_t begin_ns = bench_now_ns();
	double ns;

	must(decode_run(&d, s->prompt->ids[0], N_TOKENS, ids, &err), &err);
	ns = bench_since_ns(begin_ns);
	BENCH_CHECK(kvc_length(s->cache.seq) == s->n_context);
	BENCH_CHECK(kvc_rollback_keep(s->cache.seq, keep) == 0);
	s->cache.base.n_tokens = keep;
	return N_TOKENS * 1e9 / ns;
}

/* ---- the rows ------------------------------------------------------------------------------- */

static void measure(const char *name, struct llama *model, const struct prompt *prompt,
		    size_t n_context)
{
	const struct kvc_session_options options = {.size = sizeof(options),
						    .runtime_dir = bench_runtime_dir};
	struct side int8 = {.model = model, .prompt = prompt}, raw = int8;
	kvc_session *session = kvc_open(&options);
	kvc_writer *writer;

	BENCH_CHECK(session && (writer = kvc_writer_new(session)));
	make(&int8, session, writer, KVC_INT8, n_context);
	make(&raw, session, writer, KVC_RAW, n_context);
	bench_compare(bench_result(name), (struct bench_side){decode, &int8},
		      (struct bench_side){decode, &raw}, PAIRS, 1);
	drop(&int8);
	drop(&raw);
	kvc_close(session);
}

void bench_group_token_rate(void)
{
	struct llama *model;
	struct prompt prompt;

	bench_model_load(&model, &prompt);
	measure("token_rate_512", model, &prompt, 512);
	measure("token_rate_2k", model, &prompt, 2048);
	prompt_fini(&prompt);
	llama_close(model);
}
