/*
 * Threads that work through requests, one after another each: the thread engine has some, and
 * each engine has one for its IO_CALLs. They start with the first request, with all signals
 * blocked. No allocation and no request is ever lost behind io_pool_new().
 */
#ifndef KV_OFFLOAD_IO_POOL_H
#define KV_OFFLOAD_IO_POOL_H

#include "offload/io_engine.h"

/* On a thread of the pool: the work, and what is reported as its result. */
typedef int64_t io_pool_fn(void *arg, const struct io_request *request);

struct io_pool_options {
	uint32_t n_threads;
	uint32_t capacity; /* requests taken and not collected */
	int event_fd;      /* is written when there is something to collect */
	io_pool_fn *fn;
	void *arg;
};

struct io_pool;

struct io_pool *io_pool_new(const struct io_pool_options *options); /* NULL: no memory */
void io_pool_free(struct io_pool *pool); /* nothing is in it; NULL is allowed */

/* 0; -EAGAIN: full; -ENOMEM: no thread could be started. */
int io_pool_start(struct io_pool *pool, struct io_request *request);
/* One that no thread has begun ends with -ECANCELED. */
void io_pool_cancel(struct io_pool *pool, struct io_request *request);
void io_pool_collect(struct io_pool *pool, const struct io_sink *sink);

#endif
