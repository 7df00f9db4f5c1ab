#include "daemon/recover.h"

#include <stdlib.h>

#include "daemon/hold.h"
#include "daemon/objects.h"
#include "daemon/session.h"
#include "daemon/state_log.h"

/* Writes what was decided for one sequence, if it is still held at that update. */
static bool complete(const struct session *session, const struct place *place,
		     const struct cat_decided_one *one)
{
	struct kv_shm_writer *w = segment_writer(&session->segment, place->seg.writer);
	struct seg_state *seg = state_alloc(1, sizeof(*seg));
	bool done = false;

	if (hold_update(w) == one->update &&
	    segment_read(&session->segment, &place->seg, place->layout->layout, one->update, seg,
			 NULL) == 0) {
		if (one->length_tokens <= seg->head.length_tokens &&
		    state_may_cut(place->layout->layout, &seg->head, one->length_tokens, "",
				  NULL) == 0) {
			hold_rollback(&session->segment, &place->seg, seg, one->length_tokens);
			done = true;
		}
		seg_state_fini(seg);
	}
	free(seg);
	return done;
}

static bool complete_decided(const struct core *core, const struct session *session,
			     uint32_t writer)
{
	bool advanced = false;

	for (uint32_t i = 0; i < core->decided.n; i++) {
		const struct cat_decided_one *one = &core->decided.ones[i];
		const struct place *place;

		if (one->session != session->id || one->place >= KV_PLACES_MAX)
			continue;
		place = session->places[one->place];
		if (place && place->seg.writer == writer && place->kind == PLACE_SEQUENCE)
			advanced |= complete(session, place, one);
	}
	return advanced;
}

static void recover_writer(const struct core *core, const struct session *session, uint32_t writer)
{
	struct kv_shm_writer *w = segment_writer(&session->segment, writer);
	bool was_held;

	hold_recover(w, &was_held);
	if (!was_held)
		return;
	for (uint32_t p = 0; p < KV_PLACES_MAX; p++)
		if (session->places[p] && session->places[p]->seg.writer == writer)
			hold_clear(&session->segment, &session->places[p]->seg);
	hold_release(w, complete_decided(core, session, writer));
}

static void recover_session(struct core *core, struct session *session)
{
	if (session->phase == SESSION_ENDED)
		return;
	for (uint32_t w = 0; w < KV_WRITERS_MAX; w++)
		if (session->writers[w].in_use)
			recover_writer(core, session, w);
	atomic_store_explicit(&segment_head(&session->segment)->life, core->env->life,
			      memory_order_release);
}

void recover_sessions(struct core *core)
{
	for (size_t i = 0; i < core->sessions.n; i++) {
		struct session *session = core->sessions.items[i].thing;

		recover_session(core, session);
		if (session_watch_process(session))
			state_die("cannot watch the process of a session");
	}
	if (core->decided.n) {
		core->decided.n = 0;
		log_decided(core);
	}
}
