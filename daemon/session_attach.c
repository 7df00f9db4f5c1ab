/*
 * Attach messages: Hello, ArenaGet, Watch, Bye (daemon/core.h, kvcache-protocol(7)).
 *
 * A refusal of Hello leaves the connection without session; the peer may try again. Everything
 * but Hello needs a session.
 */
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "daemon/pidfd.h"
#include "daemon/session.h"
#include "daemon/state_log.h"
#include "proto/runtime.h"

static void refuse(struct attach_conn *conn, const struct errbuf *err)
{
	Kv__Wire__AttachReply reply = KV__WIRE__ATTACH_REPLY__INIT;

	reply.status = (uint32_t)err->status;
	reply.detail = (char *)err->text;
	attach_reply(conn, &reply, NULL, 0);
}

static void welcome(struct session *session, struct attach_conn *conn)
{
	Kv__Wire__AttachReply reply = KV__WIRE__ATTACH_REPLY__INIT;
	Kv__Wire__Welcome words = KV__WIRE__WELCOME__INIT;

	words.session = session->id;
	words.token.data = session->token;
	words.token.len = sizeof(session->token);
	words.segment_bytes = KV_SHM_BYTES;
	words.life = session->core->env->life;
	reply.what_case = KV__WIRE__ATTACH_REPLY__WHAT_WELCOME;
	reply.welcome = &words;
	conn->user = session;
	session->conn = conn;
	attach_promote(conn);
	attach_reply(conn, &reply, &session->segment.fd, 1);
}

/* The process that had the session, with its token, and no other. */
static struct session *find_again(struct core *core, const struct attach_conn *conn,
				  const Kv__Wire__Hello *hello, struct errbuf *err)
{
	struct session *session = session_find(core, hello->session);

	if (!session || session->phase == SESSION_ENDED || session->is_ending ||
	    session->uid != conn->uid || hello->token.len != TOKEN_BYTES ||
	    sodium_memcmp(hello->token.data, session->token, TOKEN_BYTES) != 0) {
		errbuf_set(err, KV_ESESSION, "session is unknown or has ended; attach anew");
		return NULL;
	}
	if (pidfd_has_exited(session->pidfd) || pidfd_pid(session->pidfd) != conn->pid) {
		errbuf_set(err, KV_ESESSION, "session %llu belongs to process %u; attach anew",
			   (unsigned long long)session->id, session->pid);
		return NULL;
	}
	return session;
}

/* A session that an earlier life made for this process and this wish, and whose Welcome was lost;
 * NULL: there is none. */
static struct session *find_lost(struct core *core, const struct attach_conn *conn,
				 const uint8_t *nonce)
{
	for (size_t i = 0; i < core->sessions.n; i++) {
		struct session *session = core->sessions.items[i].thing;

		if (session->phase == SESSION_AWAY && !session->is_ending &&
		    session->uid == conn->uid &&
		    sodium_memcmp(session->nonce, nonce, TOKEN_BYTES) == 0 &&
		    !pidfd_has_exited(session->pidfd) && pidfd_pid(session->pidfd) == conn->pid)
			return session;
	}
	return NULL;
}

static struct session *begin(struct core *core, struct attach_conn *conn,
			     const Kv__Wire__Hello *hello, struct errbuf *err)
{
	const uint8_t *nonce = hello->nonce.len == TOKEN_BYTES ? hello->nonce.data : NULL;
	struct session *lost = NULL;

	if (nonce && !sodium_is_zero(nonce, TOKEN_BYTES))
		lost = find_lost(core, conn, nonce);
	return lost ? lost : session_new(core, conn, nonce, err);
}

static int on_hello(struct core *core, struct attach_conn *conn, const Kv__Wire__Hello *hello,
		    struct errbuf *err)
{
	struct session *session;

	if (conn->user)
		return errbuf_set(err, KV_EPROTO, "the connection has a session already");
	session = hello->session ? find_again(core, conn, hello, err) :
				   begin(core, conn, hello, err);
	if (!session)
		return -1;
	if (session->conn) { /* it has connected anew before we saw the old connection go */
		session->conn->user = NULL;
		attach_close(session->conn);
		session->conn = NULL;
	}
	session->phase = SESSION_ATTACHED;
	state_commit(core);
	welcome(session, conn);
	return 0;
}

static int on_arena_get(struct session *session, struct attach_conn *conn,
			const Kv__Wire__ArenaGet *get, struct errbuf *err)
{
	Kv__Wire__AttachReply reply = KV__WIRE__ATTACH_REPLY__INIT;
	Kv__Wire__ArenaInfo info = KV__WIRE__ARENA_INFO__INIT;
	struct arena *arena = session_arena(session, get->arena);
	int fd;

	if (!arena)
		return errbuf_set(err, KV_ENOTFOUND, "arena %u is not one that the session sees",
				  get->arena);
	info.writable = arena->session_id == session->id;
	fd = info.writable ? arena->fd : arena_readonly(arena, err);
	if (fd < 0)
		return -1;
	info.arena = get->arena;
	info.arena_id = arena->id;
	info.layout_id = arena->layout_id;
	info.group = arena->group;
	info.n_blocks = arena->n_blocks;
	info.n_bytes = arena->n_bytes;
	reply.what_case = KV__WIRE__ATTACH_REPLY__WHAT_ARENA;
	reply.arena = &info;
	attach_reply(conn, &reply, &fd, 1);
	return 0;
}

static int on_watch(struct session *session, struct attach_conn *conn, const Kv__Wire__Watch *watch,
		    int fd, struct errbuf *err)
{
	Kv__Wire__AttachReply reply = KV__WIRE__ATTACH_REPLY__INIT;

	if (fd < 0)
		return errbuf_set(err, KV_EPROTO, "a watch needs a descriptor beside it");
	if (kv_name_check(watch->name, err)) {
		close(fd);
		return -1;
	}
	if (session_watch(session, watch->name, fd, err))
		return -1;
	session->core->names_changed = true; /* it may be there already */
	state_commit(session->core);
	attach_reply(conn, &reply, NULL, 0);
	return 0;
}

/* The session ends first, so that whoever hears the answer finds it ended. */
static void on_bye(struct session *session, struct attach_conn *conn)
{
	Kv__Wire__AttachReply reply = KV__WIRE__ATTACH_REPLY__INIT;

	session->conn = NULL;
	conn->user = NULL;
	session_end(session, "goodbye");
	attach_reply(conn, &reply, NULL, 0);
	attach_close(conn);
}

void core_attach_message(struct core *core, struct attach_conn *conn,
			 const Kv__Wire__AttachRequest *req, int fd)
{
	struct session *session = conn->user;
	struct errbuf err = {0};
	int rc = 0;

	if (req->what_case == KV__WIRE__ATTACH_REQUEST__WHAT_HELLO) {
		rc = on_hello(core, conn, req->hello, &err);
	} else if (!session) {
		rc = errbuf_set(&err, KV_ESESSION, "say Hello first");
		if (fd >= 0)
			close(fd);
	} else if (req->what_case == KV__WIRE__ATTACH_REQUEST__WHAT_ARENA_GET) {
		rc = on_arena_get(session, conn, req->arena_get, &err);
	} else if (req->what_case == KV__WIRE__ATTACH_REQUEST__WHAT_WATCH) {
		rc = on_watch(session, conn, req->watch, fd, &err);
	} else {
		on_bye(session, conn);
	}
	if (rc)
		refuse(conn, &err);
}

void core_attach_gone(struct core *core, struct attach_conn *conn)
{
	struct session *session = conn->user;

	(void)core;
	if (!session)
		return;
	session->conn = NULL; /* freed by its owner */
	conn->user = NULL;
	session_end(session, "it hung up");
}
