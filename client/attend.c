/* kvc_attend: what a call says is checked here, before anything is computed. Writer's thread. */
#include "client/attend.h"

#include <math.h>

#include "client/error.h"
#include "client/options.h"
#include "client/slots.h"

#define TOKENS_MAX (UINT64_C(1) << 24) /* of a call */
#define HEADS_MAX (UINT32_C(1) << 16)
#define POSITION_MAX (INT64_C(1) << 40)

/* ---- shapes -------------------------------------------------------------------------------- */

static int check_layer(const struct kvc_seq *seq, uint32_t layer)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer *l;

	if (!seq->layout->codecs)
		return kvc_fail(KVC_EUNSUPPORTED, "an opaque layout has no vectors to attend to");
	if (slots_check_layer(layout, layer))
		return -1;
	l = &layout->layers[layer];
	if (l->v_width == 0)
		return kvc_fail(KVC_EINVAL, "layer %u has no values: v_width is 0", layer);
	if (l->k_width > KV_ATTEND_WIDTH_MAX || l->v_width > KV_ATTEND_WIDTH_MAX)
		return kvc_fail(KVC_EUNSUPPORTED,
				"layer %u has vectors of %u and %u elements; kvc_attend takes up "
				"to %u",
				layer, l->k_width, l->v_width, KV_ATTEND_WIDTH_MAX);
	return 0;
}

static int check_shape(const struct attend *a)
{
	const struct kvc_attend_args *args = &a->args;

	if (args->n_query_heads == 0 || args->n_query_heads % a->n_heads ||
	    args->n_query_heads > HEADS_MAX)
		return kvc_fail(KVC_EINVAL,
				"n_query_heads is %u; it is a multiple of the %u query groups of "
				"layer %u, at most %u",
				args->n_query_heads, a->n_heads, a->layer, HEADS_MAX);
	if (args->n_tokens == 0 || args->n_tokens > TOKENS_MAX)
		return kvc_fail(KVC_EINVAL, "n_tokens is %llu; it may be 1 to %llu",
				(unsigned long long)args->n_tokens, (unsigned long long)TOKENS_MAX);
	if (!args->q || !args->out)
		return kvc_fail(KVC_EINVAL, "%s is NULL", args->q ? "out" : "q");
	if (!args->k != !args->v)
		return kvc_fail(KVC_EINVAL,
				"pass both k and v of the current tokens, or neither (the queries "
				"are of cached tokens)");
	return 0;
}

static int check_numbers(const struct kvc_attend_args *args)
{
	if (!isfinite(args->scale))
		return kvc_fail(KVC_EINVAL, "scale is no finite number");
	if (!(args->softcap >= 0) || !isfinite(args->softcap))
		return kvc_fail(KVC_EINVAL, "softcap is %g; it is positive, or 0 for none",
				(double)args->softcap);
	if (args->weights_how != KVC_WEIGHTS_MEAN && args->weights_how != KVC_WEIGHTS_SUM)
		return kvc_fail(KVC_EINVAL,
				"weights_how is %u; it is KVC_WEIGHTS_MEAN or KVC_WEIGHTS_SUM",
				args->weights_how);
	return 0;
}

/* ---- keys ---------------------------------------------------------------------------------- */

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* A ring has only the newest: all that the first query sees must be there. */
static int check_ring(const struct attend *a)
{
	uint64_t bound = a->layout->groups[a->group].bound_slots;
	uint64_t there = a->seq->head.length_tokens;

	there = bound && there > bound ? there - bound : 0;
	if (a->first_key >= there)
		return 0;
	return kvc_fail(KVC_ERANGE,
			"the first query sees token %llu, which the ring of layer %u no longer "
			"has: its oldest is %llu",
			(unsigned long long)a->first_key, a->layer, (unsigned long long)there);
}

static int keys_by_position(struct attend *a)
{
	const struct kvc_attend_args *args = &a->args;
	uint64_t bound = a->layout->groups[a->group].bound_slots;
	uint64_t committed = a->seq->head.length_tokens, other, after;

	if (args->positions)
		return kvc_fail(KVC_EINVAL, "positions are for slots that a policy has chosen: "
					    "slots is NULL");
	if (args->length_tokens > committed)
		return kvc_fail(KVC_ERANGE, "length_tokens is %llu, cached are %llu",
				(unsigned long long)args->length_tokens,
				(unsigned long long)committed);
	a->length = args->length_tokens ? args->length_tokens : committed;
	if (!args->k && args->n_tokens > a->length)
		return kvc_fail(KVC_ERANGE, "n_tokens is %llu, cached are %llu",
				(unsigned long long)args->n_tokens, (unsigned long long)a->length);
	if (a->seq->is_open && a->length + a->n_current > committed + a->seq->open_tokens)
		return kvc_fail(KVC_EINVAL, "n_tokens is %llu, the open update has %llu",
				(unsigned long long)args->n_tokens,
				(unsigned long long)a->seq->open_tokens);
	a->window = args->window_tokens ? args->window_tokens : UINT64_MAX;
	if (bound)
		a->window = smaller(a->window, bound);
	after = a->seq->is_open ? committed + a->seq->open_tokens : a->length + a->n_current;
	a->n_slots = kv_layout_slots(a->layout, a->group, after > committed ? after : committed);
	keys_range(a, 0, &a->first_key, &other);
	keys_range(a, args->n_tokens - 1, &other, &a->end_key);
	return check_ring(a);
}

/* Tokens that are in no slot are so for all heads; how many they are. */
static int64_t check_slots(const struct attend *a)
{
	uint64_t n = a->n_current * (a->args.shared_slots ? 1 : a->n_heads);
	int64_t n_nowhere = 0;

	for (uint64_t i = 0; i < n; i++) {
		uint32_t slot = a->args.slots[i];
		bool is_nowhere = slot == KVC_POLICY_NONE;

		if (is_nowhere != (a->args.slots[i % a->n_current] == KVC_POLICY_NONE))
			return kvc_fail(KVC_EINVAL,
					"slots: token %llu has a slot of some heads only",
					(unsigned long long)(i % a->n_current));
		if (slot >= a->n_slots && !is_nowhere)
			return kvc_fail(KVC_ERANGE,
					"slots: slot %u; layer %u has %llu with this update", slot,
					a->layer, (unsigned long long)a->n_slots);
		n_nowhere += is_nowhere && i < a->n_current;
	}
	return n_nowhere;
}

static int check_window(const struct kvc_attend_args *args)
{
	if (args->window_tokens == 0)
		return 0;
	if (!args->positions)
		return kvc_fail(KVC_EINVAL,
				"window_tokens with slots needs positions: slots say nothing of "
				"the order of tokens");
	if (args->first_position < -POSITION_MAX || args->first_position > POSITION_MAX)
		return kvc_fail(KVC_ERANGE, "first_position is %lld, beyond %lld",
				(long long)args->first_position, (long long)POSITION_MAX);
	return 0;
}

static int keys_by_slot(struct attend *a)
{
	const struct kvc_seq *seq = a->seq;
	int64_t n_nowhere;

	if (!a->args.k)
		return kvc_fail(KVC_EINVAL, "slots are those of current tokens: k is NULL");
	if (a->args.length_tokens)
		return kvc_fail(KVC_EINVAL,
				"length_tokens is not for slots that a policy has chosen");
	if (!seq->is_open)
		return kvc_fail(KVC_EINVAL, "slots are those of the open update, and none is open: "
					    "kvc_update_begin comes first");
	if (seq->open_tokens && seq->open_tokens != a->n_current)
		return kvc_fail(KVC_EINVAL, "n_tokens is %llu, the open update has %llu",
				(unsigned long long)a->n_current,
				(unsigned long long)seq->open_tokens);
	a->length = seq->head.length_tokens;
	a->n_slots = kv_layout_slots(a->layout, a->group, a->length + seq->open_tokens);
	if (seq_mode(seq) != KV_JOURNAL_REPLAY)
		a->base_slots = a->n_slots;
	n_nowhere = check_slots(a);
	if (n_nowhere < 0)
		return -1;
	a->end_key = a->n_slots + (uint64_t)n_nowhere;
	return check_window(&a->args);
}

/* ---- the call ------------------------------------------------------------------------------ */

static int codecs_init(struct attend *a)
{
	const struct kv_layout *layout = a->layout;
	const struct kv_codec *codecs = &a->seq->layout->codecs[2 * a->layer];

	a->k_codec = &codecs[0];
	a->v_codec = &codecs[1];
	return kv_codec_init(&a->k_exact, KV_FORMAT_RAW, layout->dtype, a->k_codec->width,
			     kvc_err()) ||
			       kv_codec_init(&a->v_exact, KV_FORMAT_RAW, layout->dtype,
					     a->v_codec->width, kvc_err()) ?
		       -1 :
		       0;
}

static int attend_init(struct attend *a, kvc_seq *seq, uint32_t layer)
{
	const struct kv_layout *layout = seq->layout->fields;

	a->seq = seq;
	a->layout = layout;
	a->layer = layer;
	a->group = layout->layer_maps[layer].group;
	a->n_heads = layout->layers[layer].n_query_groups;
	if (check_shape(a) || check_numbers(&a->args) || codecs_init(a))
		return -1;
	a->group_heads = a->args.n_query_heads / a->n_heads;
	a->parts = kv_row_parts(layout, layer);
	a->scale = a->args.scale != 0 ? a->args.scale : 1 / sqrtf((float)a->k_codec->width);
	a->n_current = a->args.k ? a->args.n_tokens : 0;
	a->base_slots = kv_layout_slots(layout, a->group, seq->head.base_tokens);
	a->overlay_low = kv_head_has_overlay(&seq->head) ? seq->journal.index_low[a->group] :
							   UINT64_MAX;
	return a->args.slots ? keys_by_slot(a) : keys_by_position(a);
}

/* The writer's own: the calling thread alone. */
static kvc_workers *own_workers(struct kvc_writer *writer)
{
	if (!writer->alone)
		writer->alone = kvc_workers_new(1);
	return writer->alone;
}

int kvc_attend(kvc_seq *seq, uint32_t layer, const struct kvc_attend_args *args)
{
	kvc_workers *workers;
	struct attend a = {0};
	int rc;

	if (session_check(seq->writer->session))
		return -1;
	if (!args)
		return kvc_fail(KVC_EINVAL, "args is NULL");
	if (options_take(args, "kvc_attend_args", sizeof(*args), &a.args, sizeof(a.args)) ||
	    check_layer(seq, layer) || attend_init(&a, seq, layer))
		return -1;
	workers = a.args.workers ? a.args.workers : own_workers(seq->writer);
	if (!workers || workers_enter(workers))
		return -1;
	rc = attend_run(&a, workers);
	workers_leave(workers);
	return rc;
}
