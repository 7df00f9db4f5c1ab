/*
 * The front: the nanomsg sockets, in a process of its own, without memory or state.
 *
 * Promise: size-checked requests go to the core, replies and events from the core go out; nothing
 * is looked into. nanomsg aborts its process on some bytes that a peer may choose; then only this
 * process dies, the keeper starts another one, and the clients' REQ sockets send again. Neither
 * side can block it: a request that the core does not take yet is held (one), and no further
 * one is read until it is gone; replies and events never wait.
 *
 * A route is the number of the front's life and nanomsg's header of the request: a reply to a
 * request of an earlier life leads nowhere and is dropped. One thread, and nanomsg's worker.
 */
#ifndef KV_DAEMON_FRONT_H
#define KV_DAEMON_FRONT_H

#include <stdint.h>

#include "daemon/settings.h"
#include "proto/runtime.h"

/* What the keeper hands to a front that it has just forked. */
struct front_start {
	const struct settings *settings;
	const struct kv_runtime *paths;
	int keeper_fd; /* the front's end of its pair with the keeper */
	int core_fd;   /* the front's end of the pair with the core */
	uint32_t life; /* counts starts of the front, from 1 */
};

/* Runs until it is killed. Returns the exit status of a front that could not start. */
int front_main(const struct front_start *start);

#endif
