#include "client/examples/generate_caches.h"

#include "client/examples/kv_policy.h"
#include "client/examples/kv_private.h"
#include "client/examples/kv_sequence.h"
#include "client/examples/kv_shared.h"

int caches_open(struct caches *c, const struct generate_options *o, struct errbuf *err)
{
	struct kvc_session_options session = {.size = sizeof(session),
					      .runtime_dir = o->runtime_dir};

	c->o = o;
	if (o->is_private)
		return 0;
	c->session = kvc_open(&session);
	if (!c->session)
		return kv_sequence_error(err);
	c->writer = kvc_writer_new(c->session);
	return c->writer ? 0 : kv_sequence_error(err);
}

/* Forks go before what they were made from. */
void caches_fini(struct caches *c)
{
	while (c->n) {
		struct cache *last = &c->all[--c->n];

		kv_free(last->kv);
		kvc_seq_free(last->seq);
		kvc_layout_free(last->layout);
	}
	if (c->writer)
		kvc_writer_free(c->writer);
	kvc_close(c->session);
	*c = (struct caches){0};
}

static struct cache *next_cache(struct caches *c, struct errbuf *err)
{
	if (c->n < CACHES_MAX)
		return &c->all[c->n++];
	errbuf_set(err, KV_ELIMIT, "more than %d caches", CACHES_MAX);
	return NULL;
}

static int new_seq(struct caches *c, struct cache *cache, const struct llama *m, size_t max_tokens,
		   struct errbuf *err)
{
	struct kvc_seq_options seq = {.size = sizeof(seq), .max_tokens = max_tokens};

	cache->layout = c->o->policy ? kv_policy_layout(c->session, m, c->o->formats, c->o->policy,
							c->o->n_slots, err) :
				       kv_shared_layout(c->session, m, c->o->formats, err);
	if (!cache->layout)
		return -1;
	cache->seq = kvc_seq_new(c->writer, cache->layout, &seq);
	return cache->seq ? 0 : kv_sequence_error(err);
}

struct kv_cache *caches_new(struct caches *c, const struct llama *m, size_t max_tokens,
			    struct errbuf *err)
{
	struct cache *cache = next_cache(c, err);

	if (!cache)
		return NULL;
	if (c->o->is_private)
		return cache->kv = kv_private_new(m, c->o->formats, max_tokens, err);
	if (new_seq(c, cache, m, max_tokens, err) < 0)
		return NULL;
	if (c->o->policy)
		return cache->kv = kv_policy_new(c->writer, cache->seq, m, c->o->policy,
						 c->o->n_slots, max_tokens, c->o->score, err);
	return cache->kv = kv_shared_new(c->writer, cache->seq, m, max_tokens, err);
}

struct kv_cache *caches_fork(struct caches *c, const struct kv_cache *kv, const struct llama *m,
			     struct errbuf *err)
{
	const struct cache *source = c->all;
	struct cache *cache;

	if (c->o->is_private)
		return caches_new(c, m, kv->max_tokens, err);
	cache = next_cache(c, err);
	if (!cache)
		return NULL;
	while (source->kv != kv)
		source++;
	/* A place, and the block that the prompt's last tokens are copied into. */
	if (kvc_reserve_forks(source->seq, 1) == 0 && kvc_reserve(source->seq, 1) == 0)
		cache->seq = kvc_fork_local(source->seq, 0);
	if (!cache->seq) {
		kv_sequence_error(err);
		return NULL;
	}
	return cache->kv = kv_shared_new(c->writer, cache->seq, m, kv->max_tokens, err);
}
