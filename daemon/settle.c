#include "daemon/settle.h"

#include <string.h>

#include "daemon/arena_store.h"
#include "daemon/state.h"

#define SLICE_BYTES (UINT64_C(2) << 20)
#define PAUSE_NS LOOP_NS_PER_MS
#define NAMED_MAX 16u

/* The arena where it is, or the next one: from its beginning. NULL: there is none any more. */
static struct arena *arena_now(struct core *core)
{
	struct settle *settle = &core->settle;
	size_t i = settle->arena_id ? idlist_after(&core->arenas, settle->arena_id - 1) : 0;
	struct arena *arena = i < core->arenas.n ? core->arenas.items[i].thing : NULL;

	if (arena && arena->id != settle->arena_id) {
		settle->arena_id = arena->id;
		settle->block = 0;
		block_digest_restart(&settle->digest);
	}
	return arena;
}

static void next_arena(struct settle *settle)
{
	settle->arena_id++;
	settle->block = 0;
	block_digest_restart(&settle->digest);
}

/* ---- verification ------------------------------------------------------------------------- */

static int64_t read_chunk(struct settle *settle, const struct arena *arena)
{
	return block_digest_step(&settle->digest, arena, settle->block, arena->layout->block_tokens,
				 NULL);
}

/* All has been read. */
static bool is_as_known(struct settle *settle, const struct arena *arena)
{
	const struct kv_block_digest *known = arena_digest(arena, settle->block);
	struct kv_block_digest now;

	block_digest_end(&settle->digest, &now);
	return !known || memcmp(known->bytes, now.bytes, sizeof(known->bytes)) == 0;
}

/* All of it at once: what was read in several slices may have become another block meanwhile. */
static bool is_bad(struct settle *settle, const struct arena *arena)
{
	block_digest_restart(&settle->digest);
	while (!block_digest_is_read(&settle->digest, arena))
		if (read_chunk(settle, arena) < 0)
			return true;
	return !is_as_known(settle, arena);
}

static const char *name_of(const struct core *core, const struct state *state)
{
	for (size_t i = 0; i < core->objects.n; i++) {
		const struct object *object = core->objects.items[i].thing;

		if (object->state == state && object->name)
			return object->name;
	}
	return NULL;
}

/* Of what it is a part, for people; something without name if nothing has one. */
static const char *owner_of(const struct core *core, uint64_t gref, uint32_t group)
{
	for (size_t i = 0; i < core->states.n; i++) {
		const struct state *state = core->states.items[i].thing;
		const char *name = NULL;

		for (uint64_t b = 0; !name && b < state->n_blocks[group]; b++)
			if (state->refs[group][b] == gref)
				name = name_of(core, state);
		if (name)
			return name;
	}
	return "something without name";
}

static void note_bad(struct core *core, const struct arena *arena)
{
	struct settle *settle = &core->settle;

	settle->n_bad_blocks++;
	if (settle->n_bad_blocks > NAMED_MAX)
		return;
	log_error("core",
		  "block %u of arena %llu, of %s, is not what it was; see kvcachectl verify",
		  settle->block, (unsigned long long)arena->id,
		  owner_of(core, gref_make(arena->id, settle->block), arena->group));
}

/* To the next block whose digest is known; false: the arena is done. */
static bool find_known(struct settle *settle, const struct arena *arena)
{
	while (settle->block < arena->n_blocks && !arena_digest(arena, settle->block)) {
		settle->block++;
		block_digest_restart(&settle->digest);
	}
	return settle->block < arena->n_blocks;
}

/* A chunk of the block where it is, and what follows from the last. Returns its bytes. */
static uint64_t verify_chunk(struct core *core, const struct arena *arena)
{
	struct settle *settle = &core->settle;
	int64_t n = read_chunk(settle, arena);
	bool failed = n < 0;

	if (!failed && !block_digest_is_read(&settle->digest, arena))
		return (uint64_t)n;
	if ((failed || !is_as_known(settle, arena)) && is_bad(settle, arena))
		note_bad(core, arena);
	settle->verified_bytes += arena->block_bytes;
	settle->block++;
	block_digest_restart(&settle->digest);
	return failed ? BLOCK_DIGEST_CHUNK_BYTES : (uint64_t)n;
}

static bool verify_slice(struct core *core)
{
	struct settle *settle = &core->settle;
	uint64_t n = 0;

	while (n < SLICE_BYTES) {
		const struct arena *arena = arena_now(core);

		if (!arena)
			return false;
		if (find_known(settle, arena))
			n += verify_chunk(core, arena);
		else
			next_arena(settle);
	}
	return true;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static void stop(struct settle *settle)
{
	settle->is_verifying = false;
	settle->to_verify_bytes = settle->verified_bytes;
	block_digest_free(&settle->digest);
}

static void on_timer(void *arg)
{
	struct core *core = arg;

	if (!verify_slice(core) || loop_timer_in(core->env->loop, &core->settle.timer, PAUSE_NS))
		stop(&core->settle);
}

static uint64_t known_bytes(const struct arena *arena)
{
	uint64_t n = 0;

	for (uint32_t b = 0; arena->digest_known && b < arena->n_blocks; b++)
		n += arena_digest(arena, b) != NULL;
	return n * arena->block_bytes;
}

void settle_begin(struct core *core)
{
	struct settle *settle = &core->settle;

	settle->is_heir = true;
	for (size_t i = 0; i < core->arenas.n; i++) {
		const struct arena *arena = core->arenas.items[i].thing;

		if (core->memory.want_mlock)
			settle->to_lock_bytes += arena_resident_bytes(arena);
		settle->to_verify_bytes += known_bytes(arena);
	}
	if (settle->to_verify_bytes == 0)
		return;
	settle->timer.fn = on_timer;
	settle->timer.arg = core;
	settle->is_verifying = true;
	if (block_digest_make(&settle->digest) ||
	    loop_timer_in(core->env->loop, &settle->timer, PAUSE_NS))
		state_die("no memory for what follows a start");
}

void settle_fini(struct core *core)
{
	loop_timer_cancel(core->env->loop, &core->settle.timer);
	if (core->settle.is_verifying)
		stop(&core->settle);
}
