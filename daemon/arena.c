#include "daemon/arena.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* ---- bits --------------------------------------------------------------------------------- */

static bool bit(const uint64_t *map, uint32_t i)
{
	return map[i / 64] >> i % 64 & 1;
}

static void bit_set(uint64_t *map, uint32_t i)
{
	map[i / 64] |= UINT64_C(1) << i % 64;
}

static void bit_clear(uint64_t *map, uint32_t i)
{
	map[i / 64] &= ~(UINT64_C(1) << i % 64);
}

/* First index in [from, end) whose bit is `value`; end if there is none. */
static uint32_t bit_next(const uint64_t *map, uint32_t from, uint32_t end, bool value)
{
	while (from < end) {
		uint64_t word = (value ? map[from / 64] : ~map[from / 64]) >> from % 64;

		if (word) {
			from += (uint32_t)__builtin_ctzll(word);
			return from < end ? from : end;
		}
		from = (from / 64 + 1) * 64;
	}
	return end;
}

/* ---- books -------------------------------------------------------------------------------- */

static enum block_class class_of(const struct arena *arena, uint32_t block)
{
	if (bit(arena->granted, block))
		return BLOCK_GRANTED;
	if (arena->pins[block])
		return BLOCK_CACHED;
	return bit(arena->dirty, block) ? BLOCK_QUARANTINED : BLOCK_FREE;
}

/* After a change of one block: moves it in the accounts and keeps `used` and its counts. */
static void account(struct arena *arena, uint32_t block, enum block_class before)
{
	enum block_class now = class_of(arena, block);

	if (now == before)
		return;
	pool_move(arena->pool, arena->user, before, now, arena->block_bytes);
	if (now != BLOCK_FREE) {
		bit_set(arena->used, block);
		if (block == arena->first_free)
			arena->first_free++;
		return;
	}
	bit_clear(arena->used, block);
	if (block < arena->first_free)
		arena->first_free = block;
}

static void set_dirty(struct arena *arena, uint32_t block)
{
	if (bit(arena->dirty, block))
		return;
	bit_set(arena->dirty, block);
	arena->n_dirty++;
}

static void clear_dirty(struct arena *arena, uint32_t block)
{
	if (!bit(arena->dirty, block))
		return;
	bit_clear(arena->dirty, block);
	arena->n_dirty--;
}

static void clear_warm(struct arena *arena, uint32_t block)
{
	if (!bit(arena->warm, block))
		return;
	bit_clear(arena->warm, block);
	arena->n_warm--;
	arena->pool->warm_bytes -= arena->block_bytes;
}

bool arena_is_warm(const struct arena *arena, uint32_t first, uint32_t n_blocks)
{
	return bit_next(arena->warm, first, first + n_blocks, false) == first + n_blocks;
}

int64_t arena_next_free(const struct arena *arena, uint32_t from)
{
	uint32_t first = from > arena->first_free ? from : arena->first_free;

	first = bit_next(arena->used, first, arena->n_blocks, false);
	return first < arena->n_blocks ? (int64_t)first : -1;
}

uint32_t arena_free_at(const struct arena *arena, uint32_t first, uint32_t n_blocks)
{
	uint32_t end = arena->n_blocks;

	if (first >= end)
		return 0;
	if (n_blocks < end - first)
		end = first + n_blocks;
	return bit_next(arena->used, first, end, true) - first;
}

int64_t arena_find(const struct arena *arena, uint32_t n_blocks)
{
	int64_t first = arena_next_free(arena, 0);

	while (first >= 0) {
		uint32_t n = arena_free_at(arena, (uint32_t)first, n_blocks);

		if (n >= n_blocks)
			return first;
		first = arena_next_free(arena, (uint32_t)first + n);
	}
	return -1;
}

bool arena_is_granted(const struct arena *arena, uint32_t first, uint32_t n_blocks)
{
	if (first > arena->n_blocks || n_blocks > arena->n_blocks - first)
		return false;
	return bit_next(arena->granted, first, first + n_blocks, false) == first + n_blocks;
}

void arena_grant(struct arena *arena, uint32_t first, uint32_t n_blocks)
{
	arena->was_used = true;
	for (uint32_t b = first; b < first + n_blocks; b++) {
		enum block_class before = class_of(arena, b);

		assert(!bit(arena->granted, b));
		clear_dirty(arena, b);
		clear_warm(arena, b);
		bit_set(arena->granted, b);
		arena->n_granted++;
		account(arena, b, before);
	}
}

void arena_ungrant(struct arena *arena, uint32_t first, uint32_t n_blocks)
{
	arena->was_used = true;
	for (uint32_t b = first; b < first + n_blocks; b++) {
		assert(bit(arena->granted, b));
		bit_clear(arena->granted, b);
		arena->n_granted--;
		if (arena->pins[b] == 0)
			set_dirty(arena, b);
		account(arena, b, BLOCK_GRANTED);
	}
}

void arena_soil(struct arena *arena, uint32_t first, uint32_t n_blocks)
{
	for (uint32_t b = first; b < first + n_blocks; b++) {
		enum block_class before = class_of(arena, b);

		if (before != BLOCK_FREE)
			continue;
		clear_warm(arena, b);
		set_dirty(arena, b);
		account(arena, b, before);
	}
}

static void pin_one(struct arena *arena, uint32_t block)
{
	enum block_class before = class_of(arena, block);

	if (arena->pins[block]++)
		return;
	arena->n_pinned++;
	if (before == BLOCK_GRANTED)
		return;
	clear_dirty(arena, block); /* its bytes are wanted again (restart) */
	clear_warm(arena, block);
	account(arena, block, before);
}

static void unpin_one(struct arena *arena, uint32_t block)
{
	assert(arena->pins[block]);
	if (--arena->pins[block])
		return;
	arena->n_pinned--;
	if (arena->digest_known)
		bit_clear(arena->digest_known, block);
	if (bit(arena->granted, block))
		return;
	set_dirty(arena, block);
	account(arena, block, BLOCK_CACHED);
}

/* Blocks that are granted stay in their class whatever their pins: then it is only counting. */
void arena_pin(struct arena *arena, uint32_t first, uint32_t n_blocks)
{
	uint32_t n_new = 0;

	if (!arena_is_granted(arena, first, n_blocks)) {
		for (uint32_t b = first; b < first + n_blocks; b++)
			pin_one(arena, b);
		return;
	}
	for (uint32_t b = first; b < first + n_blocks; b++) {
		n_new += arena->pins[b] == 0;
		arena->pins[b]++;
	}
	arena->n_pinned += n_new;
}

void arena_unpin(struct arena *arena, uint32_t first, uint32_t n_blocks)
{
	uint32_t n_gone = 0;

	if (arena->digest_known || !arena_is_granted(arena, first, n_blocks)) {
		for (uint32_t b = first; b < first + n_blocks; b++)
			unpin_one(arena, b);
		return;
	}
	for (uint32_t b = first; b < first + n_blocks; b++) {
		assert(arena->pins[b]);
		arena->pins[b]--;
		n_gone += arena->pins[b] == 0;
	}
	arena->n_pinned -= n_gone;
}

void arena_end(struct arena *arena)
{
	uint32_t b = bit_next(arena->granted, 0, arena->n_blocks, true);

	while (b < arena->n_blocks) {
		uint32_t end = bit_next(arena->granted, b, arena->n_blocks, false);

		arena_ungrant(arena, b, end - b);
		b = bit_next(arena->granted, end, arena->n_blocks, true);
	}
	arena->writer = ARENA_ENDED;
}

/* ---- zeroing ------------------------------------------------------------------------------ */

/* A page at the edge of a piece goes too, if all blocks that have a part of it are free. */
static uint64_t widen_down(const struct arena *arena, uint64_t region_off, uint32_t piece_bytes,
			   uint32_t first)
{
	uint64_t off = region_off + (uint64_t)first * piece_bytes;
	uint64_t page = off & ~(uint64_t)(KV_ARENA_PAGE - 1);

	while (off > page && first > 0 && !bit(arena->used, first - 1)) {
		first--;
		off = region_off + (uint64_t)first * piece_bytes;
	}
	return off < page ? page : off;
}

static uint64_t widen_up(const struct arena *arena, uint64_t region_off, uint32_t piece_bytes,
			 uint32_t end)
{
	uint64_t off = region_off + (uint64_t)end * piece_bytes;
	uint64_t page = (off + KV_ARENA_PAGE - 1) & ~(uint64_t)(KV_ARENA_PAGE - 1);

	while (off < page && end < arena->n_blocks && !bit(arena->used, end)) {
		end++;
		off = region_off + (uint64_t)end * piece_bytes;
	}
	if (end == arena->n_blocks)
		return page; /* nothing is behind the last block of a region */
	return off > page ? page : off;
}

/* Makes the bytes of blocks [first, end) zero and gives their pages back. Partly covered pages
 * are zeroed in their covered part by the kernel. */
static int punch(const struct arena *arena, uint32_t first, uint32_t end)
{
	const struct kv_group *group = &arena->layout->groups[arena->group];

	for (uint32_t r = 0; r < group->n_regions; r++) {
		uint32_t piece = arena->layout->regions[group->first_region + r].piece_bytes;
		uint64_t off = widen_down(arena, arena->region_off[r], piece, first);
		uint64_t to = widen_up(arena, arena->region_off[r], piece, end);

		if (fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
			      (off_t)(to - off)))
			return -errno;
	}
	return 0;
}

uint64_t arena_scrub(struct arena *arena, uint64_t max_bytes)
{
	uint64_t done = 0;

	if (arena->writer == ARENA_ENDED)
		return 0;
	while (arena->n_dirty && done < max_bytes) {
		uint32_t first = bit_next(arena->dirty, 0, arena->n_blocks, true);
		uint32_t end = bit_next(arena->dirty, first, arena->n_blocks, false);
		uint64_t most = (max_bytes - done) / arena->block_bytes + 1;

		if (end - first > most)
			end = first + (uint32_t)most;
		if (punch(arena, first, end))
			return done; /* stays dirty, tried again with the next */
		for (uint32_t b = first; b < end; b++) {
			clear_dirty(arena, b);
			account(arena, b, BLOCK_QUARANTINED);
		}
		done += (uint64_t)(end - first) * arena->block_bytes;
	}
	return done;
}

void arena_forget_dirty(struct arena *arena)
{
	while (arena->n_dirty) {
		uint32_t b = bit_next(arena->dirty, 0, arena->n_blocks, true);

		clear_dirty(arena, b);
		account(arena, b, BLOCK_QUARANTINED);
	}
}

void arena_keep_warm(struct arena *arena, uint64_t max_warm_bytes)
{
	uint32_t b = bit_next(arena->dirty, 0, arena->n_blocks, true);

	while (b < arena->n_blocks &&
	       arena->pool->warm_bytes + arena->block_bytes <= max_warm_bytes) {
		clear_dirty(arena, b);
		bit_set(arena->warm, b);
		arena->n_warm++;
		arena->pool->warm_bytes += arena->block_bytes;
		account(arena, b, BLOCK_QUARANTINED);
		b = bit_next(arena->dirty, b, arena->n_blocks, true);
	}
}

void arena_cool(struct arena *arena)
{
	uint32_t first = bit_next(arena->warm, 0, arena->n_blocks, true);

	while (first < arena->n_blocks) {
		uint32_t end = bit_next(arena->warm, first, arena->n_blocks, false);

		if (punch(arena, first, end))
			return; /* stays warm */
		for (uint32_t b = first; b < end; b++)
			clear_warm(arena, b);
		first = bit_next(arena->warm, end, arena->n_blocks, true);
	}
}

/* ---- digests ------------------------------------------------------------------------------ */

int arena_digest_set(struct arena *arena, uint32_t block, const struct kv_block_digest *digest)
{
	if (!arena->digests)
		arena->digests = calloc(arena->n_blocks, sizeof(arena->digests[0]));
	if (!arena->digest_known)
		arena->digest_known = calloc(arena->n_blocks / 64 + 1, sizeof(uint64_t));
	if (!arena->digests || !arena->digest_known)
		return -ENOMEM;
	arena->digests[block] = *digest;
	bit_set(arena->digest_known, block);
	return 0;
}

const struct kv_block_digest *arena_digest(const struct arena *arena, uint32_t block)
{
	if (!arena->digest_known || !bit(arena->digest_known, block))
		return NULL;
	return &arena->digests[block];
}

void arena_digest_forget(struct arena *arena, uint32_t block)
{
	if (arena->digest_known)
		bit_clear(arena->digest_known, block);
}
