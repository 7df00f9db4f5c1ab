#include "client/examples/kv_sequence.h"

int kv_sequence_error(struct errbuf *err)
{
	return errbuf_set(err, kvc_error(), "%s", kvc_error_text());
}

void kv_sequence_abort(struct kv_sequence *kv)
{
	if (kv->is_open)
		kvc_abort(kv->seq);
	kv->is_open = false;
	kv->base.n_tokens = (size_t)kvc_length(kv->seq);
}

struct kvc_attend_args kv_sequence_queries(const struct kv_queries *q)
{
	return (struct kvc_attend_args){.size = sizeof(struct kvc_attend_args),
					.n_query_heads = (uint32_t)q->n_heads,
					.n_tokens = q->n_tokens,
					.q = q->q,
					.k = q->k,
					.v = q->v,
					.out = q->out};
}

int kv_sequence_commit(struct kv_cache *base, struct errbuf *err)
{
	struct kv_sequence *kv = (struct kv_sequence *)base;
	int rc = kvc_commit(kv->writer, &kv->seq, 1);

	if (rc < 0)
		kv_sequence_error(err);
	if (rc == 0 || kvc_error() == KVC_EMOVED)
		kv->is_open = false;
	base->n_tokens = (size_t)kvc_length(kv->seq);
	return rc;
}

int kv_sequence_read(struct kv_cache *base, size_t layer, size_t first, size_t n_tokens, float *k,
		     float *v, struct errbuf *err)
{
	struct kv_sequence *kv = (struct kv_sequence *)base;

	return kvc_read(kv->seq, (uint32_t)layer, first, n_tokens, k, v) < 0 ?
		       kv_sequence_error(err) :
		       0;
}
