/* States, steps and journals as plain arrays: slow, simple, obviously right. */
#include <stdlib.h>
#include <string.h>

#include "tests/model/mc.h"

uint64_t mc_slots(const struct mc_world *w, uint32_t layer, uint64_t n_tokens)
{
	uint32_t bound = w->layout->layers[layer].bound_slots;

	return bound && n_tokens > bound ? bound : n_tokens;
}

struct mc_cell *mc_cell(const struct mc_world *w, struct mc_state *state, uint32_t layer,
			uint32_t head, uint64_t slot)
{
	return &state->cells[w->first_cell[layer] + head * w->n_slots[layer] + slot];
}

/* ---- states ------------------------------------------------------------------------------- */

struct mc_state *mc_state_copy(struct mc_world *w, const struct mc_state *from)
{
	size_t bytes = sizeof(*from) + w->n_cells * sizeof(from->cells[0]);
	struct mc_state *state = calloc(1, bytes);

	MC_CHECK(state);
	if (from)
		memcpy(state, from, bytes);
	state->n_refs = 1;
	return state;
}

struct mc_state *mc_state_ref(struct mc_state *state)
{
	if (state)
		state->n_refs++;
	return state;
}

void mc_state_unref(struct mc_state *state)
{
	if (state && --state->n_refs == 0)
		free(state);
}

struct mc_state *mc_state_cut(struct mc_world *w, const struct mc_state *from, uint64_t n_tokens)
{
	struct mc_state *state = mc_state_copy(w, from);

	for (uint32_t l = 0; l < w->layout->n_layers; l++)
		for (uint32_t h = 0; h < w->layout->layers[l].n_query_groups; h++)
			for (uint64_t s = mc_slots(w, l, n_tokens); s < w->n_slots[l]; s++)
				*mc_cell(w, state, l, h, s) = (struct mc_cell){0};
	state->position -= state->length - n_tokens;
	state->length = state->base = n_tokens;
	return state;
}

/* ---- shadows ------------------------------------------------------------------------------ */

void mc_shadow_init(struct mc_world *w, struct mc_shadow *s)
{
	memset(s, 0, sizeof(*s));
	s->keep_steps = 64;
	mc_shadow_push(s, mc_state_copy(w, NULL), 0);
	s->now = 0;
}

void mc_shadow_fini(struct mc_shadow *s)
{
	for (int i = 0; i < s->n; i++)
		mc_state_unref(s->steps[i].state);
	for (int i = 0; i < s->n_marks; i++)
		mc_state_unref(s->marks[i].state);
	free(s->steps);
	memset(s, 0, sizeof(*s));
}

struct mc_shadow mc_shadow_copy(const struct mc_shadow *s)
{
	struct mc_shadow copy = *s;

	copy.steps = malloc((size_t)s->n * sizeof(s->steps[0]));
	MC_CHECK(copy.steps);
	memcpy(copy.steps, s->steps, (size_t)s->n * sizeof(s->steps[0]));
	for (int i = 0; i < copy.n; i++)
		mc_state_ref(copy.steps[i].state);
	for (int i = 0; i < copy.n_marks; i++)
		mc_state_ref(copy.marks[i].state);
	return copy;
}

/* Takes the reference over. */
void mc_shadow_push(struct mc_shadow *s, struct mc_state *state, uint32_t n_rows)
{
	mc_shadow_drop_future(s);
	s->steps = realloc(s->steps, (size_t)(s->n + 1) * sizeof(s->steps[0]));
	MC_CHECK(s->steps);
	s->steps[s->n] = (struct mc_step){state, n_rows};
	s->now = s->n++;
}

void mc_shadow_drop_future(struct mc_shadow *s)
{
	while (s->n > s->now + 1)
		mc_state_unref(s->steps[--s->n].state);
}

/* Marks that a rollback to `now` goes past are gone. */
void mc_shadow_drop_marks(struct mc_shadow *s, uint64_t length)
{
	while (s->n_marks) {
		struct mc_mark *mark = &s->marks[s->n_marks - 1];

		if (mark->step <= s->now && mark->mark.length_tokens <= length)
			return;
		mc_state_unref(mark->state);
		s->n_marks--;
	}
}

uint64_t mc_shadow_rows(const struct mc_shadow *s)
{
	uint64_t n = s->has_rows;

	for (int i = 1; i <= s->now; i++)
		n += s->steps[i].n_rows + 1;
	return n;
}

int mc_shadow_steps(const struct mc_shadow *s, int from, int to)
{
	int n = 0;

	for (int i = from + 1; i <= to; i++)
		n += s->steps[i].state != NULL;
	return n;
}

struct mc_shadow mc_shadow_share(const struct mc_shadow *s)
{
	struct mc_shadow share = mc_shadow_copy(s);

	mc_shadow_drop_future(&share);
	while (share.n_marks)
		mc_state_unref(share.marks[--share.n_marks].state);
	if (s->mode == KVC_JOURNAL_REPLAY || !s->has_rows)
		return share;
	/* An undo journal stays behind: nobody can go below what it reached any more. */
	share.scattered = true;
	share.has_rows = false;
	for (int i = 0; i < share.now; i++)
		mc_state_unref(share.steps[i].state);
	share.steps[0] = share.steps[share.now];
	share.n = 1;
	share.now = 0;
	return share;
}

/* Steps before `floor` are forgotten. */
static void forget_before(struct mc_shadow *s, int floor)
{
	for (int i = 0; i < floor; i++) {
		s->scattered |= s->steps[i + 1].n_rows != 0 || !s->steps[i + 1].state;
		mc_state_unref(s->steps[i].state);
	}
	memmove(s->steps, s->steps + floor, (size_t)(s->n - floor) * sizeof(s->steps[0]));
	s->n -= floor;
	s->now -= floor;
	for (int i = 0; i < s->n_marks; i++)
		s->marks[i].step = s->marks[i].step < floor ? -1 : s->marks[i].step - floor;
}

/* Unless it was told to forget when it is full, a journal keeps what marks and keep_steps need. */
static void check_kept(const struct mc_shadow *s, int floor)
{
	int n_before = mc_shadow_steps(s, 0, s->now), n_after = mc_shadow_steps(s, floor, s->now);

	if (s->when_full == KVC_FULL_FORGET)
		return;
	if (n_after < n_before && n_after < (int)s->keep_steps)
		MC_FAIL("%d of %d steps are kept, %u should be", n_after, n_before, s->keep_steps);
	for (int i = 0; i < s->n_marks; i++)
		if (s->marks[i].step >= 0 && s->marks[i].step < floor)
			MC_FAIL("the steps of mark %d were forgotten", i);
}

void mc_shadow_forget(struct mc_world *w, struct mc_shadow *s, uint64_t n_steps, uint64_t n_rows)
{
	int floor = 0;

	if (mc_shadow_rows(s) < n_rows)
		MC_FAIL("the journal has %llu rows, not %llu", (unsigned long long)n_rows,
			(unsigned long long)mc_shadow_rows(s));
	mc_say(w, "  the journal has %llu of %llu rows, %llu of %d steps",
	       (unsigned long long)n_rows, (unsigned long long)mc_shadow_rows(s),
	       (unsigned long long)n_steps, mc_shadow_steps(s, 0, s->now));
	for (uint64_t rows = mc_shadow_rows(s); floor < s->now && rows > n_rows;) {
		do
			rows -= s->steps[++floor].n_rows + 1;
		while (floor < s->now && !s->steps[floor].state);
	}
	check_kept(s, floor);
	forget_before(s, floor);
	if (mc_shadow_rows(s) != n_rows || (uint64_t)mc_shadow_steps(s, 0, s->now) != n_steps)
		MC_FAIL("the journal has %llu rows and %llu steps, not %llu and %d",
			(unsigned long long)n_rows, (unsigned long long)n_steps,
			(unsigned long long)mc_shadow_rows(s), mc_shadow_steps(s, 0, s->now));
}
