/* Replay forward, fold, and replay onto another sequence. */
#include <string.h>

#include "tests/model/mc.h"

/* ---- forward ------------------------------------------------------------------------------ */

struct forward_call {
	kvc_seq *seq;
	uint64_t n;
	int64_t done;
};

static int do_forward(void *arg)
{
	struct forward_call *c = arg;

	c->done = kvc_replay(c->seq, c->n);
	return c->done < 0 ? -1 : 0;
}

/* The step after n steps forward (0: all); `now` if there is none. */
static int step_forward(const struct mc_shadow *s, uint64_t n, int *n_done)
{
	int to = s->now;

	*n_done = 0;
	for (int i = s->now + 1; i < s->n && (n == 0 || (uint64_t)*n_done < n); i++)
		if (s->steps[i].state) {
			to = i;
			++*n_done;
		}
	return to;
}

static bool appends_slots(const struct mc_world *w, const struct mc_shadow *s, int to)
{
	for (uint32_t l = 0; l < w->layout->n_layers; l++)
		if (mc_slots(w, l, s->steps[to].state->length) != mc_slots(w, l, mc_now(s)->length))
			return true;
	return false;
}

void mc_op_forward(struct mc_world *w)
{
	struct mc_seq *s = mc_pick(w);
	struct forward_call call;
	int to, n_done, status = 0, rc;

	if (!s)
		return;
	call = (struct forward_call){.seq = s->seq, .n = mc_draw(w, 4)};
	to = step_forward(&s->shadow, call.n, &n_done);
	mc_say(w, "forward of %d: %llu steps", (int)(s - w->seqs), (unsigned long long)call.n);
	if (s->shadow.mode == KVC_JOURNAL_NONE)
		status = KVC_EUNSUPPORTED;
	else if (n_done && call.n && (uint64_t)n_done < call.n)
		status = KVC_EJOURNAL;
	else if (s->shadow.mode == KVC_JOURNAL_UNDO && appends_slots(w, &s->shadow, to))
		status = KVC_EUNSUPPORTED;
	if (status == 0) {
		s->next = mc_shadow_copy(&s->shadow);
		s->next.now = to;
		s->has_next = true;
	}
	mc_call(w);
	rc = mc_with_copies(w, s, do_forward, &call);
	if (rc == 0 && call.done != n_done)
		MC_FAIL("%lld steps were replayed, not %d", (long long)call.done, n_done);
	mc_conclude(w, rc, status);
}

/* ---- fold --------------------------------------------------------------------------------- */

struct fold_call {
	kvc_seq *seq;
	uint64_t keep;
	int64_t done;
};

static int do_fold(void *arg)
{
	struct fold_call *c = arg;

	c->done = kvc_fold(c->seq, c->keep);
	return c->done < 0 ? -1 : 0;
}

/* The last step that is folded; 0: none. Steps are folded whole: no more rows stay than are
 * necessary. */
static int folded_step(const struct mc_shadow *s, uint64_t keep)
{
	uint64_t rows = 0;
	int i = s->now;

	while (i > 0 && (rows < keep || !s->steps[i].state))
		rows += s->steps[i--].n_rows + 1;
	return i;
}

/* What the fold makes of a later (or the same) state: rows up to `floor` become blocks. */
static struct mc_state *fold_state(struct mc_world *w, struct mc_state *state,
				   struct mc_state *floor)
{
	struct mc_state *out;

	if (!state)
		return NULL;
	out = mc_state_copy(w, state);
	out->base = floor->length;
	for (uint32_t i = 0; i < w->n_cells; i++) {
		struct mc_cell *c = &out->cells[i];
		const struct mc_cell *f = &floor->cells[i];
		bool is_later = c->row && c->row != f->row;

		if (f->row) {
			if (f->row_kv)
				c->kv = f->row_kv;
			memcpy(c->plane, f->row_plane, sizeof(c->plane));
		}
		if (!is_later) {
			c->row = c->row_kv = 0;
			memset(c->row_plane, 0, sizeof(c->row_plane));
		}
	}
	return out;
}

static bool holds_bad(const struct mc_world *w, const struct mc_state *state)
{
	for (uint32_t i = 0; i < w->n_cells; i++)
		if (state->cells[i].row && w->values[state->cells[i].row_kv].is_bad)
			return true;
	return false;
}

static bool lays_over(const struct mc_world *w, const struct mc_shadow *s, int to)
{
	uint64_t length = s->steps[0].state->length;
	uint64_t rows = 0, new_cells = 0;

	for (int i = 1; i <= to; i++)
		rows += s->steps[i].n_rows;
	for (uint32_t l = 0; l < w->layout->n_layers; l++)
		new_cells += (mc_slots(w, l, s->steps[to].state->length) - mc_slots(w, l, length)) *
			     w->layout->layers[l].n_query_groups;
	return rows != new_cells;
}

static struct mc_shadow fold_shadow(struct mc_world *w, const struct mc_shadow *s, int to)
{
	struct mc_shadow next = mc_shadow_copy(s);
	bool scattered = lays_over(w, s, to);

	next.scattered |= scattered;
	for (int i = to; i < s->n; i++) {
		mc_state_unref(next.steps[i].state);
		next.steps[i].state = fold_state(w, s->steps[i].state, s->steps[to].state);
	}
	for (int i = 0; i < to; i++)
		mc_state_unref(next.steps[i].state);
	memmove(next.steps, next.steps + to, (size_t)(s->n - to) * sizeof(next.steps[0]));
	next.n -= to;
	next.now -= to;
	for (int i = 0; i < next.n_marks; i++)
		next.marks[i].step = next.marks[i].step < to ? -1 : next.marks[i].step - to;
	if (next.now == 0 && next.n_marks == 0) {
		next.has_rows = false;
		mc_shadow_drop_future(&next);
	}
	return next;
}

void mc_op_fold(struct mc_world *w)
{
	struct mc_seq *s = mc_pick(w);
	struct fold_call call;
	uint64_t rows = 0;
	int status = 0, to, rc;

	if (!s)
		return;
	call = (struct fold_call){.seq = s->seq, .keep = mc_one_in(w, 2) ? 0 : mc_draw(w, 60)};
	mc_say(w, "fold of %d (%llu rows), keep %llu", (int)(s - w->seqs),
	       (unsigned long long)mc_shadow_rows(&s->shadow), (unsigned long long)call.keep);
	to = folded_step(&s->shadow, call.keep);
	if (s->shadow.mode != KVC_JOURNAL_REPLAY) {
		status = KVC_EUNSUPPORTED;
	} else if (to && holds_bad(w, s->shadow.steps[to].state)) {
		status = KVC_EVALUE;
	} else {
		s->next = to ? fold_shadow(w, &s->shadow, to) : mc_shadow_copy(&s->shadow);
		s->has_next = true;
	}
	for (int i = 1; i <= to; i++)
		rows += s->shadow.steps[i].n_rows + 1;
	mc_call(w);
	rc = mc_with_copies(w, s, do_fold, &call);
	if (rc == 0 && (uint64_t)call.done != rows)
		MC_FAIL("%lld rows were folded, not %llu", (long long)call.done,
			(unsigned long long)rows);
	mc_conclude(w, rc, status);
}

/* ---- onto another ------------------------------------------------------------------------- */

struct from_call {
	kvc_seq *seq, *source;
	int64_t done;
};

static int do_from(void *arg)
{
	struct from_call *c = arg;

	c->done = kvc_replay_from(c->seq, c->source);
	return c->done < 0 ? -1 : 0;
}

/* A journal without rows and with the usual options. */
static void begun(struct mc_shadow *s)
{
	mc_shadow_drop_future(s);
	s->mode = KVC_JOURNAL_REPLAY;
	s->when_full = KVC_FULL_REFUSE;
	s->max_rows = 0;
	s->keep_steps = 64;
}

static bool same_state(const struct mc_world *w, const struct mc_state *a, const struct mc_state *b)
{
	return a->length == b->length && a->position == b->position && a->base == b->base &&
	       a->planes_set == b->planes_set &&
	       memcmp(a->planes, b->planes, sizeof(a->planes)) == 0 &&
	       memcmp(a->cells, b->cells, w->n_cells * sizeof(a->cells[0])) == 0;
}

/* Status of a replay of the source onto `to`. */
static int expect_from(const struct mc_world *w, const struct mc_shadow *to,
		       const struct mc_shadow *source)
{
	if (source->mode != KVC_JOURNAL_REPLAY)
		return KVC_EINVAL;
	if (to->mode != KVC_JOURNAL_REPLAY && to->has_rows)
		return KVC_EBUSY;
	if (to->now)
		return KVC_EINVAL;
	if (source->has_rows && !same_state(w, mc_now(to), source->steps[0].state))
		return KVC_EINVAL;
	/* it would become one with a replay journal first */
	return to->mode != KVC_JOURNAL_REPLAY && to->n_marks ? KVC_EBUSY : 0;
}

static void replay_onto(struct mc_world *w, struct mc_seq *to, struct mc_seq *from)
{
	const struct mc_shadow *source = &from->shadow;
	int status = expect_from(w, &to->shadow, source), rc;
	int n_done = mc_shadow_steps(source, 0, source->now);
	struct from_call call = {to->seq, from->seq, 0};

	mc_say(w, "replay of %d onto %d", (int)(from - w->seqs), (int)(to - w->seqs));
	w->event = MC_NOTHING; /* it is two updates where the journal is new */
	if (status == 0) {
		to->next = mc_shadow_copy(&to->shadow);
		to->has_next = true;
		if (to->next.mode != KVC_JOURNAL_REPLAY) {
			to->next.when_full = KVC_FULL_REFUSE;
			to->next.max_rows = 0;
			to->next.keep_steps = 64;
		}
		to->next.mode = KVC_JOURNAL_REPLAY;
		to->next.has_rows |= source->now != 0;
		if (source->now)
			mc_shadow_drop_future(&to->next);
		for (int i = 1; i <= source->now; i++)
			mc_shadow_push(&to->next, mc_state_ref(source->steps[i].state),
				       source->steps[i].n_rows);
	}
	mc_call(w);
	rc = do_from(&call);
	if (rc && kvc_error() == KVC_ERESERVE) {
		/* the journal has begun, and the future is gone */
		if (to->shadow.mode != KVC_JOURNAL_REPLAY)
			begun(&to->shadow);
		if (mc_reserve(w, to, (uint64_t)n_done + 1, mc_shadow_rows(source)))
			rc = do_from(&call);
	}
	if (rc && status == 0 && kvc_error() == KVC_EJOURNAL) /* tables of this test are short */
		status = KVC_EJOURNAL;
	if (rc == 0 && call.done != n_done)
		MC_FAIL("%lld steps were replayed, not %d", (long long)call.done, n_done);
	mc_conclude(w, rc, status);
	if (rc && status == 0 && to->shadow.mode != KVC_JOURNAL_REPLAY)
		begun(&to->shadow);
	if (to->seq->journal.future_end == to->seq->head.journal_end)
		mc_shadow_drop_future(&to->shadow);
}

/* Onto any sequence, onto a fork that was taken back to its base, or onto a fork of the base. */
void mc_op_replay_from(struct mc_world *w)
{
	struct mc_seq *s = mc_pick(w), *to = mc_free_seq(w);
	uint64_t n_steps;

	w->event = MC_NOTHING;
	if (!s)
		return;
	if (mc_one_in(w, 4)) {
		replay_onto(w, mc_pick(w), s);
		return;
	}
	if (!to || !s->shadow.has_rows || s->shadow.mode != KVC_JOURNAL_REPLAY ||
	    !mc_fork_local(w, s, to, false))
		return;
	if (to->shadow.now) {
		n_steps = (uint64_t)mc_shadow_steps(&s->shadow, 0, s->shadow.now);
		to->next = mc_back_to(&to->shadow, 0);
		to->has_next = true;
		mc_call(w);
		MC_CHECK(kvc_rollback_steps(to->seq, n_steps) == 0);
		mc_done(w, true);
	}
	replay_onto(w, to, s);
}

/* A fork of a sequence without rows, which then gets a journal and goes on. */
void mc_op_replay_base(struct mc_world *w)
{
	struct mc_seq *s = mc_pick(w), *to = mc_free_seq(w);
	struct kvc_journal_options o = {.size = sizeof(o), .mode = KVC_JOURNAL_REPLAY};

	w->event = MC_NOTHING;
	if (!s || !to || s->shadow.has_rows || s->shadow.n_marks || !mc_fork_local(w, s, to, false))
		return;
	if (kvc_journal_set(s->seq, &o))
		MC_FAIL("journal: %s", kvc_error_text());
	begun(&s->shadow);
	for (uint64_t n = 1 + mc_draw(w, 3); n; n--)
		mc_update_of(w, s);
	if (s->shadow.has_rows)
		replay_onto(w, to, s);
}
