#include "daemon/front_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/packet.h"

#define BATCH 32

/* A frame that waits for room in the pair. */
struct waiting {
	struct waiting *next;
	size_t n_bytes;
	unsigned char bytes[];
};

struct front_link {
	struct loop *loop;
	struct loop_io io;
	front_request_fn *fn;
	void *arg;
	int fd;
	struct waiting *first;
	struct waiting **last;
	size_t n_waiting_bytes;
	uint64_t n_dropped;
	unsigned char frame[FRONT_FRAME_BYTES_MAX];
};

/* The front may have been made to say anything: what does not fit together is dropped. */
static void take_frame(struct front_link *link, size_t n_bytes)
{
	const unsigned char *route = link->frame + sizeof(uint32_t);
	uint32_t n_route;

	if (n_bytes < sizeof(n_route))
		return;
	memcpy(&n_route, link->frame, sizeof(n_route));
	if (n_route == 0 || n_route > FRONT_ROUTE_BYTES_MAX ||
	    n_route > n_bytes - sizeof(n_route) ||
	    n_bytes - sizeof(n_route) - n_route > KV_REQUEST_BYTES_MAX)
		return;
	link->fn(link->arg, route, n_route, route + n_route, n_bytes - sizeof(n_route) - n_route);
}

static void send_waiting(struct front_link *link)
{
	struct waiting *frame;

	while ((frame = link->first)) {
		if (packet_send(link->fd, frame->bytes, frame->n_bytes, NULL, 0) == -EAGAIN)
			return;
		link->first = frame->next;
		link->n_waiting_bytes -= frame->n_bytes;
		free(frame);
	}
	link->last = &link->first;
	loop_io_change(link->loop, &link->io, EPOLLIN);
}

static void on_ready(void *arg, uint32_t events)
{
	struct front_link *link = arg;
	ssize_t n;

	if (events & EPOLLOUT)
		send_waiting(link);
	for (int i = 0; i < BATCH; i++) {
		n = packet_recv(link->fd, link->frame, sizeof(link->frame), NULL, NULL);
		if (n == -EMSGSIZE)
			continue;
		if (n <= 0)
			return;
		take_frame(link, (size_t)n);
	}
}

struct front_link *front_link_new(struct loop *loop, int fd, front_request_fn *fn, void *arg,
				  struct errbuf *err)
{
	struct front_link *link = calloc(1, sizeof(*link));
	int rc = -ENOMEM;

	if (link) {
		link->loop = loop;
		link->fd = fd;
		link->fn = fn;
		link->arg = arg;
		link->last = &link->first;
		link->io.fn = on_ready;
		link->io.arg = link;
		rc = loop_io_add(loop, &link->io, fd, EPOLLIN);
	}
	if (rc != 0) {
		errbuf_errno(err, KV_EINTERNAL, -rc, "link to the front");
		free(link);
		return NULL;
	}
	return link;
}

void front_link_free(struct front_link *link)
{
	if (!link)
		return;
	loop_io_remove(link->loop, &link->io);
	close(link->fd);
	while (link->first) {
		struct waiting *frame = link->first;

		link->first = frame->next;
		free(frame);
	}
	free(link);
}

/* Keeps a copy to send when there is room. */
static int wait_for_room(struct front_link *link, const struct iovec *parts, size_t n_parts,
			 size_t n_bytes)
{
	struct waiting *frame = NULL;
	size_t used = 0;

	if (link->n_waiting_bytes + n_bytes <= FRONT_LINK_WAITING_BYTES)
		frame = malloc(sizeof(*frame) + n_bytes);
	if (!frame) {
		link->n_dropped++;
		return -ENOBUFS;
	}
	for (size_t i = 0; i < n_parts; i++) {
		memcpy(frame->bytes + used, parts[i].iov_base, parts[i].iov_len);
		used += parts[i].iov_len;
	}
	frame->next = NULL;
	frame->n_bytes = n_bytes;
	*link->last = frame;
	link->last = &frame->next;
	link->n_waiting_bytes += n_bytes;
	loop_io_change(link->loop, &link->io, EPOLLIN | EPOLLOUT);
	return 0;
}

static int send_frame(struct front_link *link, const void *route, size_t n_route, const void *body,
		      size_t n_body)
{
	uint32_t n = (uint32_t)n_route;
	struct iovec parts[3] = {{.iov_base = &n, .iov_len = sizeof(n)}};
	size_t n_parts = 1;
	int rc = -EAGAIN;

	if (n_route > FRONT_ROUTE_BYTES_MAX || n_body > KV_REQUEST_BYTES_MAX)
		return -EMSGSIZE;
	if (n_route > 0)
		parts[n_parts++] = (struct iovec){(void *)route, n_route};
	if (n_body > 0)
		parts[n_parts++] = (struct iovec){(void *)body, n_body};
	if (!link->first) /* frames keep their order */
		rc = packet_send_parts(link->fd, parts, n_parts, NULL, 0);
	if (rc == -EAGAIN)
		return wait_for_room(link, parts, n_parts, sizeof(n) + n_route + n_body);
	if (rc != 0)
		link->n_dropped++;
	return rc == 0 ? 0 : -ENOBUFS;
}

int front_link_reply(struct front_link *link, const void *route, size_t n_route, const void *body,
		     size_t n_body)
{
	return n_route > 0 ? send_frame(link, route, n_route, body, n_body) : -EMSGSIZE;
}

int front_link_event(struct front_link *link, const void *body, size_t n_body)
{
	return send_frame(link, NULL, 0, body, n_body);
}

uint64_t front_link_dropped(const struct front_link *link)
{
	return link->n_dropped;
}
