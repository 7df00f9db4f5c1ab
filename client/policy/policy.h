/*
 * Eviction policies: the built-in kvc_policy_ops. Each works on what its arguments show and on
 * nothing else, so that a cache in planes and a test on plain arrays drive the same code.
 *
 * Ties are broken by rule: the lowest slot first. Of two tokens for one slot the later one stays.
 */
#ifndef KV_CLIENT_POLICY_POLICY_H
#define KV_CLIENT_POLICY_POLICY_H

#include <stdbool.h>

#include "client/kvcache.h"

extern const struct kvc_policy_ops kv_policy_dense, kv_policy_ring, kv_policy_lastrec,
	kv_policy_smart_lastrec, kv_policy_h2o, kv_policy_h2o_orig, kv_policy_h2o_vlen,
	kv_policy_qh2o, kv_policy_qh2o_vlen;

/* Numbers that come from memory together, and how many before they are needed they are asked for. */
#define KV_POLICY_LINE 16u
#define KV_POLICY_AHEAD 512u

/* The policy of that name, or NULL. */
const struct kvc_policy_ops *kv_policy_named(const char *name);

/* All names, for people; cut where n_bytes end. */
void kv_policy_names(char *text, size_t n_bytes);

/* Slots that hold something once the tokens of a plan are in. */
static inline uint32_t kv_policy_used_then(const struct kvc_policy_layer *layer, uint64_t n_tokens)
{
	uint64_t left = layer->n_slots - layer->n_used;

	return n_tokens < left ? layer->n_used + (uint32_t)n_tokens : layer->n_slots;
}

/*
 * The n candidates with the lowest values, the lowest first, into slots[n]; n <= n_candidates. Equal
 * ones by slot, NaN behind all others.
 */
void kv_policy_lowest(const float *values, uint32_t n_candidates, uint32_t n, uint32_t *slots);

/*
 * What a policy with scores sorts the candidates of all heads by: [n_heads][n_slots], of which
 * n_slots less the grace period are filled. Either layer->scratch, or the scores themselves.
 */
const float *kv_policy_decision(const struct kvc_policy_layer *layer,
				const struct kvc_policy_ops *ops);

/* L2 norm of a value vector in its dtype, in the order that quantisation errors have. */
float kv_policy_norm(uint32_t dtype, uint32_t width, const void *vector);

/* Those of the state that a trace shows; for tests. */
struct kv_policy_lastrec_state {
	uint32_t next;
};
struct kv_policy_smart_state {
	uint32_t next;
	uint32_t is_protected;
	struct kvc_policy_range range;
};
struct kv_policy_scoring_state {
	uint32_t use_initial_rule;
	uint32_t grace_next; /* slot of the grace period whose token is the oldest */
	uint32_t prefill_length;
};

#endif
