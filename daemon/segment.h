/*
 * The core's side of a control segment: making one, giving out places and tables in it, reading
 * what a writer committed, and the acts under a hold (freeze, operator's rollback, clearing).
 *
 * The segment is writable for the client. Everything the core relies on (which writer, where a
 * table lies, how long it is) is kept in struct seg_place, in the core's own memory; from the
 * segment only values are read, copied and checked. Core thread only. Nothing here blocks,
 * sends or logs.
 */
#ifndef KV_DAEMON_SEGMENT_H
#define KV_DAEMON_SEGMENT_H

#include <stdint.h>

#include "proto/errbuf.h"
#include "proto/journal.h"

struct segment {
	int fd;     /* owned */
	void *base; /* mapping of KV_SHM_BYTES, owned */
	/* space for tables: bump and one free list per size class would be more than is needed:
	 * sizes repeat, so freed tables are found again by their size */
	uint64_t tables_end_off;
	struct seg_table_free *free_tables;
	uint64_t warm_bytes; /* of free tables whose pages are there */
};

/* A place as the core knows it. */
struct seg_place {
	uint32_t index;
	uint32_t writer;
	uint32_t n_groups;
	uint64_t layout_id;
	uint64_t seq_id;
	uint64_t max_tokens;
	uint64_t table_off[KV_GROUPS_MAX]; /* one behind the other, in one piece */
	uint32_t n_entries[KV_GROUPS_MAX];
	uint64_t frozen_stamp; /* stamp of the header at the last freeze, 0: none in this life */
};

/* A committed state that was copied out of a segment and checked, or that a snapshot holds. */
struct seg_state {
	struct kv_head head;
	uint64_t stamp;                      /* of the header copy */
	uint64_t update;                     /* committed update it was read at */
	uint64_t n_slots[KV_GROUPS_MAX];     /* of a layer group; 0 for the others */
	uint64_t first_block[KV_GROUPS_MAX]; /* number of the first; not 0 in windows only */
	uint64_t n_blocks[KV_GROUPS_MAX];
	uint64_t *refs[KV_GROUPS_MAX]; /* [n_blocks]: kv_ref() as in the table; owned */
	struct seg_mark {
		uint64_t id, update, length_tokens, journal_end;
	} marks[KV_MARKS_MAX]; /* [head.n_marks] */
};

/* Makes a sealed segment for a session. 0, or -1 with err (memfd refused, no memory). */
int segment_make(struct segment *segment, uint64_t session_id, struct errbuf *err);

/* Takes up a segment that exists (core restart): fd becomes owned. Trusts nothing inside. */
int segment_adopt(struct segment *segment, int fd, struct errbuf *err);
void segment_fini(struct segment *segment);

/* Bytes of pages that are really there (fstat). */
uint64_t segment_resident_bytes(const struct segment *segment);

static inline struct kv_shm_head *segment_head(const struct segment *segment)
{
	return segment->base;
}
struct kv_shm_writer *segment_writer(const struct segment *segment, uint32_t writer);
struct kv_shm_place *segment_place(const struct segment *segment, uint32_t index);
void segment_set_arena(struct segment *segment, uint32_t arena, uint64_t arena_id);

/* Resets a commit word to idle, update 1, generation 0, for a new writer. */
void segment_writer_init(struct segment *segment, uint32_t writer);

/* Entries of a group's table, for a sequence of at most max_tokens. */
uint32_t segment_n_entries(const struct kv_layout *layout, uint32_t group, uint64_t max_tokens);

/*
 * Finds room for the tables of a place (fills groups, table_off, n_entries from max_tokens) /
 * gives it back / marks room as used that a catalogue record names. -1 with KV_ELIMIT if the
 * segment is full.
 */
int segment_table_alloc(struct segment *segment, struct seg_place *place,
			const struct kv_layout *layout, struct errbuf *err);
void segment_table_free(struct segment *segment, const struct seg_place *place);
int segment_table_take(struct segment *segment, const struct seg_place *place, struct errbuf *err);
/* After a restart, when all tables that are in use were taken: what a dead core had begun to fill
 * or had not zeroed yet is zero. */
int segment_tables_taken(struct segment *segment, struct errbuf *err);

/*
 * Calls fn for the ranges of entries of a group's table that blocks [first, first + n) stand in:
 * one, or two where a window goes round the end of its table. Stops at the first that is not 0.
 */
typedef int segment_range_fn(void *arg, uint32_t entry, uint64_t i, uint64_t n);
int segment_ranges(const struct seg_place *place, uint32_t group, uint64_t first, uint64_t n,
		   segment_range_fn *fn, void *arg);

/*
 * Initialises a place that nobody uses: header copy stamped with the writer's committed update,
 * table filled from state->refs (whose arena numbers must be those of this session) with freeze
 * count 0, marks copied. state NULL: empty. head_state: enum kv_head_state. base_id: pinned
 * snapshot, 0: none. The writer of the place must not be in an update (its thread asked for it).
 */
void segment_place_init(struct segment *segment, const struct seg_place *place,
			const struct seg_state *state, enum kv_head_state head_state,
			uint64_t base_id);

/* A spare place for local forks: immutable part only, state KV_HEAD_NONE. */
void segment_place_spare(struct segment *segment, const struct seg_place *place);

/*
 * Reads what a place holds at committed update `update` (the caller holds the word, or the
 * writer is gone and stamps were cleared). Checks header, marks and that every entry was
 * committed; whether the session may use a block is the caller's to check. -1: KV_EINVAL
 * with what is wrong; -1 KV_ENOMEM. Freed by seg_state_fini.
 */
int segment_read(const struct segment *segment, const struct seg_place *place,
		 const struct kv_layout *layout, uint64_t update, struct seg_state *state,
		 struct errbuf *err);
void seg_state_fini(struct seg_state *state);

/* Leaves of a state what a snapshot or fork keeps of it (kv_head_share). */
void seg_state_share(struct seg_state *state, const struct kv_layout *layout);

/*
 * Only the header, racing with the writer (for listings and gauges): a consistent copy, or
 * -EAGAIN after a bounded number of tries. *update is the committed update it belongs to.
 */
int segment_peek(const struct segment *segment, uint32_t index, uint32_t writer,
		 struct kv_head *head, uint64_t *update);

#endif
