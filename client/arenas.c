/*
 * Arenas: descriptors asked for over the attach socket, mapped once, found without a call.
 *
 * The daemon's word about an arena is checked against its layout before anything is mapped: the
 * size must be the one that the blocks need, the descriptor must have it and be sealed against
 * shrinking (a load behind the end of a file is SIGBUS). Arenas of others are mapped read-only;
 * the kernel would refuse more. Nothing is inherited by a child, nothing goes into a core dump.
 *
 * The control segment says which arena has a number. When that has changed, the daemon knows that
 * nothing of this session uses the old one, and its mapping is replaced. Thread: any; readers of
 * session->arenas take no lock.
 */
#include "client/arenas.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client/error.h"
#include "client/layout.h"
#include "client/link.h"

static void arena_free(struct arena_map *map)
{
	if (!map)
		return;
	if (map->base)
		munmap(map->base, map->n_bytes);
	free(map->region_off);
	free(map->owned);
	free(map);
}

static uint64_t current_id(const struct kvc_session *session, uint32_t arena)
{
	char *segment = (char *)session->segment;
	_Atomic uint64_t *ids = (void *)(segment + session->segment->arenas_off);

	return atomic_load_explicit(&ids[arena], memory_order_acquire);
}

/* Does the layout need what the daemon says? Fills region_off. */
static int check_info(struct arena_map *map, const Kv__Wire__ArenaInfo *info)
{
	const struct kv_layout *layout = map->layout;
	uint64_t n_bytes = 0;

	if (info->group < layout->n_groups && info->n_blocks > 0 &&
	    info->n_blocks - 1 <= KV_REF_BLOCK_MAX) {
		map->region_off = calloc(layout->groups[info->group].n_regions + 1,
					 sizeof(map->region_off[0]));
		if (!map->region_off)
			return kvc_fail(KV_ENOMEM, "no memory for arena %u", map->number);
		n_bytes = kv_layout_arena(layout, info->group, info->n_blocks, map->region_off);
	}
	if (n_bytes == 0 || n_bytes != info->n_bytes)
		return kvc_fail(
			KV_EPROTO,
			"the daemon's arena %u (group %u, %u blocks, %llu bytes) does not fit "
			"its layout",
			map->number, info->group, info->n_blocks,
			(unsigned long long)info->n_bytes);
	return 0;
}

static int check_file(const struct arena_map *map, int fd)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (fstat(fd, &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size < map->n_bytes)
		return kvc_fail(KV_EPROTO, "the daemon's arena %u has a file that is too small",
				map->number);
	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
		return kvc_fail(KV_EPROTO, "the daemon's arena %u is not sealed", map->number);
	return 0;
}

static int map_file(struct arena_map *map, int fd)
{
	int protection = map->writable ? PROT_READ | PROT_WRITE : PROT_READ;
	void *base = mmap(NULL, map->n_bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);

	if (base == MAP_FAILED)
		return errbuf_errno(kvc_err(), KV_ENOMEM, errno,
				    "cannot map arena %u of %llu bytes (limits: ulimit -v, "
				    "vm.max_map_count)",
				    map->number, (unsigned long long)map->n_bytes);
	map->base = base;
	madvise(base, map->n_bytes, MADV_DONTFORK);
	madvise(base, map->n_bytes, MADV_DONTDUMP);
	if (!map->writable)
		return 0;
	map->owned = calloc(map->n_blocks, sizeof(map->owned[0]));
	if (!map->owned)
		return kvc_fail(KV_ENOMEM, "no memory for the books of arena %u", map->number);
	return 0;
}

static struct arena_map *arena_new(struct kvc_session *session, uint32_t arena,
				   const struct attach_answer *answer)
{
	const Kv__Wire__ArenaInfo *info = answer->reply->arena;
	struct kvc_layout *layout;
	struct arena_map *map;

	if (answer->reply->what_case != KV__WIRE__ATTACH_REPLY__WHAT_ARENA || answer->fd < 0 ||
	    info->arena != arena || info->arena_id == 0) {
		kvc_fail(KV_EPROTO, "the daemon's answer about arena %u makes no sense", arena);
		return NULL;
	}
	layout = session_layout(session, info->layout_id);
	map = layout ? calloc(1, sizeof(*map)) : NULL;
	if (!map)
		return NULL;
	map->number = arena;
	map->id = info->arena_id;
	map->layout_id = info->layout_id;
	map->group = info->group;
	map->n_blocks = info->n_blocks;
	map->n_bytes = info->n_bytes;
	map->writable = info->writable;
	map->layout = layout->fields;
	if (check_info(map, info) == 0 && check_file(map, answer->fd) == 0 &&
	    map_file(map, answer->fd) == 0)
		return map;
	arena_free(map);
	return NULL;
}

/* Makes it the arena of its number, unless another thread was faster. */
static struct arena_map *publish(struct kvc_session *session, struct arena_map *map)
{
	struct arena_map *old;

	pthread_mutex_lock(&session->link->lock);
	old = session_arena_mapped(session, map->number);
	if (!old || old->id != map->id) {
		atomic_store_explicit(&session->arenas[map->number], map, memory_order_release);
	} else {
		struct arena_map *mine = map;

		map = old;
		old = mine;
	}
	pthread_mutex_unlock(&session->link->lock);
	arena_free(old);
	return map;
}

static struct arena_map *fetch(struct kvc_session *session, uint32_t arena)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__ArenaGet get = KV__WIRE__ARENA_GET__INIT;
	struct attach_answer answer;
	struct arena_map *map;

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_ARENA_GET;
	request.arena_get = &get;
	get.arena = arena;
	if (link_exchange(session->link, &request, -1, &answer, kvc_err()))
		return NULL;
	map = arena_new(session, arena, &answer);
	attach_answer_free(&answer);
	return map ? publish(session, map) : NULL;
}

struct arena_map *session_arena(struct kvc_session *session, uint32_t arena)
{
	struct arena_map *map;

	if (arena == 0 || arena >= KV_ARENAS_MAX) {
		kvc_fail(KV_EPROTO, "arena number %u is not one of 1 to %u", arena,
			 KV_ARENAS_MAX - 1);
		return NULL;
	}
	map = session_arena_mapped(session, arena);
	if (map && map->id == current_id(session, arena))
		return map;
	return fetch(session, arena);
}

void session_arenas_fini(struct kvc_session *session)
{
	for (uint32_t i = 0; i < KV_ARENAS_MAX; i++)
		arena_free(atomic_exchange(&session->arenas[i], NULL));
}
