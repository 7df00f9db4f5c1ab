/* What a session sees of others: arena numbers, and pins of the objects whose blocks it uses. */
#include <stdlib.h>

#include "daemon/arena_store.h"
#include "daemon/objects.h"
#include "daemon/session.h"
#include "daemon/state_log.h"

/* ---- arena numbers ------------------------------------------------------------------------ */

uint32_t session_number_of(const struct session *session, const struct arena *arena)
{
	for (uint32_t n = 1; n < session->numbers_end; n++)
		if (session->numbers[n].arena == arena)
			return n;
	return 0;
}

/* The next free number in a circle, so that a number is not another arena's soon. */
static uint32_t free_number(struct session *session)
{
	for (uint32_t i = 0; i < KV_ARENAS_MAX; i++) {
		uint32_t n = session->next_number++;

		if (session->next_number == KV_ARENAS_MAX)
			session->next_number = 1;
		if (!session->numbers[n].arena)
			return n;
	}
	return 0;
}

uint32_t session_number(struct session *session, struct arena *arena, struct errbuf *err)
{
	uint32_t number = session_number_of(session, arena);

	if (number) {
		session->numbers[number].n_uses++;
		return number;
	}
	number = session->n_numbers < KV_ARENAS_MAX - 1 ? free_number(session) : 0;
	if (number == 0) {
		errbuf_set(err, KV_ELIMIT,
			   "the session sees %u arenas, the limit; free forks and open snapshots",
			   session->n_numbers);
		return 0;
	}
	session->numbers[number] = (struct number){arena, 1};
	session->n_numbers++;
	if (number >= session->numbers_end)
		session->numbers_end = number + 1;
	arena->n_numbers++;
	segment_set_arena(&session->segment, number, arena->id);
	log_number(session->core, session, number);
	return number;
}

void session_number_release(struct session *session, struct arena *arena)
{
	uint32_t number = session_number_of(session, arena);

	if (number == 0 || --session->numbers[number].n_uses)
		return;
	session->numbers[number].arena = NULL;
	session->n_numbers--;
	arena->n_numbers--;
	if (session->segment.base)
		segment_set_arena(&session->segment, number, 0);
	log_number(session->core, session, number);
	arenas_touch(session->core, arena);
}

struct arena *session_arena(const struct session *session, uint32_t number)
{
	return number < KV_ARENAS_MAX ? session->numbers[number].arena : NULL;
}

/* ---- pins --------------------------------------------------------------------------------- */

struct session_pin *session_pin_find(const struct session *session, const struct object *object)
{
	for (uint32_t i = session->n_pins; i-- > 0;)
		if (session->pins[i].object == object)
			return &session->pins[i];
	return NULL;
}

static struct session_pin *pin_new(struct session *session, struct object *object,
				   struct errbuf *err)
{
	const struct state *state = object->state;

	for (uint32_t i = 0; i < state->n_arenas; i++) {
		if (session_number(session, state->arenas[i].arena, err))
			continue;
		while (i-- > 0)
			session_number_release(session, state->arenas[i].arena);
		return NULL;
	}
	if (session->n_pins == session->pins_cap) {
		uint32_t cap = session->pins_cap ? session->pins_cap * 2 : 16;
		struct session_pin *pins = realloc(session->pins, cap * sizeof(pins[0]));

		if (!pins)
			state_die("no memory for pins");
		session->pins = pins;
		session->pins_cap = cap;
	}
	object->n_pins++;
	session->pins[session->n_pins] = (struct session_pin){.object = object};
	return &session->pins[session->n_pins++];
}

int session_pin(struct session *session, struct object *object, bool by_client, struct errbuf *err)
{
	struct session_pin *pin = session_pin_find(session, object);

	if (!pin)
		pin = pin_new(session, object, err);
	if (!pin)
		return -1;
	if (!by_client) {
		pin->n_places++;
	} else if (!pin->by_client) {
		pin->by_client = true;
		log_pin(session->core, session, pin);
	}
	return 0;
}

void session_unpin(struct session *session, struct object *object, bool by_client)
{
	struct session_pin *pin = session_pin_find(session, object);
	struct state *state = object->state;

	if (!pin)
		return;
	if (!by_client && pin->n_places) {
		pin->n_places--;
	} else if (by_client && pin->by_client) {
		pin->by_client = false;
		log_pin(session->core, session, pin);
	}
	if (pin->n_places || pin->by_client)
		return;
	*pin = session->pins[--session->n_pins];
	for (uint32_t i = 0; i < state->n_arenas; i++)
		session_number_release(session, state->arenas[i].arena);
	object->n_pins--;
	object_collect(session->core, object);
}
