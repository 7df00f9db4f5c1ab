/*
 * A few threads that run one function together, and the scratch memory of kvc_attend.
 *
 * Between calls the threads sleep (a short while awake first: layer follows layer). A call lets all
 * of them run the function once, the calling thread being number 0, and returns when the last has
 * done it. The function shares out the work itself, by an atomic counter. Calls allocate nothing
 * but what workers_scratch adds when a shape is larger than any before.
 *
 * Thread: one call at a time, from any thread: workers_enter() before it, workers_leave() behind it.
 * In a child of the process that made them every call fails with KVC_EFORKED.
 */
#ifndef KV_CLIENT_WORKERS_H
#define KV_CLIENT_WORKERS_H

#include <stddef.h>
#include <stdint.h>

#include "client/kvcache.h"

#define WORKERS_MAX 256u

/* How many threads, the caller's included. */
uint32_t workers_n(const kvc_workers *workers);

/* Takes them for a call, scratch memory included; -1 with KVC_EBUSY if another thread has them, with
 * KVC_EFORKED in a child of the process that made them. */
int workers_enter(kvc_workers *workers);
void workers_leave(kvc_workers *workers);

/* fn(arg, number) on every thread, number below workers_n(). */
void workers_run(kvc_workers *workers, void (*fn)(void *arg, uint32_t number), void *arg);

/* Memory of n_bytes, aligned to 64, valid until the next call; what was in it is not kept when it
 * grows. NULL with KVC_ENOMEM. */
void *workers_scratch(kvc_workers *workers, size_t n_bytes);

/* Bytes that it has. */
size_t workers_scratch_bytes(const kvc_workers *workers);

#endif
