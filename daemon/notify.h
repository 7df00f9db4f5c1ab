/*
 * Words to the service manager: sd_notify(3) where libsystemd was there at build time, else
 * nothing. Without a manager every call does nothing. Keeper only, but for notify_is_there().
 */
#ifndef KV_DAEMON_NOTIFY_H
#define KV_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/keeper_link.h"

/* Is there a manager that listens? */
bool notify_is_there(void);

void notify_ready(void);
void notify_status(const char *text);
void notify_extend(uint32_t extend_ms); /* the start needs at most this much longer */
void notify_stopping(void);

/*
 * The descriptor store: what it holds comes back when the manager starts us again, whatever
 * became of us. Each change of the kept table is told; kept->number (given here, always higher)
 * says which of two descriptors of one name is the newer. A store that is full or not there
 * changes nothing else.
 */
void notify_store(struct kept *kept);
void notify_unstore(const struct kept *kept);

/* Calls take() for each stored descriptor, which then owns it. Once, at start. Returns how many. */
size_t notify_take_stored(void (*take)(void *arg, const struct kept *kept), void *arg);

#endif
