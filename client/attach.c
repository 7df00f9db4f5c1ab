/*
 * The attach connection; see attach.h.
 *
 * What comes from the daemon is checked before use: length, exactly one or no descriptor,
 * protobuf, versions, status, boot id. A descriptor that nobody asked for is closed. Thread: any,
 * one at a time (the one that has taken the connection, client/link.c).
 */
#include "client/attach.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/clock.h"
#include "proto/limits.h"

#define BOOT_BYTES 16
#define FDS_MAX 8 /* so that more than one is seen and closed, not cut off */

static int connect_failed(const char *path, int error, struct errbuf *err)
{
	switch (error) {
	case ENOENT:
	case ECONNREFUSED:
		return errbuf_errno(err, KV_EDAEMON, error,
				    "no daemon at %s; start kvcached or set KVCACHED_RUNTIME_DIR",
				    path);
	case EACCES:
	case EPERM:
		return errbuf_errno(err, KV_EPERM, error,
				    "may not connect to %s; ask for membership in its group", path);
	case EAGAIN:
	case EINPROGRESS:
		return errbuf_set(err, KV_ETIMEOUT,
				  "the daemon at %s did not take the connection in "
				  "time",
				  path);
	}
	return errbuf_errno(err, KV_EDAEMON, error, "connect to %s", path);
}

/* A connect to an AF_UNIX socket waits only while the backlog is full, at most this long. */
static int limit_connect(int fd, int64_t deadline_ns)
{
	int ms = clock_left_ms(deadline_ns);
	struct timeval limit = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	if (ms == 0)
		limit.tv_usec = 1000;
	return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

int attach_open(struct attach *attach, const char *path, int64_t deadline_ns, struct errbuf *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;
	int rc;

	attach->fd = -1;
	attach->n_owed = 0;
	if (strlen(path) >= sizeof(address.sun_path))
		return errbuf_set(err, KV_ETOOBIG, "socket path %s has more than %zu bytes", path,
				  sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errbuf_errno(err, KV_ENOMEM, errno, "no socket for %s", path);
	limit_connect(fd, deadline_ns);
	do
		rc = connect(fd, (struct sockaddr *)&address, sizeof(address));
	while (rc < 0 && errno == EINTR);
	if (rc < 0) {
		rc = errno;
		close(fd);
		return connect_failed(path, rc, err);
	}
	attach->fd = fd;
	return 0;
}

void attach_close(struct attach *attach)
{
	if (attach->fd >= 0)
		close(attach->fd);
	attach->fd = -1;
	attach->n_owed = 0;
}

bool attach_hung_up(const struct attach *attach)
{
	struct pollfd p = {.fd = attach->fd, .events = POLLRDHUP};

	if (attach->fd < 0)
		return true;
	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

static int broken(struct attach *attach, struct errbuf *err)
{
	attach_close(attach);
	return errbuf_set(err, KV_EDAEMON, "the daemon closed the attach connection");
}

static int send_request(struct attach *attach, Kv__Wire__AttachRequest *request, int pass_fd,
			struct errbuf *err)
{
	uint8_t bytes[KV_ATTACH_BYTES_MAX];
	size_t n = kv__wire__attach_request__get_packed_size(request);
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {.iov_base = bytes, .iov_len = n};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (n > sizeof(bytes))
		return errbuf_set(err, KV_ETOOBIG, "attach message has %zu bytes, the limit is %u",
				  n, KV_ATTACH_BYTES_MAX);
	kv__wire__attach_request__pack(request, bytes);
	if (pass_fd >= 0) {
		message.msg_control = control.space;
		message.msg_controllen = sizeof(control.space);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &pass_fd, sizeof(int));
	}
	while (sendmsg(attach->fd, &message, MSG_NOSIGNAL) < 0) {
		if (errno == EAGAIN)
			return errbuf_set(err, KV_ETIMEOUT,
					  "the daemon does not read its attach socket");
		if (errno != EINTR)
			return broken(attach, err);
	}
	return 0;
}

static int wait_readable(struct attach *attach, int64_t deadline_ns, struct errbuf *err)
{
	struct pollfd p = {.fd = attach->fd, .events = POLLIN};
	int rc;

	do
		rc = poll(&p, 1, clock_left_ms(deadline_ns));
	while ((rc < 0 && errno == EINTR) || (rc == 0 && clock_left_ms(deadline_ns) > 0));
	if (rc > 0)
		return 0;
	return errbuf_set(
		err, KV_ETIMEOUT,
		"no answer on the attach socket within the deadline; is the daemon stopped?");
}

/* Takes the descriptors out of a message: the first goes to *fd, the others are closed. Returns
 * how many there were. */
static unsigned take_fds(struct msghdr *message, int *fd)
{
	unsigned n = 0;

	*fd = -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t off = CMSG_LEN(0); off + sizeof(int) <= c->cmsg_len;
		     off += sizeof(int)) {
			int one;

			memcpy(&one, (char *)c + off, sizeof(one));
			if (n++ == 0)
				*fd = one;
			else
				close(one);
		}
	}
	return n;
}

/* One packet. 0; -1 with err; the answer's reply may be NULL when it could not be read. */
static int receive(struct attach *attach, int64_t deadline_ns, struct attach_answer *answer,
		   struct errbuf *err)
{
	uint8_t bytes[KV_ATTACH_BYTES_MAX];
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	} control;
	struct iovec part = {.iov_base = bytes, .iov_len = sizeof(bytes)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.space,
				 .msg_controllen = sizeof(control.space)};
	ssize_t n;
	unsigned n_fds;

	if (wait_readable(attach, deadline_ns, err))
		return -1;
	do
		n = recvmsg(attach->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return broken(attach, err);
	n_fds = take_fds(&message, &answer->fd);
	if (n_fds <= 1 && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0)
		answer->reply = kv__wire__attach_reply__unpack(NULL, (size_t)n, bytes);
	return 0;
}

static int check_reply(const Kv__Wire__AttachReply *reply, struct errbuf *err)
{
	if (!reply)
		return errbuf_set(
			err, KV_EPROTO,
			"the daemon's attach reply cannot be read, or its descriptor did not "
			"fit under the limit of open files");
	if (reply->version != KV_PROTOCOL_VERSION || reply->shm_version != KV_SHM_VERSION)
		return errbuf_set(
			err, KV_EVERSION,
			"the daemon speaks protocol %u and shared memory %u, this library %u "
			"and %u; use a daemon and a library of one release",
			reply->version, reply->shm_version, KV_PROTOCOL_VERSION, KV_SHM_VERSION);
	if (reply->status != KV_OK)
		return errbuf_set(err, (int)reply->status, "%s",
				  reply->detail[0] ? reply->detail :
						     kv_status_text((int)reply->status));
	if (reply->boot.len != BOOT_BYTES)
		return errbuf_set(err, KV_EPROTO,
				  "the daemon's attach reply has a boot id of %zu bytes",
				  reply->boot.len);
	return 0;
}

int attach_exchange(struct attach *attach, Kv__Wire__AttachRequest *request, int pass_fd,
		    int64_t deadline_ns, struct attach_answer *answer, struct errbuf *err)
{
	*answer = (struct attach_answer){.fd = -1};
	if (attach->fd < 0)
		return broken(attach, err);
	request->version = KV_PROTOCOL_VERSION;
	request->shm_version = KV_SHM_VERSION;
	if (send_request(attach, request, pass_fd, err))
		return -1;
	attach->n_owed++;
	for (;;) {
		if (receive(attach, deadline_ns, answer, err))
			return -1;
		if (--attach->n_owed == 0)
			break;
		attach_answer_free(answer);
	}
	if (check_reply(answer->reply, err)) {
		attach_answer_free(answer);
		return -1;
	}
	return 0;
}

void attach_answer_free(struct attach_answer *answer)
{
	if (answer->reply)
		kv__wire__attach_reply__free_unpacked(answer->reply, NULL);
	if (answer->fd >= 0)
		close(answer->fd);
	*answer = (struct attach_answer){.fd = -1};
}
