/*
 * Policies and attention together, as a model uses them: kvc_attend is given the slots that were
 * chosen, and its weights go to the policy. What the weights must be follows from the positions that
 * the slots have when the update is committed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/unit/policy-cache.h"

#define SLOTS 40u
#define HEADS 2u
#define TOKENS 3u /* of an update */

static void vectors(struct pc *c, bool is_value, uint64_t first, float *to)
{
	for (uint32_t i = 0; i < TOKENS * HEADS; i++)
		jw_vector(c->w, 0, is_value, i % HEADS, first + i / HEADS, to + i * PC_WIDTH);
}

/* One update through attention; its weights, [heads][slots]. */
static void update(struct pc *c, float *weights)
{
	float k[TOKENS * HEADS * PC_WIDTH], v[TOKENS * HEADS * PC_WIDTH];
	float q[TOKENS * HEADS * PC_WIDTH], out[TOKENS * HEADS * PC_WIDTH];
	struct kvc_attend_args args = {.size = sizeof(args),
				       .n_query_heads = HEADS,
				       .n_tokens = TOKENS,
				       .q = q,
				       .k = k,
				       .v = v,
				       .out = out,
				       .scale = 0.005f,
				       .weights = weights};
	struct kvc_policy_plan plan;

	vectors(c, false, kvc_position(c->seq), k);
	vectors(c, true, kvc_position(c->seq), v);
	memcpy(q, k, sizeof(q));
	pc_begin(c, TOKENS);
	jw_ok(kvc_policy_choose(c->policy, 0, TOKENS, &plan));
	jw_ok(kvc_policy_write(c->policy, 0, k, v, NULL, NULL));
	args.slots = plan.slots;
	args.shared_slots = plan.shared;
	jw_ok(kvc_attend(c->seq, 0, &args));
	jw_ok(kvc_policy_score(c->policy, 0, weights));
	jw_ok(kvc_commit(c->w->writer, &c->seq, 1));
}

/* Adds the weights of one query. */
static void add_query(struct pc *c, const int32_t *positions, uint32_t n_slots, uint32_t head,
		      uint64_t position, double *sums)
{
	float q[PC_WIDTH], k[PC_WIDTH];
	double e[SLOTS], all = 0;

	jw_vector(c->w, 0, false, head, position, q);
	for (uint32_t slot = 0; slot < n_slots; slot++) {
		int32_t p = positions[slot * HEADS + head];
		double score = 0;

		jw_vector(c->w, 0, false, head, (uint64_t)p, k);
		for (uint32_t j = 0; j < PC_WIDTH; j++)
			score += (double)q[j] * k[j];
		e[slot] = (uint64_t)p <= position ? exp(0.005 * score) : 0;
		all += e[slot];
	}
	for (uint32_t slot = 0; slot < n_slots; slot++)
		sums[slot] += e[slot] / all;
}

static void check_weights(struct pc *c, const float *weights)
{
	int32_t positions[SLOTS * HEADS];
	uint32_t n = pc_positions(c, c->seq, 0, positions);

	for (uint32_t h = 0; h < HEADS; h++) {
		double sums[SLOTS] = {0};

		for (uint64_t i = 0; i < TOKENS; i++)
			add_query(c, positions, n, h, kvc_position(c->seq) - TOKENS + i, sums);
		for (uint32_t slot = 0; slot < n; slot++)
			assert_true(fabs(weights[h * n + slot] - sums[slot]) < 1e-4);
	}
}

static void check(const char *name, uint32_t grace, enum kvc_journal_mode mode)
{
	const uint32_t bounds[] = {SLOTS};
	struct kvc_policy_options o = {.size = sizeof(o), .name = name, .grace_tokens = grace};
	struct pc c = pc_new(&o, 1, bounds, HEADS, KV_FORMAT_RAW, mode);
	float weights[SLOTS * HEADS];

	pc_update(&c, SLOTS - 2 * TOKENS);
	for (int i = 0; i < 20; i++) {
		update(&c, weights);
		check_weights(&c, weights);
	}
	pc_assert_vectors(&c, c.seq);
	pc_free(&c);
}

static void test_undo(void **state)
{
	(void)state;
	check("h2o", 0, KVC_JOURNAL_UNDO);
	check("h2o", 2, KVC_JOURNAL_UNDO);
	check("qh2o-vlen", 5, KVC_JOURNAL_UNDO);
	check("lastrec", 0, KVC_JOURNAL_UNDO);
}

static void test_replay(void **state)
{
	(void)state;
	check("h2o", 0, KVC_JOURNAL_REPLAY);
	check("h2o", 2, KVC_JOURNAL_REPLAY);
	check("h2o-vlen", 5, KVC_JOURNAL_REPLAY);
	check("smart-lastrec", 0, KVC_JOURNAL_REPLAY);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("attention over chosen slots weighs the tokens that are there (undo)", test_undo),
	KT_TEST("attention over chosen slots weighs the tokens that are there (replay)",
		test_replay),
};

KT_MAIN(tests)
