/*
 * The locker's own side: a loop that hears words and maps pages, a slice at a time, newly granted
 * blocks before what it found. It reads no byte of an arena. Ends with its core.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/locker_wire.h"
#include "daemon/log.h"
#include "daemon/packet.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

#define SLICE_BYTES (UINT64_C(2) << 20)
#define RANGES_MAX 4096u
#define NICE 5
#define PAGE_BYTES UINT64_C(4096)

struct mapped {
	uint64_t id, n_bytes;
	int fd;
	char *base;
	bool is_looking; /* at all that is there */
	uint64_t look_off;
	uint64_t found_bytes, done_bytes; /* of the first look */
};

struct todo {
	uint64_t id, off, end;
};

static struct mapped *arenas;
static size_t n_arenas, arenas_cap;
static struct todo todos[RANGES_MAX]; /* a ring */
static size_t todo_first, n_todos;
static struct locker_gauges *gauges;

static void add_gauge(_Atomic uint64_t *gauge, uint64_t n)
{
	atomic_fetch_add_explicit(gauge, n, memory_order_relaxed);
}

static struct mapped *find(uint64_t id)
{
	for (size_t i = 0; i < n_arenas; i++)
		if (arenas[i].id == id)
			return &arenas[i];
	return NULL;
}

/* ---- words -------------------------------------------------------------------------------- */

static void refused(int error)
{
	struct rlimit limit = {0};

	if (atomic_exchange_explicit(&gauges->error, error, memory_order_relaxed))
		return;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	log_warn("arena",
		 "mlock = try: refused (%s; RLIMIT_MEMLOCK is %llu KiB): memory of the pool can "
		 "be swapped; raise LimitMEMLOCK",
		 strerror(error), (unsigned long long)limit.rlim_cur / 1024);
}

static uint64_t resident_bytes(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (uint64_t)st.st_blocks * 512;
}

static void look_again(struct mapped *arena)
{
	arena->is_looking = true;
	arena->look_off = 0;
}

/* Owns fd. */
static void add(const struct locker_message *message, int fd)
{
	struct mapped arena = {.id = message->id, .n_bytes = message->n_bytes, .fd = fd};

	if (n_arenas == arenas_cap) {
		size_t cap = arenas_cap ? 2 * arenas_cap : 64;
		struct mapped *more = realloc(arenas, cap * sizeof(*more));

		if (!more)
			_exit(1);
		arenas = more;
		arenas_cap = cap;
	}
	arena.base = mmap(NULL, arena.n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			  fd, 0);
	if (arena.base == MAP_FAILED) {
		refused(errno);
		close(fd);
		return;
	}
	madvise(arena.base, arena.n_bytes, MADV_DONTDUMP);
	if (message->want_huge)
		madvise(arena.base, arena.n_bytes, MADV_HUGEPAGE);
	/* the whole mapping at once, pages being locked as they come: one mapping in the kernel's
	 * books however the blocks are scattered */
	if (mlock2(arena.base, arena.n_bytes, MLOCK_ONFAULT)) {
		refused(errno);
		munmap(arena.base, arena.n_bytes);
		close(fd);
		return;
	}
	atomic_fetch_add_explicit(&gauges->n_arenas, 1, memory_order_relaxed);
	arena.found_bytes = resident_bytes(fd);
	add_gauge(&gauges->found_bytes, arena.found_bytes);
	look_again(&arena);
	arenas[n_arenas++] = arena;
}

/* Its first look is over, or it has gone: what it found counts as done. */
static void found_is_done(struct mapped *arena)
{
	add_gauge(&gauges->done_bytes, arena->found_bytes - arena->done_bytes);
	arena->done_bytes = arena->found_bytes;
}

static void drop(struct mapped *arena)
{
	found_is_done(arena);
	munmap(arena->base, arena->n_bytes);
	close(arena->fd);
	*arena = arenas[--n_arenas];
	atomic_fetch_sub_explicit(&gauges->n_arenas, 1, memory_order_relaxed);
}

static void lock(struct mapped *arena, const struct locker_message *message)
{
	for (uint32_t i = 0; i < message->n_ranges && i < LOCKER_RANGES_MAX; i++) {
		const struct locker_range *range = &message->ranges[i];

		if (n_todos == RANGES_MAX) {
			look_again(arena);
			return;
		}
		todos[(todo_first + n_todos++) % RANGES_MAX] = (struct todo){
			arena->id, range->off, range->off + range->n_bytes};
	}
}

static void hear(const struct locker_message *message, int fd)
{
	struct mapped *arena = find(message->id);

	if (message->verb == LOCKER_ADD && !arena && fd >= 0) {
		add(message, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (message->verb == LOCKER_LOCK && arena)
		lock(arena, message);
	else if (message->verb == LOCKER_DROP && arena)
		drop(arena);
	else if (message->verb == LOCKER_LOOK)
		for (size_t i = 0; i < n_arenas; i++)
			look_again(&arenas[i]);
}

/* ---- work --------------------------------------------------------------------------------- */

/*
 * Maps the next pages of [*off, end) that are there, at most max_bytes. Returns how many bytes; 0:
 * there are none. A hole that is punched meanwhile gets a page of zeros, no more.
 */
static uint64_t map_pages(const struct mapped *arena, uint64_t *off, uint64_t end,
			  uint64_t max_bytes)
{
	const uint64_t first = *off & ~(PAGE_BYTES - 1);
	off_t data = lseek(arena->fd, (off_t)first, SEEK_DATA);
	off_t hole = data < 0 ? -1 : lseek(arena->fd, data, SEEK_HOLE);
	uint64_t n;

	end = (end + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);

	if (hole < 0 || (uint64_t)data >= end)
		return 0;
	n = ((uint64_t)hole < end ? (uint64_t)hole : end) - (uint64_t)data;
	if (n > max_bytes)
		n = max_bytes;
	if (madvise(arena->base + data, n, MADV_POPULATE_READ)) {
		refused(errno);
		return 0;
	}
	*off = (uint64_t)data + n;
	return n;
}

/* A slice of the first range. */
static void do_range(void)
{
	struct todo *todo = &todos[todo_first];
	const struct mapped *arena = find(todo->id);

	if (arena && map_pages(arena, &todo->off, todo->end, SLICE_BYTES))
		return;
	todo_first = (todo_first + 1) % RANGES_MAX;
	n_todos--;
}

/* A slice of what is there. False: there is nothing to look at. */
static bool look(void)
{
	for (size_t i = 0; i < n_arenas; i++) {
		struct mapped *arena = &arenas[i];
		uint64_t n;

		if (!arena->is_looking)
			continue;
		n = map_pages(arena, &arena->look_off, arena->n_bytes, SLICE_BYTES);
		if (n == 0) {
			arena->is_looking = false;
			found_is_done(arena);
			return true;
		}
		if (n > arena->found_bytes - arena->done_bytes)
			n = arena->found_bytes - arena->done_bytes;
		arena->done_bytes += n;
		add_gauge(&gauges->done_bytes, n);
		return true;
	}
	return false;
}

static bool work(void)
{
	if (n_todos == 0)
		return look();
	do_range();
	return true;
}

/* All words that are there. False: the core has gone. */
static bool hear_all(int fd)
{
	for (;;) {
		struct locker_message message = {0};
		size_t n_fds = 1;
		int beside = -1;
		ssize_t n = packet_recv(fd, &message, sizeof(message), &beside, &n_fds);

		if (n <= 0)
			return n == -EAGAIN;
		hear(&message, n_fds ? beside : -1);
		add_gauge(&gauges->n_heard, 1);
	}
}

void locker_run(int fd, struct locker_gauges *shared)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	bool more = false;

	gauges = shared;
	setpriority(PRIO_PROCESS, 0, NICE);
	for (;;) {
		if (poll(&p, 1, more ? 0 : -1) < 0 && errno != EINTR)
			_exit(1);
		if (!hear_all(fd))
			_exit(0);
		more = work();
	}
}
