/*
 * A command on its way: from the request that was decoded to the reply that went out.
 *
 * A handler runs, again and again while it says CMD_WAIT, until CMD_DONE or CMD_FAIL or the
 * deadline. Each run begins from nothing but what `work` and the holds remember: things may have
 * gone meanwhile. A handler that fails has changed nothing. One that is done has changed and
 * logged; then the batch with the result is committed, after() is called, held words are let go,
 * and the reply is sent.
 *
 * Other commands go on while one waits. Core thread.
 */
#ifndef KV_DAEMON_COMMAND_H
#define KV_DAEMON_COMMAND_H

#include "daemon/state.h"

enum cmd_step { CMD_DONE, CMD_FAIL, CMD_WAIT };

/* When a waiting command is tried again. */
enum cmd_wake {
	WAKE_ROUND, /* in the next round of the loop */
	WAKE_SOON,  /* within a millisecond */
	WAKE_NAME,  /* when a name has appeared */
};

struct held {
	struct session *session;
	uint32_t writer;
	bool is_held;  /* else wanted */
	bool bumped;   /* a freeze was written: generation + 1 */
	bool advanced; /* a rollback was written: update + 1 */
};

struct command_entry {
	enum cmd_step (*run)(struct command *cmd);
	void (*after)(struct command *cmd); /* NULL: nothing */
	void (*drop)(struct command *cmd);  /* frees work; NULL: nothing to free */
	bool changes;                       /* its result is logged */
};

struct command {
	struct command *next;
	struct core *core;
	struct session *session;
	uint64_t request_id;
	const struct command_entry *entry;
	Kv__Wire__Request *request;
	Kv__Wire__Reply *reply;
	struct errbuf err; /* of a failure; while waiting: what to say at the deadline */
	uint64_t began_ns, deadline_ns;
	enum cmd_wake wake;
	bool is_pending;      /* in core->pending */
	void *work;           /* the handler's own */
	uint64_t end_session; /* to be ended when the reply is out; 0: none */
	struct held held[KV_TARGETS_MAX];
	uint32_t n_held;
	size_t n_route;
	uint8_t route[FRONT_ROUTE_BYTES_MAX];
};

/* CMD_FAIL with a status and text. */
enum cmd_step cmd_fail(struct command *cmd, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Tries waiting commands: those of the round and, if `timer`, those that wait a little; ends
 * those whose deadline has passed. True if some want to be tried in the next round. */
bool commands_retry(struct core *core, bool timer);

/* A session ends: its commands with it, and what others hold of it. */
void commands_forget_session(struct session *session);
void commands_free_all(struct core *core);

/* ---- held words --------------------------------------------------------------------------- */

/* Adds a writer to those that the command needs. -1 KV_ELIMIT. */
int holds_add(struct command *cmd, struct session *session, uint32_t writer);

/* CMD_DONE when all are held, else CMD_WAIT with err set to KV_EBUSY. */
enum cmd_step holds_try(struct command *cmd);
struct held *holds_find(struct command *cmd, const struct session *session, uint32_t writer);

/* Lets all go: as their flags say, or untouched. */
void holds_release(struct command *cmd);

/* ---- the table ---------------------------------------------------------------------------- */

/* NULL for a command that this version does not know. */
const struct command_entry *command_entry(Kv__Wire__Request__CommandCase which);

extern const struct command_entry cmd_noop, cmd_layout_register, cmd_layout_get, cmd_writer_new,
	cmd_writer_free, cmd_seq_new, cmd_seq_drop, cmd_seq_name, cmd_reserve, cmd_release,
	cmd_places_reserve, cmd_snapshot, cmd_fork, cmd_open, cmd_unpin, cmd_rollback, cmd_takeover,
	cmd_remove, cmd_list, cmd_show, cmd_verify, cmd_job_get, cmd_job_cancel, cmd_session_list,
	cmd_session_end, cmd_status, cmd_wait, cmd_save, cmd_load, cmd_saved_list, cmd_saved_remove,
	cmd_store_check;

/* ---- what handlers share ------------------------------------------------------------------ */

/* Memory of a reply, zeroed; freed with it. */
void *reply_alloc(size_t n, size_t size);
char *reply_string(const char *text); /* NULL: "" */
ProtobufCBinaryData reply_bytes(const void *bytes, size_t n);

/* A layout that the user has registered. NULL with err. */
const struct layout_entry *cmd_layout(struct command *cmd, uint64_t layout_id);

/* The layout of a message, registered for the user. NULL with err. */
const struct layout_entry *layout_register(struct core *core, uint32_t uid,
					   const Kv__Wire__Layout *wire, struct errbuf *err);

/* max_tokens of a peer: 0 is the default. -1 with KV_ERANGE. */
int cmd_max_tokens(struct command *cmd, uint64_t *max_tokens);

/* What a Target means: an object of the user, or a place of the session (object NULL: a local
 * fork). -1 with err. For a live sequence session and place are where it lives. */
struct target {
	struct object *object;
	struct session *session;
	struct place *place;
};
int cmd_target(struct command *cmd, const Kv__Wire__Target *wire, struct target *target);

/* How a target is called in messages. */
const char *target_text(const struct target *target, char *out, size_t n_out);

/* -1 KV_ELIMIT unless 1 to KV_TARGETS_MAX. */
int cmd_check_count(struct command *cmd, size_t n, const char *what);

/* What the status says of the disk pool; NULL: none is configured. */
Kv__Wire__DiskInfo *disk_wire(const struct core *core);

#endif
