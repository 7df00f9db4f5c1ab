/*
 * The core's side of the attach socket: who connects, what it says, that it has gone.
 *
 * Promise: the core hears only well-formed messages of a peer whose credentials and pidfd are
 * known and whose versions are ours. What is malformed is answered EPROTO, another version
 * EVERSION with both numbers, and the connection closed. Nobody can hold more than
 * ATTACH_WAITING_PER_USER connections that belong to no session, or one for longer than
 * ATTACH_WAITING_MS. A peer that does not read its replies is closed.
 *
 * A connection lives until core_attach_gone() for it has returned, or until the core itself calls
 * attach_close(); neither happens inside core_attach_message() or attach_reply() of the same
 * connection: a connection that fails there is taken down in the next round of the loop. Core
 * thread.
 */
#ifndef KV_DAEMON_ATTACH_H
#define KV_DAEMON_ATTACH_H

#include <stddef.h>
#include <sys/types.h>

#include "daemon/loop.h"
#include "proto/errbuf.h"
#include "proto/kvcache.pb-c.h"

#define ATTACH_WAITING_MS 5000u
#define ATTACH_WAITING_PER_USER 32u
#define ATTACH_WAITING_MAX 512u
#define ATTACH_FDS_MAX 8u

struct core;
struct attach;

struct attach_conn {
	uid_t uid; /* credentials of the peer when it connected */
	gid_t gid;
	pid_t pid;
	int pidfd;  /* owned by the connection; the core may take it and store -1 here */
	void *user; /* the core's own; NULL at first */
};

/*
 * boot (16 bytes) goes into each reply. listen_fd: the keeper's listening socket, non-blocking,
 * owned from here on. NULL with err.
 */
struct attach *attach_new(struct loop *loop, int listen_fd, struct core *core,
			  const uint8_t boot[16], struct errbuf *err);
/* Closes all connections without a word to the core. */
void attach_free(struct attach *attach);

/* The connection belongs to a session now: the limits for waiting ones no longer apply. */
void attach_promote(struct attach_conn *conn);

/*
 * Sends status, detail and what; version, shm_version and boot are filled in here. The
 * descriptors stay the caller's and must be with the keeper already. 0 or -errno; a peer that
 * does not take it is taken down in the next round (core_attach_gone() follows).
 */
int attach_reply(struct attach_conn *conn, const Kv__Wire__AttachReply *reply, const int *fds,
		 size_t n_fds);

/* The core lets go: no core_attach_gone() follows, conn is not used again by the core. */
void attach_close(struct attach_conn *conn);

/*
 * A watch has come true: makes the peer's end of the socket readable. Never blocks, whatever the
 * peer did to its end (an eventfd could: its file is shared, flags and count included). 0 or
 * -errno. Also for watches of an earlier life (KEPT_WATCH).
 */
int attach_watch_fire(int fd);

#endif
