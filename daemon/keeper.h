/*
 * The keeper: the parent of core and front, and the owner of what must outlive them.
 *
 * Promise: as long as it lives, the runtime directory is locked, the attach socket exists, a core
 * and a front run or are being started, and every descriptor that the core gave it stays open.
 * It reads nothing from clients.
 *
 * Start: lock, attach socket, core, front; READY when both say so. Death of the core: a new one
 * is forked and finds the kept descriptors; KEEPER_CRASHES_MAX deaths within KEEPER_CRASHES_S
 * that nobody asked for by SIGKILL are given up, with an error. Death of the front: a new one
 * within 100 ms, however often. A core or front that cannot even start the first time ends all.
 * SIGTERM, SIGINT: core, then front, are told to end (5 s, then killed), sockets removed, status
 * 0. SIGHUP: ignored, with a line. Death of the keeper: the kernel kills both children.
 *
 * One thread, no locks. The loop's callbacks are the only writers of struct keeper.
 */
#ifndef KV_DAEMON_KEEPER_H
#define KV_DAEMON_KEEPER_H

#include "daemon/core.h"
#include "daemon/front.h"
#include "daemon/settings.h"

#define KEEPER_CRASHES_MAX 5u
#define KEEPER_CRASHES_S 10u
#define KEEPER_STOP_MS 5000u

struct keeper_options {
	const struct settings *settings;
	int (*core)(const struct core_start *start);   /* core_main */
	int (*front)(const struct front_start *start); /* front_main */
	int ready_fd; /* gets a newline and is closed when core and front serve; -1: none */
};

/* Runs a daemon. Returns the exit status of the process; faults were logged. */
int keeper_run(const struct keeper_options *options);

#endif
