/*
 * kv_attention: attention over private buffers, with the kernels of the library and in the order of
 * kvc_attend: tiles of 64 tokens, spans of 4,096, so that the same stored bytes give the same bits
 * (client/compute/attend_sums.h).
 *
 * Thread: the one that the room belongs to.
 */
#ifndef KV_EXAMPLES_KV_ATTENTION_H
#define KV_EXAMPLES_KV_ATTENTION_H

#include "client/compute/codec.h"
#include "client/examples/kv.h"

/* K and V of n_tokens consecutive tokens of a layer: vectors [token][head]. */
struct kv_rows {
	const struct kv_codec *codecs; /* K, V */
	struct kv_codec_at at[2];
	size_t n_tokens;
};

/* Working memory; begins as zeros, grows when a call needs more. */
struct kv_attention_room {
	char *memory;
	size_t n_bytes;
};

/* The rows follow one another; the last n_tokens of all are the queries' own, each query sees them
 * up to its own. n_heads: of K and V. 0, or -1 with err filled: no memory. */
int kv_attention(struct kv_attention_room *room, const struct kv_rows *rows, size_t n_rows,
		 size_t n_heads, const struct kv_queries *q, struct errbuf *err);

void kv_attention_fini(struct kv_attention_room *room);

#endif
