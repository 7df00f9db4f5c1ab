/*
 * Where the state of a policy lies in the planes of a layout, and how it comes out of them.
 *
 * The sequence plane "policy" has one part a layer with bound_slots: a stamp, the policy's state, its
 * scores. The stamp says after which position they hold, and of which policy and options.
 */
#ifndef KV_CLIENT_POLICY_PLANES_H
#define KV_CLIENT_POLICY_PLANES_H

#include "client/seq.h"

#define POLICY_STATE_BYTES_MAX 1024u
#define POLICY_CELLS_MAX (UINT32_C(1) << 30) /* slots of all heads of a layer */

enum policy_side { POLICY_POSITION, POLICY_NORM, POLICY_ERROR, POLICY_SIDES };

struct policy_stamp {
	uint64_t position; /* tokens that the sequence has seen then */
	uint64_t identity; /* policy_identity() */
};

/* Bytes of the parts of a layer: of all of them, and where the scores begin. 0: it has none. */
size_t policy_layer_bytes(const struct kvc_policy_ops *ops, uint32_t n_heads, uint32_t n_slots);
size_t policy_scores_off(const struct kvc_policy_ops *ops);

/* Another policy, or other options, are other numbers. */
uint64_t policy_identity(const struct kvc_policy_options *options,
			 const struct kvc_policy_ops *ops);

/* Checks options for a layer; -1 with KVC_EINVAL and the layer, or KVC_ETOOBIG. */
int policy_check_options(const struct kvc_policy_options *options, const struct kvc_policy_ops *ops,
			 uint32_t layer, uint32_t n_heads, uint32_t n_slots);

/* Fills *options and *ops from what the caller gave. */
int policy_options(const struct kvc_policy_options *given, struct kvc_policy_options *options,
		   const struct kvc_policy_ops **ops);

/* Which planes are needed: does the policy go by this one? */
bool policy_needs(const struct kvc_policy_options *options, const struct kvc_policy_ops *ops,
		  enum policy_side side);

extern const char *const policy_side_names[POLICY_SIDES];
#define POLICY_PLANE_NAME "policy"

/* A slot plane of 4 bytes of a layer, committed slots [0, n_slots), as to[head][stride]. `room` is for
 * n_slots * heads values. */
int policy_gather(kvc_seq *seq, const char *name, uint32_t number, uint32_t layer, uint32_t n_slots,
		  uint32_t stride, uint32_t *room, uint32_t *to);

#endif
