/*
 * What a core that takes an earlier one's memory up does behind its first answers, for it takes time
 * as there are bytes:
 *
 *   locking       pages that are there are mapped, and so locked (mlock = try); the mapping of a
 *                 new core has none of them
 *   verification  full blocks whose digest is known are read and compared: what is not what it
 *                 was is counted, and the first of them named in the log; `verify` names them all
 *
 * Blocks that nobody has are zeroed beside it as always (daemon/arena_store.h). A slice of each is
 * done every millisecond, so that requests wait for little and other processes have their share of
 * the machine. What is added meanwhile is not looked at: it was locked, or not known, before.
 *
 * Core thread. Arenas and blocks may go at any time between two slices.
 */
#ifndef KV_DAEMON_SETTLE_H
#define KV_DAEMON_SETTLE_H

#include <stdbool.h>
#include <stdint.h>

#include <xxhash.h>

#include "daemon/loop.h"

struct core;

enum settle_phase { SETTLE_DONE = 0, SETTLE_LOCKING, SETTLE_VERIFYING };

struct settle {
	bool is_heir; /* of an earlier core */
	enum settle_phase phase;
	struct loop_timer timer;
	uint64_t arena_id; /* where it is */
	uint64_t off;      /* locking: in the arena */
	uint32_t block;    /* verification */
	uint32_t region;
	uint64_t region_off; /* in the piece */
	XXH3_state_t *digest;
	char *buffer;
	/* gauges; when it is done, both are what was done */
	uint64_t locked_bytes, to_lock_bytes, verified_bytes, to_verify_bytes, n_bad_blocks;
};

/* Everything is loaded. Embedded in struct core. */
void settle_begin(struct core *core);
void settle_fini(struct core *core);

#endif
