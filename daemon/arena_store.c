#include "daemon/arena_store.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/locker.h"
#include "daemon/session.h"
#include "daemon/state_log.h"

struct arena *arenas_find(const struct core *core, uint64_t id)
{
	return idlist_find(&core->arenas, id);
}

static void unlink_from_session(struct core *core, struct arena *arena)
{
	struct session *session = session_find(core, arena->session_id);

	if (!session)
		return;
	for (struct arena **at = &session->arenas; *at; at = &(*at)->next_in_session) {
		if (*at != arena)
			continue;
		*at = arena->next_in_session;
		break;
	}
	if (session->phase == SESSION_ENDED && !session->arenas)
		core->sessions_emptied = true;
}

void arenas_unload(struct core *core, struct arena *arena)
{
	idlist_remove(&core->arenas, arena->id);
	locker_drop(core, arena);
	unlink_from_session(core, arena);
	arena_free(arena);
}

static void drop(struct core *core, struct arena *arena)
{
	uint64_t id = arena->id;

	log_arena_gone(core, id);
	arenas_unload(core, arena);
	if (!core->is_loading)
		state_drop_kept(core, KEPT_ARENA, id);
}

void arenas_touch(struct core *core, struct arena *arena)
{
	if (arena->n_dirty && arena->writer != ARENA_ENDED && !arena->in_dirty_list) {
		arena->in_dirty_list = true;
		arena->next_dirty = core->dirty;
		core->dirty = arena;
		loop_task_add(core->env->loop, &core->work_task);
	}
	if (arena_is_empty(arena) && arena->writer != ARENA_WRITTEN && arena->n_numbers == 0 &&
	    !arena->in_dirty_list && !core->is_loading)
		drop(core, arena);
}

/* Of the pool, this much may be warm. */
#define WARM_PART 8

bool arenas_scrub(struct core *core, uint64_t max_bytes)
{
	while (core->dirty && max_bytes) {
		struct arena *arena = core->dirty;
		uint64_t done;

		if (arena->writer == ARENA_WRITTEN && !arena->is_cold)
			arena_keep_warm(arena, core->pool.total_bytes / WARM_PART);
		done = arena_scrub(arena, max_bytes);

		if (arena->n_dirty && done && arena->writer != ARENA_ENDED)
			return true;
		core->dirty = arena->next_dirty;
		arena->in_dirty_list = false;
		arena->is_cold &= arena->n_dirty > 0;
		max_bytes -= done < max_bytes ? done : max_bytes;
		if (arena->n_dirty == 0 || arena->writer == ARENA_ENDED)
			arenas_touch(core, arena);
		else
			log_warn("arena",
				 "cannot punch holes in arena %llu: its blocks stay in "
				 "quarantine",
				 (unsigned long long)arena->id);
	}
	return core->dirty != NULL;
}

void arenas_make_room(struct core *core)
{
	const struct pool *pool = &core->pool;

	for (size_t i = 0; i < core->arenas.n; i++) {
		if (pool->warm_bytes <= pool->class_bytes[BLOCK_FREE])
			return;
		arena_cool(core->arenas.items[i].thing);
	}
}

void arenas_cool_idle(struct core *core)
{
	for (size_t i = 0; i < core->arenas.n; i++) {
		struct arena *arena = core->arenas.items[i].thing;

		if (arena->n_warm && !arena->was_used)
			arena_cool(arena);
		arena->was_used = false;
	}
}

/* A new arena that the keeper and the list have; it is not logged yet. */
static struct arena *make_kept(struct core *core, struct arena_spec *spec, struct pool_user *user,
			       struct errbuf *err)
{
	struct arena *arena;
	int rc;

	spec->id = core_new_id(core);
	arena = arena_new(spec, -1, &core->pool, user, &core->memory, err);
	if (!arena)
		return NULL;
	rc = keeper_keep(core->env->keeper, KEPT_ARENA, arena->id, arena->fd);
	KV_FAULT_POINT();
	if (rc) {
		errbuf_errno(err, KV_ELIMIT, -rc, "the keeper cannot hold another arena");
		arena_free(arena);
		return NULL;
	}
	if (idlist_add(&core->arenas, arena->id, arena))
		state_die("no memory for the list of arenas");
	return arena;
}

static struct arena *make(struct session *session, const struct grant_need *need,
			  struct errbuf *err)
{
	struct core *core = session->core;
	uint64_t most = core->env->settings->arena_bytes;
	struct arena_spec spec = {.session_id = session->id,
				  .layout_id = need->layout->id,
				  .layout = need->layout->layout,
				  .group = need->group};
	struct arena *arena;

	if (most == 0 || most > core->pool.total_bytes)
		most = core->pool.total_bytes;
	spec.n_blocks = arena_capacity(spec.layout, spec.group, most);
	if (need->contiguous && spec.n_blocks < need->n_blocks)
		spec.n_blocks = need->n_blocks;
	arena = make_kept(core, &spec, session->user, err);
	if (!arena)
		return NULL;
	arena->next_in_session = session->arenas;
	session->arenas = arena;
	log_arena(core, arena);
	if (session_number(session, arena, err) == 0) {
		arenas_unload(core, arena);
		state_drop_kept(core, KEPT_ARENA, spec.id);
		log_arena_gone(core, spec.id);
		return NULL;
	}
	locker_add(core, arena);
	return arena;
}

struct arena *arenas_make_own(struct core *core, const struct layout_entry *layout, uint32_t group,
			      uint32_t n_blocks, struct pool_user *user, struct errbuf *err)
{
	struct arena_spec spec = {.layout_id = layout->id,
				  .layout = layout->layout,
				  .group = group,
				  .n_blocks = n_blocks};
	struct arena *arena;

	if (pool_check(&core->pool, user, n_blocks * layout->layout->groups[group].block_bytes,
		       err))
		return NULL;
	arena = make_kept(core, &spec, user, err);
	if (!arena)
		return NULL;
	arena->writer = ARENA_GONE;
	log_arena(core, arena);
	arena_grant(arena, 0, n_blocks);
	arenas_make_room(core);
	return arena;
}

void arenas_give_up(struct core *core, struct arena *arena)
{
	arena_unmap_pages(arena);
	arena_ungrant(arena, 0, arena->n_blocks);
	arenas_touch(core, arena);
}

int arenas_load(struct core *core, const struct arena_spec *spec, uint32_t uid, int fd,
		struct errbuf *err)
{
	struct session *session = session_find(core, spec->session_id);
	struct pool_user *user = pool_user(&core->pool, uid);
	struct arena *arena;

	if (!user)
		return errbuf_set(err, KV_ENOMEM, "no memory for an account");
	arena = arena_new(spec, fd, &core->pool, user, &core->memory, err);
	if (!arena)
		return -1;
	if (idlist_add(&core->arenas, arena->id, arena))
		state_die("no memory for the list of arenas");
	locker_add(core, arena);
	arena->writer = !session                        ? ARENA_GONE :
			session->phase == SESSION_ENDED ? ARENA_ENDED :
							  ARENA_WRITTEN;
	if (session) {
		arena->next_in_session = session->arenas;
		session->arenas = arena;
	}
	return 0;
}

/* ---- grants ------------------------------------------------------------------------------- */

static bool suits(const struct arena *arena, const struct grant_need *need)
{
	return arena->layout_id == need->layout->id && arena->group == need->group;
}

static int take(struct grant_list *list, struct arena *arena, uint32_t first, uint32_t n_blocks,
		struct errbuf *err)
{
	if (list->n == KV_RUNS_MAX)
		return errbuf_set(err, KV_ELIMIT,
				  "free memory is in more than %u pieces; ask for less at a time",
				  KV_RUNS_MAX);
	list->grants[list->n++] = (struct grant){arena, first, n_blocks,
						 arena_is_warm(arena, first, n_blocks)};
	arena_grant(arena, first, n_blocks);
	return 0;
}

/* Where a run would go on. Returns how many blocks it took, or -1. */
static int64_t take_after(const struct grant_need *need, struct grant_list *list,
			  struct errbuf *err)
{
	struct arena *arena = need->after_arena;
	uint32_t n;

	if (!arena || need->after_block == 0 || !suits(arena, need))
		return 0;
	n = arena_free_at(arena, need->after_block, need->n_blocks);
	if (n == 0 || (need->contiguous && n < need->n_blocks))
		return 0;
	return take(list, arena, need->after_block, n, err) ? -1 : (int64_t)n;
}

/* All that is left as one run, in an arena that is there. 1 taken, 0 not there, -1. */
static int take_run(struct session *session, const struct grant_need *need, uint32_t n_blocks,
		    struct grant_list *list, struct errbuf *err)
{
	for (struct arena *a = session->arenas; a; a = a->next_in_session) {
		int64_t first = suits(a, need) ? arena_find(a, n_blocks) : -1;

		if (first >= 0)
			return take(list, a, (uint32_t)first, n_blocks, err) ? -1 : 1;
	}
	return 0;
}

/* Piece by piece, from arenas that are there. Returns how many blocks are left, or -1. */
static int64_t take_pieces(struct session *session, const struct grant_need *need,
			   uint32_t n_blocks, struct grant_list *list, struct errbuf *err)
{
	for (struct arena *a = session->arenas; a; a = a->next_in_session) {
		int64_t first = suits(a, need) ? arena_next_free(a, 0) : -1;

		while (first >= 0 && n_blocks) {
			uint32_t n = arena_free_at(a, (uint32_t)first, n_blocks);

			if (take(list, a, (uint32_t)first, n, err))
				return -1;
			n_blocks -= n;
			first = arena_next_free(a, (uint32_t)first + n);
		}
	}
	return n_blocks;
}

int grants_add(struct session *session, const struct grant_need *need, struct grant_list *list,
	       struct errbuf *err)
{
	uint64_t block_bytes = need->layout->layout->groups[need->group].block_bytes;
	int64_t left = need->n_blocks, taken;

	if (pool_check(&session->core->pool, session->user, need->n_blocks * block_bytes, err))
		return -1;
	taken = take_after(need, list, err);
	if (taken < 0)
		return -1;
	left -= taken;
	while (left) {
		struct arena *arena;
		int rc = take_run(session, need, (uint32_t)left, list, err);

		if (rc)
			return rc < 0 ? -1 : 0;
		if (!need->contiguous) {
			left = take_pieces(session, need, (uint32_t)left, list, err);
			if (left <= 0)
				return (int)left;
		}
		arena = make(session, need, err);
		if (!arena)
			return -1;
	}
	return 0;
}

/* What was marked may have no memory yet: it is punched, not kept warm. */
void grants_undo(struct core *core, struct grant_list *list)
{
	for (uint32_t i = 0; i < list->n; i++) {
		struct grant *grant = &list->grants[i];

		arena_ungrant(grant->arena, grant->first, grant->n_blocks);
		arena_scrub(grant->arena, UINT64_MAX);
	}
	for (uint32_t i = 0; i < list->n; i++)
		arenas_touch(core, list->grants[i].arena);
	list->n = 0;
}

void grants_log(struct core *core, const struct grant_list *list)
{
	for (uint32_t i = 0; i < list->n; i++)
		log_blocks(core, list->grants[i].arena, list->grants[i].first,
			   list->grants[i].n_blocks, LOG_BLOCKS_GRANTED);
}

void arenas_end_session(struct session *session, bool gone)
{
	struct arena *arena = session->arenas;

	while (arena) {
		struct arena *next = arena->next_in_session;

		if (arena->writer == ARENA_WRITTEN) {
			/* what was given back before is zeroed now: from here on what is dirty
			 * is what the log says, the grants that end here */
			arena_cool(arena);
			arena_scrub(arena, UINT64_MAX);
			arena_end(arena);
		}
		if (gone)
			arena->writer = ARENA_GONE;
		arenas_touch(session->core, arena);
		arena = next;
	}
}
