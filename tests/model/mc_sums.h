/*
 * Attention in f64 over listed keys: what kvc_attend is compared with. Scores are kept small
 * whatever the vectors are like, so that every key that is seen weighs about as much as another: a
 * key too many, too few or wrong shows. Vectors are taken as kvc_read gives them, rounded to the
 * dtype, which kvc_attend does not: the tolerance is for that.
 */
#ifndef KVCACHED_TESTS_MODEL_MC_SUMS_H
#define KVCACHED_TESTS_MODEL_MC_SUMS_H

#include "tests/model/mc.h"

#define MC_KEYS 320u     /* of a head, at most */
#define MC_WIDTH_MAX 64u /* elements of a vector that a world draws, at most */

/* The keys of one head: K of each, and behind it V. */
struct mc_keys {
	struct mc_world *w;
	const char *what; /* whose they are, for a failure */
	uint32_t layer, head, k_width, v_width;
	uint64_t n;
	const char *vectors[MC_KEYS];
	bool is_seen[MC_KEYS]; /* by the query that is looked at */
};

/* The largest magnitude in K; not finite if an element of K or V is not: raw formats keep all. */
double mc_keys_largest(const struct mc_keys *keys);

/* n elements of queries of that width, for keys that are no larger than that. */
void mc_draw_queries(struct mc_world *w, float *q, uint64_t n, uint32_t k_width, double largest);

/* out of a query (number and query head say which) is what the keys that it sees make of their
 * values; their weights are added to weights[n]. */
void mc_expect_out(const struct mc_keys *keys, uint64_t query, uint32_t query_head, const float *q,
		   const float *out, double *weights);

void mc_expect_weight(const struct mc_keys *keys, uint64_t slot, double expected, float got);

#endif
