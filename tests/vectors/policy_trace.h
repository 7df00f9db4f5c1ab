/*
 * Traces of eviction policies (tests/data/policy/ORIGIN says what is in them): their configuration
 * as this library's options, and what an event says about state, slots and weights.
 */
#ifndef KVCACHED_TESTS_VECTORS_POLICY_TRACE_H
#define KVCACHED_TESTS_VECTORS_POLICY_TRACE_H

#include "client/policy/policy.h"
#include "tests/vectors/trace.h"

#define PT_ROWS 4u
#define PT_HEADS 4u
#define PT_SLOTS 96u
#define PT_CELLS (PT_HEADS * PT_SLOTS)

struct pt_setup {
	uint32_t H, L, hs, dtype; /* dtype: KV_DTYPE_... */
	uint32_t max_B;
	struct kvc_policy_options options; /* with a name */
	bool has_exact_scores;
	bool is_orig; /* weights are summed over the batch */
};

/* false: not such a trace, or of a shape that does not fit here. */
bool pt_setup(const struct trace *trace, struct pt_setup *setup);

/* n tokens of an update, or of a prompt. */
bool pt_is_step(const struct trace_event *event);
uint64_t pt_n_tokens(const struct trace_event *event);

/* One value a row, or one for all; `otherwise` if it is not there. */
long pt_number(const struct trace_event *event, const char *name, uint32_t row, long otherwise);

/* The protected range that the event gives to a row; false: none. */
bool pt_range(const struct trace_event *event, uint32_t row, struct kvc_policy_range *range);

/* Of an array of floats (rows, heads, n): those of a row, [heads][n]. NULL: there are none. */
const float *pt_floats(const struct trace_event *event, const char *name,
		       const struct pt_setup *setup, uint32_t row, uint64_t n);

/* Weights of a row, over the batch where the policy wants that; `to` is room for them. */
const float *pt_weights(const struct trace_event *event, const struct pt_setup *setup,
			uint32_t n_rows, uint32_t row, uint32_t n_used, float to[PT_CELLS]);

/* Slots that an update names for a head: what it chose, in token order, and those of the grace
 * period behind. n is what it may at most be. */
uint32_t pt_slots(const struct trace_event *event, const struct pt_setup *setup, uint32_t row,
		  uint32_t head, const long **chosen, const long **grace);

/* Are these the slots of the trace? Where a later token of the update has the slot too, a plan says
 * KVC_POLICY_NONE. */
bool pt_plan_is(const struct trace_event *event, const struct pt_setup *setup, uint32_t row,
		const struct kvc_policy_plan *plan);

/* The plan becomes that of the trace. */
void pt_take_plan(const struct trace_event *event, const struct pt_setup *setup, uint32_t row,
		  struct kvc_policy_plan *plan);

#endif
