#include "client/ctl/object.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/shm.h"

enum { SEQUENCE = 1, SNAPSHOT = 2 };
enum { LIVE = 1, PARKED = 2 };

static void list_add(struct object_list *list, Kv__Wire__Reply *reply)
{
	const Kv__Wire__ObjectsResult *page = reply->objects;
	Kv__Wire__Object **objects = ctl_alloc(list->n_objects + page->n_objects, sizeof(*objects));
	Kv__Wire__Reply **replies = ctl_alloc(list->n_replies + 1, sizeof(*replies));

	if (list->n_objects > 0)
		memcpy(objects, list->objects, list->n_objects * sizeof(*objects));
	if (page->n_objects > 0)
		memcpy(objects + list->n_objects, page->objects,
		       page->n_objects * sizeof(*objects));
	if (list->n_replies > 0)
		memcpy(replies, list->replies, list->n_replies * sizeof(*replies));
	free(list->objects);
	free(list->replies);
	list->objects = objects;
	list->n_objects += page->n_objects;
	list->replies = replies;
	list->replies[list->n_replies++] = reply;
}

int object_list_get(struct ctl *ctl, const char *prefix, struct object_list *list, int *code)
{
	Kv__Wire__List message = KV__WIRE__LIST__INIT;
	uint64_t after;
	bool more;

	memset(list, 0, sizeof(*list));
	message.prefix = (char *)(uintptr_t)prefix;
	message.local = true;
	do {
		Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
		Kv__Wire__Reply *reply;

		request.command_case = KV__WIRE__REQUEST__COMMAND_LIST;
		request.list = &message;
		if (ctl_ask_for(ctl, &request, KV__WIRE__REPLY__RESULT_OBJECTS, &reply, code)) {
			object_list_fini(list);
			return -1;
		}
		list_add(list, reply);
		after = message.after_id;
		for (size_t i = 0; i < reply->objects->n_objects; i++)
			if (reply->objects->objects[i]->id > message.after_id)
				message.after_id = reply->objects->objects[i]->id;
		more = reply->objects->more && message.after_id > after;
	} while (more);
	return 0;
}

void object_list_fini(struct object_list *list)
{
	for (size_t i = 0; i < list->n_replies; i++)
		ctl_free_reply(list->replies[i]);
	free(list->replies);
	free(list->objects);
	memset(list, 0, sizeof(*list));
}

const Kv__Wire__Object *object_ask(struct ctl *ctl, Kv__Wire__Target *target,
				   Kv__Wire__Reply **reply, int *code)
{
	Kv__Wire__Show message = KV__WIRE__SHOW__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;

	message.source = target;
	request.command_case = KV__WIRE__REQUEST__COMMAND_SHOW;
	request.show = &message;
	if (ctl_ask_for(ctl, &request, KV__WIRE__REPLY__RESULT_OBJECTS, reply, code))
		return NULL;
	if ((*reply)->objects->n_objects > 0)
		return (*reply)->objects->objects[0];
	ctl_free_reply(*reply);
	*reply = NULL;
	*code = ctl_unexpected(ctl);
	return NULL;
}

bool object_is_snapshot(const Kv__Wire__Object *object)
{
	return object->kind == SNAPSHOT;
}

const char *object_state(const Kv__Wire__Object *object)
{
	if (object->local)
		return object->kind == SNAPSHOT ? "local snapshot" : "local fork";
	if (object->kind == SNAPSHOT)
		return "snapshot";
	return object->state == PARKED ? "parked" : "live";
}

enum colour object_colour(const Kv__Wire__Object *object)
{
	if (object->local)
		return DIM;
	if (object->kind == SNAPSHOT)
		return CYAN;
	return object->state == PARKED ? YELLOW : GREEN;
}

struct units_text object_number(const Kv__Wire__Object *object)
{
	struct units_text text;

	if (object->local)
		snprintf(text.s, sizeof(text.s), "%" PRIu64 ":%" PRIu32, object->session,
			 object->place);
	else
		snprintf(text.s, sizeof(text.s), "@%" PRIu64, object->id);
	return text;
}

struct units_line object_label(const Kv__Wire__Object *object)
{
	if (object->name && object->name[0])
		return units_clean(object->name);
	return units_clean(object_number(object).s);
}

struct units_text object_age(const struct ctl *ctl, const Kv__Wire__Object *object)
{
	struct units_text text = {"-"};

	if (object->created_unix_ns == 0 || object->created_unix_ns > ctl->now_unix_ns)
		return text;
	return units_age((ctl->now_unix_ns - object->created_unix_ns) / 1000000);
}

json_t *object_hex(const ProtobufCBinaryData *bytes)
{
	char hex[2 * 64 + 1];

	if (bytes->len == 0 || bytes->len > 64)
		return json_null();
	units_hex(hex, bytes->data, bytes->len);
	return json_string(hex);
}

const char *object_journal_mode(const Kv__Wire__Object *o)
{
	static const char *const modes[] = {"none", "undo", "replay"};

	return o->journal_mode < sizeof(modes) / sizeof(modes[0]) ? modes[o->journal_mode] : "?";
}

json_t *object_json(const Kv__Wire__Object *o)
{
	bool parent_local = o->parent_id & KV_PARENT_PLACE;

	return json_pack("{s:I, s:s, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
			 " s:o, s:o, s:I, s:b, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I}",
			 "id", (json_int_t)(o->local ? 0 : o->id), "kind",
			 o->kind == SNAPSHOT ? "snapshot" : "sequence", "state", object_state(o),
			 "name",
			 o->name && o->name[0] ? json_string(units_clean(o->name).s) : json_null(),
			 "layout_hash", object_hex(&o->layout_hash), "length_tokens",
			 (json_int_t)o->length_tokens, "update", (json_int_t)o->update, "n_bytes",
			 (json_int_t)o->n_bytes, "n_shared_bytes", (json_int_t)o->n_shared_bytes,
			 "uid", (json_int_t)o->uid, "session", (json_int_t)o->session, "parent_id",
			 (json_int_t)(parent_local ? 0 : o->parent_id), "parent_update",
			 (json_int_t)o->parent_update, "created_unix_ns",
			 (json_int_t)o->created_unix_ns, "parent_place",
			 parent_local ?
				 json_integer((json_int_t)(o->parent_id & ~KV_PARENT_PLACE)) :
				 json_null(),
			 "digest", object_hex(&o->digest), "n_users", (json_int_t)o->n_users,
			 "local", (int)(o->local != 0), "place", (json_int_t)o->place, "n_marks",
			 (json_int_t)o->n_marks, "freeze_count", (json_int_t)o->freeze_count,
			 "n_runs", (json_int_t)o->n_runs, "journal_mode", object_journal_mode(o),
			 "n_journal_rows", (json_int_t)o->n_journal_rows, "base_tokens",
			 (json_int_t)o->base_tokens, "position", (json_int_t)o->position,
			 "n_journal_bytes", (json_int_t)o->n_journal_bytes);
}
