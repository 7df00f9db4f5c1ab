#include "daemon/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "daemon/arena_store.h"
#include "daemon/command.h"
#include "daemon/events.h"
#include "daemon/jobs.h"
#include "daemon/live.h"
#include "daemon/objects.h"
#include "daemon/pidfd.h"
#include "daemon/recover_rows.h"
#include "daemon/requests.h"
#include "daemon/state_log.h"

struct session *session_find(const struct core *core, uint64_t id)
{
	return idlist_find(&core->sessions, id);
}

/* ---- birth -------------------------------------------------------------------------------- */

/* What the process is called, for people. Racy and harmless: the pid may be another's by now. */
static void read_comm(struct session *session)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%u/comm", session->pid);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fgets(session->comm, sizeof(session->comm), file))
		session->comm[strcspn(session->comm, "\n")] = '\0';
	fclose(file);
	for (char *c = session->comm; *c; c++)
		if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
			*c = '?';
}

static struct session *alloc(struct core *core, uint32_t uid)
{
	struct session *session = state_alloc(1, sizeof(*session));

	session->core = core;
	session->uid = uid;
	session->user = pool_user(&core->pool, uid);
	if (!session->user)
		state_die("no memory for an account");
	session->pidfd = -1;
	session->pidfd_io.fd = -1;
	session->segment.fd = -1;
	session->places = state_alloc(KV_PLACES_MAX, sizeof(session->places[0]));
	session->numbers = state_alloc(KV_ARENAS_MAX, sizeof(session->numbers[0]));
	session->next_number = session->numbers_end = 1;
	return session;
}

static void add(struct session *session)
{
	if (idlist_add(&session->core->sessions, session->id, session))
		state_die("no memory for the list of sessions");
	session->user->n_sessions++;
}

static void on_pidfd(void *arg, uint32_t events)
{
	(void)events;
	session_end(arg, "its process has gone");
}

int session_watch_process(struct session *session)
{
	session->pidfd_io.fn = on_pidfd;
	session->pidfd_io.arg = session;
	return loop_io_add(session->core->env->loop, &session->pidfd_io, session->pidfd, EPOLLIN);
}

static int keep(struct session *session, struct errbuf *err)
{
	struct keeper_link *keeper = session->core->env->keeper;
	int rc = keeper_keep(keeper, KEPT_SEGMENT, session->id, session->segment.fd);

	KV_FAULT_POINT();
	if (rc == 0)
		rc = keeper_keep(keeper, KEPT_PIDFD, session->id, session->pidfd);
	if (rc == 0)
		rc = session_watch_process(session);
	if (rc == 0)
		return 0;
	keeper_drop(keeper, KEPT_SEGMENT, session->id);
	keeper_drop(keeper, KEPT_PIDFD, session->id);
	return errbuf_errno(err, KV_ELIMIT, -rc, "the keeper cannot hold another session");
}

struct session *session_new(struct core *core, struct attach_conn *conn, const uint8_t *nonce,
			    struct errbuf *err)
{
	struct pool_user *user = pool_user(&core->pool, conn->uid);
	uint32_t most = core->env->settings->n_sessions_max;
	struct session *session;

	if (user && most && user->n_sessions >= most) {
		errbuf_set(err, KV_EQUOTA,
			   "user %u has %u sessions, the limit; close some or raise sessions in "
			   "kvcached.conf",
			   conn->uid, user->n_sessions);
		return NULL;
	}
	if (catalogue_room(&core->catalogue, 4096, err))
		return NULL;
	session = alloc(core, conn->uid);
	session->id = core_new_id(core);
	session->gid = conn->gid;
	session->pid = (uint32_t)conn->pid;
	session->created_unix_ns = unix_now_ns();
	session->phase = SESSION_ATTACHED;
	randombytes_buf(session->token, sizeof(session->token));
	if (nonce)
		memcpy(session->nonce, nonce, sizeof(session->nonce));
	read_comm(session);
	session->pidfd = conn->pidfd;
	conn->pidfd = -1;
	if (segment_make(&session->segment, session->id, err) || keep(session, err)) {
		session_free(session);
		return NULL;
	}
	atomic_store_explicit(&segment_head(&session->segment)->life, core->env->life,
			      memory_order_release);
	add(session);
	log_session(core, session);
	event_note(core, EVENT_SESSION_BEGUN, session->id, session->id, session->uid, 0);
	return session;
}

struct session *session_load(struct core *core, const struct cat_session *record, int pidfd)
{
	struct session *session = alloc(core, record->uid);

	session->id = record->id;
	memcpy(session->token, record->token, sizeof(session->token));
	memcpy(session->nonce, record->nonce, sizeof(session->nonce));
	session->gid = record->gid;
	session->pid = record->pid;
	memcpy(session->comm, record->comm, sizeof(session->comm) - 1);
	session->created_unix_ns = record->created_unix_ns;
	session->phase = record->ended ? SESSION_ENDED : SESSION_AWAY;
	session->pidfd = pidfd;
	add(session);
	return session;
}

/* ---- death -------------------------------------------------------------------------------- */

void session_free(struct session *session)
{
	if (session->pidfd >= 0) {
		loop_io_remove(session->core->env->loop, &session->pidfd_io);
		close(session->pidfd);
	}
	segment_fini(&session->segment);
	for (uint32_t i = 0; i < KV_PLACES_MAX; i++)
		free(session->places[i]);
	free(session->places);
	free(session->numbers);
	free(session->pins);
	for (uint32_t i = 0; i < session->n_watches; i++) {
		close(session->watches[i].fd);
		free(session->watches[i].name);
	}
	free(session->watches);
	requests_fini(session);
	free(session);
}

static void drop_watches(struct session *session)
{
	for (uint32_t i = 0; i < session->n_watches; i++) {
		log_watch_over(session->core, session->watches[i].id);
		state_drop_kept(session->core, KEPT_WATCH, session->watches[i].id);
		close(session->watches[i].fd);
		free(session->watches[i].name);
	}
	session->n_watches = 0;
}

/* What other sessions must not wait for. */
static void let_go(struct session *session, bool gone)
{
	struct core *core = session->core;
	struct session_counts counts;

	commands_forget_session(session);
	jobs_forget_session(session);
	live_park_session(session, gone);
	session_counts(session, &counts);
	core->n_copied_bytes += counts.n_copied_bytes;
	for (uint32_t i = 0; i < KV_PLACES_MAX; i++)
		if (session->places[i])
			session_place_free(session, session->places[i]);
	while (session->n_pins)
		session_unpin(session, session->pins[0].object, true);
	for (uint32_t n = 1; n < session->numbers_end; n++)
		while (session->numbers[n].arena)
			session_number_release(session, session->numbers[n].arena);
	for (uint32_t w = 0; w < KV_WRITERS_MAX; w++)
		session->writers[w].in_use = false;
	objects_drop_of_session(session);
	drop_watches(session);
	requests_drop_all(session);
}

/* A few milliseconds of work. */
#define ROWS_A_ROUND 2048u
/* Its connection hangs up a moment before its process has gone. */
#define OVERDUE_NS (LOOP_NS_PER_S / 2)

/* An update in place is neither there nor not: rows put back what it overwrote, once the process is
 * gone; while it lives its writer comes to an end by itself, or is overdue. */
static bool may_end(struct session *session)
{
	if (session->is_gone)
		return recover_rows(session, ROWS_A_ROUND);
	return !recover_rows_open(session) ||
	       (session->is_ending && core_now_ns(session->core) >= session->overdue_ns);
}

static void drop_conn(struct session *session)
{
	if (!session->conn)
		return;
	session->conn->user = NULL;
	attach_close(session->conn);
	session->conn = NULL;
}

/* Nobody can come back to it any more; what is left to do is done in rounds and ticks. */
static void end_later(struct session *session)
{
	struct loop *loop = session->core->env->loop;

	if (!session->is_ending)
		session->overdue_ns = core_now_ns(session->core) + OVERDUE_NS;
	session->is_ending = true;
	session->phase = SESSION_AWAY;
	drop_conn(session);
	if (!session->is_gone)
		return;
	loop_io_remove(loop, &session->pidfd_io); /* it has said all */
	loop_task_add(loop, &session->core->work_task);
}

bool sessions_end_on(struct core *core, bool tick)
{
	bool more = false;

	for (size_t i = 0; i < core->sessions.n;) {
		struct session *session = core->sessions.items[i].thing;
		uint64_t id = session->id;

		if (session->is_ending && (session->is_gone || tick)) {
			session_end(session, "its process has gone, or does not end an update");
			session = session_find(core, id);
			more |= session && session->is_ending && session->is_gone;
		}
		i = idlist_after(&core->sessions, id);
	}
	return more;
}

static void forget(struct session *session)
{
	struct core *core = session->core;

	arenas_end_session(session, true);
	log_session_gone(core, session->id);
	state_drop_kept(core, KEPT_PIDFD, session->id);
	idlist_remove(&core->sessions, session->id);
	session->user->n_sessions--;
	session_free(session);
}

void session_end(struct session *session, const char *why)
{
	struct core *core = session->core;
	bool gone = pidfd_has_exited(session->pidfd);

	session->is_gone = gone;
	if (session->phase != SESSION_ENDED && !may_end(session)) {
		end_later(session);
		return;
	}
	if (session->phase != SESSION_ENDED) {
		log_debug("session", "%llu of pid %u (%s) ends: %s",
			  (unsigned long long)session->id, session->pid, session->comm, why);
		let_go(session, gone);
		session->phase = SESSION_ENDED;
		session->is_ending = false;
		event_note(core, EVENT_SESSION_ENDED, session->id, session->id, session->uid, 0);
		log_session(core, session);
		state_make_true(core); /* before its blocks are zeroed */
		KV_FAULT_POINT();
		arenas_end_session(session, gone);
		segment_fini(&session->segment);
		session->segment.base = NULL;
		state_drop_kept(core, KEPT_SEGMENT, session->id);
		drop_conn(session);
	}
	/* without memory that its process could write there is nothing to wait for */
	if (gone || !session->arenas)
		forget(session);
	state_commit(core);
}

void sessions_forget_emptied(struct core *core)
{
	if (!core->sessions_emptied)
		return;
	core->sessions_emptied = false;
	for (size_t i = 0; i < core->sessions.n;) {
		struct session *session = core->sessions.items[i].thing;

		if (session->phase == SESSION_ENDED && !session->arenas)
			forget(session);
		else
			i++;
	}
}

bool session_is_operator(const struct session *session)
{
	return session->uid == 0 || session->uid == (uint32_t)geteuid();
}
