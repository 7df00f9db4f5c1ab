#include "daemon/keeper_link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/keeper_wire.h"
#include "daemon/packet.h"

#define ANSWER_WAIT_MS 10000

struct keeper_link {
	int fd;
};

struct keeper_link *keeper_link_new(int fd)
{
	struct keeper_link *link = calloc(1, sizeof(*link));

	if (link)
		link->fd = fd;
	return link;
}

void keeper_link_free(struct keeper_link *link)
{
	if (!link)
		return;
	close(link->fd);
	free(link);
}

/* Waits for room: only words without an answer can fill the pair, and the keeper reads on. */
static int say(struct keeper_link *link, const struct keeper_message *message, const int *fds,
	       size_t n_fds)
{
	struct pollfd p = {.fd = link->fd, .events = POLLOUT};
	int rc;

	while ((rc = packet_send(link->fd, message, sizeof(*message), fds, n_fds)) == -EAGAIN)
		if (poll(&p, 1, ANSWER_WAIT_MS) == 0)
			return -ETIMEDOUT;
	return rc;
}

static int ask(struct keeper_link *link, const struct keeper_message *message, const int *fds,
	       size_t n_fds)
{
	struct keeper_answer answer;
	ssize_t n;
	int rc;

	rc = say(link, message, fds, n_fds);
	if (rc != 0)
		return rc;
	n = packet_recv_wait(link->fd, &answer, sizeof(answer), ANSWER_WAIT_MS);
	if (n == 0)
		return -EPIPE;
	if (n < 0)
		return (int)n;
	return n == sizeof(answer) ? answer.rc : -EPROTO;
}

int keeper_keep(struct keeper_link *link, enum kept_kind kind, uint64_t id, int fd)
{
	const struct keeper_message message = {.verb = KEEPER_KEEP, .kind = kind, .id = id};

	return ask(link, &message, &fd, 1);
}

int keeper_drop(struct keeper_link *link, enum kept_kind kind, uint64_t id)
{
	const struct keeper_message message = {.verb = KEEPER_DROP, .kind = kind, .id = id};

	return ask(link, &message, NULL, 0);
}

int keeper_status(struct keeper_link *link, uint32_t extend_ms, const char *text)
{
	struct keeper_message message = {.verb = KEEPER_STATUS, .extend_ms = extend_ms};

	snprintf(message.text, sizeof(message.text), "%s", text);
	return packet_send(link->fd, &message, sizeof(message), NULL, 0);
}

int keeper_ready(struct keeper_link *link)
{
	const struct keeper_message message = {.verb = KEEPER_READY};

	return say(link, &message, NULL, 0);
}
