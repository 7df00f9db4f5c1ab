/* generate_job: one run of kvc-generate, and what it gives. */
#ifndef KV_EXAMPLES_GENERATE_JOB_H
#define KV_EXAMPLES_GENERATE_JOB_H

#include <stdio.h>
#include <xxhash.h>

#include "client/examples/generate_caches.h"
#include "client/examples/prompt.h"
#include "client/examples/score.h"

/* What is written on from the prompt with one seed. */
struct generated {
	uint64_t seed;
	uint32_t *ids;
	size_t n;
	XXH3_state_t *hash; /* of the logits */
};

struct job {
	struct generate_options o;
	struct llama *model;
	struct llama *small;   /* NULL without --draft */
	struct tokenizer *tok; /* NULL without --tokenizer */
	struct prompt prompt;
	struct caches caches;
	FILE *logits;
	struct generated rows[DRAFT_ROWS_MAX]; /* o.n_rows of them */
	struct draft_row drafts[DRAFT_ROWS_MAX];
	size_t n_prefilled; /* tokens that the main model ran, but for those that it wrote */
	struct score score;
	/* Seconds: loading; the main model's prompt; from its start to the first token; the other
	 * tokens. */
	double load_s, prefill_s, first_s, decode_s;
	double started_s;
};

/* Prints the result. 0, or -1 with err filled. */
int generate_report(const struct job *j, struct errbuf *err);

#endif
