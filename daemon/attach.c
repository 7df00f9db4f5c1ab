#include "daemon/attach.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/core.h"
#include "daemon/log.h"
#include "daemon/packet.h"
#include "daemon/pidfd.h"
#include "proto/limits.h"

#define ACCEPT_BATCH 16
#define MESSAGE_BATCH 8
#define ACCEPT_PAUSE_MS 100
#define DRAIN_MAX 1024
#define ACCEPT_LOG_MS 60000

struct peer {
	struct attach_conn conn;
	struct attach *attach;
	struct peer *next;
	struct peer **link; /* what points at it, in `peers` or in `dying` */
	struct loop_io io;
	struct loop_timer waiting_limit;
	int fd;
	bool promoted; /* belongs to a session */
	bool heard;    /* the core got a message from it */
	bool let_go;   /* by the core */
	bool dying;
};

struct attach {
	struct loop *loop;
	struct core *core;
	uint8_t boot[16];
	int listen_fd;
	struct loop_io io;
	struct loop_timer pause;  /* after a refused accept */
	uint64_t pause_logged_ns; /* 0: never */
	struct loop_task reaper;
	struct peer *peers;
	struct peer *dying;
	unsigned n_waiting; /* not promoted */
};

static_assert(ATTACH_FDS_MAX == PACKET_FDS_MAX, "one limit");
static_assert(offsetof(struct peer, conn) == 0, "a connection is the start of its peer");

static struct peer *peer_of(struct attach_conn *conn)
{
	return (struct peer *)conn;
}

/* ---- life of a connection ---------------------------------------------------------------- */

static void list_add(struct peer **list, struct peer *peer)
{
	peer->next = *list;
	peer->link = list;
	if (peer->next)
		peer->next->link = &peer->next;
	*list = peer;
}

static void list_remove(struct peer *peer)
{
	*peer->link = peer->next;
	if (peer->next)
		peer->next->link = peer->link;
}

/* A socket that is closed with unread messages resets its peer, which then does not hear the
 * reply that was the last word. So what is there is read, and no more can come. */
static void close_quietly(int fd)
{
	char byte;

	shutdown(fd, SHUT_RD);
	for (int i = 0; i < DRAIN_MAX && recv(fd, &byte, 1, MSG_DONTWAIT) > 0; i++)
		;
	close(fd);
}

static void peer_free(struct peer *peer)
{
	struct attach *attach = peer->attach;

	loop_io_remove(attach->loop, &peer->io);
	loop_timer_cancel(attach->loop, &peer->waiting_limit);
	list_remove(peer);
	if (!peer->promoted)
		attach->n_waiting--;
	if (peer->conn.pidfd >= 0)
		close(peer->conn.pidfd);
	close_quietly(peer->fd);
	free(peer);
}

/* No more messages from it; the reaper tells the core and frees it, outside of any call here. */
static void peer_end(struct peer *peer)
{
	struct attach *attach = peer->attach;

	if (peer->dying)
		return;
	peer->dying = true;
	loop_io_remove(attach->loop, &peer->io);
	list_remove(peer);
	list_add(&attach->dying, peer);
	loop_task_add(attach->loop, &attach->reaper);
}

static bool reap(void *arg)
{
	struct attach *attach = arg;
	struct peer *peer;

	while ((peer = attach->dying)) {
		if (peer->heard && !peer->let_go)
			core_attach_gone(attach->core, &peer->conn);
		peer_free(peer);
	}
	return false;
}

void attach_promote(struct attach_conn *conn)
{
	struct peer *peer = peer_of(conn);

	if (peer->promoted)
		return;
	peer->promoted = true;
	peer->attach->n_waiting--;
	loop_timer_cancel(peer->attach->loop, &peer->waiting_limit);
}

void attach_close(struct attach_conn *conn)
{
	struct peer *peer = peer_of(conn);

	peer->let_go = true;
	peer_end(peer);
}

/* ---- replies ----------------------------------------------------------------------------- */

int attach_reply(struct attach_conn *conn, const Kv__Wire__AttachReply *reply, const int *fds,
		 size_t n_fds)
{
	struct peer *peer = peer_of(conn);
	uint8_t bytes[KV_ATTACH_BYTES_MAX];
	Kv__Wire__AttachReply full = *reply;
	size_t n_bytes;
	int rc;

	full.version = KV_PROTOCOL_VERSION;
	full.shm_version = KV_SHM_VERSION;
	full.boot.data = peer->attach->boot;
	full.boot.len = sizeof(peer->attach->boot);
	n_bytes = kv__wire__attach_reply__get_packed_size(&full);
	if (n_bytes > sizeof(bytes))
		return -EMSGSIZE;
	kv__wire__attach_reply__pack(&full, bytes);
	rc = packet_send(peer->fd, bytes, n_bytes, fds, n_fds);
	if (rc != 0)
		peer_end(peer);
	return rc;
}

/* The last word to a peer that does not speak as we do. */
static void refuse(struct peer *peer, enum kv_status status, const char *detail)
{
	Kv__Wire__AttachReply reply = KV__WIRE__ATTACH_REPLY__INIT;

	log_debug("attach", "pid %d (uid %u) refused: %s", peer->conn.pid, peer->conn.uid, detail);
	reply.status = (uint32_t)status;
	reply.detail = (char *)detail;
	attach_reply(&peer->conn, &reply, NULL, 0);
	peer_end(peer);
}

static void refuse_version(struct peer *peer, const Kv__Wire__AttachRequest *request)
{
	char detail[160];

	snprintf(
		detail, sizeof(detail),
		"client speaks protocol %u and shared memory %u, daemon %u and %u: install the same "
		"version of both",
		request->version, request->shm_version, KV_PROTOCOL_VERSION, KV_SHM_VERSION);
	refuse(peer, KV_EVERSION, detail);
}

/* ---- messages ---------------------------------------------------------------------------- */

/* One end of a stream socket pair: the only thing that we can write to without ever blocking. */
static bool is_watch_socket(int fd)
{
	struct sockaddr address;
	socklen_t n_address = sizeof(address);
	socklen_t n = sizeof(int);
	int type = 0;

	return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 &&
	       type == SOCK_STREAM && getpeername(fd, &address, &n_address) == 0 &&
	       address.sa_family == AF_UNIX;
}

int attach_watch_fire(int fd)
{
	return send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

/* True if the message went to the core, which then owns fd. */
static bool deliver(struct peer *peer, const Kv__Wire__AttachRequest *request, int fd)
{
	if (request->version != KV_PROTOCOL_VERSION || request->shm_version != KV_SHM_VERSION) {
		refuse_version(peer, request);
		return false;
	}
	switch (request->what_case) {
	case KV__WIRE__ATTACH_REQUEST__WHAT_WATCH:
		if (!is_watch_socket(fd)) {
			refuse(peer, KV_EPROTO,
			       "a watch comes with one end of a pair of UNIX stream sockets");
			return false;
		}
		break;
	case KV__WIRE__ATTACH_REQUEST__WHAT_HELLO:
	case KV__WIRE__ATTACH_REQUEST__WHAT_ARENA_GET:
	case KV__WIRE__ATTACH_REQUEST__WHAT_BYE:
		if (fd >= 0) {
			refuse(peer, KV_EPROTO, "this message comes without a descriptor");
			return false;
		}
		break;
	default: refuse(peer, KV_EPROTO, "attach message without a known content"); return false;
	}
	peer->heard = true;
	core_attach_message(peer->attach->core, &peer->conn, request, fd);
	return true;
}

static void take_message(struct peer *peer, const uint8_t *bytes, size_t n_bytes, int fd)
{
	Kv__Wire__AttachRequest *request;

	request = kv__wire__attach_request__unpack(NULL, n_bytes, bytes);
	if (!request)
		refuse(peer, KV_EPROTO, "malformed attach message");
	if ((!request || !deliver(peer, request, fd)) && fd >= 0)
		close(fd);
	if (request)
		kv__wire__attach_request__free_unpacked(request, NULL);
}

static void on_peer(void *arg, uint32_t events)
{
	struct peer *peer = arg;
	uint8_t bytes[KV_ATTACH_BYTES_MAX];
	size_t n_fds;
	ssize_t n;
	int fd;

	(void)events; /* a hang-up is read as the end, after what was sent before it */
	for (int i = 0; i < MESSAGE_BATCH && !peer->dying; i++) {
		fd = -1;
		n_fds = 1;
		n = packet_recv(peer->fd, bytes, sizeof(bytes), &fd, &n_fds);
		if (n == -EAGAIN)
			return;
		if (n > 0)
			take_message(peer, bytes, (size_t)n, n_fds > 0 ? fd : -1);
		else if (n == -EMSGSIZE)
			refuse(peer, KV_EPROTO,
			       "an attach message has at most 4096 bytes and one descriptor");
		else
			peer_end(peer);
		if (n == 0 && n_fds > 0)
			close(fd); /* an empty packet with a descriptor */
	}
}

/* ---- connections ------------------------------------------------------------------------- */

static void on_waiting_limit(void *arg)
{
	struct peer *peer = arg;

	log_debug("attach", "pid %d (uid %u) said nothing for %u ms", peer->conn.pid,
		  peer->conn.uid, ATTACH_WAITING_MS);
	peer_end(peer);
}

static bool may_wait(const struct attach *attach, uid_t uid)
{
	unsigned n = 0;

	if (attach->n_waiting >= ATTACH_WAITING_MAX)
		return false;
	for (const struct peer *peer = attach->peers; peer; peer = peer->next)
		if (!peer->promoted && peer->conn.uid == uid)
			n++;
	return n < ATTACH_WAITING_PER_USER;
}

/* 0 or -errno; the descriptor stays the caller's unless it returns 0. */
static int peer_new(struct attach *attach, int fd)
{
	struct ucred cred;
	socklen_t size = sizeof(cred);
	struct peer *peer;
	int pidfd;
	int rc;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) != 0)
		return -errno;
	if (!may_wait(attach, cred.uid))
		return -EBUSY;
	pidfd = pidfd_of_peer(fd, cred.pid);
	if (pidfd < 0)
		return pidfd;
	peer = calloc(1, sizeof(*peer));
	if (!peer) {
		close(pidfd);
		return -ENOMEM;
	}
	peer->attach = attach;
	peer->fd = fd;
	peer->conn.uid = cred.uid;
	peer->conn.gid = cred.gid;
	peer->conn.pid = cred.pid;
	peer->conn.pidfd = pidfd;
	peer->io = (struct loop_io){.fn = on_peer, .arg = peer, .fd = -1};
	peer->waiting_limit = (struct loop_timer){.fn = on_waiting_limit, .arg = peer};
	rc = loop_io_add(attach->loop, &peer->io, fd, EPOLLIN);
	if (rc == 0)
		rc = loop_timer_in(attach->loop, &peer->waiting_limit,
				   ATTACH_WAITING_MS * LOOP_NS_PER_MS);
	if (rc != 0) {
		loop_io_remove(attach->loop, &peer->io);
		close(pidfd);
		free(peer);
		return rc;
	}
	list_add(&attach->peers, peer);
	attach->n_waiting++;
	return 0;
}

static void on_pause_over(void *arg)
{
	struct attach *attach = arg;

	loop_io_change(attach->loop, &attach->io, EPOLLIN);
}

/* Out of descriptors or memory: connections wait in the backlog instead of turning the loop. */
static void pause_accepting(struct attach *attach, int errno_value)
{
	uint64_t now_ns = loop_now_ns(attach->loop);

	if (attach->pause_logged_ns == 0 ||
	    now_ns - attach->pause_logged_ns > ACCEPT_LOG_MS * LOOP_NS_PER_MS) {
		attach->pause_logged_ns = now_ns;
		log_warn("attach",
			 "cannot accept connections now: %s; raise LimitNOFILE or end "
			 "sessions",
			 strerror(errno_value));
	}
	loop_io_change(attach->loop, &attach->io, 0);
	loop_timer_in(attach->loop, &attach->pause, ACCEPT_PAUSE_MS * LOOP_NS_PER_MS);
}

static void on_connect(void *arg, uint32_t events)
{
	struct attach *attach = arg;
	int fd;
	int rc;

	(void)events;
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		fd = accept4(attach->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR))
			return;
		if (fd < 0) {
			pause_accepting(attach, errno);
			return;
		}
		rc = peer_new(attach, fd);
		if (rc != 0) {
			log_debug("attach", "connection refused: %s", strerror(-rc));
			close(fd);
		}
	}
}

/* ---- the socket -------------------------------------------------------------------------- */

struct attach *attach_new(struct loop *loop, int listen_fd, struct core *core,
			  const uint8_t boot[16], struct errbuf *err)
{
	struct attach *attach = calloc(1, sizeof(*attach));
	int rc = -ENOMEM;

	if (attach) {
		attach->loop = loop;
		attach->core = core;
		attach->listen_fd = listen_fd;
		memcpy(attach->boot, boot, sizeof(attach->boot));
		attach->io = (struct loop_io){.fn = on_connect, .arg = attach, .fd = -1};
		attach->pause = (struct loop_timer){.fn = on_pause_over, .arg = attach};
		attach->reaper = (struct loop_task){.fn = reap, .arg = attach};
		rc = loop_io_add(loop, &attach->io, listen_fd, EPOLLIN);
	}
	if (rc != 0) {
		errbuf_errno(err, KV_EINTERNAL, -rc, "attach socket");
		free(attach);
		return NULL;
	}
	return attach;
}

void attach_free(struct attach *attach)
{
	if (!attach)
		return;
	while (attach->peers)
		peer_free(attach->peers);
	while (attach->dying)
		peer_free(attach->dying);
	loop_task_remove(attach->loop, &attach->reaper);
	loop_timer_cancel(attach->loop, &attach->pause);
	loop_io_remove(attach->loop, &attach->io);
	close(attach->listen_fd);
	free(attach);
}
