/*
 * One command and its reply.
 *
 * Happy path: an id and a socket are taken under the session's lock, the request goes out, the
 * reply comes in, both are given back: no system call but nanomsg's own. Only when no reply has
 * come within a slice is the attach connection looked at. If it is broken, the core has died:
 *
 *   no daemon any more           KVC_EDAEMON, at once
 *   attached again               the same bytes go out again. The core answers with the result
 *                                that it kept, or ERESTARTED: it has not run the request and
 *                                never will, so the command is issued anew with the new boot id
 *   silence for some seconds     the same bytes on a new socket: nanomsg may have lost its way
 *   no answer until the deadline KVC_ETIMEOUT; the id is given up and never run later
 *
 * Ids. All replies up to `acked` have arrived, or were given up. An id is never more than
 * KV_IN_FLIGHT_MAX above it: who would be waits for the oldest call of another thread to end.
 * Thread: any, several at a time.
 */
#include "client/rpc.h"

#include <errno.h>
#include <string.h>

#include "client/clock.h"
#include "client/error.h"
#include "client/link.h"
#include "proto/limits.h"

/* A dead daemon is noticed within one slice. */
#define SLICE_MS 20
/* A socket that brought no reply for so long (nanomsg has sent again several times) is not trusted
 * any more: the request goes out on a new one. */
#define SILENT_MS 3000u
/* The core gives up a little earlier than the caller, so that its reason arrives. */
#define MARGIN_MS_MAX 250u

struct call {
	struct session_link *link;
	Kv__Wire__Request *request;
	struct wire wire;
	uint64_t id;
	uint8_t boot[LINK_BOOT_BYTES];
	uint64_t n_attached; /* attachments when it was last sent */
	int64_t silent_ns;   /* until then its socket is believed in */
	uint32_t deadline_ms;
	int64_t deadline_ns;
};

void rpc_request_init(Kv__Wire__Request *request)
{
	kv__wire__request__init(request);
}

/*
 * Attaches again if need be, until the deadline: one try ends early so that other threads have
 * their turn, and a core with much to read needs longer to start than that.
 */
static int stand_again(const struct call *call)
{
	while (link_reattach(call->link, call->deadline_ns, kvc_err()))
		if (kvc_err()->status != KV_ETIMEOUT || clock_left_ms(call->deadline_ns) == 0)
			return -1;
	return 0;
}

/* ---- ids and sockets ------------------------------------------------------------------------ */

static uint64_t oldest_in_flight(const struct session_link *link)
{
	uint64_t oldest = link->next_id;

	for (unsigned i = 0; i < link->n_in_flight; i++)
		if (link->in_flight[i] < oldest)
			oldest = link->in_flight[i];
	return oldest;
}

/* Under lock: waits until an id can be had. */
static int wait_for_window(struct session_link *link, const struct call *call)
{
	struct timespec until = {.tv_sec = call->deadline_ns / 1000000000,
				 .tv_nsec = call->deadline_ns % 1000000000};

	while (link->next_id - oldest_in_flight(link) >= KV_IN_FLIGHT_MAX)
		if (pthread_cond_timedwait(&link->window, &link->lock, &until) == ETIMEDOUT)
			return kvc_fail(
				KV_ETIMEOUT,
				"%u calls of this session are in flight and the oldest did not "
				"end within %u ms",
				KV_IN_FLIGHT_MAX, call->deadline_ms);
	return 0;
}

/* Under lock: a new id for this call, and all that depends on the moment. */
static void take_id(struct session_link *link, struct call *call)
{
	call->id = link->next_id++;
	link->in_flight[link->n_in_flight++] = call->id;
	memcpy(call->boot, link->boot, sizeof(call->boot));
	call->n_attached = atomic_load_explicit(&link->n_attached, memory_order_relaxed);
	call->request->id = call->id;
	call->request->acked = oldest_in_flight(link) - 1;
}

/* Under lock. */
static void give_id_back(struct session_link *link, const struct call *call)
{
	for (unsigned i = 0; i < link->n_in_flight; i++) {
		if (link->in_flight[i] != call->id)
			continue;
		link->in_flight[i] = link->in_flight[--link->n_in_flight];
		pthread_cond_broadcast(&link->window);
		return;
	}
}

static void fill_header(struct call *call)
{
	uint32_t margin_ms = call->deadline_ms / 8;
	Kv__Wire__Request *request = call->request;

	if (margin_ms > MARGIN_MS_MAX)
		margin_ms = MARGIN_MS_MAX;
	request->version = KV_PROTOCOL_VERSION;
	request->session = call->link->session_id;
	request->token.data = call->link->token;
	request->token.len = LINK_TOKEN_BYTES;
	request->boot.data = call->boot;
	request->boot.len = LINK_BOOT_BYTES;
	request->deadline_ms = call->deadline_ms - margin_ms;
}

static int begin(struct call *call)
{
	struct session_link *link = call->link;
	int rc;

	if (!atomic_load_explicit(&link->is_attached, memory_order_acquire) && stand_again(call))
		return -1;
	call->wire.socket = -1;
	pthread_mutex_lock(&link->lock);
	rc = wait_for_window(link, call);
	if (rc == 0) {
		take_id(link, call);
		if (link->n_idle)
			call->wire = link->idle[--link->n_idle];
	}
	pthread_mutex_unlock(&link->lock);
	if (rc)
		return -1;
	fill_header(call);
	if (call->wire.socket >= 0 ||
	    wire_open(&call->wire, link->address, link->resend_ms, kvc_err()) == 0)
		return 0;
	pthread_mutex_lock(&link->lock);
	give_id_back(link, call);
	pthread_mutex_unlock(&link->lock);
	return -1;
}

/* A socket whose call was given up would go on sending it: it is closed. */
static void end(struct call *call, bool answered)
{
	struct session_link *link = call->link;

	pthread_mutex_lock(&link->lock);
	give_id_back(link, call);
	if (answered && link->n_idle < KV_IN_FLIGHT_MAX) {
		link->idle[link->n_idle++] = call->wire;
		call->wire.socket = -1;
	}
	pthread_mutex_unlock(&link->lock);
	wire_close(&call->wire);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static Kv__Wire__Reply *read_reply(const struct call *call, const uint8_t *body, size_t n)
{
	Kv__Wire__Reply *reply = kv__wire__reply__unpack(NULL, n, body);

	if (!reply) {
		kvc_fail(KV_EPROTO, "the daemon's reply of %zu bytes cannot be read", n);
		return NULL;
	}
	if (reply->version == KV_PROTOCOL_VERSION && reply->session == call->link->session_id &&
	    reply->id == call->id)
		return reply;
	if (reply->version != KV_PROTOCOL_VERSION)
		kvc_fail(KV_EVERSION,
			 "the daemon answers with protocol version %u, this library "
			 "speaks %u",
			 reply->version, KV_PROTOCOL_VERSION);
	else
		kvc_fail(KV_EPROTO,
			 "the daemon answered request %llu of session %llu when asked %llu",
			 (unsigned long long)reply->id, (unsigned long long)reply->session,
			 (unsigned long long)call->id);
	rpc_reply_free(reply);
	return NULL;
}

enum waited { WAIT_ON, GOT_REPLY, SEND_AGAIN, SEND_ANEW, FAILED };

/* After a slice without a reply: has the core died, has someone attached again? */
static enum waited look_around(struct call *call)
{
	struct session_link *link = call->link;

	if (stand_again(call))
		return FAILED;
	if (atomic_load_explicit(&link->n_attached, memory_order_acquire) == call->n_attached)
		return WAIT_ON;
	call->n_attached = atomic_load_explicit(&link->n_attached, memory_order_acquire);
	return SEND_AGAIN;
}

static enum waited take_reply(struct call *call, int timeout_ms, Kv__Wire__Reply **reply)
{
	uint8_t *body;
	int n = wire_receive(&call->wire, timeout_ms, &body);

	if (n == -EAGAIN)
		return WAIT_ON;
	if (n < 0) {
		kvc_fail(KV_EINTERNAL, "nn_recv: %s", strerror(-n));
		return FAILED;
	}
	*reply = read_reply(call, body, (size_t)n);
	wire_free(body);
	return *reply ? GOT_REPLY : FAILED;
}

static enum waited wait_for_reply(struct call *call, Kv__Wire__Reply **reply)
{
	for (;;) {
		int left_ms = clock_left_ms(call->deadline_ns);
		enum waited waited = take_reply(call, left_ms < SLICE_MS ? left_ms : SLICE_MS,
						reply);
		enum waited around;

		if (waited != WAIT_ON)
			return waited;
		around = look_around(call);
		if (around != WAIT_ON) {
			/* attaching took its time: the reply may be here now, or soon, and
			 * nanomsg 1.1.5 forgets its memory when we send before taking it */
			waited = take_reply(call, SLICE_MS, reply);
			return waited == WAIT_ON ? around : waited;
		}
		if (clock_left_ms(call->deadline_ns) == 0) {
			kvc_fail(KV_ETIMEOUT, "the daemon did not answer within %u ms",
				 call->deadline_ms);
			return FAILED;
		}
		if (clock_left_ms(call->silent_ns) == 0)
			return SEND_ANEW;
	}
}

/* ---- a call --------------------------------------------------------------------------------- */

static int fail_as_answered(const Kv__Wire__Reply *reply)
{
	const char *text = reply->detail[0] ? reply->detail : kv_status_text((int)reply->status);

	return kvc_fail((int)reply->status, "%s", text);
}

/*
 * The core says that it did not and will not run this request, for it was meant for another life
 * or came before the session was taken up again. True if it can be issued anew.
 */
static bool renew(struct call *call)
{
	struct session_link *link = call->link;
	bool changed;

	if (stand_again(call))
		return false;
	pthread_mutex_lock(&link->lock);
	changed = memcmp(link->boot, call->boot, sizeof(call->boot)) != 0;
	if (changed) {
		give_id_back(link, call);
		changed = wait_for_window(link, call) == 0;
	}
	if (changed)
		take_id(link, call);
	pthread_mutex_unlock(&link->lock);
	return changed;
}

static bool is_not_run(const Kv__Wire__Reply *reply)
{
	return reply->status == KV_ERESTARTED || reply->status == KV_ESESSION;
}

/* For a socket that may have lost its way. 0 or -1. */
static int change_socket(struct call *call)
{
	call->silent_ns = clock_deadline_ns(SILENT_MS);
	wire_close(&call->wire);
	return wire_open(&call->wire, call->link->address, call->link->resend_ms, kvc_err());
}

static Kv__Wire__Reply *run(struct call *call)
{
	Kv__Wire__Reply *reply;
	enum waited waited;

	for (;;) {
		if (wire_send(&call->wire, call->request, kvc_err()))
			return NULL;
		waited = wait_for_reply(call, &reply);
		if (waited == FAILED || (waited == SEND_ANEW && change_socket(call)))
			return NULL;
		if (waited != GOT_REPLY)
			continue;
		if (!is_not_run(reply) || !renew(call))
			return reply;
		rpc_reply_free(reply);
	}
}

int session_call(struct kvc_session *session, Kv__Wire__Request *request, Kv__Wire__Reply **reply,
		 uint32_t deadline_ms)
{
	struct call call = {.link = session->link, .request = request};
	Kv__Wire__Reply *answer;

	if (session_check(session))
		return -1;
	call.deadline_ms = deadline_ms ? deadline_ms : call.link->deadline_ms;
	if (call.deadline_ms > KV_DEADLINE_MS_MAX)
		call.deadline_ms = KV_DEADLINE_MS_MAX;
	call.deadline_ns = clock_deadline_ns(call.deadline_ms);
	call.silent_ns = clock_deadline_ns(SILENT_MS);
	if (begin(&call))
		return -1;
	answer = run(&call);
	end(&call, answer != NULL);
	if (!answer)
		return -1;
	if (answer->status != KV_OK) {
		fail_as_answered(answer);
		rpc_reply_free(answer);
		return -1;
	}
	*reply = answer;
	return 0;
}

int rpc_do(struct kvc_session *session, Kv__Wire__Request *request)
{
	Kv__Wire__Reply *reply;

	if (session_call(session, request, &reply, 0))
		return -1;
	rpc_reply_free(reply);
	return 0;
}

Kv__Wire__Reply *rpc_ask(struct kvc_session *session, Kv__Wire__Request *request,
			 Kv__Wire__Reply__ResultCase result_case)
{
	Kv__Wire__Reply *reply;

	if (session_call(session, request, &reply, 0))
		return NULL;
	if (reply->result_case == result_case)
		return reply;
	kvc_fail(KV_EPROTO, "the daemon's reply has result %d, not %d", (int)reply->result_case,
		 (int)result_case);
	rpc_reply_free(reply);
	return NULL;
}

void rpc_reply_free(Kv__Wire__Reply *reply)
{
	if (reply)
		kv__wire__reply__free_unpacked(reply, NULL);
}
