/*
 * What stands behind io.h: the common part (io.c) keeps queue, deadlines, quarantine and results;
 * a back end moves bytes.
 *
 *	io_uring.c	one ring of the kernel's
 *	io_threads.c	a few threads with preadv and pwritev
 *	io_faults.c	goes wrong as it is told, on the way to one of the above (tests only)
 *
 * A back end takes a request with start(), makes one attempt to transfer what is left of it, and
 * reports from collect() how much that was. Whatever it has started it reports exactly once. It
 * makes the event descriptor readable when there is something to collect. It changes nothing in a
 * request. Thread: the caller's, for all calls.
 */
#ifndef KV_OFFLOAD_IO_ENGINE_H
#define KV_OFFLOAD_IO_ENGINE_H

#include "offload/io.h"

/* Where collect() reports: bytes of this attempt, or -errno. It starts nothing. */
struct io_sink {
	void (*ended)(void *arg, struct io_request *request, int64_t result);
	void *arg;
};

struct io_backend;

struct io_backend_ops {
	void (*close)(struct io_backend *backend); /* nothing is in flight */
	const char *(*text)(const struct io_backend *backend);

	/* fd -1: the file is removed. Of a buffered one, read pages go out of the page cache. */
	void (*file_set)(struct io_backend *backend, int file, int fd, bool is_buffered);
	void (*memory_add)(struct io_backend *backend, void *base, size_t n_bytes);
	void (*memory_remove)(struct io_backend *backend, void *base);

	/* READ, WRITE, SYNC. 0; -EAGAIN: no room now; another -errno: it will never start. */
	int (*start)(struct io_backend *backend, struct io_request *request);
	/* Behind start() and cancel(): off they go. 0, or -errno: call again in a moment. */
	int (*push)(struct io_backend *backend);
	void (*collect)(struct io_backend *backend, uint64_t now_ns, const struct io_sink *sink);
	/* Ends it early if that is possible; it is reported all the same. */
	void (*cancel)(struct io_backend *backend, struct io_request *request);

	/* May be NULL: when collect() is due whatever the descriptor says; what is held back
	 * on purpose goes on. */
	uint64_t (*next_ns)(const struct io_backend *backend);
	void (*let_go)(struct io_backend *backend);
};

struct io_backend {
	const struct io_backend_ops *ops;
};

/* NULL with err. Defaults are filled in; the event descriptor stays the caller's. */
struct io_backend *io_uring_backend(const struct io_options *options, int event_fd,
				    struct errbuf *err);
struct io_backend *io_threads_backend(const struct io_options *options, int event_fd,
				      struct errbuf *err);

/* CLOCK_MONOTONIC */
uint64_t io_clock_ns(void);

/* Where in the file the next attempt begins. */
static inline uint64_t io_request_off(const struct io_request *request)
{
	return request->off + (request->n_bytes - request->n_left);
}

/* What is left of the iovecs. */
static inline const struct iovec *io_request_iov(const struct io_request *request, uint32_t *n)
{
	*n = request->n_iov - request->first_iov;
	return request->iov + request->first_iov;
}

/* What transfers to and from an open file must be multiples of; 1: it is buffered. */
uint32_t io_file_align(int fd);

/* For tests: what a fault holds back goes on. */
void io_let_go(struct io_engine *engine);

#endif
