/*
 * A Redis server in a folder of its own, and a connection to it that speaks RESP by hand over a UNIX
 * socket: what passes blocks between two processes by copying them through a third.
 *
 * Anything that goes wrong ends the group (bench_die), with a reason for its rows; so does a machine
 * without redis-server. Thread: one a connection.
 */
#ifndef KVCACHED_TESTS_BENCH_REDIS_H
#define KVCACHED_TESTS_BENCH_REDIS_H

#include <stddef.h>
#include <sys/types.h>

struct redis_server {
	pid_t pid;
	char dir[256], socket[300];
};

/* Starts it and waits until it answers. It keeps nothing on disk, and ends with this process. */
void redis_start(struct redis_server *server);
void redis_stop(struct redis_server *server);

/* A connection, to be closed. */
int redis_connect(const struct redis_server *server);

/* Stores n_bytes under a key / reads exactly as many back into `to`. */
void redis_set(int fd, const char *key, const void *bytes, size_t n_bytes);
void redis_get(int fd, const char *key, void *to, size_t n_bytes);

#endif
