#include "client/examples/score.h"

#include <math.h>
#include <stdlib.h>

/* -log p of one token. */
static double loss(const float *logits, size_t vocab, uint32_t id)
{
	double max = (double)logits[0], total = 0;

	for (size_t i = 1; i < vocab; i++)
		if ((double)logits[i] > max)
			max = (double)logits[i];
	for (size_t i = 0; i < vocab; i++)
		total += exp((double)logits[i] - max);
	return log(total) + max - (double)logits[id];
}

/* A window of n inputs; ids[1..n] are predicted. */
static int score_window(struct llama *m, struct kv_cache *kv, const struct tokenizer *tok,
			const uint32_t *ids, size_t n, float *logits, struct score *out,
			struct errbuf *err)
{
	size_t vocab = llama_geometry(m)->vocab, n_bytes;

	for (size_t at = 0; at < n; at += LLAMA_CHUNK_TOKENS) {
		size_t n_chunk = n - at < LLAMA_CHUNK_TOKENS ? n - at : LLAMA_CHUNK_TOKENS;

		if (llama_forward(m, kv, ids + at, n_chunk, logits, n_chunk, err) < 0)
			return -1;
		for (size_t i = 0; i < n_chunk; i++) {
			uint32_t next = ids[at + i + 1];

			if (next >= vocab)
				return errbuf_set(err, KV_ERANGE,
						  "token id %u; the model knows 0 to %zu", next,
						  vocab - 1);
			out->nats += loss(logits + i * vocab, vocab, next);
			tokenizer_decode(tok, next, &n_bytes);
			out->n_bytes += n_bytes;
			out->n_tokens++;
		}
	}
	return kv->ops->truncate(kv, 0, err);
}

int score_ids(struct llama *m, struct kv_cache *kv, const struct tokenizer *tok,
	      const uint32_t *ids, size_t n, struct score *out, struct errbuf *err)
{
	size_t context = llama_geometry(m)->context;
	float *logits = malloc(LLAMA_CHUNK_TOKENS * llama_geometry(m)->vocab * sizeof(*logits));
	int rc = -1;

	*out = (struct score){0};
	if (!logits) {
		errbuf_set(err, KV_ENOMEM, "no memory for logits");
		goto out;
	}
	if (n < 2) {
		errbuf_set(err, KV_EINVAL, "%zu tokens: a score needs two", n);
		goto out;
	}
	for (size_t at = 0; at + 1 < n; at += context) {
		size_t n_inputs = n - 1 - at < context ? n - 1 - at : context;

		if (score_window(m, kv, tok, ids + at, n_inputs, logits, out, err) < 0)
			goto out;
	}
	rc = 0;
out:
	free(logits);
	return rc;
}

double score_bits_per_byte(const struct score *s)
{
	return s->nats / log(2.0) / (double)s->n_bytes;
}
