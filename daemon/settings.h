/*
 * Everything an operator can choose, after defaults, configuration file and flags: kvcached.conf(5).
 *
 * settings_default(), then settings_read() for the file, then single values with settings_set()
 * for the flags (so a flag wins), then settings_check(). Unknown sections and keys, values out of
 * range, are errors that name file and line. Nothing here touches the system but the named file.
 */
#ifndef KV_DAEMON_SETTINGS_H
#define KV_DAEMON_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/errbuf.h"

enum settings_try { SETTINGS_NO = 0, SETTINGS_TRY = 1 };
enum settings_switch { SETTINGS_OFF = 0, SETTINGS_ON = 1 };

struct settings {
	/* [service] */
	char runtime_dir[256];
	unsigned socket_mode;  /* of the three sockets */
	char socket_group[64]; /* empty: the daemon's own */
	int log_level;         /* enum log_level */
	/* [pool host] */
	uint64_t pool_bytes;
	enum settings_try huge; /* transparent huge pages */
	enum settings_try mlock;
	uint64_t arena_bytes; /* largest arena */
	/* [pool disk] */
	char disk_dir[256]; /* empty: no disk pool */
	uint64_t disk_bytes;
	enum settings_switch preallocate;
	int io; /* enum io_kind */
	/* [limits], each of one user */
	uint32_t n_sessions_max;
	uint32_t n_sequences_max; /* sequences and snapshots that the core knows */
	uint64_t user_bytes_max;  /* 0: the pool */
	uint32_t n_jobs_max;
};

void settings_default(struct settings *settings);

/* One value. section and key as in the file. -1 KV_EINVAL or KV_ERANGE with the reason. */
int settings_set(struct settings *settings, const char *section, const char *key, const char *value,
		 struct errbuf *err);

/* -1 with "FILE:LINE: reason", or that the file cannot be read. */
int settings_read(struct settings *settings, const char *path, struct errbuf *err);

/* What depends on several values. */
int settings_check(const struct settings *settings, struct errbuf *err);

/* "64M", "8G", "1048576": bytes with an optional K, M, G, T (powers of 1024). 0 or -1. */
int settings_bytes(const char *text, uint64_t *bytes);

#endif
