/*
 * One sequence with a policy over bare memory, for unit tests: updates whose vectors and weights
 * follow from the token. What goes wrong is an assertion.
 */
#ifndef KVCACHED_TESTS_UNIT_POLICY_CACHE_H
#define KVCACHED_TESTS_UNIT_POLICY_CACHE_H

#include "tests/unit/journal-world.h"

#define PC_WIDTH 16u

struct pc {
	struct jw *w;
	uint32_t n_layers, n_heads; /* of each layer */
	struct kvc_policy_options options;
	kvc_seq *seq;
	kvc_policy *policy;
	kvc_policy_log *log; /* not NULL: updates are added */
};

/* Layers with these bounds (0: none), n_heads heads each. */
struct pc pc_new(const struct kvc_policy_options *options, uint32_t n_layers,
		 const uint32_t *bounds, uint32_t n_heads, uint32_t format,
		 enum kvc_journal_mode mode);
void pc_free(struct pc *c);

kvc_seq *pc_seq(struct pc *c, enum kvc_journal_mode mode);
void pc_reserve(struct pc *c, uint64_t n_tokens);

/* Begins, chooses, writes, scores, commits: n tokens behind those that are there. */
void pc_update(struct pc *c, uint64_t n_tokens);
void pc_begin(struct pc *c, uint64_t n_tokens);
/* Writes, and scores, what was chosen for a layer. */
int64_t pc_write(struct pc *c, uint32_t layer, uint64_t n_tokens);
int64_t pc_score(struct pc *c, uint32_t layer, uint64_t n_tokens);

/* Positions of a layer, [slots][heads]; returns how many slots. */
uint32_t pc_positions(struct pc *c, kvc_seq *seq, uint32_t layer, int32_t *to);

/* Every slot of every layer has the vectors of the token that its position names. */
void pc_assert_vectors(struct pc *c, kvc_seq *seq);

#endif
