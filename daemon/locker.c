#include "daemon/locker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/arena_store.h"
#include "daemon/child.h"
#include "daemon/locker_wire.h"
#include "daemon/packet.h"
#include "daemon/state.h"

#define PAIR_BYTES (1024 * 1024)

static uint64_t load(const _Atomic uint64_t *gauge)
{
	return atomic_load_explicit(gauge, memory_order_relaxed);
}

/* ---- the process -------------------------------------------------------------------------- */

static void end(struct core *core)
{
	struct locker *locker = &core->locker;

	if (locker->fd < 0)
		return;
	loop_io_remove(core->env->loop, &locker->io);
	close(locker->fd);
	locker->fd = -1;
	waitpid(locker->pid, NULL, WNOHANG);
	locker->pid = 0;
}

/* It never says a word: it has died. */
static void on_end(void *arg, uint32_t events)
{
	struct core *core = arg;

	(void)events;
	log_warn("core", "the process that locks memory has died");
	end(core);
}

static int start(struct core *core)
{
	struct locker *locker = &core->locker;
	sigset_t mask;
	int pair[2];

	if (!locker->gauges)
		locker->gauges = mmap(NULL, sizeof(*locker->gauges), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (locker->gauges == MAP_FAILED) {
		locker->gauges = NULL;
		return -ENOMEM;
	}
	memset((void *)locker->gauges, 0, sizeof(*locker->gauges));
	locker->n_told = 0;
	if (packet_pair(pair, PAIR_BYTES))
		return -EMFILE;
	sigemptyset(&mask);
	locker->pid = child_fork("kvcached-lock", &mask, (int[]){pair[1]}, 1);
	if (locker->pid == 0)
		locker_run(pair[1], locker->gauges);
	close(pair[1]);
	locker->fd = pair[0];
	locker->io = (struct loop_io){.fn = on_end, .arg = core, .fd = -1};
	if (locker->pid > 0 &&
	    loop_io_add(core->env->loop, &locker->io, locker->fd, EPOLLRDHUP) == 0)
		return 0;
	end(core);
	return -ECHILD;
}

/* ---- words -------------------------------------------------------------------------------- */

/* False: there was no room for it, or nobody is there. */
static bool tell(struct core *core, const struct locker_message *message, const int *fd)
{
	struct locker *locker = &core->locker;

	if (locker->fd < 0 ||
	    packet_send(locker->fd, message, locker_message_bytes(message->n_ranges), fd,
			fd ? 1 : 0) != 0)
		return false;
	locker->n_told++;
	return true;
}

static void tell_add(struct core *core, struct arena *arena)
{
	const struct locker_message message = {.verb = LOCKER_ADD,
					       .id = arena->id,
					       .n_bytes = arena->n_bytes,
					       .want_huge = core->memory.want_huge};

	arena->lock_state = tell(core, &message, &arena->fd) ? ARENA_LOCK_TOLD : ARENA_LOCK_ADD;
}

void locker_add(struct core *core, struct arena *arena)
{
	struct locker *locker = &core->locker;

	if (!core->memory.want_mlock)
		return;
	if (locker->n_tries == 0) {
		locker->n_tries = 1;
		if (start(core))
			log_warn("core", "there is no process to lock memory: %s", strerror(errno));
	}
	tell_add(core, arena);
}

/* The pieces of a run of blocks lie side by side in each region. */
void locker_lock(struct core *core, struct arena *arena, uint32_t first, uint32_t n_blocks)
{
	const struct kv_group *group = &arena->layout->groups[arena->group];
	struct locker_message message = {.verb = LOCKER_LOCK, .id = arena->id};

	if (!core->memory.want_mlock || arena->lock_state != ARENA_LOCK_TOLD)
		return;
	for (uint32_t r = 0; r < group->n_regions; r++) {
		uint64_t piece = arena->layout->regions[group->first_region + r].piece_bytes;

		message.ranges[message.n_ranges++] = (struct locker_range){
			arena->region_off[r] + first * piece, n_blocks * piece};
		if (message.n_ranges < LOCKER_RANGES_MAX && r + 1 < group->n_regions)
			continue;
		if (!tell(core, &message, NULL)) {
			arena->lock_state = ARENA_LOCK_LOOK;
			return;
		}
		message.n_ranges = 0;
	}
}

void locker_drop(struct core *core, const struct arena *arena)
{
	const struct locker_message message = {.verb = LOCKER_DROP, .id = arena->id};

	if (core->memory.want_mlock && arena->lock_state != ARENA_LOCK_ADD &&
	    !tell(core, &message, NULL))
		end(core); /* it would keep the memory for ever: another one begins at the tick */
}

/* What there was no room for. */
static void tell_missed(struct core *core)
{
	const struct locker_message look = {.verb = LOCKER_LOOK};
	bool missed = false;

	for (size_t i = 0; i < core->arenas.n; i++) {
		struct arena *arena = core->arenas.items[i].thing;

		missed |= arena->lock_state == ARENA_LOCK_LOOK;
		if (arena->lock_state == ARENA_LOCK_ADD)
			tell_add(core, arena);
	}
	if (!missed || !tell(core, &look, NULL))
		return;
	for (size_t i = 0; i < core->arenas.n; i++) {
		struct arena *arena = core->arenas.items[i].thing;

		if (arena->lock_state == ARENA_LOCK_LOOK)
			arena->lock_state = ARENA_LOCK_TOLD;
	}
}

void locker_tick(struct core *core)
{
	struct locker *locker = &core->locker;

	if (locker->n_tries == 0)
		return;
	if (locker->fd < 0) {
		if (locker->n_tries == LOCKER_TRIES_MAX)
			return;
		locker->n_tries++;
		if (start(core))
			return;
		for (size_t i = 0; i < core->arenas.n; i++)
			((struct arena *)core->arenas.items[i].thing)->lock_state = ARENA_LOCK_ADD;
	}
	tell_missed(core);
}

/* ---- gauges ------------------------------------------------------------------------------- */

bool locker_locks(const struct core *core)
{
	const struct locker *locker = &core->locker;

	return locker->fd >= 0 &&
	       atomic_load_explicit(&locker->gauges->error, memory_order_relaxed) == 0;
}

uint64_t locker_left_bytes(const struct core *core)
{
	const struct locker *locker = &core->locker;
	uint64_t left = 0;

	if (!locker_locks(core))
		return 0;
	if (load(&locker->gauges->n_heard) == locker->n_told)
		return load(&locker->gauges->found_bytes) - load(&locker->gauges->done_bytes);
	for (size_t i = 0; i < core->arenas.n; i++)
		left += arena_resident_bytes(core->arenas.items[i].thing);
	return left; /* it has not looked at all of them yet */
}

void locker_text(const struct core *core, char *text, size_t n_text)
{
	const struct locker *locker = &core->locker;
	struct rlimit limit = {0};
	int error = locker->gauges ?
			    atomic_load_explicit(&locker->gauges->error, memory_order_relaxed) :
			    0;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (!core->memory.want_mlock)
		snprintf(text, n_text, "no");
	else if (locker->n_tries == 0)
		snprintf(text, n_text, "try: no arena yet");
	else if (locker->fd < 0)
		snprintf(text, n_text, "try: the process that locks memory does not run");
	else if (error)
		snprintf(text, n_text, "try: refused (%s; RLIMIT_MEMLOCK is %llu KiB)",
			 strerror(error), (unsigned long long)limit.rlim_cur / 1024);
	else
		snprintf(text, n_text, "try: locked");
}

void locker_fini(struct core *core)
{
	end(core);
	if (core->locker.gauges)
		munmap(core->locker.gauges, sizeof(*core->locker.gauges));
	core->locker.gauges = NULL;
}
