/*
 * draft: speculative decoding. A small model drafts the next tokens one after the other, the main
 * model runs all of them in one chunk and keeps those that it would have chosen itself; what is
 * behind them is taken back from the caches of both.
 *
 * Promise: on raw caches, and behind a replay journal, each row has the tokens and logits, bit for
 * bit, that decode_run gives it with its seed, whatever the drafts are: they only decide how many
 * tokens a step yields. (On a plainly quantised cache a draft is seen in full precision by those
 * that are verified with it, so text may differ there.) Each row goes its own way: the tokens that
 * are taken back, other numbers of them for each row, go from all caches of all rows at once
 * (kv_ops.truncate_many).
 *
 * Between two steps both caches of a row hold all its tokens but the last one, `last`; only when
 * the draft model's cache or context is full, it stays behind and its row is decoded token by
 * token. Close to the end fewer tokens are drafted, so a row never has more than it is to have.
 *
 * Happy path: models, rows and draft_init; draft_run, or draft_step until it says that no row is
 * left; draft_fini.
 *
 * Failure modes: two models that do not know the same number of tokens, caches of two kinds. An
 * error in the middle of a step ends it: caches may hold drafts then, and the run is over.
 *
 * Thread: that of the models and caches.
 */
#ifndef KV_EXAMPLES_DRAFT_H
#define KV_EXAMPLES_DRAFT_H

#include "client/examples/llama.h"

/* Drafts and the token before them are one chunk. */
#define DRAFT_TOKENS_MAX (LLAMA_CHUNK_TOKENS - 1)
#define DRAFT_ROWS_MAX (KV_TRUNCATE_MANY_MAX / 2)

struct draft_row {
	struct kv_cache *main, *small; /* the caller's; hold all tokens but `last` */
	uint32_t last;
	uint64_t seed;
	size_t n_left; /* tokens that are still to come */
	/* Counted by draft_step: the main model's runs, tokens that were drafted, and kept. */
	uint64_t n_steps, n_drafted, n_accepted;
};

struct draft {
	struct llama *main, *small;
	size_t n_tokens; /* drafted in a step, 1 to DRAFT_TOKENS_MAX */
	double temperature;
	struct draft_row *rows; /* the caller's, n_rows of them, 1 to DRAFT_ROWS_MAX */
	size_t n_rows;
	/* If set: called for each new token of a row with the logits that it was chosen from. -1
	 * with err filled ends the run. */
	int (*each)(void *arg, size_t row, uint32_t id, const float *logits, struct errbuf *err);
	void *arg;
	float *logits; /* draft_init's: [1 + n_tokens][vocab] */
};

/* Do the two models know the same number of tokens? 0, or -1 with err filled. */
int draft_check_models(const struct llama *main, const struct llama *small, struct errbuf *err);

/* Checks all of the above and takes memory. 0, or -1 with err filled. draft_fini in any case. */
int draft_init(struct draft *d, struct errbuf *err);
void draft_fini(struct draft *d);

/* One step of each row that has tokens left. 1, 0 if there was no such row, or -1 with err. */
int draft_step(struct draft *d, struct errbuf *err);

/* Steps until no row has tokens left. */
int draft_run(struct draft *d, struct errbuf *err);

#endif
