/*
 * The model check: random operations on the data plane over bare memory, and a simple shadow that
 * says what everything that can be read must be.
 *
 *   mc_values.c   what vectors and planes hold, by number
 *   mc_shadow.c   states, steps and journals as plain arrays
 *   mc_compare.c  everything that can be read, against the shadow
 *   mc_attend.c   attention over it, now and then
 *   mc_sums.c     what attention must give, in f64
 *   mc_update.c   updates: appends, planes, commits and aborts
 *   mc_scatter.c  the scatter calls in them
 *   mc_back.c     marks, rollbacks, options of journals
 *   mc_replay.c   replay forward, fold, replay onto another sequence
 *   mc_core.c     snapshots, forks, freezes at bad moments, death and takeover
 *   mc_recover.c  the core's recovery of rows, compiled for bare memory
 *   mc_world.c    a world of a random shape, and the choice of operations
 *   mc_options.c  the command line
 *   model-check.c the program: episodes, failures, shortening
 *
 * An operation follows from one number and the state that it finds, so that a history stays one
 * when operations are taken out of it. One thread.
 */
#ifndef KVCACHED_TESTS_MODEL_MC_H
#define KVCACHED_TESTS_MODEL_MC_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>

#include "client/compute/codec.h"
#include "tests/support/bare.h"

#define MC_LAYERS 3
#define MC_HEADS 3
#define MC_TOKENS 72u /* max_tokens of every sequence */
#define MC_PLANES 2   /* of each kind, at most */
#define MC_SEQS 6
#define MC_SNAPS 4
#define MC_MARKS 6
#define MC_PARTS 3    /* kvc_scatter calls of an update */
#define MC_READER 40u /* commit word of those who read snapshots */

/* Ends the process: something is wrong. */
_Noreturn void mc_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
#define MC_FAIL(...) mc_fail(__FILE__, __LINE__, __VA_ARGS__)
#define MC_CHECK(what) \
	do { \
		if (!(what)) \
			MC_FAIL("%s (last error: %s)", #what, kvc_error_text()); \
	} while (0)

/* ---- values ------------------------------------------------------------------------------- */

/* K and V of one head of one slot: what is given, what is stored, what is read back. */
struct mc_value {
	uint32_t layer;
	bool is_bad; /* the formats cannot hold it */
	char *full, *stored, *read;
};

/* ---- shadow ------------------------------------------------------------------------------- */

/* One head of one slot. Number 0 of a plane: zeros. A row lies over the block if row is not 0. */
struct mc_cell {
	uint32_t kv, plane[MC_PLANES];
	uint32_t row;    /* rises with the rows of a sequence */
	uint32_t row_kv; /* 0: the block's */
	uint32_t row_plane[MC_PLANES];
};

struct mc_state {
	int n_refs;
	uint64_t length, position, base;
	bool planes_set;
	uint32_t planes[MC_PLANES];
	uint32_t last_row; /* no row of it is above */
	struct mc_cell cells[];
};

struct mc_step {
	struct mc_state *state; /* NULL: nobody can stop there */
	uint32_t n_rows;        /* without the record */
};

struct mc_mark {
	kvc_mark mark;
	struct mc_state *state;
	int step; /* of the journal; -1: it does not reach back to it */
};

/* A sequence. Without rows there is one step, the state of now. */
struct mc_shadow {
	uint32_t mode, when_full, keep_steps;
	uint64_t max_rows; /* 0: by the table alone */
	bool has_rows, scattered, frozen;
	struct mc_step *steps; /* [n]: the floor first, behind `now` what was rolled back */
	int n, now;
	int n_marks;
	struct mc_mark marks[MC_MARKS];
};

/* ---- world -------------------------------------------------------------------------------- */

/* Blocks that are held by something that the writer does not own. */
struct mc_base {
	struct seg_state state;
	int n_refs;
};

struct mc_seq {
	kvc_seq *seq; /* NULL: free */
	bool local;
	struct mc_base *base; /* NULL: none */
	struct mc_shadow shadow;
	bool has_next; /* what the call in flight makes of it */
	struct mc_shadow next;
};

struct mc_snap {
	bool used, is_new; /* new: taken during the call in flight, shadow not known yet */
	int of;
	uint64_t update;
	struct mc_base *base;
	kvc_seq *reader;
	struct mc_shadow shadow;
};

/* What happens at a point between two stores. */
enum mc_event { MC_NOTHING, MC_FREEZE, MC_HOLD, MC_DEATH };

struct mc_world {
	struct bare *bare;
	const struct kv_layout *layout;
	struct kvc_writer *writer, *reader;
	uint64_t random;
	uint32_t format; /* asked for; 0: any */
	bool verbose;
	bool spoils; /* values that are made now may be bad */

	uint32_t n_cells, first_cell[MC_LAYERS], n_slots[MC_LAYERS];
	uint32_t n_slot_planes, n_seq_planes;
	const char *slot_plane[MC_PLANES], *seq_plane[MC_PLANES];
	uint32_t slot_plane_bytes[MC_PLANES], seq_plane_bytes[MC_PLANES];

	struct mc_value *values;
	uint32_t n_values, values_cap, n_numbers;
	uint32_t n_rows;

	struct mc_seq seqs[MC_SEQS];
	struct mc_snap snaps[MC_SNAPS];

	/* the call in flight */
	bool in_call; /* points count only then */
	uint64_t call_update;
	enum mc_event event;
	uint64_t event_in;           /* points from now */
	uint64_t n_points;           /* of calls */
	bool dies_open;              /* before the commit of what it has written */
	bool freeze_wanted, is_held; /* held: the core takes its time */
	int freeze_of;
	jmp_buf death;
	uint64_t n_ops, n_skipped, n_deaths, n_freezes, n_refused;
};

uint64_t mc_draw(struct mc_world *w, uint64_t n);
bool mc_one_in(struct mc_world *w, uint64_t n);
void mc_say(struct mc_world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* mc_values.c */
void mc_values_init(struct mc_world *w);
uint32_t mc_value_new(struct mc_world *w, uint32_t layer);
/* A value that is given as another one is read. */
uint32_t mc_value_as_read(struct mc_world *w, uint32_t of);
/* Puts a NaN or an infinity into a value that was just made. */
void mc_value_spoil(struct mc_world *w, uint32_t value);
uint32_t mc_number(struct mc_world *w);
void mc_fill_plane(char *bytes, uint32_t n_bytes, uint32_t number);
uint32_t mc_full_bytes(const struct mc_world *w, uint32_t layer);
uint32_t mc_k_bytes(const struct mc_world *w, uint32_t layer);
void mc_values_free(struct mc_world *w);

/* mc_shadow.c */
struct mc_state *mc_state_copy(struct mc_world *w, const struct mc_state *from); /* NULL: empty */
struct mc_state *mc_state_ref(struct mc_state *state);
void mc_state_unref(struct mc_state *state);
struct mc_state *mc_state_cut(struct mc_world *w, const struct mc_state *from, uint64_t n_tokens);
static inline struct mc_state *mc_now(const struct mc_shadow *s)
{
	return s->steps[s->now].state;
}
void mc_shadow_init(struct mc_world *w, struct mc_shadow *s);
void mc_shadow_fini(struct mc_shadow *s);
struct mc_shadow mc_shadow_copy(const struct mc_shadow *s);
void mc_shadow_push(struct mc_shadow *s, struct mc_state *state, uint32_t n_rows);
void mc_shadow_drop_future(struct mc_shadow *s);
void mc_shadow_drop_marks(struct mc_shadow *s, uint64_t length);
uint64_t mc_shadow_rows(const struct mc_shadow *s);
int mc_shadow_steps(const struct mc_shadow *s, int from, int to); /* that one can stop at */
/* What a snapshot or fork has of it. */
struct mc_shadow mc_shadow_share(const struct mc_shadow *s);
/* Forgets what the library forgot: the journal has n_steps and n_rows now. */
void mc_shadow_forget(struct mc_world *w, struct mc_shadow *s, uint64_t n_steps, uint64_t n_rows);
struct mc_cell *mc_cell(const struct mc_world *w, struct mc_state *state, uint32_t layer,
			uint32_t head, uint64_t slot);
uint64_t mc_slots(const struct mc_world *w, uint32_t layer, uint64_t n_tokens);

/* mc_compare.c */
void mc_compare(struct mc_world *w, kvc_seq *seq, const struct mc_shadow *s, const char *what);
void mc_compare_all(struct mc_world *w);
/* A head of a slot as kvc_read gives it. */
const char *mc_cell_read(const struct mc_world *w, const struct mc_cell *c);

/* mc_attend.c */
void mc_attend(struct mc_world *w, kvc_seq *seq, const struct mc_shadow *s, const char *what);

/* mc_world.c */
struct mc_world *mc_world_new(uint64_t seed, uint32_t format, bool verbose);
void mc_world_free(struct mc_world *w);
/* A layout: what all have, and room for planes; layers, of which every second one has the second
 * bound; planes; then, checked and derived, mostly with few rows a journal block. */
struct kv_layout *mc_layout_begin(struct mc_world *w);
void mc_draw_layers(struct mc_world *w, struct kv_layout *layout, const uint32_t bounds[2],
		    uint64_t no_values_one_in);
void mc_add_plane(struct kv_layout *layout, const char *name, uint32_t scope, uint32_t bytes);
struct kv_layout *mc_layout_finish(struct mc_world *w, struct kv_layout *layout);
uint64_t mc_op_number(uint64_t seed, uint64_t i);
void mc_step(struct mc_world *w, uint64_t number);
/* One operation without anything but, if `at` is not 0, the writer's death at its point `at`.
 * Returns how many points it passed. */
uint64_t mc_step_dying(struct mc_world *w, uint64_t number, uint64_t at);
struct mc_seq *mc_pick(struct mc_world *w);
struct mc_seq *mc_free_seq(struct mc_world *w);
void mc_seq_clear(struct mc_seq *s);

/* Before a call that may commit; what it makes of sequences is in their `next`. Afterwards `next`
 * counts, or is forgotten. */
void mc_call(struct mc_world *w);
void mc_done(struct mc_world *w, bool committed);

/* Blocks for what was refused with KVC_ERESERVE; false: the pool has none. */
bool mc_reserve(struct mc_world *w, struct mc_seq *s, uint64_t n_tokens, uint64_t n_rows);

/* Operations; each picks what it needs. */
void mc_op_update(struct mc_world *w);
void mc_op_reserved(struct mc_world *w);
void mc_op_marks(struct mc_world *w);
void mc_op_rollback(struct mc_world *w);
void mc_op_rollback_many(struct mc_world *w);
void mc_op_forward(struct mc_world *w);
void mc_op_journal(struct mc_world *w);
void mc_op_fold(struct mc_world *w);
void mc_op_replay_from(struct mc_world *w);
void mc_op_replay_base(struct mc_world *w);
void mc_op_new(struct mc_world *w);
void mc_op_fork_local(struct mc_world *w);
void mc_op_drop(struct mc_world *w);
void mc_op_snapshot(struct mc_world *w);
void mc_op_fork(struct mc_world *w);
void mc_op_operator(struct mc_world *w);
void mc_op_death(struct mc_world *w);

/* mc_back.c */
/* The shadow after going back to step `to`. */
struct mc_shadow mc_back_to(const struct mc_shadow *s, int to);
/* Blocks to copy into, and the call again. */
int mc_with_copies(struct mc_world *w, struct mc_seq *s, int (*call)(void *arg), void *arg);
/* The outcome of a call must be `status`, or a lack of blocks. */
void mc_conclude(struct mc_world *w, int rc, int status);

/* mc_update.c */
void mc_update_of(struct mc_world *w, struct mc_seq *s);

/* mc_core.c */
bool mc_fork_local(struct mc_world *w, struct mc_seq *s, struct mc_seq *to, bool is_snapshot);
void mc_take_snapshot(struct mc_world *w); /* of any sequence, also while updates are open */
void mc_at_point(struct mc_world *w);
void mc_finish_freeze(struct mc_world *w);
void mc_after_death(struct mc_world *w);
void mc_base_unref(struct mc_world *w, struct mc_base *base);
void mc_snap_drop(struct mc_world *w, struct mc_snap *snap);

/* mc_recover.c: what the core does to the rows of a writer that is gone. Returns the update that
 * counts. */
uint64_t mc_bury(struct mc_world *w);

#endif
