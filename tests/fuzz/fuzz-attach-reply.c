/*
 * A packet of the daemon on the attach socket, as the library hears it: {number of descriptors
 * beside it 1 byte, bytes}. Whatever it is: it is a reply of our versions with status OK and a
 * boot id, with one descriptor or none, or it is refused, and no descriptor is left. Thread: one.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/attach.h"
#include "client/clock.h"
#include "daemon/packet.h"
#include "proto/limits.h"
#include "tests/fuzz/target.h"

static int lowest_free_fd(void)
{
	int fd = dup(0);

	if (fd >= 0)
		close(fd);
	return fd;
}

static void exchange(struct attach *attach)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Bye bye = KV__WIRE__BYE__INIT;
	struct attach_answer answer;
	struct errbuf err = {0};

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_BYE;
	request.bye = &bye;
	if (attach_exchange(attach, &request, -1, clock_deadline_ns(1000), &answer, &err)) {
		must(err.status != KV_OK && err.text[0] && !answer.reply && answer.fd < 0);
		return;
	}
	must(answer.reply->version == KV_PROTOCOL_VERSION);
	must(answer.reply->shm_version == KV_SHM_VERSION);
	must(answer.reply->status == KV_OK && answer.reply->boot.len == 16);
	attach_answer_free(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct attach attach = {.fd = -1};
	int fds[PACKET_FDS_MAX], pair[2], before;

	if (size < 2)
		return 0;
	before = lowest_free_fd();
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	attach.fd = pair[0];
	for (size_t i = 0; i < PACKET_FDS_MAX; i++)
		fds[i] = pair[1];
	must(packet_send(pair[1], data + 1, size - 1, fds, data[0] % (PACKET_FDS_MAX + 1)) == 0);
	exchange(&attach);
	attach_close(&attach);
	close(pair[1]);
	must(lowest_free_fd() == before);
	return 0;
}
