/*
 * What core and front say to the keeper over their pairs, in one fixed form. Both ends are forks
 * of one program, so it is host order and has no version. Only keeper and the links include this.
 */
#ifndef KV_DAEMON_KEEPER_WIRE_H
#define KV_DAEMON_KEEPER_WIRE_H

#include <stdint.h>

enum keeper_verb {
	KEEPER_KEEP = 1,   /* one descriptor beside it; answered */
	KEEPER_DROP = 2,   /* answered */
	KEEPER_STATUS = 3, /* not answered */
	KEEPER_READY = 4,  /* not answered; also the front says it */
};

struct keeper_message {
	uint32_t verb;
	uint32_t kind;
	uint64_t id;
	uint32_t extend_ms;
	char text[124]; /* terminated */
};

struct keeper_answer {
	int32_t rc;
};

#endif
