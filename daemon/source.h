/*
 * Sources of a command: several targets, each turned into a published state, all or none. Live
 * ones are held, read and frozen; others have a state. Core thread.
 */
#ifndef KV_DAEMON_SOURCE_H
#define KV_DAEMON_SOURCE_H

#include "daemon/command.h"

struct source {
	struct target target;
	struct state *state;   /* one reference */
	struct seg_state *seg; /* of a live one that was read: header and marks */
	uint64_t origin_id;    /* for lineage; 0: a local fork without known parent */
	uint64_t update;       /* of the parent at which it was taken */
};

struct sources {
	struct source ones[KV_TARGETS_MAX];
	uint32_t n;
};

/* Resolves one more target and asks for a hold of its writer if it is live. 0, or -1 with err. */
int sources_add(struct command *cmd, struct sources *sources, const Kv__Wire__Target *wire);

/* How much of each. */
enum source_part {
	SOURCE_ALL,    /* all; seg is wanted for each live one */
	SOURCE_SHARED, /* what a snapshot or fork keeps */
	SOURCE_STORED, /* the same of live ones, the state of others as it is */
};

/*
 * Holds all, reads all. CMD_DONE: each has a state; those that are new are not frozen or published
 * yet, but a live one that has not changed since its last freeze may have the state of that.
 */
enum cmd_step sources_read(struct command *cmd, struct sources *sources, enum source_part part);

/* Freezes the live ones and publishes their states. 0; -1: a freeze count is used up, nothing has
 * changed but freeze marks. */
int sources_freeze(struct command *cmd, struct sources *sources);

void sources_fini(struct command *cmd, struct sources *sources);

#endif
