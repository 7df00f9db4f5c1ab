/*
 * h2o, h2o-orig, h2o-vlen, qh2o, qh2o-vlen: the tokens with the least attention so far go. The frame
 * of all five: which slots are candidates, the grace period, sums of scores.
 *
 * Grace period. The last grace_tokens slots of a full layer are a ring of the newest tokens, never
 * chosen. A new token goes there; what it displaces moves to the slot that was chosen, with all that
 * belongs to it. The score there goes on with the sum of the token that left unless
 * reset_grace_scores says otherwise: keys_values means to reset it and does not.
 *
 * The first update behind a prompt that fills the layer knows no scores and takes a fixed run of
 * slots. Where that reaches into the grace period, the grace period's tokens win in everything, and
 * what would have gone there is nowhere.
 */
#include <math.h>
#include <string.h>

#include "client/policy/scoring.h"

#define LANES 4u

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

static const struct kv_policy_scoring_state *state_of(const struct kvc_policy_layer *layer)
{
	return layer->state;
}

static uint32_t grace(const struct kvc_policy_layer *layer)
{
	return layer->options->grace_tokens;
}

static bool is_full(const struct kvc_policy_layer *layer)
{
	return layer->n_used == layer->n_slots;
}

static uint32_t n_moves(const struct kvc_policy_layer *layer, uint64_t n_tokens)
{
	if (layer->position == 0 || !is_full(layer))
		return 0;
	return n_tokens < grace(layer) ? (uint32_t)n_tokens : grace(layer);
}

/* Slot of the grace period that the i-th of the newest tokens takes. */
static uint32_t grace_slot(const struct kvc_policy_layer *layer, uint64_t i)
{
	uint32_t first = kv_policy_candidates(layer);

	return first + (uint32_t)((state_of(layer)->grace_next - first + i) % grace(layer));
}

/* ---- options, limit ------------------------------------------------------------------------- */

static uint32_t kept(const struct kvc_policy_layer *layer)
{
	double fraction = layer->options->keep_fraction;

	if (fraction == 0)
		fraction = KV_POLICY_KEEP_FRACTION;
	return fraction < 0 ? 0 : (uint32_t)(fraction * (double)layer->n_slots);
}

static const char *scoring_check(const struct kvc_policy_layer *layer)
{
	const struct kvc_policy_options *o = layer->options;

	if (o->grace_tokens >= layer->n_slots)
		return "grace_tokens leaves no slot to choose from: take fewer";
	if (!(o->keep_fraction <= 1))
		return "keep_fraction is above 1";
	if (kept(layer) > kv_policy_candidates(layer))
		return "keep_fraction reaches into the grace period: take less of one of them";
	if (!(o->combination >= 0 && o->combination <= 1))
		return "combination is a number from 0 to 1";
	return NULL;
}

static const char *orig_check(const struct kvc_policy_layer *layer)
{
	const struct kvc_policy_options *o = layer->options;

	if (o->grace_tokens || o->keep_fraction != 0 || o->normalise_scores || o->max_chunk_tokens)
		return "h2o-orig has no options: take h2o";
	return NULL;
}

static uint64_t scoring_limit(const struct kvc_policy_layer *layer)
{
	uint64_t n = kv_policy_candidates(layer), left = layer->n_slots - layer->n_used;
	uint32_t chunk = layer->options->max_chunk_tokens;

	if (layer->position == 0)
		return layer->n_slots;
	if (!is_full(layer))
		return left < n ? left : n;
	return chunk && chunk <= layer->n_slots / 2 && chunk < n ? chunk : n;
}

/* ---- choosing ------------------------------------------------------------------------------- */

static void fill_run(uint32_t *slots, uint32_t first, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		slots[i] = first + (uint32_t)i;
}

/* First slot of the run for the update behind a prompt that fills the layer. */
static uint32_t run_first(const struct kvc_policy_layer *layer, uint64_t n_tokens)
{
	uint64_t most = layer->n_slots - n_tokens;

	return kept(layer) < most ? kept(layer) : (uint32_t)most;
}

/* slots[n] are chosen for a head: the first ones take what leaves the grace period. */
static void share_out(const struct kvc_policy_layer *layer, uint64_t n, uint32_t m, uint32_t *slots,
		      uint32_t *from, uint32_t *to)
{
	memcpy(to, slots, m * sizeof(slots[0]));
	memmove(slots, slots + m, (n - m) * sizeof(slots[0]));
	for (uint32_t i = 0; i < m; i++) {
		from[i] = grace_slot(layer, i);
		slots[n - m + i] = from[i];
	}
}

/* What a run would put into the grace period is nowhere; what it would move there is not moved. */
static void keep_out_of_grace(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	uint32_t end = kv_policy_candidates(layer), m = plan->n_moves;

	for (uint64_t i = 0; m && i < plan->n_tokens - m; i++)
		if (plan->slots[i] >= end)
			plan->slots[i] = KVC_POLICY_NONE;
	while (plan->n_moves && plan->to[plan->n_moves - 1] >= end)
		plan->n_moves--;
}

static void choose_lowest(const struct kvc_policy_layer *layer, const struct kvc_policy_ops *ops,
			  struct kvc_policy_plan *plan)
{
	const float *decision = kv_policy_decision(layer, ops);
	uint64_t n = plan->n_tokens;
	uint32_t m = plan->n_moves;

	plan->shared = 0;
	for (uint32_t h = 0; h < layer->n_heads; h++) {
		uint32_t *slots = plan->slots + h * n;

		kv_policy_lowest(kv_policy_head(layer, decision, h), kv_policy_candidates(layer),
				 (uint32_t)n, slots);
		share_out(layer, n, m, slots, plan->from + h * m, plan->to + h * m);
	}
}

static void choose(const struct kvc_policy_layer *layer, const struct kvc_policy_ops *ops,
		   struct kvc_policy_plan *plan)
{
	plan->shared = 1;
	plan->n_moves = n_moves(layer, plan->n_tokens);
	if (!is_full(layer)) {
		fill_run(plan->slots, layer->n_used, plan->n_tokens);
	} else if (state_of(layer)->use_initial_rule) {
		fill_run(plan->slots, run_first(layer, plan->n_tokens), plan->n_tokens);
		share_out(layer, plan->n_tokens, plan->n_moves, plan->slots, plan->from, plan->to);
		keep_out_of_grace(layer, plan);
	} else {
		choose_lowest(layer, ops, plan);
	}
}

/* ---- scores --------------------------------------------------------------------------------- */

/* Sums of scores of one head: as they were, plus those of this update. */
struct head_scores {
	const float *before, *weights, *norms; /* weights NULL: no scores */
	float *after;
	float sum, n; /* with norms: score = norm * weight / sum * n */
};

static float score_at(const struct head_scores *s, uint32_t slot)
{
	if (!s->weights)
		return 0;
	if (!s->norms)
		return s->weights[slot];
	return s->sum > 0 ? s->norms[slot] * s->weights[slot] / s->sum * s->n : 0;
}

/* One after the other, but asked for early: memory by itself fetches too little ahead of three
 * arrays, and nothing beyond a page. What is asked for behind one head is the next one's. */
static void add_weights(const struct head_scores *s, uint32_t n)
{
	uint32_t i = 0;

	for (lanes x, y; i + KV_POLICY_LINE <= n; i += KV_POLICY_LINE) {
		__builtin_prefetch(s->before + i + KV_POLICY_AHEAD);
		__builtin_prefetch(s->weights + i + KV_POLICY_AHEAD);
		__builtin_prefetch(s->after + i + KV_POLICY_AHEAD, 1);
		for (uint32_t k = i; k < i + KV_POLICY_LINE; k += LANES) {
			memcpy(&x, s->before + k, sizeof(x));
			memcpy(&y, s->weights + k, sizeof(y));
			x += y;
			memcpy(s->after + k, &x, sizeof(x));
		}
	}
	for (; i < n; i++)
		s->after[i] = s->before[i] + s->weights[i];
}

static void add_scores(struct head_scores *s, uint32_t n)
{
	s->sum = 0;
	for (uint32_t i = 0; s->norms && s->weights && i < n; i++)
		s->sum += s->norms[i] * s->weights[i];
	if (s->weights && !s->norms) {
		add_weights(s, n);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		s->after[i] = s->before[i] + score_at(s, i);
}

/* The slots of the plan are not those of the same tokens any more. */
static void move_scores(const struct kvc_policy_layer *layer, const struct kvc_policy_plan *plan,
			uint32_t head, const struct head_scores *s)
{
	uint32_t row = plan->shared ? 0 : head, m = n_moves(layer, plan->n_tokens);
	const uint32_t *slots = plan->slots + row * plan->n_tokens;
	uint64_t n_chosen = plan->n_tokens - m;

	for (uint64_t i = 0; i < n_chosen; i++)
		if (slots[i] != KVC_POLICY_NONE)
			s->after[slots[i]] = score_at(s, slots[i]);
	for (uint32_t i = 0; i < plan->n_moves; i++) {
		size_t at = (size_t)row * plan->n_moves + i;

		s->after[plan->to[at]] = s->before[plan->from[at]] + score_at(s, plan->to[at]);
	}
	for (uint64_t i = n_chosen; layer->options->reset_grace_scores && i < plan->n_tokens; i++)
		if (slots[i] != KVC_POLICY_NONE)
			s->after[slots[i]] = score_at(s, slots[i]);
}

/* Where the run reached into the grace period, the scores of what would have gone there begin. */
static void begin_run_scores(const struct kvc_policy_layer *layer, uint64_t n_tokens,
			     const struct head_scores *s)
{
	uint32_t first = run_first(layer, n_tokens), end = first + (uint32_t)n_tokens;
	uint32_t slot = first + n_moves(layer, n_tokens);

	if (slot < kv_policy_candidates(layer))
		slot = kv_policy_candidates(layer);
	for (; slot < end; slot++)
		s->after[slot] = score_at(s, slot);
}

static void begin_state(const struct kvc_policy_layer *layer, uint64_t n_tokens, void *state,
			float *scores)
{
	*(struct kv_policy_scoring_state *)state = (struct kv_policy_scoring_state){
		.use_initial_rule = n_tokens == layer->n_slots,
		.grace_next = kv_policy_candidates(layer),
		.prefill_length = (uint32_t)n_tokens,
	};
	memset(scores, 0, (size_t)layer->n_heads * layer->n_slots * sizeof(scores[0]));
}

static void step_state(const struct kvc_policy_layer *layer, uint64_t n_tokens,
		       struct kv_policy_scoring_state *state)
{
	*state = *state_of(layer);
	if (!is_full(layer))
		return;
	state->use_initial_rule = 0;
	if (grace(layer) && n_tokens <= grace(layer))
		state->grace_next = grace_slot(layer, n_tokens);
}

/* has_norms: h2o-vlen's scores. */
static void update(const struct kvc_policy_layer *layer, const struct kvc_policy_plan *plan,
		   const float *weights, void *state, float *scores, bool has_norms)
{
	uint32_t n_used = kv_policy_used_then(layer, plan->n_tokens);
	bool is_run = is_full(layer) && state_of(layer)->use_initial_rule;

	if (layer->position == 0) {
		begin_state(layer, plan->n_tokens, state, scores);
		return;
	}
	for (uint32_t h = 0; h < layer->n_heads; h++) {
		size_t first = (size_t)h * layer->n_slots;
		struct head_scores s = {
			.before = layer->scores + first,
			.weights = weights ? weights + (size_t)h * n_used : NULL,
			.norms = has_norms ? layer->norms + first : NULL,
			.after = scores + first,
			.n = (float)plan->n_tokens,
		};

		add_scores(&s, n_used);
		memcpy(s.after + n_used, s.before + n_used,
		       (layer->n_slots - n_used) * sizeof(s.after[0]));
		move_scores(layer, plan, h, &s);
		if (is_run)
			begin_run_scores(layer, plan->n_tokens, &s);
	}
	step_state(layer, plan->n_tokens, state);
}

static void update_plain(const struct kvc_policy_layer *layer, const struct kvc_policy_plan *plan,
			 const float *weights, void *state, float *scores)
{
	update(layer, plan, weights, state, scores, false);
}

static void update_vlen(const struct kvc_policy_layer *layer, const struct kvc_policy_plan *plan,
			const float *weights, void *state, float *scores)
{
	update(layer, plan, weights, state, scores, true);
}

/* ---- the five ------------------------------------------------------------------------------- */

static void h2o_choose(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	choose(layer, &kv_policy_h2o, plan);
}

/* Those that weigh errors. */
static void qh2o_choose(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	choose(layer, &kv_policy_qh2o, plan);
}

#define SCORING .state_bytes = sizeof(struct kv_policy_scoring_state), .limit = scoring_limit

const struct kvc_policy_ops kv_policy_h2o = {
	.name = "h2o",
	.needs = KVC_POLICY_SCORES | KVC_POLICY_POSITIONS_NORMALISED,
	.check = scoring_check,
	.choose = h2o_choose,
	.update = update_plain,
	SCORING,
};

const struct kvc_policy_ops kv_policy_h2o_orig = {
	.name = "h2o-orig",
	.needs = KVC_POLICY_SCORES,
	.check = orig_check,
	.choose = h2o_choose,
	.update = update_plain,
	SCORING,
};

const struct kvc_policy_ops kv_policy_h2o_vlen = {
	.name = "h2o-vlen",
	.needs = KVC_POLICY_SCORES | KVC_POLICY_POSITIONS_NORMALISED | KVC_POLICY_NORMS,
	.check = scoring_check,
	.choose = h2o_choose,
	.update = update_vlen,
	SCORING,
};

const struct kvc_policy_ops kv_policy_qh2o = {
	.name = "qh2o",
	.needs = KVC_POLICY_SCORES | KVC_POLICY_POSITIONS_NORMALISED | KVC_POLICY_ERRORS,
	.check = scoring_check,
	.choose = qh2o_choose,
	.update = update_plain,
	SCORING,
};

const struct kvc_policy_ops kv_policy_qh2o_vlen = {
	.name = "qh2o-vlen",
	.needs = KVC_POLICY_SCORES | KVC_POLICY_POSITIONS_NORMALISED | KVC_POLICY_NORMS |
		 KVC_POLICY_ERRORS,
	.check = scoring_check,
	.choose = qh2o_choose,
	.update = update_vlen,
	SCORING,
};
