/*
 * The walk with policies: random updates under random policies on the data plane over bare memory.
 * Its shadow is the policy itself on plain arrays (struct kvc_policy_ops knows nothing else), and
 * what is in each (layer, head, slot).
 *
 *   pw_world.c    a world of a random shape with a random policy, and the choice of operations
 *   pw_own.c      a policy that chooses anything that it may
 *   pw_shadow.c   states; what the policy makes of them
 *   pw_compare.c  everything that can be read, against the shadow
 *   pw_attend.c   attention inside an update, against sums in f64
 *   pw_update.c   updates of one sequence or two: chosen, written, scored; aborts
 *   pw_back.c     marks, rollbacks, forward again, fold
 *   pw_share.c    forks and snapshots, other handles and hands
 *   policy-check.c the program
 *
 * Vectors, numbers and failures are those of mc.h. One thread.
 */
#ifndef KVCACHED_TESTS_MODEL_PW_H
#define KVCACHED_TESTS_MODEL_PW_H

#include "client/policy/policy.h"
#include "client/policy_planes.h"
#include "tests/model/mc.h"

#define PW_LAYERS MC_LAYERS
#define PW_HEADS MC_HEADS
#define PW_SLOTS 40u   /* of a layer with bound, at most */
#define PW_TOKENS 160u /* max_tokens of every sequence */
#define PW_SEQS 5
#define PW_MARKS 4
#define PW_STATE_BYTES 64u /* of a policy, a layer */
#define PW_ANOTHER_BYTES 24u

/* One head of one slot. */
struct pw_cell {
	uint32_t value; /* of mc.h */
	uint32_t row;   /* the update whose row it is, read as given; 0: it is in a block */
	uint32_t side[POLICY_SIDES];
};

struct pw_layer_state {
	_Alignas(16) char state[PW_STATE_BYTES];
	float scores[PW_HEADS * PW_SLOTS];
};

struct pw_state {
	int n_refs;
	uint64_t length;
	bool has_digest; /* seen before */
	uint8_t digest[16];
	struct pw_layer_state layers[PW_LAYERS];
	struct pw_cell cells[];
};

struct pw_mark {
	kvc_mark mark;
	int step; /* -1: the journal does not reach back to it */
};

/* States that can be gone back to: steps[0] is the floor, behind `now` what was rolled back. */
struct pw_shadow {
	uint32_t mode, when_full, keep_steps; /* options of the journal */
	bool has_rows;
	struct pw_state **steps;
	int n, now;
	int n_marks;
	struct pw_mark marks[PW_MARKS];
};

/* Blocks that the core holds for a snapshot. */
struct pw_base {
	struct seg_state state;
	int n_refs;
};

struct pw_seq {
	kvc_seq *seq;       /* NULL: free */
	kvc_policy *policy; /* NULL: read-only */
	bool local, is_reader;
	struct pw_base *base; /* NULL: none */
	struct pw_shadow shadow;
	bool has_range; /* given for the next update */
	struct kvc_policy_range range;
};

/* What a policy sees of a layer, with room for it. */
struct pw_view {
	struct kvc_policy_layer layer;
	uint32_t side[POLICY_SIDES][PW_HEADS * PW_SLOTS];
	float scratch[PW_HEADS * PW_SLOTS];
};

/* A plan with its memory. */
struct pw_plan {
	struct kvc_policy_plan plan;
	uint32_t slots[PW_HEADS * PW_TOKENS], from[PW_HEADS * PW_TOKENS], to[PW_HEADS * PW_TOKENS];
};

/* New tokens of a layer, [token][head]. */
struct pw_tokens {
	uint32_t value[PW_TOKENS * PW_HEADS];
	float norm[PW_TOKENS * PW_HEADS], error[PW_TOKENS * PW_HEADS];
};

struct pw_update {
	struct pw_seq *s;
	uint64_t n_tokens;
	uint32_t flags, row;
	const struct pw_state *from;
	struct pw_state *to;
};

struct pw_world {
	struct mc_world mc;
	struct kvc_policy_options options, resolved;
	const struct kvc_policy_ops *ops;
	bool has_side[POLICY_SIDES], has_state;
	const char *other; /* a slot plane that no policy has; NULL: none */
	uint32_t other_bytes;
	bool has_another;            /* a sequence plane that no policy has */
	size_t layer_off[PW_LAYERS]; /* in the sequence plane */
	uint32_t n_cells, first_cell[PW_LAYERS];
	uint64_t own_seed;
	uint32_t n_updates;
	struct pw_seq seqs[PW_SEQS];
	uint64_t n_ops, n_steps, n_attended, n_refused;
};

/* The last lines are kept for when it fails. */
void pw_say(struct pw_world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define PW_LINES 40
#define PW_LINE_BYTES 160
struct pw_report {
	uint64_t seed, n_ops, n_steps, n_attended, n_refused;
	uint64_t n_lines;
	char lines[PW_LINES][PW_LINE_BYTES];
};
extern struct pw_report *pw_report;

/* pw_world.c */
struct pw_world *pw_world_new(uint64_t seed, uint32_t format, bool verbose);
void pw_world_free(struct pw_world *w);
void pw_step(struct pw_world *w, uint64_t number);
/* A sequence that can be written; NULL: none. */
struct pw_seq *pw_pick(struct pw_world *w);
struct pw_seq *pw_free_seq(struct pw_world *w);

/* pw_own.c */
extern const struct kvc_policy_ops pw_own_ops[2];

/* pw_shadow.c */
struct pw_state *pw_state_copy(struct pw_world *w, const struct pw_state *from); /* NULL: empty */
struct pw_state *pw_state_ref(struct pw_state *state);
void pw_state_unref(struct pw_state *state);
struct pw_cell *pw_cell(const struct pw_world *w, const struct pw_state *state, uint32_t layer,
			uint32_t head, uint64_t slot);
uint64_t pw_slots(const struct pw_world *w, uint32_t layer, uint64_t length);
const char *pw_read(const struct pw_world *w, const struct pw_cell *cell);
/* What the policy sees of a state; sides are those of `sides`, which may be a later one. */
void pw_see(struct pw_world *w, const struct pw_state *state, const struct pw_state *sides,
	    uint32_t layer, struct pw_view *view);
uint64_t pw_limit(struct pw_world *w, const struct pw_state *state);
void pw_choose(struct pw_world *w, const struct pw_state *state, uint32_t layer, uint64_t n,
	       struct pw_plan *plan);
/* The tokens are in their slots, in u->to; then what the policy makes of the weights. */
void pw_put(struct pw_world *w, struct pw_update *u, uint32_t layer, const struct pw_plan *plan,
	    const struct pw_tokens *tokens);
void pw_settle(struct pw_world *w, struct pw_update *u, uint32_t layer, const struct pw_plan *plan,
	       const float *weights);
static inline struct pw_state *pw_now(const struct pw_seq *s)
{
	return s->shadow.steps[s->shadow.now];
}
void pw_shadow_init(struct pw_world *w, struct pw_shadow *s);
void pw_shadow_fini(struct pw_shadow *s);
/* What a fork or snapshot has of it. */
struct pw_shadow pw_shadow_share(const struct pw_shadow *s);
void pw_push(struct pw_shadow *s, struct pw_state *state); /* takes the reference */
void pw_drop_future(struct pw_shadow *s);
/* Steps below are forgotten. */
void pw_forget(struct pw_shadow *s, int floor);

/* pw_compare.c */
void pw_compare(struct pw_world *w, struct pw_seq *s);

/* pw_attend.c: the layer of the open update; weights are what kvc_attend says. False: the layer
 * cannot be attended to. */
bool pw_attend(struct pw_world *w, const struct pw_update *u, uint32_t layer,
	       const struct pw_plan *plan, const struct pw_tokens *tokens, const char *k,
	       const char *v, float *weights);

/* pw_update.c */
/* Options of a journal of this mode, and the shadow with them if the library takes them. */
int pw_set_journal(struct pw_world *w, struct pw_seq *s, uint32_t mode);
void pw_op_update(struct pw_world *w);
/* Blocks and rows for n tokens. */
void pw_reserve(struct pw_world *w, struct pw_seq *s, uint64_t n_tokens);

/* pw_back.c */
void pw_op_mark(struct pw_world *w);
void pw_op_rollback(struct pw_world *w);
void pw_op_forward(struct pw_world *w);
void pw_op_fold(struct pw_world *w);
void pw_op_mode(struct pw_world *w);
void pw_fold(struct pw_world *w, struct pw_seq *s, uint64_t keep);
void pw_release_marks(struct pw_world *w, struct pw_seq *s);

/* pw_share.c */
void pw_op_new(struct pw_world *w);
void pw_op_hand(struct pw_world *w);
void pw_op_fork_local(struct pw_world *w);
void pw_op_snapshot_local(struct pw_world *w);
void pw_op_core(struct pw_world *w);
void pw_op_drop(struct pw_world *w);
void pw_drop(struct pw_world *w, struct pw_seq *s);

#endif
