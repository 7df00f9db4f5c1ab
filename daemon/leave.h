/*
 * An orderly end saves what has a name and no writer, as far as the disk pool has room, before the
 * core ends; farewell.c says what was not saved. What is saved already under another content is
 * left as it is: nobody asked to replace it. Core thread.
 */
#ifndef KV_DAEMON_LEAVE_H
#define KV_DAEMON_LEAVE_H

#include "daemon/state.h"

/* A slice. True if there is more to do. */
bool leave_step(struct core *core);

/* Its save may go on. */
void leave_wake(struct core *core);

/* Frees what is left of it. */
void leave_free(struct core *core);

/* Is an object on the disk under its name, with its digest? */
bool leave_has_saved(const struct core *core, const struct object *object);

#endif
