/* Marks, rollbacks, and the options of journals. */
#include "tests/model/mc.h"

/* ---- where a rollback leads ---------------------------------------------------------------- */

struct mc_shadow mc_back_to(const struct mc_shadow *s, int to)
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
		*next = mc_back_to(s, i);
		return 0;
	}
	return cut(w, s, keep, next);
}

int mc_with_copies(struct mc_world *w, struct mc_seq *s, int (*call)(void *arg), void *arg)
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

void mc_conclude(struct mc_world *w, int rc, int status)
{
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
	*next = mc_back_to(s, i);
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
	mc_conclude(w, mc_with_copies(w, s, do_rollback, &call), status);
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
	mc_conclude(w, rc, status);
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
	if (mc_with_copies(w, s, do_mark, &call)) {
		mc_conclude(w, -1, 0);
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
	rc = mc_with_copies(w, s, do_mark, &call);
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
		*next = mc_back_to(s, mark->step);
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
	mc_conclude(w, mc_with_copies(w, s, do_rollback, &call), status);
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
	rc = mc_with_copies(w, s, do_set, &call);
	if (changes && (s->shadow.has_rows || s->shadow.n_marks))
		mc_conclude(w, rc, KVC_EBUSY);
	else
		mc_conclude(w, rc, 0);
}
