/* Updates: appends, planes, commits and aborts. */
#include <stdlib.h>
#include <string.h>

#include "tests/model/mc_plan.h"

static bool is_ring(const struct mc_world *w, uint32_t layer, uint64_t token)
{
	uint32_t bound = w->layout->layers[layer].bound_slots;

	return bound && token >= bound;
}

/* Is token t of the plan in a row of the journal, or in a new slot, or (scatter) in neither? */
enum where { IN_SLOT, IN_ROW, NOWHERE };

static enum where where_of(const struct mc_world *w, const struct mc_plan *p, uint32_t layer,
			   uint64_t t)
{
	bool wraps = is_ring(w, layer, mc_now(&p->s->shadow)->length + t);

	if (wraps && p->flags & KVC_UPDATE_SCATTER)
		return NOWHERE;
	return wraps || p->s->shadow.mode == KVC_JOURNAL_REPLAY ? IN_ROW : IN_SLOT;
}

static uint64_t slot_of(const struct mc_world *w, const struct mc_plan *p, uint32_t layer,
			uint64_t t)
{
	uint64_t token = mc_now(&p->s->shadow)->length + t;
	uint32_t bound = w->layout->layers[layer].bound_slots;

	return bound ? token % bound : token;
}

/* ---- the plan ----------------------------------------------------------------------------- */

static void plan_free(struct mc_plan *p)
{
	for (uint64_t t = 0; t <= p->n_tokens; t++)
		mc_state_unref(p->states[t]);
}

static void plan_rows(struct mc_world *w, struct mc_plan *p)
{
	for (uint64_t t = 0; t < p->n_tokens; t++) {
		p->token_rows[t] = 0;
		for (uint32_t l = 0; l < w->layout->n_layers; l++)
			if (where_of(w, p, l, t) == IN_ROW)
				p->token_rows[t] += w->layout->layers[l].n_query_groups;
	}
}

static void plan_states(struct mc_world *w, struct mc_plan *p)
{
	const struct mc_state *from = mc_now(&p->s->shadow);

	for (uint64_t t = 0; t < p->n_tokens; t++) {
		p->states[t] = mc_state_copy(w, from);
		p->states[t]->length += t + 1;
		p->states[t]->position += t + 1;
		if (p->s->shadow.mode != KVC_JOURNAL_REPLAY)
			p->states[t]->base = p->states[t]->length;
	}
	p->states[p->n_tokens] = mc_state_copy(w, p->n_tokens ? p->states[p->n_tokens - 1] : from);
}

/* Token t's vectors of a layer: in all states from the one after it on. */
static void plan_token(struct mc_world *w, struct mc_plan *p, uint32_t layer, uint64_t t,
		       const uint32_t *values)
{
	uint64_t slot = slot_of(w, p, layer, t);
	enum where where = where_of(w, p, layer, t);

	if (where == NOWHERE)
		return;
	for (uint32_t h = 0; h < w->layout->layers[layer].n_query_groups; h++) {
		struct mc_cell cell = *mc_cell(w, p->states[t], layer, h, slot);

		if (p->s->shadow.mode == KVC_JOURNAL_REPLAY) {
			cell.row = ++w->n_rows;
			cell.row_kv = values[h];
			memset(cell.row_plane, 0, sizeof(cell.row_plane));
		} else {
			cell = (struct mc_cell){.kv = values[h]};
		}
		for (uint64_t i = t; i <= p->n_tokens; i++)
			*mc_cell(w, p->states[i], layer, h, slot) = cell;
	}
}

/* ---- writing tokens ----------------------------------------------------------------------- */

static char k_bytes[MC_PLAN_BYTES], v_bytes[MC_PLAN_BYTES];

/* Values of tokens [first, end) of a layer, and the plan of them. */
static void make_tokens(struct mc_world *w, struct mc_plan *p, uint32_t layer, uint64_t first,
			uint64_t end)
{
	const struct kv_layer *l = &w->layout->layers[layer];
	uint32_t k = mc_k_bytes(w, layer), v = mc_full_bytes(w, layer) - k;
	uint32_t values[MC_HEADS];

	for (uint64_t t = first; t < end; t++) {
		for (uint32_t h = 0; h < l->n_query_groups; h++) {
			uint64_t i = (t - first) * l->n_query_groups + h;

			values[h] = mc_value_new(w, layer);
			if (w->spoils && mc_one_in(w, 40))
				mc_value_spoil(w, values[h]);
			p->is_bad |= w->values[values[h]].is_bad &&
				     p->s->shadow.mode != KVC_JOURNAL_REPLAY;
			memcpy(k_bytes + i * k, w->values[values[h]].full, k);
			memcpy(v_bytes + i * v, w->values[values[h]].full + k, v);
		}
		plan_token(w, p, layer, t, values);
	}
}

/* Tokens that the layer takes by kvc_write: in a scatter update those up to the bound. */
static uint64_t written_tokens(const struct mc_world *w, const struct mc_plan *p, uint32_t layer)
{
	uint64_t n = 0;

	while (n < p->n_tokens && where_of(w, p, layer, n) != NOWHERE)
		n++;
	return n;
}

static void check_written(const struct mc_plan *p, int rc)
{
	if (p->is_bad)
		MC_CHECK(rc == -1 && kvc_error() == KVC_EVALUE);
	else
		MC_CHECK(rc == 0);
}

static void write_rows(struct mc_world *w, struct mc_plan *p, uint32_t layer, uint64_t first,
		       uint64_t end)
{
	const struct kv_layer *l = &w->layout->layers[layer];
	uint32_t k = mc_k_bytes(w, layer), v = mc_full_bytes(w, layer) - k;

	make_tokens(w, p, layer, first, end);
	check_written(p, kvc_write_rows(p->s->seq, layer, first, end - first, k_bytes,
					(size_t)k * l->n_query_groups, v ? v_bytes : NULL,
					(size_t)v * l->n_query_groups));
}

/* In place, where that is allowed. */
static void write_span(struct mc_world *w, struct mc_plan *p, uint32_t layer, uint64_t end)
{
	const struct kv_layer *l = &w->layout->layers[layer];
	size_t k = (size_t)mc_k_bytes(w, layer) * l->n_query_groups;
	size_t v = (size_t)mc_full_bytes(w, layer) * l->n_query_groups - k;

	make_tokens(w, p, layer, 0, end);
	for (uint64_t first = 0; first < end;) {
		void *k_at, *v_at;
		int64_t n = kvc_write_span(p->s->seq, layer, first, end - first, &k_at, &v_at);

		MC_CHECK(n > 0);
		memcpy(k_at, k_bytes + first * k, (size_t)n * k);
		if (v)
			memcpy(v_at, v_bytes + first * v, (size_t)n * v);
		first += (uint64_t)n;
	}
}

static bool may_span(struct mc_world *w, const struct mc_plan *p, uint32_t layer, uint64_t end)
{
	void *k, *v;

	if (w->layout->k_format != KV_FORMAT_RAW || w->layout->v_format != KV_FORMAT_RAW ||
	    where_of(w, p, layer, end - 1) == IN_ROW) {
		MC_CHECK(kvc_write_span(p->s->seq, layer, 0, end, &k, &v) == -1);
		MC_CHECK(kvc_error() == KVC_EUNSUPPORTED);
		return false;
	}
	return true;
}

static void write_slot_planes(struct mc_world *w, struct mc_plan *p, uint32_t layer, uint64_t end)
{
	static char bytes[MC_PLANES][MC_PLAN_BYTES / 4];
	const struct kv_layer *l = &w->layout->layers[layer];
	const void *planes[MC_PLANES] = {NULL};
	uint64_t first = mc_draw(w, end), n = 1 + mc_draw(w, end - first);

	for (uint32_t i = 0; i < w->n_slot_planes; i++) {
		if (mc_one_in(w, 3))
			continue;
		planes[i] = bytes[i];
		for (uint64_t t = first; t < first + n; t++)
			for (uint32_t h = 0; h < l->n_query_groups; h++) {
				uint32_t number = mc_number(w);

				mc_fill_plane(bytes[i] + ((t - first) * l->n_query_groups + h) *
								 w->slot_plane_bytes[i],
					      w->slot_plane_bytes[i], number);
				for (uint64_t s = t; s <= p->n_tokens; s++)
					mc_planes_of(mc_cell(w, p->states[s], layer, h,
							     slot_of(w, p, layer, t)))[i] = number;
			}
	}
	MC_CHECK(kvc_write_planes(p->s->seq, layer, first, n, planes) == 0);
}

static void write_layer(struct mc_world *w, struct mc_plan *p, uint32_t layer)
{
	uint64_t end = written_tokens(w, p, layer), cut;

	if (end == 0)
		return;
	switch (mc_draw(w, 4)) {
	case 0: /* in two parts, the second first */
		cut = mc_draw(w, end + 1);
		write_rows(w, p, layer, cut, end);
		if (!p->is_bad)
			write_rows(w, p, layer, 0, cut);
		break;
	case 1:
		if (may_span(w, p, layer, end)) {
			write_span(w, p, layer, end);
			break;
		}
		write_rows(w, p, layer, 0, end);
		break;
	default:
		if (end < p->n_tokens) {
			write_rows(w, p, layer, 0, end);
			break;
		}
		make_tokens(w, p, layer, 0, end);
		check_written(p, kvc_write(p->s->seq, layer, k_bytes,
					   w->layout->layers[layer].v_width ? v_bytes : NULL));
		break;
	}
	while (w->n_slot_planes && !p->is_bad && mc_one_in(w, 2))
		write_slot_planes(w, p, layer, end);
}

/* ---- sequence planes ---------------------------------------------------------------------- */

static bool do_plane(struct mc_world *w, struct mc_plan *p)
{
	struct mc_state *last = p->states[p->n_tokens];
	uint32_t i = (uint32_t)mc_draw(w, w->n_seq_planes), number = mc_number(w);
	char bytes[256];

	mc_fill_plane(bytes, w->seq_plane_bytes[i], number);
	if (mc_one_in(w, 8)) {
		MC_CHECK(kvc_plane_set(p->s->seq, w->seq_plane[i], bytes,
				       w->seq_plane_bytes[i] + 1) == -1);
		MC_CHECK(kvc_error() == KVC_ERANGE);
	}
	if (kvc_plane_set(p->s->seq, w->seq_plane[i], bytes, w->seq_plane_bytes[i]) &&
	    (kvc_error() != KVC_ERESERVE || !mc_reserve(w, p->s, 1, 1) ||
	     kvc_plane_set(p->s->seq, w->seq_plane[i], bytes, w->seq_plane_bytes[i]))) {
		MC_CHECK(kvc_error() == KVC_ERESERVE || kvc_error() == KVC_EPOOL ||
			 (kvc_error() == KVC_EJOURNAL && p->s->shadow.mode));
		return false;
	}
	last->planes[i] = number;
	last->planes_set = true;
	p->sets_planes = true;
	return true;
}

/* ---- begin and end ------------------------------------------------------------------------ */

static int begin(struct mc_plan *p)
{
	return kvc_update_begin(p->s->seq, p->n_tokens, p->flags);
}

/* The journal is full: is it? */
static void check_full(struct mc_world *w, const struct mc_plan *p)
{
	const struct mc_shadow *s = &p->s->shadow;
	const struct seq_group *g = &p->s->seq->groups[w->layout->journal_group];
	uint32_t log2 = w->layout->journal[s->mode].rows_log2;
	uint64_t need = 2 + p->extra_rows + p->n_tokens, have = mc_shadow_rows(s);

	MC_CHECK(s->mode != KVC_JOURNAL_NONE);
	for (uint64_t t = 0; t < p->n_tokens; t++)
		need += p->token_rows[t];
	if (s->when_full == KVC_FULL_FORGET)
		have = 1;
	if (s->max_rows && have + need > s->max_rows)
		return;
	if (have + need + (UINT64_C(3) << log2) > (uint64_t)(g->n_entries / 2) << log2)
		return;
	MC_FAIL("refused as full with %llu rows and %llu more of %llu",
		(unsigned long long)mc_shadow_rows(s), (unsigned long long)need,
		(unsigned long long)s->max_rows);
}

static void forget(struct mc_world *w, struct mc_seq *s, struct mc_shadow *shadow)
{
	struct kvc_journal_info info;

	if (shadow->mode == KVC_JOURNAL_NONE)
		return;
	MC_CHECK(kvc_journal_info(s->seq, &info) == 0);
	mc_shadow_forget(w, shadow, info.n_steps, info.n_rows);
}

static bool try_begin(struct mc_world *w, struct mc_plan *p)
{
	const struct mc_state *now = mc_now(&p->s->shadow);
	uint64_t most = w->layout->max_slots;
	bool refused = false;

	if (p->s->shadow.mode == KVC_JOURNAL_NONE)
		refused = now->length + p->n_tokens > most;
	else if (!(p->flags & KVC_UPDATE_SCATTER))
		refused = p->n_tokens > most;
	if (begin(p) == 0) {
		MC_CHECK(!refused);
		return true;
	}
	if (refused) {
		MC_CHECK(kvc_error() == KVC_EBOUND);
		return false;
	}
	if (kvc_error() == KVC_ERESERVE && mc_reserve(w, p->s, p->n_tokens, 0) && begin(p) == 0)
		return true;
	if (kvc_error() == KVC_EJOURNAL)
		check_full(w, p);
	else
		MC_CHECK(kvc_error() == KVC_EPOOL);
	/* What was rolled back may have gone for it. */
	if (p->s->seq->journal.future_end == p->s->seq->head.journal_end)
		mc_shadow_drop_future(&p->s->shadow);
	return false;
}

/* How large, when the caller does not say. */
static void plan_size(struct mc_world *w, struct mc_plan *p)
{
	const struct mc_state *now = mc_now(&p->s->shadow);
	uint32_t mode = p->s->shadow.mode;
	uint64_t most;

	p->n_tokens = mc_one_in(w, 12) ? mc_draw(w, 24) : mc_draw(w, 6);
	if (mode == KVC_JOURNAL_NONE && p->n_tokens == 0)
		p->n_tokens = 1;
	most = MC_TOKENS - now->length;
	if (p->n_tokens > most)
		p->n_tokens = most;
	p->flags = mode != KVC_JOURNAL_NONE && mc_one_in(w, 4) ? KVC_UPDATE_SCATTER : 0;
}

static void write_all(struct mc_world *w, struct mc_plan *p, bool freezes)
{
	mc_shadow_drop_future(&p->s->shadow);
	plan_states(w, p);
	w->spoils = freezes && mc_one_in(w, 6);
	for (uint32_t l = 0; l < w->layout->n_layers && !p->is_bad; l++) {
		if (freezes && mc_one_in(w, 12))
			mc_take_snapshot(w);
		write_layer(w, p, l);
	}
}

/* Begins an update and writes all of it. False: there is none. */
static bool make_update(struct mc_world *w, struct mc_seq *s, struct mc_plan *p)
{
	bool journal = s->shadow.mode != KVC_JOURNAL_NONE, good = true;

	*p = (struct mc_plan){.s = s};
	plan_size(w, p);
	if (p->n_tokens == 0 && !journal)
		return false;
	plan_rows(w, p);
	mc_say(w, "update of %d (mode %u, %llu long): %llu tokens%s", (int)(s - w->seqs),
	       s->shadow.mode, (unsigned long long)mc_now(&s->shadow)->length,
	       (unsigned long long)p->n_tokens, p->flags ? ", scatter" : "");
	if (!try_begin(w, p)) {
		w->n_refused++;
		return false;
	}
	write_all(w, p, true);
	good = !p->is_bad;
	for (int i = 0; i < MC_PARTS && journal && good && mc_one_in(w, 2); i++)
		good = mc_scatter(w, p);
	while (good && w->n_seq_planes && mc_one_in(w, 3))
		good = do_plane(w, p);
	if (mc_one_in(w, 12))
		mc_take_snapshot(w);
	if (good && !mc_one_in(w, 10))
		return true;
	mc_say(w, "  aborted");
	MC_CHECK(kvc_abort(s->seq) == 0);
	plan_free(p);
	return false;
}

/* What the commit makes of the sequence. */
static void plan_next(struct mc_world *w, struct mc_plan *p)
{
	struct mc_seq *s = p->s;
	bool extra = p->extra_rows || p->n_tokens == 0;
	bool inner = p->flags & KVC_UPDATE_SCATTER || p->extra_rows;

	s->next = mc_shadow_copy(&s->shadow);
	s->has_next = true;
	(void)w;
	if (s->next.mode == KVC_JOURNAL_NONE) {
		mc_state_unref(s->next.steps[0].state);
		s->next.steps[0].state = mc_state_ref(p->states[p->n_tokens]);
		return;
	}
	s->next.has_rows = true;
	for (uint64_t t = 0; t < p->n_tokens; t++) {
		bool is_last = t + 1 == p->n_tokens && !extra;
		struct mc_state *state = is_last                 ? p->states[p->n_tokens] :
					 inner || p->sets_planes ? NULL :
								   p->states[t];

		mc_shadow_push(&s->next, mc_state_ref(state), p->token_rows[t]);
	}
	if (extra)
		mc_shadow_push(&s->next, mc_state_ref(p->states[p->n_tokens]), p->extra_rows);
}

/* Reserves what a commit may need to copy. */
static bool reserve_copies(struct mc_world *w, struct mc_plan *plans, int n)
{
	for (int i = 0; i < n; i++)
		if (!mc_reserve(w, plans[i].s, 0, 1))
			return false;
	return true;
}

static void commit(struct mc_world *w, struct mc_plan *plans, int n)
{
	kvc_seq *seqs[2];
	int rc;

	for (int i = 0; i < n; i++) {
		plan_next(w, &plans[i]);
		seqs[i] = plans[i].s->seq;
	}
	mc_call(w);
	if (w->dies_open)
		longjmp(w->death, 1);
	rc = mc_one_in(w, 2) ? kvc_commit(w->writer, seqs, (size_t)n) :
			       kvc_commit(w->writer, NULL, 0);
	for (int tries = 0; rc && tries < 3; tries++) {
		if (kvc_error() == KVC_ETIMEOUT)
			mc_finish_freeze(w);
		else if (kvc_error() != KVC_ERESERVE || !reserve_copies(w, plans, n))
			break;
		rc = kvc_commit(w->writer, seqs, (size_t)n);
	}
	if (rc) {
		MC_CHECK(kvc_error() == KVC_EPOOL || kvc_error() == KVC_ERESERVE);
		mc_say(w, "  not committed: %s", kvc_error_text());
		mc_done(w, false);
		for (int i = 0; i < n; i++)
			MC_CHECK(kvc_abort(seqs[i]) == 0);
		return;
	}
	for (int i = 0; i < n; i++)
		forget(w, plans[i].s, &plans[i].s->next);
	mc_done(w, true);
}

void mc_op_update(struct mc_world *w)
{
	static struct mc_plan plans[2];
	struct mc_seq *a = mc_pick(w), *b = mc_one_in(w, 4) ? mc_pick(w) : NULL;
	int n = 0;

	if (!a)
		return;
	n += make_update(w, a, &plans[n]);
	if (b && b != a)
		n += make_update(w, b, &plans[n]);
	if (n == 0)
		return;
	commit(w, plans, n);
	for (int i = 0; i < n; i++)
		plan_free(&plans[i]);
}

/* One update of one sequence, of any kind. */
void mc_update_of(struct mc_world *w, struct mc_seq *s)
{
	static struct mc_plan plan;

	if (!make_update(w, s, &plan))
		return;
	commit(w, &plan, 1);
	plan_free(&plan);
}

/* What was reserved is there: n updates of one token each are not refused for a lack of blocks. */
void mc_op_reserved(struct mc_world *w)
{
	static struct mc_plan plan;
	struct mc_seq *s = mc_pick(w);
	uint64_t n = 1 + mc_draw(w, 8);

	w->event = MC_NOTHING;
	if (!s || mc_now(&s->shadow)->length + n > MC_TOKENS || bare_reserve(w->bare, s->seq, n))
		return;
	mc_say(w, "%llu reserved tokens of %d", (unsigned long long)n, (int)(s - w->seqs));
	for (; n; n--) {
		plan = (struct mc_plan){.s = s, .n_tokens = 1};
		plan_rows(w, &plan);
		if (begin(&plan)) {
			MC_CHECK(kvc_error() == KVC_EJOURNAL || kvc_error() == KVC_EBOUND);
			mc_shadow_drop_future(&s->shadow);
			return;
		}
		write_all(w, &plan, false);
		plan_next(w, &plan);
		mc_call(w);
		MC_CHECK(kvc_commit(w->writer, &s->seq, 1) == 0);
		forget(w, s, &s->next);
		mc_done(w, true);
		plan_free(&plan);
	}
}
