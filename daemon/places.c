/* Writers and places of a session (daemon/session.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/arena_store.h"
#include "daemon/session.h"
#include "daemon/state_log.h"

int session_check_writer(const struct session *session, uint32_t writer, struct errbuf *err)
{
	if (writer < KV_WRITERS_MAX && session->writers[writer].in_use)
		return 0;
	return errbuf_set(err, KV_EINVAL, "writer %u is not one of this session", writer);
}

struct place *session_place(const struct session *session, uint32_t index, struct errbuf *err)
{
	if (index < KV_PLACES_MAX && session->places[index])
		return session->places[index];
	errbuf_set(err, KV_ENOTFOUND, "place %u of this session holds nothing", index);
	return NULL;
}

/* In a circle, so that a place is not another sequence's soon. */
static uint32_t free_place(struct session *session)
{
	while (session->places[session->next_place % KV_PLACES_MAX])
		session->next_place++;
	return session->next_place++ % KV_PLACES_MAX;
}

struct place *session_place_new(struct session *session, enum place_kind kind, uint32_t writer,
				const struct layout_entry *layout, uint64_t max_tokens,
				struct errbuf *err)
{
	struct place *place;

	if (session_check_writer(session, writer, err))
		return NULL;
	if (session->n_places == KV_PLACES_MAX) {
		errbuf_set(err, KV_ELIMIT,
			   "the session has %u sequences and open snapshots, the limit; free some",
			   KV_PLACES_MAX);
		return NULL;
	}
	place = state_alloc(1, sizeof(*place));
	place->kind = kind;
	place->layout = layout;
	place->seg.writer = writer;
	place->seg.layout_id = layout->id;
	place->seg.max_tokens = max_tokens;
	if (segment_table_alloc(&session->segment, &place->seg, layout->layout, err)) {
		free(place);
		return NULL;
	}
	place->seg.index = free_place(session);
	session->places[place->seg.index] = place;
	session->n_places++;
	session->writers[writer].n_places++;
	return place;
}

/* The room is another's only after the log says that it is not this one's. */
static void return_tables(struct session *session, const struct place *place)
{
	struct table_return *back = state_alloc(1, sizeof(*back));

	back->session_id = session->id;
	back->seg = place->seg;
	back->next = session->core->tables_back;
	session->core->tables_back = back;
}

void session_place_free(struct session *session, struct place *place)
{
	session->places[place->seg.index] = NULL;
	session->n_places--;
	session->writers[place->seg.writer].n_places--;
	log_place_free(session->core, session, place->seg.index);
	return_tables(session, place);
	if (place->base)
		session_unpin(session, place->base, false);
	free(place);
}

bool session_owns(const struct session *session, const struct arena *arena, uint32_t block)
{
	return arena->session_id == session->id && block < arena->n_blocks &&
	       arena_has_granted(arena, block);
}
