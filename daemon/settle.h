/*
 * What a core that takes an earlier one's memory up does behind its first answers, for it takes time
 * as there are bytes: full blocks whose digest is known are read and compared. What is not what it
 * was is counted, and the first of them named in the log; `verify` names them all.
 *
 * A slice is done every millisecond, so that requests wait for little and other processes have
 * their share of the machine. What is added meanwhile is not looked at: it was not known before.
 * Beside it the locker (daemon/locker.h) locks what it finds, and what nobody has is zeroed as
 * always (daemon/arena_store.h).
 *
 * Core thread. Arenas and blocks may go at any time between two slices.
 */
#ifndef KV_DAEMON_SETTLE_H
#define KV_DAEMON_SETTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/block_digest.h"
#include "daemon/loop.h"

struct core;

struct settle {
	bool is_heir; /* of an earlier core */
	bool is_verifying;
	struct loop_timer timer;
	uint64_t arena_id; /* where it is */
	uint32_t block;
	struct block_digest digest; /* of that block */
	/* gauges; when it is done, the two of verification are what was done */
	uint64_t to_lock_bytes, verified_bytes, to_verify_bytes, n_bad_blocks;
};

/* Everything is loaded. Embedded in struct core. */
void settle_begin(struct core *core);
void settle_fini(struct core *core);

#endif
