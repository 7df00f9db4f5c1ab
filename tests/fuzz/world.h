/*
 * A core in the fuzz target's process, with something in it: session A of user 1000 has a layout
 * (two layer groups, one bounded, a journal and sequence planes), writer 0, the sequence "seq" of 10
 * tokens in place 0, four more blocks, a spare place, a snapshot "snap" and a parked fork "fork";
 * then the sequence "deep" with a replay journal and three versions of the planes, of which there
 * is a snapshot "deep-snap"; session B, of another user,
 * has nothing. Both belong to this process, so that nothing has to be forked. Thread: one.
 */
#ifndef KVCACHED_TESTS_FUZZ_WORLD_H
#define KVCACHED_TESTS_FUZZ_WORLD_H

#include "tests/support/fake_links.h"

#define WORLD_BLOCK_TOKENS 4u

struct world {
	struct fake_core *f;
	struct fake_client *a, *b;
	uint64_t layout_id;
};

struct world *world_new(void);
void world_free(struct world *w);

/* Of a client that is not killed, for it is us. */
void world_leave(struct fake_client *c);

/* Ends this life of the core; the clients attach again. False: the next did not come up. */
bool world_restart(struct world *w);

#endif
