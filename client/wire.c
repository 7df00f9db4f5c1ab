/*
 * REQ sockets; see wire.h. A request is packed straight into nanomsg's own memory, a reply is
 * unpacked from it. In the usual case sending and receiving cost the system calls that nanomsg
 * makes, and nothing more.
 */
#include "client/wire.h"

#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "proto/limits.h"

/* The front is back within 100 ms; whoever waits for it should know soon. */
#define RECONNECT_MS 10
#define RECONNECT_MAX_MS 100

/* The process in which nanomsg's worker lives; 0: it was not started yet. */
static _Atomic pid_t worker_pid;

static int set_option(int socket, int level, int option, int value)
{
	return nn_setsockopt(socket, level, option, &value, sizeof(value));
}

/* The worker inherits the mask of whoever starts it. */
static int open_with_signals_blocked(void)
{
	sigset_t all;
	sigset_t saved;
	int socket;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	socket = nn_socket(AF_SP, NN_REQ);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	return socket;
}

static int check_worker(struct errbuf *err)
{
	pid_t expected = 0;

	if (atomic_compare_exchange_strong(&worker_pid, &expected, getpid()) ||
	    expected == getpid())
		return 0;
	return errbuf_set(
		err, KV_EFORKED,
		"this process was forked from one with a session; it can open one after exec, "
		"or the parent opens its first session after the fork");
}

int wire_open(struct wire *wire, const char *address, uint32_t resend_ms, struct errbuf *err)
{
	int s;

	wire->socket = -1;
	wire->timeout_ms = -1;
	if (check_worker(err))
		return -1;
	s = open_with_signals_blocked();
	if (s < 0)
		return errbuf_set(err, KV_ENOMEM, "no nanomsg socket: %s", nn_strerror(nn_errno()));
	if (set_option(s, NN_REQ, NN_REQ_RESEND_IVL, (int)resend_ms) < 0 ||
	    set_option(s, NN_SOL_SOCKET, NN_RECONNECT_IVL, RECONNECT_MS) < 0 ||
	    set_option(s, NN_SOL_SOCKET, NN_RECONNECT_IVL_MAX, RECONNECT_MAX_MS) < 0 ||
	    set_option(s, NN_SOL_SOCKET, NN_RCVMAXSIZE, (int)KV_REQUEST_BYTES_MAX) < 0 ||
	    nn_connect(s, address) < 0) {
		errbuf_set(err, KV_EDAEMON, "cannot connect to %s: %s", address,
			   nn_strerror(nn_errno()));
		nn_close(s);
		return -1;
	}
	wire->socket = s;
	return 0;
}

void wire_close(struct wire *wire)
{
	if (wire->socket >= 0)
		while (nn_close(wire->socket) < 0 && nn_errno() == EINTR)
			;
	wire->socket = -1;
}

int wire_send(struct wire *wire, const Kv__Wire__Request *request, struct errbuf *err)
{
	size_t n = kv__wire__request__get_packed_size(request);
	void *message;
	int rc;

	if (n > KV_REQUEST_BYTES_MAX)
		return errbuf_set(
			err, KV_ETOOBIG,
			"the request has %zu bytes, the limit is %u; ask for less at once", n,
			KV_REQUEST_BYTES_MAX);
	message = nn_allocmsg(n, 0);
	if (!message)
		return errbuf_set(err, KV_ENOMEM, "no memory for a request of %zu bytes", n);
	kv__wire__request__pack(request, message);
	do
		rc = nn_send(wire->socket, &message, NN_MSG, 0);
	while (rc < 0 && nn_errno() == EINTR);
	if (rc >= 0)
		return 0;
	nn_freemsg(message);
	return errbuf_set(err, KV_EINTERNAL, "nn_send: %s", nn_strerror(nn_errno()));
}

int wire_receive(struct wire *wire, int timeout_ms, uint8_t **body)
{
	int n;

	if (timeout_ms != wire->timeout_ms &&
	    set_option(wire->socket, NN_SOL_SOCKET, NN_RCVTIMEO, timeout_ms) == 0)
		wire->timeout_ms = timeout_ms;
	n = nn_recv(wire->socket, body, NN_MSG, 0);
	if (n >= 0)
		return n;
	switch (nn_errno()) {
	case ETIMEDOUT:
	case EAGAIN:
	case EINTR: return -EAGAIN;
	}
	return -nn_errno();
}

void wire_free(uint8_t *body)
{
	nn_freemsg(body);
}
