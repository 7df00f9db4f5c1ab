/*
 * Between the core and its locker: words one way, gauges the other. Both are one program, so it is
 * host order and has no version.
 */
#ifndef KV_DAEMON_LOCKER_WIRE_H
#define KV_DAEMON_LOCKER_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOCKER_RANGES_MAX 60u

enum locker_verb {
	LOCKER_ADD = 1, /* the memory comes beside it */
	LOCKER_LOCK = 2,
	LOCKER_DROP = 3,
	LOCKER_LOOK = 4, /* again, at all that it has */
};

struct locker_range {
	uint64_t off, n_bytes;
};

/* Sent up to its last range. */
struct locker_message {
	uint32_t verb;
	uint32_t n_ranges; /* LOCK */
	uint64_t id;
	uint64_t n_bytes; /* ADD: of the arena */
	bool want_huge;   /* ADD */
	struct locker_range ranges[LOCKER_RANGES_MAX];
};

static inline size_t locker_message_bytes(uint32_t n_ranges)
{
	return offsetof(struct locker_message, ranges) + n_ranges * sizeof(struct locker_range);
}

/* The locker stores, the core loads; relaxed, for people and for tests. */
struct locker_gauges {
	_Atomic uint64_t n_heard;     /* words */
	_Atomic uint64_t found_bytes; /* that arenas had when they were added */
	_Atomic uint64_t done_bytes;  /* of these, locked, or gone since */
	_Atomic uint32_t n_arenas;    /* that are locked */
	_Atomic int error;            /* why one is not: an errno; 0: none */
};

/* The process: does not return. */
void locker_run(int fd, struct locker_gauges *gauges) __attribute__((noreturn));

#endif
