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

/* Adds the losses of ids[1..n] from their rows of logits. */
static int add_losses(const struct llama *m, const struct tokenizer *tok, const uint32_t *ids,
		      size_t n, const float *logits, struct score *out, struct errbuf *err)
{
	size_t vocab = llama_geometry(m)->vocab, n_bytes;

	for (size_t i = 0; i < n; i++) {
		uint32_t next = ids[i + 1];

		if (next >= vocab)
			return errbuf_set(err, KV_ERANGE, "token id %u; the model knows 0 to %zu",
					  next, vocab - 1);
		out->nats += loss(logits + i * vocab, vocab, next);
		out->n_tokens++;
		if (!tok)
			continue;
		tokenizer_decode(tok, next, &n_bytes);
		out->n_bytes += n_bytes;
	}
	return 0;
}

int score_append(struct llama *m, struct kv_cache *kv, const struct tokenizer *tok,
		 const uint32_t *ids, size_t n, struct score *out, struct errbuf *err)
{
	float *logits = malloc(LLAMA_CHUNK_TOKENS * llama_geometry(m)->vocab * sizeof(*logits));
	int rc = -1;

	if (!logits) {
		errbuf_set(err, KV_ENOMEM, "no memory for logits");
		goto out;
	}
	for (size_t at = 0; at < n; at += LLAMA_CHUNK_TOKENS) {
		size_t n_chunk = n - at < LLAMA_CHUNK_TOKENS ? n - at : LLAMA_CHUNK_TOKENS;

		if (llama_forward(m, kv, ids + at, n_chunk, logits, n_chunk, err) < 0 ||
		    add_losses(m, tok, ids + at, n_chunk, logits, out, err) < 0)
			goto out;
	}
	rc = 0;
out:
	free(logits);
	return rc;
}

/* A window of n inputs, of which n_base come before the journal. */
static int score_window(struct llama *m, struct kv_cache *kv, const struct tokenizer *tok,
			const uint32_t *ids, size_t n, size_t n_base, struct score *out,
			struct errbuf *err)
{
	if (score_append(m, kv, tok, ids, n_base, out, err) < 0)
		return -1;
	if (n_base < n && (kv->ops->replay(kv, err) < 0 ||
			   score_append(m, kv, tok, ids + n_base, n - n_base, out, err) < 0))
		return -1;
	return kv->ops->truncate(kv, 0, err);
}

int score_ids(struct llama *m, struct kv_cache *kv, const struct tokenizer *tok,
	      const uint32_t *ids, size_t n, bool replay, struct score *out, struct errbuf *err)
{
	size_t context = llama_geometry(m)->context;

	*out = (struct score){0};
	if (n < 2)
		return errbuf_set(err, KV_EINVAL, "%zu tokens: a score needs two", n);
	for (size_t at = 0; at + 1 < n; at += context) {
		size_t n_inputs = n - 1 - at < context ? n - 1 - at : context;
		size_t n_base = replay ? n_inputs - n_inputs / 2 : n_inputs;

		if (score_window(m, kv, tok, ids + at, n_inputs, n_base, out, err) < 0)
			return -1;
	}
	return 0;
}

double score_bits_per_byte(const struct score *s)
{
	return s->nats / log(2.0) / (double)s->n_bytes;
}
