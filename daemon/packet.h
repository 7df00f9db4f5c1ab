/*
 * Packets on AF_UNIX SOCK_SEQPACKET sockets, with descriptors beside them.
 *
 * Promise: a packet arrives whole, with all of its descriptors, or not at all; received ones have
 * CLOEXEC; nothing leaks when a packet is refused. Never blocks, never raises SIGPIPE. Any thread.
 */
#ifndef KV_DAEMON_PACKET_H
#define KV_DAEMON_PACKET_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#define PACKET_FDS_MAX 8u

/* A connected pair, non-blocking, CLOEXEC, with room for n_bytes in flight each way where the
 * system allows it. 0 or -errno. */
int packet_pair(int fds[2], int n_bytes);

/* 0, or -errno: -EAGAIN when the other end has no room now, -EPIPE when it has gone. */
int packet_send(int fd, const void *bytes, size_t n_bytes, const int *fds, size_t n_fds);
int packet_send_parts(int fd, const struct iovec *parts, size_t n_parts, const int *fds,
		      size_t n_fds);

/*
 * Number of bytes, at most n_bytes_max; 0 at the end; or -errno: -EAGAIN when there is none,
 * -EMSGSIZE when the packet was longer or came with more descriptors than fit (they are closed,
 * the packet is gone). *n_fds: room on entry, number on return; NULL takes none.
 */
ssize_t packet_recv(int fd, void *bytes, size_t n_bytes_max, int *fds, size_t *n_fds);

/* As packet_recv(), but waits at most wait_ms: then -ETIMEDOUT. */
ssize_t packet_recv_wait(int fd, void *bytes, size_t n_bytes_max, int wait_ms);

#endif
