/*
 * Accounts of the host pool: whose bytes they are and in which state.
 *
 * Promise: live + reserved + cached + quarantined + free = total, after every call. Blocks are
 * counted by their own bytes, once, however many share them, to the user whose session got them.
 * Nothing here touches memory of the pool. Core thread only.
 */
#ifndef KV_DAEMON_POOL_H
#define KV_DAEMON_POOL_H

#include <stdint.h>

#include "proto/errbuf.h"

enum block_class {
	BLOCK_FREE = 0,
	BLOCK_GRANTED = 1,     /* a session's, to write */
	BLOCK_CACHED = 2,      /* only snapshots or parked sequences name it */
	BLOCK_QUARANTINED = 3, /* nobody's, but not clean yet or still writable for someone */
};
#define BLOCK_CLASSES 4

struct pool_user {
	struct pool_user *next;
	uint32_t uid;
	uint32_t n_sessions;
	uint32_t n_objects; /* sequences and snapshots that are listed */
	uint32_t n_jobs;
	uint64_t used_bytes; /* granted, cached and quarantined */
};

struct pool {
	uint64_t total_bytes;
	uint64_t user_bytes_max; /* of one user; 0: the pool */
	uint64_t class_bytes[BLOCK_CLASSES];
	uint64_t warm_bytes; /* of the free ones: memory is still behind them (daemon/arena.h) */
	struct pool_user *users;
};

struct pool_gauges {
	uint64_t total_bytes, live_bytes, reserved_bytes, cached_bytes, quarantined_bytes,
		free_bytes;
};

void pool_init(struct pool *pool, uint64_t total_bytes, uint64_t user_bytes_max);
void pool_fini(struct pool *pool);

/* The account of a user, made if it is new; lives as long as the pool. NULL: no memory. */
struct pool_user *pool_user(struct pool *pool, uint32_t uid);

/* What a user may have in all. */
uint64_t pool_user_limit(const struct pool *pool);

/* May a user get so many bytes more? -1: KV_EQUOTA or KV_EPOOL with the numbers. */
int pool_check(const struct pool *pool, const struct pool_user *user, uint64_t n_bytes,
	       struct errbuf *err);

/* Moves bytes of a user from one state to another. */
void pool_move(struct pool *pool, struct pool_user *user, enum block_class from,
	       enum block_class to, uint64_t n_bytes);

/* claimed_bytes: what sessions say they have in reserve; believed up to what was granted. */
void pool_gauges(const struct pool *pool, uint64_t claimed_bytes, struct pool_gauges *gauges);

#endif
