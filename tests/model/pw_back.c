/* Marks, rollbacks, forward again, fold, and what kind of journal. */
#include <string.h>

#include "tests/model/pw.h"

/* Repeated with blocks to copy into, or a row for the mark. */
static int with_reserve(struct pw_world *w, struct pw_seq *s, int rc, int tries)
{
	if (rc == 0 || kvc_error() != KVC_ERESERVE || tries > 3)
		return 0;
	pw_reserve(w, s, 1);
	return 1;
}

/* ---- marks -------------------------------------------------------------------------------- */

/* A rollback to `now` goes past some. */
static void drop_marks(struct pw_shadow *s)
{
	while (s->n_marks &&
	       (s->marks[s->n_marks - 1].step > s->now ||
		s->marks[s->n_marks - 1].mark.length_tokens > s->steps[s->now]->length))
		s->n_marks--;
}

void pw_release_marks(struct pw_world *w, struct pw_seq *s)
{
	int rc, tries = 0;

	if (s->shadow.n_marks == 0)
		return;
	do
		rc = kvc_mark_release(s->seq, &s->shadow.marks[0].mark);
	while (with_reserve(w, s, rc, tries++));
	if (rc)
		MC_FAIL("release: %s", kvc_error_text());
	s->shadow.n_marks = 0;
}

void pw_op_mark(struct pw_world *w)
{
	struct pw_seq *s = pw_pick(w);
	struct pw_mark *mark;
	int rc, tries = 0;

	if (!s || s->shadow.mode == KVC_JOURNAL_NONE)
		return;
	if (s->shadow.n_marks == PW_MARKS || mc_one_in(&w->mc, 4)) {
		pw_say(w, "release of marks of %d", (int)(s - w->seqs));
		pw_release_marks(w, s);
		return;
	}
	pw_say(w, "mark in %d", (int)(s - w->seqs));
	mark = &s->shadow.marks[s->shadow.n_marks];
	do
		rc = kvc_mark_set(s->seq, &mark->mark);
	while (with_reserve(w, s, rc, tries++));
	if (rc && kvc_error() == KVC_EJOURNAL)
		return;
	if (rc)
		MC_FAIL("mark: %s", kvc_error_text());
	mark->step = s->shadow.now;
	s->shadow.n_marks++;
	s->shadow.has_rows = true;
}

/* ---- back --------------------------------------------------------------------------------- */

static int back_mark(struct pw_world *w, struct pw_seq *s)
{
	int i = (int)mc_draw(&w->mc, (uint64_t)s->shadow.n_marks), rc, tries = 0;
	struct pw_mark mark = s->shadow.marks[i];

	pw_say(w, "back to mark %d of %d (mode %u)", i, (int)(s - w->seqs), s->shadow.mode);
	do
		rc = kvc_rollback_mark(s->seq, &mark.mark);
	while (with_reserve(w, s, rc, tries++));
	if (mark.step < 0) {
		MC_CHECK(rc == -1 && kvc_error() == KVC_EJOURNAL);
		return -1;
	}
	if (rc)
		MC_FAIL("rollback: %s", kvc_error_text());
	s->shadow.now = mark.step;
	s->shadow.n_marks = i + 1;
	return 0;
}

static int back_steps(struct pw_world *w, struct pw_seq *s)
{
	struct pw_shadow *sh = &s->shadow;
	int most = mc_one_in(&w->mc, 6) ? sh->now + 1 : sh->now < 4 ? sh->now : 4;
	int n = (int)mc_draw(&w->mc, (uint64_t)most + 1), rc, tries = 0;
	uint64_t keep = n <= sh->now ? sh->steps[sh->now - n]->length : 0;
	uint64_t remove = pw_now(s)->length - keep;
	uint64_t how = n <= sh->now ? mc_draw(&w->mc, 3) : 0;

	pw_say(w, "back of %d (mode %u): %d of %d steps, how %u", (int)(s - w->seqs), sh->mode, n,
	       sh->now, (unsigned)how);
	do
		rc = how == 0 ? kvc_rollback_steps(s->seq, (uint64_t)n) :
		     how == 1 ? kvc_rollback_keep(s->seq, keep) :
				kvc_rollback_remove(s->seq, remove);
	while (with_reserve(w, s, rc, tries++));
	if (n > sh->now) {
		MC_CHECK(rc == -1 && kvc_error() == KVC_EJOURNAL);
		return -1;
	}
	if (rc)
		MC_FAIL("rollback: %s", kvc_error_text());
	sh->now -= n;
	return n ? 0 : -1;
}

void pw_op_rollback(struct pw_world *w)
{
	struct pw_seq *s = pw_pick(w);

	if (!s || s->shadow.mode == KVC_JOURNAL_NONE || !s->shadow.has_rows)
		return;
	if ((s->shadow.n_marks && mc_one_in(&w->mc, 2) ? back_mark(w, s) : back_steps(w, s)) == 0)
		drop_marks(&s->shadow);
}

/* ---- forward ------------------------------------------------------------------------------ */

/* The undo journal has no bytes of slots that were new. */
static bool takes_slots(const struct pw_world *w, const struct pw_seq *s, int to)
{
	for (uint32_t l = 0; l < w->mc.layout->n_layers; l++)
		if (pw_slots(w, l, s->shadow.steps[to]->length) !=
		    pw_slots(w, l, pw_now(s)->length))
			return true;
	return false;
}

void pw_op_forward(struct pw_world *w)
{
	struct pw_seq *s = pw_pick(w);
	int most, n, to, tries = 0;
	int64_t done;

	if (!s || s->shadow.mode == KVC_JOURNAL_NONE)
		return;
	most = s->shadow.n - 1 - s->shadow.now;
	n = (int)mc_draw(&w->mc, (uint64_t)most + 1);
	to = s->shadow.now + (n ? n : most);
	pw_say(w, "forward of %d (mode %u): %d of %d steps", (int)(s - w->seqs), s->shadow.mode, n,
	       most);
	do
		done = kvc_replay(s->seq, (uint64_t)n);
	while (with_reserve(w, s, done < 0 ? -1 : 0, tries++));
	if (s->shadow.mode == KVC_JOURNAL_UNDO && takes_slots(w, s, to)) {
		MC_CHECK(done == -1 && kvc_error() == KVC_EUNSUPPORTED);
		return;
	}
	if (done != to - s->shadow.now)
		MC_FAIL("%lld steps were replayed, not %d: %s", (long long)done, to - s->shadow.now,
			kvc_error_text());
	s->shadow.now = to;
}

/* ---- fold --------------------------------------------------------------------------------- */

/* Of a state behind the fold: rows that are in blocks now. */
static struct pw_state *fold_state(struct pw_world *w, const struct pw_state *state,
				   const struct pw_state *floor)
{
	struct pw_state *out = pw_state_copy(w, state);

	for (uint32_t i = 0; i < w->n_cells; i++)
		if (out->cells[i].row == floor->cells[i].row)
			out->cells[i].row = 0;
	return out;
}

static bool holds_bad(const struct pw_world *w, const struct pw_state *state)
{
	for (uint32_t i = 0; i < w->n_cells; i++)
		if (state->cells[i].row && w->mc.values[state->cells[i].value].is_bad)
			return true;
	return false;
}

static void fold_shadow(struct pw_world *w, struct pw_seq *s, int to)
{
	struct pw_shadow *sh = &s->shadow;
	struct pw_state *floor = pw_state_ref(sh->steps[to]);

	for (int i = to; i < sh->n; i++) {
		struct pw_state *folded = fold_state(w, sh->steps[i], floor);

		pw_state_unref(sh->steps[i]);
		sh->steps[i] = folded;
	}
	pw_state_unref(floor);
	pw_forget(sh, to);
	if (sh->now == 0 && sh->n_marks == 0) {
		sh->has_rows = false;
		pw_drop_future(sh);
	}
}

void pw_fold(struct pw_world *w, struct pw_seq *s, uint64_t keep)
{
	struct kvc_journal_info info;
	int64_t done;
	int to;

	pw_say(w, "fold of %d, keep %llu", (int)(s - w->seqs), (unsigned long long)keep);
	done = kvc_fold(s->seq, keep);
	if (done < 0 && kvc_error() == KVC_EVALUE) {
		MC_CHECK(holds_bad(w, pw_now(s)));
		return;
	}
	if (done < 0)
		MC_FAIL("fold: %s", kvc_error_text());
	MC_CHECK(kvc_journal_info(s->seq, &info) == 0);
	to = s->shadow.now - (int)info.n_steps;
	MC_CHECK(to >= 0 && (keep || to == s->shadow.now));
	MC_CHECK(info.n_rows >= keep || to == 0);
	if (to || !info.n_rows)
		fold_shadow(w, s, to);
}

void pw_op_fold(struct pw_world *w)
{
	struct pw_seq *s = pw_pick(w);

	if (!s)
		return;
	if (s->shadow.mode != KVC_JOURNAL_REPLAY) {
		MC_CHECK(kvc_fold(s->seq, 0) == -1 && kvc_error() == KVC_EUNSUPPORTED);
		return;
	}
	pw_fold(w, s, mc_one_in(&w->mc, 2) ? 0 : mc_draw(&w->mc, 200));
}

/* ---- kind --------------------------------------------------------------------------------- */

void pw_op_mode(struct pw_world *w)
{
	struct pw_seq *s = pw_pick(w);
	bool refused;
	int rc;

	if (!s || s->shadow.mode == KVC_JOURNAL_NONE)
		return;
	refused = s->shadow.has_rows || s->shadow.n_marks;
	pw_say(w, "another journal for %d", (int)(s - w->seqs));
	rc = pw_set_journal(w, s, 3 - s->shadow.mode);
	if (refused) {
		MC_CHECK(rc == -1 && kvc_error() == KVC_EBUSY);
		return;
	}
	if (rc)
		MC_FAIL("journal: %s", kvc_error_text());
	pw_drop_future(&s->shadow);
}
