/*
 * A control segment, one arena a layer group and a tiny core, all in this process (or shared with
 * forked children): drives the data plane and the commit protocol without a daemon.
 *
 * The little core grants blocks, takes snapshots under a hold, and scribbles over every block
 * that it believes to be free, so that a wrong belief shows as wrong bytes.
 */
#ifndef KVCACHED_TESTS_SUPPORT_BARE_H
#define KVCACHED_TESTS_SUPPORT_BARE_H

#include "client/seq.h"
#include "daemon/hold.h"
#include "daemon/segment.h"

#define BARE_ARENA_BLOCKS 4096u
#define BARE_PLACES 512u

struct bare_arena {
	struct arena_map map;
	/* [n_blocks] each, shared with forked children */
	_Atomic uint8_t *granted;
	_Atomic uint32_t *pins; /* by snapshots */
};

struct bare {
	struct kvc_session session;
	struct segment segment;
	struct kvc_layout layout;
	struct bare_arena arenas[KV_GROUPS_MAX];
	struct seg_place places[BARE_PLACES];
	bool place_used[BARE_PLACES];
	uint32_t n_places; /* none at or behind it was ever used */
	uint64_t next_seq_id;
	/* a test may make the world smaller than it is; 0: it does not */
	uint32_t most_blocks[KV_GROUPS_MAX];  /* of the pool */
	uint32_t most_entries[KV_GROUPS_MAX]; /* of tables */
};

/* A layout of n_layers with the given heads and widths of layer i, f32, block_tokens slots. */
struct kv_layout *bare_layout(uint32_t n_layers, const struct kv_layer *layers,
			      uint32_t block_tokens);

/* Takes the layout over. Fails the test on any error. */
struct bare *bare_new(struct kv_layout *fields);
void bare_free(struct bare *bare);

struct kvc_writer *bare_writer(struct bare *bare, uint32_t index);

/* A new sequence from nothing, or from a copied state (fork, takeover). */
struct kvc_seq *bare_seq(struct bare *bare, struct kvc_writer *writer, uint64_t max_tokens,
			 const struct seg_state *state);
/* The same; NULL with the library's error. */
struct kvc_seq *bare_seq_try(struct bare *bare, struct kvc_writer *writer, uint64_t max_tokens,
			     const struct seg_state *state);
/* A handle on a snapshot, for reading. */
struct kvc_seq *bare_open(struct bare *bare, struct kvc_writer *writer, uint64_t max_tokens,
			  const struct seg_state *state);

/* The place of a handle that has ended (not of a local fork), or of a dead writer, is free again. */
void bare_place_free(struct bare *bare, uint32_t place);

void bare_spare_places(struct bare *bare, struct kvc_writer *writer, uint64_t max_tokens,
		       uint32_t n);

/* What kvc_reserve does: -1 when the pool has no blocks left. Takes back what is released. */
int bare_reserve(struct bare *bare, struct kvc_seq *seq, uint64_t n_tokens);

/* What kvc_reserve_scatter does; never more than a table has blocks. */
int bare_reserve_scatter(struct bare *bare, struct kvc_seq *seq, uint64_t n_updates,
			 uint64_t n_rows, uint32_t n_blocks);
void bare_take_back(struct bare *bare, struct kvc_writer *writer, bool all);

/* A snapshot of a place as the core takes it; pins its blocks. -1: the word was not to be had. */
int bare_snapshot(struct bare *bare, uint32_t place, struct seg_state *state);

/* The same for a word that is held, and goes on being so. */
void bare_snapshot_held(struct bare *bare, uint32_t place, struct seg_state *state);
void bare_pin(struct bare *bare, const struct seg_state *state, int n);

/* An operator's rollback. -1: the word was not to be had. */
int bare_operator_rollback(struct bare *bare, uint32_t place, uint64_t keep_tokens);

/* The row of a token in a region, as the state says. */
const char *bare_row(struct bare *bare, const struct seg_state *state, uint32_t group,
		     uint32_t region, uint64_t token);

/* The writers are gone: nothing is granted any more, what nobody pins is scribbled over. */
void bare_revoke_all(struct bare *bare);

/* Number of blocks that are granted or pinned. */
uint64_t bare_n_used(const struct bare *bare);

#endif
