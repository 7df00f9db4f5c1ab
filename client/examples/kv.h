/*
 * kv: what a decoder needs of a KV cache, in one small interface with two implementations, private
 * buffers (kv_private.c) and a sequence of kvcached (kv_shared.c).
 *
 * Rows are f32: for one token and layer the keys of all KV heads, head after head, and the same
 * for the values. A step is begin, write for every layer, commit; the tokens of a step are there
 * for readers only after commit. Runs are in the order of positions and cover exactly the
 * committed tokens.
 *
 * Errors: 0, or -1 with err filled. After an error of write or commit nothing of the step is
 * there, and begin starts a new one.
 *
 * Thread: a cache belongs to one thread at a time.
 */
#ifndef KV_EXAMPLES_KV_H
#define KV_EXAMPLES_KV_H

#include <stddef.h>

#include "proto/errbuf.h"

/* n_slots tokens next to each other; the row of the next one is a stride (in floats) further. */
struct kv_run {
	const float *k, *v;
	size_t k_stride, v_stride;
	size_t n_slots;
};

struct kv_cache;

struct kv_ops {
	int (*begin)(struct kv_cache *kv, size_t n_tokens, struct errbuf *err);
	/* k and v: a row for each token of the step, one behind the other. */
	int (*write)(struct kv_cache *kv, size_t layer, const float *k, const float *v,
		     struct errbuf *err);
	int (*commit)(struct kv_cache *kv, struct errbuf *err);
	/* Drops the tokens from keep_tokens on. */
	int (*truncate)(struct kv_cache *kv, size_t keep_tokens, struct errbuf *err);
	/* The runs of one layer, valid until the next begin or truncate. */
	int (*runs)(struct kv_cache *kv, size_t layer, const struct kv_run **runs, size_t *n_runs,
		    struct errbuf *err);
	void (*free)(struct kv_cache *kv);
};

/* First member of each implementation. */
struct kv_cache {
	const struct kv_ops *ops;
	size_t n_tokens; /* committed */
	size_t max_tokens;
	size_t n_layers, row_floats; /* row_floats: KV heads x head dim */
};

/* Private buffers for max_tokens tokens; NULL with err filled when there is no memory. */
struct kv_cache *kv_private_new(size_t n_layers, size_t row_floats, size_t max_tokens,
				struct errbuf *err);

static inline void kv_free(struct kv_cache *kv)
{
	if (kv)
		kv->ops->free(kv);
}

#endif
