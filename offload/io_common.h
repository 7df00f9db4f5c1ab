/*
 * What the common part of the I/O engines is made of, for its own files: io.c (requests),
 * io_states.c, io_open.c (the engine itself). A request is in the list of its state:
 *
 *	IDLE	    the engine does not know it
 *	WAITING	    in the queue; also between two attempts, then at its head
 *	FLIGHT	    the back end has it
 *	LATE	    the back end has it, but its result is known (deadline, cancel)
 *	QUARANTINE  the same, and done() was called
 *	ENDED	    the back end is through, done() is to be called
 *	SETTLED	    the back end is through, settled() is to be called
 */
#ifndef KV_OFFLOAD_IO_COMMON_H
#define KV_OFFLOAD_IO_COMMON_H

#include "offload/io_engine.h"
#include "offload/io_pool.h"

enum io_state {
	IO_IDLE,
	IO_WAITING,
	IO_FLIGHT,
	IO_LATE,
	IO_QUARANTINE,
	IO_ENDED,
	IO_SETTLED,
	IO_N_STATES
};

struct io_list {
	struct io_request *first, *last;
	uint32_t n;
};

struct io_file {
	int fd; /* -1: free */
	uint32_t align;
};

struct io_engine {
	struct io_options options;
	struct io_backend *backend;
	struct io_pool *calls; /* NULL before the first IO_CALL */
	int event_fd;
	bool is_closing, is_reaping;
	uint64_t deadline_ns; /* no deadline in WAITING and FLIGHT is earlier */
	uint64_t retry_ns;    /* the back end had no room, or could not push; UINT64_MAX: no */
	struct io_list lists[IO_N_STATES];
	struct io_file files[IO_FILES_MAX];
	struct io_gauges counts;         /* since the start, and the quarantined bytes */
	char text[KV_ERRBUF_BYTES + 16]; /* empty: the back end's */
};

/* Into the list of a state; a move that makes no sense is an assertion. */
void io_move(struct io_engine *engine, struct io_request *request, enum io_state to);

uint32_t io_n_in_flight(const struct io_engine *engine);
/* Callbacks are due at the next io_reap(). */
bool io_has_calls_to_make(const struct io_engine *engine);

/* Its result is known before the back end is through with it, if it has it. */
void io_end_early(struct io_engine *engine, struct io_request *request, int result);

#endif
