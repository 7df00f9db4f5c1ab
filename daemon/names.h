/*
 * Names: one space a user for sequences and snapshots. A name is in here exactly as long as its
 * object is listed and carries it. Core thread.
 */
#ifndef KV_DAEMON_NAMES_H
#define KV_DAEMON_NAMES_H

#include "daemon/state.h"

struct object *names_find(const struct core *core, uint32_t uid, const char *name);

/* Gives an object a name that is free (copied). Wakes those who wait for it. */
void names_add(struct core *core, struct object *object, const char *name);

/* Takes its name away, if it has one. */
void names_remove(struct core *core, struct object *object);

/* Checks a name of a peer and that it is free, or that `replace` allows to take it from an
 * object that can be removed. *old: what it replaces. -1: KV_ENAME, KV_EEXIST, KV_EBUSY. */
int names_check(const struct core *core, uint32_t uid, const char *name, bool replace,
		struct object **old, struct errbuf *err);

#endif
