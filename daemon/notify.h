/*
 * Words to the service manager: sd_notify(3) where libsystemd was there at build time, else
 * nothing. Without a manager every call does nothing. Keeper only.
 */
#ifndef KV_DAEMON_NOTIFY_H
#define KV_DAEMON_NOTIFY_H

#include <stdint.h>

void notify_ready(void);
void notify_status(const char *text);
void notify_extend(uint32_t extend_ms); /* the start needs at most this much longer */
void notify_stopping(void);

#endif
