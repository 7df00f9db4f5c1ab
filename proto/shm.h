/*
 * The control segment: commit words, sequence headers and block tables of one session.
 *
 * A sparse memfd of fixed size, sealed against growing and shrinking, made by the core, mapped by
 * the core and by the session (both read-write). All integers are little-endian in host order
 * (only little-endian 64-bit machines are supported), there are no pointers, offsets count from
 * the start of the segment. Described for other implementers in kvcache-shm(7).
 *
 *   0                 struct kv_shm_head
 *   writers_off       struct kv_shm_writer [KV_WRITERS_MAX]
 *   arenas_off        _Atomic uint64_t arena_id[KV_ARENAS_MAX]   arena number -> id; core writes
 *   places_off        struct kv_shm_place  [KV_PLACES_MAX]
 *   tables_off        block tables, given out by the core, one per place and group
 *
 * Groups of a place are those of its layout: layer groups, then the journal, then the versions of
 * the sequence planes (proto/layout.h). The last two are windows: block number n of the journal is
 * entry n % n_entries, and the header says which numbers count.
 *
 * Who writes what. The core writes the head, the arena numbers, and a place that is not in use.
 * The writer (one thread of the session) owns its commit word's moves to open and back, and in
 * the places that belong to it everything that a committed update does not show yet. The core
 * touches a live place only under a hold. Every word that two processes touch is C11 atomic; its
 * partner is named beside it. What the core reads here it copies, checks and then uses.
 *
 * Two copies. Header and table entries exist twice, each stamped with the number of the update
 * that wrote it (0: none). The one that counts is the newest whose stamp is not above the
 * committed update of the writer's word. An update fills the other one.
 */
#ifndef KV_PROTO_SHM_H
#define KV_PROTO_SHM_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

#define KV_SHM_MAGIC UINT64_C(0x31306c746376b401) /* not a printable start: no text is a segment */
#define KV_SHM_BYTES (UINT64_C(16) << 30)         /* sparse: only touched pages cost */
#define KV_SHM_PAGE 4096u

struct kv_shm_head {
	uint64_t magic;
	uint32_t version;    /* KV_SHM_VERSION */
	uint32_t head_bytes; /* sizeof(struct kv_shm_head) */
	uint64_t segment_bytes;
	uint64_t session_id;
	uint32_t n_writers;
	uint32_t n_places;
	uint32_t n_arenas;
	uint32_t place_bytes;
	uint64_t writers_off;
	uint64_t arenas_off;
	uint64_t places_off;
	uint64_t tables_off;
	_Atomic uint64_t life; /* life of the core that serves the session; core stores,
					      library loads (acquire) to notice a restart */
	uint8_t unused[4096 - 88];
};
static_assert(sizeof(struct kv_shm_head) == 4096, "head is one page");

/* One commit word, alone on its cache lines. See proto/commit.h for its moves. */
struct kv_shm_writer {
	_Atomic uint64_t word;   /* writer and core swap; readers load (acquire) */
	_Atomic uint32_t in_use; /* core stores */
	uint32_t unused_in_use;
	uint8_t unused_line[48];
	/* What the writer counts (relaxed), for `status` and the gauges; the core loads and clamps. */
	_Atomic uint64_t n_reserved_bytes; /* blocks granted to this writer that are in no table */
	_Atomic uint64_t n_commits;
	_Atomic uint64_t n_appended_tokens;
	_Atomic uint64_t n_copied_bytes; /* because a block was frozen or shared */
	_Atomic uint64_t n_rollbacks;
	_Atomic uint64_t n_local_forks;
	/* An update that is to be finished, not undone, if the writer dies in it: set (release) while
	 * the word is open, when all entries and headers stamped with it are there and before the
	 * first slot is put back (a rollback through undo rows). Counts if it is the committed
	 * update + 1. */
	_Atomic uint64_t decided;
	uint64_t unused[1];
};
static_assert(sizeof(struct kv_shm_writer) == 128, "two cache lines");

/* States of a sequence header: low 8 bits of kv_head_copy.state. */
enum kv_head_state {
	KV_HEAD_NONE = 0,    /* dropped, or never published */
	KV_HEAD_LIVE = 1,    /* has a writer */
	KV_HEAD_SNAPSHOT = 2 /* read-only: an opened snapshot or a local one */
};

/* How a sequence is written: bits 8..15 of kv_head_copy.state. See proto/journal.h. */
enum kv_journal_mode { KV_JOURNAL_NONE = 0, KV_JOURNAL_UNDO = 1, KV_JOURNAL_REPLAY = 2 };

/* Bit 16 of kv_head_copy.state: slots below the journal were not written by appending alone, so a
 * length says nothing about what they were before. */
#define KV_HEAD_SCATTERED (UINT32_C(1) << 16)

static inline uint32_t kv_head_word(enum kv_head_state state, enum kv_journal_mode mode)
{
	return (uint32_t)state | (uint32_t)mode << 8;
}

/* Everything that the word has a meaning for. */
#define KV_HEAD_BITS (KV_HEAD_SCATTERED | UINT32_C(0xffff))

/* The word with another state / another mode. */
static inline uint32_t kv_head_with_state(uint32_t word, enum kv_head_state state)
{
	return (word & ~UINT32_C(0xff)) | (uint32_t)state;
}

static inline uint32_t kv_head_with_mode(uint32_t word, enum kv_journal_mode mode)
{
	return (word & ~UINT32_C(0xff00)) | (uint32_t)mode << 8;
}

static inline enum kv_head_state kv_head_state(uint32_t word)
{
	return (enum kv_head_state)(word & 0xff);
}

static inline enum kv_journal_mode kv_head_mode(uint32_t word)
{
	return (enum kv_journal_mode)(word >> 8 & 0xff);
}

/* What an update changes at once; one cache line. */
struct kv_head_copy {
	_Atomic uint64_t stamp; /* update that wrote it, 0: none */
	_Atomic uint64_t length_tokens;
	_Atomic uint64_t position;      /* absolute position of the next token */
	_Atomic uint64_t journal_first; /* rows of the journal: [first, end); both equal: none */
	_Atomic uint64_t journal_end;
	_Atomic uint32_t n_marks;
	_Atomic uint32_t state;       /* kv_head_word, KV_HEAD_SCATTERED */
	_Atomic uint64_t planes;      /* versions of the sequence planes: low half the one that
					   counts (0: none was set), high half the first kept */
	_Atomic uint64_t base_tokens; /* tokens whose slots are in blocks; the length, unless the
					   mode is replay */
};
static_assert(sizeof(struct kv_head_copy) == 64, "one cache line");

/* A point to go back to. Slots at or above the committed n_marks are free to overwrite. */
struct kv_shm_mark {
	_Atomic uint64_t id;
	_Atomic uint64_t update;
	_Atomic uint64_t length_tokens;
	_Atomic uint64_t journal_end;
};
static_assert(sizeof(struct kv_shm_mark) == 32, "mark");

/*
 * A block-table entry: who, and since which freeze. `ref` packs, from the top, the freeze count
 * that was read when the update began which put it there (26 bits; 0: came by fork or takeover,
 * never written), the arena number in the session (12 bits) and the block index (26 bits).
 */
struct kv_shm_entry {
	_Atomic uint64_t stamp; /* update that wrote it, 0: none */
	_Atomic uint64_t ref;
};
static_assert(sizeof(struct kv_shm_entry) == 16, "entry");

#define KV_REF_BLOCK_BITS 26
#define KV_REF_ARENA_BITS 12
#define KV_REF_FREEZE_BITS 26
#define KV_REF_BLOCK_MAX ((UINT64_C(1) << KV_REF_BLOCK_BITS) - 1)
#define KV_REF_FREEZE_MAX ((UINT64_C(1) << KV_REF_FREEZE_BITS) - 1)

static inline uint64_t kv_ref(uint64_t freeze, uint32_t arena, uint32_t block)
{
	return freeze << (KV_REF_BLOCK_BITS + KV_REF_ARENA_BITS) |
	       (uint64_t)arena << KV_REF_BLOCK_BITS | block;
}

static inline uint32_t kv_ref_block(uint64_t ref)
{
	return (uint32_t)(ref & KV_REF_BLOCK_MAX);
}

static inline uint32_t kv_ref_arena(uint64_t ref)
{
	return (uint32_t)(ref >> KV_REF_BLOCK_BITS) & ((1u << KV_REF_ARENA_BITS) - 1);
}

static inline uint64_t kv_ref_freeze(uint64_t ref)
{
	return ref >> (KV_REF_BLOCK_BITS + KV_REF_ARENA_BITS);
}

/* The parent is a local fork or snapshot: the number is that of its place in the session. */
#define KV_PARENT_PLACE (UINT64_C(1) << 63)

/*
 * A place for one sequence or opened snapshot. Everything up to the freeze marks is written by
 * the core before the place is given out and does not change while it is in use; the library
 * keeps a private copy and does not read it again.
 */
struct kv_shm_place {
	uint32_t writer; /* index of its commit word */
	uint32_t n_groups;
	uint64_t layout_id;
	uint64_t seq_id;            /* the core's id; 0 while spare and for local forks */
	_Atomic uint64_t base_id;   /* snapshot whose blocks it uses, 0: none. The owning session
				     stores it for local forks, core loads when it copies a table */
	_Atomic uint64_t parent_id; /* lineage of local forks: seq_id of the parent, or its place
				       with KV_PARENT_PLACE */
	uint64_t max_tokens;
	uint64_t table_off[KV_GROUPS_MAX]; /* of struct kv_shm_entry [2][n_entries] */
	uint32_t n_entries[KV_GROUPS_MAX];
	/* Freeze marks: raised, never lowered, by the core under a hold or by the writer while its
	 * word is open; the writer loads them (acquire) when an update begins. */
	_Atomic uint64_t freeze_count;
	_Atomic uint64_t frozen_slots[KV_LAYER_GROUPS_MAX];
	_Atomic uint64_t frozen_rows;
	/* Undo rows that are complete: [journal_end of what counts, rows_end) are to be put back,
	 * newest first, if the writer is gone. Writer stores (release) before it overwrites a slot,
	 * core loads. Equal to journal_end before the word is opened; used in mode undo only. */
	_Atomic uint64_t rows_end;
	uint8_t unused[192];
	_Alignas(64) struct kv_head_copy copy[2];
	struct kv_shm_mark marks[KV_MARKS_MAX];
	uint8_t unused_end[4096 - 448 - 128 - 32 * KV_MARKS_MAX];
};
static_assert(offsetof(struct kv_shm_place, copy) == 448, "copies have cache lines of their own");
static_assert(offsetof(struct kv_shm_place, marks) == 576, "marks follow");
static_assert(sizeof(struct kv_shm_place) == 4096, "place is one page");

/* Entry i of copy c (0 or 1) in group g of a place whose table offset was checked. */
static inline struct kv_shm_entry *kv_shm_entry(void *segment, uint64_t table_off,
						uint32_t n_entries, unsigned c, uint64_t i)
{
	struct kv_shm_entry *table = (void *)((char *)segment + table_off);

	return &table[(size_t)c * n_entries + i];
}

#endif
