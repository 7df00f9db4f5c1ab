#include "daemon/loop.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64

struct loop {
	int epoll_fd;
	struct loop_clock clock;
	/* The descriptors of the running round; an io that is removed meanwhile is blanked here. */
	struct epoll_event batch[BATCH];
	int n_batch;
	/* Timers: a heap, earliest first, in slots 1 to n_timers. */
	struct loop_timer **timers;
	size_t n_timers;
	size_t n_timers_max;
	struct loop_task *tasks;
	struct loop_task *next_task; /* of the running round */
	bool stopped;
	int code;
};

static uint64_t monotonic_ns(void *arg)
{
	struct timespec t;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * LOOP_NS_PER_S + (uint64_t)t.tv_nsec;
}

struct loop *loop_new(const struct loop_clock *clock, struct errbuf *err)
{
	struct loop *loop = calloc(1, sizeof(*loop));

	if (!loop) {
		errbuf_set(err, KV_ENOMEM, "no memory for the event loop");
		return NULL;
	}
	loop->clock = clock ? *clock : (struct loop_clock){.now_ns = monotonic_ns};
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0) {
		errbuf_errno(err, KV_EINTERNAL, errno, "epoll_create1");
		free(loop);
		return NULL;
	}
	return loop;
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	close(loop->epoll_fd);
	free(loop->timers);
	free(loop);
}

uint64_t loop_now_ns(const struct loop *loop)
{
	return loop->clock.now_ns(loop->clock.arg);
}

/* ---- descriptors ------------------------------------------------------------------------- */

int loop_io_add(struct loop *loop, struct loop_io *io, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data = {.ptr = io}};

	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		return -errno;
	io->fd = fd;
	io->events = events;
	return 0;
}

int loop_io_change(struct loop *loop, struct loop_io *io, uint32_t events)
{
	struct epoll_event event = {.events = events, .data = {.ptr = io}};

	if (io->events == events)
		return 0;
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, io->fd, &event) != 0)
		return -errno;
	io->events = events;
	return 0;
}

void loop_io_remove(struct loop *loop, struct loop_io *io)
{
	if (io->fd < 0)
		return;
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
	io->fd = -1;
	for (int i = 0; i < loop->n_batch; i++)
		if (loop->batch[i].data.ptr == io)
			loop->batch[i].data.ptr = NULL;
}

/* ---- timers ------------------------------------------------------------------------------ */

static bool earlier(const struct loop_timer *a, const struct loop_timer *b)
{
	return a->due_ns < b->due_ns;
}

static void heap_put(struct loop *loop, size_t slot, struct loop_timer *timer)
{
	loop->timers[slot] = timer;
	timer->slot = slot;
}

static void heap_up(struct loop *loop, size_t slot, struct loop_timer *timer)
{
	while (slot > 1 && earlier(timer, loop->timers[slot / 2])) {
		heap_put(loop, slot, loop->timers[slot / 2]);
		slot /= 2;
	}
	heap_put(loop, slot, timer);
}

static void heap_down(struct loop *loop, size_t slot, struct loop_timer *timer)
{
	size_t child;

	while ((child = 2 * slot) <= loop->n_timers) {
		if (child < loop->n_timers && earlier(loop->timers[child + 1], loop->timers[child]))
			child++;
		if (!earlier(loop->timers[child], timer))
			break;
		heap_put(loop, slot, loop->timers[child]);
		slot = child;
	}
	heap_put(loop, slot, timer);
}

static int heap_grow(struct loop *loop)
{
	size_t n = loop->n_timers_max ? 2 * loop->n_timers_max : 64;
	struct loop_timer **timers = realloc(loop->timers, (n + 1) * sizeof(*timers));

	if (!timers)
		return -ENOMEM;
	loop->timers = timers;
	loop->n_timers_max = n;
	return 0;
}

int loop_timer_at(struct loop *loop, struct loop_timer *timer, uint64_t due_ns)
{
	loop_timer_cancel(loop, timer);
	if (loop->n_timers == loop->n_timers_max && heap_grow(loop) != 0)
		return -ENOMEM;
	timer->due_ns = due_ns;
	heap_up(loop, ++loop->n_timers, timer);
	return 0;
}

int loop_timer_in(struct loop *loop, struct loop_timer *timer, uint64_t delay_ns)
{
	return loop_timer_at(loop, timer, loop_now_ns(loop) + delay_ns);
}

void loop_timer_cancel(struct loop *loop, struct loop_timer *timer)
{
	size_t slot = timer->slot;
	struct loop_timer *last;

	if (slot == 0)
		return;
	timer->slot = 0;
	last = loop->timers[loop->n_timers--];
	if (last == timer)
		return;
	if (slot > 1 && earlier(last, loop->timers[slot / 2]))
		heap_up(loop, slot, last);
	else
		heap_down(loop, slot, last);
}

/* Timers that are set by a callback for now or earlier wait for the next round. */
static void run_timers(struct loop *loop)
{
	uint64_t now_ns;

	if (loop->n_timers == 0)
		return;
	now_ns = loop_now_ns(loop);
	for (size_t n = loop->n_timers; n > 0 && loop->n_timers > 0; n--) {
		struct loop_timer *timer = loop->timers[1];

		if (timer->due_ns > now_ns)
			return;
		loop_timer_cancel(loop, timer);
		timer->fn(timer->arg);
	}
}

/* ---- tasks ------------------------------------------------------------------------------- */

void loop_task_add(struct loop *loop, struct loop_task *task)
{
	if (task->link)
		return;
	task->next = loop->tasks;
	task->link = &loop->tasks;
	if (task->next)
		task->next->link = &task->next;
	loop->tasks = task;
}

void loop_task_remove(struct loop *loop, struct loop_task *task)
{
	if (!task->link)
		return;
	if (loop->next_task == task)
		loop->next_task = task->next;
	*task->link = task->next;
	if (task->next)
		task->next->link = task->link;
	task->link = NULL;
	task->next = NULL;
}

/* A task that frees itself in its callback must return true after it has removed itself: then it
 * is not looked at again. Tasks that are added meanwhile run from the next round on. */
static void run_tasks(struct loop *loop)
{
	for (struct loop_task *task = loop->tasks; task; task = loop->next_task) {
		loop->next_task = task->next;
		if (!task->fn(task->arg))
			loop_task_remove(loop, task);
	}
	loop->next_task = NULL;
}

/* ---- rounds ------------------------------------------------------------------------------ */

static int wait_ms(const struct loop *loop, int max_wait_ms)
{
	uint64_t now_ns;
	uint64_t ms;

	if (loop->tasks || max_wait_ms == 0)
		return 0;
	if (loop->n_timers == 0)
		return max_wait_ms;
	now_ns = loop_now_ns(loop);
	if (loop->timers[1]->due_ns <= now_ns)
		return 0;
	ms = (loop->timers[1]->due_ns - now_ns + LOOP_NS_PER_MS - 1) / LOOP_NS_PER_MS;
	if (ms > INT_MAX)
		ms = INT_MAX;
	return max_wait_ms < 0 || (int)ms < max_wait_ms ? (int)ms : max_wait_ms;
}

int loop_once(struct loop *loop, int max_wait_ms)
{
	int n = epoll_wait(loop->epoll_fd, loop->batch, BATCH, wait_ms(loop, max_wait_ms));

	if (n < 0 && errno != EINTR)
		return -errno;
	loop->n_batch = n > 0 ? n : 0;
	for (int i = 0; i < loop->n_batch; i++) {
		struct loop_io *io = loop->batch[i].data.ptr;

		if (io)
			io->fn(io->arg, loop->batch[i].events);
	}
	loop->n_batch = 0;
	run_timers(loop);
	run_tasks(loop);
	return 0;
}

int loop_run(struct loop *loop)
{
	int rc = 0;

	while (!loop->stopped && rc == 0)
		rc = loop_once(loop, -1);
	loop->stopped = false;
	return rc != 0 ? rc : loop->code;
}

void loop_stop(struct loop *loop, int code)
{
	loop->stopped = true;
	loop->code = code;
}
