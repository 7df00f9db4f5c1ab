/*
 * Reading live sequences: what a writer committed, copied out of its control segment and checked
 * to name only blocks that the session may use; and parking them when the session ends.
 *
 * A block is the session's own (granted to it, of the right layout and group) or has the same
 * number in the base that the place uses: for places that the core made, the base it knows;
 * for local forks, the one they claim, if the session has pinned it. Core thread.
 */
#ifndef KV_DAEMON_LIVE_H
#define KV_DAEMON_LIVE_H

#include "daemon/state.h"

/* All that a sequence has, or what a snapshot or fork keeps of it. */
enum live_part { LIVE_ALL, LIVE_SHARED };

/*
 * What a place holds at `update`: the word is held, or its writer gone and its stamps cleared.
 * seg gets header and marks (no references). *out: not published, one reference; state_unref()d
 * by the caller. -1: KV_ECORRUPT names what is wrong, KV_ENOMEM.
 */
int live_read(const struct session *session, const struct place *place, uint64_t update,
	      enum live_part part, struct seg_state *seg, struct state **out, struct errbuf *err);

/* The same without a hold, racing with the writer: a consistent copy, or -1 with KV_EBUSY after
 * a bounded number of tries. */
int live_peek(const struct session *session, const struct place *place, struct state **out,
	      struct errbuf *err);

/* Is it an arena of the session for that group of the place? Its granted blocks are the session's
 * own. NULL is none. */
bool live_owns_arena(const struct session *session, const struct place *place, uint32_t group,
		     const struct arena *arena);

/* Only the header, without a hold; state KV_HEAD_NONE if it cannot be had. */
void live_head(const struct session *session, const struct place *place, struct kv_head *head,
	       uint64_t *update);

/* Parks the named sequences of a session that ends, drops the others. `gone`: its process has
 * exited, and recover_rows() is done; else its writers may still run and are stopped for the copy,
 * if they let themselves. One that does not, and overwrites slots, loses its sequence: half of it
 * must not be taken for the whole. */
void live_park_session(struct session *session, bool gone);

/*
 * Gives a place up whose word is held or whose writer is gone: parks the sequence with `state`
 * (a reference, taken over), or drops it (NULL).
 */
void live_leave(struct session *session, struct place *place, struct state *state);

#endif
