/*
 * What the candidates are sorted by: the sums of scores, as they are or divided by the time that a
 * token has had; with qh2o and qh2o-vlen weighed against quantisation errors. IEEE f32 in a fixed
 * order: where only sums and one division are involved, the bits are those of keys_values.
 */
#include <math.h>
#include <string.h>

#include "client/policy/scoring.h"
#include "proto/layout.h"

/* Divides by the number of positions since the token came, or since the prompt's last one. */
static void normalise(const struct kvc_policy_layer *layer, uint32_t head, float *d)
{
	const struct kv_policy_scoring_state *state = layer->state;
	const int32_t *positions = layer->positions + (size_t)head * layer->n_slots;
	int64_t first = (int64_t)state->prefill_length - 1;

	for (uint32_t i = 0; i < kv_policy_candidates(layer); i++) {
		int64_t since = positions[i] > first ? positions[i] : first;

		d[i] /= (float)((int64_t)layer->position - since);
	}
}

struct bounds {
	float least, greatest;
};

/* Over all heads; not a number if one of them is none. */
static struct bounds bounds_of(const struct kvc_policy_layer *layer, const float *array)
{
	struct bounds b = {INFINITY, -INFINITY};

	for (uint32_t h = 0; h < layer->n_heads; h++) {
		const float *x = kv_policy_head(layer, array, h);

		for (uint32_t i = 0; i < kv_policy_candidates(layer); i++) {
			if (isnan(x[i]))
				return (struct bounds){NAN, NAN};
			b.least = x[i] < b.least ? x[i] : b.least;
			b.greatest = x[i] > b.greatest ? x[i] : b.greatest;
		}
	}
	return b;
}

/*
 * A large error lowers what a token is worth. All equal is 0 / 0: nothing guards it, the candidates
 * are then no numbers, and the lowest slot goes first.
 */
static void combine(const struct kvc_policy_layer *layer, float *d)
{
	float c = layer->options->combination > 0 ? layer->options->combination :
						    KV_POLICY_COMBINATION;
	struct bounds score = bounds_of(layer, d), error = bounds_of(layer, layer->errors);
	float by_error = (c - 1.0f) / 2.0f, rest = 1.0f - c;

	for (uint32_t h = 0; h < layer->n_heads; h++) {
		const float *e = kv_policy_head(layer, layer->errors, h);
		float *x = d + (size_t)h * layer->n_slots;

		for (uint32_t i = 0; i < kv_policy_candidates(layer); i++) {
			x[i] = c * ((x[i] - score.least) / (score.greatest - score.least));
			x[i] += by_error * ((e[i] - error.least) / (error.greatest - error.least));
			x[i] += rest;
		}
	}
}

const float *kv_policy_decision(const struct kvc_policy_layer *layer,
				const struct kvc_policy_ops *ops)
{
	size_t n = (size_t)layer->n_heads * layer->n_slots;

	if (!layer->options->normalise_scores && !(ops->needs & KVC_POLICY_ERRORS))
		return layer->scores;
	memcpy(layer->scratch, layer->scores, n * sizeof(float));
	for (uint32_t h = 0; layer->options->normalise_scores && h < layer->n_heads; h++)
		normalise(layer, h, layer->scratch + (size_t)h * layer->n_slots);
	if (ops->needs & KVC_POLICY_ERRORS)
		combine(layer, layer->scratch);
	return layer->scratch;
}
