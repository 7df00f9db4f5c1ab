/* An update as the model check makes it: mc_update.c, and its scatter calls, mc_scatter.c. */
#ifndef KV_TESTS_MODEL_MC_PLAN_H
#define KV_TESTS_MODEL_MC_PLAN_H

#include "tests/model/mc.h"

/* Room for K or V of what one call of an update writes. */
#define MC_PLAN_BYTES (MC_TOKENS * MC_HEADS * 2048u)

/* An update as it is being made: a state after each token, and one of all. */
struct mc_plan {
	struct mc_seq *s;
	bool is_bad; /* something cannot be stored: it was refused, and is to be aborted */
	uint64_t n_tokens;
	uint32_t flags;
	struct mc_state *states[MC_TOKENS + 1]; /* after token t + 1; the last: after the whole */
	uint32_t token_rows[MC_TOKENS];
	uint32_t extra_rows;
	bool sets_planes;
	bool is_inner;
};

/* The slot planes of a cell that count. */
static inline uint32_t *mc_planes_of(struct mc_cell *c)
{
	return c->row ? c->row_plane : c->plane;
}

/* A scatter call of the open update. False: refused for good; the update is to be aborted. */
bool mc_scatter(struct mc_world *w, struct mc_plan *p);

#endif
