#include "tests/vectors/policy_trace.h"

#include <stdlib.h>
#include <string.h>

#include "proto/layout.h"

static uint32_t dtype_of(const char *name)
{
	if (name && strcmp(name, "f32") == 0)
		return KV_DTYPE_F32;
	if (name && strcmp(name, "f16") == 0)
		return KV_DTYPE_F16;
	return name && strcmp(name, "bf16") == 0 ? KV_DTYPE_BF16 : 0;
}

static double real(const struct trace_event *head, const char *name)
{
	const char *text = trace_text(head, name);

	return text ? strtod(text, NULL) : 0;
}

static void read_options(const struct trace_event *head, struct kvc_policy_options *o)
{
	const char *variant = trace_text(head, "variant"), *name = trace_text(head, "policy");

	o->size = sizeof(*o);
	o->name = name;
	/* What that program does under this name is what it does under the other. */
	if (name && strcmp(name, "qh2o-vlen") == 0 &&
	    (!variant || strcmp(variant, "documented") != 0))
		o->name = "qh2o";
	o->pinned_tokens = (uint32_t)trace_number(head, "init_grace_tokens", 0);
	if (trace_text(head, "init_grace_tokens") && o->pinned_tokens == 0)
		o->pinned_tokens = KVC_POLICY_NONE;
	if (!name || strcmp(name, "h2o-orig") == 0)
		return;
	o->grace_tokens = (uint32_t)trace_number(head, "grace_period", 0);
	o->reset_grace_scores = variant && strcmp(variant, "grace_reset") == 0;
	o->keep_fraction = real(head, "keep_initial_fraction");
	if (trace_text(head, "keep_initial_fraction") && o->keep_fraction == 0)
		o->keep_fraction = -1;
	o->normalise_scores = (uint32_t)trace_number(head, "normalize_scores", 0);
	o->max_chunk_tokens = (uint32_t)trace_number(head, "max_chunk_size", 0);
	o->combination = (float)real(head, "combination_constant");
}

bool pt_setup(const struct trace *trace, struct pt_setup *setup)
{
	const struct trace_event *head = &trace->events[0];

	*setup = (struct pt_setup){
		.H = (uint32_t)trace_number(head, "H", 0),
		.L = (uint32_t)trace_number(head, "L", 0),
		.hs = (uint32_t)trace_number(head, "hs", 0),
		.max_B = (uint32_t)trace_number(head, "max_B", 0),
		.dtype = dtype_of(trace_text(head, "dtype")),
		.has_exact_scores = trace_number(head, "scores_exact", 0) != 0,
	};
	read_options(head, &setup->options);
	setup->is_orig = setup->options.name && strcmp(setup->options.name, "h2o-orig") == 0;
	return kv_policy_named(setup->options.name) && setup->dtype && setup->H >= 1 &&
	       setup->H <= PT_HEADS && setup->L >= 2 && setup->L <= PT_SLOTS && setup->max_B >= 1 &&
	       setup->max_B <= PT_ROWS && setup->hs >= 1 && setup->hs <= 256;
}

bool pt_is_step(const struct trace_event *event)
{
	return strcmp(event->kind, "prefill") == 0 || strcmp(event->kind, "update") == 0;
}

uint64_t pt_n_tokens(const struct trace_event *event)
{
	return (uint64_t)event->words[strcmp(event->kind, "prefill") == 0 ? 0 : 1];
}

long pt_number(const struct trace_event *event, const char *name, uint32_t row, long otherwise)
{
	const struct trace_item *item = trace_item(event, name);

	if (!item || item->type[0] == 's')
		return trace_number(event, name, otherwise);
	return item->ints && row < item->n ? item->ints[row] : otherwise;
}

bool pt_range(const struct trace_event *event, uint32_t row, struct kvc_policy_range *range)
{
	long start = pt_number(event, "protected_start", row, -1);

	range->start = (uint32_t)start;
	range->end = (uint32_t)pt_number(event, "protected_end", row, -1);
	return start >= 0;
}

const float *pt_floats(const struct trace_event *event, const char *name,
		       const struct pt_setup *setup, uint32_t row, uint64_t n)
{
	const struct trace_item *item = trace_item(event, name);

	if (!item || strcmp(item->type, "f32") != 0 || item->n_dims != 3 ||
	    item->dims[1] != setup->H || item->dims[2] != n || row >= item->dims[0])
		return NULL;
	return (const float *)(const void *)item->bytes + row * setup->H * n;
}

const float *pt_weights(const struct trace_event *event, const struct pt_setup *setup,
			uint32_t n_rows, uint32_t row, uint32_t n_used, float to[PT_CELLS])
{
	const float *one;

	if (!setup->is_orig)
		return pt_floats(event, "attn", setup, row, n_used);
	for (uint32_t b = 0; b < n_rows; b++) {
		one = pt_floats(event, "attn", setup, b, n_used);
		for (uint32_t i = 0; one && i < setup->H * n_used; i++)
			to[i] = b ? to[i] + one[i] : one[i];
		if (!one)
			return NULL;
	}
	return to;
}

uint32_t pt_slots(const struct trace_event *event, const struct pt_setup *setup, uint32_t row,
		  uint32_t head, const long **chosen, const long **grace)
{
	const struct trace_item *slots = trace_item(event, "slots");
	const struct trace_item *fixed = trace_item(event, "grace_slots");
	uint64_t n = pt_n_tokens(event);

	*chosen = *grace = NULL;
	if (!slots || !slots->ints || slots->n_dims != 3 || slots->dims[1] != setup->H ||
	    slots->dims[2] != n || row >= slots->dims[0])
		return 0;
	*chosen = slots->ints + (row * setup->H + head) * n;
	if (!fixed || !fixed->ints || fixed->n > n)
		return 0;
	*grace = fixed->ints;
	return (uint32_t)fixed->n;
}

/* Does an entry behind this one, or one of the grace period, name the slot again? */
static bool is_named_later(const long *chosen, uint64_t i, uint64_t n, const long *grace,
			   uint32_t m)
{
	for (uint64_t k = i + 1; k < n; k++)
		if (chosen[k] == chosen[i])
			return true;
	for (uint32_t k = 0; k < m; k++)
		if (grace[k] == chosen[i])
			return true;
	return false;
}

static bool head_is(const struct trace_event *event, const struct pt_setup *setup, uint32_t row,
		    uint32_t head, const struct kvc_policy_plan *plan)
{
	uint32_t line = plan->shared ? 0 : head, m;
	const uint32_t *slots = plan->slots + line * plan->n_tokens;
	const uint32_t *from = plan->from + line * plan->n_moves;
	const uint32_t *to = plan->to + line * plan->n_moves;
	const long *chosen, *grace;
	uint64_t n = plan->n_tokens;

	m = pt_slots(event, setup, row, head, &chosen, &grace);
	if (!chosen || plan->n_moves > m)
		return false;
	for (uint64_t i = 0; i < n - m; i++)
		if (slots[i] != (uint32_t)chosen[m + i] &&
		    (slots[i] != KVC_POLICY_NONE || !is_named_later(chosen, m + i, n, grace, m)))
			return false;
	for (uint32_t i = 0; i < m; i++)
		if (slots[n - m + i] != (uint32_t)grace[i])
			return false;
	for (uint32_t i = 0; i < plan->n_moves; i++)
		if (from[i] != (uint32_t)grace[i] || to[i] != (uint32_t)chosen[i])
			return false;
	return plan->n_moves == m || is_named_later(chosen, plan->n_moves, n, grace, m);
}

bool pt_plan_is(const struct trace_event *event, const struct pt_setup *setup, uint32_t row,
		const struct kvc_policy_plan *plan)
{
	for (uint32_t h = 0; h < setup->H; h++)
		if (!head_is(event, setup, row, h, plan))
			return false;
	return true;
}

void pt_take_plan(const struct trace_event *event, const struct pt_setup *setup, uint32_t row,
		  struct kvc_policy_plan *plan)
{
	uint64_t n = plan->n_tokens;

	plan->shared = 0;
	for (uint32_t h = 0; h < setup->H; h++) {
		const long *chosen, *grace;
		uint32_t m = pt_slots(event, setup, row, h, &chosen, &grace);

		if (!chosen)
			return;
		plan->n_moves = m;
		for (uint32_t i = 0; i < m; i++) {
			plan->from[h * m + i] = (uint32_t)grace[i];
			plan->to[h * m + i] = (uint32_t)chosen[i];
		}
		for (uint64_t i = 0; i < n; i++)
			plan->slots[h * n + i] = (uint32_t)(i < n - m ? chosen[m + i] :
									grace[i - (n - m)]);
	}
}
