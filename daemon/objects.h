/*
 * Objects (sequences, snapshots) and the immutable states behind those that are not live.
 *
 * An object is listed (users see it) until it is removed; it exists until nobody pins it either.
 * A state exists while an object, a job or a command has a reference; it pins each of its blocks.
 * Core thread.
 */
#ifndef KV_DAEMON_OBJECTS_H
#define KV_DAEMON_OBJECTS_H

#include "daemon/state.h"

/* ---- states ------------------------------------------------------------------------------- */

/* A state without id and pins, one reference; to be filled. */
struct state *state_new(const struct layout_entry *layout);

/* Counts the arenas of a filled state (all must be known). -1: an arena is not known. */
int state_count_arenas(struct core *core, struct state *state, struct errbuf *err);

/* Gives it a number, pins its blocks, logs it. */
void state_publish(struct core *core, struct state *state);
/* The same for one that has its number already (start). */
void state_enlist(struct core *core, struct state *state);

static inline struct state *state_ref(struct state *state)
{
	state->n_refs++;
	return state;
}
/* Frees it with its last reference; NULL is allowed. */
void state_unref(struct core *core, struct state *state);

/* Counts of slots and blocks as its header says. */
void state_set_counts(struct state *state);

/* The block of that number in a group; NULL: the state has none. */
const uint64_t *state_block(const struct state *state, uint32_t group, uint64_t number);

/* Has it more than a snapshot or fork keeps? Then what they keep, as a new one that is not
 * published. */
bool state_has_private(const struct state *state);
struct state *state_share(const struct state *state);

/*
 * The first n_tokens of a state, as a new one that is not published: only where the rest was
 * appended and nothing else (state_may_cut). `what` names the sequence in messages.
 */
int state_may_cut(const struct kv_layout *layout, const struct kv_head *head, uint64_t n_tokens,
		  const char *what, struct errbuf *err);
struct state *state_cut(const struct state *state, uint64_t n_tokens);

uint64_t state_bytes(const struct state *state);
/* Of those, in blocks of its journal. */
uint64_t state_journal_bytes(const struct state *state);
/* Of those, in blocks that something else uses as well. */
uint64_t state_shared_bytes(const struct core *core, const struct state *state);
/* Ranges of blocks side by side, of the group that has most. */
uint32_t state_runs(const struct state *state);

/* ---- objects ------------------------------------------------------------------------------ */

/* -1 with KV_EQUOTA unless the user may have n more. */
int objects_check_quota(const struct core *core, const struct pool_user *user, uint32_t n,
			struct errbuf *err);

/* Not logged yet. `listed` ones are counted to the user. */
struct object *object_new(struct core *core, enum object_kind kind, uint32_t uid,
			  const struct layout_entry *layout, bool listed);

/* A listed object of that user, or NULL. */
struct object *object_find(const struct core *core, uint32_t uid, uint64_t id);

/* An internal, unlisted snapshot of a published state, for a session to pin. */
struct object *object_internal(struct core *core, uint32_t uid, struct state *state,
			       uint64_t parent_id);

/* Takes it from the user's sight, and frees it unless it is pinned. */
void object_unlist(struct core *core, struct object *object);

/* Frees it if it is neither listed nor pinned. */
void object_collect(struct core *core, struct object *object);

/* Exchanges its state (NULL: it is live now); takes over the caller's reference. */
void object_set_state(struct core *core, struct object *object, struct state *state);

/* Anonymous snapshots of a session that ends. */
void objects_drop_of_session(struct session *session);

/* Frees the memory, no word to anyone. */
void object_free(struct object *object);
void state_free(struct state *state);

#endif
