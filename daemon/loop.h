/*
 * The event loop of keeper and core: descriptors, timers and tasks, all on one thread.
 *
 * Promise: each callback runs on the loop's thread, never inside another callback of the loop,
 * and never after its object was removed, also when it is removed by a callback of the same
 * round. Callbacks may add and remove anything, themselves included.
 *
 * One round: wait for descriptors (not at all while a task is active), call those that are
 * ready, then the timers that are due in the order of their times, then each task once.
 *
 * Objects are embedded in their owner and must live until they are removed. Times are
 * nanoseconds of the loop's clock: CLOCK_MONOTONIC, or one that a test moves by hand.
 */
#ifndef KV_DAEMON_LOOP_H
#define KV_DAEMON_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "proto/errbuf.h"

#define LOOP_NS_PER_MS UINT64_C(1000000)
#define LOOP_NS_PER_S UINT64_C(1000000000)

struct loop;

struct loop_clock {
	uint64_t (*now_ns)(void *arg);
	void *arg;
};

/* A descriptor. Set fn and arg, then loop_io_add(). The descriptor stays the owner's. */
struct loop_io {
	void (*fn)(void *arg, uint32_t events); /* EPOLLIN, EPOLLOUT, EPOLLHUP, ... */
	void *arg;
	int fd;
	uint32_t events;
};

/* Fires once. Set fn and arg, zero the rest. */
struct loop_timer {
	void (*fn)(void *arg);
	void *arg;
	uint64_t due_ns;
	size_t slot; /* in the heap, from 1; 0: not set */
};

/* Runs once a round for as long as it returns true. Set fn and arg, zero the rest. One that frees
 * itself in its callback removes itself first and returns true. */
struct loop_task {
	bool (*fn)(void *arg);
	void *arg;
	struct loop_task *next;
	struct loop_task **link; /* what points at it; NULL: not active */
};

/* clock NULL: CLOCK_MONOTONIC; it is copied. NULL with err if epoll is refused. */
struct loop *loop_new(const struct loop_clock *clock, struct errbuf *err);
void loop_free(struct loop *loop); /* NULL is allowed; objects still added are forgotten */

uint64_t loop_now_ns(const struct loop *loop);

/* 0 or -errno. `events` as in epoll_ctl, level-triggered. */
int loop_io_add(struct loop *loop, struct loop_io *io, int fd, uint32_t events);
int loop_io_change(struct loop *loop, struct loop_io *io, uint32_t events);
/* Before the descriptor is closed. An io that was never added (fd < 0) is left alone. */
void loop_io_remove(struct loop *loop, struct loop_io *io);

/* Sets it to a time, also if it is set already. 0 or -ENOMEM. */
int loop_timer_at(struct loop *loop, struct loop_timer *timer, uint64_t due_ns);
int loop_timer_in(struct loop *loop, struct loop_timer *timer, uint64_t delay_ns);
void loop_timer_cancel(struct loop *loop, struct loop_timer *timer);

/* Adding an active task, removing one that is not, change nothing. An added task runs first in
 * this round if the round has not come to the tasks yet, else in the next. */
void loop_task_add(struct loop *loop, struct loop_task *task);
void loop_task_remove(struct loop *loop, struct loop_task *task);

/* One round that waits at most max_wait_ms (-1: without limit). 0 or -errno of epoll_wait. */
int loop_once(struct loop *loop, int max_wait_ms);

/* Rounds until loop_stop(); returns its code, or -errno. */
int loop_run(struct loop *loop);
void loop_stop(struct loop *loop, int code);

#endif
