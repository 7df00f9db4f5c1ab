/*
 * Sessions: from Hello to the death of the process, and what belongs to one.
 *
 *   ATTACHED --hang-up, Bye, operator--> ENDED --pidfd--> gone
 *   ATTACHED --pidfd--> gone            AWAY --Hello--> ATTACHED, AWAY --pidfd--> gone
 *
 * When a session ends, its named sequences are parked and its unnamed ones dropped, its pins go
 * at once, and the memory that its process could write stays in quarantine until the pidfd fires.
 * One that has no such memory (any more) is forgotten.
 *
 * One that overwrites slots of a named sequence right then ends a little later (is_ending): when
 * the rows of the undo journal have been put back (daemon/recover_rows.h), for which its process
 * must have gone, or when its writer is through, at most a second or two.
 *
 * A session that is AWAY (the core was restarted) is kept for as long as its process lives, not
 * for a fixed time: the library has no thread of its own, so a process that computes for a minute
 * cannot come back earlier. Core thread.
 */
#ifndef KV_DAEMON_SESSION_H
#define KV_DAEMON_SESSION_H

#include "daemon/state.h"

struct session *session_find(const struct core *core, uint64_t id);

/* A new session of a connected process; takes conn->pidfd. nonce: TOKEN_BYTES of its Hello, or
 * NULL. NULL with err. */
struct session *session_new(struct core *core, struct attach_conn *conn, const uint8_t *nonce,
			    struct errbuf *err);

/* A session that a catalogue names; pidfd becomes owned. Without segment yet. */
struct session *session_load(struct core *core, const struct cat_session *record, int pidfd);

/* Ends it; for one that has ended already: looks whether its process has gone. The session may
 * be freed. `why` is for the log. */
void session_end(struct session *session, const char *why);

/* Forgets ended sessions that have no memory in quarantine: there is nothing to wait for, though
 * their process lives. In the next round: nobody holds one of them then. */
void sessions_forget_emptied(struct core *core);

/* Goes on with sessions that could not end at once: those whose process has gone, and at each tick
 * the others. True: call again in the next round. */
bool sessions_end_on(struct core *core, bool tick);

/* Frees the memory of a session without any word to anyone (end of the core). */
void session_free(struct session *session);

/* Watches the pidfd. */
int session_watch_process(struct session *session);

/* ---- arena numbers ------------------------------------------------------------------------ */

/* Number of an arena in the session, one use more; 0 with err (KV_ELIMIT). */
uint32_t session_number(struct session *session, struct arena *arena, struct errbuf *err);
/* One use less; at 0 the number is free. */
void session_number_release(struct session *session, struct arena *arena);
/* The number it has, 0: none. */
uint32_t session_number_of(const struct session *session, const struct arena *arena);
struct arena *session_arena(const struct session *session, uint32_t number); /* NULL: none */

/* ---- pins --------------------------------------------------------------------------------- */

struct session_pin *session_pin_find(const struct session *session, const struct object *object);

/* Pins an object that has a state: for the client (until Unpin), or for a place. -1: no arena
 * number is left. */
int session_pin(struct session *session, struct object *object, bool by_client, struct errbuf *err);
void session_unpin(struct session *session, struct object *object, bool by_client);

/* ---- writers and places ------------------------------------------------------------------- */

/* -1 with KV_EINVAL unless it is a writer of the session. */
int session_check_writer(const struct session *session, uint32_t writer, struct errbuf *err);

/* NULL with err unless something is there. */
struct place *session_place(const struct session *session, uint32_t index, struct errbuf *err);

/* A place with tables; not initialised in the segment and not logged yet. NULL with err. */
struct place *session_place_new(struct session *session, enum place_kind kind, uint32_t writer,
				const struct layout_entry *layout, uint64_t max_tokens,
				struct errbuf *err);

/* Puts memory behind the parts of its tables that the blocks of a state need, so that filling
 * them is no fault. -1 with KV_ENOMEM. */
int session_place_prepare(struct session *session, const struct place *place,
			  const struct state *state, struct errbuf *err);

/* Gives a place back; its tables after the next commit. */
void session_place_free(struct session *session, struct place *place);

/* Does the session own this block? */
bool session_owns(const struct session *session, const struct arena *arena, uint32_t block);

/* ---- what its writers count --------------------------------------------------------------- */

struct session_counts {
	uint64_t n_reserved_bytes; /* claimed, at most what was granted */
	uint64_t n_commits, n_appended_tokens, n_copied_bytes, n_rollbacks, n_local_forks;
};
void session_counts(const struct session *session, struct session_counts *counts);
uint64_t session_granted_bytes(const struct session *session);

/* ---- watches ------------------------------------------------------------------------------ */

/* fd becomes owned, also on failure. */
int session_watch(struct session *session, const char *name, int fd, struct errbuf *err);
void session_watch_load(struct session *session, uint64_t id, const char *name, int fd);
/* Fires and forgets the watches whose names exist. */
void sessions_fire_watches(struct core *core);

/* Root and the daemon's own user see all users' things, may end sessions and look after the store;
 * they change nothing else of others. */
bool session_is_operator(const struct session *session);

#endif
