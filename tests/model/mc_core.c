/* Sequences, snapshots and forks; freezes at bad moments, death and takeover. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/journal.h"
#include "tests/model/mc.h"

/* ---- bases -------------------------------------------------------------------------------- */

void mc_base_unref(struct mc_world *w, struct mc_base *base)
{
	if (!base || --base->n_refs)
		return;
	bare_pin(w->bare, &base->state, -1);
	seg_state_fini(&base->state);
	free(base);
}

static struct mc_base *base_ref(struct mc_base *base)
{
	if (base)
		base->n_refs++;
	return base;
}

/* ---- sequences ---------------------------------------------------------------------------- */

void mc_op_new(struct mc_world *w)
{
	struct mc_seq *s = mc_free_seq(w);

	if (!s)
		return;
	mc_say(w, "new sequence %d", (int)(s - w->seqs));
	s->seq = bare_seq(w->bare, w->writer, MC_TOKENS, NULL);
	s->local = false;
	mc_shadow_init(w, &s->shadow);
}

bool mc_fork_local(struct mc_world *w, struct mc_seq *s, struct mc_seq *to, bool is_snapshot)
{
	mc_say(w, "local %s of %d as %d", is_snapshot ? "snapshot" : "fork", (int)(s - w->seqs),
	       (int)(to - w->seqs));
	if (!w->writer->spare)
		bare_spare_places(w->bare, w->writer, MC_TOKENS, 1);
	to->next = mc_shadow_share(&s->shadow);
	to->has_next = true;
	mc_call(w);
	for (int tries = 0; tries < 3 && !to->seq; tries++) {
		to->seq = is_snapshot ? kvc_snapshot_local(s->seq) : kvc_fork_local(s->seq, 0);
		if (!to->seq && kvc_error() == KVC_ETIMEOUT)
			mc_finish_freeze(w);
		else if (!to->seq && (kvc_error() != KVC_ERESERVE || !mc_reserve(w, s, 0, 0)))
			break;
	}
	if (!to->seq) {
		MC_CHECK(kvc_error() == KVC_EPOOL);
		mc_done(w, false);
		return false;
	}
	to->local = true;
	to->base = base_ref(s->base);
	mc_done(w, true);
	return true;
}

void mc_op_fork_local(struct mc_world *w)
{
	struct mc_seq *s = &w->seqs[mc_draw(w, MC_SEQS)], *to = mc_free_seq(w);

	if (s->seq && to)
		mc_fork_local(w, s, to, mc_one_in(w, 4));
}

void mc_seq_clear(struct mc_seq *s)
{
	mc_shadow_fini(&s->shadow);
	memset(s, 0, sizeof(*s));
}

void mc_op_drop(struct mc_world *w)
{
	struct mc_seq *s = &w->seqs[mc_draw(w, MC_SEQS)];
	uint32_t place;

	if (!s->seq)
		return;
	mc_say(w, "drop of %d", (int)(s - w->seqs));
	place = s->seq->place;
	if (!s->local)
		segment_place(&w->bare->segment, place)->seq_id = 0;
	seq_end(s->seq, s->local ? SEQ_END_LOCAL : SEQ_END_DROPPED);
	if (!s->local)
		bare_place_free(w->bare, place);
	mc_base_unref(w, s->base);
	mc_seq_clear(s);
}

/* ---- snapshots ---------------------------------------------------------------------------- */

void mc_snap_drop(struct mc_world *w, struct mc_snap *snap)
{
	uint32_t place = snap->reader->place;

	seq_end(snap->reader, SEQ_END_DROPPED);
	bare_place_free(w->bare, place);
	mc_base_unref(w, snap->base);
	mc_shadow_fini(&snap->shadow);
	memset(snap, 0, sizeof(*snap));
}

static struct mc_snap *free_snap(struct mc_world *w)
{
	for (int i = 0; i < MC_SNAPS; i++)
		if (!w->snaps[i].used && !w->snaps[i].is_new)
			return &w->snaps[i];
	return NULL;
}

/* A sequence that the core knows; -1: none. */
static int pick_known(struct mc_world *w)
{
	int i = (int)mc_draw(w, MC_SEQS);

	for (int n = 0; n < MC_SEQS; n++, i = (i + 1) % MC_SEQS)
		if (w->seqs[i].seq && !w->seqs[i].local)
			return i;
	return -1;
}

static void open_snap(struct mc_world *w, struct mc_snap *snap, const struct mc_shadow *of)
{
	snap->used = true;
	snap->is_new = false;
	snap->shadow = mc_shadow_share(of);
	snap->reader = bare_open(w->bare, w->reader, MC_TOKENS, &snap->base->state);
}

static void take_held(struct mc_world *w, int of)
{
	struct mc_snap *snap = free_snap(w);

	bool in_call = w->in_call;

	if (!snap)
		return;
	w->in_call = false;
	snap->base = calloc(1, sizeof(*snap->base));
	snap->base->n_refs = 1;
	bare_snapshot_held(w->bare, w->seqs[of].seq->place, &snap->base->state);
	w->in_call = in_call;
	snap->update = snap->base->state.update;
	snap->of = of;
	snap->is_new = true;
	w->n_freezes++;
}

void mc_take_snapshot(struct mc_world *w)
{
	struct mc_snap *snap = free_snap(w);
	int of = pick_known(w);

	if (!snap || of < 0)
		return;
	mc_say(w, "  snapshot of %d", of);
	MC_CHECK(hold_try(w->writer->shm) == 0 || hold_try(w->writer->shm) == 0);
	take_held(w, of);
	hold_release(w->writer->shm, false);
	open_snap(w, snap, &w->seqs[of].shadow);
}

void mc_op_snapshot(struct mc_world *w)
{
	struct mc_snap *snap = &w->snaps[mc_draw(w, MC_SNAPS)];

	if (snap->used && mc_one_in(w, 2)) {
		mc_say(w, "drop of snapshot %d", (int)(snap - w->snaps));
		mc_snap_drop(w, snap);
		return;
	}
	mc_say(w, "snapshot");
	mc_take_snapshot(w);
}

void mc_op_fork(struct mc_world *w)
{
	struct mc_snap *snap = &w->snaps[mc_draw(w, MC_SNAPS)];
	struct mc_seq *to = mc_free_seq(w);

	if (!snap->used || !to)
		return;
	mc_say(w, "fork of snapshot %d as %d", (int)(snap - w->snaps), (int)(to - w->seqs));
	to->seq = bare_seq(w->bare, w->writer, MC_TOKENS, &snap->base->state);
	to->local = false;
	to->base = base_ref(snap->base);
	to->shadow = mc_shadow_share(&snap->shadow);
	to->shadow.when_full = KVC_FULL_REFUSE;
	to->shadow.max_rows = 0;
	to->shadow.keep_steps = 64;
}

/* ---- an operator -------------------------------------------------------------------------- */

/* Only what was appended alone can be cut by the core (daemon/objects.h). */
static bool core_may_cut(const struct mc_world *w, const struct mc_shadow *s)
{
	return s->mode == KVC_JOURNAL_NONE && !s->scattered && !mc_now(s)->planes_set &&
	       (w->layout->max_slots >= mc_now(s)->length);
}

/* The writer hears of it at its next update, which is refused; open ones are gone. */
void mc_op_operator(struct mc_world *w)
{
	int of = pick_known(w);
	struct mc_seq *s = of < 0 ? NULL : &w->seqs[of], *open = mc_pick(w);
	struct mc_shadow *shadow = s ? &s->shadow : NULL;
	struct mc_state *cut;
	uint64_t keep;
	kvc_mark mark;

	w->event = MC_NOTHING;
	if (!s || !core_may_cut(w, shadow) || mc_now(shadow)->length == 0)
		return;
	keep = mc_draw(w, mc_now(shadow)->length);
	mc_say(w, "an operator cuts %d to %llu", of, (unsigned long long)keep);
	if (open)
		kvc_update_begin(open->seq, 1, 0);
	if (open && open->seq->journal.future_end == open->seq->head.journal_end)
		mc_shadow_drop_future(&open->shadow);
	MC_CHECK(bare_operator_rollback(w->bare, s->seq->place, keep) == 0);
	if (open && open->seq->is_open) {
		MC_CHECK(kvc_commit(w->writer, NULL, 0) == -1 && kvc_error() == KVC_EMOVED);
		MC_CHECK(!open->seq->is_open);
	} else {
		MC_CHECK(kvc_mark_set(s->seq, &mark) == -1);
		MC_CHECK(kvc_error() == KVC_EMOVED);
	}
	cut = mc_state_cut(w, mc_now(shadow), keep);
	mc_state_unref(shadow->steps[0].state);
	shadow->steps[0].state = cut;
	mc_shadow_drop_marks(shadow, keep);
}

/* ---- at a point between two stores --------------------------------------------------------- */

static void freeze_now(struct mc_world *w)
{
	bool in_call = w->in_call;

	w->in_call = false;
	take_held(w, w->freeze_of);
	hold_release(w->writer->shm, false);
	w->freeze_wanted = w->is_held = false;
	w->in_call = in_call;
}

void mc_finish_freeze(struct mc_world *w)
{
	if (!w->freeze_wanted)
		return;
	if (kv_word_state(kv_word_load(w->writer->shm)) == KV_HELD)
		freeze_now(w);
	else
		hold_cancel(w->writer->shm);
	w->freeze_wanted = w->is_held = false;
}

void mc_at_point(struct mc_world *w)
{
	enum mc_event event = w->event;

	if (!w->in_call)
		return;
	w->n_points++;
	if (w->freeze_wanted && !w->is_held &&
	    kv_word_state(kv_word_load(w->writer->shm)) == KV_HELD) {
		freeze_now(w);
		return;
	}
	if (event == MC_NOTHING || --w->event_in)
		return;
	w->event = MC_NOTHING;
	if (event == MC_DEATH)
		longjmp(w->death, 1);
	w->freeze_of = pick_known(w);
	for (int i = 0; i < MC_SEQS; i++)
		if (w->seqs[i].has_next && w->seqs[i].seq && !w->seqs[i].local)
			w->freeze_of = i;
	if (w->freeze_of < 0 || !free_snap(w))
		return;
	w->freeze_wanted = true;
	w->is_held = event == MC_HOLD;
	if (hold_try(w->writer->shm) == 0 && !w->is_held)
		freeze_now(w);
}

/* ---- the call in flight -------------------------------------------------------------------- */

void mc_call(struct mc_world *w)
{
	w->call_update = w->writer->update;
	w->in_call = true;
}

static void settle_next(struct mc_seq *s, bool committed)
{
	if (!s->has_next)
		return;
	s->has_next = false;
	if (!committed) {
		mc_shadow_fini(&s->next);
		return;
	}
	mc_shadow_fini(&s->shadow);
	s->shadow = s->next;
	memset(&s->next, 0, sizeof(s->next));
}

/* Snapshots that were taken meanwhile: of the state before, or after. */
static void settle_snaps(struct mc_world *w, bool before)
{
	for (int i = 0; i < MC_SNAPS; i++) {
		struct mc_snap *snap = &w->snaps[i];

		if (snap->is_new && (snap->update == w->call_update) == before)
			open_snap(w, snap, &w->seqs[snap->of].shadow);
	}
}

void mc_done(struct mc_world *w, bool committed)
{
	w->in_call = false;
	mc_finish_freeze(w);
	settle_snaps(w, true);
	for (int i = 0; i < MC_SEQS; i++)
		settle_next(&w->seqs[i], committed);
	settle_snaps(w, false);
}

/* ---- death and takeover -------------------------------------------------------------------- */

/* A handle of a process that is gone. */
static void forget_handle(struct kvc_seq *seq)
{
	journal_unmap(seq);
	munmap(seq->memory, seq->memory_bytes);
	free(seq);
}

static void park(struct mc_world *w, struct mc_seq *s, uint64_t update)
{
	struct mc_base *base = calloc(1, sizeof(*base));
	struct errbuf err;

	MC_CHECK(base);
	base->n_refs = 1;
	if (segment_read(&w->bare->segment, &w->bare->places[s->seq->place], w->layout, update,
			 &base->state, &err))
		MC_FAIL("parking: %s", err.text);
	bare_pin(w->bare, &base->state, 1);
	mc_base_unref(w, s->base);
	s->base = base;
}

/* The writer is gone: the core buries it, and a new one takes the sequences over. */
void mc_after_death(struct mc_world *w)
{
	uint32_t index = (w->writer->index + 1) % 32;
	struct kvc_journal_info info;
	uint64_t update;

	w->n_deaths++;
	w->in_call = false;
	if (w->freeze_wanted)
		hold_cancel(w->writer->shm);
	w->freeze_wanted = w->is_held = false;
	update = mc_bury(w);
	mc_say(w, "  death; update %llu of %llu counts", (unsigned long long)update,
	       (unsigned long long)w->call_update);
	MC_CHECK(update == w->call_update || update == w->call_update + 1);
	mc_done(w, update > w->call_update);
	for (int i = 0; i < MC_SEQS; i++)
		if (w->seqs[i].seq && !w->seqs[i].local)
			park(w, &w->seqs[i], update);
	bare_revoke_all(w->bare);
	for (int i = 0; i < MC_SEQS; i++) {
		struct mc_seq *s = &w->seqs[i];

		if (s->seq && !s->local)
			continue;
		mc_base_unref(w, s->base);
		mc_seq_clear(s);
	}
	for (uint32_t i = 0; i < w->bare->n_places; i++)
		if (w->bare->place_used[i] && w->bare->places[i].writer == w->writer->index)
			bare_place_free(w->bare, i);
	while (w->writer->seqs) {
		struct kvc_seq *next = w->writer->seqs->next;

		forget_handle(w->writer->seqs);
		w->writer->seqs = next;
	}
	writer_free(w->writer);
	w->writer = bare_writer(w->bare, index);
	w->writer->deadline_ms = 1;
	for (int i = 0; i < MC_SEQS; i++) {
		struct mc_seq *s = &w->seqs[i];

		if (!s->seq)
			continue;
		s->seq = bare_seq(w->bare, w->writer, MC_TOKENS, &s->base->state);
		mc_shadow_drop_future(&s->shadow);
		MC_CHECK(kvc_journal_info(s->seq, &info) == 0);
		mc_shadow_forget(w, &s->shadow, info.n_steps, info.n_rows);
		s->shadow.when_full = KVC_FULL_REFUSE;
		s->shadow.max_rows = 0;
		s->shadow.keep_steps = 64;
	}
}

/* Between two calls. */
void mc_op_death(struct mc_world *w)
{
	mc_say(w, "death");
	w->event = MC_NOTHING;
	mc_call(w);
	mc_after_death(w);
}
