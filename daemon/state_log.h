/*
 * The catalogue's records of everything in daemon/state.h: written when something changes, read
 * when a core starts, all written anew when half of the log is dead.
 *
 * log_X() adds a record of what X is now to the open batch (nothing while loading). Core thread.
 */
#ifndef KV_DAEMON_STATE_LOG_H
#define KV_DAEMON_STATE_LOG_H

#include "daemon/state.h"

void log_layout(struct core *core, const struct layout_entry *entry, uint32_t uid);
void log_session(struct core *core, const struct session *session);
void log_session_gone(struct core *core, uint64_t id);
void log_writer(struct core *core, const struct session *session, uint32_t writer);
void log_arena(struct core *core, const struct arena *arena);
void log_arena_gone(struct core *core, uint64_t id);
enum { LOG_BLOCKS_FREE = 0, LOG_BLOCKS_GRANTED = 1, LOG_BLOCKS_DIRTY = 2 };
void log_blocks(struct core *core, const struct arena *arena, uint32_t first, uint32_t n_blocks,
		uint32_t state);
void log_number(struct core *core, const struct session *session, uint32_t number);
void log_place(struct core *core, const struct session *session, const struct place *place);
void log_place_free(struct core *core, const struct session *session, uint32_t index);
void log_state(struct core *core, const struct state *state);
void log_state_gone(struct core *core, uint64_t id);
void log_object(struct core *core, const struct object *object);
void log_object_gone(struct core *core, uint64_t id);
void log_pin(struct core *core, const struct session *session, const struct session_pin *pin);
void log_decided(struct core *core);
void log_result(struct core *core, const struct session *session, const struct request *request);
void log_ack(struct core *core, const struct session *session);
/* Digests that are known now, or not any more. */
void log_arena_digests(struct core *core, const struct arena *arena, const uint32_t *blocks,
		       uint64_t n, bool known);
void log_partial_digests(struct core *core, const struct state *state);
void log_watch(struct core *core, const struct session *session, const struct watch *watch);
void log_watch_over(struct core *core, uint64_t id);

/* Makes the open batch true. */
void state_make_true(struct core *core);

/* What must wait for that, and a reply must not wait for: gives table room back, sends events,
 * fires watches, zeroes a few blocks, writes the log anew when it is stale. */
void state_settle(struct core *core);

/* Both. */
void state_commit(struct core *core);

/* All that is known, as records, in an order in which it can be loaded. Requests' results only
 * `with_requests`. */
void state_dump(struct core *core, bool with_requests);

/* Builds everything from the catalogue and the kept descriptors. 0, or -1 with what is wrong. */
int state_load(struct core *core, struct errbuf *err);

#endif
