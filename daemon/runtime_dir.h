/*
 * The directory of one daemon: taken, cleaned of what a dead one left, given back.
 *
 * runtime_dir_take() makes the directory if it is missing (mode 0755 where others may connect,
 * else 0700), locks `lock` in it, and only then removes sockets that are there: they belong to a
 * dead daemon, for a living one would hold the lock. A second daemon is told so and changes
 * nothing. A directory in which others could replace our sockets is refused. The lock file itself
 * stays for ever: removing it would let two daemons lock two files of one name.
 * Keeper only, at start and end.
 */
#ifndef KV_DAEMON_RUNTIME_DIR_H
#define KV_DAEMON_RUNTIME_DIR_H

#include "daemon/settings.h"
#include "proto/runtime.h"

struct runtime_dir {
	struct kv_runtime paths;
	int lock_fd; /* -1: not taken */
};

/* -1 with one line that says what to do. */
int runtime_dir_take(struct runtime_dir *dir, const struct settings *settings, struct errbuf *err);

/* Removes the sockets, lets go of the lock. */
void runtime_dir_release(struct runtime_dir *dir);

/*
 * Mode and group of a socket that was bound under umask 0177 (so nobody else could reach it).
 */
int runtime_dir_open_socket(const char *path, const struct settings *settings, struct errbuf *err);

/* The listening attach socket: bound, access set, non-blocking, CLOEXEC. -1 with err. */
int runtime_dir_listen(const struct runtime_dir *dir, const struct settings *settings,
		       struct errbuf *err);

#endif
