#include "client/examples/decode.h"

#include <stdlib.h>

#include "client/examples/sample.h"

int decode_run(const struct decode *d, uint32_t last, size_t n, uint32_t *ids, struct errbuf *err)
{
	size_t vocab = llama_geometry(d->model)->vocab;
	float *logits = malloc(vocab * sizeof(*logits));
	int rc = -1;

	if (!logits) {
		errbuf_set(err, KV_ENOMEM, "no memory for %zu logits", vocab);
		goto out;
	}
	for (size_t i = 0; i < n; i++) {
		if (llama_forward(d->model, d->kv, &last, 1, logits, 1, err) < 0)
			goto out;
		last = sample_token(logits, vocab, d->temperature, d->seed, d->kv->n_tokens);
		ids[i] = last;
		if (d->each && d->each(d->arg, last, logits, err) < 0)
			goto out;
	}
	rc = 0;
out:
	free(logits);
	return rc;
}
