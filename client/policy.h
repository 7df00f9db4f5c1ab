/*
 * The hand for a policy (chapter 12 of kvcache.h): what policy.c, policy_step.c and policy_log.c
 * share. Its memory is sized at birth for the largest layer; steps allocate nothing.
 */
#ifndef KV_CLIENT_POLICY_H
#define KV_CLIENT_POLICY_H

#include "client/policy_planes.h"

enum policy_stage { POLICY_IDLE, POLICY_CHOSEN, POLICY_WRITTEN };

struct kvc_policy {
	kvc_seq *seq;
	struct kvc_policy_options options;
	const struct kvc_policy_ops *ops;
	uint64_t identity;
	/* in the layout; -1: the policy has none */
	int state_plane;
	int side_plane[POLICY_SIDES]; /* numbers among the slot planes */
	size_t *layer_off;            /* [n_layers] in the sequence plane */
	/* of the widest layers: bounded slots (of one and all heads), tokens that are written at a
	 * time */
	uint32_t slots_max, cells_max, piece_tokens, heads_max;

	/* the step of a layer */
	enum policy_stage stage;
	uint32_t layer;
	uint64_t begun; /* seq->n_begun of the update that the choice was made in */
	struct kvc_policy_plan plan;
	struct kvc_policy_layer view; /* of before the update; side values as they are now */
	bool has_fresh_sides;         /* side values are those with the update */
	bool is_settled;              /* the state behind the update is in the planes */

	/* smart-lastrec: given for the update behind so many that were committed */
	bool has_range;
	uint64_t range_committed;
	struct kvc_policy_range range;

	/* [heads][slots] each */
	uint32_t *side[POLICY_SIDES];
	float *scratch;
	uint32_t *slots, *from, *to, *index;
	uint64_t *seen;                /* bitmap over slots */
	char *zeros;                   /* state and scores before the first update */
	uint32_t *fresh[POLICY_SIDES]; /* of new tokens: [piece_tokens][heads] */
	float *value_errors;
};

/* Has an operator rolled back one of the writer's sequences, so that open updates are gone? */
static inline bool policy_is_overtaken(const struct kvc_policy *policy)
{
	const struct kvc_writer *writer = policy->seq->writer;

	return kv_word_update(kv_word_load(writer->shm)) != writer->update;
}

/* Fills a view of the layer as it was committed, without side values. -1 with KVC_EINVAL: the planes
 * are not this policy's. */
int policy_view(const struct kvc_policy *policy, uint32_t layer, struct kvc_policy_layer *view);

/* Most tokens of the next update, for one layer: of a bounded one never more than it has slots. */
uint64_t policy_limit(const struct kvc_policy *policy, const struct kvc_policy_layer *view);

/* Most slots that an update in a log moves for one head of a layer. */
uint64_t policy_log_moves(const kvc_policy_log *log, uint32_t layer);

#endif
