/*
 * The core's wire to the keeper: descriptors that must survive the core, and how it is getting on.
 *
 * A descriptor goes to a client only after keeper_keep() returned 0: then a crash of the core at
 * any later instruction finds it again in core_env.kept of the next life. Core thread only.
 * keeper_keep() and keeper_drop() wait for the keeper's answer; the keeper does nothing that
 * takes long, so that is some 20 us. Without a keeper every call says -EPIPE (the core is about
 * to be killed).
 */
#ifndef KV_DAEMON_KEEPER_LINK_H
#define KV_DAEMON_KEEPER_LINK_H

#include <stdint.h>

#include "proto/errbuf.h"

/* What a kept descriptor is; (kind, id) names it. */
enum kept_kind {
	KEPT_CATALOGUE = 1,
	KEPT_ARENA = 2,   /* id: arena */
	KEPT_SEGMENT = 3, /* id: session */
	KEPT_PIDFD = 4,   /* id: session */
	KEPT_WATCH = 5,   /* id: watch */
};
#define KEPT_KINDS 6

struct kept {
	enum kept_kind kind;
	uint64_t id;
	int fd;
	uint64_t number; /* the keeper's: in the descriptor store of the service manager */
};

struct keeper_link;

/* fd: the core's end, owned from here on. NULL without memory. */
struct keeper_link *keeper_link_new(int fd);
void keeper_link_free(struct keeper_link *link);

/*
 * Hands over a copy of fd, which stays the caller's; replaces what (kind, id) named. 0 or
 * -errno: -EMFILE when the keeper has no room for more descriptors, then nothing has changed.
 */
int keeper_keep(struct keeper_link *link, enum kept_kind kind, uint64_t id, int fd);

/* Forgets it; 0 also if there is none, or -errno. */
int keeper_drop(struct keeper_link *link, enum kept_kind kind, uint64_t id);

/*
 * For whoever waits for the start (systemd): one line of progress ("prefaulting 3 of 8 GiB"), and
 * that the start goes on for at most extend_ms more (0: no word about that). Waits for nothing.
 */
int keeper_status(struct keeper_link *link, uint32_t extend_ms, const char *text);

/* The core serves. Once a life. */
int keeper_ready(struct keeper_link *link);

#endif
