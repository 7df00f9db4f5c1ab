/*
 * The core: from the keeper's fork to its end, and the seam between plumbing and state.
 *
 * core.c builds the loop and the links, calls core_new(), says that it is ready and runs the loop.
 * Whatever the core knows (sessions, arenas, sequences, snapshots, catalogue, jobs) is behind the
 * seven functions below, which daemon/state.c provides. All run on the core's one thread.
 */
#ifndef KV_DAEMON_CORE_H
#define KV_DAEMON_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/attach.h"
#include "daemon/front_link.h"
#include "daemon/keeper_link.h"
#include "daemon/loop.h"
#include "daemon/settings.h"
#include "proto/errbuf.h"
#include "proto/kvcache.pb-c.h"

/* What the state stands on; outlives it. */
struct core_env {
	const struct settings *settings;
	struct loop *loop;
	struct keeper_link *keeper;
	struct front_link *front;
	const struct kept *kept; /* what earlier lives kept; the descriptors are the state's now */
	size_t n_kept;
	/* Counts starts of the core, from 1; goes up, also when the keeper was started again and took
	 * what the service manager kept. */
	uint64_t life;
	uint8_t boot[16]; /* random, of this life */
	uint32_t n_restarts;
	uint64_t started_ns; /* loop clock at the start of this life */
	uint64_t ready_ns;   /* and when it served */
};

struct core;

/*
 * Makes or finds again everything; may take as long as prefaulting does (keeper_status() says so
 * to those who wait). NULL with err: the core ends.
 */
struct core *core_new(struct core_env *env, struct errbuf *err);
void core_free(struct core *core); /* orderly end; NULL is allowed */

/* Told to end: saves what has a name and no writer on the disk, if there is a disk pool; then, or
 * at the second call, done(arg). */
void core_leave(struct core *core, void (*done)(void *arg), void *arg);

/* Says in the log what goes with an orderly end. has_manager: a service manager has the memory in
 * its descriptor store; a restart brings it back, a stop drops it, and it does not say which. */
void core_farewell(const struct core *core, bool has_manager);

/*
 * A request frame of at most KV_REQUEST_BYTES_MAX bytes that nobody has looked at yet. Both
 * buffers are valid during the call. Answered with front_link_reply(), now or later, or never.
 */
void core_request(struct core *core, const void *route, size_t n_route, const void *body,
		  size_t n_body);

/*
 * A well-formed attach message (versions checked, `what` is set). fd: the descriptor beside it or
 * -1; the state owns it from here on. With Watch it is there and was checked to be what
 * kvcache-protocol(7) says; with anything else it is -1.
 */
void core_attach_message(struct core *core, struct attach_conn *conn,
			 const Kv__Wire__AttachRequest *req, int fd);

/* Hang-up. Called once for each connection from which a message was delivered, unless the state
 * closed it. conn is freed afterwards. */
void core_attach_gone(struct core *core, struct attach_conn *conn);

/* What the keeper hands to a core that it has just forked. */
struct core_start {
	const struct settings *settings;
	int keeper_fd; /* the core's end of its pair with the keeper */
	int front_fd;  /* the core's end of the pair with the front */
	int listen_fd; /* attach socket */
	const struct kept *kept;
	size_t n_kept;
	uint64_t life;
	uint32_t n_restarts; /* under this keeper */
};

/* Runs a core until it is told to end. Returns the exit status of the process. */
int core_main(const struct core_start *start);

#endif
