/* kvc_open with what only tests choose. */
#ifndef KV_CLIENT_OPEN_H
#define KV_CLIENT_OPEN_H

#include "client/session.h"

/* resend_ms: after how long a request without reply is sent again. NULL with the error set. */
struct kvc_session *session_open(const char *runtime_dir, uint32_t deadline_ms, uint32_t resend_ms);

#endif
