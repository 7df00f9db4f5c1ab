/*
 * score: how well a model predicts a text.
 *
 * The ids are cut into windows of the model's context, end to end; each starts with an empty
 * cache, and every token but the first of the text is predicted once, the first of a later window
 * from the whole window before it. With `replay` the first half of each window is the cache's base,
 * and what follows goes to its replay journal (kv_ops.replay).
 *
 * Thread: that of the model.
 */
#ifndef KV_EXAMPLES_SCORE_H
#define KV_EXAMPLES_SCORE_H

#include <stdbool.h>

#include "client/examples/llama.h"
#include "client/examples/tokenizer.h"

struct score {
	size_t n_tokens; /* predicted */
	size_t n_bytes;  /* of these tokens */
	double nats;     /* sum of -log p over them */
};

/* kv must be empty and have room for a context, or for all ids when they are fewer. It is empty
 * again afterwards. n is at least 2. */
int score_ids(struct llama *m, struct kv_cache *kv, const struct tokenizer *tok,
	      const uint32_t *ids, size_t n, bool replay, struct score *out, struct errbuf *err);

/* The same for ids that go behind what kv has: n inputs, ids[1..n] are predicted, all count. tok
 * may be NULL: no bytes are counted. */
int score_append(struct llama *m, struct kv_cache *kv, const struct tokenizer *tok,
		 const uint32_t *ids, size_t n, struct score *out, struct errbuf *err);

double score_bits_per_byte(const struct score *s);

#endif
