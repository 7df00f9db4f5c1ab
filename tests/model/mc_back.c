/* Marks, rollbacks, replay, fold, and the options of journals. */
#include <stdlib.h>
#include <string.h>

#include "tests/model/mc.h"

/* ---- where a rollback leads ---------------------------------------------------------------- */

/* The shadow after going back to step `to`. */
static struct mc_shadow back_to(const struct mc_shadow *s, int to)
{
	struct mc_shadow next = mc_shadow_copy(s);

	next.now = to;
	mc_shadow_drop_marks(&next, mc_now(&next)->length);
	return next;
}

/* Below the journal: what was appended alone can be cut. Else the status. */
static int cut(struct mc_world *w, const struct mc_shadow *s, uint64_t keep, struct mc_shadow *next)
{
	const struct mc_state *floor = s->steps[0].state;

	if (s->scattered || floor->planes_set)
		return KVC_EJOURNAL;
	*next = mc_shadow_copy(s);
	while (next->n)
		mc_state_unref(next->steps[--next->n].state);
	next->steps[0] = (struct mc_step){mc_state_cut(w, floor, keep), 0};
	next->n = 1;
	next->now = 0;
	next->has_rows = false;
	mc_shadow_drop_marks(next, keep);
	for (int i = 0; i < next->n_marks && next->mode; i++)
		next->marks[i].step = -1;
	return 0;
}

/* Status of keeping n tokens, and the shadow then. */
static int keep_tokens(struct mc_world *w, const struct mc_shadow *s, uint64_t keep,
		       struct mc_shadow *next)
{
	uint64_t length = mc_now(s)->length;

	if (keep > length)
		return KVC_ERANGE;
	if (keep == length) {
		*next = mc_shadow_copy(s);
		return 0;
	}
	for (int i = s->now; s->has_rows && i >= 0; i--) {
		const struct mc_state *state = s->steps[i].state;

		if (!state || state->length > keep)
			continue;
		if (state->length < keep)
			return KVC_ERANGE;
		*next = back_to(s, i);
		return 0;
	}
	return cut(w, s, keep, next);
}

/* Blocks to copy into, and the call again. */
static int with_copies(struct mc_world *w, struct mc_seq *s, int (*call)(void *arg), void *arg)
{
	int rc = call(arg);

	for (int tries = 0; rc && tries < 3; tries++) {
		if (kvc_error() == KVC_ETIMEOUT)
			mc_finish_freeze(w);
		else if (kvc_error() != KVC_ERESERVE || !mc_reserve(w, s, 0, 1))
			break;
		rc = call(arg);
	}
	return rc;
}

/* The outcome of a call must be `status`, or a lack of blocks. */
static void conclude(struct mc_world *w, struct mc_seq *s, int rc, int status)
{
	(void)s;
	if (rc == 0) {
		if (status)
			MC_FAIL("went well, expected was status %d", status);
		mc_done(w, true);
		return;
	}
	if (kvc_error() == KVC_EPOOL || kvc_error() == KVC_ERESERVE)
		w->n_refused++;
	else if (kvc_error() != status)
		MC_FAIL("status %d (%s), expected was %d", kvc_error(), kvc_error_text(), status);
	mc_done(w, false);
}

/* ---- rollback ----------------------------------------------------------------------------- */

struct rollback_call {
	kvc_seq *seq;
	enum { KEEP, REMOVE, STEPS, MARK } how;
	uint64_t n;
	const kvc_mark *mark;
};

static int do_rollback(void *arg)
{
	const struct rollback_call *c = arg;

	switch (c->how) {
	case KEEP: return kvc_rollback_keep(c->seq, c->n);
	case REMOVE: return kvc_rollback_remove(c->seq, c->n);
	case STEPS: return kvc_rollback_steps(c->seq, c->n);
	default: return kvc_rollback_mark(c->seq, c->mark);
	}
}

static int expect_steps(const struct mc_shadow *s, uint64_t n, struct mc_shadow *next)
{
	int i = s->now;

	if (n == 0) {
		*next = mc_shadow_copy(s);
		return 0;
	}
	while (n && i > 0)
		n -= s->steps[--i].state != NULL;
	if (n || !s->has_rows)
		return KVC_EJOURNAL;
	*next = back_to(s, i);
	return 0;
}

void mc_op_rollback(struct mc_world *w)
{
	struct mc_seq *s = mc_pick(w);
	struct rollback_call call;
	uint64_t length, n;
	int status;

	if (!s)
		return;
	length = mc_now(&s->shadow)->length;
	n = mc_one_in(w, 4) ? mc_draw(w, length + 2) : mc_draw(w, length < 6 ? length + 1 : 6);
	call = (struct rollback_call){.seq = s->seq, .how = KEEP, .n = n > length ? n : length - n};
	if (mc_one_in(w, 2)) {
		call.how = STEPS;
		call.n = mc_draw(w, 5);
		status = expect_steps(&s->shadow, call.n, &s->next);
	} else {
		status = keep_tokens(w, &s->shadow, call.n, &s->next);
	}
	if (call.how == KEEP && mc_one_in(w, 2)) {
		call.how = REMOVE;
		call.n = n;
	}
	mc_say(w, "rollback of %d (mode %u, %llu long): %s %llu", (int)(s - w->seqs),
	       s->shadow.mode, (unsigned long long)length,
	       call.how == STEPS ? "steps" :
	       call.how == KEEP  ? "keep" :
				   "remove",
	       (unsigned long long)call.n);
	s->has_next = status == 0;
	mc_call(w);
	conclude(w, s, with_copies(w, s, do_rollback, &call), status);
}

struct many_call {
	struct mc_world *w;
	kvc_seq *seqs[MC_SEQS];
	uint64_t remove[MC_SEQS];
	size_t n;
};

static int do_many(void *arg)
{
	struct many_call *c = arg;

	return kvc_rollback_many(c->w->writer, c->seqs, c->remove, c->n);
}

void mc_op_rollback_many(struct mc_world *w)
{
	struct many_call call = {.w = w};
	int status = 0, rc;

	mc_say(w, "rollback of many");
	for (int i = 0; i < MC_SEQS && !status; i++) {
		struct mc_seq *s = &w->seqs[i];
		uint64_t length;

		if (!s->seq || kv_head_state(s->seq->head.state) != KV_HEAD_LIVE || mc_one_in(w, 3))
			continue;
		length = mc_now(&s->shadow)->length;
		call.seqs[call.n] = s->seq;
		call.remove[call.n] = mc_draw(w, length < 5 ? length + 1 : 5);
		status = keep_tokens(w, &s->shadow, length - call.remove[call.n++], &s->next);
		s->has_next = status == 0;
	}
	mc_call(w);
	rc = do_many(&call);
	for (int tries = 0; rc && tries < 3; tries++) {
		bool good = true;

		if (kvc_error() == KVC_ETIMEOUT)
			mc_finish_freeze(w);
		else if (kvc_error() != KVC_ERESERVE)
			break;
		for (int i = 0; i < MC_SEQS && good; i++)
			if (w->seqs[i].has_next)
				good = mc_reserve(w, &w->seqs[i], 0, 1);
		if (!good)
			break;
		rc = do_many(&call);
	}
	conclude(w, NULL, rc, status);
}

/* ---- marks -------------------------------------------------------------------------------- */

struct mark_call {
	kvc_seq *seq;
	kvc_mark *mark;
	bool release;
};

static int do_mark(void *arg)
{
	struct mark_call *c = arg;

	return c->release ? kvc_mark_release(c->seq, c->mark) : kvc_mark_set(c->seq, c->mark);
}

static void set_mark(struct mc_world *w, struct mc_seq *s)
{
	struct mc_mark *mark = &s->shadow.marks[s->shadow.n_marks];
	struct mark_call call = {s->seq, &mark->mark, false};
	struct mc_mark *next;

	s->next = mc_shadow_copy(&s->shadow);
	s->has_next = true;
	if (s->next.mode != KVC_JOURNAL_NONE && !s->next.has_rows)
		s->next.has_rows = true;
	next = &s->next.marks[s->next.n_marks++];
	next->state = mc_state_ref(mc_now(&s->next));
	next->step = s->next.now;
	/* if the call is cut short nobody knows the mark's number: it is not used then */
	next->mark = (kvc_mark){0, 0, next->state->length};
	mc_call(w);
	if (with_copies(w, s, do_mark, &call)) {
		conclude(w, s, -1, 0);
		return;
	}
	MC_CHECK(mark->mark.length_tokens == mc_now(&s->shadow)->length);
	next->mark = mark->mark;
	mc_done(w, true);
}

static void release_mark(struct mc_world *w, struct mc_seq *s, int i)
{
	kvc_mark mark = s->shadow.marks[i].mark;
	struct mark_call call = {s->seq, &mark, true};
	int rc;

	s->next = mc_shadow_copy(&s->shadow);
	s->has_next = true;
	while (s->next.n_marks > i)
		mc_state_unref(s->next.marks[--s->next.n_marks].state);
	mc_call(w);
	rc = with_copies(w, s, do_mark, &call);
	MC_CHECK(rc == 0);
	mc_done(w, true);
	MC_CHECK(kvc_mark_release(s->seq, &mark) == -1 && kvc_error() == KVC_ENOTFOUND);
}

static int expect_mark(struct mc_world *w, const struct mc_shadow *s, int i, struct mc_shadow *next)
{
	const struct mc_mark *mark = &s->marks[i];
	int status;

	if (s->mode == KVC_JOURNAL_NONE) {
		status = keep_tokens(w, s, mark->mark.length_tokens, next);
	} else if (mark->step < 0) {
		return KVC_EJOURNAL;
	} else {
		*next = back_to(s, mark->step);
		status = 0;
	}
	if (status)
		return status;
	while (next->n_marks > i + 1)
		mc_state_unref(next->marks[--next->n_marks].state);
	return 0;
}

static void rollback_mark(struct mc_world *w, struct mc_seq *s, int i)
{
	kvc_mark mark = s->shadow.marks[i].mark;
	struct rollback_call call = {.seq = s->seq, .how = MARK, .mark = &mark};
	int status = expect_mark(w, &s->shadow, i, &s->next);

	s->has_next = status == 0;
	mc_call(w);
	conclude(w, s, with_copies(w, s, do_rollback, &call), status);
}

void mc_op_marks(struct mc_world *w)
{
	struct mc_seq *s = mc_pick(w);
	uint64_t what = mc_draw(w, 5);
	int i;

	if (!s)
		return;
	if (what < 2 && s->shadow.n_marks < MC_MARKS) {
		mc_say(w, "mark in %d", (int)(s - w->seqs));
		set_mark(w, s);
		return;
	}
	if (s->shadow.n_marks == 0)
		return;
	i = (int)mc_draw(w, (uint64_t)s->shadow.n_marks);
	if (s->shadow.marks[i].mark.id == 0)
		return;
	mc_say(w, "%s mark %d of %d", what < 3 ? "release" : "rollback to", i, (int)(s - w->seqs));
	if (what < 3)
		release_mark(w, s, i);
	else
		rollback_mark(w, s, i);
}

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
	rc = with_copies(w, s, do_forward, &call);
	if (rc == 0 && call.done != n_done)
		MC_FAIL("%lld steps were replayed, not %d", (long long)call.done, n_done);
	conclude(w, s, rc, status);
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
	rc = with_copies(w, s, do_fold, &call);
	if (rc == 0 && (uint64_t)call.done != rows)
		MC_FAIL("%lld rows were folded, not %llu", (long long)call.done,
			(unsigned long long)rows);
	conclude(w, s, rc, status);
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
	conclude(w, to, rc, status);
	if (rc && status == 0 && to->shadow.mode != KVC_JOURNAL_REPLAY)
		begun(&to->shadow);
	if (to->seq->journal.future_end == to->seq->head.journal_end)
		mc_shadow_drop_future(&to->shadow);
}

/* Onto any sequence, onto a fork that was taken back to its base, or onto a fork of the base. */
void mc_op_replay_from(struct mc_world *w)
{
	struct mc_seq *s = mc_pick(w), *to = mc_free_seq(w);
	struct rollback_call back;

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
		back = (struct rollback_call){
			.seq = to->seq,
			.how = STEPS,
			.n = (uint64_t)mc_shadow_steps(&s->shadow, 0, s->shadow.now),
		};
		to->next = back_to(&to->shadow, 0);
		to->has_next = true;
		mc_call(w);
		MC_CHECK(do_rollback(&back) == 0);
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

/* ---- options ------------------------------------------------------------------------------ */

struct set_call {
	kvc_seq *seq;
	const struct kvc_journal_options *options;
};

static int do_set(void *arg)
{
	struct set_call *c = arg;

	return kvc_journal_set(c->seq, c->options);
}

void mc_op_journal(struct mc_world *w)
{
	struct set_call call;
	struct mc_seq *s = mc_pick(w);
	struct kvc_journal_options o = {.size = sizeof(o)};
	bool changes;
	int rc;

	if (!s)
		return;
	o.mode = mc_one_in(w, 4) ? (uint32_t)mc_draw(w, 3) : s->shadow.mode;
	if (s->shadow.mode == KVC_JOURNAL_NONE && !mc_one_in(w, 4))
		o.mode = 1 + (uint32_t)mc_draw(w, 2);
	if (o.mode == KVC_JOURNAL_UNDO && mc_one_in(w, 2))
		o.when_full = KVC_FULL_FORGET;
	if (mc_one_in(w, 2))
		o.max_rows = 10 + mc_draw(w, 200);
	if (mc_one_in(w, 2))
		o.keep_steps = 1 + (uint32_t)mc_draw(w, 10);
	changes = o.mode != s->shadow.mode;
	mc_say(w, "journal of %d: mode %u, %s when full, %llu rows, %u steps", (int)(s - w->seqs),
	       o.mode, o.when_full ? "forget" : "refuse", (unsigned long long)o.max_rows,
	       o.keep_steps);
	s->next = mc_shadow_copy(&s->shadow);
	s->has_next = true;
	if (changes)
		mc_shadow_drop_future(&s->next);
	s->next.mode = o.mode;
	s->next.when_full = o.when_full;
	s->next.max_rows = o.max_rows;
	s->next.keep_steps = o.keep_steps ? o.keep_steps : 64;
	call = (struct set_call){s->seq, &o};
	mc_call(w);
	rc = with_copies(w, s, do_set, &call);
	if (changes && (s->shadow.has_rows || s->shadow.n_marks))
		conclude(w, s, rc, KVC_EBUSY);
	else
		conclude(w, s, rc, 0);
}
