/*
 * kv_private: private buffers as the cache of a decoder, in any storage format: what a sequence of
 * kvcached in that format gives, bit for bit, without kvcached.
 *
 * Promise: a row is stored once, when its step writes it, and never again; the memory that it
 * takes is that of its format. With kv_ops.replay the rows behind are kept as they are.
 *
 * Failure modes: a row with a NaN or an infinity is refused by write (KV_EVALUE), but in raw.
 *
 * Thread: that of the cache.
 */
#ifndef KV_EXAMPLES_KV_PRIVATE_H
#define KV_EXAMPLES_KV_PRIVATE_H

#include "client/examples/kv.h"
#include "client/examples/kv_formats.h"
#include "client/examples/llama.h"

/* An empty cache for a model. NULL with err filled: no memory, or a head that a format cannot
 * hold. */
struct kv_cache *kv_private_new(const struct llama *m, struct kv_formats formats, size_t max_tokens,
				struct errbuf *err);

#endif
