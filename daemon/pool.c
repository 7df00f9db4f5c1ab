#include "daemon/pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void pool_init(struct pool *pool, uint64_t total_bytes, uint64_t user_bytes_max)
{
	memset(pool, 0, sizeof(*pool));
	pool->total_bytes = total_bytes;
	pool->user_bytes_max = user_bytes_max;
	pool->class_bytes[BLOCK_FREE] = total_bytes;
}

void pool_fini(struct pool *pool)
{
	while (pool->users) {
		struct pool_user *next = pool->users->next;

		free(pool->users);
		pool->users = next;
	}
}

struct pool_user *pool_user(struct pool *pool, uint32_t uid)
{
	struct pool_user *user;

	for (user = pool->users; user; user = user->next)
		if (user->uid == uid)
			return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->uid = uid;
	user->next = pool->users;
	pool->users = user;
	return user;
}

uint64_t pool_user_limit(const struct pool *pool)
{
	return pool->user_bytes_max ? pool->user_bytes_max : pool->total_bytes;
}

int pool_check(const struct pool *pool, const struct pool_user *user, uint64_t n_bytes,
	       struct errbuf *err)
{
	uint64_t limit = pool_user_limit(pool);
	uint64_t left = user->used_bytes < limit ? limit - user->used_bytes : 0;

	if (n_bytes > left && pool->user_bytes_max)
		return errbuf_set(err, KV_EQUOTA,
				  "%llu more bytes: user %u has %llu of its quota of %llu in use; "
				  "free sequences or raise bytes_per_user",
				  (unsigned long long)n_bytes, user->uid,
				  (unsigned long long)user->used_bytes, (unsigned long long)limit);
	if (n_bytes > pool->class_bytes[BLOCK_FREE])
		return errbuf_set(err, KV_EPOOL,
				  "%llu more bytes: the host pool has %llu of %llu free; free "
				  "sequences or raise the pool's size",
				  (unsigned long long)n_bytes,
				  (unsigned long long)pool->class_bytes[BLOCK_FREE],
				  (unsigned long long)pool->total_bytes);
	return 0;
}

void pool_move(struct pool *pool, struct pool_user *user, enum block_class from,
	       enum block_class to, uint64_t n_bytes)
{
	assert(pool->class_bytes[from] >= n_bytes);
	pool->class_bytes[from] -= n_bytes;
	pool->class_bytes[to] += n_bytes;
	if (from == BLOCK_FREE && to != BLOCK_FREE)
		user->used_bytes += n_bytes;
	if (to == BLOCK_FREE && from != BLOCK_FREE) {
		assert(user->used_bytes >= n_bytes);
		user->used_bytes -= n_bytes;
	}
}

void pool_gauges(const struct pool *pool, uint64_t claimed_bytes, struct pool_gauges *gauges)
{
	uint64_t granted = pool->class_bytes[BLOCK_GRANTED];

	gauges->total_bytes = pool->total_bytes;
	gauges->reserved_bytes = claimed_bytes < granted ? claimed_bytes : granted;
	gauges->live_bytes = granted - gauges->reserved_bytes;
	gauges->cached_bytes = pool->class_bytes[BLOCK_CACHED];
	gauges->quarantined_bytes = pool->class_bytes[BLOCK_QUARANTINED];
	gauges->free_bytes = pool->class_bytes[BLOCK_FREE];
}
