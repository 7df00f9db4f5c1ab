/*
 * From a state to the message of a saved one (proto/saved.proto) and back. Core thread.
 */
#ifndef KV_DAEMON_SAVED_STATE_H
#define KV_DAEMON_SAVED_STATE_H

#include "daemon/state.h"
#include "proto/saved.pb-c.h"

/* Fills head, marks and layout of a message, whose groups have n_slots and first_block and else
 * nothing; what is filled in otherwise stays the caller's. Freed by saved_state_drop(). */
void saved_state_fill(const struct state *state, Kv__Saved__Saved *head);
void saved_state_drop(Kv__Saved__Saved *head);

/*
 * Is the message one of a state of that layout? 0 and a state with head, marks and counts, whose
 * tables are zeros; -1 KV_ECORRUPT with what does not fit.
 */
int saved_state_read(const struct layout_entry *layout, const Kv__Saved__Saved *head,
		     struct state **state, struct errbuf *err);

#endif
