/*
 * kv: what a decoder needs of a KV cache, in one small interface with three implementations: private
 * buffers (kv_private.c), a sequence of kvcached (kv_shared.c), and one whose slots are bounded
 * (kv_policy.c).
 *
 * Rows are f32: for one token and layer the keys of all KV heads, head after head, and the same
 * for the values. A step is begin, write and attend for every layer, commit; the tokens of a step
 * are there for later steps only after commit. Attention reads what is stored where it lies: a
 * quantised cache is never there in full precision.
 *
 * Errors: 0, or -1 with err filled. After an error of write, attend or commit nothing of the step
 * is there, and begin starts a new one.
 *
 * Thread: a cache belongs to one thread at a time.
 */
#ifndef KV_EXAMPLES_KV_H
#define KV_EXAMPLES_KV_H

#include <stddef.h>

#include "proto/errbuf.h"

/* Most caches of a truncate_many. */
#define KV_TRUNCATE_MANY_MAX 128

/* One layer of a step: n_tokens tokens, n_heads query heads. */
struct kv_queries {
	size_t n_tokens, n_heads;
	const float *q;     /* [n_tokens][n_heads][width of a head] */
	const float *k, *v; /* the step's own rows, as they are written */
	float *out;         /* as q */
};

struct kv_cache;

struct kv_ops {
	/* Most tokens of the next step; 0: it takes none. NULL: as many as there is room for. */
	size_t (*limit)(struct kv_cache *kv);
	int (*begin)(struct kv_cache *kv, size_t n_tokens, struct errbuf *err);
	/* k and v: a row for each token of the step, one behind the other. */
	int (*write)(struct kv_cache *kv, size_t layer, const float *k, const float *v,
		     struct errbuf *err);
	/* Each query sees the committed tokens, as they are stored, and of the step's own those up
	 * to its own, in full precision. Bits depend on these rows alone. */
	int (*attend)(struct kv_cache *kv, size_t layer, const struct kv_queries *q,
		      struct errbuf *err);
	int (*commit)(struct kv_cache *kv, struct errbuf *err);
	/* Drops the tokens from keep_tokens on. */
	int (*truncate)(struct kv_cache *kv, size_t keep_tokens, struct errbuf *err);
	/* The same for n caches of one kind, each from its own number on: all of them or none. In
	 * kvcached (the caches of one writer, each once) readers never see one of them alone. */
	int (*truncate_many)(struct kv_cache *const *kvs, const size_t *keep_tokens, size_t n,
			     struct errbuf *err);
	/* Rows of committed tokens of a layer, dequantised; k and v are the caller's. */
	int (*read)(struct kv_cache *kv, size_t layer, size_t first, size_t n_tokens, float *k,
		    float *v, struct errbuf *err);
	/* From here on rows are kept in full precision, in a journal over what is there, which is
	 * not touched any more. Ends when tokens are dropped that were there before. */
	int (*replay)(struct kv_cache *kv, struct errbuf *err);
	void (*free)(struct kv_cache *kv);
};

/* First member of each implementation. */
struct kv_cache {
	const struct kv_ops *ops;
	size_t n_tokens; /* committed */
	size_t max_tokens;
	size_t n_layers, row_floats; /* row_floats: KV heads x head dim */
};

/* 0 if a step of n_tokens has room; else -1 with err filled. */
static inline int kv_check_room(const struct kv_cache *kv, size_t n_tokens, struct errbuf *err)
{
	if (n_tokens <= kv->max_tokens - kv->n_tokens)
		return 0;
	return errbuf_set(err, KV_ERESERVE,
			  "no room for %zu tokens behind %zu: the cache is for %zu", n_tokens,
			  kv->n_tokens, kv->max_tokens);
}

/* 0 if a cache can keep so many tokens. */
static inline int kv_check_keep(size_t keep_tokens, size_t n_tokens, struct errbuf *err)
{
	if (keep_tokens <= n_tokens)
		return 0;
	return errbuf_set(err, KV_ERANGE, "cannot keep %zu tokens of %zu", keep_tokens, n_tokens);
}

static inline void kv_free(struct kv_cache *kv)
{
	if (kv)
		kv->ops->free(kv);
}

#endif
