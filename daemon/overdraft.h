/*
 * Pages that a client made by itself. Its arenas and its control segment are sparse and writable
 * for it, so it can put memory behind parts that were not granted. Once a second all pages are
 * counted; a user whose sessions have more of them than was granted, plus an eighth of his limit
 * and at least 64 MiB for rounding and tables, loses the session that has most. Core thread.
 */
#ifndef KV_DAEMON_OVERDRAFT_H
#define KV_DAEMON_OVERDRAFT_H

#include "daemon/state.h"

void overdraft_check(struct core *core);

/* Pages of a session beyond what its arenas' blocks account for, in bytes. */
uint64_t overdraft_of(const struct session *session);

#endif
