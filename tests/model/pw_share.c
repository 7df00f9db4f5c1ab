/* New sequences, forks and snapshots; other hands for the policy, as after a takeover. */
#include <stdlib.h>
#include <string.h>

#include "tests/model/pw.h"

static void base_unref(struct pw_world *w, struct pw_base *base)
{
	if (!base || --base->n_refs)
		return;
	bare_pin(w->mc.bare, &base->state, -1);
	seg_state_fini(&base->state);
	free(base);
}

static struct pw_base *base_ref(struct pw_base *base)
{
	if (base)
		base->n_refs++;
	return base;
}

static void give_hand(struct pw_world *w, struct pw_seq *s)
{
	s->policy = kvc_policy_new(s->seq, &w->options);
	if (!s->policy)
		MC_FAIL("policy: %s", kvc_error_text());
	s->has_range = false;
}

void pw_op_hand(struct pw_world *w)
{
	struct pw_seq *s = pw_pick(w);

	if (!s)
		return;
	pw_say(w, "new hand for %d", (int)(s - w->seqs));
	kvc_policy_free(s->policy);
	give_hand(w, s);
}

void pw_op_new(struct pw_world *w)
{
	struct pw_seq *s = pw_free_seq(w);

	if (!s)
		return;
	pw_say(w, "new sequence %d", (int)(s - w->seqs));
	s->seq = bare_seq(w->mc.bare, w->mc.writer, PW_TOKENS, NULL);
	pw_shadow_init(w, &s->shadow);
	give_hand(w, s);
}

static void share_local(struct pw_world *w, bool is_reader)
{
	struct pw_seq *s = &w->seqs[mc_draw(&w->mc, PW_SEQS)], *to = pw_free_seq(w);

	if (!s->seq || !to)
		return;
	pw_say(w, "local %s of %d as %d", is_reader ? "snapshot" : "fork", (int)(s - w->seqs),
	       (int)(to - w->seqs));
	bare_spare_places(w->mc.bare, w->mc.writer, PW_TOKENS, w->mc.writer->spare ? 0 : 1);
	if (!s->is_reader)
		pw_reserve(w, s, 1);
	to->seq = is_reader ? kvc_snapshot_local(s->seq) : kvc_fork_local(s->seq, 0);
	if (!to->seq && kvc_error() == KVC_ERESERVE && !is_reader) {
		pw_reserve(w, s, 1);
		to->seq = kvc_fork_local(s->seq, 0);
	}
	if (!to->seq)
		MC_FAIL("share: %s", kvc_error_text());
	to->local = true;
	to->is_reader = is_reader;
	to->base = base_ref(s->base);
	to->shadow = pw_shadow_share(&s->shadow);
	if (!is_reader)
		give_hand(w, to);
}

void pw_op_fork_local(struct pw_world *w)
{
	share_local(w, false);
}

void pw_op_snapshot_local(struct pw_world *w)
{
	share_local(w, true);
}

/* A fork through the core, which is also what a takeover is: another handle on a copied state. */
void pw_op_core(struct pw_world *w)
{
	struct pw_seq *s = pw_pick(w), *to = pw_free_seq(w);

	if (!s || !to || s->local)
		return;
	pw_say(w, "fork of %d as %d through the core", (int)(s - w->seqs), (int)(to - w->seqs));
	to->base = calloc(1, sizeof(*to->base));
	MC_CHECK(to->base);
	to->base->n_refs = 1;
	MC_CHECK(bare_snapshot(w->mc.bare, s->seq->place, &to->base->state) == 0);
	to->seq = bare_seq(w->mc.bare, w->mc.writer, PW_TOKENS, &to->base->state);
	to->shadow = pw_shadow_share(&s->shadow);
	to->shadow.when_full = KVC_FULL_REFUSE;
	to->shadow.keep_steps = 64;
	give_hand(w, to);
	if (mc_one_in(&w->mc, 2))
		pw_drop(w, s);
}

void pw_drop(struct pw_world *w, struct pw_seq *s)
{
	uint32_t place = s->seq->place;

	pw_say(w, "drop of %d", (int)(s - w->seqs));
	kvc_policy_free(s->policy);
	if (!s->local)
		segment_place(&w->mc.bare->segment, place)->seq_id = 0;
	seq_end(s->seq, s->local ? SEQ_END_LOCAL : SEQ_END_DROPPED);
	if (!s->local)
		bare_place_free(w->mc.bare, place);
	base_unref(w, s->base);
	pw_shadow_fini(&s->shadow);
	memset(s, 0, sizeof(*s));
}

void pw_op_drop(struct pw_world *w)
{
	struct pw_seq *s = &w->seqs[mc_draw(&w->mc, PW_SEQS)];

	if (s->seq)
		pw_drop(w, s);
}
