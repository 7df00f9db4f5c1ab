#include "daemon/events.h"

void event_note(struct core *core, enum event_kind kind, uint64_t id, uint64_t session,
		uint32_t uid, uint64_t length_tokens)
{
	if (core->is_loading)
		return;
	if (core->n_noted == EVENTS_NOTED_MAX)
		events_flush(core); /* a little early: better than lost */
	core->noted[core->n_noted++] = (struct noted_event){(uint32_t)kind, uid, id, session,
							    length_tokens};
}

static void send(struct core *core, const struct noted_event *noted)
{
	Kv__Wire__Event event = KV__WIRE__EVENT__INIT;
	uint8_t bytes[128];

	event.number = ++core->n_events;
	event.boot.data = core->env->boot;
	event.boot.len = BOOT_BYTES;
	event.kind = noted->kind;
	event.id = noted->id;
	event.session = noted->session;
	event.uid = noted->uid;
	event.length_tokens = noted->length_tokens;
	if (kv__wire__event__get_packed_size(&event) <= sizeof(bytes))
		front_link_event(core->env->front, bytes, kv__wire__event__pack(&event, bytes));
}

void events_flush(struct core *core)
{
	for (uint32_t i = 0; i < core->n_noted; i++)
		send(core, &core->noted[i]);
	core->n_noted = 0;
}
