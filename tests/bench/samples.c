/*
 * samples: five sampled completions of one prompt, 1,500 and 64 tokens, by the example model over
 * an int8 base with replay journals, one process after the other.
 *
 * The product is six processes: one computes the prompt, publishes it and goes; five come, fork it,
 * sample and go. The reference is one process that computes the prompt once and samples five times,
 * with private buffers of the same format and the same arithmetic. All inherit a loaded model from
 * the group, which never opens a session.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/examples/decode.h"
#include "client/examples/kv_quantised.h"
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

/* ---- product -------------------------------------------------------------------------------- */

struct work {
	const struct samples *samples;
	unsigned seed; /* 0: the prompt */
};

static kvc_seq *open_seq(kvc_session *session, kvc_writer *writer, const struct work *work)
{
	const struct kvc_seq_options options = {.size = sizeof(options), .max_tokens = MAX_TOKENS};
	struct errbuf err = {0};
	kvc_layout *layout = kv_shared_layout(session, work->samples->model, formats, &err);

	if (!layout)
		bench_die("samples: %s", err.text);
	return work->seed ? kvc_fork(writer, NAME, &options) :
			    kvc_seq_new(writer, layout, &options);
}

static void work_shared(int fd, void *arg)
{
	const struct work *work = arg;
	const struct kvc_session_options options = {.size = sizeof(options),
						    .runtime_dir = bench_runtime_dir};
	const struct kvc_snapshot_options named = {
		.size = sizeof(named), .name = NAME, .replace = 1};
	kvc_session *session = kvc_open(&options);
	kvc_writer *writer = session ? kvc_writer_new(session) : NULL;
	kvc_seq *seq = writer ? open_seq(session, writer, work) : NULL;
	struct kv_cache *kv;

	BENCH_CHECK(seq);
	BENCH_CHECK(kv = kv_shared_new(writer, seq, work->samples->model, MAX_TOKENS, NULL));
	if (work->seed) {
		sample(work->samples, kv, work->seed);
	} else {
		prefill(work->samples, kv);
		BENCH_CHECK(kvc_snapshot(seq, &named, NULL) == 0);
	}
	kv_free(kv);
	kvc_seq_free(seq);
	kvc_close(session);
	bench_tell(fd, 1);
}

static double share(void *arg)
{
	struct work work = {.samples = arg};
	uint64_t begin = bench_now_ns();

	for (; work.seed <= N_SAMPLES; work.seed++) {
		struct bench_helper helper = bench_helper_start(work_shared, &work);

		bench_hear(helper.fd);
		bench_helper_stop(&helper);
	}
	return bench_since_ns(begin);
}

/* ---- reference ------------------------------------------------------------------------------ */

static void work_alone(int fd, void *arg)
{
	const struct samples *s = arg;
	uint64_t begin = bench_now_ns();
	struct errbuf err = {0};
	struct kv_cache *kv = kv_private_for(s->model, formats, MAX_TOKENS, &err);

	if (!kv)
		bench_die("samples: %s", err.text);
	prefill(s, kv);
	bench_tell(fd, bench_now_ns() - begin);
	begin = bench_now_ns();
	for (unsigned seed = 1; seed <= N_SAMPLES; seed++) {
		sample(s, kv, seed);
		CHECK(kv->ops->truncate(kv, N_PROMPT - 1, &err), err);
	}
	kv_free(kv);
	bench_tell(fd, bench_now_ns() - begin);
}

/* Prompt once and five decodes, without what a process costs. */
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

static void load(struct samples *s)
{
	const char *folder = getenv("KVC_MODEL_DIR");
	char path[4096];
	struct tokenizer *tok;
	struct errbuf err = {0};

	if (!folder)
		folder = "client/examples/model";
	snprintf(path, sizeof(path), "%s/kjv-3m.safetensors", folder);
	CHECK(llama_open(&s->model, path, &err), err);
	snprintf(path, sizeof(path), "%s/tokenizer.txt", folder);
	CHECK(tokenizer_open(&tok, path, &err), err);
	snprintf(path, sizeof(path), "%s/prompt.txt", folder);
	CHECK(prompt_from_text(&s->prompt, tok, path, &err), err);
	tokenizer_close(tok);
	BENCH_CHECK(s->prompt.n >= N_PROMPT);
}

void bench_group_samples(void)
{
	static struct samples s;
	struct bench_result *result = bench_result("samples");
	double one_ns;

	load(&s);
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
