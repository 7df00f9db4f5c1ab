/*
 * How much memory a pool can have: the least of MemAvailable and what the control groups above us
 * leave. Reads files below two roots, so that a test can bring its own. Keeper, at start.
 */
#ifndef KV_DAEMON_HOSTMEM_H
#define KV_DAEMON_HOSTMEM_H

#include <stdint.h>

#include "proto/errbuf.h"

struct hostmem {
	uint64_t available_bytes; /* the least of both */
	uint64_t system_bytes;    /* MemAvailable */
	uint64_t group_bytes;     /* UINT64_MAX: no control group sets a limit */
	char group[256];          /* the one that sets it */
};

/* proc: "/proc", cgroup: "/sys/fs/cgroup". -1 if MemAvailable is not to be had. Control groups
 * that are not there (or of version 1) limit nothing. */
int hostmem_read(struct hostmem *mem, const char *proc, const char *cgroup, struct errbuf *err);

/* -1 KV_EPOOL with the size asked for, the size available, and the setting to change. */
int hostmem_check(const struct hostmem *mem, uint64_t pool_bytes, struct errbuf *err);

/* "1.5 GiB" for people. */
const char *hostmem_human(uint64_t bytes, char text[32]);

#endif
