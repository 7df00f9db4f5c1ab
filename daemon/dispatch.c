/*
 * Requests: decoded under limits, checked, run once, answered (daemon/command.h).
 *
 * Whatever bytes arrive, the answer is a status: EPROTO (no message), EVERSION, ESESSION (unknown
 * or wrong token, one text for both), ERESTARTED (meant for another life), ESTALE, ELIMIT,
 * EUNSUPPORTED (unknown command), or the command's own.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "daemon/command.h"
#include "daemon/hold.h"
#include "daemon/requests.h"
#include "daemon/session.h"
#include "daemon/state_log.h"

static const struct command_entry *const entries[] = {
	[KV__WIRE__REQUEST__COMMAND_NOOP] = &cmd_noop,
	[KV__WIRE__REQUEST__COMMAND_LAYOUT_REGISTER] = &cmd_layout_register,
	[KV__WIRE__REQUEST__COMMAND_LAYOUT_GET] = &cmd_layout_get,
	[KV__WIRE__REQUEST__COMMAND_WRITER_NEW] = &cmd_writer_new,
	[KV__WIRE__REQUEST__COMMAND_WRITER_FREE] = &cmd_writer_free,
	[KV__WIRE__REQUEST__COMMAND_SEQ_NEW] = &cmd_seq_new,
	[KV__WIRE__REQUEST__COMMAND_SEQ_DROP] = &cmd_seq_drop,
	[KV__WIRE__REQUEST__COMMAND_SEQ_NAME] = &cmd_seq_name,
	[KV__WIRE__REQUEST__COMMAND_RESERVE] = &cmd_reserve,
	[KV__WIRE__REQUEST__COMMAND_RELEASE] = &cmd_release,
	[KV__WIRE__REQUEST__COMMAND_PLACES_RESERVE] = &cmd_places_reserve,
	[KV__WIRE__REQUEST__COMMAND_SNAPSHOT] = &cmd_snapshot,
	[KV__WIRE__REQUEST__COMMAND_FORK] = &cmd_fork,
	[KV__WIRE__REQUEST__COMMAND_OPEN] = &cmd_open,
	[KV__WIRE__REQUEST__COMMAND_UNPIN] = &cmd_unpin,
	[KV__WIRE__REQUEST__COMMAND_ROLLBACK] = &cmd_rollback,
	[KV__WIRE__REQUEST__COMMAND_TAKEOVER] = &cmd_takeover,
	[KV__WIRE__REQUEST__COMMAND_REMOVE] = &cmd_remove,
	[KV__WIRE__REQUEST__COMMAND_LIST] = &cmd_list,
	[KV__WIRE__REQUEST__COMMAND_SHOW] = &cmd_show,
	[KV__WIRE__REQUEST__COMMAND_VERIFY] = &cmd_verify,
	[KV__WIRE__REQUEST__COMMAND_SAVE] = &cmd_save,
	[KV__WIRE__REQUEST__COMMAND_LOAD] = &cmd_load,
	[KV__WIRE__REQUEST__COMMAND_SAVED_LIST] = &cmd_saved_list,
	[KV__WIRE__REQUEST__COMMAND_SAVED_REMOVE] = &cmd_saved_remove,
	[KV__WIRE__REQUEST__COMMAND_STORE_CHECK] = &cmd_store_check,
	[KV__WIRE__REQUEST__COMMAND_JOB_GET] = &cmd_job_get,
	[KV__WIRE__REQUEST__COMMAND_JOB_CANCEL] = &cmd_job_cancel,
	[KV__WIRE__REQUEST__COMMAND_SESSION_LIST] = &cmd_session_list,
	[KV__WIRE__REQUEST__COMMAND_SESSION_END] = &cmd_session_end,
	[KV__WIRE__REQUEST__COMMAND_STATUS] = &cmd_status,
	[KV__WIRE__REQUEST__COMMAND_WAIT] = &cmd_wait,
};

const struct command_entry *command_entry(Kv__Wire__Request__CommandCase which)
{
	size_t i = (size_t)which;

	return i < sizeof(entries) / sizeof(entries[0]) ? entries[i] : NULL;
}

/* ---- replies ------------------------------------------------------------------------------ */

static void send_bytes(struct core *core, const void *route, size_t n_route, const void *bytes,
		       size_t n)
{
	int rc = front_link_reply(core->env->front, route, n_route, bytes, n);

	if (rc)
		log_warn("core", "a reply of %zu bytes was not sent: %s", n, strerror(-rc));
}

static void fill_head(struct core *core, Kv__Wire__Reply *reply, uint64_t session, uint64_t id)
{
	reply->version = KV_PROTOCOL_VERSION;
	reply->session = session;
	reply->id = id;
	reply->boot.data = core->env->boot;
	reply->boot.len = BOOT_BYTES;
}

/* A refusal that is not stored. */
static void refuse(struct core *core, const void *route, size_t n_route,
		   const Kv__Wire__Request *request, int status, const char *text)
{
	Kv__Wire__Reply reply = KV__WIRE__REPLY__INIT;
	uint8_t bytes[1024];

	fill_head(core, &reply, request ? request->session : 0, request ? request->id : 0);
	reply.status = (uint32_t)status;
	reply.detail = (char *)text;
	if (kv__wire__reply__get_packed_size(&reply) > sizeof(bytes))
		return;
	send_bytes(core, route, n_route, bytes, kv__wire__reply__pack(&reply, bytes));
}

/* ---- the end of a command ----------------------------------------------------------------- */

static uint8_t *pack(struct command *cmd, uint32_t *n)
{
	size_t n_bytes;
	uint8_t *bytes;

	fill_head(cmd->core, cmd->reply, cmd->session->id, cmd->request_id);
	n_bytes = kv__wire__reply__get_packed_size(cmd->reply);
	bytes = state_alloc(1, n_bytes ? n_bytes : 1);
	kv__wire__reply__pack(cmd->reply, bytes);
	cmd->reply->boot.data = NULL; /* not the reply's to free */
	cmd->reply->boot.len = 0;
	*n = (uint32_t)n_bytes;
	return bytes;
}

static void unlink_pending(struct command *cmd)
{
	struct command **at = &cmd->core->pending;

	if (!cmd->is_pending)
		return;
	while (*at != cmd)
		at = &(*at)->next;
	*at = cmd->next;
	cmd->is_pending = false;
}

static void free_command(struct command *cmd)
{
	unlink_pending(cmd);
	holds_release(cmd);
	if (cmd->entry->drop)
		cmd->entry->drop(cmd);
	free(cmd->work);
	kv__wire__request__free_unpacked(cmd->request, NULL);
	kv__wire__reply__free_unpacked(cmd->reply, NULL);
	free(cmd);
}

static void set_failure(struct command *cmd)
{
	kv__wire__reply__free_unpacked(cmd->reply, NULL);
	cmd->reply = state_alloc(1, sizeof(*cmd->reply));
	kv__wire__reply__init(cmd->reply);
	cmd->reply->status = (uint32_t)(cmd->err.status ? cmd->err.status : KV_EINTERNAL);
	cmd->reply->detail = reply_string(cmd->err.text);
}

static void finish(struct command *cmd, bool is_done)
{
	struct core *core = cmd->core;
	uint64_t end_session = is_done ? cmd->end_session : 0;
	uint32_t n;
	uint8_t *bytes;

	if (!is_done)
		set_failure(cmd);
	bytes = pack(cmd, &n);
	if (n > KV_REQUEST_BYTES_MAX)
		state_die("a reply to command %d has %u bytes", (int)cmd->request->command_case, n);
	if (is_done && cmd->entry->changes) {
		struct request result = {.id = cmd->request_id, .reply = bytes, .n_reply = n};

		log_result(core, cmd->session, &result);
	}
	state_make_true(core);
	if (is_done && cmd->entry->after)
		cmd->entry->after(cmd);
	KV_FAULT_POINT();
	holds_release(cmd);
	KV_FAULT_POINT();
	send_bytes(core, cmd->route, cmd->n_route, bytes, n);
	requests_answer(cmd->session, cmd->request_id, bytes, n);
	free_command(cmd);
	KV_FAULT_POINT();
	state_settle(core);
	if (end_session)
		session_end(session_find(core, end_session), "an operator asked for it");
}

/* One run. True if the command is over (and freed). */
static bool run(struct command *cmd)
{
	enum cmd_step step = cmd->entry->run(cmd);

	if (step == CMD_WAIT) {
		if (core_now_ns(cmd->core) < cmd->deadline_ns)
			return false;
		step = CMD_FAIL;
	}
	finish(cmd, step == CMD_DONE);
	return true;
}

/* ---- waiting ------------------------------------------------------------------------------ */

static void set_timer(struct core *core)
{
	uint64_t soon = core_now_ns(core) + LOOP_NS_PER_MS;
	uint64_t due = UINT64_MAX;

	for (const struct command *cmd = core->pending; cmd; cmd = cmd->next) {
		uint64_t at = cmd->wake == WAKE_SOON && soon < cmd->deadline_ns ? soon :
										  cmd->deadline_ns;

		if (at < due)
			due = at;
	}
	if (due == UINT64_MAX)
		loop_timer_cancel(core->env->loop, &core->retry_timer);
	else if (loop_timer_at(core->env->loop, &core->retry_timer, due))
		state_die("no memory for a timer");
}

static void wait_for(struct command *cmd)
{
	struct core *core = cmd->core;

	state_commit(core); /* what it has logged so far (an arena) is true by itself */
	cmd->is_pending = true;
	cmd->next = core->pending;
	core->pending = cmd;
	if (cmd->wake == WAKE_ROUND)
		loop_task_add(core->env->loop, &core->work_task);
	set_timer(core);
}

static bool is_due(const struct command *cmd, bool timer, bool named)
{
	if (core_now_ns(cmd->core) >= cmd->deadline_ns)
		return true;
	switch (cmd->wake) {
	case WAKE_ROUND: return true;
	case WAKE_SOON: return timer;
	case WAKE_NAME: return named;
	}
	return false;
}

bool commands_retry(struct core *core, bool timer)
{
	struct command *cmd = core->pending;
	bool named = core->names_changed;
	bool again = false;

	core->names_changed = false;
	while (cmd) {
		struct command *next = cmd->next;

		if (is_due(cmd, timer, named) && run(cmd))
			cmd = NULL;
		if (cmd && cmd->wake == WAKE_ROUND)
			again = true;
		cmd = next;
	}
	set_timer(core);
	return again;
}

static void cancel(struct command *cmd)
{
	refuse(cmd->core, cmd->route, cmd->n_route, cmd->request, KV_ESESSION,
	       "the session has ended");
	requests_remove(cmd->session, cmd->request_id);
	free_command(cmd);
}

static void forget_holds(struct command *cmd, const struct session *session)
{
	for (uint32_t i = 0; i < cmd->n_held;) {
		struct held *held = &cmd->held[i];

		if (held->session != session) {
			i++;
			continue;
		}
		if (session->writers[held->writer].holder == cmd) {
			hold_cancel(segment_writer(&session->segment, held->writer));
			held->session->writers[held->writer].holder = NULL;
		}
		*held = cmd->held[--cmd->n_held];
	}
}

void commands_forget_session(struct session *session)
{
	struct command *cmd = session->core->pending;

	while (cmd) {
		struct command *next = cmd->next;

		if (cmd->session == session)
			cancel(cmd);
		else
			forget_holds(cmd, session);
		cmd = next;
	}
}

void commands_free_all(struct core *core)
{
	while (core->pending)
		free_command(core->pending);
}

/* ---- a request comes in ------------------------------------------------------------------- */

static uint64_t deadline_of(const struct core *core, const Kv__Wire__Request *request)
{
	uint64_t ms = request->deadline_ms ? request->deadline_ms : KV_DEADLINE_MS_DEFAULT;

	if (ms > KV_DEADLINE_MS_MAX)
		ms = KV_DEADLINE_MS_MAX;
	return core_now_ns(core) + ms * LOOP_NS_PER_MS;
}

static void begin(struct session *session, Kv__Wire__Request *request, const void *route,
		  size_t n_route)
{
	struct core *core = session->core;
	struct command *cmd = state_alloc(1, sizeof(*cmd));
	struct errbuf err = {0};

	cmd->core = core;
	cmd->session = session;
	cmd->request = request;
	cmd->request_id = request->id;
	cmd->entry = command_entry(request->command_case);
	cmd->began_ns = core_now_ns(core);
	cmd->deadline_ns = deadline_of(core, request);
	cmd->n_route = n_route;
	memcpy(cmd->route, route, n_route);
	cmd->reply = state_alloc(1, sizeof(*cmd->reply));
	kv__wire__reply__init(cmd->reply);
	if (requests_add(session, request->id, cmd, &err)) {
		refuse(core, route, n_route, request, err.status, err.text);
		free_command(cmd);
		return;
	}
	if (cmd->entry->changes && catalogue_room(&core->catalogue, 64 * 1024, &cmd->err)) {
		finish(cmd, false);
		return;
	}
	if (!run(cmd))
		wait_for(cmd);
}

/* Whose request is it? NULL: refused. */
static struct session *authenticate(struct core *core, const Kv__Wire__Request *request)
{
	struct session *session = session_find(core, request->session);

	if (!session || session->phase == SESSION_ENDED || session->is_ending ||
	    request->token.len != TOKEN_BYTES ||
	    sodium_memcmp(request->token.data, session->token, TOKEN_BYTES) != 0)
		return NULL;
	return session;
}

/* Answers from the store, or refuses; true when there is nothing to run. */
static bool answer_known(struct session *session, const Kv__Wire__Request *request,
			 const void *route, size_t n_route)
{
	struct core *core = session->core;
	struct request *known = requests_find(session, request->id);
	bool other_life = request->boot.len != BOOT_BYTES ||
			  memcmp(request->boot.data, core->env->boot, BOOT_BYTES) != 0;

	if (known && known->command) {
		memcpy(known->command->route, route, n_route);
		known->command->n_route = n_route;
		return true;
	}
	if (known) {
		send_bytes(core, route, n_route, known->reply, known->n_reply);
		return true;
	}
	if (other_life || session->phase == SESSION_AWAY) {
		refuse(core, route, n_route, request, KV_ERESTARTED,
		       "the daemon was restarted; this request was not run");
		return true;
	}
	if (request->id <= session->acked) {
		refuse(core, route, n_route, request, KV_ESTALE,
		       "a request of this or a higher number was acknowledged before; not run");
		return true;
	}
	return false;
}

static const char *malformed(const Kv__Wire__Request *request)
{
	if (request->id == 0)
		return "a request has no number";
	if (request->acked >= request->id)
		return "a request acknowledges its own reply or one of the future";
	if (request->command_case == KV__WIRE__REQUEST__COMMAND__NOT_SET)
		return "a request has no command, or one of a later version";
	return NULL;
}

static void take(struct core *core, Kv__Wire__Request *request, const void *route, size_t n_route)
{
	struct session *session;
	const char *fault;

	if (request->version != KV_PROTOCOL_VERSION) {
		char text[128];

		snprintf(text, sizeof(text),
			 "request has protocol version %u, this daemon speaks %u", request->version,
			 KV_PROTOCOL_VERSION);
		refuse(core, route, n_route, request, KV_EVERSION, text);
		goto out;
	}
	session = authenticate(core, request);
	if (!session) {
		refuse(core, route, n_route, request, KV_ESESSION,
		       "session is unknown or has ended; attach anew");
		goto out;
	}
	fault = malformed(request);
	if (fault) {
		refuse(core, route, n_route, request,
		       request->id && request->acked < request->id ? KV_EUNSUPPORTED : KV_EPROTO,
		       fault);
		goto out;
	}
	if (answer_known(session, request, route, n_route))
		goto out;
	requests_ack(session, request->acked);
	begin(session, request, route, n_route);
	return;
out:
	kv__wire__request__free_unpacked(request, NULL);
}

void core_request(struct core *core, const void *route, size_t n_route, const void *body,
		  size_t n_body)
{
	Kv__Wire__Request *request = NULL;

	core->n_requests++;
	if (n_route > FRONT_ROUTE_BYTES_MAX)
		return;
	if (n_body <= KV_REQUEST_BYTES_MAX)
		request = kv__wire__request__unpack(NULL, n_body, body);
	if (!request) {
		refuse(core, route, n_route, NULL, KV_EPROTO, "not a request message");
		return;
	}
	take(core, request, route, n_route);
}
