/*
 * Waiting for a name.
 *
 * kvc_wait asks in short turns: a call that is in flight for long would keep the other threads of
 * the session from getting ids (client/rpc.c). The daemon answers a turn the moment that the name
 * is there. kvc_watch gives the daemon one end of a socket pair, the program polls the other; it
 * survives restarts of the core. Any thread.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/clock.h"
#include "client/error.h"
#include "client/link.h"
#include "client/rpc.h"
#include "proto/limits.h"

#define TURN_MS 50

static int check_name(const char *name)
{
	if (!name)
		return kvc_fail(KV_EINVAL, "a name is missing (NULL)");
	return kv_name_check(name, kvc_err());
}

/* One turn. 1: not there yet. */
static int wait_turn(struct kvc_session *session, const char *name, uint32_t ms)
{
	Kv__Wire__Request request;
	Kv__Wire__Wait command = KV__WIRE__WAIT__INIT;
	Kv__Wire__Reply *reply;
	int64_t begin_ns = clock_now_ns();

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_WAIT;
	request.wait = &command;
	command.name = (char *)name;
	if (session_call(session, &request, &reply, ms) == 0) {
		rpc_reply_free(reply);
		return 0;
	}
	/* A daemon that says so at once must not be asked in a tight loop for ever. */
	if (kvc_error() == KVC_ETIMEOUT && clock_now_ns() - begin_ns >= (int64_t)ms * NS_PER_MS / 2)
		return 1;
	return -1;
}

int kvc_wait(kvc_session *session, const char *name, uint32_t deadline_ms)
{
	int64_t deadline_ns;
	int rc;

	if (session_check(session) || check_name(name))
		return -1;
	if (deadline_ms == 0)
		deadline_ms = session->link->deadline_ms;
	deadline_ns = clock_deadline_ns(deadline_ms);
	do {
		int left_ms = clock_left_ms(deadline_ns);

		rc = wait_turn(session, name,
			       left_ms < 1       ? 1 :
			       left_ms < TURN_MS ? (uint32_t)left_ms :
						   TURN_MS);
	} while (rc == 1 && clock_left_ms(deadline_ns) > 0);
	if (rc == 1)
		return kvc_fail(KV_ETIMEOUT, "no object named %s within %u ms", name, deadline_ms);
	return rc;
}

int kvc_watch(kvc_session *session, const char *name)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Watch watch = KV__WIRE__WATCH__INIT;
	struct attach_answer answer;
	int ends[2];
	int rc;

	if (session_check(session) || check_name(name))
		return -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return errbuf_errno(kvc_err(), KV_ENOMEM, errno, "no socket pair for a watch");
	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_WATCH;
	request.watch = &watch;
	watch.name = (char *)name;
	rc = link_exchange(session->link, &request, ends[1], &answer, kvc_err());
	close(ends[1]);
	if (rc) {
		close(ends[0]);
		return -1;
	}
	attach_answer_free(&answer);
	return ends[0];
}
