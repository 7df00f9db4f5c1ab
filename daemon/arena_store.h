/*
 * All arenas of the core: granting runs of blocks from a session's arenas, making another arena
 * when they are full, zeroing what was given back, dropping what nobody uses. Core thread.
 */
#ifndef KV_DAEMON_ARENA_STORE_H
#define KV_DAEMON_ARENA_STORE_H

#include "daemon/state.h"

/* Zeroing in one go after a command; the rest is done a slice a round of the loop. */
#define SCRUB_INLINE_BYTES (UINT64_C(8) << 20)

struct arena *arenas_find(const struct core *core, uint64_t id);

/* After grants or pins of an arena went: puts it in line for zeroing, or drops it when it is
 * empty and its session gone. The arena may be freed. */
void arenas_touch(struct core *core, struct arena *arena);

/* Zeroes up to max_bytes; true if there is more to do. */
bool arenas_scrub(struct core *core, uint64_t max_bytes);

/* After grants: zeroes warm blocks until all memory is within the pool again. */
void arenas_make_room(struct core *core);

/* Once a tick: zeroes warm blocks of arenas that nobody has used since the last. */
void arenas_cool_idle(struct core *core);

struct grant {
	struct arena *arena;
	uint32_t first, n_blocks;
	bool is_warm; /* memory is there already */
};

struct grant_list {
	struct grant grants[KV_RUNS_MAX];
	uint32_t n;
};

/* What a session asks for; see Need in proto/kvcache.proto. */
struct grant_need {
	const struct layout_entry *layout;
	uint32_t group;
	uint32_t n_blocks;
	struct arena *after_arena; /* NULL: anywhere */
	uint32_t after_block;
	bool contiguous;
};

/*
 * Finds blocks and marks them granted, without logging it. 0, or -1 with err; what was added to
 * the list by earlier calls stays and is taken back with grants_undo().
 */
int grants_add(struct session *session, const struct grant_need *need, struct grant_list *list,
	       struct errbuf *err);
void grants_undo(struct core *core, struct grant_list *list);
void grants_log(struct core *core, const struct grant_list *list);

/* The session has ended: takes its grants back; `gone`: nobody can write its arenas any more. */
void arenas_end_session(struct session *session, bool gone);

/*
 * An arena that no session ever writes, of exactly n_blocks, all of them granted, for the core to
 * fill with pinned blocks of the user's. NULL with err (KV_EPOOL, KV_EQUOTA, KV_ELIMIT). Given back
 * with arenas_give_up() before or after blocks of it are pinned: those stay.
 */
struct arena *arenas_make_own(struct core *core, const struct layout_entry *layout, uint32_t group,
			      uint32_t n_blocks, struct pool_user *user, struct errbuf *err);
void arenas_give_up(struct core *core, struct arena *arena);

/* Takes an arena of the catalogue up at a start. */
int arenas_load(struct core *core, const struct arena_spec *spec, uint32_t uid, int fd,
		struct errbuf *err);
void arenas_unload(struct core *core, struct arena *arena);

#endif
