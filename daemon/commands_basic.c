/* Commands: nothing, layouts, writers, waiting for a name. */
#include <stdlib.h>
#include <string.h>

#include "daemon/command.h"
#include "daemon/names.h"
#include "daemon/objects.h"
#include "daemon/session.h"
#include "daemon/state_log.h"
#include "proto/layout_wire.h"
#include "proto/runtime.h"

static enum cmd_step run_noop(struct command *cmd)
{
	(void)cmd;
	return CMD_DONE;
}

const struct command_entry cmd_noop = {.run = run_noop};

/* ---- layouts ------------------------------------------------------------------------------ */

static struct layout_entry *find_hash(const struct core *core, const uint8_t *hash)
{
	for (size_t i = 0; i < core->layouts.n; i++) {
		struct layout_entry *entry = core->layouts.items[i].thing;

		if (memcmp(entry->layout->hash, hash, KV_HASH_BYTES) == 0)
			return entry;
	}
	return NULL;
}

static uint32_t count_of_user(const struct core *core, uint32_t uid)
{
	uint32_t n = 0;

	for (size_t i = 0; i < core->layouts.n; i++) {
		const struct layout_entry *entry = core->layouts.items[i].thing;

		for (uint32_t u = 0; u < entry->n_uids; u++)
			n += entry->uids[u] == uid;
	}
	return n;
}

static void register_user(struct core *core, struct layout_entry *entry, uint32_t uid)
{
	uint32_t *uids = realloc(entry->uids, (entry->n_uids + 1) * sizeof(uids[0]));

	if (!uids)
		state_die("no memory for layouts");
	entry->uids = uids;
	uids[entry->n_uids++] = uid;
	log_layout(core, entry, uid);
}

static bool is_registered(const struct layout_entry *entry, uint32_t uid)
{
	for (uint32_t i = 0; i < entry->n_uids; i++)
		if (entry->uids[i] == uid)
			return true;
	return false;
}

static void reply_layout(struct command *cmd, const struct layout_entry *entry, bool fields)
{
	Kv__Wire__LayoutResult *result = reply_alloc(1, sizeof(*result));

	kv__wire__layout_result__init(result);
	result->layout_id = entry->id;
	result->hash = reply_bytes(entry->layout->hash, KV_HASH_BYTES);
	cmd->reply->result_case = KV__WIRE__REPLY__RESULT_LAYOUT;
	cmd->reply->layout = result;
	if (fields) {
		/* a copy that belongs to the reply: packed and unpacked again */
		Kv__Wire__Layout *borrowed = kv_layout_to_wire(entry->layout);
		size_t n = borrowed ? kv__wire__layout__get_packed_size(borrowed) : 0;
		uint8_t *bytes = state_alloc(1, n);

		if (borrowed) {
			kv__wire__layout__pack(borrowed, bytes);
			result->layout = kv__wire__layout__unpack(NULL, n, bytes);
			kv_layout_wire_free(borrowed);
		}
		free(bytes);
	}
}

const struct layout_entry *layout_register(struct core *core, uint32_t uid,
					   const Kv__Wire__Layout *wire, struct errbuf *err)
{
	struct layout_entry *entry;
	struct kv_layout *layout = kv_layout_from_wire(wire, err);

	if (!layout)
		return NULL;
	entry = find_hash(core, layout->hash);
	if ((!entry || !is_registered(entry, uid)) &&
	    count_of_user(core, uid) >= LAYOUTS_PER_USER_MAX) {
		kv_layout_free(layout);
		errbuf_set(err, KV_ELIMIT, "user %u has registered %u layouts, the limit", uid,
			   LAYOUTS_PER_USER_MAX);
		return NULL;
	}
	if (entry) {
		kv_layout_free(layout);
	} else {
		entry = state_alloc(1, sizeof(*entry));
		entry->id = core_new_id(core);
		entry->layout = layout;
		if (idlist_add(&core->layouts, entry->id, entry))
			state_die("no memory for layouts");
	}
	if (!is_registered(entry, uid))
		register_user(core, entry, uid);
	return entry;
}

static enum cmd_step run_layout_register(struct command *cmd)
{
	const Kv__Wire__Layout *wire = cmd->request->layout_register->layout;
	const struct layout_entry *entry;

	if (!wire)
		return cmd_fail(cmd, KV_EINVAL, "a layout is missing");
	entry = layout_register(cmd->core, cmd->session->uid, wire, &cmd->err);
	if (!entry)
		return CMD_FAIL;
	reply_layout(cmd, entry, false);
	return CMD_DONE;
}

const struct command_entry cmd_layout_register = {.run = run_layout_register, .changes = true};

static enum cmd_step run_layout_get(struct command *cmd)
{
	const Kv__Wire__LayoutGet *get = cmd->request->layout_get;
	const struct layout_entry *entry;

	if (get->hash.len == 0) {
		entry = cmd_layout(cmd, get->layout_id);
		if (!entry)
			return CMD_FAIL;
	} else {
		entry = get->hash.len == KV_HASH_BYTES ? find_hash(cmd->core, get->hash.data) :
							 NULL;
		if (!entry || !is_registered(entry, cmd->session->uid))
			return cmd_fail(cmd, KV_ENOTFOUND, "no layout of that hash is registered");
	}
	reply_layout(cmd, entry, true);
	return CMD_DONE;
}

const struct command_entry cmd_layout_get = {.run = run_layout_get};

/* ---- writers ------------------------------------------------------------------------------ */

static enum cmd_step run_writer_new(struct command *cmd)
{
	struct session *session = cmd->session;
	Kv__Wire__WriterResult *result;
	uint32_t w = 0;

	while (w < KV_WRITERS_MAX && session->writers[w].in_use)
		w++;
	if (w == KV_WRITERS_MAX)
		return cmd_fail(cmd, KV_ELIMIT, "the session has %u writers, the limit; free one",
				KV_WRITERS_MAX);
	session->writers[w] = (struct writer){.in_use = true};
	segment_writer_init(&session->segment, w);
	atomic_store_explicit(&segment_writer(&session->segment, w)->n_reserved_bytes, 0,
			      memory_order_relaxed);
	log_writer(cmd->core, session, w);
	result = reply_alloc(1, sizeof(*result));
	kv__wire__writer_result__init(result);
	result->writer = w;
	cmd->reply->result_case = KV__WIRE__REPLY__RESULT_WRITER;
	cmd->reply->writer = result;
	return CMD_DONE;
}

const struct command_entry cmd_writer_new = {.run = run_writer_new, .changes = true};

static enum cmd_step run_writer_free(struct command *cmd)
{
	struct session *session = cmd->session;
	uint32_t w = cmd->request->writer_free->writer;

	if (session_check_writer(session, w, &cmd->err))
		return CMD_FAIL;
	if (session->writers[w].n_places)
		return cmd_fail(cmd, KV_EBUSY, "writer %u has %u places; free its sequences first",
				w, session->writers[w].n_places);
	session->writers[w].in_use = false;
	atomic_store_explicit(&segment_writer(&session->segment, w)->in_use, 0,
			      memory_order_release);
	log_writer(cmd->core, session, w);
	return CMD_DONE;
}

const struct command_entry cmd_writer_free = {.run = run_writer_free, .changes = true};

/* ---- waiting ------------------------------------------------------------------------------ */

static enum cmd_step run_wait(struct command *cmd)
{
	const char *name = cmd->request->wait->name;

	if (kv_name_check(name, &cmd->err))
		return CMD_FAIL;
	if (names_find(cmd->core, cmd->session->uid, name))
		return CMD_DONE;
	cmd->wake = WAKE_NAME;
	errbuf_set(&cmd->err, KV_ETIMEOUT, "nothing named %s appeared within %llu ms", name,
		   (unsigned long long)((cmd->deadline_ns - cmd->began_ns) / LOOP_NS_PER_MS));
	return CMD_WAIT;
}

const struct command_entry cmd_wait = {.run = run_wait};
