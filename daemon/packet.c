#include "daemon/packet.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int packet_pair(int fds[2], int n_bytes)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
		return -errno;
	/* Refused without privileges, then cut to the system's limit: 208 KiB, one of our largest
	 * packets. */
	for (int i = 0; i < 2; i++)
		if (setsockopt(fds[i], SOL_SOCKET, SO_SNDBUFFORCE, &n_bytes, sizeof(n_bytes)) != 0)
			setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &n_bytes, sizeof(n_bytes));
	return 0;
}

int packet_send_parts(int fd, const struct iovec *parts, size_t n_parts, const int *fds,
		      size_t n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(PACKET_FDS_MAX * sizeof(int))];
	} control = {.bytes = {0}};
	struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = n_parts};
	struct cmsghdr *header;

	if (n_fds > PACKET_FDS_MAX)
		return -EMSGSIZE;
	if (n_fds > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(header), fds, n_fds * sizeof(int));
	}
	while (sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

int packet_send(int fd, const void *bytes, size_t n_bytes, const int *fds, size_t n_fds)
{
	const struct iovec part = {.iov_base = (void *)bytes, .iov_len = n_bytes};

	return packet_send_parts(fd, &part, 1, fds, n_fds);
}

/* Moves the descriptors of one control header to the caller; those without room are closed. */
static bool take_fds(struct cmsghdr *header, int *fds, size_t *n_fds, size_t room)
{
	size_t n = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	bool fits = true;

	for (size_t i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
		if (*n_fds < room) {
			fds[(*n_fds)++] = fd;
		} else {
			close(fd);
			fits = false;
		}
	}
	return fits;
}

ssize_t packet_recv(int fd, void *bytes, size_t n_bytes_max, int *fds, size_t *n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(PACKET_FDS_MAX * sizeof(int))];
	} control;
	struct iovec part = {.iov_base = bytes, .iov_len = n_bytes_max};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = n_fds ? control.bytes : NULL,
		.msg_controllen = n_fds ? sizeof(control.bytes) : 0,
	};
	size_t room = n_fds ? *n_fds : 0;
	size_t n_taken = 0;
	bool whole;
	ssize_t n;

	if (n_fds)
		*n_fds = 0;
	do
		n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	whole = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h))
		if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
			whole = take_fds(h, fds, &n_taken, room) && whole;
	if (!whole) {
		while (n_taken > 0)
			close(fds[--n_taken]);
		return -EMSGSIZE;
	}
	if (n_fds)
		*n_fds = n_taken;
	return n;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

ssize_t packet_recv_wait(int fd, void *bytes, size_t n_bytes_max, int wait_ms)
{
	int64_t until_ms = now_ms() + wait_ms;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int64_t left_ms;
	ssize_t n;

	while ((n = packet_recv(fd, bytes, n_bytes_max, NULL, NULL)) == -EAGAIN) {
		left_ms = until_ms - now_ms();
		if (left_ms <= 0)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)left_ms) < 0 && errno != EINTR)
			return -errno;
	}
	return n;
}
