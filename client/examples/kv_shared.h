/*
 * kv_shared: a sequence of kvcached as the cache of a decoder (kv.h).
 *
 * Promise: rows go straight into the sequence, and attention reads them where they lie, in
 * whatever format and in rows of a replay journal (kvc_attend): nothing is copied. Each step of the
 * decoder is one update. Memory is reserved ahead, so that most steps make no call.
 *
 * Failure modes: when an operator rolls the sequence back during a step, commit says so
 * (KV_EMOVED), nothing of the step is there and n_tokens is the new length.
 *
 * Thread: the writer's.
 */
#ifndef KV_EXAMPLES_KV_SHARED_H
#define KV_EXAMPLES_KV_SHARED_H

#include "client/examples/kv.h"
#include "client/examples/kv_formats.h"
#include "client/examples/llama.h"
#include "client/kvcache.h"

/* The layout of a model's cache: f32 rows, stored in these formats. NULL with err filled. Free
 * with kvc_layout_free. */
kvc_layout *kv_shared_layout(kvc_session *session, const struct llama *m, struct kv_formats formats,
			     struct errbuf *err);

/* What n_tokens of it take, without a session. */
int kv_shared_size(const struct llama *m, struct kv_formats formats, size_t n_tokens,
		   struct kvc_size *size, struct errbuf *err);

/*
 * A cache over a sequence with that layout, which may have tokens already (a fork of a prompt) and
 * a replay journal.
 * writer and seq stay the caller's and must outlive the cache. max_tokens bounds the length. NULL
 * with err filled.
 */
struct kv_cache *kv_shared_new(kvc_writer *writer, kvc_seq *seq, const struct llama *m,
			       size_t max_tokens, struct errbuf *err);

#endif
