/*
 * An attach message of a peer that is not a friend.
 *
 * Whatever it is: the core gets it with our versions and one known content, or the peer gets one
 * reply that says why not, and the end of the connection. Thread: one.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/attach.h"
#include "daemon/core.h"
#include "daemon/packet.h"
#include "tests/fuzz/target.h"

struct core {
	unsigned n_messages;
};

void core_attach_message(struct core *core, struct attach_conn *conn,
			 const Kv__Wire__AttachRequest *req, int fd)
{
	core->n_messages++;
	must(req->version == KV_PROTOCOL_VERSION && req->shm_version == KV_SHM_VERSION);
	must(req->what_case == KV__WIRE__ATTACH_REQUEST__WHAT_HELLO ||
	     req->what_case == KV__WIRE__ATTACH_REQUEST__WHAT_ARENA_GET ||
	     req->what_case == KV__WIRE__ATTACH_REQUEST__WHAT_BYE); /* no descriptor: no Watch */
	must(fd == -1);
	attach_close(conn);
}

void core_attach_gone(struct core *core, struct attach_conn *conn)
{
	(void)core;
	(void)conn;
	abort(); /* it was closed by us, or never heard of */
}

/* Listens at an address that the kernel chose; a peer is connected to it. */
static int connect_pair(int *listen_fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t n = sizeof(address);
	int peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	*listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	must(bind(*listen_fd, (struct sockaddr *)&address, sizeof(address.sun_family)) == 0);
	must(listen(*listen_fd, 1) == 0);
	must(getsockname(*listen_fd, (struct sockaddr *)&address, &n) == 0);
	must(connect(peer, (struct sockaddr *)&address, n) == 0);
	return peer;
}

static void check_refusal(int peer)
{
	uint8_t bytes[KV_ATTACH_BYTES_MAX];
	Kv__Wire__AttachReply *reply;
	ssize_t n = packet_recv(peer, bytes, sizeof(bytes), NULL, NULL);

	must(n > 0);
	reply = kv__wire__attach_reply__unpack(NULL, (size_t)n, bytes);
	must(reply && (reply->status == KV_EPROTO || reply->status == KV_EVERSION));
	must(reply->detail[0] != '\0');
	kv__wire__attach_reply__free_unpacked(reply, NULL);
	must(packet_recv(peer, bytes, sizeof(bytes), NULL, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t boot[16];
	struct core core = {0};
	struct loop *loop = loop_new(NULL, NULL);
	struct attach *attach;
	int listen_fd;
	int peer = connect_pair(&listen_fd);

	must(loop != NULL);
	attach = attach_new(loop, listen_fd, &core, boot, NULL);
	must(attach != NULL);
	must(loop_once(loop, 0) == 0); /* accepts */
	if (size > 0 && packet_send(peer, data, size, NULL, 0) == 0) {
		must(loop_once(loop, 0) == 0);
		must(core.n_messages <= 1);
		if (core.n_messages == 0)
			check_refusal(peer);
	}
	attach_free(attach);
	loop_free(loop);
	close(peer);
	return 0;
}
