/*
 * The example decoder on kvcached, in every storage format, plain and with replay journals: what
 * a rollback, a fork or a batch must not change, it does not change by a bit.
 *
 * Three checks are those that the makers of earlier caches set themselves: the loss of a text is
 * the same directly and after something else was generated and rolled back; several generations
 * from one prompt are the same; replay gives what the plain path gives (on raw storage: on a
 * quantised base the tokens of a journal are in full precision, by design). They allowed 1e-3.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decode.h"
#include "client/examples/draft.h"
#include "client/examples/kv_private.h"
#include "client/examples/kv_shared.h"
#include "client/examples/llama_model.h"
#include "client/examples/prompt.h"
#include "client/examples/sample.h"
#include "client/examples/score.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/runner.h"

#define VOCAB 1024
#define MAX_TOKENS 600
#define N_PROMPT 150 /* ends inside a block and inside a chunk */
#define N_TARGETS 70
#define N_OTHER 8
#define N_SAMPLED 40

static const struct mode {
	struct kv_formats formats;
	bool replay;
} modes[] = {
	{{KV_FORMAT_RAW, KV_FORMAT_RAW}, false},
	{{KV_FORMAT_RAW, KV_FORMAT_RAW}, true},
	{{KV_FORMAT_INT8, KV_FORMAT_INT8}, false},
	{{KV_FORMAT_INT8, KV_FORMAT_INT8}, true},
	{{KV_FORMAT_INT8_MODEL, KV_FORMAT_INT8_MODEL}, false},
	{{KV_FORMAT_INT8_MODEL, KV_FORMAT_INT8_MODEL}, true},
	{{KV_FORMAT_U8, KV_FORMAT_U8}, false},
	{{KV_FORMAT_U8, KV_FORMAT_U8}, true},
	{{KV_FORMAT_U4, KV_FORMAT_U4}, false},
	{{KV_FORMAT_U4, KV_FORMAT_U4}, true},
	{{KV_FORMAT_Q4, KV_FORMAT_Q4}, false},
	{{KV_FORMAT_Q4, KV_FORMAT_Q4}, true},
	{{KV_FORMAT_FP8, KV_FORMAT_FP8}, false},
	{{KV_FORMAT_FP8, KV_FORMAT_FP8}, true},
	{{KV_FORMAT_INT8, KV_FORMAT_U4}, false},
	{{KV_FORMAT_INT8, KV_FORMAT_U4}, true},
};
#define N_MODES (sizeof(modes) / sizeof(modes[0]))

static struct kt_daemon *daemon_;
static struct errbuf err;
static struct llama *model, *small;
static struct prompt prompt;

static const char *mode_text(const struct mode *mode)
{
	static char text[KV_FORMATS_TEXT_BYTES + 16];

	kv_formats_text(mode->formats, text);
	return mode->replay ? strcat(text, ", replay") : text;
}

#define OK(call) \
	do { \
		if ((call) != 0) \
			fail_msg("%s: %s", #call, err.text); \
	} while (0)

/* memcmp with the mode's name. */
#define SAME(mode, a, b, n_bytes) \
	do { \
		if (memcmp(a, b, n_bytes) != 0) \
			fail_msg("%s: %s is not %s", mode_text(mode), #a, #b); \
	} while (0)

static int load(const char *folder, const char *file, struct llama **out)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	return llama_open(out, path, &err);
}

static int start(void **state)
{
	const char *top = getenv("top_srcdir");
	char folder[2048], path[4096];
	struct tokenizer *tok;
	int rc;

	(void)state;
	snprintf(folder, sizeof(folder), "%s/client/examples/model", top ? top : ".");
	snprintf(path, sizeof(path), "%s/tokenizer.txt", folder);
	if (load(folder, "kjv-3m.safetensors", &model) ||
	    load(folder, "kjv-draft.safetensors", &small) || tokenizer_open(&tok, path, &err))
		return -1;
	snprintf(path, sizeof(path), "%s/prompt.txt", folder);
	rc = prompt_from_text(&prompt, tok, path, &err);
	tokenizer_close(tok);
	daemon_ = kt_daemon_start(NULL);
	return rc == 0 && daemon_ ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	prompt_fini(&prompt);
	llama_close(model);
	llama_close(small);
	return kt_daemon_stop(daemon_);
}

/* ---- caches --------------------------------------------------------------------------------- */

struct client {
	kvc_session *session;
	kvc_writer *writer;
};

static struct client client_open(void)
{
	struct kvc_session_options options = {.size = sizeof(options),
					      .runtime_dir = kt_daemon_dir(daemon_)};
	struct client c = {.session = kvc_open(&options)};

	assert_non_null(c.session);
	c.writer = kvc_writer_new(c.session);
	assert_non_null(c.writer);
	return c;
}

struct cache {
	kvc_seq *seq;
	struct kv_cache *kv;
};

static struct cache cache_of(const struct client *c, kvc_seq *seq, const struct llama *m)
{
	struct cache cache = {seq, NULL};

	assert_non_null(seq);
	cache.kv = kv_shared_new(c->writer, seq, m, MAX_TOKENS, &err);
	assert_non_null(cache.kv);
	return cache;
}

static struct cache cache_new(const struct client *c, const struct mode *mode,
			      const struct llama *m)
{
	struct kvc_seq_options options = {.size = sizeof(options), .max_tokens = MAX_TOKENS};
	kvc_layout *layout = kv_shared_layout(c->session, m, mode->formats, &err);

	assert_non_null(layout);
	return cache_of(c, kvc_seq_new(c->writer, layout, &options), m);
}

static void cache_free(struct cache *cache)
{
	kv_free(cache->kv);
	kvc_seq_free(cache->seq);
}

/* The prompt but its last token is the base. */
static void prefill(const struct mode *mode, struct kv_cache *kv)
{
	OK(llama_forward(model, kv, prompt.ids, N_PROMPT - 1, NULL, 0, &err));
	if (mode->replay)
		OK(kv->ops->replay(kv, &err));
}

/* ---- what a decoder gives ------------------------------------------------------------------- */

struct output {
	uint32_t ids[N_SAMPLED];
	float logits[N_SAMPLED][VOCAB];
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

/* n tokens more, behind those that are in out. */
static void sample(struct kv_cache *kv, uint64_t seed, size_t n, struct output *out)
{
	struct decode d = {model, kv, 0.8, seed, keep, out};
	uint32_t last = out->n ? out->ids[out->n - 1] : prompt.ids[N_PROMPT - 1];
	uint32_t ids[N_SAMPLED];

	OK(decode_run(&d, last, n, ids, &err));
}

static struct output *output_new(void)
{
	struct output *out = calloc(1, sizeof(*out));

	assert_non_null(out);
	return out;
}

/* ---- 1: the loss ---------------------------------------------------------------------------- */

struct loss {
	double nats;
	float logits[N_TARGETS][VOCAB];
	uint8_t digest[16];
};

/* Twice: as a loss, and as rows of logits. */
static void score_targets(const struct cache *cache, struct loss *out)
{
	struct score score = {0};

	OK(score_append(model, cache->kv, NULL, prompt.ids + N_PROMPT - 1, N_TARGETS, &score,
			&err));
	assert_int_equal(score.n_tokens, N_TARGETS);
	out->nats = score.nats;
	kt_ok(kvc_digest(cache->seq, out->digest));
	OK(cache->kv->ops->truncate(cache->kv, N_PROMPT - 1, &err));
	OK(llama_forward(model, cache->kv, prompt.ids + N_PROMPT - 1, N_TARGETS, out->logits[0],
			 N_TARGETS, &err));
}

static void test_loss(void **state)
{
	struct loss *direct = calloc(1, sizeof(*direct)), *after = calloc(1, sizeof(*after));
	struct client c = client_open();

	(void)state;
	assert_true(direct && after);
	for (size_t i = 0; i < N_MODES; i++) {
		const struct mode *mode = &modes[i];
		struct cache a = cache_new(&c, mode, model), b = cache_new(&c, mode, model);
		struct output *other = output_new();

		prefill(mode, a.kv);
		score_targets(&a, direct);
		prefill(mode, b.kv);
		sample(b.kv, 7, N_OTHER, other);
		OK(b.kv->ops->truncate(b.kv, N_PROMPT - 1, &err));
		score_targets(&b, after);
		SAME(mode, &direct->nats, &after->nats, sizeof(direct->nats));
		SAME(mode, direct->logits, after->logits, sizeof(direct->logits));
		SAME(mode, direct->digest, after->digest, sizeof(direct->digest));
		free(other);
		cache_free(&a);
		cache_free(&b);
	}
	free(direct);
	free(after);
	kvc_close(c.session);
}

/* ---- 2: several generations from one prompt ------------------------------------------------- */

static void publish(const struct client *c, const struct mode *mode, struct cache *prefilled)
{
	const struct kvc_snapshot_options named = {
		.size = sizeof(named), .name = "formats/prompt", .replace = 1};

	*prefilled = cache_new(c, mode, model);
	OK(llama_forward(model, prefilled->kv, prompt.ids, N_PROMPT - 1, NULL, 0, &err));
	kt_ok(kvc_snapshot(prefilled->seq, &named, NULL));
}

static void digest_of_snapshot(const struct client *c, uint8_t digest[16])
{
	kvc_seq *seq = kvc_open_snapshot(c->writer, "formats/prompt");

	assert_non_null(seq);
	kt_ok(kvc_digest(seq, digest));
	kvc_seq_free(seq);
}

/* Two forks by name, one of a fork, and the sequence itself; they take turns. */
static void test_forks(void **state)
{
	struct client c = client_open();
	struct output *outs[4];

	(void)state;
	for (size_t i = 0; i < N_MODES; i++) {
		const struct mode *mode = &modes[i];
		uint8_t before[16], now[16];
		struct cache caches[4];

		publish(&c, mode, &caches[3]);
		digest_of_snapshot(&c, before);
		for (int f = 0; f < 2; f++)
			caches[f] = cache_of(&c, kvc_fork(c.writer, "formats/prompt", NULL), model);
		kt_ok(kvc_reserve_forks(caches[0].seq, 1));
		kt_ok(kvc_reserve(caches[0].seq, 1));
		caches[2] = cache_of(&c, kvc_fork_local(caches[0].seq, 0), model);
		for (int f = 0; f < 4; f++) {
			outs[f] = output_new();
			if (mode->replay)
				OK(caches[f].kv->ops->replay(caches[f].kv, &err));
			sample(caches[f].kv, 3, (size_t)f * 9 + 1, outs[f]);
		}
		for (int f = 0; f < 4; f++)
			sample(caches[f].kv, 3, N_SAMPLED - outs[f]->n, outs[f]);
		for (int f = 1; f < 4; f++) {
			SAME(mode, outs[f]->logits, outs[0]->logits, sizeof(outs[0]->logits));
			SAME(mode, outs[f]->ids, outs[0]->ids, sizeof(outs[0]->ids));
		}
		digest_of_snapshot(&c, now);
		SAME(mode, before, now, sizeof(now));
		for (int f = 3; f >= 0; f--) {
			free(outs[f]);
			cache_free(&caches[f]);
		}
	}
	kt_ok(kvc_remove(c.session, "formats/prompt"));
	kvc_close(c.session);
}

/* ---- 3: replay against the plain path ------------------------------------------------------- */

/* Drafts eight tokens, takes five back, goes on. */
static void sample_with_rollback(struct kv_cache *kv, struct output *out)
{
	sample(kv, 5, 8, out);
	OK(kv->ops->truncate(kv, kv->n_tokens - 5, &err));
	out->n -= 5;
	sample(kv, 5, N_SAMPLED - 3, out);
}

static void test_replay_is_plain_on_raw(void **state)
{
	struct output *plain = output_new(), *replay = output_new(), *private = output_new();
	struct kv_cache *kv = kv_private_new(model, KV_FORMATS_RAW, MAX_TOKENS, &err);
	struct client c = client_open();
	struct cache a = cache_new(&c, &modes[0], model), b = cache_new(&c, &modes[1], model);

	(void)state;
	assert_non_null(kv);
	prefill(&modes[0], a.kv);
	sample(a.kv, 5, N_SAMPLED, plain);
	prefill(&modes[1], b.kv);
	sample_with_rollback(b.kv, replay);
	prefill(&modes[0], kv);
	sample(kv, 5, N_SAMPLED, private);
	SAME(&modes[1], replay->logits, plain->logits, sizeof(plain->logits));
	SAME(&modes[1], private->logits, plain->logits, sizeof(plain->logits));
	kv_free(kv);
	cache_free(&a);
	cache_free(&b);
	kvc_close(c.session);
	free(plain);
	free(replay);
	free(private);
}

/* ... and in any format what is dropped and taken up again is what it was. */
static void test_replay_forward(void **state)
{
	struct client c = client_open();

	(void)state;
	for (size_t i = 0; i < N_MODES; i++) {
		const struct mode *mode = &modes[i];
		struct output *out = output_new(), *again = output_new();
		struct cache a = cache_new(&c, mode, model);
		uint8_t before[16], after[16];

		if (mode->replay) {
			prefill(mode, a.kv);
			sample(a.kv, 5, 30, out);
			kt_ok(kvc_digest(a.seq, before));
			OK(a.kv->ops->truncate(a.kv, a.kv->n_tokens - 12, &err));
			assert_int_equal(kvc_replay(a.seq, 0), 12);
			kt_ok(kvc_digest(a.seq, after));
			SAME(mode, before, after, sizeof(after));
			memcpy(again, out, sizeof(*out));
			sample(a.kv, 5, 10, out);
			OK(a.kv->ops->truncate(a.kv, N_PROMPT - 1 + 30, &err));
			sample(a.kv, 5, 10, again);
			SAME(mode, out->logits, again->logits, sizeof(out->logits));
		}
		free(out);
		free(again);
		cache_free(&a);
	}
	kvc_close(c.session);
}

/* ---- batches: speculation with other lengths and counts in each row ------------------------- */

#define N_ROWS 3
#define N_DRAFT 4

struct row {
	size_t n_prompt;
	struct cache target, draft;
	uint32_t out[N_SAMPLED];
	size_t n_out;
};

static uint32_t greedy(struct llama *m, struct kv_cache *kv, uint32_t id)
{
	float logits[VOCAB];

	OK(llama_forward(m, kv, &id, 1, logits, 1, &err));
	return sample_greedy(logits, VOCAB);
}

static struct draft_row row_open(const struct client *c, const struct mode *mode, struct row *row)
{
	row->target = cache_new(c, mode, model);
	row->draft = cache_new(c, mode, small);
	OK(llama_forward(model, row->target.kv, prompt.ids, row->n_prompt - 1, NULL, 0, &err));
	OK(llama_forward(small, row->draft.kv, prompt.ids, row->n_prompt - 1, NULL, 0, &err));
	if (mode->replay) {
		OK(row->target.kv->ops->replay(row->target.kv, &err));
		OK(row->draft.kv->ops->replay(row->draft.kv, &err));
	}
	return (struct draft_row){.main = row->target.kv,
				  .small = row->draft.kv,
				  .last = prompt.ids[row->n_prompt - 1],
				  .n_left = N_SAMPLED};
}

static int keep_id(void *arg, size_t number, uint32_t id, const float *logits, struct errbuf *e)
{
	struct row *row = (struct row *)arg + number;

	(void)logits;
	(void)e;
	row->out[row->n_out++] = id;
	return 0;
}

/* Both caches of all rows, after each step; returns in how many rows the number of drafts that
 * were kept is not that of the first. */
static unsigned int check_step(const struct draft *d, const struct row *rows, uint64_t *accepted)
{
	uint64_t first = d->rows[0].n_accepted - accepted[0];
	unsigned int n_different = 0;

	for (size_t i = 0; i < d->n_rows; i++) {
		size_t n = rows[i].n_prompt - 1 + rows[i].n_out;

		assert_int_equal(kvc_length(rows[i].target.seq), n);
		assert_int_equal(kvc_length(rows[i].draft.seq), n);
		assert_int_equal(rows[i].target.kv->n_tokens, n);
		assert_int_equal(rows[i].draft.kv->n_tokens, n);
		n_different += d->rows[i].n_accepted - accepted[i] != first;
		accepted[i] = d->rows[i].n_accepted;
	}
	return n_different;
}

/* Token by token, with nothing rolled back. */
static void check_row(const struct client *c, const struct mode *mode, struct row *row)
{
	struct cache plain = cache_new(c, mode, model);
	uint8_t a[16], b[16];
	uint32_t last = prompt.ids[row->n_prompt - 1];

	assert_int_equal(row->n_out, N_SAMPLED);
	OK(llama_forward(model, plain.kv, prompt.ids, row->n_prompt - 1, NULL, 0, &err));
	if (mode->replay)
		OK(plain.kv->ops->replay(plain.kv, &err));
	for (size_t i = 0; i < row->n_out; i++) {
		last = greedy(model, plain.kv, last);
		assert_int_equal(last, row->out[i]);
	}
	kt_ok(kvc_digest(plain.seq, a));
	kt_ok(kvc_digest(row->target.seq, b));
	SAME(mode, a, b, sizeof(a));
	cache_free(&plain);
}

/* On a quantised base without replay a draft is seen in full precision by those that are verified
 * with it, so only these modes give the bits of one token at a time. */
static void test_speculation(void **state)
{
	static const struct mode exact[] = {
		{{KV_FORMAT_RAW, KV_FORMAT_RAW}, false},
		{{KV_FORMAT_RAW, KV_FORMAT_RAW}, true},
		{{KV_FORMAT_INT8, KV_FORMAT_INT8}, true},
		{{KV_FORMAT_INT8, KV_FORMAT_U4}, true},
	};
	struct client c = client_open();

	(void)state;
	for (size_t m = 0; m < sizeof(exact) / sizeof(exact[0]); m++) {
		struct row rows[N_ROWS] = {{.n_prompt = 263}, {.n_prompt = 37}, {.n_prompt = 120}};
		struct draft_row drafts[N_ROWS];
		struct draft d = {.main = model,
				  .small = small,
				  .n_tokens = N_DRAFT,
				  .rows = drafts,
				  .n_rows = N_ROWS,
				  .each = keep_id,
				  .arg = rows};
		uint64_t accepted[N_ROWS] = {0};
		unsigned int n_different = 0;
		int rc;

		for (int i = 0; i < N_ROWS; i++)
			drafts[i] = row_open(&c, &exact[m], &rows[i]);
		OK(draft_init(&d, &err));
		while ((rc = draft_step(&d, &err)) == 1)
			n_different += check_step(&d, rows, accepted);
		OK(rc);
		draft_fini(&d);
		assert_true(n_different > 0); /* or this is no test of different counts */
		for (int i = 0; i < N_ROWS; i++) {
			check_row(&c, &exact[m], &rows[i]);
			cache_free(&rows[i].target);
			cache_free(&rows[i].draft);
		}
	}
	kvc_close(c.session);
}

/* ---- heads that a format cannot hold -------------------------------------------------------- */

static void test_widths(void **state)
{
	static const struct {
		struct kv_formats formats;
		size_t head_dim;
		const char *text;
	} list[] = {
		{{KV_FORMAT_Q4, KV_FORMAT_Q4}, 48, "q4"},
		{{KV_FORMAT_RAW, KV_FORMAT_Q4}, 48, "q4"},
		{{KV_FORMAT_U4, KV_FORMAT_INT8}, 8, "u4"},
	};
	struct llama other = {.fingerprint = {1},
			      .g = {.n_layers = 2, .n_heads = 2, .n_kv_heads = 2, .rope_theta = 1}};
	struct client c = client_open();

	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		other.g.head_dim = list[i].head_dim;
		assert_null(kv_shared_layout(c.session, &other, list[i].formats, &err));
		assert_int_equal(err.status, KV_EINVAL);
		assert_non_null(strstr(err.text, list[i].text));
		assert_null(kv_private_new(&other, list[i].formats, 10, &err));
		assert_int_equal(err.status, KV_EINVAL);
		assert_non_null(strstr(err.text, list[i].text));
	}
	other.g.head_dim = 96;
	assert_non_null(kv_shared_layout(c.session, &other, modes[10].formats, &err));
	kvc_close(c.session);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a text has the same loss after something else was generated and rolled back",
		test_loss),
	KT_TEST("four generations from one prompt have the same logits, and leave it as it was",
		test_forks),
	KT_TEST("on raw storage replay gives the logits of the plain path",
		test_replay_is_plain_on_raw),
	KT_TEST("steps that are rolled back and replayed are there again, in any format",
		test_replay_forward),
	KT_TEST("rows of a batch take back different numbers of drafts, and give greedy text",
		test_speculation),
	KT_TEST("a head that a format cannot hold is refused by name", test_widths),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), start, stop};

	return kt_run(argc, argv, &group, 1);
}
