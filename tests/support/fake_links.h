/*
 * The core's state in a test's own process: keeper, front and attach socket are stand-ins that
 * remember what they were told. A restart of the core is core_free() and core_new() over what the
 * stand-in for the keeper has.
 *
 *	struct fake_core *f = fake_core_new(&settings);
 *	struct fake_client *c = fake_client_new(f, uid);     says Hello, in the name of a child
 *	reply = fake_call(c, &request);                      runs the loop until there is a reply
 *
 * Linked before libkvdaemon.la, these stand-ins take the place of keeper_link.c, front_link.c and
 * attach.c. Thread: one.
 */
#ifndef KVCACHED_TESTS_SUPPORT_FAKE_LINKS_H
#define KVCACHED_TESTS_SUPPORT_FAKE_LINKS_H

#include "daemon/state.h"

struct fake_core {
	struct settings settings;
	struct core_env env;
	struct core *core;
	uint64_t offset_ns; /* of the loop's clock */
	/* what the keeper holds */
	struct kept kept[4096];
	size_t n_kept;
	struct kept given[4096]; /* handed to this life */
	/* the last reply that went out, and how many */
	uint8_t reply[KV_REQUEST_BYTES_MAX];
	size_t n_reply;
	uint8_t route[FRONT_ROUTE_BYTES_MAX];
	size_t n_route;
	uint64_t n_replies, n_events;
	bool keeper_is_full;
};

/* A process that only sleeps, and its session. */
struct fake_client {
	struct fake_core *f;
	struct attach_conn conn;
	bool is_closed; /* by the core */
	pid_t pid;
	uint64_t session;
	uint8_t token[16];
	uint64_t next_request;
	uint64_t acked;
	/* what the last attach reply said */
	uint32_t attach_status;
	int fd;                      /* that came beside it; owned by the core */
	struct kv_shm_head *segment; /* mapped */
};

struct fake_core *fake_core_new(const struct settings *settings);
void fake_core_free(struct fake_core *f);

/* Ends this life of the core as a crash would, and begins the next. 0, or -1. */
int fake_core_restart(struct fake_core *f);

/* The same in a forked child, which has the rest of that life to itself: its registrations must not
 * outlive it in the parent's loop. The parent goes on with fake_core_restart(). */
int fake_core_restart_child(struct fake_core *f);

/* Rounds of the loop until nothing is left to do. */
void fake_settle(struct fake_core *f);

/* A session. NULL: refused (attach_status in *status, if not NULL). */
struct fake_client *fake_client_new(struct fake_core *f, uid_t uid, uint32_t *status);

/* The same for this process itself: it cannot be killed, only hang up. */
struct fake_client *fake_client_self(struct fake_core *f, uid_t uid);

/* Says Hello again after a restart. Returns the status. */
uint32_t fake_client_again(struct fake_client *c);
uint32_t fake_attach(struct fake_client *c, Kv__Wire__AttachRequest *request, int fd);

/* Hangs up / kills the process (and waits until the core has seen it). */
void fake_client_hang_up(struct fake_client *c);
void fake_client_kill(struct fake_client *c);
void fake_client_free(struct fake_client *c); /* kills first */

/* Fills the request's head (id 0: the next; boot: this life's; acked) and sends it. */
void fake_send(struct fake_client *c, Kv__Wire__Request *request);

/* The same, and the reply, freed by kv__wire__reply__free_unpacked(). NULL: none within a second. */
Kv__Wire__Reply *fake_call(struct fake_client *c, Kv__Wire__Request *request);

/* The last reply, unpacked. */
Kv__Wire__Reply *fake_reply(const struct fake_core *f);

/*
 * What a writer does: commits `length` tokens of a place, whose blocks from `first_block` on
 * (group 0) are refs[0..n).
 */
void fake_commit(struct fake_client *c, uint32_t place, uint64_t length, uint64_t first_block,
		 const uint64_t *refs, uint64_t n);

#endif
