/*
 * The reference of all commands: another process that answers at once, over nanomsg and ipc, with
 * blocking calls at both ends. A request begins with the number of bytes that it wants back.
 */
#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"

static void serve(int fd, void *arg)
{
	const struct bench_echo *echo = arg;
	int s = nn_socket(AF_SP, NN_REP);

	BENCH_CHECK(s >= 0 && nn_bind(s, echo->address) >= 0);
	bench_tell(fd, 1);
	for (;;) {
		uint32_t n_wanted;
		char *body;
		int n = nn_recv(s, &body, NN_MSG, 0);

		BENCH_CHECK(n >= (int)sizeof(n_wanted));
		memcpy(&n_wanted, body, sizeof(n_wanted));
		if (n_wanted != (uint32_t)n) {
			nn_freemsg(body);
			body = nn_allocmsg(n_wanted, 0);
			BENCH_CHECK(body);
			memset(body, 1, n_wanted);
		}
		BENCH_CHECK(nn_send(s, &body, NN_MSG, 0) >= 0);
	}
}

void bench_echo_start(struct bench_echo *echo)
{
	static unsigned n_echoes;

	echo->socket = -1;
	echo->n_request_bytes = echo->n_reply_bytes = 64;
	snprintf(echo->address, sizeof(echo->address), "ipc://%s/echo-%d-%u", bench_runtime_dir,
		 getpid(), n_echoes++);
	echo->server = bench_helper_start(serve, echo);
	bench_hear(echo->server.fd);
}

void bench_echo_connect(struct bench_echo *echo)
{
	echo->socket = nn_socket(AF_SP, NN_REQ);
	BENCH_CHECK(echo->socket >= 0 && nn_connect(echo->socket, echo->address) >= 0);
	bench_echo_call(echo);
}

void bench_echo_stop(struct bench_echo *echo)
{
	if (echo->socket >= 0)
		nn_close(echo->socket);
	unlink(echo->address + strlen("ipc://"));
}

double bench_echo_call(void *arg)
{
	struct bench_echo *echo = arg;
	uint32_t n_wanted = (uint32_t)echo->n_reply_bytes;
	uint64_t begin = bench_now_ns();
	char *body = nn_allocmsg(echo->n_request_bytes, 0);
	double ns;

	BENCH_CHECK(body && echo->n_request_bytes >= sizeof(n_wanted));
	memset(body, 1, echo->n_request_bytes);
	memcpy(body, &n_wanted, sizeof(n_wanted));
	BENCH_CHECK(nn_send(echo->socket, &body, NN_MSG, 0) >= 0);
	BENCH_CHECK(nn_recv(echo->socket, &body, NN_MSG, 0) == (int)n_wanted);
	nn_freemsg(body);
	ns = bench_since_ns(begin);
	return ns;
}
