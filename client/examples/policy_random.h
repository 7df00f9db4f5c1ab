/*
 * A policy of one's own, as an example: each head evicts a random slot, but for the newest tokens.
 * What it draws follows from a seed and the position alone, so it needs no state, and a cache that
 * was rolled back evicts the same slots again.
 */
#ifndef KV_EXAMPLES_POLICY_RANDOM_H
#define KV_EXAMPLES_POLICY_RANDOM_H

#include "client/kvcache.h"

struct policy_random {
	uint64_t seed;
	uint32_t keep_newest; /* so many tokens before the update are not evicted */
};

/* options.user is a struct policy_random, which lives as long as the kvc_policy. */
extern const struct kvc_policy_ops policy_random_ops;

#endif
