/*
 * What goes over nanomsg in this process. The linker puts these in the place of nn_send and
 * nn_recv (--wrap), so that the echo can be as long as the command, and commands can be counted.
 * Thread: the only one that calls the library.
 */
#include <nanomsg/nn.h>

#include "tests/bench/bench.h"

struct bench_meter bench_meter;

int __real_nn_send(int socket, const void *body, size_t n, int flags);
int __real_nn_recv(int socket, void *body, size_t n, int flags);
int __wrap_nn_send(int socket, const void *body, size_t n, int flags);
int __wrap_nn_recv(int socket, void *body, size_t n, int flags);

int __wrap_nn_send(int socket, const void *body, size_t n, int flags)
{
	int rc = __real_nn_send(socket, body, n, flags);

	if (rc >= 0) {
		bench_meter.n_requests++;
		bench_meter.n_request_bytes = (size_t)rc;
	}
	return rc;
}

int __wrap_nn_recv(int socket, void *body, size_t n, int flags)
{
	int rc = __real_nn_recv(socket, body, n, flags);

	if (rc >= 0)
		bench_meter.n_reply_bytes = (size_t)rc;
	return rc;
}

void bench_echo_like_last_call(struct bench_echo *echo)
{
	echo->n_request_bytes = bench_meter.n_request_bytes;
	echo->n_reply_bytes = bench_meter.n_reply_bytes;
}
