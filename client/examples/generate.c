/*
 * kvc-generate: writes on from a prompt with a small Llama-shaped model, its KV cache in private
 * buffers or in a sequence of kvcached, in any storage format, with or without a replay journal; or
 * scores a text.
 *
 * Standard output has what is the same in each run with the same arguments (the text, the digest of
 * the logits); times go to standard error. With --json everything is one object on standard output.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "client/examples/decode.h"
#include "client/examples/generate_job.h"

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int load(struct job *j, struct errbuf *err)
{
	const char *text = j->o.prompt ? j->o.prompt : j->o.score;
	double start_s = now_s();

	if (llama_open(&j->model, j->o.model, err) < 0)
		return -1;
	if (j->o.draft && llama_open(&j->small, j->o.draft, err) < 0)
		return -1;
	if (j->o.tokenizer && tokenizer_open(&j->tok, j->o.tokenizer, err) < 0)
		return -1;
	j->load_s = now_s() - start_s;
	if (j->o.ids)
		return prompt_from_ids(&j->prompt, j->o.ids, err);
	return prompt_from_text(&j->prompt, j->tok, text, err);
}

/* ---- what is written on ---- */

static int each_token(void *arg, size_t number, uint32_t id, const float *logits,
		      struct errbuf *err)
{
	struct job *j = arg;
	struct generated *row = &j->rows[number];
	size_t vocab = llama_geometry(j->model)->vocab;

	if (number == 0 && row->n == 0)
		j->first_s = now_s() - j->started_s;
	row->ids[row->n++] = id;
	XXH3_128bits_update(row->hash, logits, vocab * sizeof(*logits));
	if (j->logits && fwrite(logits, sizeof(*logits), vocab, j->logits) != vocab)
		return errbuf_errno(err, KV_EINVAL, errno, "%s: write", j->o.logits);
	return 0;
}

static int each_of_one(void *arg, uint32_t id, const float *logits, struct errbuf *err)
{
	return each_token(arg, 0, id, logits, err);
}

static int open_output(struct job *j, struct errbuf *err)
{
	for (size_t i = 0; i < j->o.n_rows; i++) {
		struct generated *row = &j->rows[i];

		row->seed = j->o.seed + i;
		row->hash = XXH3_createState();
		row->ids = calloc(j->o.n_tokens, sizeof(*row->ids));
		if (!row->hash || !row->ids)
			return errbuf_set(err, KV_ENOMEM, "no memory for %" PRIu64 " tokens",
					  j->o.n_tokens);
		XXH3_128bits_reset(row->hash);
	}
	if (!j->o.logits)
		return 0;
	j->logits = fopen(j->o.logits, "we");
	if (!j->logits)
		return errbuf_errno(err, KV_EINVAL, errno, "%s: cannot create", j->o.logits);
	return 0;
}

static int close_logits(struct job *j, struct errbuf *err)
{
	FILE *file = j->logits;

	j->logits = NULL;
	if (file && fclose(file) != 0)
		return errbuf_errno(err, KV_EINVAL, errno, "%s: write", j->o.logits);
	return 0;
}

/* ---- rows: the prompt in caches ---- */

static struct kv_cache *new_cache(struct job *j, const struct llama *m, struct errbuf *err)
{
	size_t n = j->prompt.n - 1 + j->o.n_tokens, context = llama_geometry(m)->context;

	return caches_new(&j->caches, m, n < context ? n : context, err);
}

/* The caches of the first row, still empty. */
static int first_row(struct job *j, struct errbuf *err)
{
	struct draft_row *row = &j->drafts[0];

	row->main = new_cache(j, j->model, err);
	if (row->main && j->small)
		row->small = new_cache(j, j->small, err);
	return row->main && (row->small || !j->small) ? 0 : -1;
}

static int fork_row(struct job *j, struct draft_row *row, struct errbuf *err)
{
	const struct draft_row *first = &j->drafts[0];

	row->main = caches_fork(&j->caches, first->main, j->model, err);
	if (row->main)
		row->small = caches_fork(&j->caches, first->small, j->small, err);
	return row->main && row->small ? 0 : -1;
}

/* The models run the prompt but its last token; the rate is that of the main model alone. */
static int prefill(struct job *j, const struct draft_row *row, struct errbuf *err)
{
	size_t n = j->prompt.n - 1;
	double start_s = now_s();

	if (llama_forward(j->model, row->main, j->prompt.ids, n, NULL, 0, err) < 0)
		return -1;
	j->n_prefilled += n;
	j->prefill_s += now_s() - start_s;
	return j->small ? llama_forward(j->small, row->small, j->prompt.ids, n, NULL, 0, err) : 0;
}

/* Rows of kvcached are forks of the first, made before it begins its journal; private buffers are
 * filled row by row. */
static int fill_rows(struct job *j, struct errbuf *err)
{
	for (size_t i = 0; i < j->o.n_rows; i++) {
		struct draft_row *row = &j->drafts[i];

		row->last = j->prompt.ids[j->prompt.n - 1];
		row->seed = j->rows[i].seed;
		row->n_left = j->o.n_tokens;
		if (i > 0 && fork_row(j, row, err) < 0)
			return -1;
		if ((i == 0 || j->o.is_private) && prefill(j, row, err) < 0)
			return -1;
	}
	for (size_t i = 0; j->o.replay && i < j->caches.n; i++) {
		struct kv_cache *kv = j->caches.all[i].kv;

		if (kv->ops->replay(kv, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- decoding ---- */

static int decode_plain(struct job *j, struct errbuf *err)
{
	const struct draft_row *row = &j->drafts[0];
	struct decode d = {.model = j->model,
			   .kv = row->main,
			   .temperature = j->o.temperature,
			   .seed = row->seed,
			   .each = each_of_one,
			   .arg = j};

	return decode_run(&d, row->last, j->o.n_tokens, j->rows[0].ids, err);
}

static int decode_drafted(struct job *j, struct errbuf *err)
{
	struct draft d = {.main = j->model,
			  .small = j->small,
			  .n_tokens = j->o.draft_tokens,
			  .temperature = j->o.temperature,
			  .rows = j->drafts,
			  .n_rows = j->o.n_rows,
			  .each = each_token,
			  .arg = j};
	int rc = draft_init(&d, err);

	if (rc == 0)
		rc = draft_run(&d, err);
	draft_fini(&d);
	return rc;
}

/* All that can be said before caches are opened and the prompt is computed. */
static int check_models(const struct job *j, struct errbuf *err)
{
	size_t n = j->prompt.n, context = llama_geometry(j->model)->context;

	if (n == 0)
		return errbuf_set(err, KV_EINVAL, "the prompt is empty");
	if (n > context || j->o.n_tokens > context - n + 1)
		return errbuf_set(err, KV_ERANGE,
				  "a prompt of %zu tokens and %" PRIu64
				  " more are beyond the model's context of %zu",
				  n, j->o.n_tokens, context);
	context = j->small ? llama_geometry(j->small)->context : context;
	if (n - 1 > context)
		return errbuf_set(err, KV_ERANGE,
				  "a prompt of %zu tokens is beyond the draft model's context of "
				  "%zu",
				  n, context);
	return j->small ? draft_check_models(j->model, j->small, err) : 0;
}

/* The prompt but its last token is prefilled; decoding starts with that one. */
static int generate(struct job *j, struct errbuf *err)
{
	if (check_models(j, err) < 0 || caches_open(&j->caches, &j->o, err) < 0 ||
	    first_row(j, err) < 0 || open_output(j, err) < 0)
		return -1;
	j->started_s = now_s();
	if (fill_rows(j, err) < 0)
		return -1;
	if ((j->small ? decode_drafted(j, err) : decode_plain(j, err)) < 0)
		return -1;
	j->decode_s = now_s() - j->started_s - j->first_s;
	return close_logits(j, err);
}

static int score(struct job *j, struct errbuf *err)
{
	size_t n = j->prompt.n, context = llama_geometry(j->model)->context;
	struct kv_cache *kv;

	if (caches_open(&j->caches, &j->o, err) < 0)
		return -1;
	kv = caches_new(&j->caches, j->model, n < context ? n : context, err);
	if (!kv)
		return -1;
	j->started_s = now_s();
	if (score_ids(j->model, kv, j->tok, j->prompt.ids, n, j->o.replay, &j->score, err) < 0)
		return -1;
	j->prefill_s = now_s() - j->started_s;
	return 0;
}

static void fini(struct job *j)
{
	caches_fini(&j->caches);
	if (j->logits)
		fclose(j->logits);
	for (size_t i = 0; i < DRAFT_ROWS_MAX; i++) {
		XXH3_freeState(j->rows[i].hash);
		free(j->rows[i].ids);
	}
	prompt_fini(&j->prompt);
	tokenizer_close(j->tok);
	llama_close(j->small);
	llama_close(j->model);
}

int main(int argc, char **argv)
{
	struct errbuf err = {0};
	static struct job j;
	int rc = 1;

	if (generate_options_parse(&j.o, argc, argv, &err) < 0) {
		rc = 2;
		goto out;
	}
	if (j.o.help || j.o.version) {
		fputs(j.o.help ? generate_help : PACKAGE_STRING "\n", stdout);
		return 0;
	}
	if (load(&j, &err) < 0 || (j.o.score ? score(&j, &err) : generate(&j, &err)) < 0 ||
	    generate_report(&j, &err) < 0)
		goto out;
	rc = 0;
out:
	if (rc)
		fprintf(stderr, "kvc-generate: %s\n", err.text);
	fini(&j);
	return rc;
}
