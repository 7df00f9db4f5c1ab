/*
 * Input and output on files, many requests at a time: io_uring where the kernel allows it, a few
 * threads where not, and for tests an engine that goes wrong as it is told. One thread, the
 * caller's, makes every call here and gets every callback, from io_reap() or io_close().
 *
 *	io_submit(engine, &request);              -EAGAIN: the queue is full, come back later
 *	...                                       io_fd() becomes readable, or io_next_ns() comes
 *	io_reap(engine, now_ns);                  calls request.done(), then request.settled()
 *
 * done() is called once with the result. settled() is called once, after it: from then on nothing
 * touches the request or its buffers any more. Most times they follow one another; but when a
 * deadline passes or a request is cancelled, done() comes at once with -ETIMEDOUT or -ECANCELED,
 * and settled() when the kernel really is through with the buffers, be that an hour later. Until
 * then they are in quarantine: they belong to the engine and must not be freed or used again.
 *
 * A short transfer is carried on with; a read that meets the end of the file is -ENODATA. A result
 * of 0 means that every byte was transferred. Requests in flight together are done in any order:
 * an IO_SYNC covers what was done before it was submitted.
 */
#ifndef KV_OFFLOAD_IO_H
#define KV_OFFLOAD_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "proto/errbuf.h"

#define IO_FILES_MAX 64u
#define IO_IOVECS_MAX 1024u /* of one request */

enum io_kind { IO_AUTO = 0, IO_URING = 1, IO_THREADS = 2 };

/* IO_CALL runs call(arg) on a thread of the engine's, for what has no request of its own (rename
 * and the like); its result, 0 or -errno, is what done() gets. It must not touch what the caller
 * touches meanwhile. */
enum io_op { IO_READ = 1, IO_WRITE = 2, IO_SYNC = 3, IO_CALL = 4 };

struct io_request {
	/* the caller's; not to be changed between io_submit() and settled() */
	enum io_op op;
	int file;          /* of io_file_add(); not for IO_CALL */
	uint64_t off;      /* in the file */
	struct iovec *iov; /* [n_iov]; the engine advances them when a transfer was short */
	uint32_t n_iov;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
	int (*call)(void *arg);
	void (*done)(struct io_request *request, int result); /* 0 or -errno */
	void (*settled)(struct io_request *request);          /* NULL: nothing to do */
	void *arg;
	/* the engine's; zero before the first io_submit() */
	struct io_request *next, *prev;
	uint64_t n_bytes, n_left;
	uint32_t state, first_iov, n_stalls;
	int result;
};

struct io_options {
	enum io_kind kind;
	uint32_t depth;     /* requests in the kernel or with threads at a time; 0: 16 */
	uint32_t queue;     /* waiting besides; 0: 64 */
	uint32_t n_threads; /* of the thread engine; 0: 4 */
};
#define IO_DEPTH_MAX 1024u
#define IO_THREADS_MAX 64u

struct io_engine;

/* NULL with err: what was asked for cannot be had (IO_AUTO falls back to threads and io_text()
 * says why). */
struct io_engine *io_open(const struct io_options *options, struct errbuf *err);

/* Cancels what waits, waits for what is in flight, calls what is due, frees. Not from a callback.
 * NULL is allowed. */
void io_close(struct io_engine *engine);

/* For people: "io_uring, registered memory" or "threads: io_uring is not permitted here". */
const char *io_text(const struct io_engine *engine);

int io_fd(const struct io_engine *engine);

/* When io_reap() is due at the latest, for deadlines; UINT64_MAX: not before io_fd() says so. */
uint64_t io_next_ns(const struct io_engine *engine);

/* Calls done() and settled() of what has ended or is overdue. Callbacks may submit and cancel.
 * io_next_ns() is another afterwards, as after each io_submit() and io_cancel(). */
void io_reap(struct io_engine *engine, uint64_t now_ns);

/* A file that requests name by the number. It stays the caller's, and open until io_file_remove().
 * -EMFILE, -ENOMEM. */
int io_file_add(struct io_engine *engine, int fd);
void io_file_remove(struct io_engine *engine, int file); /* nothing is in flight on it */

/*
 * Memory that requests will use often: registered with the kernel where that is possible (in
 * pieces of at most 1 GiB), which saves time and nothing else. It must be writable; its pages are
 * made and pinned, which takes time, and stay those of the registration: who punches a hole into
 * it (or unmaps it) removes it first, else transfers go to pages that nobody sees any more. What
 * the disk makes of it depends on the number of pieces it is in physical memory: in huge pages
 * transfers are several times as fast. Requests of one iovec in one such piece have the use of it.
 */
void io_memory_add(struct io_engine *engine, void *base, size_t n_bytes);
void io_memory_remove(struct io_engine *engine, void *base);

/* 0, -EAGAIN when the queue is full (nothing was taken), -EINVAL; -ECANCELED in a callback from
 * io_close(). */
int io_submit(struct io_engine *engine, struct io_request *request);

/* done() with -ECANCELED, from the next io_reap(); nothing if it has been called already. */
void io_cancel(struct io_engine *engine, struct io_request *request);

struct io_gauges {
	uint32_t n_waiting, n_in_flight; /* now */
	uint64_t quarantined_bytes;      /* of buffers whose request is done but not settled */
	uint64_t n_read_bytes, n_written_bytes;
	uint64_t n_short, n_failed, n_late, n_full; /* since the start; n_full: -EAGAIN */
};
void io_gauges(const struct io_engine *engine, struct io_gauges *gauges);

/*
 * How a descriptor wants its transfers: multiples of align bytes, in file and memory. Opens path
 * for direct I/O where the file system can (*align at most 4096), buffered where it cannot (*align
 * is 1 then, and engines put what was read or synced out of the page cache). -1 with err.
 */
int io_open_file(const char *path, int flags, unsigned mode, uint32_t *align, struct errbuf *err);

#endif
