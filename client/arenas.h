/* Mapped arenas of a session; session_arena() is in client/session.h. */
#ifndef KV_CLIENT_ARENAS_H
#define KV_CLIENT_ARENAS_H

#include "client/session.h"

/* Unmaps all; for the session's end. */
void session_arenas_fini(struct kvc_session *session);

#endif
