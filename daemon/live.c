#include "daemon/live.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/hold.h"
#include "daemon/objects.h"
#include "daemon/session.h"
#include "daemon/state_log.h"

#define PEEK_TRIES 16
#define PARK_TRIES 1000

/* ---- blocks ------------------------------------------------------------------------------- */

/* The state whose blocks a place may use besides those of its session; NULL: none. */
static const struct state *base_of(const struct session *session, const struct place *place)
{
	const struct kv_shm_place *shm;
	struct object *base;
	uint64_t id;

	if (place->base)
		return place->base->state;
	if (place->kind != PLACE_SPARE)
		return NULL;
	shm = segment_place(&session->segment, place->seg.index);
	id = atomic_load_explicit(&shm->base_id, memory_order_acquire);
	base = id ? idlist_find(&session->core->objects, id) : NULL;
	return base && session_pin_find(session, base) ? base->state : NULL;
}

bool live_owns_arena(const struct session *session, const struct place *place, uint32_t group,
		     const struct arena *arena)
{
	return arena && arena->session_id == session->id && arena->layout_id == place->layout->id &&
	       arena->group == group;
}

static int bad_block(const struct session *session, const struct place *place, uint32_t g,
		     uint64_t i, uint64_t ref, struct errbuf *err)
{
	return errbuf_set(err, KV_ECORRUPT,
			  "sequence %llu (place %u of session %llu): block %llu of group %u names "
			  "block %u of arena %u, which the session may not use",
			  place->object ? (unsigned long long)place->object->id : 0,
			  place->seg.index, (unsigned long long)session->id, (unsigned long long)i,
			  g, kv_ref_block(ref), kv_ref_arena(ref));
}

/* Blocks of a base in a group, by number. */
struct base_blocks {
	const uint64_t *refs;
	uint64_t first, n;
};

static struct base_blocks base_blocks(const struct state *base, const struct place *place,
				      uint32_t g)
{
	if (!base || base->layout != place->layout)
		return (struct base_blocks){NULL, 0, 0};
	return (struct base_blocks){base->refs[g], base->first_block[g], base->n_blocks[g]};
}

/* One group's references, from numbers of the session to those of the core, in place. */
static int translate(const struct session *session, const struct place *place,
		     const struct state *base, uint32_t g, const struct seg_state *seg,
		     struct errbuf *err)
{
	struct base_blocks shared = base_blocks(base, place, g);
	const struct arena *arena = NULL;
	uint64_t *refs = seg->refs[g];
	uint32_t number = 0;
	bool own = false;

	for (uint64_t i = 0; i < seg->n_blocks[g]; i++) {
		uint32_t block = kv_ref_block(refs[i]);
		uint64_t at = seg->first_block[g] + i - shared.first; /* wraps below its first */
		uint64_t gref;

		if (kv_ref_arena(refs[i]) != number) {
			number = kv_ref_arena(refs[i]);
			arena = session_arena(session, number);
			own = live_owns_arena(session, place, g, arena);
		}
		if (!arena || block >= arena->n_blocks)
			return bad_block(session, place, g, seg->first_block[g] + i, refs[i], err);
		gref = gref_make(arena->id, block);
		if (!(own && arena_has_granted(arena, block)) &&
		    !(at < shared.n && shared.refs[at] == gref))
			return bad_block(session, place, g, seg->first_block[g] + i, refs[i], err);
		refs[i] = gref;
	}
	return 0;
}

/* ---- reading ------------------------------------------------------------------------------ */

static void move_out(const struct place *place, struct seg_state *seg, struct state *state)
{
	state->head = seg->head;
	state->update = seg->update;
	for (uint32_t g = 0; g < place->seg.n_groups; g++) {
		state->n_slots[g] = seg->n_slots[g];
		state->first_block[g] = seg->first_block[g];
		state->n_blocks[g] = seg->n_blocks[g];
		state->refs[g] = seg->refs[g];
		seg->refs[g] = NULL;
	}
	if (seg->head.n_marks)
		state->marks = state_copy(seg->marks, seg->head.n_marks * sizeof(seg->marks[0]));
}

int live_read(const struct session *session, const struct place *place, uint64_t update,
	      enum live_part part, struct seg_state *seg, struct state **out, struct errbuf *err)
{
	const struct state *base = base_of(session, place);
	struct state *state;

	if (segment_read(&session->segment, &place->seg, place->layout->layout, update, seg, err)) {
		if (err && err->status == KV_EINVAL)
			err->status = KV_ECORRUPT;
		return -1;
	}
	if (kv_head_state(seg->head.state) == KV_HEAD_NONE) {
		seg_state_fini(seg);
		return errbuf_set(err, KV_ENOTFOUND, "place %u holds no sequence",
				  place->seg.index);
	}
	if (part == LIVE_SHARED)
		seg_state_share(seg, place->layout->layout);
	for (uint32_t g = 0; g < place->seg.n_groups; g++) {
		if (translate(session, place, base, g, seg, err)) {
			seg_state_fini(seg);
			return -1;
		}
	}
	state = state_new(place->layout);
	move_out(place, seg, state);
	if (state_count_arenas(session->core, state, err)) {
		state_unref(session->core, state);
		return -1;
	}
	*out = state;
	return 0;
}

int live_peek(const struct session *session, const struct place *place, struct state **out,
	      struct errbuf *err)
{
	struct kv_shm_writer *w = segment_writer(&session->segment, place->seg.writer);
	struct seg_state *seg = state_alloc(1, sizeof(*seg));
	int rc = -1;

	for (int i = 0; i < PEEK_TRIES; i++) {
		uint64_t update = hold_update(w);
		bool moved;

		rc = live_read(session, place, update, LIVE_ALL, seg, out, err);
		atomic_thread_fence(memory_order_acquire);
		moved = hold_update(w) != update;
		if (!moved)
			goto out;
		if (rc == 0)
			state_unref(session->core, *out);
	}
	rc = errbuf_set(err, KV_EBUSY, "the writer commits faster than its sequence can be read");
out:
	free(seg);
	return rc;
}

void live_head(const struct session *session, const struct place *place, struct kv_head *head,
	       uint64_t *update)
{
	if (segment_peek(&session->segment, place->seg.index, place->seg.writer, head, update) == 0)
		return;
	memset(head, 0, sizeof(*head));
	*update = 0;
}

/* ---- parking ------------------------------------------------------------------------------ */

void live_leave(struct session *session, struct place *place, struct state *state)
{
	struct core *core = session->core;
	struct object *object = place->object;

	place->object = NULL;
	session_place_free(session, place);
	object->session = NULL;
	object->place = 0;
	if (!state) {
		object_unlist(core, object);
		return;
	}
	state_publish(core, state);
	object_set_state(core, object, state);
}

/* The writer may run or be stopped anywhere. Returns whether its word is held. */
static bool stop(struct kv_shm_writer *w)
{
	for (int i = 0; i < PARK_TRIES; i++)
		if (hold_try(w) == 0)
			return true;
	return false;
}

/* What is parked of a place; NULL with err. */
static struct state *read_to_park(struct session *session, struct place *place, bool is_quiet,
				  struct errbuf *err)
{
	struct kv_shm_writer *w = segment_writer(&session->segment, place->seg.writer);
	struct seg_state *seg = state_alloc(1, sizeof(*seg));
	struct state *state = NULL;
	int rc = is_quiet ? live_read(session, place, hold_update(w), LIVE_ALL, seg, &state, err) :
			    live_peek(session, place, &state, err);

	free(seg);
	if (rc)
		return NULL;
	if (place->is_torn)
		errbuf_set(err, KV_ECORRUPT, "it is half overwritten");
	else if (!is_quiet && kv_head_mode(state->head.state) == KV_JOURNAL_UNDO)
		errbuf_set(err, KV_EBUSY, "its writer is overwriting it and does not end");
	else
		return state;
	state_unref(session->core, state);
	return NULL;
}

static void park_or_drop(struct session *session, struct place *place, bool is_quiet)
{
	struct state *state = NULL;
	struct errbuf err = {0};

	if (place->object->name)
		state = read_to_park(session, place, is_quiet, &err);
	if (place->object->name && !state)
		log_warn("session", "%s is dropped: %s", place->object->name, err.text);
	live_leave(session, place, state);
}

void live_park_session(struct session *session, bool gone)
{
	bool held[KV_WRITERS_MAX] = {0};

	for (uint32_t i = 0; i < KV_WRITERS_MAX; i++) {
		if (!session->writers[i].in_use)
			continue;
		if (gone)
			hold_bury(segment_writer(&session->segment, i));
		else
			held[i] = stop(segment_writer(&session->segment, i));
		if (!gone && !held[i])
			hold_cancel(segment_writer(&session->segment, i));
	}
	for (uint32_t i = 0; i < KV_PLACES_MAX; i++) {
		struct place *place = session->places[i];

		if (!place || place->kind != PLACE_SEQUENCE)
			continue;
		if (gone || held[place->seg.writer])
			hold_clear(&session->segment, &place->seg);
		park_or_drop(session, place, gone || held[place->seg.writer]);
	}
	for (uint32_t i = 0; i < KV_WRITERS_MAX; i++)
		if (held[i])
			hold_release(segment_writer(&session->segment, i), false);
}
