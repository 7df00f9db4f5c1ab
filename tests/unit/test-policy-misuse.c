/*
 * What should not be done with policies and is: bounds that a policy of one's own ignores, plans
 * that it spoils, logs and handles of other shapes, headers that somebody has written over.
 */
#include <string.h>

#include "client/journal.h"
#include "client/workers.h"
#include "tests/support/runner.h"
#include "tests/unit/policy-cache.h"

#define SLOTS 24u
#define HEADS 2u

static const uint32_t one[] = {SLOTS};

static struct kvc_policy_options named(const char *name)
{
	return (struct kvc_policy_options){.size = sizeof(struct kvc_policy_options), .name = name};
}

static struct pc new_pc(const struct kvc_policy_options *o)
{
	return pc_new(o, 1, one, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO);
}

/* ---- more tokens than slots ----------------------------------------------------------------- */

static uint64_t no_limit(const struct kvc_policy_layer *layer)
{
	(void)layer;
	return UINT64_MAX;
}

static void in_order(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	plan->shared = 1;
	for (uint64_t i = 0; i < plan->n_tokens; i++)
		plan->slots[i] = (uint32_t)((layer->position + i) % layer->n_slots);
}

static void check_bound(kvc_policy *policy, struct pc *c, uint64_t n_tokens, const char *text)
{
	struct kvc_policy_plan plan;

	jw_reserve(c->w, c->seq, n_tokens, 4000);
	jw_ok(kvc_update_begin(c->seq, n_tokens, KVC_UPDATE_SCATTER));
	jw_fails(kvc_policy_choose(policy, 0, n_tokens, &plan), KVC_EBOUND, text);
	jw_ok(kvc_abort(c->seq));
}

static void test_no_limit(void **state)
{
	static const struct kvc_policy_ops ops = {
		.name = "greedy", .limit = no_limit, .choose = in_order};
	struct kvc_policy_options o = {.size = sizeof(o), .ops = &ops};
	struct pc c = new_pc(&o);

	(void)state;
	assert_int_equal(kvc_policy_limit(c.policy), SLOTS);
	check_bound(c.policy, &c, 200, "200 tokens: policy greedy takes at most 24");
	pc_update(&c, 20);
	assert_int_equal(kvc_policy_limit(c.policy), 4);
	pc_update(&c, 4);
	assert_int_equal(kvc_policy_limit(c.policy), SLOTS);
	check_bound(c.policy, &c, SLOTS + 1, "25 tokens: policy greedy takes at most 24");
	pc_update(&c, SLOTS);
	pc_assert_vectors(&c, c.seq);
	pc_free(&c);
}

/* A ring has gone round under a handle that says slot = position. */
static void test_dense_past_bound(void **state)
{
	struct kvc_policy_options o = named("ring"), dense = named("dense");
	struct pc c = new_pc(&o);
	kvc_policy *policy = kvc_policy_new(c.seq, &dense);

	(void)state;
	pc_update(&c, SLOTS);
	assert_int_equal(kvc_policy_limit(policy), 0);
	pc_update(&c, 10);
	assert_int_equal(kvc_policy_limit(policy), 0);
	assert_int_equal(kvc_error(), KVC_OK);
	check_bound(policy, &c, 200, "200 tokens: policy dense takes at most 0");
	kvc_policy_free(policy);
	pc_free(&c);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

/* 2^22 slots of 1,024 heads are 2^32, and in 32 bits none. */
static void test_too_many_cells(void **state)
{
	struct kvc_layer layer = {1024, PC_WIDTH, PC_WIDTH, 1u << 20};
	struct jw_shape shape = {.n_layers = 1,
				 .k_format = KV_FORMAT_RAW,
				 .v_format = KV_FORMAT_RAW,
				 .block_tokens = 8};
	struct kvc_policy_options o = named("ring");
	struct kvc_plane planes[KVC_POLICY_PLANES];
	int n_planes = kvc_policy_planes(&o, 1, &layer, planes);
	struct jw *w;

	(void)state;
	assert_int_equal(n_planes, 1);
	layer.bound_slots = 1u << 22;
	jw_fails(kvc_policy_planes(&o, 1, &layer, planes), KVC_ETOOBIG, "4194304 slots");
	shape.layers[0] = (struct kv_layer){1024, PC_WIDTH, PC_WIDTH, 1u << 22};
	w = jw_new_with(&shape, planes, n_planes);
	assert_null(kvc_policy_new(bare_seq(w->bare, w->writer, 64, NULL), &o));
	assert_int_equal(kvc_error(), KVC_ETOOBIG);
	jw_free(w);
}

static void test_too_many_between_layers(void **state)
{
	const struct kvc_layer layers[] = {{1, PC_WIDTH, PC_WIDTH, 1u << 22},
					   {1024, PC_WIDTH, PC_WIDTH, 8}};
	struct jw_shape shape = {.n_layers = 2,
				 .k_format = KV_FORMAT_RAW,
				 .v_format = KV_FORMAT_RAW,
				 .block_tokens = 8};
	struct kvc_policy_options o = named("ring");
	struct kvc_plane planes[KVC_POLICY_PLANES];
	int n_planes = kvc_policy_planes(&o, 2, layers, planes);
	struct jw *w;

	(void)state;
	jw_ok(n_planes);
	shape.layers[0] = (struct kv_layer){1, PC_WIDTH, PC_WIDTH, 1u << 22};
	shape.layers[1] = (struct kv_layer){1024, PC_WIDTH, PC_WIDTH, 8};
	w = jw_new_with(&shape, planes, n_planes);
	assert_null(kvc_policy_new(bare_seq(w->bare, w->writer, 64, NULL), &o));
	assert_int_equal(kvc_error(), KVC_ETOOBIG);
	jw_free(w);
}

/* ---- ranges --------------------------------------------------------------------------------- */

static void test_range_over_all(void **state)
{
	const struct kvc_policy_range all = {0, SLOTS}, most = {0, SLOTS - 1};
	struct kvc_policy_options o = named("smart-lastrec");
	struct pc c = new_pc(&o);
	int32_t positions[SLOTS * HEADS];

	(void)state;
	jw_fails(kvc_policy_protect(c.policy, &all), KVC_ERANGE, "are all that layer 0 has");
	jw_ok(kvc_policy_protect(c.policy, &most));
	pc_update(&c, SLOTS);
	jw_fails(kvc_policy_protect(c.policy, &all), KVC_ERANGE, "are all that layer 0 has");
	assert_int_equal(kvc_policy_limit(c.policy), 2);
	pc_update(&c, 2);
	pc_update(&c, 1);
	pc_positions(&c, c.seq, 0, positions);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		assert_int_equal(positions[slot * HEADS], slot < SLOTS - 1 ? slot : SLOTS + 2);
	pc_free(&c);
}

/* ---- policies of one's own ------------------------------------------------------------------ */

static void test_no_name(void **state)
{
	static const struct kvc_policy_ops ops = {.limit = no_limit, .choose = in_order};
	struct kvc_policy_options o = {.size = sizeof(o), .ops = &ops}, ring = named("ring");
	const struct kvc_layer layer = {HEADS, PC_WIDTH, PC_WIDTH, SLOTS};
	struct kvc_plane planes[KVC_POLICY_PLANES];
	struct pc c = new_pc(&ring);

	(void)state;
	jw_fails(kvc_policy_planes(&o, 1, &layer, planes), KVC_EINVAL, "ops->name is NULL");
	assert_null(kvc_policy_new(c.seq, &o));
	assert_int_equal(kvc_error(), KVC_EINVAL);
	pc_free(&c);
}

static uint32_t spoilt; /* which pointer */

static void spoil(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	static uint32_t elsewhere[SLOTS];

	in_order(layer, plan);
	plan->n_tokens = spoilt; /* is not looked at */
	plan->slots = spoilt == 1 ? NULL : spoilt == 2 ? elsewhere : plan->slots;
	plan->from = spoilt == 3 ? NULL : plan->from;
	plan->to = spoilt == 4 ? NULL : plan->to;
}

static void test_spoilt_plan(void **state)
{
	static const struct kvc_policy_ops ops = {
		.name = "spoiler", .limit = no_limit, .choose = spoil};
	struct kvc_policy_options o = {.size = sizeof(o), .ops = &ops};
	struct pc c = new_pc(&o);
	struct kvc_policy_plan plan;

	(void)state;
	for (int round = 0; round < 2; round++) {
		for (spoilt = 1; spoilt <= 4; spoilt++) {
			pc_begin(&c, SLOTS);
			jw_fails(kvc_policy_choose(c.policy, 0, SLOTS, &plan), KVC_EINVAL,
				 "policy spoiler has changed pointers of the plan");
			jw_fails(pc_write(&c, 0, SLOTS), KVC_EINVAL, "kvc_policy_choose");
			jw_ok(kvc_abort(c.seq));
		}
		spoilt = 0;
		pc_update(&c, SLOTS);
	}
	pc_assert_vectors(&c, c.seq);
	pc_free(&c);
}

/* Once the layer is full: nowhere. */
static void nowhere(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	in_order(layer, plan);
	for (uint64_t i = 0; layer->n_used == layer->n_slots && i < plan->n_tokens; i++)
		plan->slots[i] = KVC_POLICY_NONE;
}

/* h2o's update meets, where its own choice has the grace period's slots, none. */
static void test_nowhere_and_grace(void **state)
{
	struct kvc_policy_ops ops = *kvc_policy_find("h2o");
	struct kvc_policy_options o = {
		.size = sizeof(o), .ops = &ops, .reset_grace_scores = 1, .grace_tokens = 2};
	int32_t positions[SLOTS * HEADS];
	struct pc c;

	(void)state;
	ops.name = "nowhere";
	ops.choose = nowhere;
	c = new_pc(&o);
	pc_update(&c, SLOTS);
	pc_update(&c, 2);
	pc_update(&c, 5);
	assert_int_equal(kvc_position(c.seq), SLOTS + 7);
	pc_positions(&c, c.seq, 0, positions);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		assert_int_equal(positions[slot * HEADS], slot);
	pc_free(&c);
}

/* ---- logs ----------------------------------------------------------------------------------- */

/* A log is for layers of its own layout: heads, slots, how many. */
static void test_log_of_another_layout(void **state)
{
	static const uint32_t same[] = {SLOTS, SLOTS}, longer[] = {SLOTS + 8};
	struct kvc_policy_options o = named("ring"), f = {.size = sizeof(f)};
	struct pc c = new_pc(&o),
		  others[] = {
			  pc_new(&o, 1, one, HEADS + 1, KV_FORMAT_INT8, KVC_JOURNAL_UNDO),
			  pc_new(&o, 1, longer, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO),
			  pc_new(&o, 2, same, HEADS, KV_FORMAT_INT8, KVC_JOURNAL_UNDO),
		  };
	struct kvc_policy_plan plan;

	(void)state;
	c.log = kvc_policy_log_new(c.seq->layout);
	pc_begin(&c, 5);
	jw_ok(kvc_policy_choose(c.policy, 0, 5, &plan));
	for (size_t i = 0; i < 3; i++) {
		kvc_policy_log *log = kvc_policy_log_new(others[i].seq->layout);

		jw_fails(kvc_policy_log_add(log, c.policy, NULL), KVC_EINVAL,
			 "the log is for another layout");
		assert_int_equal(kvc_policy_log_length(log), 0);
		kvc_policy_log_free(log);
	}
	jw_ok(kvc_policy_log_add(c.log, c.policy, NULL));
	assert_int_equal(kvc_policy_log_length(c.log), 5);
	f.ops = kvc_policy_log_ops();
	f.user = c.log;
	for (size_t i = 0; i < 3; i++) {
		assert_null(kvc_policy_new(others[i].seq, &f));
		assert_int_equal(kvc_error(), KVC_EINVAL);
		assert_non_null(strstr(kvc_error_text(), "user is not a log of this layout"));
		pc_free(&others[i]);
	}
	jw_ok(kvc_abort(c.seq));
	pc_free(&c);
}

/* Who follows a log moves what the log has moved, and needs rows for it. */
static void test_rows_of_a_followed_log(void **state)
{
	struct kvc_policy_options o = named("h2o"), f = {.size = sizeof(f)};
	struct pc c, b;

	(void)state;
	o.grace_tokens = 10;
	c = new_pc(&o);
	c.log = kvc_policy_log_new(c.seq->layout);
	f.ops = kvc_policy_log_ops();
	f.user = c.log;
	b = new_pc(&f);
	assert_int_equal(kvc_policy_rows(b.policy, 10), HEADS * 10);
	pc_update(&c, SLOTS);
	for (int i = 0; i < 4; i++)
		pc_update(&c, 10);
	assert_int_equal(kvc_policy_rows(b.policy, 10), HEADS * (10 + 10));
	assert_int_equal(kvc_policy_rows(b.policy, 3), HEADS * (3 + 3));
	assert_int_equal(kvc_policy_rows(b.policy, 12), HEADS * (12 + 10));
	pc_update(&b, SLOTS);
	for (int i = 0; i < 4; i++) {
		struct kvc_policy_plan plan;

		jw_reserve(b.w, b.seq, 10, kvc_policy_rows(b.policy, 10));
		jw_ok(kvc_update_begin(b.seq, 10, KVC_UPDATE_SCATTER));
		jw_ok(kvc_policy_choose(b.policy, 0, 10, &plan));
		jw_ok(pc_write(&b, 0, 10));
		jw_ok(kvc_commit(b.w->writer, &b.seq, 1));
	}
	pc_assert_vectors(&b, b.seq);
	pc_free(&b);
	pc_free(&c);
}

/* ---- attention over what a policy chose ----------------------------------------------------- */

struct call {
	float q[HEADS * PC_WIDTH], k[HEADS * PC_WIDTH], v[HEADS * PC_WIDTH], out[HEADS * PC_WIDTH];
	struct kvc_attend_args args;
};

static struct call *call_of(struct call *call, const struct kvc_policy_plan *plan)
{
	for (uint32_t i = 0; i < HEADS * PC_WIDTH; i++) {
		call->q[i] = (float)(i % 7) / 7;
		call->k[i] = (float)(i % 5) / 5;
		call->v[i] = (float)(i % 3) / 3;
	}
	call->args = (struct kvc_attend_args){.size = sizeof(call->args),
					      .n_query_heads = HEADS,
					      .n_tokens = 1,
					      .q = call->q,
					      .k = call->k,
					      .v = call->v,
					      .out = call->out,
					      .slots = plan->slots,
					      .shared_slots = plan->shared};
	return call;
}

/* An update of one token is open, whose slots are chosen. */
static struct pc open_ring(struct kvc_policy_plan *plan)
{
	struct kvc_policy_options o = named("ring");
	struct pc c = new_pc(&o);

	pc_update(&c, SLOTS);
	pc_begin(&c, 1);
	jw_ok(kvc_policy_choose(c.policy, 0, 1, plan));
	return c;
}

static void test_damaged_rows(void **state)
{
	const uint32_t from = 3, to = 5;
	float plain[HEADS * PC_WIDTH], moved[HEADS * PC_WIDTH];
	struct kvc_policy_plan plan;
	struct pc c = open_ring(&plan);
	struct kv_row rows[HEADS];
	struct call call;

	(void)state;
	jw_ok(kvc_attend(c.seq, 0, &call_of(&call, &plan)->args));
	memcpy(plain, call.out, sizeof(plain));
	jw_ok(kvc_move(c.seq, 0, 1, &from, &to, 1));
	jw_ok(kvc_attend(c.seq, 0, &call.args));
	memcpy(moved, call.out, sizeof(moved));
	for (uint32_t h = 0; h < HEADS; h++) {
		assert_memory_not_equal(moved + h * PC_WIDTH, plain + h * PC_WIDTH,
					PC_WIDTH * sizeof(float));
		rows[h] = *journal_row(c.seq, c.seq->open_extra + h);
	}
	for (int what = 0; what < 3; what++) {
		for (uint32_t h = 0; h < HEADS; h++) {
			struct kv_row *row = journal_row(c.seq, c.seq->open_extra + h);

			*row = rows[h];
			row->head = what == 0 ? 60000 : what == 1 ? HEADS : row->head;
			row->slot = what == 2 ? UINT32_MAX - 15 : row->slot;
		}
		jw_ok(kvc_attend(c.seq, 0, &call.args));
		assert_memory_equal(call.out, plain, sizeof(plain));
	}
	for (uint32_t h = 0; h < HEADS; h++)
		*journal_row(c.seq, c.seq->open_extra + h) = rows[h];
	jw_ok(kvc_attend(c.seq, 0, &call.args));
	assert_memory_equal(call.out, moved, sizeof(moved));
	jw_ok(kvc_abort(c.seq));
	pc_free(&c);
}

static void test_huge_windows(void **state)
{
	static const uint64_t windows[] = {SLOTS + 1, INT64_MAX, (uint64_t)INT64_MAX + 1,
					   UINT64_MAX};
	struct kvc_policy_plan plan;
	struct pc c = open_ring(&plan);
	float want[HEADS * PC_WIDTH];
	int32_t positions[HEADS * SLOTS];
	struct call call;

	(void)state;
	jw_ok(kvc_attend(c.seq, 0, &call_of(&call, &plan)->args));
	memcpy(want, call.out, sizeof(want));
	for (uint32_t i = 0; i < HEADS * SLOTS; i++)
		positions[i] = (int32_t)(i % SLOTS == plan.slots[0] ? SLOTS : i % SLOTS);
	call.args.positions = positions;
	call.args.first_position = SLOTS;
	for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
		call.args.window_tokens = windows[i];
		memset(call.out, 0, sizeof(call.out));
		jw_ok(kvc_attend(c.seq, 0, &call.args));
		assert_memory_equal(call.out, want, sizeof(want));
	}
	call.args.window_tokens = 1;
	jw_ok(kvc_attend(c.seq, 0, &call.args));
	assert_memory_equal(call.out, call.v, sizeof(call.v));
	jw_ok(kvc_abort(c.seq));
	pc_free(&c);
}

static void test_busy_workers(void **state)
{
	kvc_workers *workers = kvc_workers_new(2);
	struct kvc_policy_plan plan;
	struct pc c = open_ring(&plan);
	struct call call;

	(void)state;
	call_of(&call, &plan)->args.workers = workers;
	jw_ok(workers_enter(workers));
	jw_fails(kvc_attend(c.seq, 0, &call.args), KVC_EBUSY, "another thread has these workers");
	workers_leave(workers);
	jw_ok(kvc_attend(c.seq, 0, &call.args));
	jw_ok(kvc_attend(c.seq, 0, &call.args));
	jw_ok(kvc_abort(c.seq));
	kvc_workers_free(workers);
	pc_free(&c);
}

static void test_names(void **state)
{
	(void)state;
	assert_null(kvc_policy_find("lru"));
	assert_int_equal(kvc_error(), KVC_ENOTFOUND);
	assert_string_equal(kvc_error_text(),
			    "there is no policy \"lru\"; there are dense, ring, lastrec, "
			    "smart-lastrec, h2o, h2o-orig, h2o-vlen, qh2o, qh2o-vlen");
}

static const struct CMUnitTest tests[] = {
	KT_TEST("an unknown policy is told all names that there are", test_names),
	KT_TEST("an update has no more tokens than slots, whatever a policy allows", test_no_limit),
	KT_TEST("a dense policy takes nothing past its bound", test_dense_past_bound),
	KT_TEST("slots of all heads that cannot be counted are refused", test_too_many_cells),
	KT_TEST("slots of one layer and heads of another that are too many are refused",
		test_too_many_between_layers),
	KT_TEST("a range over all slots is refused, one slot less is protected",
		test_range_over_all),
	KT_TEST("a policy without a name is refused", test_no_name),
	KT_TEST("a plan whose pointers were changed is refused", test_spoilt_plan),
	KT_TEST("scores stand where a policy of one's own puts nothing anywhere",
		test_nowhere_and_grace),
	KT_TEST("a log is refused for other heads, slots or layers", test_log_of_another_layout),
	KT_TEST("rows for following a log include what it has moved", test_rows_of_a_followed_log),
	KT_TEST("staged rows that name no head or slot of the layer do not count",
		test_damaged_rows),
	KT_TEST("a window of more tokens than there can be passes all", test_huge_windows),
	KT_TEST("attention with workers that are in a call is refused", test_busy_workers),
};
KT_MAIN(tests)
