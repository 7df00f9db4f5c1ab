/*
 * The locker: a process of the core's that keeps the memory of arenas locked (mlock = try).
 *
 * Locked pages are mapped pages, and to unmap them when a process dies takes a second for a few
 * GiB. The core maps none: so its successor can begin at once, and the locker of the one that died
 * ends beside it. Nobody waits for the locker, and it answers nothing: the core tells it of arenas
 * and of blocks that got memory; a page that both share has the gauges. A word that finds no room is
 * made good at the next tick. When it dies another one is started, LOCKER_TRIES_MAX times in all;
 * without it memory can be swapped, and that is all.
 *
 * Core thread.
 */
#ifndef KV_DAEMON_LOCKER_H
#define KV_DAEMON_LOCKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/loop.h"

#define LOCKER_TRIES_MAX 5u

struct arena;
struct core;
struct locker_gauges;

struct locker {
	pid_t pid; /* 0: none runs */
	int fd;    /* -1: none */
	struct loop_io io;
	unsigned n_tries;
	uint64_t n_told; /* words that it has to hear */
	struct locker_gauges *gauges;
};

/* An arena is there, with what is in it already: from now on. The first one starts the process. */
void locker_add(struct core *core, struct arena *arena);

/* Blocks of it have got memory. */
void locker_lock(struct core *core, struct arena *arena, uint32_t first, uint32_t n_blocks);

/* It goes. */
void locker_drop(struct core *core, const struct arena *arena);

/* Once a tick: what it could not be told is told. */
void locker_tick(struct core *core);

/* Does it run, and may it lock? */
bool locker_locks(const struct core *core);

/* Of the bytes that arenas had when they were added, so many are not locked yet. */
uint64_t locker_left_bytes(const struct core *core);

/* What was asked for and got, for people. */
void locker_text(const struct core *core, char *text, size_t n_text);

void locker_fini(struct core *core);

#endif
