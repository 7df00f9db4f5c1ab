/*
 * Blocks in the hands of a writer: spares, books, release lists. Writer's thread only; nothing
 * here allocates (but the making of a pool) or talks to the daemon.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/error.h"
#include "client/seq.h"

#define POOL_BLOCKS (UINT32_C(1) << 20) /* sparse: what is not used costs nothing */
#define OWNER_SHIFT 24
#define OWNED_REFS ((UINT32_C(1) << OWNER_SHIFT) - 1)

static bool stack_push(struct block_stack *stack, struct kvc_block block)
{
	if (stack->n == stack->cap)
		return false;
	stack->refs[stack->n++] = kv_ref(0, block.arena, block.block);
	return true;
}

static struct kvc_block stack_pop(struct block_stack *stack)
{
	uint64_t ref = stack->refs[--stack->n];

	return (struct kvc_block){kv_ref_arena(ref), kv_ref_block(ref)};
}

/* Puts a block under all others: it is used last. */
static bool stack_push_under(struct block_stack *stack, struct kvc_block block)
{
	if (stack->n == stack->cap)
		return false;
	memmove(stack->refs + 1, stack->refs, stack->n * sizeof(stack->refs[0]));
	stack->refs[0] = kv_ref(0, block.arena, block.block);
	stack->n++;
	return true;
}

/* ---- books -------------------------------------------------------------------------------- */

/* An arena's books if it has some: tables name blocks of few arenas, in long runs. */
struct books {
	const struct kvc_writer *writer;
	uint32_t arena;
	_Atomic uint32_t *owned;
};

/* The entry of a block that is in this writer's books, else NULL. */
static inline _Atomic uint32_t *books_entry(struct books *books, struct kvc_block block)
{
	if (block.arena != books->arena) {
		struct arena_map *map = session_arena_mapped(books->writer->session, block.arena);

		books->arena = block.arena;
		books->owned = map ? map->owned : NULL;
	}
	if (!books->owned ||
	    atomic_load_explicit(&books->owned[block.block], memory_order_relaxed) >> OWNER_SHIFT !=
		    books->writer->index + 1)
		return NULL;
	return &books->owned[block.block];
}

/* Only the owner's thread changes an entry, so a load and a store are enough. */
static inline uint32_t books_add(_Atomic uint32_t *entry, int32_t n)
{
	uint32_t now = atomic_load_explicit(entry, memory_order_relaxed) + (uint32_t)n;

	atomic_store_explicit(entry, now, memory_order_relaxed);
	return now & OWNED_REFS;
}

void blocks_ref(const struct kvc_writer *writer, const struct kvc_block *blocks, uint64_t n)
{
	struct books books = {.writer = writer};

	for (uint64_t i = 0; i < n; i++) {
		_Atomic uint32_t *entry = books_entry(&books, blocks[i]);

		if (entry)
			books_add(entry, 1);
	}
}

int64_t blocks_leave(const struct kvc_writer *writer, const struct kvc_block *blocks,
		     const uint32_t *meta, uint64_t n, uint64_t freeze_now,
		     struct block_stack *spares, struct block_stack *release)
{
	struct books books = {.writer = writer};
	int64_t n_spares = 0;

	while (n-- > 0) {
		_Atomic uint32_t *entry = books_entry(&books, blocks[n]);
		uint32_t freeze;

		if (!entry || books_add(entry, -1) != 0)
			continue;
		freeze = seq_meta_freeze(meta[n]);
		if (freeze != 0 && freeze == freeze_now && stack_push(spares, blocks[n]))
			n_spares++;
		/*
		 * On the list it is in nobody's books: a fork of the snapshot that names it may come
		 * and go before the daemon hears, and must not list it again. If even the list is
		 * full, it stays counted until the session ends.
		 */
		else if (stack_push(release, blocks[n]))
			atomic_store_explicit(entry, 0, memory_order_relaxed);
	}
	return n_spares;
}

int64_t group_leave(const struct kvc_seq *seq, uint32_t group, uint64_t first, uint64_t end,
		    uint64_t freeze_now, struct block_stack *spares, struct block_stack *release)
{
	const struct seq_group *g = &seq->groups[group];
	int64_t n_spares = 0;

	/* A window may go round the end of the table. */
	while (end > first) {
		uint64_t last = group_index(g, end - 1) + 1;
		uint64_t n = end - first < last ? end - first : last;

		n_spares += blocks_leave(seq->writer, g->mirror + (last - n), g->meta + (last - n),
					 n, freeze_now, spares, release);
		end -= n;
	}
	return n_spares;
}

/* ---- spares ------------------------------------------------------------------------------- */

struct kvc_block spare_take(struct kvc_seq *seq, uint32_t group)
{
	return stack_pop(&seq->groups[group].spares);
}

void spare_untake(struct kvc_seq *seq, uint32_t group, struct kvc_block block)
{
	stack_push(&seq->groups[group].spares, block);
}

int seq_grant(struct kvc_seq *seq, uint32_t group, uint32_t arena, uint32_t first_block,
	      uint32_t n_blocks)
{
	struct kvc_writer *writer = seq->writer;
	struct arena_map *map = group < seq->n_groups && arena < KV_ARENAS_MAX ?
					session_arena_mapped(writer->session, arena) :
					NULL;
	struct seq_group *g;

	if (!map || !map->owned || map->group != group || map->layout_id != seq->layout->id ||
	    first_block > map->n_blocks || n_blocks > map->n_blocks - first_block)
		return kvc_fail(KVC_EPROTO,
				"the daemon granted blocks %u+%u of arena %u, which are "
				"not there",
				first_block, n_blocks, arena);
	g = &seq->groups[group];
	for (uint32_t i = 0; i < n_blocks; i++) {
		_Atomic uint32_t *entry = &map->owned[first_block + i];

		if (atomic_load_explicit(entry, memory_order_relaxed) != 0)
			return kvc_fail(KVC_EPROTO, "the daemon granted block %u of arena %u twice",
					first_block + i, arena);
		if (!stack_push_under(&g->spares, (struct kvc_block){arena, first_block + i}))
			return kvc_fail(KVC_ELIMIT, "more than %u spare blocks", g->spares.cap);
		atomic_store_explicit(entry, (writer->index + 1) << OWNER_SHIFT,
				      memory_order_relaxed);
		writer_count_reserved(writer,
				      (int64_t)seq->layout->fields->groups[group].block_bytes);
	}
	return 0;
}

static void take_from_pool(struct kvc_seq *seq, uint32_t group, uint32_t n)
{
	struct block_pool *pool = writer_pool(seq->writer, seq->layout, group);

	while (pool && n-- && pool->blocks.n) {
		struct kvc_block block = stack_pop(&pool->blocks);

		stack_push_under(&seq->groups[group].spares, block);
	}
}

/* Blocks of a ring with an undo journal that the next n_tokens tokens write into, and that are
 * frozen or somebody else's: each is copied first. */
static uint64_t ring_copies(const struct kvc_seq *seq, uint32_t group, uint64_t n_tokens)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct seq_group *g = &seq->groups[group];
	uint64_t bound = layout->groups[group].bound_slots, n = 0;
	uint64_t freeze = atomic_load_explicit(&seq->shm->freeze_count, memory_order_acquire);
	uint64_t first = seq->head.length_tokens + (seq->is_open ? seq->open_tokens : 0);
	uint64_t end = first + n_tokens;

	if (!bound || seq_mode(seq) != KV_JOURNAL_UNDO)
		return 0;
	if (first < bound)
		first = bound;
	if (end > first + bound)
		end = first + bound;
	while (first < end) {
		uint64_t slot = first % bound, block = slot / layout->block_tokens;
		uint64_t last = (block + 1) * layout->block_tokens;

		n += block < g->end_block && seq_meta_freeze(g->meta[block]) != freeze;
		first += (last < bound ? last : bound) - slot;
	}
	return n;
}

/* Blocks that the next n_tokens tokens of a group take, and one to copy into. */
static uint64_t layer_blocks(const struct kvc_seq *seq, uint32_t group, uint64_t n_tokens)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint64_t base = seq->head.base_tokens + (seq->is_open ? seq->open_tokens : 0);

	if (seq_mode(seq) == KV_JOURNAL_REPLAY)
		return 0;
	return kv_layout_blocks(layout, kv_layout_slots(layout, group, base + n_tokens)) -
	       kv_layout_blocks(layout, kv_layout_slots(layout, group, base)) + 1 +
	       ring_copies(seq, group, n_tokens);
}

uint64_t seq_token_rows(const struct kvc_seq *seq, uint64_t n_tokens)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint64_t length = seq->head.length_tokens + (seq->is_open ? seq->open_tokens : 0);
	uint64_t rows = n_tokens + 1;

	for (uint32_t g = 0; g < layout->n_layer_groups; g++) {
		uint64_t slots = kv_layout_slots(layout, g, length + n_tokens);
		uint64_t n = seq_mode(seq) == KV_JOURNAL_REPLAY ? n_tokens :
								  length + n_tokens - slots;

		rows += (n < n_tokens ? n : n_tokens) * layout->groups[g].n_heads;
	}
	return rows;
}

uint64_t seq_row_blocks(const struct kvc_seq *seq, uint64_t n_rows)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint32_t log2 = layout->journal[seq_mode(seq)].rows_log2;
	uint64_t end = seq->is_open ? seq->open_rows_end : seq->head.journal_end;

	return ((end + n_rows - 1) >> log2) - (end >> log2) + 2;
}

/* Versions of the sequence planes that there can be at a time: an undo journal is cut when it has
 * twice the steps that it keeps; then there are theirs, the one below them and the open one. */
static uint64_t state_blocks(const struct kvc_seq *seq, uint64_t n_tokens)
{
	uint64_t most = KV_STATES_MAX;

	if (seq_mode(seq) == KV_JOURNAL_NONE)
		most = 1;
	if (seq_mode(seq) == KV_JOURNAL_UNDO && seq->journal.keep_steps < KV_STATES_MAX / 2)
		most = 2 * (uint64_t)seq->journal.keep_steps + 2;
	return n_tokens < most ? n_tokens : most;
}

uint64_t seq_blocks_wanted(const struct kvc_seq *seq, uint32_t group, uint64_t n_tokens)
{
	uint64_t most = seq->journal.max_rows, rows;

	switch (seq->layout->fields->groups[group].kind) {
	case KV_GROUP_JOURNAL:
		if (seq_mode(seq) == KV_JOURNAL_NONE)
			return 0;
		rows = seq_token_rows(seq, n_tokens);
		/* an undo journal forgets before it is longer */
		return seq_row_blocks(seq, rows < most ? rows : most);
	case KV_GROUP_STATES: return state_blocks(seq, n_tokens);
	default: return layer_blocks(seq, group, n_tokens);
	}
}

uint32_t seq_short_of(struct kvc_seq *seq, uint32_t group, uint64_t n_blocks)
{
	uint32_t have = seq->groups[group].spares.n;

	if (n_blocks > have)
		take_from_pool(seq, group, (uint32_t)n_blocks - have);
	have = seq->groups[group].spares.n;
	return n_blocks > have ? (uint32_t)n_blocks - have : 0;
}

void seq_need(struct kvc_seq *seq, uint64_t n_tokens, uint32_t need[KV_GROUPS_MAX])
{
	for (uint32_t g = 0; g < seq->n_groups; g++)
		need[g] = seq_short_of(seq, g, seq_blocks_wanted(seq, g, n_tokens));
}

/* ---- pools and release -------------------------------------------------------------------- */

static struct block_pool *pool_new(struct kvc_writer *writer, const struct kvc_layout *layout,
				   uint32_t group)
{
	struct block_pool *pool = calloc(1, sizeof(*pool));
	size_t bytes = 2 * (size_t)POOL_BLOCKS * sizeof(uint64_t);
	uint64_t *memory;

	if (!pool)
		return NULL;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED) {
		free(pool);
		return NULL;
	}
	*pool = (struct block_pool){
		.next = writer->pools,
		.layout_id = layout->id,
		.group = group,
		.block_bytes = layout->fields->groups[group].block_bytes,
		.blocks = {.refs = memory, .cap = POOL_BLOCKS},
		.release = {.refs = memory + POOL_BLOCKS, .cap = POOL_BLOCKS},
		.memory = memory,
		.memory_bytes = bytes,
	};
	writer->pools = pool;
	return pool;
}

struct block_pool *writer_pool(struct kvc_writer *writer, const struct kvc_layout *layout,
			       uint32_t group)
{
	for (struct block_pool *pool = writer->pools; pool; pool = pool->next)
		if (pool->layout_id == layout->id && pool->group == group)
			return pool;
	return pool_new(writer, layout, group);
}

struct release {
	struct kvc_writer *writer;
	uint64_t layout_id;
	uint32_t group;
	void (*give)(void *arg, uint64_t layout_id, uint32_t group, uint32_t arena,
		     uint32_t first_block, uint32_t n_blocks);
	void *arg;
};

static int compare_refs(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Forgets the blocks of a stack and gives them in runs. */
static void release_stack(struct block_stack *stack, const struct release *release)
{
	uint32_t first = 0;

	qsort(stack->refs, stack->n, sizeof(stack->refs[0]), compare_refs);
	for (uint32_t i = 0; i < stack->n; i++) {
		uint64_t ref = stack->refs[i];
		struct kvc_block block = {kv_ref_arena(ref), kv_ref_block(ref)};
		struct arena_map *map = session_arena_mapped(release->writer->session, block.arena);

		if (map && map->owned)
			atomic_store_explicit(&map->owned[block.block], 0, memory_order_relaxed);
		if (i + 1 < stack->n && stack->refs[i + 1] == ref + 1)
			continue;
		release->give(release->arg, release->layout_id, release->group, block.arena,
			      kv_ref_block(stack->refs[first]), i - first + 1);
		first = i + 1;
	}
	stack->n = 0;
}

void writer_release(struct kvc_writer *writer, bool all,
		    void (*give)(void *arg, uint64_t layout_id, uint32_t group, uint32_t arena,
				 uint32_t first_block, uint32_t n_blocks),
		    void *arg)
{
	struct release release = {.writer = writer, .give = give, .arg = arg};

	for (struct kvc_seq *seq = writer->seqs; seq; seq = seq->next) {
		release.layout_id = seq->layout->id;
		for (release.group = 0; release.group < seq->n_groups; release.group++)
			release_stack(&seq->groups[release.group].release, &release);
	}
	for (struct block_pool *pool = writer->pools; pool; pool = pool->next) {
		release.layout_id = pool->layout_id;
		release.group = pool->group;
		release_stack(&pool->release, &release);
		if (!all)
			continue;
		writer_count_reserved(writer, -(int64_t)(pool->blocks.n * pool->block_bytes));
		release_stack(&pool->blocks, &release);
	}
}

uint64_t writer_release_count(const struct kvc_writer *writer)
{
	uint64_t n = 0;

	for (struct kvc_seq *seq = writer->seqs; seq; seq = seq->next)
		for (uint32_t g = 0; g < seq->n_groups; g++)
			n += seq->groups[g].release.n;
	for (struct block_pool *pool = writer->pools; pool; pool = pool->next)
		n += pool->release.n;
	return n;
}
