#include "client/examples/kv_shared.h"

#include <stdbool.h>
#include <stdlib.h>

#define RESERVE_TOKENS 256

struct kv_shared {
	struct kv_cache base;
	kvc_writer *writer;
	kvc_seq *seq;
	bool is_open; /* an update has begun */
	struct kvc_run *found;
	struct kv_run *runs;
	size_t n_room; /* of both */
};

int kv_shared_error(struct errbuf *err)
{
	return errbuf_set(err, kvc_error(), "%s", kvc_error_text());
}

/* Sets memory aside for the step and for some after it. A restart of the daemon is told once. */
static int reserve(struct kv_shared *kv, size_t n_tokens, struct errbuf *err)
{
	size_t room = kv->base.max_tokens - kv->base.n_tokens;
	size_t n = n_tokens < RESERVE_TOKENS ? RESERVE_TOKENS : n_tokens;

	if (n > room)
		n = room;
	if (kvc_reserve(kv->seq, n) == 0)
		return 0;
	if (kvc_error() == KVC_ERESTARTED && kvc_reserve(kv->seq, n) == 0)
		return 0;
	return kv_shared_error(err);
}

static int shared_begin(struct kv_cache *base, size_t n_tokens, struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;

	if (kv->is_open)
		kvc_abort(kv->seq);
	kv->is_open = false;
	base->n_tokens = (size_t)kvc_length(kv->seq);
	if (n_tokens > base->max_tokens - base->n_tokens)
		return errbuf_set(err, KV_ERESERVE,
				  "no room for %zu tokens behind %zu: the cache is for %zu",
				  n_tokens, base->n_tokens, base->max_tokens);
	if (kvc_append_begin(kv->seq, n_tokens) < 0) {
		if (kvc_error() != KVC_ERESERVE)
			return kv_shared_error(err);
		if (reserve(kv, n_tokens, err) < 0)
			return -1;
		if (kvc_append_begin(kv->seq, n_tokens) < 0)
			return kv_shared_error(err);
	}
	kv->is_open = true;
	return 0;
}

static int shared_write(struct kv_cache *base, size_t layer, const float *k, const float *v,
			struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;

	return kvc_write(kv->seq, (uint32_t)layer, k, v) < 0 ? kv_shared_error(err) : 0;
}

static int shared_commit(struct kv_cache *base, struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;
	int rc = kvc_commit(kv->writer, &kv->seq, 1);

	if (rc < 0)
		kv_shared_error(err);
	if (rc == 0 || kvc_error() == KVC_EMOVED)
		kv->is_open = false;
	base->n_tokens = (size_t)kvc_length(kv->seq);
	return rc;
}

static int shared_truncate(struct kv_cache *base, size_t keep_tokens, struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;

	if (kv->is_open)
		kvc_abort(kv->seq);
	kv->is_open = false;
	if (kvc_rollback_keep(kv->seq, keep_tokens) < 0)
		return kv_shared_error(err);
	base->n_tokens = (size_t)kvc_length(kv->seq);
	return 0;
}

static int grow_runs(struct kv_shared *kv, size_t n)
{
	struct kvc_run *found = realloc(kv->found, n * sizeof(*found));
	struct kv_run *runs = realloc(kv->runs, n * sizeof(*runs));

	if (found)
		kv->found = found;
	if (runs)
		kv->runs = runs;
	if (!found || !runs)
		return -1;
	kv->n_room = n;
	return 0;
}

static int shared_runs(struct kv_cache *base, size_t layer, const struct kv_run **runs,
		       size_t *n_runs, struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;
	int64_t n;

	while ((n = kvc_view_runs(kv->seq, (uint32_t)layer, kv->found, kv->n_room)) >
	       (int64_t)kv->n_room)
		if (grow_runs(kv, (size_t)n) < 0)
			return errbuf_set(err, KV_ENOMEM, "no memory for %lld runs", (long long)n);
	if (n < 0)
		return kv_shared_error(err);
	for (size_t i = 0; i < (size_t)n; i++)
		kv->runs[i] = (struct kv_run){kv->found[i].k, kv->found[i].v,
					      kv->found[i].k_row_bytes / sizeof(float),
					      kv->found[i].v_row_bytes / sizeof(float),
					      (size_t)kv->found[i].n_tokens};
	*runs = kv->runs;
	*n_runs = (size_t)n;
	return 0;
}

static void shared_free(struct kv_cache *base)
{
	struct kv_shared *kv = (struct kv_shared *)base;

	if (kv->is_open)
		kvc_abort(kv->seq);
	free(kv->found);
	free(kv->runs);
	free(kv);
}

static const struct kv_ops shared_ops = {
	.begin = shared_begin,
	.write = shared_write,
	.commit = shared_commit,
	.truncate = shared_truncate,
	.runs = shared_runs,
	.free = shared_free,
};

struct kv_cache *kv_shared_new(kvc_writer *writer, kvc_seq *seq, const struct llama *m,
			       size_t max_tokens, struct errbuf *err)
{
	struct kv_shared *kv = calloc(1, sizeof(*kv));

	if (!kv || grow_runs(kv, 16) < 0) {
		errbuf_set(err, KV_ENOMEM, "no memory for a cache");
		free(kv);
		return NULL;
	}
	kv->base = (struct kv_cache){&shared_ops, (size_t)kvc_length(seq), max_tokens,
				     llama_geometry(m)->n_layers, llama_row_floats(m)};
	kv->writer = writer;
	kv->seq = seq;
	return &kv->base;
}
