#include "client/examples/draft.h"

#include <stdlib.h>

#include "client/examples/sample.h"

static size_t vocab_of(const struct draft *d)
{
	return llama_geometry(d->main)->vocab;
}

static size_t at_most(size_t n, size_t limit)
{
	return n < limit ? n : limit;
}

static int check_row(const struct draft *d, size_t i, struct errbuf *err)
{
	const struct draft_row *row = &d->rows[i];

	if (row->main->ops != row->small->ops || row->main->ops != d->rows[0].main->ops)
		return errbuf_set(err, KV_EINVAL, "row %zu: its caches are not all of one kind", i);
	if (row->main->n_tokens != row->small->n_tokens)
		return errbuf_set(err, KV_EINVAL,
				  "row %zu: the main model's cache has %zu tokens, the draft "
				  "model's %zu; they begin with the same",
				  i, row->main->n_tokens, row->small->n_tokens);
	return 0;
}

int draft_check_models(const struct llama *main, const struct llama *small, struct errbuf *err)
{
	size_t vocab = llama_geometry(main)->vocab, small_vocab = llama_geometry(small)->vocab;

	if (vocab == small_vocab)
		return 0;
	return errbuf_set(err, KV_EINVAL,
			  "the draft model knows %zu tokens, the main model %zu: it must be one "
			  "with the same tokens",
			  small_vocab, vocab);
}

int draft_init(struct draft *d, struct errbuf *err)
{
	size_t vocab = vocab_of(d);

	d->logits = NULL;
	if (draft_check_models(d->main, d->small, err) < 0)
		return -1;
	if (d->n_tokens < 1 || d->n_tokens > DRAFT_TOKENS_MAX)
		return errbuf_set(err, KV_ERANGE, "%zu drafts a step; it must be 1 to %d",
				  d->n_tokens, DRAFT_TOKENS_MAX);
	if (d->n_rows < 1 || d->n_rows > DRAFT_ROWS_MAX)
		return errbuf_set(err, KV_ERANGE, "%zu rows; it must be 1 to %d", d->n_rows,
				  DRAFT_ROWS_MAX);
	for (size_t i = 0; i < d->n_rows; i++)
		if (check_row(d, i, err) < 0)
			return -1;
	d->logits = calloc((1 + d->n_tokens) * vocab, sizeof(*d->logits));
	if (!d->logits)
		return errbuf_set(err, KV_ENOMEM, "no memory for %zu rows of %zu logits",
				  1 + d->n_tokens, vocab);
	return 0;
}

void draft_fini(struct draft *d)
{
	free(d->logits);
	d->logits = NULL;
}

/* Tokens that the draft model's cache takes. */
static size_t small_room(const struct draft *d, const struct draft_row *row)
{
	size_t context = llama_geometry(d->small)->context;

	return at_most(context, row->small->max_tokens) - row->small->n_tokens;
}

/* A step yields its drafts and one token more, and both caches take them with `last`. */
static size_t n_drafts(const struct draft *d, const struct draft_row *row)
{
	size_t room = small_room(d, row);

	return at_most(at_most(d->n_tokens, row->n_left - 1), room ? room - 1 : 0);
}

/* ids[1..n] behind ids[0], each the likeliest; the cache has all of them then. */
static int draft_ids(const struct draft *d, const struct draft_row *row, uint32_t *ids, size_t n,
		     struct errbuf *err)
{
	for (size_t i = 0; i < n; i++) {
		if (llama_forward(d->small, row->small, ids + i, 1, d->logits, 1, err) < 0)
			return -1;
		ids[i + 1] = sample_greedy(d->logits, vocab_of(d));
	}
	return llama_forward(d->small, row->small, ids + n, 1, NULL, 0, err);
}

/* The main model's choices behind ids[0..n], one by one, as long as they are the drafts. */
static int accept(const struct draft *d, size_t number, const uint32_t *ids, size_t n,
		  uint64_t position, struct errbuf *err)
{
	struct draft_row *row = &d->rows[number];

	for (size_t i = 0; i <= n; i++) {
		const float *logits = d->logits + i * vocab_of(d);

		row->last = sample_token(logits, vocab_of(d), d->temperature, row->seed,
					 position + i + 1);
		row->n_left--;
		if (d->each && d->each(d->arg, number, row->last, logits, err) < 0)
			return -1;
		if (i == n || row->last != ids[i + 1])
			break;
		row->n_accepted++;
	}
	return 0;
}

/* One step of a row but for the rollback; *keep_tokens: the length that both caches are to have. */
static int row_step(const struct draft *d, size_t number, size_t *keep_tokens, struct errbuf *err)
{
	struct draft_row *row = &d->rows[number];
	size_t n = n_drafts(d, row), position = row->main->n_tokens, n_left = row->n_left;
	uint32_t ids[1 + DRAFT_TOKENS_MAX] = {row->last};

	if (small_room(d, row) && draft_ids(d, row, ids, n, err) < 0)
		return -1;
	if (llama_forward(d->main, row->main, ids, n + 1, d->logits, n + 1, err) < 0 ||
	    accept(d, number, ids, n, position, err) < 0)
		return -1;
	row->n_steps++;
	row->n_drafted += n;
	*keep_tokens = position + (n_left - row->n_left);
	return 0;
}

int draft_step(struct draft *d, struct errbuf *err)
{
	struct kv_cache *kvs[2 * DRAFT_ROWS_MAX];
	size_t keep[2 * DRAFT_ROWS_MAX], n = 0;

	for (size_t i = 0; i < d->n_rows; i++) {
		struct draft_row *row = &d->rows[i];

		if (row->n_left == 0)
			continue;
		if (row_step(d, i, &keep[n], err) < 0)
			return -1;
		keep[n + 1] = at_most(keep[n], row->small->n_tokens);
		kvs[n++] = row->main;
		kvs[n++] = row->small;
	}
	if (n == 0)
		return 0;
	return kvs[0]->ops->truncate_many(kvs, keep, n, err) < 0 ? -1 : 1;
}

int draft_run(struct draft *d, struct errbuf *err)
{
	int rc;

	do {
		rc = draft_step(d, err);
	} while (rc > 0);
	return rc;
}
