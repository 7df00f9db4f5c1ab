/*
 * kv: what a decoder needs of a KV cache, in one small interface with three implementations:
 * private buffers, raw (kv_private.c) or quantised (kv_quantised.c), and a sequence of kvcached
 * (kv_shared.c).
 *
 * Rows are f32: for one token and layer the keys of all KV heads, head after head, and the same
 * for the values. A step is begin, write for every layer, commit; the tokens of a step are there
 * for readers only after commit. Readers see the committed tokens in the order of positions, tile
 * by tile: a quantised cache dequantises one tile at a time, so there is never more than that of
 * it in full precision.
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

/* Most slots of a tile that a cache makes; one that it only shows may be as long as it likes. */
#define KV_TILE_SLOTS 256

/* n_slots tokens next to each other; the row of the next one is a stride (in floats) further. */
struct kv_run {
	const float *k, *v;
	size_t k_stride, v_stride;
	size_t n_slots;
};

/* What of a tile is asked for. */
#define KV_WANT_K 1u
#define KV_WANT_V 2u

struct kv_cache;

struct kv_ops {
	int (*begin)(struct kv_cache *kv, size_t n_tokens, struct errbuf *err);
	/* k and v: a row for each token of the step, one behind the other. */
	int (*write)(struct kv_cache *kv, size_t layer, const float *k, const float *v,
		     struct errbuf *err);
	int (*commit)(struct kv_cache *kv, struct errbuf *err);
	/* Drops the tokens from keep_tokens on. */
	int (*truncate)(struct kv_cache *kv, size_t keep_tokens, struct errbuf *err);
	/* The committed tokens of a layer from `first` (below n_tokens) on, at least one, as many
	 * as the cache can show at once; K, V or both, as asked for, the other is NULL. Valid until
	 * the next call. */
	int (*tile)(struct kv_cache *kv, size_t layer, size_t first, unsigned int want,
		    struct kv_run *tile, struct errbuf *err);
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

/* Private buffers for max_tokens tokens; NULL with err filled when there is no memory. */
struct kv_cache *kv_private_new(size_t n_layers, size_t row_floats, size_t max_tokens,
				struct errbuf *err);

static inline void kv_free(struct kv_cache *kv)
{
	if (kv)
		kv->ops->free(kv);
}

#endif
