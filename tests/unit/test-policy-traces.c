/*
 * The traces of tests/data/policy through sequences, under undo and replay journals: the slots,
 * positions, scores and counters of the trace, and the vectors of the tokens that the positions
 * name. Then the last updates are rolled back, replayed, rolled back and done again: by the sequence
 * with its old handle, by a fork, by one that was made from a snapshot, with new handles. The slots are those of the trace
 * each time.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "client/policy_planes.h"
#include "tests/support/runner.h"
#include "tests/unit/journal-world.h"
#include "tests/vectors/policy_trace.h"

#define MAX_TOKENS 8192u
#define MARKS_MAX 16
#define TAIL 24u           /* updates that are done again */
#define ROW_TOKENS 100000u /* a row's tokens are other ones than another's */
#define WIDTH 16u

struct cache {
	kvc_seq *seqs[PT_ROWS];
	kvc_policy *policies[PT_ROWS];
};

static struct {
	const char *name;
	const struct trace *trace;
	uint32_t event_number;
	enum kvc_journal_mode mode;
	struct pt_setup setup;
	struct jw *w;
	uint32_t n_rows;
	struct cache cache;
	uint32_t n_marks;
	char mark_names[MARKS_MAX][16];
	kvc_mark marks[MARKS_MAX][PT_ROWS];
	bool has_overlap; /* positions of the trace are not to be compared */
	/* what the policy under test is asked for */
	struct kvc_policy_ops ops;
	const struct kvc_policy_ops *built_in;
	bool takes_trace;
	uint32_t row;
} run;

#define MUST(good) \
	do { \
		if (!(good)) \
			fail_msg("%s, event %u, mode %d: %s (%s)", run.name, run.event_number, \
				 run.mode, #good, kvc_error_text()); \
	} while (0)

static const struct trace_event *event_now(void)
{
	return &run.trace->events[run.event_number];
}

/* ---- the policy, but for accidents of another program's sort ---------------------------------- */

static void choose(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	if (run.takes_trace)
		pt_take_plan(event_now(), &run.setup, run.row, plan);
	else
		run.built_in->choose(layer, plan);
}

static struct kvc_policy_options options(void)
{
	struct kvc_policy_options o = run.setup.options;

	o.name = NULL;
	o.ops = &run.ops;
	return o;
}

/* ---- caches --------------------------------------------------------------------------------- */

static kvc_policy *policy_of(kvc_seq *seq)
{
	struct kvc_policy_options o = options();
	kvc_policy *policy = kvc_policy_new(seq, &o);

	MUST(policy);
	return policy;
}

static void drop(struct cache *cache)
{
	for (uint32_t b = 0; b < PT_ROWS; b++) {
		kvc_policy_free(cache->policies[b]);
		if (cache->seqs[b])
			jw_drop(run.w, cache->seqs[b]);
	}
	memset(cache, 0, sizeof(*cache));
}

static void begin_rows(uint32_t n_rows)
{
	const struct kvc_journal_options journal = {
		.size = sizeof(journal),
		.mode = run.mode,
		.keep_steps = run.mode == KVC_JOURNAL_UNDO ? 500 : 0};

	drop(&run.cache);
	run.n_rows = n_rows;
	for (uint32_t b = 0; b < n_rows; b++) {
		run.cache.seqs[b] = bare_seq(run.w->bare, run.w->writer, MAX_TOKENS, NULL);
		jw_ok(kvc_journal_set(run.cache.seqs[b], &journal));
		run.cache.policies[b] = policy_of(run.cache.seqs[b]);
	}
}

static void reserve(kvc_seq *seq, const kvc_policy *policy, uint64_t n)
{
	assert_int_equal(bare_reserve(run.w->bare, seq, n), 0);
	assert_int_equal(bare_reserve_scatter(run.w->bare, seq, 1,
					      kvc_policy_rows(policy, n) + n * run.setup.H, 16),
			 0);
}

/* ---- one update ----------------------------------------------------------------------------- */

static void fill(uint32_t row, uint64_t first, uint64_t n, bool is_value, float *to)
{
	for (uint64_t i = 0; i < n; i++)
		for (uint32_t h = 0; h < run.setup.H; h++)
			jw_vector(run.w, 0, is_value, h, first + i + row * ROW_TOKENS,
				  to + (i * run.setup.H + h) * WIDTH);
}

/* (heads, n) as the trace has it becomes [n][heads]. */
static const float *turned(const char *name, uint32_t row, uint64_t first, uint64_t n, float *to)
{
	uint64_t n_all = pt_n_tokens(event_now());
	const float *from = pt_floats(event_now(), name, &run.setup, row, n_all);

	for (uint64_t i = 0; from && i < n; i++)
		for (uint32_t h = 0; h < run.setup.H; h++)
			to[i * run.setup.H + h] = from[h * n_all + first + i];
	return from ? to : NULL;
}

/* Tokens [first, first + n) of the event into one row. */
static void update_row(struct cache *cache, uint32_t b, uint64_t first, uint64_t n)
{
	static float k[PT_CELLS * WIDTH], v[PT_CELLS * WIDTH], norms[PT_CELLS], errors[PT_CELLS];
	kvc_seq *seq = cache->seqs[b];
	kvc_policy *policy = cache->policies[b];
	bool is_whole = n == pt_n_tokens(event_now()), is_prompt = kvc_position(seq) == 0;
	uint32_t n_used = (uint32_t)kvc_slots(seq, 0) + (uint32_t)n;
	struct kvc_policy_plan plan;
	struct kvc_policy_range range;
	float summed[PT_CELLS];

	run.row = b;
	run.takes_trace = run.takes_trace && n_used > run.setup.L;
	n_used = n_used < run.setup.L ? n_used : run.setup.L;
	fill(b, kvc_position(seq), n, false, k);
	fill(b, kvc_position(seq), n, true, v);
	reserve(seq, policy, n);
	if (first + n == pt_n_tokens(event_now()) && pt_range(event_now(), b, &range))
		jw_ok(kvc_policy_protect(policy, &range));
	MUST(kvc_policy_limit(policy) >= n);
	jw_ok(kvc_update_begin(seq, n, KVC_UPDATE_SCATTER));
	MUST(kvc_policy_choose(policy, 0, n, &plan) == 0);
	MUST(!is_whole || is_prompt || pt_plan_is(event_now(), &run.setup, b, &plan));
	MUST(kvc_policy_write(policy, 0, k, v, turned("v_norm", b, first, n, norms),
			      turned("q_err", b, first, n, errors)) == 0);
	MUST(kvc_policy_score(policy, 0,
			      is_prompt ? NULL :
					  pt_weights(event_now(), &run.setup, run.n_rows, b, n_used,
						     summed)) == 0);
	jw_ok(kvc_commit(run.w->writer, &seq, 1));
}

/* What the trace's next update takes is an accident, it says. */
static bool is_accident(uint32_t event)
{
	const struct trace_event *before = &run.trace->events[event - 1];

	while (!pt_is_step(before)) {
		const char *name = before->names[0];

		before--;
		if (strcmp(before[1].kind, "rollback") == 0)
			while (strcmp(before->kind, "mark") != 0 ||
			       strcmp(before->names[0], name) != 0)
				before--;
	}
	return (trace_number(before, "order_is_stable_argsort", 1) == 0 ||
		run.setup.options.max_chunk_tokens) &&
	       !trace_number(event_now(), "initial_rule", 0);
}

/* A layer that is not full is filled exactly, then overwritten: two updates. Returns how many. */
static uint32_t step(struct cache *cache)
{
	uint64_t n = pt_n_tokens(event_now()), first = 0, room;
	bool is_prompt = strcmp(event_now()->kind, "prefill") == 0;

	for (uint32_t b = 0; b < run.n_rows; b++) {
		room = run.setup.L - kvc_slots(cache->seqs[b], 0);
		first = room && n > room ? room : 0;
		run.takes_trace = false;
		if (first)
			update_row(cache, b, 0, first);
		run.takes_trace = !is_prompt && is_accident(run.event_number);
		update_row(cache, b, first, n - first);
	}
	return first ? 2 : 1;
}

/* ---- what the trace says -------------------------------------------------------------------- */

static void check_hash(const char *name, const void *cells, size_t n)
{
	const char *want = trace_text(event_now(), name);

	if (want && XXH64(cells, n * 4, 0) != strtoull(want, NULL, 16))
		fail_msg("%s, event %u, mode %d: %s differs", run.name, run.event_number, run.mode,
			 name);
}

static void check_number(const char *name, uint32_t row, long got)
{
	long want = pt_number(event_now(), name, row, got);

	if (want != got)
		fail_msg("%s, event %u, mode %d: %s of row %u is %ld, not %ld", run.name,
			 run.event_number, run.mode, name, row, got, want);
}

static void check_counters(kvc_seq *seq, uint32_t b)
{
	const char *plane = kvc_plane_get(seq, "policy");
	const void *state = plane + sizeof(struct policy_stamp);

	check_number("input_pos", b, (long)kvc_position(seq));
	check_number("current_length", b, (long)kvc_slots(seq, 0));
	if (!plane)
		return;
	if (run.built_in->needs & KVC_POLICY_SCORES) {
		const struct kv_policy_scoring_state *s = state;

		check_number("use_initial_rule", b, s->use_initial_rule);
		check_number("next_grace_pos", b, s->grace_next);
		check_number("prefill_length", b, s->prefill_length);
	} else if (run.built_in == &kv_policy_lastrec) {
		check_number("next_position", b,
			     ((const struct kv_policy_lastrec_state *)state)->next);
	} else if (run.built_in == &kv_policy_smart_lastrec) {
		check_number("next_position", b,
			     ((const struct kv_policy_smart_state *)state)->next);
	}
}

/* Slot planes and scores of all rows, (rows, heads, slots). */
static size_t gather(const struct cache *cache, const char *name, uint32_t *to)
{
	uint32_t cells[PT_CELLS];
	size_t done = 0;

	for (uint32_t b = 0; b < run.n_rows; b++) {
		uint32_t n = (uint32_t)kvc_slots(cache->seqs[b], 0);
		const char *scores = kvc_plane_get(cache->seqs[b], "policy");

		if (name)
			MUST(kvc_read_plane(cache->seqs[b], name, 0, 0, n, cells) == 0);
		else
			MUST(scores);
		for (uint32_t h = 0; h < run.setup.H; h++)
			for (uint32_t i = 0; i < n; i++, done++)
				if (name)
					to[done] = cells[i * run.setup.H + h];
				else
					memcpy(&to[done],
					       scores + policy_scores_off(run.built_in) +
						       (h * run.setup.L + i) * 4,
					       4);
	}
	return done;
}

/* Each slot has the vectors of the token that its position names. */
static void check_vectors(const struct cache *cache)
{
	uint32_t cells[PT_CELLS];

	for (uint32_t b = 0; b < run.n_rows; b++) {
		uint32_t n = (uint32_t)kvc_slots(cache->seqs[b], 0);

		jw_ok(kvc_read_plane(cache->seqs[b], "position", 0, 0, n, cells));
		for (uint32_t i = 0; i < n * run.setup.H; i++)
			jw_assert_vector(run.w, cache->seqs[b], 0, i % run.setup.H, i / run.setup.H,
					 cells[i] + b * ROW_TOKENS);
	}
}

static void check_state(const struct cache *cache)
{
	static uint32_t cells[PT_ROWS * PT_CELLS];
	const struct trace_item *norms = trace_item(event_now(), "v_norm_all");
	const struct trace_item *errors = trace_item(event_now(), "q_err_all");
	size_t n;

	for (uint32_t b = 0; b < run.n_rows; b++)
		check_counters(cache->seqs[b], b);
	n = gather(cache, "position", cells);
	if (!run.has_overlap)
		check_hash("token_pos_xxh64", cells, n);
	if (run.built_in->needs & KVC_POLICY_SCORES && run.setup.has_exact_scores) {
		gather(cache, NULL, cells);
		check_hash("scores_xxh64", cells, n);
	}
	if (norms && run.built_in->needs & KVC_POLICY_NORMS) {
		gather(cache, "policy.norm", cells);
		assert_memory_equal(cells, norms->bytes, n * 4);
	}
	if (errors) {
		gather(cache, "policy.error", cells);
		assert_memory_equal(cells, errors->bytes, n * 4);
	}
	if (run.event_number % 10 == 0)
		check_vectors(cache);
}

/* ---- events --------------------------------------------------------------------------------- */

static void mark(bool is_back)
{
	uint32_t m = 0;

	while (m < run.n_marks && strcmp(run.mark_names[m], event_now()->names[0]) != 0)
		m++;
	MUST(m < run.n_marks || (!is_back && m < MARKS_MAX));
	for (uint32_t b = 0; b < run.n_rows; b++) {
		if (is_back) {
			reserve(run.cache.seqs[b], run.cache.policies[b], 1);
			MUST(kvc_rollback_mark(run.cache.seqs[b], &run.marks[m][b]) == 0);
			continue;
		}
		reserve(run.cache.seqs[b], run.cache.policies[b], 1);
		jw_ok(kvc_mark_set(run.cache.seqs[b], &run.marks[m][b]));
	}
	if (m == run.n_marks) {
		strcpy(run.mark_names[m], event_now()->names[0]);
		run.n_marks++;
	}
}

static void refuse(void)
{
	uint64_t n = (uint64_t)event_now()->words[1], limit;

	limit = kvc_policy_limit(run.cache.policies[0]);
	if (run.built_in == &kv_policy_lastrec)
		MUST(limit >= n);
	else
		MUST(limit < n);
}

/* Returns how many updates it was. */
static uint32_t run_event(struct cache *cache)
{
	const char *kind = event_now()->kind;
	uint32_t n = 0;

	if (strcmp(kind, "prefill") == 0)
		begin_rows((uint32_t)trace_number(event_now(), "batch", 0));
	if (pt_is_step(event_now()))
		n = step(cache);
	else if (strcmp(kind, "mark") == 0)
		mark(false);
	else if (strcmp(kind, "rollback") == 0)
		mark(true);
	else if (strcmp(kind, "error") == 0)
		refuse();
	if (strcmp(kind, "end") != 0 && strcmp(kind, "reset") != 0 && strcmp(kind, "mark") != 0)
		check_state(cache);
	return n;
}

/* ---- again ---------------------------------------------------------------------------------- */

static void run_events(struct cache *cache, uint32_t first)
{
	for (run.event_number = first; run.event_number + 1 < run.trace->n_events;
	     run.event_number++)
		run_event(cache);
}

static void go_back(struct cache *cache, uint32_t first, uint32_t n_updates)
{
	run.event_number = first - 1;
	for (uint32_t b = 0; b < run.n_rows; b++) {
		reserve(cache->seqs[b], cache->policies[b], 1);
		MUST(kvc_rollback_steps(cache->seqs[b], n_updates) == 0);
	}
	check_state(cache);
}

/* Forward again: rows of an undo journal do not have what took new slots. */
static void replay(struct cache *cache, uint32_t n_updates)
{
	if (run.mode == KVC_JOURNAL_UNDO && kvc_slots(cache->seqs[0], 0) < run.setup.L)
		return;
	for (uint32_t b = 0; b < run.n_rows; b++) {
		reserve(cache->seqs[b], cache->policies[b], 1);
		MUST(kvc_replay(cache->seqs[b], 0) == n_updates);
	}
	run.event_number = run.trace->n_events - 2;
	check_state(cache);
	check_vectors(cache);
}

/* On forks, which share the blocks. */
static void again_on_forks(uint32_t first)
{
	struct cache forks = {0};

	for (uint32_t b = 0; b < run.n_rows; b++) {
		bare_spare_places(run.w->bare, run.w->writer, MAX_TOKENS, 1);
		reserve(run.cache.seqs[b], run.cache.policies[b], 1);
		forks.seqs[b] = kvc_fork_local(run.cache.seqs[b], 0);
		MUST(forks.seqs[b]);
		forks.policies[b] = policy_of(forks.seqs[b]);
	}
	run_events(&forks, first);
	drop(&forks);
}

/* On sequences that the core made of a copied state, as a takeover does, with new handles. */
static void again_from_snapshots(uint32_t first)
{
	struct seg_state states[PT_ROWS];
	struct cache others = {0};

	for (uint32_t b = 0; b < run.n_rows; b++) {
		assert_int_equal(bare_snapshot(run.w->bare, run.cache.seqs[b]->place, &states[b]),
				 0);
		others.seqs[b] = bare_seq(run.w->bare, run.w->writer, MAX_TOKENS, &states[b]);
		others.policies[b] = policy_of(others.seqs[b]);
	}
	run_events(&others, first);
	drop(&others);
	for (uint32_t b = 0; b < run.n_rows; b++) {
		bare_pin(run.w->bare, &states[b], -1);
		seg_state_fini(&states[b]);
	}
}

/* The first of the last updates, behind one that tells all of the state. */
static uint32_t tail_of(const struct trace *trace)
{
	uint32_t first = trace->n_events - 1;

	while (first > 1 && trace->n_events - 1 - first < TAIL &&
	       strcmp(trace->events[first - 1].kind, "update") == 0)
		first--;
	return pt_is_step(&trace->events[first - 1]) ? first : first + 1;
}

static void run_trace(void)
{
	uint32_t tail = tail_of(run.trace), n_updates = 0, n;
	uint64_t position;

	for (run.event_number = 1; run.event_number < run.trace->n_events; run.event_number++) {
		uint32_t at = run.event_number;

		n = run_event(&run.cache);
		if (at >= tail)
			n_updates += n;
	}
	if (n_updates == 0)
		return;
	go_back(&run.cache, tail, n_updates);
	position = kvc_position(run.cache.seqs[0]);
	replay(&run.cache, n_updates);
	if (kvc_position(run.cache.seqs[0]) != position)
		go_back(&run.cache, tail, n_updates);
	again_on_forks(tail);
	again_from_snapshots(tail);
	run_events(&run.cache, tail);
	go_back(&run.cache, tail, n_updates);
	for (uint32_t b = 0; b < run.n_rows; b++) {
		kvc_policy_free(run.cache.policies[b]);
		run.cache.policies[b] = policy_of(run.cache.seqs[b]);
	}
	run_events(&run.cache, tail);
}

static bool has_overlap(const struct trace *trace)
{
	for (uint32_t i = 1; i < trace->n_events; i++)
		if (trace_number(&trace->events[i], "repeats_a_slot", 0) &&
		    trace_item(&trace->events[i], "grace_slots"))
			return true;
	return false;
}

/* In the mode of `run`. */
static void run_policy(const struct trace *trace)
{
	bool is_undo = run.mode == KVC_JOURNAL_UNDO;
	struct jw_shape shape = {.n_layers = 1,
				 .k_format = is_undo ? KV_FORMAT_INT8 : KV_FORMAT_RAW,
				 .v_format = is_undo ? KV_FORMAT_U8 : KV_FORMAT_RAW,
				 .block_tokens = 8};
	struct kvc_plane planes[KVC_POLICY_PLANES];
	struct kvc_policy_options o;
	struct kvc_layer layer;
	int n_planes;

	assert_true(pt_setup(trace, &run.setup));
	run.trace = trace;
	run.n_marks = 0;
	run.has_overlap = has_overlap(trace);
	run.built_in = kvc_policy_find(run.setup.options.name);
	run.ops = *run.built_in;
	run.ops.choose = choose;
	layer = (struct kvc_layer){run.setup.H, WIDTH, WIDTH, run.setup.L};
	shape.layers[0] = (struct kv_layer){run.setup.H, WIDTH, WIDTH, run.setup.L};
	o = options();
	n_planes = kvc_policy_planes(&o, 1, &layer, planes);
	assert_true(n_planes >= 1);
	run.w = jw_new_with(&shape, planes, n_planes);
	run_trace();
	drop(&run.cache);
	jw_free(run.w);
}

static void run_one(const char *folder, const char *name)
{
	struct trace trace;
	char reason[160];

	run.name = name;
	assert_true(trace_read(folder, name, &trace, reason));
	run_policy(&trace);
	trace_free(&trace);
}

static void run_folder(enum kvc_journal_mode mode)
{
	char folder[PATH_MAX];
	const char *top = getenv("top_srcdir");

	snprintf(folder, sizeof(folder), "%s/tests/data/policy", top ? top : ".");
	run.mode = mode;
	assert_int_equal(trace_each(folder, NULL, run_one), 51);
}

static void test_undo(void **state)
{
	(void)state;
	run_folder(KVC_JOURNAL_UNDO);
}

static void test_replay(void **state)
{
	(void)state;
	run_folder(KVC_JOURNAL_REPLAY);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("with an undo journal, sequences, forks and rolled back ones take the slots of the "
		"traces",
		test_undo),
	KT_TEST("with a replay journal, sequences, forks and rolled back ones take the slots of "
		"the traces",
		test_replay),
};

KT_MAIN(tests)
