/*
 * The reply store: each request of a session is run once, however often it is sent.
 *
 * A request id is new, running (a re-send replaces the route of its reply), answered (the stored
 * reply goes out again) or below the window (ESTALE, never run). The window moves up with `acked`.
 * Results of commands that changed something are in the catalogue, in the batch of the change, so
 * a later life of the core gives the same answer. Core thread.
 */
#ifndef KV_DAEMON_REQUESTS_H
#define KV_DAEMON_REQUESTS_H

#include "daemon/state.h"

/* NULL: not in the window. */
struct request *requests_find(struct session *session, uint64_t id);

/* All replies up to `acked` have arrived. */
void requests_ack(struct session *session, uint64_t acked);

/* A new running request. -1 with KV_ELIMIT. */
int requests_add(struct session *session, uint64_t id, struct command *command, struct errbuf *err);

/* Its answer; takes over the reply. */
void requests_answer(struct session *session, uint64_t id, uint8_t *reply, uint32_t n_reply);

/* Not run after all. */
void requests_remove(struct session *session, uint64_t id);

/* One of the catalogue; keeps the last KV_IN_FLIGHT_MAX. */
void requests_load(struct session *session, uint64_t id, const void *reply, uint32_t n_reply);

void requests_drop_all(struct session *session);
void requests_fini(struct session *session);

#endif
