/* Writers and places of a session (daemon/session.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

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

/* In a circle, so that a place is not another sequence's soon; in a small one, so that pages which
 * are there are used again. */
#define CIRCLE_MORE 64u

static uint32_t free_place(struct session *session)
{
	if (session->next_place >= session->n_places + CIRCLE_MORE)
		session->next_place = 0;
	while (session->places[session->next_place % KV_PLACES_MAX])
		session->next_place++;
	return session->next_place++ % KV_PLACES_MAX;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* A store to a page that the machine has no memory for would be SIGBUS. */
static int populate(const struct segment *segment, uint64_t off, uint64_t n_bytes,
		    struct errbuf *err)
{
	uint64_t n = (n_bytes + KV_SHM_PAGE - 1) & ~(uint64_t)(KV_SHM_PAGE - 1);

	if (n == 0 || madvise((char *)segment->base + off, n, MADV_POPULATE_WRITE) == 0 ||
	    fallocate(segment->fd, FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)n) == 0)
		return 0;
	return errbuf_errno(err, KV_ENOMEM, errno, "no memory for %llu bytes of a block table",
			    (unsigned long long)n);
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
	if (populate(&session->segment,
		     (uint64_t)((char *)segment_place(&session->segment, place->seg.index) -
				(char *)session->segment.base),
		     sizeof(struct kv_shm_place), err)) {
		segment_table_free(&session->segment, &place->seg);
		free(place);
		return NULL;
	}
	session->places[place->seg.index] = place;
	session->n_places++;
	session->writers[writer].n_places++;
	return place;
}

struct preparing {
	const struct segment *segment;
	uint64_t table_off;
	struct errbuf *err;
};

static int populate_range(void *arg, uint32_t entry, uint64_t i, uint64_t n)
{
	const struct preparing *p = arg;
	uint64_t off = p->table_off + entry * sizeof(struct kv_shm_entry);
	uint64_t page = off & ~(uint64_t)(KV_SHM_PAGE - 1);

	(void)i;
	return populate(p->segment, page, off - page + n * sizeof(struct kv_shm_entry), p->err);
}

int session_place_prepare(struct session *session, const struct place *place,
			  const struct state *state, struct errbuf *err)
{
	for (uint32_t g = 0; g < place->seg.n_groups; g++) {
		struct preparing p = {&session->segment, place->seg.table_off[g], err};

		if (segment_ranges(&place->seg, g, state->first_block[g], state->n_blocks[g],
				   populate_range, &p))
			return -1;
	}
	return 0;
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
