/*
 * Everything from the catalogue again (daemon/state_log.h): the passes over its records, and what
 * follows from them. What one record means is in daemon/state_records.c.
 *
 * First the ids of what has gone are collected: no record of theirs is looked at. Then the others
 * are read in order, each replacing what an earlier one said. Then what follows from them is
 * counted: pins of objects, uses of arena numbers. Digests come last, for they are true only of
 * blocks that something pins.
 *
 * The catalogue is the core's own, but a record that does not fit (a number out of range, a
 * descriptor that the keeper does not have) refuses the whole: better empty than wrong. Core
 * thread, at the start.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/arena_store.h"
#include "daemon/objects.h"
#include "daemon/recover.h"
#include "daemon/session.h"
#include "daemon/state_log.h"
#include "daemon/state_records.h"

static int collect_gone(void *arg, enum cat_type type, const void *payload, uint32_t n_bytes,
			struct errbuf *err)
{
	struct loader *loader = arg;
	const struct cat_watch *watch = payload;
	uint64_t id;

	switch (type) {
	case CAT_WATCH:
		if (n_bytes < sizeof(*watch))
			return records_bad(err, "a watch");
		if (watch->n_name)
			return 0;
		break;
	case CAT_SESSION_GONE:
	case CAT_ARENA_GONE:
	case CAT_STATE_GONE:
	case CAT_OBJECT_GONE:
		if (n_bytes < sizeof(struct cat_gone))
			return records_bad(err, "what has gone");
		break;
	default: return 0;
	}
	memcpy(&id, payload, sizeof(id)); /* first in all of them */
	if (idlist_push(&loader->gone, id, loader))
		state_die("no memory to load the catalogue");
	return 0;
}

/* In the order of a long life: sorted once, not one by one. */
static int collect_all_gone(struct loader *loader, struct errbuf *err)
{
	if (catalogue_each(&loader->core->catalogue, collect_gone, loader, err))
		return -1;
	idlist_sort(&loader->gone);
	return 0;
}

static int first_pass(void *arg, enum cat_type type, const void *payload, uint32_t n_bytes,
		      struct errbuf *err)
{
	return records_load(arg, 1, type, payload, n_bytes, err);
}

static int second_pass(void *arg, enum cat_type type, const void *payload, uint32_t n_bytes,
		       struct errbuf *err)
{
	return records_load(arg, 2, type, payload, n_bytes, err);
}

/* ---- what follows ------------------------------------------------------------------------- */

/* A live sequence has one place, which has it; an open snapshot has any number. */
static bool place_is_true(const struct session *session, const struct place *place)
{
	const struct object *object = place->object, *base = place->base;

	if (base && base->layout != place->layout)
		return false;
	switch (place->kind) {
	case PLACE_SPARE: return !object && !base;
	case PLACE_SEQUENCE:
		return object && !object->state && object->session == session &&
		       object->place == place->seg.index && object->layout == place->layout;
	case PLACE_OPEN: return object && object->state && object == base;
	default: return false;
	}
}

static int count_uses(struct session *session, struct errbuf *err)
{
	for (uint32_t i = 0; i < KV_PLACES_MAX; i++) {
		struct place *place = session->places[i];

		if (place && !place_is_true(session, place))
			return records_bad(err,
					   "a place whose sequence or snapshot does not name it");
		if (place && place->base)
			records_pin(session, place->base)->n_places++;
	}
	for (uint32_t i = 0; i < session->n_pins;) {
		struct session_pin *pin = &session->pins[i];

		if (!pin->by_client && !pin->n_places) {
			*pin = session->pins[--session->n_pins];
			continue;
		}
		if (!pin->object->state)
			return records_bad(err, "a pin of a live sequence");
		pin->object->n_pins++;
		for (uint32_t a = 0; a < pin->object->state->n_arenas; a++) {
			struct arena *arena = pin->object->state->arenas[a].arena;
			uint32_t number = session_number_of(session, arena);

			if (number == 0)
				return records_bad(err, "a pin without arena number");
			session->numbers[number].n_uses++;
		}
		i++;
	}
	for (uint32_t n = 1; n < session->numbers_end; n++) {
		struct number *number = &session->numbers[n];

		if (!number->arena)
			continue;
		number->n_uses += number->arena->session_id == session->id;
		number->arena->n_numbers++;
		session->n_numbers++;
	}
	return 0;
}

/* A sequence has a state, or a writer with a place for it; of a snapshot that has no name the
 * session says who holds it. */
static bool object_is_true(const struct object *object)
{
	const struct place *place = NULL;

	if (object->kind == OBJECT_SNAPSHOT)
		return object->state != NULL;
	if (object->state)
		return !object->session;
	if (object->session && object->place < KV_PLACES_MAX)
		place = object->session->places[object->place];
	return place && place->object == object && object->listed;
}

static int check_objects(const struct core *core, struct errbuf *err)
{
	for (size_t i = 0; i < core->objects.n; i++)
		if (!object_is_true(core->objects.items[i].thing))
			return records_bad(err,
					   "a sequence without state or writer, or with both,");
	return 0;
}

/* The references that held all states while they were read. */
static void drop_unused(struct core *core)
{
	for (size_t i = 0; i < core->objects.n;) {
		struct object *object = core->objects.items[i].thing;
		uint64_t id = object->id;

		object_collect(core, object);
		i = idlist_after(&core->objects, id);
	}
	for (size_t i = 0; i < core->states.n;) {
		struct state *state = core->states.items[i].thing;
		uint64_t id = state->id;

		state_unref(core, state);
		i = idlist_after(&core->states, id);
	}
	for (size_t i = 0; i < core->arenas.n;) {
		struct arena *arena = core->arenas.items[i].thing;
		uint64_t id = arena->id;

		/* whether there is memory behind what was given back is not known: none is kept warm.
		 * It is zeroed behind the first answers. */
		arena->is_cold = arena->n_dirty > 0;
		arenas_touch(core, arena);
		i = idlist_after(&core->arenas, id);
	}
}

static bool is_known(const struct core *core, const struct kept *kept)
{
	const struct session *session;

	switch (kept->kind) {
	case KEPT_CATALOGUE: return true;
	case KEPT_ARENA: return arenas_find(core, kept->id) != NULL;
	case KEPT_SEGMENT: /* one that has ended has none */
		session = session_find(core, kept->id);
		return session && session->phase != SESSION_ENDED;
	case KEPT_PIDFD: return session_find(core, kept->id) != NULL;
	case KEPT_WATCH:
		for (size_t i = 0; i < core->sessions.n; i++) {
			session = core->sessions.items[i].thing;

			for (uint32_t w = 0; w < session->n_watches; w++)
				if (session->watches[w].id == kept->id)
					return true;
		}
	}
	return false;
}

static void close_kept(struct core *core)
{
	for (size_t i = 0; i < core->env->n_kept; i++) {
		const struct kept *kept = &core->env->kept[i];

		if (!is_known(core, kept))
			keeper_drop(core->env->keeper, kept->kind, kept->id);
		close(kept->fd);
	}
}

static int adopt_segments(struct core *core, struct errbuf *err)
{
	for (size_t i = 0; i < core->sessions.n; i++) {
		struct session *session = core->sessions.items[i].thing;
		int fd = records_kept_fd(core, KEPT_SEGMENT, session->id);

		if (session->phase == SESSION_ENDED) {
			if (fd >= 0)
				close(fd);
			continue;
		}
		if (fd < 0)
			return records_bad(
				err, "a session whose control segment the keeper does not have");
		if (segment_adopt(&session->segment, fd, err))
			return -1;
		for (uint32_t p = 0; p < KV_PLACES_MAX; p++)
			if (session->places[p] &&
			    segment_table_take(&session->segment, &session->places[p]->seg, err))
				return -1;
		if (segment_tables_taken(&session->segment, err))
			return -1;
	}
	return 0;
}

int state_load(struct core *core, struct errbuf *err)
{
	struct loader loader = {.core = core};
	int fd = records_kept_fd(core, KEPT_CATALOGUE, 0);
	int rc;

	core->is_loading = true;
	rc = catalogue_adopt(&core->catalogue, fd, err) || collect_all_gone(&loader, err) ||
	     catalogue_each(&core->catalogue, first_pass, &loader, err) ||
	     catalogue_each(&core->catalogue, second_pass, &loader, err) ||
	     check_objects(core, err);
	for (size_t i = 0; rc == 0 && i < core->sessions.n; i++)
		rc = count_uses(core->sessions.items[i].thing, err);
	if (rc == 0)
		rc = adopt_segments(core, err);
	core->is_loading = false;
	idlist_fini(&loader.gone);
	if (rc)
		return -1;
	drop_unused(core);
	state_make_true(core); /* before the keeper lets go of it */
	close_kept(core);
	core->names_changed = true; /* a watch may have come true just before the end */
	recover_sessions(core);
	return 0;
}
