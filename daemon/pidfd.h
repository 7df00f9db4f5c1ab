/*
 * Questions about the process behind a pidfd. Any thread.
 */
#ifndef KV_DAEMON_PIDFD_H
#define KV_DAEMON_PIDFD_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * The process at the other end of a connected AF_UNIX socket: SO_PEERPIDFD where the kernel has
 * it, else pidfd_open(pid) and a look whether the connection is still up (then pid cannot have
 * been used again). A descriptor with CLOEXEC, or -errno.
 */
int pidfd_of_peer(int socket_fd, pid_t pid);

/* Its pid as we see it; -1 when it has exited and was waited for, or the kernel does not say. */
pid_t pidfd_pid(int pidfd);

/* True once the process has exited (waited for or not). */
bool pidfd_has_exited(int pidfd);

/* Is this descriptor, which came from elsewhere, a pidfd? */
bool pidfd_is_one(int fd);

#endif
