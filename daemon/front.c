#include "daemon/front.h"

#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/pubsub.h>
#include <nanomsg/reqrep.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/front_link.h"
#include "daemon/keeper_wire.h"
#include "daemon/log.h"
#include "daemon/packet.h"
#include "daemon/runtime_dir.h"

/* nanomsg counts the request's own header (4 bytes) to the size of what it receives. */
#define REQUEST_HEADER_BYTES 4
#define PUB_BUFFER_BYTES (1024 * 1024)
#define BATCH 32
#define LOOKS 100       /* for a reply before sleeping: some 50 us */
#define NO_LOOKS_MAX 64 /* requests without, after vain ones */

struct front {
	uint32_t life;
	int core_fd;
	int keeper_fd;
	int command; /* nanomsg sockets */
	int event;
	int command_fd;           /* readable when the command socket has a request */
	bool look;                /* a request has just gone to the core: its reply is near */
	uint32_t asker;           /* nanomsg's number of the connection that it came from */
	unsigned n_no_looks;      /* requests yet to come that are not worth it */
	unsigned n_no_looks_next; /* after the next vain one */
	/* The request that the core did not take yet. */
	char *held; /* nanomsg's; NULL: none */
	size_t n_held;
	uint32_t n_route;
	unsigned char route[FRONT_ROUTE_BYTES_MAX];
	unsigned char frame[FRONT_FRAME_BYTES_MAX]; /* from the core */
};

/* ---- requests: clients -> core ----------------------------------------------------------- */

/* nanomsg's header of a received message: {size_t n, n bytes} in its only control record. */
static bool take_route(struct front *front, const struct nn_msghdr *message)
{
	const struct nn_cmsghdr *control = NN_CMSG_FIRSTHDR(message);
	const unsigned char *data;
	size_t n;

	if (!control || control->cmsg_level != PROTO_SP || control->cmsg_type != SP_HDR)
		return false; /* longer than any route of ours: a stack of many hops */
	data = NN_CMSG_DATA(control);
	memcpy(&n, data, sizeof(n));
	if (n > sizeof(front->route) - sizeof(front->life))
		return false;
	memcpy(front->route, &front->life, sizeof(front->life));
	memcpy(front->route + sizeof(front->life), data + sizeof(n), n);
	front->n_route = (uint32_t)(sizeof(front->life) + n);
	return true;
}

/* Receives one request into `held`. False if there is none. */
static bool take_request(struct front *front)
{
	_Alignas(struct nn_cmsghdr) unsigned char control[512];
	struct nn_iovec part = {.iov_base = &front->held, .iov_len = NN_MSG};
	struct nn_msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	int n;

	memset(control, 0, sizeof(struct nn_cmsghdr)); /* left as it is when the header is long */
	n = nn_recvmsg(front->command, &message, NN_DONTWAIT);
	if (n < 0) {
		front->held = NULL;
		return false;
	}
	front->n_held = (size_t)n;
	if (front->n_held > KV_REQUEST_BYTES_MAX || !take_route(front, &message)) {
		nn_freemsg(front->held);
		front->held = NULL;
	}
	return true;
}

/*
 * The core answers most requests before we would be asleep and awake again, which costs more than
 * the answer itself: a round trip of one client takes 1.43 times a bare echo instead of 1.6. So
 * look for the reply a while before sleeping; but not when several clients ask in turn, for then
 * the processors have better things to do, nor, each time for twice as many requests, when an
 * answer took longer.
 */
static void plan_look(struct front *front)
{
	uint32_t asker;

	memcpy(&asker, front->route + sizeof(front->life), sizeof(asker));
	if (asker != front->asker)
		front->n_no_looks = NO_LOOKS_MAX;
	front->asker = asker;
	front->look = front->n_no_looks == 0;
	if (front->n_no_looks > 0)
		front->n_no_looks--;
}

/* False if the core has no room. */
static bool pass_request(struct front *front)
{
	const struct iovec parts[] = {
		{.iov_base = &front->n_route, .iov_len = sizeof(front->n_route)},
		{.iov_base = front->route, .iov_len = front->n_route},
		{.iov_base = front->held, .iov_len = front->n_held},
	};

	if (packet_send_parts(front->core_fd, parts, 3, NULL, 0) == -EAGAIN)
		return false;
	nn_freemsg(front->held);
	front->held = NULL;
	plan_look(front);
	return true;
}

static void serve_clients(struct front *front)
{
	for (int i = 0; i < BATCH; i++)
		if ((!front->held && !take_request(front)) || (front->held && !pass_request(front)))
			return;
}

/* ---- replies and events: core -> clients ------------------------------------------------- */

static void send_reply(struct front *front, const unsigned char *route, size_t n_route, void *body,
		       size_t n_body)
{
	_Alignas(struct nn_cmsghdr) unsigned char bytes[512] = {0};
	struct nn_cmsghdr *control = (struct nn_cmsghdr *)bytes;
	struct nn_iovec part = {.iov_base = body, .iov_len = n_body};
	size_t n = n_route - sizeof(front->life);
	struct nn_msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = bytes,
		.msg_controllen = NN_CMSG_SPACE(sizeof(n) + n),
	};

	if (n_route < sizeof(front->life) || memcmp(route, &front->life, sizeof(front->life)) != 0)
		return; /* asked in an earlier life; the client sends again */
	control->cmsg_len = NN_CMSG_LEN(sizeof(n) + n);
	control->cmsg_level = PROTO_SP;
	control->cmsg_type = SP_HDR;
	memcpy(NN_CMSG_DATA(control), &n, sizeof(n));
	memcpy(NN_CMSG_DATA(control) + sizeof(n), route + sizeof(front->life), n);
	nn_sendmsg(front->command, &message, NN_DONTWAIT); /* a client that has gone gets nothing */
}

static void pass_frame(struct front *front, size_t n_bytes)
{
	uint32_t n_route;
	unsigned char *body;
	size_t n_body;

	if (n_bytes < sizeof(n_route))
		return;
	memcpy(&n_route, front->frame, sizeof(n_route));
	if (n_route > FRONT_ROUTE_BYTES_MAX || n_route > n_bytes - sizeof(n_route))
		return;
	body = front->frame + sizeof(n_route) + n_route;
	n_body = n_bytes - sizeof(n_route) - n_route;
	if (n_route > 0)
		send_reply(front, front->frame + sizeof(n_route), n_route, body, n_body);
	else
		nn_send(front->event, body, n_body, NN_DONTWAIT);
}

static void serve_core(struct front *front)
{
	ssize_t n;

	for (int i = 0; i < BATCH; i++) {
		n = packet_recv(front->core_fd, front->frame, sizeof(front->frame), NULL, NULL);
		if (n < 0)
			return;
		pass_frame(front, (size_t)n);
	}
}

/* ---- start ------------------------------------------------------------------------------- */

/*
 * Nobody but us can connect before mode and group are set. Without a group the socket is born
 * with its mode, so that a client which reconnects to a new front is never turned away.
 */
static int bind_socket(int sock, const char *path, const struct settings *settings,
		       struct errbuf *err)
{
	char address[KV_SOCKET_PATH_MAX + sizeof("ipc://")];
	mode_t mask = settings->socket_group[0] ? 0177 : ~settings->socket_mode & 0777;
	int rc;

	snprintf(address, sizeof(address), "ipc://%s", path);
	if (unlink(path) != 0 && errno != ENOENT)
		return errbuf_errno(err, KV_EINVAL, errno, "cannot remove the stale socket %s",
				    path);
	mask = umask(mask);
	rc = nn_bind(sock, address);
	umask(mask);
	if (rc < 0)
		return errbuf_set(err, KV_EINVAL, "cannot bind %s: %s", path,
				  nn_strerror(nn_errno()));
	return runtime_dir_open_socket(path, settings, err);
}

static int open_command(struct front *front, const struct front_start *start, struct errbuf *err)
{
	int max_bytes = (int)KV_REQUEST_BYTES_MAX + REQUEST_HEADER_BYTES;
	size_t n = sizeof(front->command_fd);

	front->command = nn_socket(AF_SP_RAW, NN_REP);
	if (front->command < 0 ||
	    nn_setsockopt(front->command, NN_SOL_SOCKET, NN_RCVMAXSIZE, &max_bytes,
			  sizeof(max_bytes)) < 0 ||
	    nn_getsockopt(front->command, NN_SOL_SOCKET, NN_RCVFD, &front->command_fd, &n) < 0)
		return errbuf_set(err, KV_EINTERNAL, "nanomsg command socket: %s",
				  nn_strerror(nn_errno()));
	return bind_socket(front->command, start->paths->command, start->settings, err);
}

static int open_event(struct front *front, const struct front_start *start, struct errbuf *err)
{
	int max_bytes = 0; /* subscribers have nothing to say */
	int buffer_bytes = PUB_BUFFER_BYTES;

	front->event = nn_socket(AF_SP, NN_PUB);
	if (front->event < 0 ||
	    nn_setsockopt(front->event, NN_SOL_SOCKET, NN_RCVMAXSIZE, &max_bytes,
			  sizeof(max_bytes)) < 0 ||
	    nn_setsockopt(front->event, NN_SOL_SOCKET, NN_SNDBUF, &buffer_bytes,
			  sizeof(buffer_bytes)) < 0)
		return errbuf_set(err, KV_EINTERNAL, "nanomsg event socket: %s",
				  nn_strerror(nn_errno()));
	return bind_socket(front->event, start->paths->event, start->settings, err);
}

static int say_ready(struct front *front)
{
	const struct keeper_message message = {.verb = KEEPER_READY};

	return packet_send(front->keeper_fd, &message, sizeof(message), NULL, 0);
}

static void look_for_reply(struct front *front)
{
	struct pollfd p[] = {
		{.fd = front->core_fd, .events = POLLIN},
		{.fd = front->command_fd, .events = POLLIN},
	};
	int n_ready = 0;

	front->look = false;
	for (int i = 0; i < LOOKS && n_ready == 0; i++)
		n_ready = poll(p, 2, 0);
	if ((p[0].revents & POLLIN) != 0) {
		front->n_no_looks_next = 1;
		return;
	}
	front->n_no_looks = front->n_no_looks_next;
	if (front->n_no_looks_next < NO_LOOKS_MAX)
		front->n_no_looks_next *= 2;
}

/*
 * Waits, and serves what is ready: a request costs one poll, one receive and one send here. False
 * when the core's or the keeper's end has gone, which is the end of all.
 */
static bool serve_once(struct front *front)
{
	struct pollfd p[] = {
		{.fd = front->core_fd, .events = (short)(POLLIN | (front->held ? POLLOUT : 0))},
		{.fd = front->held ? -1 : front->command_fd, .events = POLLIN},
		{.fd = front->keeper_fd, .events = 0},
	};

	if (front->look)
		look_for_reply(front);
	if (poll(p, 3, -1) < 0)
		return errno == EINTR;
	if (((p[0].revents | p[2].revents) & (POLLHUP | POLLERR)) != 0)
		return false;
	if ((p[0].revents & POLLIN) != 0)
		serve_core(front);
	if ((p[0].revents & POLLOUT) != 0 || p[1].revents != 0)
		serve_clients(front);
	return true;
}

int front_main(const struct front_start *start)
{
	static struct front front;
	struct errbuf err;

	/* A peer can make us abort at will: that must not fill a disk with core files. */
	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
	front.life = start->life;
	front.n_no_looks_next = 1;
	front.core_fd = start->core_fd;
	front.keeper_fd = start->keeper_fd;
	if (open_command(&front, start, &err) != 0 || open_event(&front, start, &err) != 0) {
		log_error("front", "%s", err.text);
		return 1;
	}
	if (say_ready(&front) != 0)
		return 1;
	while (serve_once(&front))
		;
	return 1;
}
