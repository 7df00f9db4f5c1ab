/*
 * Writers and sequences inside the library: the data plane. Works on the mapped control segment
 * and arenas alone; nothing here talks to the daemon, so tests can drive it over bare memory.
 *
 * Memory of a handle. One sparse private mapping a sequence holds, per layer group, the mirror of
 * the block table (what views give out), the stack of spare blocks and the list of blocks to be
 * released. All are sized for max_tokens at birth, so the hot path allocates nothing.
 *
 * Blocks that were granted to a writer are in its books: arena_map.owned[block] is the writer's
 * index + 1 in the top 8 bits and below that how many tables of this writer name the block. Only
 * the owner's thread changes it. A block that leaves its last table becomes a spare if no freeze
 * can have covered it (proto/commit.h), else it is put on the release list for the daemon, who
 * knows the snapshots. Blocks that came by a fork through the core are in nobody's books: the pin
 * on their base snapshot keeps them.
 *
 * Block numbers. A handle holds the numbers [first_block, end_block) of each group; number n is
 * entry n % n_entries of table and mirror. In layer groups first_block is 0 and end_block what the
 * base tokens need. Of the journal and of the states it may hold more than the header names: what
 * was rolled back stays until an update overwrites it.
 */
#ifndef KV_CLIENT_SEQ_H
#define KV_CLIENT_SEQ_H

#include <stdbool.h>

#include "client/session.h"
#include "proto/commit.h"
#include "proto/journal.h"

/* A stack of block references (kv_ref with freeze 0) in memory that somebody else owns. */
struct block_stack {
	uint64_t *refs;
	uint32_t n;
	uint32_t cap;
};

/* Blocks of a writer that belong to no sequence: given back by dropped sequences, taken first by
 * reserve and local forks. One a (layout, group). */
struct block_pool {
	struct block_pool *next;
	uint64_t layout_id;
	uint32_t group;
	uint64_t block_bytes;
	struct block_stack blocks;
	struct block_stack release;
	void *memory;
	size_t memory_bytes;
};

/* Memory of a handle that has ended, for the next of the same size. Nothing in it counts: what
 * is behind the committed length of a table is written before it is read. */
struct writer_idle {
	void *memory;
	size_t n_bytes;
};
#define WRITER_IDLE 2

struct kvc_writer {
	struct kvc_session *session;
	uint32_t index;
	struct kv_shm_writer *shm;
	uint64_t update;       /* committed update that the mirrors show */
	uint32_t deadline_ms;  /* longest wait for a word that the core holds */
	uint64_t n_lists;      /* of sequences that calls got */
	struct kvc_seq *seqs;  /* all handles */
	struct kvc_seq *open;  /* those with an open update */
	struct kvc_seq *spare; /* handles on spare places, for local forks */
	struct block_pool *pools;
	struct writer_idle idle[WRITER_IDLE];
	kvc_workers *alone; /* scratch of kvc_attend without workers; NULL: never called */
};

/* A block that the open update has copied: which entry, and what it replaces there. */
struct seq_copied {
	uint32_t index;  /* in table and mirror */
	uint32_t freeze; /* of the entry that is replaced */
	struct kvc_block from;
};

struct seq_group {
	uint64_t first_block;
	uint64_t end_block;
	/* what the open update puts into the table; the mirror shows it already: numbers
	 * [end_block, pending_end), and blocks that were copied */
	uint64_t pending_end;
	uint32_t n_copied;
	uint32_t n_entries;
	struct seq_copied *copied;      /* [n_entries] */
	struct kv_shm_entry *copies[2]; /* in the segment, n_entries each */
	struct kvc_block *mirror;       /* [n_entries] */
	uint32_t *meta;                 /* [n_entries] freeze count of the entry, and in the top
					   bit which of its copies counts */
	struct block_stack spares;
	struct block_stack release;
	/* a batch row: block i is to be batch_first + i; arena 0: no batch */
	struct kvc_block batch_first;
};

/* The journal as its handle knows it; the rest is in the header. */
struct seq_journal {
	uint64_t max_rows;
	uint32_t keep_steps;
	uint32_t when_full; /* enum kvc_journal_full */
	/* rows [journal_end, future_end) were rolled back and are still there */
	uint64_t future_end;
	/*
	 * Replay: the newest row of each (group, head, slot), low 32 bits of its number. Nothing is
	 * ever cleared: an entry counts if that row is in force and its header names the key.
	 */
	uint32_t *index;
	uint64_t index_off[KV_LAYER_GROUPS_MAX]; /* of a group: [slots][heads] */
	uint64_t index_slots[KV_LAYER_GROUPS_MAX];
	uint64_t index_low[KV_LAYER_GROUPS_MAX]; /* no row in force names a slot below */
	size_t index_bytes;
	uint64_t *seen; /* bitmap over slots: finds one named twice; zero between calls */
	size_t seen_bytes;
};

struct kvc_seq {
	struct kvc_writer *writer;
	struct kvc_layout *layout;
	struct kvc_seq *next, *next_open;
	struct kv_shm_place *shm;
	uint32_t place;
	uint64_t seq_id;  /* 0: local */
	uint64_t base_id; /* snapshot whose blocks it uses; pinned by session_base_ref */
	uint64_t max_tokens;
	struct kv_head head;  /* committed, as of writer->update */
	uint8_t head_copy;    /* which copy in the segment says so */
	struct kv_head fresh; /* that comes with an update: one's own that is published, or
				 somebody else's that is looked at */
	uint32_t n_groups;
	bool named;
	uint64_t listed; /* the last list of a call that it was in: finds one named twice */
	/* of this handle: updates that were begun, and those of them that were committed */
	uint64_t n_begun, n_committed;
	/* open update */
	bool is_open;
	bool is_prepared;     /* while it is being committed */
	uint64_t open_freeze; /* freeze count at its beginning */
	/* freeze count when blocks to be overwritten were last looked at */
	uint64_t inplace_freeze;
	uint64_t open_tokens;
	uint32_t open_flags;    /* enum kvc_update_flags */
	uint64_t open_row;      /* row of its first token; behind the floor record, if it has one */
	uint64_t open_extra;    /* first row of kvc_scatter */
	uint64_t open_rows_end; /* behind the rows written so far, without the last record */
	uint64_t open_first;    /* journal_first that it commits */
	bool open_scattered;    /* steps with rows were forgotten to make room */
	uint32_t open_states;   /* version of the sequence planes that it makes; 0: none */
	size_t open_states_filled; /* bytes of it that are there (client/planes.h) */
	struct seq_journal journal;
	uint64_t frozen_stamp; /* header stamp at the last local freeze: no second one is needed */
	const char *split_reason; /* of a batch row: why it left its run; NULL: it did not */
	void *memory;             /* the mapping that holds mirrors and stacks */
	size_t memory_bytes;
	struct seq_group groups[KV_GROUPS_MAX];
};

/* ---- lifecycle ---------------------------------------------------------------------------- */

/* A handle on a writer's commit word. Reads the word. NULL: memory. */
struct kvc_writer *writer_new(struct kvc_session *session, uint32_t index);
/* Frees the handle; no sequences may be left. Blocks still in its pools are forgotten: release
 * them first (writer_each_pool). */
void writer_free(struct kvc_writer *writer);

/*
 * A handle on a place that the core has initialised for this writer: reads header and table,
 * builds the mirror, counts references to blocks of this session, maps arenas it names
 * (session_arena). NULL with the error set. base_id is referenced (session_base_ref).
 */
struct kvc_seq *seq_attach(struct kvc_writer *writer, struct kvc_layout *layout, uint32_t place,
			   uint64_t seq_id, uint64_t base_id);

/* A handle on a spare place (state none); goes to writer->spare. 0 or -1. */
int seq_attach_spare(struct kvc_writer *writer, struct kvc_layout *layout, uint32_t place);

/* One more table names the blocks that the handle holds of a group. */
void seq_ref_blocks(struct kvc_seq *seq, uint32_t group);

/* What kvc_journal_set has not said. */
#define SEQ_KEEP_STEPS 64u
void seq_journal_defaults(struct kvc_seq *seq);

enum seq_end_how {
	SEQ_END_DROPPED, /* the core has dropped it: its blocks are free to use */
	SEQ_END_PARKED,  /* the core keeps it: every block of its table goes to the release list */
	SEQ_END_LOCAL /* a local fork or snapshot: committed as dropped here, its place returns to
			    writer->spare and can be used again */
};

/*
 * Ends a handle and frees it (a local one is kept as spare). Blocks of this writer that no other
 * table names go to the writer's pool or its release list; base is unreferenced. An open update
 * is dropped. Does not fail: a local drop that cannot be committed within the deadline (the core
 * holds the word for longer, or it moved) keeps the blocks counted until the session ends.
 */
void seq_end(struct kvc_seq *seq, enum seq_end_how how);

/* The sequence is a row of a batch: its block i of a group is to be first + i. */
void seq_set_batch(struct kvc_seq *seq, uint32_t group, uint32_t arena, uint32_t first_block);

/* Marks that count, the oldest first, into marks[KV_MARKS_MAX]; how many there are. */
uint32_t seq_marks(const struct kvc_seq *seq, kvc_mark *marks);

/* ---- blocks ------------------------------------------------------------------------------- */

/* How many more blocks each group needs so that n_tokens can be appended, one more to copy into
 * included; takes what it can from the writer's pool first. */
void seq_need(struct kvc_seq *seq, uint64_t n_tokens, uint32_t need[KV_GROUPS_MAX]);

/* Spares of a group with which the next n_tokens tokens need no call. */
uint64_t seq_blocks_wanted(const struct kvc_seq *seq, uint32_t group, uint64_t n_tokens);

/* How many blocks a group lacks to have n_blocks spares; takes what it can from the pool first. */
uint32_t seq_short_of(struct kvc_seq *seq, uint32_t group, uint64_t n_blocks);

/* Journal rows of n_tokens one-token updates. */
uint64_t seq_token_rows(const struct kvc_seq *seq, uint64_t n_tokens);

/* Journal blocks that n_rows more rows need at most. */
uint64_t seq_row_blocks(const struct kvc_seq *seq, uint64_t n_rows);

/*
 * Adds a granted run of blocks to the spares, behind those that are there, so that blocks are
 * used in the order of their grants. The arena must have been mapped (session_arena). -1 with
 * KVC_EPROTO if it makes no sense (a block that is not in the arena, or is owned already).
 */
int seq_grant(struct kvc_seq *seq, uint32_t group, uint32_t arena, uint32_t first_block,
	      uint32_t n_blocks);

/*
 * Calls give() for every run of blocks that is to go back to the daemon (release lists of the
 * writer's sequences and pools; with `all`, also the blocks in the pools) and forgets them.
 * Consecutive blocks are joined.
 */
void writer_release(struct kvc_writer *writer, bool all,
		    void (*give)(void *arg, uint64_t layout_id, uint32_t group, uint32_t arena,
				 uint32_t first_block, uint32_t n_blocks),
		    void *arg);

/* How many blocks writer_release would give (without `all`). */
uint64_t writer_release_count(const struct kvc_writer *writer);

/* The writer's pool for a group of a layout, made if it is new; NULL: memory. */
struct block_pool *writer_pool(struct kvc_writer *writer, const struct kvc_layout *layout,
			       uint32_t group);

/* Takes the block on top, whose table will name it; the caller has seen that there is one. */
struct kvc_block spare_take(struct kvc_seq *seq, uint32_t group);

/* A taken block that never came into a committed table goes back on top. */
void spare_untake(struct kvc_seq *seq, uint32_t group, struct kvc_block block);

/* One more table of this writer names each of the blocks; nothing for those in nobody's books. */
void blocks_ref(const struct kvc_writer *writer, const struct kvc_block *blocks, uint64_t n);

/*
 * Blocks leave a table of this writer, the last one first, after the swap that made it so. meta:
 * of their entries; freeze_now: loaded after the swap. Who is in no table any more becomes a
 * spare of `spares` or, if a freeze may have covered it, goes to `release`. Returns how many
 * became spares.
 */
int64_t blocks_leave(const struct kvc_writer *writer, const struct kvc_block *blocks,
		     const uint32_t *meta, uint64_t n, uint64_t freeze_now,
		     struct block_stack *spares, struct block_stack *release);

/* Block numbers [first, end) of a group leave its table, as blocks_leave has it. */
int64_t group_leave(const struct kvc_seq *seq, uint32_t group, uint64_t first, uint64_t end,
		    uint64_t freeze_now, struct block_stack *spares, struct block_stack *release);

/* Adds to one of the writer's statistics. Only its thread changes them: a load and a store. */
static inline void writer_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* Adds to (or takes from, if negative) the gauge of blocks that are in no table. */
static inline void writer_count_reserved(const struct kvc_writer *writer, int64_t n_bytes)
{
	writer_count(&writer->shm->n_reserved_bytes, (uint64_t)n_bytes);
}

/* ---- updates ------------------------------------------------------------------------------ */

/*
 * Opens the writer's word for an update on top of writer->update. 0; -1 with KVC_EMOVED after
 * everything was read anew (open updates are gone), or KVC_ETIMEOUT while the core holds it.
 */
int update_open(struct kvc_writer *writer);

/* Publishes what was filled since update_open: writer->update is one more afterwards. */
void update_publish(struct kvc_writer *writer);

/* Fills the older copy of an entry / of the header for the update that is open. */
void update_entry(struct kvc_seq *seq, uint32_t group, uint64_t index, uint64_t freeze,
		  struct kvc_block block);
void update_head(struct kvc_seq *seq, const struct kv_head *head);

/* Opens nothing after all: back to idle (or held) with the update number that was there. */
void update_close(struct kvc_writer *writer);

/* The header counts: blocks that it does not name any more leave the handle, but for what was
 * rolled back of journal and states. After a publish. */
void update_settle(struct kvc_seq *seq, const struct kv_head *head);

/* What was rolled back of a group is forgotten. */
void update_drop_future(struct kvc_seq *seq, uint32_t group);

/* -1 with KVC_EINVAL if a sequence is in the list twice; all are of this writer. */
int seqs_distinct(struct kvc_writer *writer, kvc_seq *const *seqs, size_t n_seqs);

/* Begins the first update of a new sequence without a journal, which fills the slots of all its
 * n_tokens tokens, rings past their bound too: the caller writes every slot. -1: KVC_ERESERVE. */
int begin_whole(struct kvc_seq *seq, uint64_t n_tokens);

/* Drops an open update: its blocks are spares again. */
void begin_abort(struct kvc_seq *seq);

/* Takes what is open no more out of the list of open updates. */
void begin_sweep(struct kvc_writer *writer);

/* Is the block in entry `index` of a group, n_filled slots (or rows) of the group in, not to be
 * added to? (Somebody else's, or a freeze covers what would be written.) */
bool begin_is_closed(const struct kvc_seq *seq, uint32_t group, uint64_t index, uint64_t n_filled);

/* Copies the block in entry `index` of a group, its first n_units slots (or rows), into a spare of
 * this update. The caller has seen that there is one. */
void begin_copy(struct kvc_seq *seq, uint32_t group, uint64_t index, uint64_t n_units);

/* Takes spares for the block numbers [pending_end, end) of a group. The caller has seen that there
 * are as many. */
void begin_take(struct kvc_seq *seq, uint32_t group, uint64_t end);

/* Zeros the parts from first_part on, of slots [first, end) of a layer group. */
void begin_zero_slots(const struct kvc_seq *seq, uint32_t group, uint32_t first_part,
		      uint64_t first, uint64_t end);

/* Fills the entries of the blocks that the open update adds to a group or has copied. */
void commit_fill_group(struct kvc_seq *seq, uint32_t group);

/* Blocks of the update that was published: in the books, and those that were copied leave. */
void commit_settle_blocks(struct kvc_seq *seq, uint32_t group);

/* What is left of an update of one sequence whose word is open and whose bytes are written:
 * entries, header, the swap, and what follows from it here. */
void commit_head(struct kvc_seq *seq, const struct kv_head *head);

/* An update that was prepared and is not committed is open as it was before. */
void commit_unprepare(struct kvc_seq *seq);

/* -1 with KVC_ERESERVE if a group has fewer spares than `need`. */
int begin_check_spares(const struct kvc_seq *seq, uint32_t group, uint64_t need);

/* What an entry's meta says. */
#define SEQ_META_COPY (UINT32_C(1) << 31)
static inline uint32_t seq_meta_freeze(uint32_t meta)
{
	return meta & ~SEQ_META_COPY;
}

static inline void group_set_freeze(struct seq_group *g, uint64_t index, uint64_t freeze)
{
	g->meta[index] = (g->meta[index] & SEQ_META_COPY) | (uint32_t)freeze;
}

/* A window without blocks is to begin at a block number. */
static inline void group_restart(struct seq_group *g, uint64_t number)
{
	g->first_block = g->end_block = g->pending_end = number;
}

/* The open update adds blocks to the group or has copied some. */
static inline bool seq_group_changes(const struct seq_group *g)
{
	return g->end_block != g->pending_end || g->n_copied != 0;
}

/* Entry of a block number. */
static inline uint64_t group_index(const struct seq_group *g, uint64_t number)
{
	return number < g->n_entries ? number : number % g->n_entries;
}

static inline enum kv_journal_mode seq_mode(const struct kvc_seq *seq)
{
	return kv_head_mode(seq->head.state);
}

static inline bool seq_is_live(const struct kvc_seq *seq)
{
	return kv_head_state(seq->head.state) == KV_HEAD_LIVE;
}

/* Where a region of a block begins. */
static inline char *seq_piece(const struct kvc_seq *seq, uint32_t region, struct kvc_block block)
{
	const struct arena_map *arena = session_arena_mapped(seq->writer->session, block.arena);
	const struct kv_layout *layout = seq->layout->fields;
	uint32_t in_group = region - layout->groups[arena->group].first_region;

	return arena->base + arena->region_off[in_group] +
	       (uint64_t)block.block * layout->regions[region].piece_bytes;
}

/* The block that holds a slot of a layer group. */
static inline struct kvc_block seq_block_of(const struct kvc_seq *seq, uint32_t group,
					    uint64_t slot)
{
	return seq->groups[group].mirror[slot / seq->layout->fields->block_tokens];
}

#endif
