/*
 * Policies of sequences where the traces do not lead: refusals, choices that were overtaken by a
 * rollback, policies of one's own, layers of several lengths, logs, what is measured.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/policy_random.h"
#include "client/policy/policy.h"
#include "tests/support/runner.h"
#include "tests/unit/policy-cache.h"

#define SLOTS 24u
#define HEADS 2u

static const uint32_t one[] = {SLOTS};

static struct kvc_policy_options named(const char *name)
{
	return (struct kvc_policy_options){.size = sizeof(struct kvc_policy_options), .name = name};
}

/* ---- the lowest ----------------------------------------------------------------------------- */

static const float *sorted_by;

static int compare(const void *a, const void *b)
{
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	float x = sorted_by[i], y = sorted_by[j];

	if (isnan(x) != isnan(y))
		return isnan(x) ? 1 : -1;
	if (x < y || x > y)
		return x < y ? -1 : 1;
	return i < j ? -1 : i > j;
}

static void check_lowest(const float *values, uint32_t n)
{
	uint32_t want[1200], got[1200];

	for (uint32_t i = 0; i < n; i++)
		want[i] = i;
	sorted_by = values;
	qsort(want, n, sizeof(want[0]), compare);
	for (uint32_t k = 1; k <= n; k += k < 5 ? 1 : n / 3 + 1) {
		kv_policy_lowest(values, n, k, got);
		assert_memory_equal(got, want, k * sizeof(got[0]));
	}
}

/* Few different values, so that most are equal; some are no numbers, or infinite. */
static void test_lowest(void **state)
{
	static const uint32_t lengths[] = {1, 2, 7, 64, 255, 256, 257, 700, 1200};
	float values[1200];

	(void)state;
	srand(7);
	for (int kind = 0; kind < 5; kind++)
		for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
			for (uint32_t i = 0; i < lengths[l]; i++) {
				float x = (float)(rand() % (kind == 1 ? 100000 : 5)) - 2.0f;

				if (kind == 2 && rand() % 3)
					x = NAN;
				if (kind == 3)
					x = rand() % 2 ? NAN : INFINITY;
				if (kind == 4)
					x = rand() % 9 ? INFINITY : -INFINITY;
				values[i] = x;
			}
			check_lowest(values, lengths[l]);
		}
}

/* ---- ring, lastrec -------------------------------------------------------------------------- */

static void check_ring(struct pc *c)
{
	int32_t positions[SLOTS * HEADS];
	uint64_t length = kvc_position(c->seq);
	uint32_t n = pc_positions(c, c->seq, 0, positions);

	for (uint32_t i = 0; i < n * HEADS; i++) {
		uint64_t slot = i / HEADS, newest = length - 1;

		assert_int_equal(positions[i], newest - (newest - slot) % SLOTS);
	}
	pc_assert_vectors(c, c->seq);
}

static void test_ring(void **state)
{
	struct kvc_policy_options o = named("ring");
	struct pc c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);

	(void)state;
	pc_update(&c, 20);
	assert_int_equal(kvc_policy_limit(c.policy), SLOTS - 20);
	pc_update(&c, SLOTS - 20);
	assert_int_equal(kvc_policy_limit(c.policy), SLOTS);
	for (uint64_t n = 1; n <= SLOTS; n += 5) {
		pc_update(&c, n);
		check_ring(&c);
	}
	pc_reserve(&c, 1);
	jw_ok(kvc_rollback_steps(c.seq, 2));
	check_ring(&c);
	pc_update(&c, 7);
	check_ring(&c);
	pc_free(&c);
}

/* The ring of lastrec begins behind a prompt that is shorter than the pinned part. */
static void test_short_prompt(void **state)
{
	struct kvc_policy_options o = named("lastrec");
	struct pc c;
	int32_t positions[SLOTS * HEADS];

	(void)state;
	o.pinned_tokens = 16;
	c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);
	pc_update(&c, 5);
	assert_int_equal(kvc_policy_limit(c.policy), SLOTS - 16);
	while (kvc_position(c.seq) < SLOTS + 3)
		pc_update(&c, 1);
	pc_positions(&c, c.seq, 0, positions);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		assert_int_equal(positions[slot * HEADS],
				 slot < 16 || slot >= 19 ? slot : slot + SLOTS - 16);
	pc_assert_vectors(&c, c.seq);
	pc_free(&c);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void test_options(void **state)
{
	struct kvc_policy_options o = named("h2o");
	const struct kvc_layer layer = {HEADS, PC_WIDTH, PC_WIDTH, SLOTS};
	struct kvc_plane planes[KVC_POLICY_PLANES];

	(void)state;
	assert_int_equal(kvc_policy_planes(&o, 1, &layer, planes), 2);
	assert_string_equal(planes[0].name, "position");
	assert_string_equal(planes[1].name, "policy");
	assert_int_equal(planes[1].bytes, 64 + SLOTS * HEADS * 4);
	o.grace_tokens = SLOTS;
	jw_fails(kvc_policy_planes(&o, 1, &layer, planes), KVC_EINVAL, "grace_tokens");
	o.grace_tokens = 4;
	o.keep_fraction = 0.9;
	jw_fails(kvc_policy_planes(&o, 1, &layer, planes), KVC_EINVAL, "keep_fraction");
	o = named("h2o-orig");
	o.grace_tokens = 1;
	jw_fails(kvc_policy_planes(&o, 1, &layer, planes), KVC_EINVAL, "no options");
	o = named("lastrec");
	o.pinned_tokens = SLOTS;
	jw_fails(kvc_policy_planes(&o, 1, &layer, planes), KVC_EINVAL, "pinned_tokens");
	o = named("h3o");
	jw_fails(kvc_policy_planes(&o, 1, &layer, planes), KVC_ENOTFOUND, "smart-lastrec");
	o = named("qh2o-vlen");
	assert_int_equal(kvc_policy_planes(&o, 1, &layer, planes), 4);
	o = named("dense");
	assert_int_equal(kvc_policy_planes(&o, 1, &layer, planes), 1);
}

/* What would never be called may be missing; what would be may not. */
static void test_incomplete(void **state)
{
	const struct kvc_layer layer = {HEADS, PC_WIDTH, PC_WIDTH, SLOTS};
	struct kvc_policy_ops ops = *kvc_policy_find("ring");
	struct kvc_policy_options o = {.size = sizeof(o), .ops = &ops};
	struct kvc_plane planes[KVC_POLICY_PLANES];

	(void)state;
	assert_null(ops.update);
	assert_int_equal(kvc_policy_planes(&o, 1, &layer, planes), 1);
	ops.state_bytes = 4;
	jw_fails(kvc_policy_planes(&o, 1, &layer, planes), KVC_EINVAL, "update");
	ops.state_bytes = 0;
	ops.needs = KVC_POLICY_SCORES;
	jw_fails(kvc_policy_planes(&o, 1, &layer, planes), KVC_EINVAL, "update");
	ops.needs = 0;
	ops.choose = NULL;
	jw_fails(kvc_policy_planes(&o, 1, &layer, planes), KVC_EINVAL, "choose");
}

static void test_opaque(void **state)
{
	struct kvc_policy_options o = named("ring");
	struct bare *bare = bare_new(bare_layout(0, NULL, 1));
	struct kvc_writer *writer = bare_writer(bare, 1);
	kvc_seq *seq = bare_seq(bare, writer, 100, NULL);

	(void)state;
	jw_fails(kvc_policy_new(seq, &o) ? 0 : -1, KVC_EUNSUPPORTED, "opaque");
	jw_fails(kvc_policy_log_new(kvc_seq_layout(seq)) ? 0 : -1, KVC_EUNSUPPORTED, "opaque");
	seq_end(seq, SEQ_END_DROPPED);
	writer_free(writer);
	bare_free(bare);
}

static void test_order_of_calls(void **state)
{
	struct kvc_policy_options o = named("h2o");
	struct pc c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);
	struct kvc_policy_plan plan;

	(void)state;
	jw_fails(kvc_policy_choose(c.policy, 0, 4, &plan), KVC_EINVAL, "kvc_update_begin");
	pc_begin(&c, 4);
	jw_fails(kvc_policy_choose(c.policy, 0, 5, &plan), KVC_EINVAL, "5 tokens");
	jw_fails(kvc_policy_choose(c.policy, 1, 4, &plan), KVC_ERANGE, "layer 1");
	jw_fails(pc_write(&c, 0, 4), KVC_EINVAL, "kvc_policy_choose");
	jw_ok(kvc_policy_choose(c.policy, 0, 4, &plan));
	jw_fails(pc_score(&c, 0, 4), KVC_EINVAL, "kvc_policy_write");
	jw_fails(kvc_policy_write(c.policy, 0, NULL, NULL, NULL, NULL), KVC_EINVAL, "NULL");
	jw_ok(pc_write(&c, 0, 4));
	jw_fails(pc_write(&c, 0, 4), KVC_EINVAL, "kvc_policy_choose");
	jw_ok(kvc_commit(c.w->writer, &c.seq, 1));
	pc_update(&c, SLOTS - 4);
	pc_reserve(&c, 1);
	jw_ok(kvc_append_begin(c.seq, 1));
	jw_fails(kvc_policy_choose(c.policy, 0, 1, &plan), KVC_EINVAL, "KVC_UPDATE_SCATTER");
	jw_ok(kvc_abort(c.seq));
	pc_free(&c);
}

static void test_limits(void **state)
{
	struct kvc_policy_options o = named("dense");
	struct pc c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);
	struct kvc_policy_plan plan;

	(void)state;
	pc_update(&c, SLOTS - 1);
	pc_begin(&c, 2);
	jw_fails(kvc_policy_choose(c.policy, 0, 2, &plan), KVC_EBOUND, "at most 1");
	jw_ok(kvc_abort(c.seq));
	pc_update(&c, 1);
	assert_int_equal(kvc_policy_limit(c.policy), 0);
	assert_int_equal(kvc_error(), KVC_OK);
	pc_free(&c);
}

/* An update that the policy knows nothing of: it says so, and goes on when it is gone. */
static void test_foreign_updates(void **state)
{
	struct kvc_policy_options o = named("h2o"), other = named("h2o");
	struct pc c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);
	struct kvc_policy_plan plan;
	kvc_policy *policy;

	(void)state;
	pc_update(&c, SLOTS);
	pc_update(&c, 1);
	pc_begin(&c, 1);
	jw_ok(kvc_policy_choose(c.policy, 0, 1, &plan));
	jw_ok(pc_write(&c, 0, 1));
	jw_ok(kvc_commit(c.w->writer, &c.seq, 1)); /* not scored */
	assert_int_equal(kvc_policy_limit(c.policy), 0);
	jw_fails(-1, KVC_EINVAL, "25 tokens and the sequence has seen 26");
	pc_reserve(&c, 1);
	jw_ok(kvc_rollback_steps(c.seq, 1));
	assert_int_equal(kvc_policy_limit(c.policy), SLOTS);
	other.grace_tokens = 2;
	policy = kvc_policy_new(c.seq, &other);
	assert_non_null(policy);
	assert_int_equal(kvc_policy_limit(policy), 0);
	jw_fails(-1, KVC_EINVAL, "other options");
	kvc_policy_free(policy);
	other = named("qh2o");
	jw_fails(kvc_policy_new(c.seq, &other) ? 0 : -1, KVC_ENOTFOUND, "policy.error");
	pc_free(&c);
}

/* ---- overtaken ------------------------------------------------------------------------------ */

static void test_rollback_in_between(void **state)
{
	struct kvc_policy_options o = named("h2o");
	struct pc c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);
	struct kvc_policy_plan plan;
	struct jw_picture before;

	(void)state;
	pc_update(&c, SLOTS);
	pc_update(&c, 1);
	pc_update(&c, 1);
	pc_begin(&c, 1);
	jw_ok(kvc_policy_choose(c.policy, 0, 1, &plan));
	jw_ok(kvc_abort(c.seq));
	jw_fails(pc_write(&c, 0, 1), KVC_EMOVED, "begin the update again");
	jw_ok(kvc_rollback_steps(c.seq, 1));
	before = jw_picture(c.w, c.seq);
	pc_begin(&c, 1);
	jw_fails(pc_write(&c, 0, 1), KVC_EMOVED, "rolled back");
	jw_ok(kvc_policy_choose(c.policy, 0, 1, &plan));
	jw_ok(pc_write(&c, 0, 1));
	jw_ok(kvc_abort(c.seq));
	jw_fails(pc_score(&c, 0, 1), KVC_EMOVED, "begin the update again");
	jw_assert_picture(c.w, c.seq, &before);
	jw_picture_free(&before);
	pc_free(&c);
}

/* Two sequences of a writer with open updates: one is committed while the other is chosen. */
static void test_two_sequences(void **state)
{
	struct kvc_policy_options o = named("h2o");
	struct pc c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO), other = c;
	struct kvc_policy_plan plan;

	(void)state;
	other.seq = pc_seq(&c, KVC_JOURNAL_REPLAY);
	other.policy = kvc_policy_new(other.seq, &o);
	for (uint64_t n = SLOTS; n; n -= n > 1 ? SLOTS - 1 : 1) {
		pc_begin(&c, n);
		jw_ok(kvc_policy_choose(c.policy, 0, n, &plan));
		pc_update(&other, n);
		jw_ok(pc_write(&c, 0, n));
		pc_reserve(&other, 1);
		jw_ok(kvc_rollback_steps(other.seq, 1));
		jw_ok(pc_score(&c, 0, n));
		jw_ok(kvc_commit(c.w->writer, &c.seq, 1));
		pc_update(&other, n);
	}
	pc_assert_vectors(&c, c.seq);
	pc_assert_vectors(&other, other.seq);
	assert_int_equal(kvc_policy_limit(c.policy), SLOTS);
	kvc_policy_free(other.policy);
	pc_free(&c);
}

/* A range is for the next update of its sequence, whatever comes before it. */
static void test_range_waits(void **state)
{
	const struct kvc_policy_range range = {2, 5};
	struct kvc_policy_options o = named("smart-lastrec");
	struct pc c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO), other = c;
	struct kvc_policy_plan plan;

	(void)state;
	other.seq = pc_seq(&c, KVC_JOURNAL_UNDO);
	other.policy = kvc_policy_new(other.seq, &o);
	pc_update(&c, SLOTS);
	jw_ok(kvc_policy_protect(c.policy, &range));
	pc_update(&other, 1);
	pc_begin(&c, 1);
	jw_ok(kvc_policy_choose(c.policy, 0, 1, &plan));
	jw_ok(pc_write(&c, 0, 1));
	jw_ok(kvc_abort(c.seq));
	pc_update(&c, 1);
	pc_begin(&c, 4);
	jw_ok(kvc_policy_choose(c.policy, 0, 4, &plan));
	assert_int_equal(plan.slots[0], 1);
	assert_int_equal(plan.slots[1], 5);
	jw_ok(kvc_abort(c.seq));
	kvc_policy_free(other.policy);
	pc_free(&c);
}

/* What is protected before anything is there is filled like the rest, and then stays. */
static void test_early_range(void **state)
{
	const struct kvc_policy_range range = {4, 9};
	struct kvc_policy_options o = named("smart-lastrec");
	struct pc c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);
	int32_t positions[SLOTS * HEADS];

	(void)state;
	jw_ok(kvc_policy_protect(c.policy, &range));
	pc_update(&c, 2);
	pc_update(&c, 2);
	assert_int_equal(kvc_policy_limit(c.policy), SLOTS - 4);
	pc_update(&c, SLOTS - 4);
	pc_update(&c, SLOTS - 5);
	assert_int_equal(pc_positions(&c, c.seq, 0, positions), SLOTS);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		assert_int_equal(positions[slot * HEADS], slot < 4 ? SLOTS + slot :
							  slot < 9 ? slot :
								     SLOTS + slot - 5);
	pc_free(&c);
}

static void test_operator(void **state)
{
	struct kvc_policy_options o = named("dense");
	struct pc c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_NONE);
	struct kvc_policy_plan plan;

	(void)state;
	pc_update(&c, 5);
	pc_update(&c, 3);
	pc_begin(&c, 2);
	jw_ok(kvc_policy_choose(c.policy, 0, 2, &plan));
	assert_int_equal(plan.slots[1], 9);
	assert_int_equal(bare_operator_rollback(c.w->bare, c.seq->place, 5), 0);
	jw_fails(pc_write(&c, 0, 2), KVC_EMOVED, "rolled back");
	jw_fails(kvc_commit(c.w->writer, &c.seq, 1), KVC_EMOVED, "operator");
	pc_begin(&c, 2);
	jw_ok(kvc_policy_choose(c.policy, 0, 2, &plan));
	assert_int_equal(plan.slots[1], 6);
	jw_ok(pc_write(&c, 0, 2));
	jw_ok(kvc_commit(c.w->writer, &c.seq, 1));
	pc_assert_vectors(&c, c.seq);
	pc_free(&c);
}

static void lose_journal_blocks(kvc_seq *seq)
{
	struct seq_group *g = &seq->groups[seq->layout->fields->journal_group];

	while (g->spares.n)
		g->release.refs[g->release.n++] = g->spares.refs[--g->spares.n];
}

/* A write that lacks blocks is repeated, and gives what an undisturbed one does. */
static void test_write_again(void **state)
{
	struct kvc_policy_options o = named("h2o-vlen");
	struct pc c, d;
	struct kvc_policy_plan plan;
	struct jw_picture want;
	int n_failed = 0;

	(void)state;
	o.grace_tokens = 3;
	c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_REPLAY);
	d = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_REPLAY);
	for (struct pc *p = &c; p; p = p == &c ? &d : NULL) {
		pc_update(p, SLOTS);
		pc_update(p, 5);
	}
	for (int i = 0; i < 100 && n_failed == 0; i++) {
		pc_update(&d, 5);
		pc_begin(&c, 5);
		lose_journal_blocks(c.seq);
		jw_ok(kvc_policy_choose(c.policy, 0, 5, &plan));
		if (pc_write(&c, 0, 5)) {
			n_failed++;
			jw_fails(-1, KVC_ERESERVE, "reserve");
			pc_reserve(&c, 5);
			jw_ok(pc_write(&c, 0, 5));
		}
		jw_ok(pc_score(&c, 0, 5));
		jw_ok(kvc_commit(c.w->writer, &c.seq, 1));
	}
	assert_int_equal(n_failed, 1);
	want = jw_picture(d.w, d.seq);
	jw_assert_picture(c.w, c.seq, &want);
	jw_picture_free(&want);
	pc_free(&c);
	pc_free(&d);
}

/* ---- policies of one's own ------------------------------------------------------------------ */

static void test_example(void **state)
{
	const struct policy_random seed = {.seed = 42, .keep_newest = 6};
	struct kvc_policy_options o = {.size = sizeof(o), .ops = &policy_random_ops};
	int32_t positions[SLOTS * HEADS];
	struct pc c;
	struct jw_picture want;
	bool differ = false;

	(void)state;
	o.user = (void *)(uintptr_t)&seed;
	c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);
	pc_update(&c, SLOTS);
	for (int i = 0; i < 30; i++)
		pc_update(&c, 1 + (uint64_t)i % 4);
	pc_positions(&c, c.seq, 0, positions);
	for (uint32_t h = 0; h < HEADS; h++) {
		uint64_t n_newest = 0;

		for (uint32_t i = 0; i < SLOTS; i++) {
			n_newest += (uint64_t)positions[i * HEADS + h] + 6 >= kvc_position(c.seq);
			differ |= positions[i * HEADS + h] != positions[i * HEADS];
		}
		assert_int_equal(n_newest, 6);
	}
	assert_true(differ);
	pc_assert_vectors(&c, c.seq);
	want = jw_picture(c.w, c.seq);
	pc_reserve(&c, 4);
	jw_ok(kvc_rollback_steps(c.seq, 2));
	pc_update(&c, 1 + 28 % 4);
	pc_update(&c, 1 + 29 % 4);
	jw_assert_picture(c.w, c.seq, &want);
	jw_picture_free(&want);
	pc_free(&c);
}

/* What a bad policy chooses for two tokens of a full layer. */
static const struct bad {
	uint32_t slots[HEADS * 2];
	uint32_t n_moves, from, to;
	int shared, status;
	const char *text;
} bads[] = {
	{{3, 4, 5, 5}, 0, 0, 0, 0, KVC_EINVAL, "slot 5 of head 1 of layer 0 is there twice"},
	{{3, SLOTS, 5, 6}, 0, 0, 0, 0, KVC_ERANGE, "slot 24 of head 0"},
	{{UINT32_MAX - 1, 1}, 0, 0, 0, 1, KVC_ERANGE, "24 slots"},
	{{3, 4, KVC_POLICY_NONE, 6}, 0, 0, 0, 0, KVC_EINVAL, "some heads only"},
	{{3, 4}, 1, 2, 4, 1, KVC_EINVAL, "twice"},
	{{3, 4}, 1, SLOTS, 5, 1, KVC_ERANGE, "moved"},
	{{3, 4}, 1, 2, SLOTS, 1, KVC_ERANGE, "slot 24"},
	{{3, 4}, 3, 2, 5, 1, KVC_ERANGE, "moves 3"},
};
static const struct bad *bad;

static uint64_t bad_limit(const struct kvc_policy_layer *layer)
{
	return layer->n_slots;
}

static void bad_choose(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	plan->shared = 1;
	for (uint64_t i = 0; i < plan->n_tokens; i++)
		plan->slots[i] = layer->n_used + (uint32_t)i + (layer->position == 7);
	if (layer->n_used < layer->n_slots)
		return;
	memcpy(plan->slots, bad->slots, sizeof(bad->slots));
	plan->shared = bad->shared;
	plan->n_moves = bad->n_moves;
	plan->from[0] = bad->from;
	plan->to[0] = bad->to;
}

static void test_bad_policies(void **state)
{
	static const struct kvc_policy_ops ops = {
		.name = "bad", .limit = bad_limit, .choose = bad_choose};
	struct kvc_policy_options o = {.size = sizeof(o), .ops = &ops};
	struct pc c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);
	struct kvc_policy_plan plan;
	struct jw_picture before;

	(void)state;
	pc_update(&c, 7);
	pc_begin(&c, 1);
	jw_fails(kvc_policy_choose(c.policy, 0, 1, &plan), KVC_EUNSUPPORTED, "in order");
	jw_ok(kvc_abort(c.seq));
	pc_free(&c);
	c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);
	pc_update(&c, SLOTS);
	before = jw_picture(c.w, c.seq);
	for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
		bad = &bads[i];
		pc_begin(&c, 2);
		jw_fails(kvc_policy_choose(c.policy, 0, 2, &plan), bad->status, bad->text);
		jw_fails(pc_write(&c, 0, 2), KVC_EINVAL, "kvc_policy_choose");
		jw_ok(kvc_abort(c.seq));
		jw_assert_picture(c.w, c.seq, &before);
	}
	jw_picture_free(&before);
	pc_free(&c);
}

/* ---- several layers ------------------------------------------------------------------------- */

/* Unbounded, short and long: chunks end where a layer is full; every layer has its own slots. */
static void check_mixed(const char *name, enum kvc_journal_mode mode)
{
	static const uint32_t bounds[] = {0, SLOTS, 40};
	struct kvc_policy_options o = named(name);
	struct pc c = pc_new(&o, 3, bounds, HEADS, KV_FORMAT_INT8, mode);
	uint64_t wanted = 7;
	struct jw_picture at[2];

	while (kvc_position(c.seq) < 120) {
		uint64_t limit = kvc_policy_limit(c.policy), position = kvc_position(c.seq);
		uint64_t n = wanted < limit ? wanted : limit;

		assert_true(n > 0);
		pc_update(&c, n);
		/* none crosses a bound */
		for (int l = 1; l < 3; l++)
			assert_true(position >= bounds[l] || position + n <= bounds[l]);
	}
	pc_assert_vectors(&c, c.seq);
	assert_int_equal(kvc_slots(c.seq, 0), kvc_position(c.seq));
	at[0] = jw_picture(c.w, c.seq);
	pc_update(&c, 3);
	pc_update(&c, 1);
	at[1] = jw_picture(c.w, c.seq);
	pc_reserve(&c, 4);
	jw_ok(kvc_rollback_steps(c.seq, 2));
	jw_assert_picture(c.w, c.seq, &at[0]);
	pc_update(&c, 3);
	pc_update(&c, 1);
	jw_assert_picture(c.w, c.seq, &at[1]);
	for (int i = 0; i < 2; i++)
		jw_picture_free(&at[i]);
	pc_free(&c);
}

static void test_mixed(void **state)
{
	static const char *const names[] = {"ring",     "lastrec", "smart-lastrec", "h2o",
					    "h2o-orig", "qh2o",    "h2o-vlen",      "qh2o-vlen"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		check_mixed(names[i], KVC_JOURNAL_UNDO);
		check_mixed(names[i], KVC_JOURNAL_REPLAY);
	}
}

/* ---- what is measured ----------------------------------------------------------------------- */

static void test_measured(void **state)
{
	struct kvc_policy_options o = named("qh2o-vlen");
	struct pc c = pc_new(&o, 1, one, HEADS, KV_FORMAT_U4, KVC_JOURNAL_UNDO);
	float norms[SLOTS * HEADS], errors[SLOTS * HEADS], k[PC_WIDTH], v[PC_WIDTH], e[2];
	int32_t positions[SLOTS * HEADS];

	(void)state;
	pc_update(&c, SLOTS);
	for (int i = 0; i < 20; i++)
		pc_update(&c, 3);
	pc_positions(&c, c.seq, 0, positions);
	jw_ok(kvc_read_plane(c.seq, "policy.norm", 0, 0, SLOTS, norms));
	jw_ok(kvc_read_plane(c.seq, "policy.error", 0, 0, SLOTS, errors));
	for (uint32_t i = 0; i < SLOTS * HEADS; i++) {
		float sum = 0;

		jw_vector(c.w, 0, false, i % HEADS, (uint64_t)positions[i], k);
		jw_vector(c.w, 0, true, i % HEADS, (uint64_t)positions[i], v);
		for (uint32_t j = 0; j < PC_WIDTH; j++)
			sum += v[j] * v[j];
		assert_true(fabsf(norms[i] - sqrtf(sum)) <= 1e-6f * norms[i]);
		/* one head of one token: the first of its layer is as good as another */
		{
			float ks[HEADS * PC_WIDTH] = {0}, vs[HEADS * PC_WIDTH] = {0};
			float ke[HEADS], ve[HEADS];

			memcpy(ks, k, sizeof(k));
			memcpy(vs, v, sizeof(v));
			jw_ok(kvc_quantisation_error(kvc_seq_layout(c.seq), 0, 1, ks, vs, ke, ve));
			e[0] = ke[0];
			e[1] = ve[0];
		}
		assert_true(errors[i] > 0);
		assert_true(errors[i] == e[0] + e[1]);
	}
	pc_free(&c);
}

/* ---- logs ----------------------------------------------------------------------------------- */

/* What a log says of an update behind a rollback, and of a layer without a bound. */
static void check_logged(const struct pc *c, uint64_t length)
{
	uint32_t slots[HEADS * 7], tokens[300];

	assert_int_equal(kvc_policy_log_length(c->log), length);
	jw_ok(kvc_policy_log_tokens(c->log, 3, length - 3, tokens));
	assert_int_equal(tokens[0], 1003);
	assert_int_equal(tokens[length - 4], 1000 + length - 1);
	jw_ok(kvc_policy_log_extract_index(c->log, 1, 5, 7, slots));
	for (uint32_t i = 0; i < 7 * HEADS; i++)
		assert_int_equal(slots[i], 5 + i % 7);
	jw_fails(kvc_policy_log_extract_index(c->log, 0, length - 1, 2, slots), KVC_ERANGE, "log");
	jw_fails(kvc_policy_log_tokens(c->log, length, 1, tokens), KVC_ERANGE, "log");
}

/* An empty cache is filled by the log alone; it stays in c. */
static void follow(struct pc *c, kvc_policy_log *log)
{
	const struct kvc_policy_options o = {
		.size = sizeof(o), .ops = kvc_policy_log_ops(), .user = log};
	uint64_t length = kvc_policy_log_length(log);
	struct kvc_policy_plan plan;

	c->seq = pc_seq(c, KVC_JOURNAL_UNDO);
	c->policy = kvc_policy_new(c->seq, &o);
	jw_ok(c->policy ? 0 : -1);
	c->log = NULL;
	pc_update(c, SLOTS);
	pc_begin(c, 2); /* the log's has one token */
	jw_fails(kvc_policy_choose(c->policy, 0, 2, &plan), KVC_EBOUND, "at most 1");
	jw_ok(kvc_abort(c->seq));
	while (kvc_position(c->seq) < length)
		pc_update(c, kvc_policy_limit(c->policy));
	c->log = log;
}

static void check_log(const char *name, uint32_t grace)
{
	static const uint32_t bounds[] = {SLOTS, 0};
	struct kvc_policy_options o = named(name);
	kvc_policy *policy;
	kvc_seq *seq;
	struct pc c;

	o.grace_tokens = grace;
	c = pc_new(&o, 2, bounds, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);
	c.log = kvc_policy_log_new(kvc_seq_layout(c.seq));
	assert_non_null(c.log);
	pc_update(&c, SLOTS);
	for (uint64_t i = 0; i < 25; i++)
		pc_update(&c, 1 + i % 5);
	pc_reserve(&c, 5);
	jw_ok(kvc_rollback_steps(c.seq, 3));
	for (uint64_t i = 0; i < 4; i++)
		pc_update(&c, 2);
	check_logged(&c, kvc_position(c.seq));
	seq = c.seq;
	policy = c.policy;
	follow(&c, c.log);
	for (uint32_t l = 0; l < 2; l++) {
		int32_t a[HEADS * 300], b[HEADS * 300];
		uint32_t n = pc_positions(&c, seq, l, a);

		assert_int_equal(pc_positions(&c, c.seq, l, b), n);
		assert_memory_equal(a, b, n * HEADS * sizeof(a[0]));
	}
	pc_assert_vectors(&c, c.seq);
	kvc_policy_free(policy);
	pc_free(&c);
}

static void test_logs(void **state)
{
	(void)state;
	check_log("h2o", 0);
	check_log("h2o", 3);
	check_log("lastrec", 0);
}

/* The slots that were chosen for a token, as the update had them. */
static void test_extract(void **state)
{
	struct kvc_policy_options o = named("h2o");
	uint32_t slots[HEADS * 3];
	struct kvc_policy_plan plan;
	struct pc c;

	(void)state;
	o.grace_tokens = 2;
	c = pc_new(&o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);
	c.log = kvc_policy_log_new(kvc_seq_layout(c.seq));
	pc_update(&c, SLOTS);
	pc_update(&c, 1);
	pc_begin(&c, 3);
	jw_ok(kvc_policy_choose(c.policy, 0, 3, &plan));
	jw_ok(kvc_policy_log_add(c.log, c.policy, NULL));
	assert_int_equal(plan.n_moves, 2);
	assert_false(plan.shared);
	jw_ok(kvc_policy_log_extract_index(c.log, 0, SLOTS + 1, 3, slots));
	for (uint32_t h = 0; h < HEADS; h++) {
		assert_int_equal(slots[h * 3], plan.to[h * 2]);
		assert_int_equal(slots[h * 3 + 1], plan.to[h * 2 + 1]);
		assert_int_equal(slots[h * 3 + 2], plan.slots[h * 3]);
	}
	jw_ok(kvc_policy_log_extract_index(c.log, 0, SLOTS + 2, 1, slots));
	assert_int_equal(slots[1], plan.to[3]);
	jw_ok(kvc_abort(c.seq));
	pc_free(&c);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("the lowest values come first, equal ones by slot, those that are none last",
		test_lowest),
	KT_TEST("a ring has the newest tokens, also after a rollback", test_ring),
	KT_TEST("behind a prompt shorter than the pinned part, the ring begins there",
		test_short_prompt),
	KT_TEST("options that do not suit a layer are refused, with the field", test_options),
	KT_TEST("a policy of one's own has the functions that are called", test_incomplete),
	KT_TEST("an opaque layout has no policy, and nothing to log", test_opaque),
	KT_TEST("calls out of order are refused", test_order_of_calls),
	KT_TEST("more tokens than the limit are refused, and dense ends", test_limits),
	KT_TEST("a policy does not go on behind an update that it had no part in",
		test_foreign_updates),
	KT_TEST("a choice is void after a rollback, or when its update has ended",
		test_rollback_in_between),
	KT_TEST("other sequences of the writer may be committed and rolled back in between",
		test_two_sequences),
	KT_TEST("a protected range waits for the next update of its sequence", test_range_waits),
	KT_TEST("a range may be protected before its slots are filled", test_early_range),
	KT_TEST("an operator's rollback makes a choice void", test_operator),
	KT_TEST("a write that lacked blocks can be repeated", test_write_again),
	KT_TEST("the example policy evicts other slots for every head, and the same again",
		test_example),
	KT_TEST("what a policy of one's own must not choose is refused and changes nothing",
		test_bad_policies),
	KT_TEST("layers of several lengths have their own slots, also after a rollback",
		test_mixed),
	KT_TEST("norms and errors of tokens are measured, and move with them", test_measured),
	KT_TEST("an empty cache that follows a log has the same tokens in the same slots",
		test_logs),
	KT_TEST("a log gives the slots that an update with a grace period chose", test_extract),
};

KT_MAIN(tests)
