#include "daemon/overdraft.h"

#include "daemon/session.h"

#define ALLOWED_BYTES_MIN (UINT64_C(64) << 20)

static uint64_t accounted_bytes(const struct arena *arena)
{
	uint64_t n = arena->n_warm;

	for (uint32_t w = 0; w <= arena->n_blocks / 64; w++)
		n += (uint64_t)__builtin_popcountll(arena->used[w]);
	return n * arena->block_bytes;
}

/* Edges of runs; with huge pages they are wide. */
static uint64_t rounding_bytes(const struct core *core, const struct arena *arena)
{
	return arena->layout->groups[arena->group].n_regions *
	       (core->memory.got_huge ? UINT64_C(4) << 20 : UINT64_C(8) << 10);
}

uint64_t overdraft_of(const struct session *session)
{
	uint64_t bytes = 0;

	if (session->segment.base)
		bytes += segment_resident_bytes(&session->segment);
	for (const struct arena *a = session->arenas; a; a = a->next_in_session) {
		uint64_t resident = arena_resident_bytes(a);
		uint64_t accounted = accounted_bytes(a) + rounding_bytes(session->core, a);

		bytes += resident > accounted ? resident - accounted : 0;
	}
	return bytes;
}

/* Of one user: the session with most, and the sum. */
static struct session *worst_of(const struct core *core, uint32_t uid, uint64_t *sum)
{
	struct session *worst = NULL;
	uint64_t most = 0;

	*sum = 0;
	for (size_t i = 0; i < core->sessions.n; i++) {
		struct session *session = core->sessions.items[i].thing;
		uint64_t bytes;

		if (session->uid != uid || session->phase == SESSION_ENDED)
			continue;
		bytes = overdraft_of(session);
		*sum += bytes;
		if (bytes >= most) {
			most = bytes;
			worst = session;
		}
	}
	return worst;
}

void overdraft_check(struct core *core)
{
	uint64_t allowed = pool_user_limit(&core->pool) / 8;

	if (allowed < ALLOWED_BYTES_MIN)
		allowed = ALLOWED_BYTES_MIN;
	for (const struct pool_user *user = core->pool.users; user; user = user->next) {
		uint64_t sum;
		struct session *worst = worst_of(core, user->uid, &sum);

		if (!worst || sum <= allowed)
			continue;
		log_warn("session",
			 "user %u has put %llu bytes of memory behind what was not "
			 "granted, %llu are allowed",
			 user->uid, (unsigned long long)sum, (unsigned long long)allowed);
		session_end(worst, "it uses memory that was not granted");
	}
}
