/*
 * Calls to the daemon: what the control part and kvcachectl need besides session_call().
 */
#ifndef KV_CLIENT_RPC_H
#define KV_CLIENT_RPC_H

#include "client/session.h"

/* An empty request: the caller sets command_case and the command, and gives it to
 * session_call(), which fills the rest. */
void rpc_request_init(Kv__Wire__Request *request);

/* As session_call, for commands whose success has nothing to say. */
int rpc_do(struct kvc_session *session, Kv__Wire__Request *request);

/* As session_call with the session's deadline, for commands whose reply must have result
 * `result_case`; KVC_EPROTO otherwise. NULL with the error set. */
Kv__Wire__Reply *rpc_ask(struct kvc_session *session, Kv__Wire__Request *request,
			 Kv__Wire__Reply__ResultCase result_case);
void rpc_reply_free(Kv__Wire__Reply *reply);

#endif
