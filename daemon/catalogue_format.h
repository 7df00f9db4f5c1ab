/*
 * The catalogue, byte by byte: what the core needs to find everything again after its death.
 *
 *   0      struct cat_head, one page
 *   4096   records, each: struct cat_record, payload, zeros up to a multiple of 8
 *
 * Little-endian, host order (only little-endian 64-bit machines are supported). A record is true
 * once `end_off` of the head covers it; the records of one command are covered by one store. Each
 * record says what a thing *is now* (it replaces what an earlier record said about the same id),
 * so the state is what remains after reading all of them in order, and a rewritten catalogue is
 * one record a thing. What is pinned follows from the states; what is in a live sequence's table
 * is in the control segment of its session.
 *
 * A reader that finds a wrong magic, length, version or checksum below end_off refuses the
 * catalogue as a whole: memory does not tear, so something worse happened.
 */
#ifndef KV_DAEMON_CATALOGUE_FORMAT_H
#define KV_DAEMON_CATALOGUE_FORMAT_H

#include <assert.h>
#include <stdint.h>

#include "proto/limits.h"

#define CAT_MAGIC UINT64_C(0x31746163766b8901)
#define CAT_RECORD_MAGIC 0x7243766bu
#define CAT_VERSION 3u
#define CAT_HEAD_BYTES 4096u
#define CAT_PAYLOAD_MAX (UINT32_C(1) << 30)
#define CAT_ID_MAX (UINT64_C(1) << 62) /* of a record; the ids given out come nowhere near it */

struct cat_head {
	uint64_t magic;
	uint32_t version;
	uint32_t head_bytes;
	_Atomic uint64_t end_off; /* the core stores (release); a later core loads (acquire) */
	uint32_t shm_version;     /* KV_SHM_VERSION: of the control segments that it speaks of */
	uint8_t unused[CAT_HEAD_BYTES - 28];
};
static_assert(sizeof(struct cat_head) == CAT_HEAD_BYTES, "head is one page");

struct cat_record {
	uint64_t checksum; /* XXH64, seed 0, over the 16 bytes below and the payload */
	uint32_t magic;
	uint32_t n_bytes; /* payload */
	uint16_t type;    /* enum cat_type */
	uint16_t version; /* of this type's payload */
	uint32_t unused;
};
static_assert(sizeof(struct cat_record) == 24, "record head");

/* Numbers are never used again. */
enum cat_type {
	CAT_COUNTERS = 1,
	CAT_LAYOUT = 2,
	CAT_SESSION = 3,
	CAT_SESSION_GONE = 4,
	CAT_WRITER = 5,
	CAT_ARENA = 6,
	CAT_ARENA_GONE = 7,
	CAT_BLOCKS = 8,
	CAT_NUMBER = 9,
	CAT_PLACE = 10,
	CAT_STATE = 11,
	CAT_STATE_GONE = 12,
	CAT_OBJECT = 13,
	CAT_OBJECT_GONE = 14,
	CAT_PIN = 15,
	CAT_DECIDED = 16,
	CAT_RESULT = 17,
	CAT_ACK = 18,
	CAT_DIGESTS = 19,
	CAT_WATCH = 20,
	CAT_TYPE_MAX = 20
};

/* CAT_COUNTERS: ids that were given out are not given out again. */
struct cat_counters {
	uint64_t next_id;        /* sessions, layouts, arenas, objects, states: one counter */
	uint64_t n_copied_bytes; /* by sessions that have ended */
};
static_assert(sizeof(struct cat_counters) == 16, "counters");

/* CAT_LAYOUT: followed by the packed wire message Layout. */
struct cat_layout {
	uint64_t id;
	uint32_t n_bytes;
	uint32_t uid; /* that registered it; one record for each */
};
static_assert(sizeof(struct cat_layout) == 16, "layout");

/* CAT_SESSION */
struct cat_session {
	uint64_t id;
	uint8_t token[16];
	uint32_t uid, gid, pid;
	uint32_t ended; /* 1: ended, memory in quarantine until the pidfd fires */
	uint64_t created_unix_ns;
	char comm[16];
	uint8_t nonce[16]; /* of the Hello that it was made for; zero: none */
};
static_assert(sizeof(struct cat_session) == 80, "session");

/* CAT_SESSION_GONE, CAT_ARENA_GONE, CAT_STATE_GONE, CAT_OBJECT_GONE */
struct cat_gone {
	uint64_t id;
};
static_assert(sizeof(struct cat_gone) == 8, "gone");

/* CAT_WRITER */
struct cat_writer {
	uint64_t session;
	uint32_t writer;
	uint32_t in_use;
};
static_assert(sizeof(struct cat_writer) == 16, "writer");

/* CAT_ARENA */
struct cat_arena {
	uint64_t id;
	uint64_t session; /* that writes it; may be gone */
	uint64_t layout_id;
	uint32_t uid;
	uint32_t group;
	uint32_t n_blocks;
	uint32_t unused;
};
static_assert(sizeof(struct cat_arena) == 40, "arena");

/* CAT_BLOCKS: the state of a range of blocks. */
struct cat_blocks {
	uint64_t arena;
	uint32_t first_block;
	uint32_t n_blocks;
	uint32_t state; /* 0 not granted, 1 granted, 2 quarantined */
	uint32_t unused;
};
static_assert(sizeof(struct cat_blocks) == 24, "blocks");

/* CAT_NUMBER: arena number of a session; arena 0: the number is free. */
struct cat_number {
	uint64_t session;
	uint64_t arena;
	uint32_t number;
	uint32_t unused;
};
static_assert(sizeof(struct cat_number) == 24, "number");

/* CAT_PLACE */
struct cat_place {
	uint64_t session;
	uint32_t index;
	uint32_t kind; /* 0 free, 1 sequence, 2 opened snapshot, 3 spare */
	uint32_t writer;
	uint32_t n_groups;
	uint64_t layout_id;
	uint64_t object_id; /* sequence or opened snapshot */
	uint64_t base_id;   /* object whose blocks it uses; 0: none */
	uint64_t max_tokens;
	uint64_t table_off[KV_GROUPS_MAX];
	uint32_t n_entries[KV_GROUPS_MAX];
};
static_assert(sizeof(struct cat_place) == 176, "place");

/*
 * CAT_STATE: an immutable state. Followed by n_marks struct cat_mark, then for each group
 * n_runs struct cat_run: its block table, blocks side by side in one arena being one run. Which
 * block numbers of a group these are follows from the header (kv_head_window, proto/journal.h).
 */
struct cat_state {
	uint64_t id;
	uint64_t layout_id;
	uint64_t update;
	uint64_t length_tokens;
	uint64_t position;
	uint64_t journal_first, journal_end;
	uint64_t planes;
	uint64_t base_tokens;
	uint32_t head_state; /* kv_head_copy.state */
	uint32_t n_marks;
	uint32_t n_groups;
	uint32_t unused;
	uint64_t n_runs[KV_GROUPS_MAX];
};
static_assert(sizeof(struct cat_state) == 168, "state");

struct cat_run {
	uint64_t first; /* arena id << 26 | block */
	uint64_t n_blocks;
};
static_assert(sizeof(struct cat_run) == 16, "run");

struct cat_mark {
	uint64_t id, update, length_tokens, journal_end;
};
static_assert(sizeof(struct cat_mark) == 32, "mark");

/* CAT_OBJECT: followed by n_name bytes of name. */
struct cat_object {
	uint64_t id;
	uint32_t kind;   /* 1 sequence, 2 snapshot */
	uint32_t listed; /* 0: removed, kept for those who pin it */
	uint32_t uid;
	uint32_t place;    /* of a live sequence */
	uint64_t session;  /* of a live sequence or an anonymous snapshot; 0: none */
	uint64_t state_id; /* of what is not live; 0: live */
	uint64_t layout_id;
	uint64_t parent_id, parent_update;
	uint64_t created_unix_ns;
	uint32_t has_digest;
	uint32_t n_name;
	uint8_t digest[16];
};
static_assert(sizeof(struct cat_object) == 96, "object");

/* CAT_PIN: has the session pinned the object? What its places use follows from them. */
struct cat_pin {
	uint64_t session;
	uint64_t object;
	uint64_t by_client; /* 1 until Unpin */
};
static_assert(sizeof(struct cat_pin) == 24, "pin");

/* CAT_DECIDED: an operator's rollback that a later core must finish; n 0: it is done. */
struct cat_decided {
	uint64_t n;
};
struct cat_decided_one {
	uint64_t session;
	uint32_t place;
	uint32_t unused;
	uint64_t update; /* committed update it was decided at */
	uint64_t length_tokens;
};
static_assert(sizeof(struct cat_decided) == 8, "decided");
static_assert(sizeof(struct cat_decided_one) == 32, "decided one");

/* CAT_RESULT: followed by the packed Reply. */
struct cat_result {
	uint64_t session;
	uint64_t request_id;
	uint64_t acked; /* window of the session then */
	uint32_t n_bytes;
	uint32_t unused;
};
static_assert(sizeof(struct cat_result) == 32, "result");

/* CAT_ACK: the window of a session's requests begins behind this id. */
struct cat_ack {
	uint64_t session;
	uint64_t acked;
};
static_assert(sizeof(struct cat_ack) == 16, "ack");

/* CAT_DIGESTS: followed by n struct cat_digest. state 0: full blocks of an arena, index is the
 * block; else the last, partly filled block of each group of a state, index is the group. */
struct cat_digests {
	uint64_t arena;
	uint64_t state;
	uint64_t n;
};
struct cat_digest {
	uint32_t index;
	uint32_t is_known; /* 0: not any more */
	uint8_t digest[16];
};
static_assert(sizeof(struct cat_digests) == 24, "digests");
static_assert(sizeof(struct cat_digest) == 24, "digest");

/* CAT_WATCH: a session waits for a name with a socket whose end the keeper holds; followed by the
 * name. n_name 0: the watch is over. */
struct cat_watch {
	uint64_t id;
	uint64_t session;
	uint32_t n_name;
	uint32_t unused;
};
static_assert(sizeof(struct cat_watch) == 24, "watch");

#endif
