/*
 * One message of each kind of protocol version 1, with every field set that it has.
 *
 * The bytes are in tests/data/frames, made by `test-frames --write FOLDER` when version 1 was
 * fixed; what is said here must still give them. Requests are a conversation: each is answered
 * with its status by a core that has one session (FRAME_SESSION, FRAME_TOKEN, life 1) and has
 * seen those before it. Thread: any.
 */
#ifndef KVCACHED_TESTS_SUPPORT_FRAMES_H
#define KVCACHED_TESTS_SUPPORT_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "proto/kvcache.pb-c.h"
#include "proto/limits.h"
#include "proto/status.h"

#define FRAME_SESSION 1u
#define FRAME_TOKEN 0xa5 /* each byte */
#define FRAME_BOOT 0x01  /* each byte */

/* Ids that a command of the conversation gives are counted from here. */
#define FRAME_ID_LAYOUT 100u
#define FRAME_ID_SEQ 200u
#define FRAME_ID_SNAPSHOT 300u
#define FRAME_ID_FORK 400u
#define FRAME_ID_JOB 500u

extern const uint8_t frame_layout_hash[32]; /* of the layout that is registered */

enum frame_kind { FRAME_REQUEST, FRAME_ATTACH, FRAME_REPLY, FRAME_ATTACH_REPLY, FRAME_EVENT };

struct frame {
	const char *name; /* the file is NAME.bin */
	enum frame_kind kind;
	int which;                    /* command, what, result; kind of an event */
	int status;                   /* requests: that the core answers */
	int result;                   /* requests: result that comes with it */
	uint64_t next_id;             /* requests: 0, or the next id that the core gives */
	size_t (*pack)(uint8_t *out); /* at most KV_ATTACH_BYTES_MAX bytes */
};

extern const struct frame frames[];
extern const size_t n_frames;

#endif
