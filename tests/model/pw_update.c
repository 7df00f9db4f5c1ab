/*
 * Updates as a model makes them: of one sequence, or of two whose layers take turns. What is lacking
 * is reserved when it is missed, or ahead; updates are aborted at any point.
 */
#include <string.h>

#include "tests/model/pw.h"

#define BYTES_MAX (PW_TOKENS * PW_HEADS * 64u * 4u)
#define SCATTER_BLOCKS 64u

/* ---- blocks and rows ---------------------------------------------------------------------- */

void pw_reserve(struct pw_world *w, struct pw_seq *s, uint64_t n_tokens)
{
	uint64_t n_rows = n_tokens * w->mc.layout->n_heads + 1,
		 room = PW_TOKENS - pw_now(s)->length;

	if (s->policy)
		n_rows += kvc_policy_rows(s->policy, n_tokens);
	MC_CHECK(bare_reserve(w->mc.bare, s->seq, n_tokens < room ? n_tokens : room) == 0);
	if (s->shadow.mode != KVC_JOURNAL_NONE)
		MC_CHECK(bare_reserve_scatter(w->mc.bare, s->seq, 1, n_rows, SCATTER_BLOCKS) == 0);
}

/* The call may be repeated: blocks or rows were missing, and are there now. */
static bool has_helped(struct pw_world *w, struct pw_update *u)
{
	if (kvc_error() != KVC_ERESERVE)
		return false;
	pw_say(w, "  reserves");
	pw_reserve(w, u->s, u->n_tokens);
	return true;
}

/* ---- tokens of a layer -------------------------------------------------------------------- */

static void make_values(struct pw_world *w, struct pw_update *u, uint32_t layer,
			struct pw_tokens *tokens, char *k, char *v)
{
	uint32_t k_bytes = mc_k_bytes(&w->mc, layer);
	uint32_t v_bytes = mc_full_bytes(&w->mc, layer) - k_bytes;

	for (uint64_t i = 0; i < u->n_tokens * w->mc.layout->layers[layer].n_query_groups; i++) {
		tokens->value[i] = mc_value_new(&w->mc, layer);
		memcpy(k + i * k_bytes, w->mc.values[tokens->value[i]].full, k_bytes);
		memcpy(v + i * v_bytes, w->mc.values[tokens->value[i]].full + k_bytes, v_bytes);
	}
}

static void measure(struct pw_world *w, struct pw_update *u, uint32_t layer,
		    struct pw_tokens *tokens, const char *k, const char *v)
{
	static float v_error[PW_TOKENS * PW_HEADS];
	const struct kv_layer *l = &w->mc.layout->layers[layer];
	uint64_t n = u->n_tokens * l->n_query_groups;
	size_t v_bytes = mc_full_bytes(&w->mc, layer) - mc_k_bytes(&w->mc, layer);

	MC_CHECK(kvc_quantisation_error(&w->mc.bare->layout, layer, u->n_tokens, k,
					v_bytes ? v : NULL, tokens->error,
					v_bytes ? v_error : NULL) == 0);
	for (uint64_t i = 0; i < n; i++) {
		tokens->norm[i] = v_bytes ? kv_policy_norm(w->mc.layout->dtype, l->v_width,
							   v + i * v_bytes) :
					    0;
		if (v_bytes)
			tokens->error[i] += v_error[i];
	}
}

static float draw_float(struct pw_world *w)
{
	if (mc_one_in(&w->mc, 300))
		return mc_one_in(&w->mc, 2) ? 1e30f : 1e-40f;
	return (float)mc_draw(&w->mc, 1 << 20) / (1 << 20);
}

/* Norms and errors that the caller knows better. */
static void give(struct pw_world *w, uint64_t n, float *to)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = draw_float(w) * 4;
}

/* ---- a layer ------------------------------------------------------------------------------ */

static void compare_plan(const struct kvc_policy_plan *a, const struct kvc_policy_plan *b,
			 uint32_t n_heads)
{
	size_t n = a->n_tokens * (a->shared ? 1 : n_heads);
	size_t m = a->n_moves * (size_t)(a->shared ? 1 : n_heads);

	MC_CHECK(a->n_tokens == b->n_tokens && !a->shared == !b->shared &&
		 a->n_moves == b->n_moves && !a->slots == !b->slots);
	if (!a->slots)
		return;
	MC_CHECK(memcmp(a->slots, b->slots, n * sizeof(a->slots[0])) == 0);
	MC_CHECK(m == 0 || (memcmp(a->from, b->from, m * sizeof(a->from[0])) == 0 &&
			    memcmp(a->to, b->to, m * sizeof(a->to[0])) == 0));
}

static int write_layer(struct pw_world *w, struct pw_update *u, uint32_t layer, const char *k,
		       const char *v, const float *norms, const float *errors)
{
	bool has_values = w->mc.layout->layers[layer].v_width != 0;
	int rc;

	do
		rc = kvc_policy_write(u->s->policy, layer, k, has_values ? v : NULL, norms, errors);
	while (rc && has_helped(w, u));
	return rc;
}

static int score_layer(struct pw_world *w, struct pw_update *u, uint32_t layer,
		       const float *weights)
{
	int rc;

	do
		rc = kvc_policy_score(u->s->policy, layer, weights);
	while (rc && has_helped(w, u));
	return rc;
}

static bool draw_weights(struct pw_world *w, const struct pw_update *u, uint32_t layer,
			 float *weights)
{
	uint64_t n = pw_slots(w, layer, u->to->length) * w->mc.layout->layers[layer].n_query_groups;

	for (uint64_t i = 0; i < n; i++)
		weights[i] = draw_float(w);
	return !mc_one_in(&w->mc, 12);
}

/* -1: refused. 1: the walk ends the update here. */
static int do_layer(struct pw_world *w, struct pw_update *u, uint32_t layer)
{
	static struct pw_tokens tokens;
	static struct pw_plan expected;
	static char k[BYTES_MAX], v[BYTES_MAX];
	static float weights[PW_HEADS * PW_TOKENS];
	uint64_t n = u->n_tokens * w->mc.layout->layers[layer].n_query_groups;
	struct kvc_policy_plan plan;
	bool norms = mc_one_in(&w->mc, 2), errors = mc_one_in(&w->mc, 2), has_weights;

	if (kvc_policy_choose(u->s->policy, layer, u->n_tokens, &plan))
		MC_FAIL("choose: %s", kvc_error_text());
	pw_choose(w, u->from, layer, u->n_tokens, &expected);
	compare_plan(&plan, &expected.plan, w->mc.layout->layers[layer].n_query_groups);
	if (mc_one_in(&w->mc, 80))
		return 1;
	make_values(w, u, layer, &tokens, k, v);
	measure(w, u, layer, &tokens, k, v);
	if (norms)
		give(w, n, tokens.norm);
	if (errors)
		give(w, n, tokens.error);
	if (write_layer(w, u, layer, k, v, norms ? tokens.norm : NULL,
			errors ? tokens.error : NULL))
		return -1;
	if (mc_one_in(&w->mc, 80))
		return 1;
	pw_put(w, u, layer, &expected, &tokens);
	has_weights = draw_weights(w, u, layer, weights);
	if (mc_one_in(&w->mc, 10) && pw_attend(w, u, layer, &expected, &tokens, k, v, weights)) {
		w->n_attended++;
		has_weights = true;
	}
	if (score_layer(w, u, layer, has_weights ? weights : NULL))
		return -1;
	pw_settle(w, u, layer, &expected, has_weights && u->from->length ? weights : NULL);
	return mc_one_in(&w->mc, 80);
}

/* ---- begin -------------------------------------------------------------------------------- */

/* How many: mostly one, at times all that may come. */
static uint64_t draw_size(struct pw_world *w, const struct pw_seq *s)
{
	uint64_t limit = pw_limit(w, pw_now(s)), room = PW_TOKENS - pw_now(s)->length, n;

	limit = limit < room ? limit : room;
	if (pw_now(s)->length == 0 && mc_one_in(&w->mc, 2))
		n = limit < PW_SLOTS ? limit : PW_SLOTS;
	else if (mc_one_in(&w->mc, 3))
		n = 1 + mc_draw(&w->mc, limit ? limit : 1);
	else
		n = 1 + mc_draw(&w->mc, 3);
	return n < limit ? n : limit;
}

static bool is_full(const struct pw_world *w, uint64_t length)
{
	uint64_t bound = 0;

	for (uint32_t l = 0; l < w->mc.layout->n_layers; l++) {
		bound = w->mc.layout->layers[l].bound_slots;
		if (bound && length >= bound)
			return true;
	}
	return false;
}

/* Mostly as large as it may be; some are soon full. */
int pw_set_journal(struct pw_world *w, struct pw_seq *s, uint32_t mode)
{
	struct kvc_journal_options o = {.size = sizeof(o), .mode = mode};

	if (mode == KVC_JOURNAL_UNDO && mc_one_in(&w->mc, 3))
		o.when_full = KVC_FULL_FORGET;
	if (mc_one_in(&w->mc, 3))
		o.max_rows = 60 + mc_draw(&w->mc, 1000);
	if (mc_one_in(&w->mc, 2))
		o.keep_steps = 1 + (uint32_t)mc_draw(&w->mc, 10);
	pw_say(w, "  journal of %d: mode %u, %llu rows, %u steps, when full %u", (int)(s - w->seqs),
	       o.mode, (unsigned long long)o.max_rows, o.keep_steps, o.when_full);
	if (kvc_journal_set(s->seq, &o))
		return -1;
	s->shadow.mode = mode;
	s->shadow.when_full = o.when_full;
	s->shadow.keep_steps = o.keep_steps ? o.keep_steps : 64;
	return 0;
}

/* A layer that is full needs a journal. */
static void want_journal(struct pw_world *w, struct pw_seq *s)
{
	if (s->shadow.mode != KVC_JOURNAL_NONE)
		return;
	if (pw_set_journal(w, s, 1 + (uint32_t)mc_draw(&w->mc, 2)))
		MC_FAIL("journal: %s", kvc_error_text());
}

/* The journal is full: what can go goes. */
static void relieve(struct pw_world *w, struct pw_seq *s)
{
	pw_say(w, "  the journal of %d is full", (int)(s - w->seqs));
	MC_CHECK(s->shadow.mode != KVC_JOURNAL_NONE);
	w->n_refused++;
	pw_release_marks(w, s);
	if (s->shadow.mode == KVC_JOURNAL_REPLAY)
		pw_fold(w, s, 0);
}

/* More than the policy takes is refused, and nothing has happened. */
static void try_too_many(struct pw_world *w, struct pw_update *u)
{
	uint64_t limit = pw_limit(w, u->from), n = limit + 1;
	struct kvc_policy_plan plan;
	int rc = 0;

	if (limit > PW_TOKENS || n > PW_TOKENS - u->from->length ||
	    u->s->shadow.mode == KVC_JOURNAL_NONE)
		return;
	pw_reserve(w, u->s, n);
	if (kvc_update_begin(u->s->seq, n, KVC_UPDATE_SCATTER)) {
		MC_CHECK(kvc_error() == KVC_EJOURNAL);
		return;
	}
	pw_drop_future(&u->s->shadow);
	for (uint32_t l = 0; l < w->mc.layout->n_layers && rc == 0; l++)
		rc = kvc_policy_choose(u->s->policy, l, n, &plan);
	MC_CHECK(rc == -1 && kvc_error() == KVC_EBOUND);
	MC_CHECK(kvc_abort(u->s->seq) == 0);
}

static bool begin(struct pw_world *w, struct pw_update *u, struct pw_seq *s)
{
	*u = (struct pw_update){.s = s, .from = pw_now(s)};
	u->n_tokens = draw_size(w, s);
	if (u->n_tokens == 0)
		return false;
	if (mc_one_in(&w->mc, 2) || is_full(w, u->from->length + u->n_tokens))
		want_journal(w, s);
	u->flags = is_full(w, u->from->length) || mc_one_in(&w->mc, 2) ? KVC_UPDATE_SCATTER : 0;
	pw_say(w, "update of %d (mode %u, %llu long): %llu tokens%s", (int)(s - w->seqs),
	       s->shadow.mode, (unsigned long long)u->from->length, (unsigned long long)u->n_tokens,
	       u->flags ? ", scatter" : "");
	if (mc_one_in(&w->mc, 30))
		try_too_many(w, u);
	if (!mc_one_in(&w->mc, 3))
		pw_reserve(w, s, u->n_tokens);
	while (kvc_update_begin(s->seq, u->n_tokens, u->flags)) {
		pw_drop_future(&s->shadow);
		if (has_helped(w, u))
			continue;
		if (kvc_error() != KVC_EJOURNAL)
			MC_FAIL("begin: %s", kvc_error_text());
		relieve(w, s);
		return false;
	}
	pw_drop_future(&s->shadow);
	u->row = s->shadow.mode == KVC_JOURNAL_REPLAY ? ++w->n_updates : 0;
	u->to = pw_state_copy(w, u->from);
	u->to->length += u->n_tokens;
	return true;
}

/* ---- end ---------------------------------------------------------------------------------- */

static void end_abort(struct pw_world *w, struct pw_update *u, bool is_full)
{
	pw_say(w, "  aborted");
	MC_CHECK(kvc_abort(u->s->seq) == 0);
	pw_state_unref(u->to);
	u->to = NULL;
	if (is_full)
		relieve(w, u->s);
}

/* Tokens of an update that only appends are steps of their own, if the policy keeps nothing. */
static void push_tokens(struct pw_world *w, struct pw_update *u)
{
	for (uint64_t t = 1; t < u->n_tokens; t++) {
		struct pw_state *state = pw_state_copy(w, u->from);

		state->length += t;
		for (uint32_t l = 0; l < w->mc.layout->n_layers; l++)
			for (uint64_t slot = u->from->length; slot < state->length; slot++)
				for (uint32_t h = 0; h < w->mc.layout->layers[l].n_query_groups;
				     h++)
					*pw_cell(w, state, l, h, slot) = *pw_cell(w, u->to, l, h,
										  slot);
		pw_push(&u->s->shadow, state);
	}
}

/* What an undo journal has forgotten: unless it does so to make room, never what marks or the last
 * keep_steps steps need. */
static void forget(struct pw_world *w, struct pw_seq *s)
{
	struct kvc_journal_info info;
	int floor;

	(void)w;
	MC_CHECK(kvc_journal_info(s->seq, &info) == 0);
	floor = s->shadow.now - (int)info.n_steps;
	if (floor == 0)
		return;
	MC_CHECK(floor > 0 && s->shadow.mode == KVC_JOURNAL_UNDO);
	MC_CHECK(s->shadow.when_full == KVC_FULL_FORGET || info.n_steps >= s->shadow.keep_steps);
	for (int i = 0; i < s->shadow.n_marks && s->shadow.when_full != KVC_FULL_FORGET; i++)
		MC_CHECK(s->shadow.marks[i].step < 0 || s->shadow.marks[i].step >= floor);
	pw_forget(&s->shadow, floor);
}

static void end_commit(struct pw_world *w, struct pw_update *u)
{
	struct pw_shadow *s = &u->s->shadow;
	bool stays = s->mode != KVC_JOURNAL_NONE;
	struct pw_state *from = (struct pw_state *)(uintptr_t)u->from;

	pw_state_ref(from);
	if (stays && !u->flags && !w->has_state)
		push_tokens(w, u);
	pw_push(s, u->to);
	s->has_rows = stays;
	if (!stays)
		pw_forget(s, s->now);
	forget(w, u->s);
	u->s->has_range = false;
	pw_state_unref(from);
}

static int commit(struct pw_world *w, struct pw_update *updates, size_t n)
{
	kvc_seq *seqs[2];
	bool helped;
	int rc;

	do {
		for (size_t i = 0; i < n; i++)
			seqs[i] = updates[i].s->seq;
		rc = kvc_commit(w->mc.writer, seqs, n);
		helped = false;
		for (size_t i = 0; rc && kvc_error() == KVC_ERESERVE && i < n; i++) {
			pw_reserve(w, updates[i].s, updates[i].n_tokens);
			helped = true;
		}
	} while (helped);
	for (size_t i = 0; i < n && rc == 0; i++)
		end_commit(w, &updates[i]);
	return rc;
}

/* ---- the operation ------------------------------------------------------------------------ */

/* Not all slots of a layer, which is refused. */
static void draw_range(struct pw_world *w, struct pw_seq *s)
{
	uint64_t least = PW_SLOTS;

	for (uint32_t l = 0; l < w->mc.layout->n_layers; l++) {
		uint64_t bound = w->mc.layout->layers[l].bound_slots;

		least = bound && bound < least ? bound : least;
	}
	s->range.start = (uint32_t)mc_draw(&w->mc, least);
	s->range.end = (uint32_t)mc_draw(&w->mc, least + 1);
	if (mc_one_in(&w->mc, 3))
		s->range.end = s->range.start;
	s->has_range = true;
	pw_say(w, "  protects %u to %u", s->range.start, s->range.end);
	if (s->range.start == 0 && s->range.end == least) {
		MC_CHECK(kvc_policy_protect(s->policy, &s->range) == -1 &&
			 kvc_error() == KVC_ERANGE);
		s->range.end--; /* all but one */
	}
	MC_CHECK(kvc_policy_protect(s->policy, &s->range) == 0);
}

/* All layers of an update, in any order. Returns 0, or -1 and the update has ended. */
static int do_layers(struct pw_world *w, struct pw_update *u, uint32_t *done, uint32_t n)
{
	uint32_t n_layers = w->mc.layout->n_layers, first = (uint32_t)mc_draw(&w->mc, n_layers);
	int rc;

	for (uint32_t i = 0; i < n_layers && n; i++) {
		uint32_t layer = (first + i) % n_layers;

		if (*done >> layer & 1)
			continue;
		rc = do_layer(w, u, layer);
		if (rc == -1 && kvc_error() != KVC_EJOURNAL)
			MC_FAIL("layer %u: %s", layer, kvc_error_text());
		if (rc) {
			end_abort(w, u, rc == -1);
			return -1;
		}
		*done |= 1u << layer;
		n--;
	}
	return 0;
}

/* Updates of two sequences at once: layers take turns, one may be committed before the other. */
static void do_two(struct pw_world *w, struct pw_update *updates)
{
	uint32_t done[2] = {0, 0}, all = w->mc.layout->n_layers;
	bool lives[2] = {true, true};

	for (uint32_t l = 0; l < all; l++)
		for (int i = 0; i < 2; i++)
			lives[i] = lives[i] && do_layers(w, &updates[i], &done[i], 1) == 0;
	if (lives[0] && lives[1]) {
		MC_CHECK(commit(w, updates, 2) == 0);
		return;
	}
	for (int i = 0; i < 2; i++)
		if (lives[i])
			MC_CHECK(commit(w, &updates[i], 1) == 0);
}

static void do_one(struct pw_world *w, struct pw_update *u)
{
	uint32_t done = 0;

	if (do_layers(w, u, &done, w->mc.layout->n_layers))
		return;
	if (mc_one_in(&w->mc, 30)) {
		end_abort(w, u, false);
		return;
	}
	if (commit(w, u, 1) == 0)
		return;
	if (kvc_error() != KVC_EJOURNAL)
		MC_FAIL("commit: %s", kvc_error_text());
	end_abort(w, u, true);
}

void pw_op_update(struct pw_world *w)
{
	struct pw_seq *s = pw_pick(w), *other = pw_pick(w);
	struct pw_update updates[2];
	bool second;

	if (!s)
		return;
	if (w->ops == &kv_policy_smart_lastrec && mc_one_in(&w->mc, 3))
		draw_range(w, s);
	if (!begin(w, &updates[0], s))
		return;
	second = other != s && mc_one_in(&w->mc, 3) && begin(w, &updates[1], other);
	w->n_steps++;
	if (second && mc_one_in(&w->mc, 2)) {
		do_two(w, updates);
		return;
	}
	do_one(w, &updates[0]);
	if (second)
		do_one(w, &updates[1]);
}
