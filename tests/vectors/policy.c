/*
 * tests/vectors/policy FOLDER: runs traces of eviction policies (tests/data/policy/ORIGIN says what
 * a trace is) over the policies themselves, with plain arrays for a cache: each row of the batch
 * has state, scores, positions, norms, errors. After each event all of it must be what the trace
 * says: bit for bit, or within 4e-6 where the order of a sum is free.
 *
 * Where equal scores were sorted by an unstable sort (the trace says so), the slots of the trace
 * must be among the lowest, and are taken. Where a prompt shorter than the pinned part is refused
 * there, it must go on here. Where a run reaches into the grace period, the trace's positions are
 * those of the other write.
 *
 * Prints what is wrong; ends with "N passed, N failed"; status 1 if anything failed or there was
 * nothing to do, 2 for wrong use.
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tests/vectors/policy_trace.h"

#define MARKS_MAX 16
#define TOLERANCE 4e-6f
#define STATE_BYTES 64

/* All that a mark must bring back. */
struct row {
	int32_t positions[PT_CELLS];
	int32_t shown[PT_CELLS]; /* what the trace has in its place; -1: the same */
	float norms[PT_CELLS], errors[PT_CELLS], scores[PT_CELLS];
	uint64_t state[STATE_BYTES / 8];
};

struct cache {
	uint32_t n_rows, n_used;
	bool is_order_stable; /* what the last update left, says the trace */
	uint64_t position;
	struct row rows[PT_ROWS];
};

struct marked {
	char name[16];
	struct cache cache;
};

static struct {
	const char *name;
	uint32_t event_number;
	struct pt_setup setup;
	const struct kvc_policy_ops *ops;
	struct cache cache;
	struct marked marks[MARKS_MAX];
	uint32_t n_marks;
	float scratch[PT_CELLS];
} run;

static unsigned n_passed, n_failed;

static void check(bool good, const char *what, ...) __attribute__((format(printf, 2, 3)));
static void check(bool good, const char *what, ...)
{
	va_list args;

	if (good) {
		n_passed++;
		return;
	}
	n_failed++;
	printf("FAILED: %s, event %u: ", run.name, run.event_number);
	va_start(args, what);
	vprintf(what, args);
	va_end(args);
	printf("\n");
}

static struct kvc_policy_layer layer_of(const struct row *row)
{
	return (struct kvc_policy_layer){
		.options = &run.setup.options,
		.n_heads = run.setup.H,
		.n_slots = run.setup.L,
		.n_used = run.cache.n_used,
		.position = run.cache.position,
		.state = row->state,
		.scores = row->scores,
		.positions = row->positions,
		.norms = row->norms,
		.errors = row->errors,
		.scratch = run.scratch,
	};
}

/* ---- state, as the trace has it ------------------------------------------------------------- */

static const void *cells_of(const struct row *row, char which)
{
	switch (which) {
	case 'p': return row->positions;
	case 's': return row->scores;
	case 'v': return row->norms;
	default: return row->errors;
	}
}

/* Those in use, (rows, heads, n) without gaps. */
static size_t gather(char which, uint32_t n, uint32_t *to)
{
	size_t done = 0;

	for (uint32_t b = 0; b < run.cache.n_rows; b++)
		for (uint32_t h = 0; h < run.setup.H; h++, done += n)
			memcpy(to + done,
			       (const uint32_t *)cells_of(&run.cache.rows[b], which) +
				       h * run.setup.L,
			       n * sizeof(to[0]));
	return done;
}

static size_t gather_shown(uint32_t n, uint32_t *to)
{
	size_t done = gather('p', n, to), at = 0;

	for (uint32_t b = 0; b < run.cache.n_rows; b++)
		for (uint32_t h = 0; h < run.setup.H; h++)
			for (uint32_t i = 0; i < n; i++, at++) {
				int32_t shown = run.cache.rows[b].shown[h * run.setup.L + i];

				if (shown >= 0)
					to[at] = (uint32_t)shown;
			}
	return done;
}

static void check_hash(const struct trace_event *event, const char *name, const void *bytes,
		       size_t n)
{
	const char *want = trace_text(event, name);

	if (want)
		check(XXH64(bytes, n * 4, 0) == strtoull(want, NULL, 16), "%s differs", name);
}

static bool is_near(const uint32_t *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float x;

		memcpy(&x, a + i, sizeof(x));
		if (!(fabsf(x - b[i]) <= TOLERANCE) && !(isnan(x) && isnan(b[i])))
			return false;
	}
	return true;
}

/* An array of the event, if it is there: near, or equal. */
static void check_array(const struct trace_event *event, const char *name, const uint32_t *cells,
			size_t n, bool is_exact)
{
	const struct trace_item *item = trace_item(event, name);

	if (!item)
		return;
	check(item->n == n &&
		      (is_exact ? memcmp(item->bytes, cells, n * 4) == 0 :
				  is_near(cells, (const float *)(const void *)item->bytes, n)),
	      "%s differs", name);
}

static void check_cells(const struct trace_event *event)
{
	static uint32_t cells[PT_ROWS * PT_CELLS];
	uint32_t cur = run.cache.n_used;
	bool is_exact = run.setup.has_exact_scores;
	size_t n = gather_shown(cur, cells);

	check_hash(event, "token_pos_xxh64", cells, n);
	check_array(event, "token_pos", cells, n, true);
	gather('s', cur, cells);
	if (is_exact)
		check_hash(event, "scores_xxh64", cells, n);
	check_array(event, "scores", cells, n, is_exact);
	gather('v', cur, cells);
	check_array(event, "v_norm_all", cells, n, true);
	gather('q', cur, cells);
	check_array(event, "q_err_all", cells, n, true);
}

static void check_number(const struct trace_event *event, const char *name, uint32_t row, long got)
{
	long want = pt_number(event, name, row, got);

	check(got == want, "%s of row %u is %ld, not %ld", name, row, got, want);
}

static void check_row_state(const struct trace_event *event, uint32_t b)
{
	const void *state = run.cache.rows[b].state;

	if (run.ops->needs & KVC_POLICY_SCORES) {
		const struct kv_policy_scoring_state *s = state;

		check_number(event, "use_initial_rule", b, s->use_initial_rule);
		check_number(event, "next_grace_pos", b, s->grace_next);
		check_number(event, "prefill_length", b, s->prefill_length);
	} else if (run.ops == &kv_policy_lastrec) {
		const struct kv_policy_lastrec_state *s = state;

		check_number(event, "next_position", b, s->next);
	} else if (run.ops == &kv_policy_smart_lastrec) {
		const struct kv_policy_smart_state *s = state;

		check_number(event, "next_position", b, s->next);
		check_number(event, "protected_start", b, s->is_protected ? s->range.start : -1L);
		check_number(event, "protected_end", b, s->is_protected ? s->range.end : -1L);
	}
}

/* What the candidates are sorted by, and in which order they go. */
static void check_decision(const struct trace_event *event)
{
	static uint32_t values[PT_ROWS * PT_CELLS], order[PT_ROWS * PT_CELLS];
	uint32_t n = run.setup.L - run.setup.options.grace_tokens;
	const struct trace_item *wanted = trace_item(event, "order");
	uint32_t n_order = wanted && wanted->n_dims == 3 ? wanted->dims[2] : 0;
	size_t line = 0;

	for (uint32_t b = 0; b < run.cache.n_rows; b++) {
		struct kvc_policy_layer layer = layer_of(&run.cache.rows[b]);
		const float *d = kv_policy_decision(&layer, run.ops);

		for (uint32_t h = 0; h < run.setup.H; h++, line++) {
			memcpy(values + line * n, d + h * run.setup.L, n * sizeof(values[0]));
			if (n_order && n_order <= n)
				kv_policy_lowest(d + h * run.setup.L, n, n_order,
						 order + line * n_order);
		}
	}
	if (run.setup.has_exact_scores)
		check_hash(event, "decision_xxh64", values, line * n);
	check_array(event, "decision", values, line * n, run.setup.has_exact_scores);
	if (run.cache.is_order_stable)
		check_array(event, "order", order, line * n_order, true);
}

static void check_state(const struct trace_event *event)
{
	check_number(event, "input_pos", 0, (long)run.cache.position);
	check_number(event, "current_length", 0, run.cache.n_used);
	check_cells(event);
	for (uint32_t b = 0; b < run.cache.n_rows; b++)
		check_row_state(event, b);
	if (run.ops->needs & KVC_POLICY_SCORES && run.cache.n_used == run.setup.L)
		check_decision(event);
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Norms are also made from the values, where these are known. */
static void check_norms(const struct trace_event *event, uint32_t b, const float *norms)
{
	const struct trace_item *values = trace_item(event, "value");
	size_t n = run.setup.H * pt_n_tokens(event), bytes;
	float got;

	if (!values || !norms || values->n < (b + 1) * n * run.setup.hs)
		return;
	bytes = values->n_bytes / values->n * run.setup.hs;
	for (size_t i = 0; i < n; i++) {
		got = kv_policy_norm(run.setup.dtype, run.setup.hs,
				     values->bytes + (b * n + i) * bytes);
		check(memcmp(&got, &norms[i], sizeof(got)) == 0, "norm %zu of row %u differs", i,
		      b);
	}
}

/* A slot's tokens: what is moved as it was before, then the new ones. */
static void put_head(struct row *to, const struct row *from, const struct kvc_policy_plan *plan,
		     uint32_t h, const float *norms, const float *errors)
{
	size_t line = plan->shared ? 0 : h, first = (size_t)h * run.setup.L;
	const uint32_t *slots = plan->slots + line * plan->n_tokens;

	for (uint32_t i = 0; i < plan->n_moves; i++) {
		size_t a = first + plan->to[line * plan->n_moves + i];
		size_t b = first + plan->from[line * plan->n_moves + i];

		to->positions[a] = from->positions[b];
		to->norms[a] = from->norms[b];
		to->errors[a] = from->errors[b];
		to->shown[a] = -1;
	}
	for (uint64_t i = 0; i < plan->n_tokens; i++) {
		size_t a = first + slots[i];

		if (slots[i] == KVC_POLICY_NONE)
			continue;
		to->positions[a] = (int32_t)(run.cache.position + i);
		to->norms[a] = norms ? norms[h * plan->n_tokens + i] : 0;
		to->errors[a] = errors ? errors[h * plan->n_tokens + i] : 0;
		to->shown[a] = -1;
	}
}

/* What the trace says about slots of the grace period that a run reached into: its positions are
 * those of the tokens that are nowhere here. */
static void note_overlap(const struct trace_event *event, uint32_t b, struct row *row)
{
	const long *chosen, *grace;

	for (uint32_t h = 0; h < run.setup.H; h++) {
		uint32_t m = pt_slots(event, &run.setup, b, h, &chosen, &grace);

		for (uint64_t i = m; m && i < pt_n_tokens(event); i++)
			if (chosen[i] >= (long)(run.setup.L - run.setup.options.grace_tokens))
				row->shown[h * run.setup.L + (size_t)chosen[i]] =
					(int32_t)(run.cache.position + i - m);
	}
}

/* The slots of the trace are among the lowest, as many as it could have taken any of. */
static void check_among_lowest(const struct trace_event *event, uint32_t b)
{
	struct kvc_policy_layer layer = layer_of(&run.cache.rows[b]);
	const float *d = kv_policy_decision(&layer, run.ops);
	uint32_t n = run.setup.L - run.setup.options.grace_tokens, order[PT_SLOTS];
	uint32_t k = run.setup.options.max_chunk_tokens;
	const long *chosen, *grace;

	if (k == 0)
		k = (uint32_t)pt_n_tokens(event);
	for (uint32_t h = 0; h < run.setup.H; h++) {
		const float *values = d + h * run.setup.L;

		kv_policy_lowest(values, n, k, order);
		pt_slots(event, &run.setup, b, h, &chosen, &grace);
		for (uint64_t i = 0; chosen && i < pt_n_tokens(event); i++)
			check(chosen[i] >= 0 && chosen[i] < n &&
				      !(values[chosen[i]] > values[order[k - 1]]),
			      "slot %ld is not among the lowest", chosen[i]);
	}
}

static void step_row(const struct trace_event *event, uint32_t b, struct kvc_policy_plan *plan)
{
	struct row *row = &run.cache.rows[b], old = *row;
	struct kvc_policy_layer layer = layer_of(row);
	struct kvc_policy_range range;
	float summed[PT_CELLS], scores[PT_CELLS];
	uint32_t n_used = kv_policy_used_then(&layer, plan->n_tokens);
	bool is_prompt = layer.position == 0;
	const float *norms = pt_floats(event, "v_norm", &run.setup, b, plan->n_tokens);
	const float *errors = pt_floats(event, "q_err", &run.setup, b, plan->n_tokens);

	check_norms(event, b, norms);
	for (uint32_t h = 0; h < run.setup.H; h++)
		put_head(row, &old, plan, h, norms, errors);
	if (trace_number(event, "repeats_a_slot", 0))
		note_overlap(event, b, row);
	layer.state = old.state;
	layer.scores = old.scores;
	if (pt_range(event, b, &range))
		layer.range = &range;
	if (run.ops->update)
		run.ops->update(&layer, plan,
				is_prompt ? NULL :
					    pt_weights(event, &run.setup, run.cache.n_rows, b,
						       n_used, summed),
				row->state, run.ops->needs & KVC_POLICY_SCORES ? scores : NULL);
	if (run.ops->needs & KVC_POLICY_SCORES)
		memcpy(row->scores, scores, sizeof(scores));
}

static void choose_row(const struct trace_event *event, uint32_t b, struct kvc_policy_plan *plan)
{
	struct kvc_policy_layer layer = layer_of(&run.cache.rows[b]);
	bool is_accident = !run.cache.is_order_stable && layer.n_used == layer.n_slots &&
			   !trace_number(event, "initial_rule", 0);

	check(plan->n_tokens >= 1 && plan->n_tokens <= run.ops->limit(&layer),
	      "%" PRIu64 " tokens are too many", plan->n_tokens);
	if (is_accident) {
		check_among_lowest(event, b);
		pt_take_plan(event, &run.setup, b, plan);
		return;
	}
	run.ops->choose(&layer, plan);
	if (strcmp(event->kind, "update") == 0)
		check(pt_plan_is(event, &run.setup, b, plan), "slots of row %u differ", b);
}

/* All rows choose before one of them changes. */
static void step(const struct trace_event *event)
{
	static uint32_t room[PT_ROWS][3][PT_CELLS];
	struct kvc_policy_plan plans[PT_ROWS];
	uint64_t n = pt_n_tokens(event);

	if (run.cache.position == 0) {
		memset(&run.cache, 0, sizeof(run.cache));
		run.cache.is_order_stable = true;
		for (uint32_t b = 0; b < PT_ROWS; b++)
			memset(run.cache.rows[b].shown, 0xff, sizeof(run.cache.rows[b].shown));
		run.cache.n_rows = (uint32_t)trace_number(event, "batch", 0);
	}
	check(n >= 1 && n <= run.setup.L && run.cache.n_rows <= PT_ROWS, "shape");
	if (n < 1 || n > run.setup.L || run.cache.n_rows > PT_ROWS)
		return;
	for (uint32_t b = 0; b < run.cache.n_rows; b++) {
		plans[b] = (struct kvc_policy_plan){
			.n_tokens = n, .slots = room[b][0], .from = room[b][1], .to = room[b][2]};
		choose_row(event, b, &plans[b]);
	}
	for (uint32_t b = 0; b < run.cache.n_rows; b++)
		step_row(event, b, &plans[b]);
	run.cache.position += n;
	run.cache.n_used += n < run.setup.L - run.cache.n_used ? (uint32_t)n :
								 run.setup.L - run.cache.n_used;
	run.cache.is_order_stable = trace_number(event, "order_is_stable_argsort", 1) != 0 &&
				    run.setup.options.max_chunk_tokens == 0;
}

static void refuse(const struct trace_event *event)
{
	struct kvc_policy_layer layer = layer_of(&run.cache.rows[0]);
	uint64_t n = (uint64_t)event->words[1], limit = run.ops->limit(&layer);

	if (run.ops == &kv_policy_lastrec)
		check(n <= limit, "a short prompt must go on");
	else
		check(n > limit, "%" PRIu64 " tokens must be refused", n);
}

/* ---- marks, traces -------------------------------------------------------------------------- */

static void mark(const struct trace_event *event, bool is_back)
{
	for (uint32_t i = 0; i < run.n_marks; i++)
		if (strcmp(run.marks[i].name, event->names[0]) == 0) {
			if (is_back)
				run.cache = run.marks[i].cache;
			else
				run.marks[i].cache = run.cache;
			return;
		}
	check(!is_back && run.n_marks < MARKS_MAX, "no mark %s", event->names[0]);
	if (is_back || run.n_marks == MARKS_MAX)
		return;
	strcpy(run.marks[run.n_marks].name, event->names[0]);
	run.marks[run.n_marks++].cache = run.cache;
}

static void run_event(const struct trace *trace, uint32_t i)
{
	const struct trace_event *event = &trace->events[i];

	run.event_number = i;
	if (pt_is_step(event))
		step(event);
	else if (strcmp(event->kind, "error") == 0)
		refuse(event);
	else if (strcmp(event->kind, "reset") == 0)
		run.cache.position = 0;
	else if (strcmp(event->kind, "mark") == 0)
		mark(event, false);
	else if (strcmp(event->kind, "rollback") == 0)
		mark(event, true);
	else
		check(strcmp(event->kind, "end") == 0, "an event \"%s\"", event->kind);
	if (pt_is_step(event) || strcmp(event->kind, "rollback") == 0 ||
	    strcmp(event->kind, "error") == 0)
		check_state(event);
}

static void run_policy(const struct trace *trace)
{
	struct kvc_policy_layer layer;
	const char *wrong;

	run.n_marks = 0;
	memset(&run.cache, 0, sizeof(run.cache));
	if (!pt_setup(trace, &run.setup)) {
		check(false, "its head makes no sense, or it is too large");
		return;
	}
	run.ops = kv_policy_named(run.setup.options.name);
	layer = layer_of(&run.cache.rows[0]);
	wrong = run.ops->check ? run.ops->check(&layer) : NULL;
	check(!wrong, "options are refused: %s", wrong ? wrong : "");
	for (uint32_t i = 1; i < trace->n_events; i++)
		run_event(trace, i);
}

static void run_trace(const char *folder, const char *name)
{
	struct trace trace;
	char reason[160];

	run.name = name;
	run.event_number = 0;
	if (!trace_read(folder, name, &trace, reason))
		check(false, "%s", reason);
	else if (strncmp(trace.form, "kvtrace 1", 9) == 0)
		run_policy(&trace);
	trace_free(&trace);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	/* Traces of other kinds may lie beside these: their first lines tell. */
	if (trace_each(argv[1], NULL, run_trace) == 0)
		printf("%s: no traces\n", argv[1]);
	printf("%u passed, %u failed\n", n_passed, n_failed);
	return n_failed != 0 || n_passed == 0;
}
