/* Events: noted with a change, sent when the change is true. Core thread. */
#ifndef KV_DAEMON_EVENTS_H
#define KV_DAEMON_EVENTS_H

#include "daemon/state.h"

/* Numbers of Event.kind in proto/kvcache.proto. */
enum event_kind {
	EVENT_SESSION_BEGUN = 1,
	EVENT_SESSION_ENDED = 2,
	EVENT_SNAPSHOT_MADE = 3,
	EVENT_SNAPSHOT_REMOVED = 4,
};

void event_note(struct core *core, enum event_kind kind, uint64_t id, uint64_t session,
		uint32_t uid, uint64_t length_tokens);

/* Sends what was noted. */
void events_flush(struct core *core);

#endif
