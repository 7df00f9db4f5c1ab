/*
 * Answers from the daemon, by libkvcache. The session is opened by the first call, so that help
 * and usage errors need no daemon. A question that only reads is asked once more when the core
 * was restarted in the middle of it; a command that changes something is not, for nobody but the
 * person at the terminal knows whether it should happen twice.
 */
#include "client/ctl/ctl.h"
#include "client/kvcache.h"
#include "client/session.h"

static int library_error(struct errbuf *err)
{
	return errbuf_set(err, kvc_error(), "%s", kvc_error_text());
}

static bool only_reads(const Kv__Wire__Request *request)
{
	switch (request->command_case) {
	case KV__WIRE__REQUEST__COMMAND_NOOP:
	case KV__WIRE__REQUEST__COMMAND_LAYOUT_GET:
	case KV__WIRE__REQUEST__COMMAND_LIST:
	case KV__WIRE__REQUEST__COMMAND_SHOW:
	case KV__WIRE__REQUEST__COMMAND_SESSION_LIST:
	case KV__WIRE__REQUEST__COMMAND_STATUS: return true;
	default: return false;
	}
}

int ctl_library_call(struct ctl *ctl, Kv__Wire__Request *request, Kv__Wire__Reply **reply,
		     struct errbuf *err)
{
	if (!ctl_session(ctl))
		return library_error(err);
	if (session_call(ctl->session, request, reply, ctl->deadline_ms) == 0)
		return 0;
	if (kvc_error() != KVC_ERESTARTED || !only_reads(request))
		return library_error(err);
	if (session_call(ctl->session, request, reply, ctl->deadline_ms) == 0)
		return 0;
	return library_error(err);
}

void ctl_library_close(struct ctl *ctl)
{
	kvc_close(ctl->session);
	ctl->session = NULL;
	ctl->writer = NULL;
}
