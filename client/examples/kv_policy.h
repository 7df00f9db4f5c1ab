/*
 * kv_policy: a sequence of kvcached with a bound on its slots as the cache of a decoder. A policy of
 * the library says who is evicted; it goes by the weights of the decoder's attention where it needs
 * them (kvcache.h, chapter 12).
 *
 * Promise: memory does not grow beyond the slots, and an undo journal of the last step. Keys keep
 * the rotation of their absolute position. Steps behind a full layer have at most an eighth of the
 * slots, so that what a step evicts is little of what its queries see.
 *
 * Failure modes: `dense` refuses a step when the slots are full. What was evicted is gone, so
 * truncate goes back to nowhere but where the journal reaches: with `keeps_steps` to any step.
 *
 * Thread: the writer's.
 */
#ifndef KV_EXAMPLES_KV_POLICY_H
#define KV_EXAMPLES_KV_POLICY_H

#include "client/examples/kv.h"
#include "client/examples/kv_formats.h"
#include "client/examples/llama.h"
#include "client/kvcache.h"

/* A policy of the library over n_slots, with its options as the example has them: a grace period
 * of an eighth of the slots for those that can have one. */
struct kvc_policy_options kv_policy_options(const char *name, size_t n_slots);

/* The layout of a model's cache with that policy. NULL with err filled. */
kvc_layout *kv_policy_layout(kvc_session *session, const struct llama *m, struct kv_formats formats,
			     const char *name, size_t n_slots, struct errbuf *err);

/* A cache over an empty sequence with that layout; writer and seq stay the caller's and must
 * outlive it. max_tokens bounds the tokens that go through it. NULL with err filled. */
struct kv_cache *kv_policy_new(kvc_writer *writer, kvc_seq *seq, const struct llama *m,
			       const char *name, size_t n_slots, size_t max_tokens,
			       bool keeps_steps, struct errbuf *err);

#endif
