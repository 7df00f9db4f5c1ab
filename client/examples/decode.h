/*
 * decode: samples tokens one after the other on any KV cache.
 *
 * Between two calls the cache holds all tokens but the last one, `last`. A step runs the last
 * token and so gets the logits from which the next one is chosen. To roll back n tokens, truncate
 * the cache by n and go on with the last token that is kept. On a fork of a cached prompt,
 * truncate it by one and start with the prompt's last token.
 *
 * Thread: that of the model and of the cache.
 */
#ifndef KV_EXAMPLES_DECODE_H
#define KV_EXAMPLES_DECODE_H

#include "client/examples/llama.h"

struct decode {
	struct llama *model;
	struct kv_cache *kv;
	double temperature; /* 0 is greedy */
	uint64_t seed;
	/* If set: called for each new token with the row of logits that it was chosen from. -1 with
	 * err filled ends the run. */
	int (*each)(void *arg, uint32_t id, const float *logits, struct errbuf *err);
	void *arg;
};

/* Samples n tokens into ids, starting with the token `last`. */
int decode_run(const struct decode *d, uint32_t last, size_t n, uint32_t *ids, struct errbuf *err);

#endif
