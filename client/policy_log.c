/*
 * A log of what a policy chose, and the policy that follows it. Plain memory, which grows.
 */
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "client/policy.h"

/* An update of a layer; its words are slots, from, to. */
struct record {
	uint64_t position, n_tokens;
	uint32_t n_moves;
	bool is_shared;
	size_t first_word;
};

struct layer_log {
	uint32_t n_heads, n_slots; /* of the layout */
	uint32_t most_moves;       /* of an update, for one head */
	uint64_t length;           /* tokens */
	struct record *records;
	size_t n_records, records_cap;
	uint32_t *words;
	size_t n_words, words_cap;
};

struct kvc_policy_log {
	uint32_t n_layers;
	struct layer_log *layers;
	uint32_t *tokens;
	uint64_t n_tokens;
	size_t tokens_cap;
};

kvc_policy_log *kvc_policy_log_new(const kvc_layout *layout)
{
	uint32_t n = layout->fields->n_layers;
	struct kvc_policy_log *log;

	if (n == 0) {
		kvc_fail(KVC_EUNSUPPORTED, "an opaque layout has no policy to log");
		return NULL;
	}
	log = calloc(1, sizeof(*log));
	if (log)
		log->layers = calloc(n, sizeof(log->layers[0]));
	if (!log || !log->layers) {
		free(log);
		kvc_fail(KVC_ENOMEM, "no memory for a log");
		return NULL;
	}
	log->n_layers = n;
	for (uint32_t l = 0; l < n; l++) {
		log->layers[l].n_heads = layout->fields->layers[l].n_query_groups;
		log->layers[l].n_slots = (uint32_t)layout->fields->layers[l].bound_slots;
	}
	return log;
}

void kvc_policy_log_free(kvc_policy_log *log)
{
	if (!log)
		return;
	for (uint32_t l = 0; l < log->n_layers; l++) {
		free(log->layers[l].records);
		free(log->layers[l].words);
	}
	free(log->layers);
	free(log->tokens);
	free(log);
}

/* ---- adding --------------------------------------------------------------------------------- */

/* Room for n more elements behind the first `used`. */
static int grow(void **array, size_t *cap, size_t used, size_t n, size_t bytes)
{
	size_t wanted = *cap ? *cap : 64;
	void *larger;

	if (used + n <= *cap)
		return 0;
	while (wanted < used + n)
		wanted *= 2;
	larger = realloc(*array, wanted * bytes);
	if (!larger)
		return kvc_fail(KVC_ENOMEM, "no memory for a log of %zu entries", used + n);
	*array = larger;
	*cap = wanted;
	return 0;
}

static int reserve(struct kvc_policy_log *log, struct layer_log *layer, size_t n_words,
		   uint64_t n_tokens)
{
	return grow((void **)&layer->records, &layer->records_cap, layer->n_records, 1,
		    sizeof(layer->records[0])) ||
			       grow((void **)&layer->words, &layer->words_cap, layer->n_words,
				    n_words, sizeof(layer->words[0])) ||
			       grow((void **)&log->tokens, &log->tokens_cap, 0, n_tokens,
				    sizeof(log->tokens[0])) ?
		       -1 :
		       0;
}

/* What was logged from a position on is dropped. */
static void cut(struct layer_log *layer, uint64_t position)
{
	while (layer->n_records && layer->records[layer->n_records - 1].position >= position) {
		layer->n_records--;
		layer->n_words = layer->records[layer->n_records].first_word;
		layer->length = layer->records[layer->n_records].position;
	}
}

static void put_words(struct layer_log *layer, const uint32_t *words, size_t n)
{
	memcpy(layer->words + layer->n_words, words, n * sizeof(words[0]));
	layer->n_words += n;
}

/* Slots of a layer without bound are positions. */
static void put_plan(struct layer_log *layer, const struct kvc_policy_plan *plan, uint64_t position)
{
	size_t n_lines = plan->shared ? 1 : layer->n_heads;

	layer->records[layer->n_records++] = (struct record){
		.position = position,
		.n_tokens = plan->n_tokens,
		.n_moves = plan->n_moves,
		.is_shared = plan->shared != 0,
		.first_word = layer->n_words,
	};
	if (plan->slots)
		put_words(layer, plan->slots, n_lines * plan->n_tokens);
	for (uint64_t i = 0; !plan->slots && i < plan->n_tokens; i++)
		layer->words[layer->n_words++] = (uint32_t)(position + i);
	if (plan->n_moves) {
		put_words(layer, plan->from, n_lines * plan->n_moves);
		put_words(layer, plan->to, n_lines * plan->n_moves);
	}
	layer->length = position + plan->n_tokens;
	if (plan->n_moves > layer->most_moves)
		layer->most_moves = plan->n_moves;
}

/* Is the log for sequences of the policy's layout? */
static bool is_of_layout(const struct kvc_policy_log *log, const kvc_policy *policy)
{
	const struct kv_layout *layout = policy->seq->layout->fields;
	bool is_same = log->n_layers == layout->n_layers;

	for (uint32_t l = 0; is_same && l < log->n_layers; l++)
		is_same = log->layers[l].n_heads == layout->layers[l].n_query_groups &&
			  log->layers[l].n_slots == layout->layers[l].bound_slots;
	return is_same;
}

int kvc_policy_log_add(kvc_policy_log *log, const kvc_policy *policy, const uint32_t *tokens)
{
	const struct kvc_policy_plan *plan = &policy->plan;
	uint64_t position = policy->view.position, end = position + plan->n_tokens;
	struct layer_log *layer;
	size_t n_lines;

	if (policy->stage == POLICY_IDLE)
		return kvc_fail(KVC_EINVAL, "nothing was chosen: kvc_policy_choose comes first");
	if (!is_of_layout(log, policy))
		return kvc_fail(KVC_EINVAL, "the log is for another layout: other layers, heads or "
					    "bound_slots; make one for the sequence's own");
	layer = &log->layers[policy->layer];
	cut(layer, position);
	if (layer->length != position)
		return kvc_fail(KVC_EINVAL,
				"the log of layer %u ends at position %llu, the update begins at "
				"%llu",
				policy->layer, (unsigned long long)layer->length,
				(unsigned long long)position);
	n_lines = plan->shared ? 1 : layer->n_heads;
	if (reserve(log, layer, n_lines * (plan->n_tokens + 2 * (size_t)plan->n_moves), end))
		return -1;
	put_plan(layer, plan, position);
	if (log->n_tokens < end)
		memset(log->tokens + log->n_tokens, 0,
		       (end - log->n_tokens) * sizeof(log->tokens[0]));
	if (tokens)
		memcpy(log->tokens + position, tokens, plan->n_tokens * sizeof(tokens[0]));
	log->n_tokens = end;
	return 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

uint64_t kvc_policy_log_length(const kvc_policy_log *log)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t l = 0; l < log->n_layers; l++)
		if (log->layers[l].length < least)
			least = log->layers[l].length;
	return least;
}

int kvc_policy_log_tokens(const kvc_policy_log *log, uint64_t position, uint64_t n,
			  uint32_t *tokens)
{
	uint64_t length = kvc_policy_log_length(log);

	if (position > length || n > length - position)
		return kvc_fail(KVC_ERANGE, "positions %llu+%llu: the log has %llu",
				(unsigned long long)position, (unsigned long long)n,
				(unsigned long long)length);
	memcpy(tokens, log->tokens + position, n * sizeof(tokens[0]));
	return 0;
}

/* The record that has a position, which is below the length. */
static const struct record *record_at(const struct layer_log *layer, uint64_t position)
{
	size_t low = 0, high = layer->n_records;

	while (high - low > 1) {
		size_t middle = (low + high) / 2;

		if (layer->records[middle].position <= position)
			low = middle;
		else
			high = middle;
	}
	return &layer->records[low];
}

/* The i-th slot that an update chose for a head. */
static uint32_t chosen(const struct layer_log *layer, const struct record *r, uint32_t head,
		       uint64_t i)
{
	uint64_t n_lines = r->is_shared ? 1 : layer->n_heads, line = r->is_shared ? 0 : head;
	const uint32_t *words = layer->words + r->first_word;

	if (i < r->n_moves)
		return words[n_lines * (r->n_tokens + r->n_moves) + line * r->n_moves + i];
	return words[line * r->n_tokens + i - r->n_moves];
}

int kvc_policy_log_extract_index(const kvc_policy_log *log, uint32_t layer, uint64_t position,
				 uint64_t n, uint32_t *slots)
{
	const struct layer_log *l;

	if (layer >= log->n_layers)
		return kvc_fail(KVC_ERANGE, "layer %u: the log has %u", layer, log->n_layers);
	l = &log->layers[layer];
	if (position > l->length || n > l->length - position)
		return kvc_fail(KVC_ERANGE, "positions %llu+%llu of layer %u: the log has %llu",
				(unsigned long long)position, (unsigned long long)n, layer,
				(unsigned long long)l->length);
	for (uint64_t i = 0; i < n; i++) {
		const struct record *r = record_at(l, position + i);

		for (uint32_t h = 0; h < l->n_heads; h++)
			slots[h * n + i] = chosen(l, r, h, position + i - r->position);
	}
	return 0;
}

/* ---- following ------------------------------------------------------------------------------ */

static const struct layer_log *followed(const struct kvc_policy_layer *layer)
{
	const struct kvc_policy_log *log = layer->options->user;

	return &log->layers[layer->layer];
}

static const struct record *next_record(const struct kvc_policy_layer *layer)
{
	const struct layer_log *l = followed(layer);
	const struct record *r;

	if (layer->position >= l->length)
		return NULL;
	r = record_at(l, layer->position);
	return r->position == layer->position ? r : NULL;
}

uint64_t policy_log_moves(const kvc_policy_log *log, uint32_t layer)
{
	return log->layers[layer].most_moves;
}

static const char *follow_check(const struct kvc_policy_layer *layer)
{
	const struct kvc_policy_log *log = layer->options->user;

	return log && layer->layer < log->n_layers &&
			       log->layers[layer->layer].n_heads == layer->n_heads &&
			       log->layers[layer->layer].n_slots == layer->n_slots ?
		       NULL :
		       "user is not a log of this layout";
}

static uint64_t follow_limit(const struct kvc_policy_layer *layer)
{
	const struct record *r = next_record(layer);

	return r ? r->n_tokens : 0;
}

/* An update that is not the log's gets slots that are not there, which is refused. */
static void follow_choose(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan)
{
	const struct layer_log *l = followed(layer);
	const struct record *r = next_record(layer);
	uint64_t n_lines = r && !r->is_shared ? l->n_heads : 1, n = plan->n_tokens;
	const uint32_t *words = r ? l->words + r->first_word : NULL;

	plan->shared = n_lines == 1;
	if (!r || r->n_tokens != n || r->n_moves > layer->n_slots) {
		plan->shared = 1;
		memset(plan->slots, 0xfe, n * sizeof(plan->slots[0]));
		return;
	}
	plan->n_moves = r->n_moves;
	memcpy(plan->slots, words, n_lines * n * sizeof(words[0]));
	memcpy(plan->from, words + n_lines * n, n_lines * r->n_moves * sizeof(words[0]));
	memcpy(plan->to, words + n_lines * (n + r->n_moves),
	       n_lines * r->n_moves * sizeof(words[0]));
}

const struct kvc_policy_ops *kvc_policy_log_ops(void)
{
	static const struct kvc_policy_ops ops = {
		.name = "log",
		.check = follow_check,
		.limit = follow_limit,
		.choose = follow_choose,
	};

	return &ops;
}
