/*
 * Policies that keep scores: what scoring.c (the frame) and decision.c (what differs) share.
 */
#ifndef KV_CLIENT_POLICY_SCORING_H
#define KV_CLIENT_POLICY_SCORING_H

#include "client/policy/policy.h"

#define KV_POLICY_KEEP_FRACTION 0.05
#define KV_POLICY_COMBINATION 0.5f

/* One head's part of an array. */
static inline const float *kv_policy_head(const struct kvc_policy_layer *layer, const float *array,
					  uint32_t head)
{
	return array + (size_t)head * layer->n_slots;
}

static inline uint32_t kv_policy_candidates(const struct kvc_policy_layer *layer)
{
	return layer->n_slots - layer->options->grace_tokens;
}

#endif
