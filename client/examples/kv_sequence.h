/*
 * kv_sequence: what the caches over a sequence of kvcached have in common (kv_shared.c,
 * kv_policy.c).
 *
 * Thread: the writer's.
 */
#ifndef KV_EXAMPLES_KV_SEQUENCE_H
#define KV_EXAMPLES_KV_SEQUENCE_H

#include <stdbool.h>

#include "client/examples/kv.h"
#include "client/kvcache.h"

/* First member of each of them. Writer and sequence are the caller's. */
struct kv_sequence {
	struct kv_cache base;
	kvc_writer *writer;
	kvc_seq *seq;
	bool is_open; /* an update has begun */
};

/* Fills err from the library's last error of this thread; returns -1. */
int kv_sequence_error(struct errbuf *err);

/* Drops what has begun; n_tokens is the sequence's length, which others may have changed. */
void kv_sequence_abort(struct kv_sequence *kv);

/* What attention over queries is given; the rest is zero. */
struct kvc_attend_args kv_sequence_queries(const struct kv_queries *q);

/* kv_ops.commit and kv_ops.read. By slot: what was evicted cannot be read. */
int kv_sequence_commit(struct kv_cache *base, struct errbuf *err);
int kv_sequence_read(struct kv_cache *base, size_t layer, size_t first, size_t n_tokens, float *k,
		     float *v, struct errbuf *err);

#endif
