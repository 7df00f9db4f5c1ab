/* Commands: what is there: objects, sessions, gauges. They change nothing. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/command.h"
#include "daemon/disk.h"
#include "daemon/live.h"
#include "daemon/objects.h"
#include "daemon/overdraft.h"
#include "daemon/session.h"

/* ---- objects ------------------------------------------------------------------------------ */

static void fill_head(Kv__Wire__Object *wire, const struct kv_head *head)
{
	wire->length_tokens = head->length_tokens;
	wire->base_tokens = head->base_tokens;
	wire->position = head->position;
	wire->n_marks = head->n_marks;
	wire->journal_mode = (uint32_t)kv_head_mode(head->state);
	wire->n_journal_rows = head->journal_end - head->journal_first;
}

static void fill_state(const struct core *core, Kv__Wire__Object *wire, const struct state *state)
{
	fill_head(wire, &state->head);
	wire->update = state->update;
	wire->n_journal_bytes = state_journal_bytes(state);
	wire->n_bytes = state_bytes(state);
	wire->n_shared_bytes = state_shared_bytes(core, state);
	wire->n_runs = state_runs(state);
}

/* A live one is read without stopping its writer; what cannot be had is left out. */
static void fill_live(const struct core *core, Kv__Wire__Object *wire,
		      const struct session *session, const struct place *place)
{
	const struct kv_shm_place *shm = segment_place(&session->segment, place->seg.index);
	struct state *state;
	struct kv_head head;

	wire->session = session->id;
	wire->place = place->seg.index;
	wire->freeze_count = atomic_load_explicit(&shm->freeze_count, memory_order_relaxed);
	if (live_peek(session, place, &state, NULL) == 0) {
		fill_state(core, wire, state);
		state_unref(session->core, state);
		return;
	}
	live_head(session, place, &head, &wire->update);
	fill_head(wire, &head);
}

static Kv__Wire__Object *object_wire(const struct core *core, const struct object *object)
{
	Kv__Wire__Object *wire = reply_alloc(1, sizeof(*wire));

	kv__wire__object__init(wire);
	wire->id = object->id;
	wire->kind = (uint32_t)object->kind;
	wire->state = object->kind == OBJECT_SNAPSHOT ? 3 : object->state ? 2 : 1;
	wire->name = reply_string(object->name);
	wire->layout_hash = reply_bytes(object->layout->layout->hash, KV_HASH_BYTES);
	wire->uid = object->uid;
	wire->parent_id = object->parent_id;
	wire->parent_update = object->parent_update;
	wire->created_unix_ns = object->created_unix_ns;
	if (object->has_digest)
		wire->digest = reply_bytes(object->digest, sizeof(object->digest));
	wire->n_users = object->n_pins;
	if (object->session)
		wire->session = object->session->id;
	if (object->state)
		fill_state(core, wire, object->state);
	else
		fill_live(core, wire, object->session, object->session->places[object->place]);
	return wire;
}

/* Local forks have no number of the core's: one that sorts behind all others, for the pages. */
#define LOCAL_ID (UINT64_C(1) << 63)

static uint64_t local_id(const struct session *session, uint32_t place)
{
	return LOCAL_ID | session->id << 12 | place;
}

static Kv__Wire__Object *local_wire(const struct core *core, const struct session *session,
				    const struct place *place)
{
	const struct kv_shm_place *shm = segment_place(&session->segment, place->seg.index);
	Kv__Wire__Object *wire;
	struct kv_head head;
	uint64_t update;

	live_head(session, place, &head, &update);
	if (kv_head_state(head.state) == KV_HEAD_NONE)
		return NULL;
	wire = reply_alloc(1, sizeof(*wire));
	kv__wire__object__init(wire);
	wire->id = local_id(session, place->seg.index);
	wire->local = 1;
	wire->kind = kv_head_state(head.state) == KV_HEAD_SNAPSHOT ? OBJECT_SNAPSHOT :
								     OBJECT_SEQUENCE;
	wire->state = kv_head_state(head.state) == KV_HEAD_SNAPSHOT ? 3 : 1;
	wire->name = reply_string("");
	wire->layout_hash = reply_bytes(place->layout->layout->hash, KV_HASH_BYTES);
	wire->uid = session->uid;
	wire->parent_id = atomic_load_explicit(&shm->parent_id, memory_order_relaxed);
	fill_live(core, wire, session, place);
	return wire;
}

/* A page that is being filled: objects up to the count and the bytes of a reply. */
struct page {
	Kv__Wire__ObjectsResult *result;
	size_t n_bytes;
};

/* Takes the object over. False when the page is full (the object is freed). */
static bool page_add(struct page *page, Kv__Wire__Object *wire)
{
	size_t n = kv__wire__object__get_packed_size(wire) + 8;

	if (page->result->n_objects == KV_PAGE_OBJECTS_MAX ||
	    page->n_bytes + n > KV_REQUEST_BYTES_MAX - 4096) {
		page->result->more = 1;
		kv__wire__object__free_unpacked(wire, NULL);
		return false;
	}
	page->result->objects[page->result->n_objects++] = wire;
	page->n_bytes += n;
	return true;
}

static struct page page_begin(struct command *cmd)
{
	struct page page = {reply_alloc(1, sizeof(*page.result)), 0};

	kv__wire__objects_result__init(page.result);
	page.result->objects = reply_alloc(KV_PAGE_OBJECTS_MAX, sizeof(page.result->objects[0]));
	cmd->reply->result_case = KV__WIRE__REPLY__RESULT_OBJECTS;
	cmd->reply->objects = page.result;
	return page;
}

static bool is_wanted(const struct command *cmd, const struct object *object)
{
	const char *prefix = cmd->request->list->prefix;

	if (!object->listed ||
	    (object->uid != cmd->session->uid && !session_is_operator(cmd->session)))
		return false;
	return !prefix[0] || (object->name && strncmp(object->name, prefix, strlen(prefix)) == 0);
}

static bool list_local(struct command *cmd, struct page *page, const struct session *session)
{
	if (session->phase == SESSION_ENDED ||
	    (session->uid != cmd->session->uid && !session_is_operator(cmd->session)))
		return true;
	for (uint32_t p = 0; p < KV_PLACES_MAX; p++) {
		const struct place *place = session->places[p];
		Kv__Wire__Object *wire;

		if (!place || place->kind != PLACE_SPARE ||
		    local_id(session, p) <= cmd->request->list->after_id)
			continue;
		wire = local_wire(cmd->core, session, place);
		if (wire && !page_add(page, wire))
			return false;
	}
	return true;
}

static enum cmd_step run_list(struct command *cmd)
{
	const struct core *core = cmd->core;
	const Kv__Wire__List *list = cmd->request->list;
	struct page page = page_begin(cmd);
	size_t i = idlist_after(&core->objects, list->after_id);

	for (; i < core->objects.n; i++) {
		const struct object *object = core->objects.items[i].thing;

		if (is_wanted(cmd, object) && !page_add(&page, object_wire(core, object)))
			return CMD_DONE;
	}
	if (!list->local || list->prefix[0])
		return CMD_DONE;
	for (i = 0; i < core->sessions.n; i++)
		if (!list_local(cmd, &page, core->sessions.items[i].thing))
			break;
	return CMD_DONE;
}

const struct command_entry cmd_list = {.run = run_list};

static enum cmd_step run_show(struct command *cmd)
{
	struct target target;
	struct page page;
	Kv__Wire__Object *wire;

	if (cmd_target(cmd, cmd->request->show->source, &target))
		return CMD_FAIL;
	wire = target.object ? object_wire(cmd->core, target.object) :
			       local_wire(cmd->core, target.session, target.place);
	if (!wire)
		return cmd_fail(cmd, KV_ENOTFOUND, "place %u holds no sequence",
				target.place->seg.index);
	page = page_begin(cmd);
	page_add(&page, wire);
	return CMD_DONE;
}

const struct command_entry cmd_show = {.run = run_show};

/* ---- sessions ----------------------------------------------------------------------------- */

static uint64_t age_ms(const struct session *session)
{
	uint64_t now = unix_now_ns();

	return now > session->created_unix_ns ? (now - session->created_unix_ns) / LOOP_NS_PER_MS :
						0;
}

static uint64_t used_bytes(const struct session *session)
{
	uint64_t bytes = session_granted_bytes(session);

	for (const struct arena *a = session->arenas; a; a = a->next_in_session)
		bytes += a->n_dirty * a->block_bytes;
	return bytes;
}

static uint32_t n_sequences(const struct session *session)
{
	uint32_t n = 0;

	for (uint32_t p = 0; session->n_places && p < KV_PLACES_MAX; p++)
		n += session->places[p] && session->places[p]->kind == PLACE_SEQUENCE;
	return n;
}

static Kv__Wire__SessionInfo *session_wire(const struct session *session)
{
	Kv__Wire__SessionInfo *wire = reply_alloc(1, sizeof(*wire));
	struct session_counts counts;

	session_counts(session, &counts);
	kv__wire__session_info__init(wire);
	wire->id = session->id;
	wire->uid = session->uid;
	wire->pid = session->pid;
	wire->comm = reply_string(session->comm);
	wire->n_sequences = n_sequences(session);
	wire->n_bytes = used_bytes(session);
	wire->age_ms = age_ms(session);
	wire->state = (uint32_t)session->phase;
	wire->n_commits = counts.n_commits;
	wire->n_appended_tokens = counts.n_appended_tokens;
	wire->n_copied_bytes = counts.n_copied_bytes;
	wire->n_rollbacks = counts.n_rollbacks;
	wire->n_local_forks = counts.n_local_forks;
	return wire;
}

static enum cmd_step run_session_list(struct command *cmd)
{
	const struct core *core = cmd->core;
	size_t i = idlist_after(&core->sessions, cmd->request->session_list->after_id);
	Kv__Wire__SessionsResult *result = reply_alloc(1, sizeof(*result));

	kv__wire__sessions_result__init(result);
	result->sessions = reply_alloc(KV_PAGE_OBJECTS_MAX, sizeof(result->sessions[0]));
	cmd->reply->result_case = KV__WIRE__REPLY__RESULT_SESSIONS;
	cmd->reply->sessions = result;
	for (; i < core->sessions.n; i++) {
		const struct session *session = core->sessions.items[i].thing;

		if (session->uid != cmd->session->uid && !session_is_operator(cmd->session))
			continue;
		if (result->n_sessions == KV_PAGE_OBJECTS_MAX) {
			result->more = 1;
			break;
		}
		result->sessions[result->n_sessions++] = session_wire(session);
	}
	return CMD_DONE;
}

const struct command_entry cmd_session_list = {.run = run_session_list};

static enum cmd_step run_session_end(struct command *cmd)
{
	uint64_t id = cmd->request->session_end->session;
	const struct session *session = session_find(cmd->core, id);

	if (!session || (session->uid != cmd->session->uid && !session_is_operator(cmd->session)))
		return cmd_fail(cmd, KV_ENOTFOUND, "no session has number %llu",
				(unsigned long long)id);
	cmd->end_session = id; /* when the reply is out */
	return CMD_DONE;
}

const struct command_entry cmd_session_end = {.run = run_session_end};

/* ---- gauges ------------------------------------------------------------------------------- */

static void fill_sessions(const struct core *core, Kv__Wire__StatusResult *status,
			  uint64_t *claimed_bytes)
{
	*claimed_bytes = 0;
	status->n_copied_bytes = core->n_copied_bytes;
	for (size_t i = 0; i < core->sessions.n; i++) {
		const struct session *session = core->sessions.items[i].thing;
		struct session_counts counts;

		session_counts(session, &counts);
		*claimed_bytes += counts.n_reserved_bytes;
		status->n_copied_bytes += counts.n_copied_bytes;
		if (session->segment.base)
			status->control_bytes += segment_resident_bytes(&session->segment);
	}
}

static void fill_objects(const struct core *core, Kv__Wire__StatusResult *status)
{
	for (size_t i = 0; i < core->objects.n; i++) {
		const struct object *object = core->objects.items[i].thing;

		status->n_sequences += object->listed && object->kind == OBJECT_SEQUENCE;
		status->n_snapshots += object->listed && object->kind == OBJECT_SNAPSHOT;
	}
}

static void fill_pool(const struct core *core, Kv__Wire__StatusResult *status,
		      uint64_t claimed_bytes)
{
	struct pool_gauges gauges;

	pool_gauges(&core->pool, claimed_bytes, &gauges);
	status->pool_total_bytes = gauges.total_bytes;
	status->pool_live_bytes = gauges.live_bytes;
	status->pool_reserved_bytes = gauges.reserved_bytes;
	status->pool_cached_bytes = gauges.cached_bytes;
	status->pool_quarantined_bytes = gauges.quarantined_bytes;
	status->pool_free_bytes = gauges.free_bytes;
}

static Kv__Wire__StartInfo *start_wire(const struct core *core)
{
	const struct settle *settle = &core->settle;
	const uint64_t left = locker_left_bytes(core);
	Kv__Wire__StartInfo *start = reply_alloc(1, sizeof(*start));

	kv__wire__start_info__init(start);
	start->took_us = (core->env->ready_ns - core->env->started_ns) / 1000;
	start->to_lock_bytes = locker_locks(core) ? settle->to_lock_bytes : 0;
	start->locked_bytes = start->to_lock_bytes > left ? start->to_lock_bytes - left : 0;
	start->verified_bytes = settle->verified_bytes;
	start->to_verify_bytes = settle->to_verify_bytes;
	start->n_bad_blocks = settle->n_bad_blocks;
	return start;
}

static enum cmd_step run_status(struct command *cmd)
{
	const struct core *core = cmd->core;
	Kv__Wire__StatusResult *status = reply_alloc(1, sizeof(*status));
	uint64_t claimed_bytes;
	char mlock[128];

	kv__wire__status_result__init(status);
	status->version = reply_string(PACKAGE_VERSION);
	status->uptime_ms = (core_now_ns(core) - core->env->started_ns) / LOOP_NS_PER_MS;
	status->core_pid = (uint32_t)getpid();
	status->n_core_restarts = core->env->n_restarts;
	fill_sessions(core, status, &claimed_bytes);
	fill_pool(core, status, claimed_bytes);
	fill_objects(core, status);
	status->n_sessions = (uint32_t)core->sessions.n;
	status->n_layouts = (uint32_t)core->layouts.n;
	status->n_arenas = (uint32_t)core->arenas.n;
	status->catalogue_bytes = catalogue_bytes(&core->catalogue);
	status->n_requests = core->n_requests;
	status->huge = reply_string(core->memory.huge_text);
	locker_text(core, mlock, sizeof(mlock));
	status->mlock = reply_string(mlock);
	status->quota_bytes = pool_user_limit(&core->pool);
	status->used_bytes = cmd->session->user->used_bytes;
	status->runtime_dir = reply_string(core->env->settings->runtime_dir);
	status->disk = disk_wire(core);
	if (core->settle.is_heir)
		status->start = start_wire(core);
	cmd->reply->result_case = KV__WIRE__REPLY__RESULT_STATUS_RESULT;
	cmd->reply->status_result = status;
	return CMD_DONE;
}

const struct command_entry cmd_status = {.run = run_status};
