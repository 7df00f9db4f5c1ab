/* What handlers share (daemon/command.h). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/command.h"
#include "daemon/live.h"
#include "daemon/names.h"
#include "daemon/objects.h"
#include "daemon/session.h"

enum cmd_step cmd_fail(struct command *cmd, int status, const char *format, ...)
{
	char text[KV_ERRBUF_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	errbuf_set(&cmd->err, status, "%s", text);
	return CMD_FAIL;
}

void *reply_alloc(size_t n, size_t size)
{
	return state_alloc(n, size);
}

char *reply_string(const char *text)
{
	return state_copy(text ? text : "", (text ? strlen(text) : 0) + 1);
}

ProtobufCBinaryData reply_bytes(const void *bytes, size_t n)
{
	ProtobufCBinaryData data = {.len = n};

	data.data = n ? state_copy(bytes, n) : NULL;
	return data;
}

static bool registered_by(const struct layout_entry *entry, uint32_t uid)
{
	for (uint32_t i = 0; i < entry->n_uids; i++)
		if (entry->uids[i] == uid)
			return true;
	return false;
}

const struct layout_entry *cmd_layout(struct command *cmd, uint64_t layout_id)
{
	struct layout_entry *entry = idlist_find(&cmd->core->layouts, layout_id);

	if (entry && registered_by(entry, cmd->session->uid))
		return entry;
	errbuf_set(&cmd->err, KV_ENOTFOUND, "layout %llu is not registered",
		   (unsigned long long)layout_id);
	return NULL;
}

int cmd_max_tokens(struct command *cmd, uint64_t *max_tokens)
{
	if (*max_tokens == 0)
		*max_tokens = KV_TOKENS_DEFAULT;
	if (*max_tokens <= KV_TOKENS_MAX)
		return 0;
	return errbuf_set(&cmd->err, KV_ERANGE, "max_tokens is %llu, the limit is %u",
			  (unsigned long long)*max_tokens, KV_TOKENS_MAX);
}

int cmd_check_count(struct command *cmd, size_t n, const char *what)
{
	if (n >= 1 && n <= KV_TARGETS_MAX)
		return 0;
	return errbuf_set(&cmd->err, KV_ELIMIT, "a command has %zu %s; 1 to %u are allowed", n,
			  what, KV_TARGETS_MAX);
}

static int by_place(struct command *cmd, uint32_t index, struct target *target)
{
	target->session = cmd->session;
	target->place = session_place(cmd->session, index, &cmd->err);
	if (!target->place)
		return -1;
	target->object = target->place->object;
	return 0;
}

static int found(struct target *target)
{
	if (target->object->state)
		return 0;
	target->session = target->object->session;
	target->place = target->session->places[target->object->place];
	return 0;
}

int cmd_target(struct command *cmd, const Kv__Wire__Target *wire, struct target *target)
{
	uint32_t uid = cmd->session->uid;

	*target = (struct target){0};
	switch (wire ? wire->which_case : KV__WIRE__TARGET__WHICH__NOT_SET) {
	case KV__WIRE__TARGET__WHICH_PLACE: return by_place(cmd, wire->place, target);
	case KV__WIRE__TARGET__WHICH_NAME:
		if (strlen(wire->name) <= KV_NAME_BYTES_MAX)
			target->object = names_find(cmd->core, uid, wire->name);
		if (target->object)
			return found(target);
		return errbuf_set(&cmd->err, KV_ENOTFOUND, "no sequence or snapshot is named %.*s",
				  (int)KV_NAME_BYTES_MAX, wire->name);
	case KV__WIRE__TARGET__WHICH_ID:
		target->object = object_find(cmd->core, uid, wire->id);
		if (target->object)
			return found(target);
		return errbuf_set(&cmd->err, KV_ENOTFOUND,
				  "no sequence or snapshot has number %llu",
				  (unsigned long long)wire->id);
	default:
		return errbuf_set(&cmd->err, KV_EINVAL,
				  "a target has neither name, number nor place");
	}
}

const char *target_text(const struct target *target, char *out, size_t n_out)
{
	if (target->object && target->object->name)
		snprintf(out, n_out, "%s", target->object->name);
	else if (target->object)
		snprintf(out, n_out, "%llu", (unsigned long long)target->object->id);
	else
		snprintf(out, n_out, "the local fork in place %u", target->place->seg.index);
	return out;
}
