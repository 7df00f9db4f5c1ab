/*
 * samples: five sampled completions of one prompt, 1,500 and 64 tokens, by the example model over
 * an int8 base with replay journals, one process after the other.
 *
 * The product is six processes: one attaches, computes the prompt, publishes it and closes; five
 * attach, fork it, sample and close. The reference is one process that computes the prompt once and
 * samples five times from it, going back between two: the same cache and the same arithmetic, but
 * for attaching, forking and closing. All have loaded the model before the clock starts: they
 * inherit it from the group, which never opens a session, and wait for their turn.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/examples/decode.h"
#include "client/examples/kv_shared.h"
#include "client/examples/prompt.h"
#include "tests/bench/bench.h"

#define N_SAMPLES 5u
#define N_PROMPT 1500u
#define N_TOKENS 64u
#define MAX_TOKENS (N_PROMPT + N_TOKENS)
#define PAIRS 21
#define NAME "bench/samples"
/* Five samples against one in keys_values (issue #76), for its lengths. */
#define SEED_RATIO 1.77

static const struct kv_formats formats = {KV_FORMAT_INT8, KV_FORMAT_INT8};

struct samples {
	struct llama *model;
	struct prompt prompt;
	/* of the reference: the prompt, and one sample */
	double prompt_ns[PAIRS + 8], sample_ns[PAIRS + 8];
	size_t n_references;
};

/* ---- what all do ---------------------------------------------------------------------------- */

#define CHECK(rc, err) \
	do { \
		if ((rc) != 0) \
			bench_die("samples: %s", (err).text); \
	} while (0)

static void prefill(const struct samples *s, struct kv_cache *kv)
{
	struct errbuf err;

	CHECK(llama_forward(s->model, kv, s->prompt.ids, N_PROMPT - 1, NULL, 0, &err), err);
}

static void sample(const struct samples *s, struct kv_cache *kv, unsigned seed)
{
	struct decode d = {.model = s->model, .kv = kv, .temperature = 0.8, .seed = seed};
	uint32_t ids[N_TOKENS];
	struct errbuf err;

	CHECK(kv->ops->replay(kv, &err), err);
	CHECK(decode_run(&d, s->prompt.ids[N_PROMPT - 1], N_TOKENS, ids, &err), err);
}

struct cache {
	kvc_session *session;
	kvc_writer *writer;
	kvc_seq *seq;
	struct kv_cache *kv;
};

/* A fork of `source`, or an empty one. */
static struct cache open_cache(const struct samples *s, const char *source)
{
	const struct kvc_session_options session = {.size = sizeof(session),
						    .runtime_dir = bench_runtime_dir};
	const struct kvc_seq_options options = {.size = sizeof(options), .max_tokens = MAX_TOKENS};
	struct cache c = {.session = kvc_open(&session)};
	struct errbuf err = {0};
	kvc_layout *layout;

	BENCH_CHECK(c.session);
	BENCH_CHECK(c.writer = kvc_writer_new(c.session));
	layout = kv_shared_layout(c.session, s->model, formats, &err);
	CHECK(layout ? 0 : -1, err);
	c.seq = source ? kvc_fork(c.writer, source, &options) :
			 kvc_seq_new(c.writer, layout, &options);
	BENCH_CHECK(c.seq);
	c.kv = kv_shared_new(c.writer, c.seq, s->model, MAX_TOKENS, &err);
	CHECK(c.kv ? 0 : -1, err);
	return c;
}

static void close_cache(struct cache *c)
{
	kv_free(c->kv);
	kvc_close(c->session); /* frees the sequence */
}

/* ---- product -------------------------------------------------------------------------------- */

struct work {
	const struct samples *samples;
	unsigned seed; /* 0: the prompt */
};

static void work_shared(int fd, void *arg)
{
	const struct work *work = arg;
	const struct kvc_snapshot_options named = {
		.size = sizeof(named), .name = NAME, .replace = 1};
	struct cache c;

	bench_hear(fd);
	c = open_cache(work->samples, work->seed ? NAME : NULL);
	if (work->seed) {
		sample(work->samples, c.kv, work->seed);
	} else {
		prefill(work->samples, c.kv);
		BENCH_CHECK(kvc_snapshot(c.seq, &named, NULL) == 0);
	}
	close_cache(&c);
	bench_tell(fd, 1);
}

static double share(void *arg)
{
	struct bench_helper helpers[1 + N_SAMPLES];
	struct work work = {.samples = arg};
	uint64_t begin;
	double ns;

	for (; work.seed <= N_SAMPLES; work.seed++)
		helpers[work.seed] = bench_helper_start(work_shared, &work);
	begin = bench_now_ns();
	for (unsigned i = 0; i <= N_SAMPLES; i++) {
		bench_tell(helpers[i].fd, 1);
		bench_hear(helpers[i].fd);
	}
	ns = bench_since_ns(begin);
	for (unsigned i = 0; i <= N_SAMPLES; i++)
		bench_helper_stop(&helpers[i]);
	return ns;
}

/* ---- reference ------------------------------------------------------------------------------ */

static void work_alone(int fd, void *arg)
{
	const struct samples *s = arg;
	struct cache c = open_cache(s, NULL);
	uint64_t begin = bench_now_ns();
	struct errbuf err;

	prefill(s, c.kv);
	bench_tell(fd, bench_now_ns() - begin);
	begin = bench_now_ns();
	for (unsigned seed = 1; seed <= N_SAMPLES; seed++) {
		sample(s, c.kv, seed);
		CHECK(c.kv->ops->truncate(c.kv, N_PROMPT - 1, &err), err);
	}
	bench_tell(fd, bench_now_ns() - begin);
	close_cache(&c);
}

/* Prompt once and five decodes. */
static double alone(void *arg)
{
	struct samples *s = arg;
	struct bench_helper helper = bench_helper_start(work_alone, s);
	double prompt_ns = (double)bench_hear(helper.fd);
	double samples_ns = (double)bench_hear(helper.fd);

	bench_helper_stop(&helper);
	s->prompt_ns[s->n_references] = prompt_ns;
	s->sample_ns[s->n_references++] = samples_ns / N_SAMPLES;
	return prompt_ns + samples_ns;
}

/* ---- the row -------------------------------------------------------------------------------- */

void bench_model_load(struct llama **model, struct prompt *prompt)
{
	const char *folder = getenv("KVC_MODEL_DIR");
	char path[4096];
	struct tokenizer *tok;
	struct errbuf err = {0};

	if (!folder)
		folder = "client/examples/model";
	snprintf(path, sizeof(path), "%s/kjv-3m.safetensors", folder);
	CHECK(llama_open(model, path, &err), err);
	snprintf(path, sizeof(path), "%s/tokenizer.txt", folder);
	CHECK(tokenizer_open(&tok, path, &err), err);
	snprintf(path, sizeof(path), "%s/prompt.txt", folder);
	CHECK(prompt_from_text(prompt, tok, path, &err), err);
	tokenizer_close(tok);
}

void bench_group_samples(void)
{
	static struct samples s;
	struct bench_result *result = bench_result("samples");
	double one_ns;

	bench_model_load(&s.model, &s.prompt);
	BENCH_CHECK(s.prompt.n >= N_PROMPT);
	bench_compare(result, (struct bench_side){share, &s}, (struct bench_side){alone, &s}, PAIRS,
		      1e9);
	one_ns = bench_median(s.prompt_ns, s.n_references) +
		 bench_median(s.sample_ns, s.n_references);
	snprintf(result->note, sizeof(result->note),
		 "five samples take %.2f times one; in keys_values, for its lengths, %.2f times",
		 result->value * 1e9 / one_ns, SEED_RATIO);
	prompt_fini(&s.prompt);
	llama_close(s.model);
}
