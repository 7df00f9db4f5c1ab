/*
 * An arena: one memfd for the blocks of one layer group that one session writes, and the books
 * about each of its blocks.
 *
 * A block is granted (the session may write it) and/or pinned (so many states name it), or dirty
 * (nobody's, memory still behind it), or free. From this follows its class in the pool's
 * accounts, which these functions keep. A block that loses its last owner is dirty until
 * arena_scrub() has punched a hole where it was; while the session has ended but its process may
 * still write (writer ARENA_ENDED) it stays so, and counts as quarantined.
 *
 * Blocks of an arena are only ever granted to its one session. So a few that it gave back may
 * stay *warm*: free in the accounts, memory and old bytes still there, ready to be granted to it
 * again without a page being made. arena_cool() punches them; pool.warm_bytes says how many there
 * are, so that memory and accounts can be kept together.
 *
 * The memory is sparse: a block costs pages from its grant on, when arena_prefault_step() puts
 * them there. It is mapped, but for huge pages no page of it is: to unmap them takes long, and the
 * core's successor would have to wait for that. The core reads and writes bulk bytes with pread and pwrite only: a client may have
 * punched a hole, and a load from one could be SIGBUS. Core thread only.
 */
#ifndef KV_DAEMON_ARENA_H
#define KV_DAEMON_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/pool.h"
#include "proto/digest.h"
#include "proto/layout.h"

/* A block anywhere: arena id << 26 | block. */
#define KV_ARENA_PAGE 4096u
#define GREF_BLOCK_BITS 26
#define GREF_BLOCK_MAX ((UINT64_C(1) << GREF_BLOCK_BITS) - 1)

static inline uint64_t gref_make(uint64_t arena_id, uint32_t block)
{
	return arena_id << GREF_BLOCK_BITS | block;
}

static inline uint64_t gref_arena(uint64_t gref)
{
	return gref >> GREF_BLOCK_BITS;
}

static inline uint32_t gref_block(uint64_t gref)
{
	return (uint32_t)(gref & GREF_BLOCK_MAX);
}

enum arena_writer {
	ARENA_WRITTEN = 0, /* its session is there */
	ARENA_ENDED = 1,   /* the session has ended, its process may still write */
	ARENA_GONE = 2,    /* nobody can write it any more */
};

/* What the process that locks memory knows of it (daemon/locker.h). */
enum arena_lock {
	ARENA_LOCK_ADD = 0, /* nothing */
	ARENA_LOCK_TOLD,
	ARENA_LOCK_LOOK, /* not all blocks that have got memory */
};

struct arena {
	/* lists of the owner of this struct */
	struct arena *next_in_session;
	struct arena *next_dirty;
	bool in_dirty_list;

	uint64_t id;
	uint64_t session_id;
	uint64_t layout_id;
	const struct kv_layout *layout; /* outlives the arena */
	uint32_t group;
	uint32_t n_blocks;
	uint64_t block_bytes;
	uint64_t n_bytes;
	uint64_t *region_off;
	int fd;
	int readonly_fd; /* -1 until asked for */
	char *base;
	enum arena_writer writer;
	enum arena_lock lock_state;
	struct pool *pool;
	struct pool_user *user;

	uint64_t *used;    /* bit: not free */
	uint64_t *granted; /* bit */
	uint64_t *dirty;   /* bit */
	uint64_t *warm;    /* bit: free, with memory */
	uint32_t *pins;
	uint32_t n_granted, n_pinned, n_dirty, n_warm;
	bool is_huge;        /* its pages come by its mapping, where the kernel makes huge ones */
	bool is_cold;        /* loaded: what is dirty may lack memory, and is not kept warm */
	bool was_used;       /* a grant or its end since the last look (arena_store) */
	uint32_t first_free; /* no free block is below */
	uint32_t n_numbers;  /* sessions that have a number for it */
	/* digests of full blocks that something pins; NULL until one is known */
	struct kv_block_digest *digests;
	uint64_t *digest_known;
};

struct arena_spec {
	uint64_t id, session_id, layout_id;
	const struct kv_layout *layout;
	uint32_t group;
	uint32_t n_blocks;
};

/* What the memory should be like, and what it turned out to be. */
struct arena_memory {
	bool want_huge, want_mlock;
	bool got_huge;      /* at the last arena */
	char huge_text[96]; /* for people */
};

/* How many blocks an arena of most_bytes has room for (at least 1). */
uint32_t arena_capacity(const struct kv_layout *layout, uint32_t group, uint64_t most_bytes);

/* A new arena, or one that the keeper held (fd becomes owned, also on failure; -1: new). NULL
 * with err. Freed by arena_free, which gives nothing back to the pool. */
struct arena *arena_new(const struct arena_spec *spec, int fd, struct pool *pool,
			struct pool_user *user, struct arena_memory *memory, struct errbuf *err);
void arena_free(struct arena *arena);

/* A descriptor that can only read, for sessions that do not write it. -1 with err. */
int arena_readonly(struct arena *arena, struct errbuf *err);

/* Finds n_blocks free blocks side by side: their first, or -1. */
int64_t arena_find(const struct arena *arena, uint32_t n_blocks);

/* Free blocks side by side from `first` on, at most n_blocks. */
uint32_t arena_free_at(const struct arena *arena, uint32_t first, uint32_t n_blocks);

/* The first free block at or behind `from`, or -1. */
int64_t arena_next_free(const struct arena *arena, uint32_t from);

bool arena_is_granted(const struct arena *arena, uint32_t first, uint32_t n_blocks);
static inline bool arena_has_granted(const struct arena *arena, uint32_t block)
{
	return arena->granted[block / 64] >> block % 64 & 1;
}

/* Grants free (or, after a restart, dirty) blocks / takes a grant back. */
void arena_grant(struct arena *arena, uint32_t first, uint32_t n_blocks);
void arena_ungrant(struct arena *arena, uint32_t first, uint32_t n_blocks);

/* Marks blocks that nobody has as dirty (restart). */
void arena_soil(struct arena *arena, uint32_t first, uint32_t n_blocks);

/* One pin more, or less, of each. */
void arena_pin(struct arena *arena, uint32_t first, uint32_t n_blocks);
void arena_unpin(struct arena *arena, uint32_t first, uint32_t n_blocks);

/* The session has ended: takes all grants back. */
void arena_end(struct arena *arena);

static inline bool arena_is_empty(const struct arena *arena)
{
	return arena->n_granted == 0 && arena->n_pinned == 0 && arena->n_dirty == 0;
}

/* Zeroes dirty blocks of about max_bytes and frees them, unless somebody may still write.
 * Returns the bytes; 0 when there is nothing to do. */
uint64_t arena_scrub(struct arena *arena, uint64_t max_bytes);

/* Frees dirty blocks in the books alone (while loading: what a later record says of them is not
 * known yet, and no one gets them again). */
void arena_forget_dirty(struct arena *arena);

/* Makes dirty blocks warm instead, as long as the pool has no more than max_warm_bytes of them. */
void arena_keep_warm(struct arena *arena, uint64_t max_warm_bytes);

/* Zeroes all warm blocks. */
void arena_cool(struct arena *arena);

/* Are these blocks all warm? */
bool arena_is_warm(const struct arena *arena, uint32_t first, uint32_t n_blocks);

/* Puts memory behind granted blocks, a slice at a time. */
struct arena_prefault {
	struct arena *arena;
	uint32_t first, n_blocks;
	uint32_t done_blocks; /* chunks before are done */
	uint32_t region;
	uint64_t off; /* in the chunk's part of the region */
};

/* About max_bytes more, of blocks that nobody has written yet: zeros are. 1: done; 0: call again; -1: KV_EPOOL with err, no memory. */
int arena_prefault_step(struct arena_prefault *prefault, uint64_t max_bytes, struct errbuf *err);

/* Reads n_bytes of one piece, from off on. 0, or -1 with err. */
int arena_read(const struct arena *arena, uint32_t block, uint32_t region, uint64_t off,
	       size_t n_bytes, void *out, struct errbuf *err);

/* Writes n_bytes of one piece, from off on. 0, or -1 with err. */
int arena_write(const struct arena *arena, uint32_t block, uint32_t region, uint64_t off,
		size_t n_bytes, const void *bytes, struct errbuf *err);

/* Remembers the digest of a full, pinned block / NULL if it is not known. 0 or -ENOMEM. */
int arena_digest_set(struct arena *arena, uint32_t block, const struct kv_block_digest *digest);
const struct kv_block_digest *arena_digest(const struct arena *arena, uint32_t block);

void arena_digest_forget(struct arena *arena, uint32_t block);

/* The core has read and written through the mapping: it lets go of the pages, which stay in the
 * arena. */
void arena_unmap_pages(const struct arena *arena);

/* Bytes of pages that are really there. */
uint64_t arena_resident_bytes(const struct arena *arena);

#endif
