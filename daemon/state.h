/*
 * What the core knows, and the words for it inside the core.
 *
 *   session --- writers, places (in its control segment), arenas it writes, arena numbers, pins
 *   object  --- a sequence or a snapshot; what is not live has a state
 *   state   --- an immutable copy of header and block table; pins each of its blocks once;
 *               shared by the objects that mean the same (a snapshot of a snapshot)
 *   arena   --- daemon/arena.h
 *
 * Every change is made here in memory and told to the catalogue in the same breath
 * (daemon/state_log.h); state_commit() makes the batch true. The order of a command is: check
 * everything, change and log, state_commit(), then what a dead core would not miss: replies,
 * events, letting go of held writers, punching holes. A change that cannot be logged ends the
 * core: its keeper starts another from the last batch.
 *
 * Core thread only. Pointers between these are valid as long as the lists of struct core hold
 * them; nothing keeps one across a return to the loop but what says so (struct command, struct
 * job), and state_forget_*() tells those.
 */
#ifndef KV_DAEMON_STATE_H
#define KV_DAEMON_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/arena.h"
#include "daemon/catalogue.h"
#include "daemon/core.h"
#include "daemon/idlist.h"
#include "daemon/locker.h"
#include "daemon/log.h"
#include "daemon/pool.h"
#include "daemon/segment.h"
#include "daemon/settle.h"
#include "proto/kvcache.pb-c.h"
#include "proto/layout_wire.h"

#define TOKEN_BYTES 16
#define BOOT_BYTES 16
#define NAME_BUCKETS 1024u
#define LAYOUTS_PER_USER_MAX 1024u

struct command;
struct disk;
struct job;
struct leave;
struct session;

/* ---- layouts ------------------------------------------------------------------------------ */

struct layout_entry {
	uint64_t id;
	struct kv_layout *layout; /* owned */
	uint32_t *uids;           /* users that registered it; for others it is not there */
	uint32_t n_uids;
};

/* ---- states and objects ------------------------------------------------------------------- */

struct state_arena {
	struct arena *arena;
	uint64_t n_blocks; /* of the state, in it */
};

struct state {
	uint64_t id;
	uint32_t n_refs; /* objects, jobs, commands */
	const struct layout_entry *layout;
	struct kv_head head;
	uint64_t update;
	uint64_t n_slots[KV_GROUPS_MAX];     /* of a layer group; 0 for the others */
	uint64_t first_block[KV_GROUPS_MAX]; /* number of the first; not 0 in windows only */
	uint64_t n_blocks[KV_GROUPS_MAX];
	uint64_t *refs[KV_GROUPS_MAX]; /* [n_blocks] gref_make(); owned */
	struct seg_mark *marks;        /* [head.n_marks]; owned */
	struct state_arena *arenas;    /* those it names, each once; owned */
	uint32_t n_arenas;
	/* digest of the last block of a group where that is partly filled */
	bool partial_known[KV_GROUPS_MAX];
	struct kv_block_digest partial[KV_GROUPS_MAX];
};

enum object_kind { OBJECT_SEQUENCE = 1, OBJECT_SNAPSHOT = 2 };

struct object {
	uint64_t id;
	enum object_kind kind;
	bool listed; /* false: removed, or internal; there for those who pin it */
	uint32_t uid;
	char *name; /* owned; NULL: none */
	struct object *next_name;
	const struct layout_entry *layout;
	struct session *session; /* a live sequence's, or an anonymous snapshot's; else NULL */
	uint32_t place;          /* of a live sequence */
	struct state *state;     /* NULL: live */
	uint32_t n_pins;         /* sessions that pin it */
	uint64_t parent_id, parent_update;
	uint64_t created_unix_ns;
	bool has_digest;
	uint8_t digest[KV_DIGEST_BYTES];
};

/* ---- sessions ----------------------------------------------------------------------------- */

enum session_phase {
	SESSION_ATTACHED = 1,
	SESSION_AWAY = 2,  /* the core was restarted and the session is not back yet */
	SESSION_ENDED = 3, /* its process still lives: its memory is in quarantine */
};

enum place_kind { PLACE_FREE = 0, PLACE_SEQUENCE = 1, PLACE_OPEN = 2, PLACE_SPARE = 3 };

struct place {
	enum place_kind kind;
	struct seg_place seg;
	const struct layout_entry *layout;
	struct object *object; /* the live sequence, or the snapshot that is open; NULL: spare */
	struct object *base;   /* whose blocks it uses as well; NULL: none */
	uint64_t frozen_id;    /* state of its last freeze, if that still exists; 0: none */
	bool is_torn;          /* was being overwritten, and its journal does not help */
};

struct writer {
	bool in_use;
	uint32_t n_places;
	struct command *holder; /* that holds, or wants to hold, its word */
};

/* A pin of a session: blocks and arena numbers stay while it is there. */
struct session_pin {
	struct object *object;
	bool by_client;    /* until Unpin */
	uint32_t n_places; /* places that use it */
};

struct number {
	struct arena *arena; /* NULL: free */
	uint32_t n_uses;
};

struct watch {
	uint64_t id;
	int fd;
	char *name;
};

/* A request that was answered or is being run. */
struct request {
	uint64_t id;
	struct command *command; /* running; NULL: answered */
	uint8_t *reply;          /* packed; owned */
	uint32_t n_reply;
	bool logged; /* its result is in the catalogue */
};

/* How far the rows of a dead session's undo journals have been put back (recover_rows.h). */
struct row_recovery {
	uint32_t place;
	bool is_begun, has_complained;
	uint64_t first, next; /* rows [first, next) of the place are to be put back */
};

struct session {
	uint64_t id;
	uint8_t token[TOKEN_BYTES];
	uint8_t nonce[TOKEN_BYTES]; /* of the Hello that it was made for; zero: none */
	uint32_t uid, gid, pid;
	char comm[16];
	uint64_t created_unix_ns;
	enum session_phase phase;
	bool is_ending;      /* but an update in place has to end before, one way or the other */
	bool is_gone;        /* while it is ending: its process has exited */
	uint64_t overdue_ns; /* while it is ending: then it ends as it is */
	struct row_recovery rows;
	struct core *core;
	struct pool_user *user;
	struct attach_conn *conn; /* NULL unless attached */
	int pidfd;
	struct loop_io pidfd_io;
	struct segment segment; /* base NULL once ended */
	struct writer writers[KV_WRITERS_MAX];
	struct place **places; /* [KV_PLACES_MAX], NULL: free */
	uint32_t n_places, next_place;
	struct arena *arenas;   /* that it writes */
	struct number *numbers; /* [KV_ARENAS_MAX]; 0 is not used */
	uint32_t n_numbers, next_number, numbers_end;
	struct session_pin *pins;
	uint32_t n_pins, pins_cap;
	struct watch *watches;
	uint32_t n_watches;
	struct request requests[KV_IN_FLIGHT_MAX];
	uint32_t n_requests;
	uint64_t acked;
	uint32_t n_jobs;
};

/* ---- the core ----------------------------------------------------------------------------- */

/* An operator's rollback that was decided but may not be done yet. */
struct decided {
	struct cat_decided_one ones[KV_TARGETS_MAX];
	uint32_t n;
};

/* An event that is sent when its change is true. */
#define EVENTS_NOTED_MAX 128u
struct noted_event {
	uint32_t kind, uid;
	uint64_t id, session, length_tokens;
};

struct table_return {
	struct table_return *next;
	uint64_t session_id;
	struct seg_place seg;
};

/* A descriptor that nothing in the catalogue names any more, once the next commit is true. */
struct kept_drop {
	enum kept_kind kind;
	uint64_t id;
};

struct core {
	struct core_env *env;
	struct catalogue catalogue;
	bool is_loading; /* changes come from the catalogue and are not logged */
	uint64_t next_id;
	struct pool pool;
	struct arena_memory memory;
	struct disk *disk;   /* NULL: none is configured */
	struct leave *leave; /* NULL unless the core is about to end */
	struct idlist layouts, arenas, sessions, objects, states, jobs;
	uint64_t last_job; /* that had a turn */
	struct object *names[NAME_BUCKETS];
	struct arena *dirty; /* arenas with blocks to be zeroed */
	struct table_return *tables_back;
	struct kept_drop *kept_drops;
	uint32_t n_kept_drops, kept_drops_cap;
	struct decided decided;
	struct command *pending;
	struct loop_task work_task;    /* pending commands, zeroing, jobs */
	struct loop_timer retry_timer; /* pending commands that wait a little */
	struct loop_timer tick_timer;
	struct settle settle;
	struct locker locker;
	bool sessions_emptied; /* an ended one has no memory in quarantine any more */
	bool names_changed;
	struct noted_event noted[EVENTS_NOTED_MAX];
	uint32_t n_noted;
	uint64_t n_events;
	uint64_t n_requests;
	uint64_t n_copied_bytes; /* by sessions that have ended */
	uint32_t n_tentative;    /* grants that are in no batch yet: no rewriting of the log */
};

/* ---- helpers of all modules --------------------------------------------------------------- */

static inline uint64_t core_now_ns(const struct core *core)
{
	return loop_now_ns(core->env->loop);
}

uint64_t unix_now_ns(void);

static inline uint64_t core_new_id(struct core *core)
{
	return core->next_id++;
}

/* Memory for the core's books, zeroed. Ends the core (KV: its keeper starts it again) when there
 * is none: what was decided must not be half known. */
void *state_alloc(size_t n, size_t size);
void *state_copy(const void *from, size_t n_bytes);

/* The keeper lets go of a descriptor after the next commit, not before: a core that dies in between
 * leaves a catalogue that still names it, and the next one could not start from it. */
void state_drop_kept(struct core *core, enum kept_kind kind, uint64_t id);

/* For what cannot be: says it and ends the core with abort(). */
void state_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
