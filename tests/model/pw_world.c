/* A world of a random shape with a random policy, and the choice of operations. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/model/pw.h"

struct pw_report *pw_report;

void pw_say(struct pw_world *w, const char *format, ...)
{
	char *line = pw_report->lines[pw_report->n_lines++ % PW_LINES];
	va_list args;

	va_start(args, format);
	vsnprintf(line, PW_LINE_BYTES, format, args);
	va_end(args);
	mc_say(&w->mc, "%s", line);
}

/* ---- the policy --------------------------------------------------------------------------- */

static void draw_scoring(struct pw_world *w, struct kvc_policy_options *o)
{
	static const double fractions[] = {0, -1, 0.25, 0.5};

	o->grace_tokens = mc_one_in(&w->mc, 2) ? (uint32_t)mc_draw(&w->mc, 8) : 0;
	o->reset_grace_scores = mc_one_in(&w->mc, 2);
	o->keep_fraction = fractions[mc_draw(&w->mc, 4)];
	o->normalise_scores = mc_one_in(&w->mc, 2);
	o->max_chunk_tokens = mc_one_in(&w->mc, 3) ? 1 + (uint32_t)mc_draw(&w->mc, 6) : 0;
	o->combination = (float)mc_draw(&w->mc, 5) / 4;
}

static void draw_policy(struct pw_world *w)
{
	static const char *const names[] = {"dense",         "ring", "lastrec",
					    "smart-lastrec", "h2o",  "h2o-orig",
					    "h2o-vlen",      "qh2o", "qh2o-vlen"};
	struct kvc_policy_options *o = &w->options;
	uint64_t which = mc_draw(&w->mc, 12);

	*o = (struct kvc_policy_options){.size = sizeof(*o)};
	if (which >= 9) {
		o->ops = &pw_own_ops[which % 2];
		o->user = &w->own_seed;
		return;
	}
	o->name = names[which];
	if (which == 2)
		o->pinned_tokens = mc_one_in(&w->mc, 3) ? KVC_POLICY_NONE :
							  (uint32_t)mc_draw(&w->mc, 8);
	if (which > 3 && which != 5)
		draw_scoring(w, o);
}

/* ---- shape -------------------------------------------------------------------------------- */

static void add_other(struct pw_world *w, struct kv_layout *layout)
{
	if (w->other || !mc_one_in(&w->mc, 4))
		return;
	w->other = "other";
	w->other_bytes = 1 + (uint32_t)mc_draw(&w->mc, 9);
	mc_add_plane(layout, "other", KV_PLANE_SLOT, w->other_bytes);
	w->has_another = mc_one_in(&w->mc, 2);
	if (w->has_another)
		mc_add_plane(layout, "another", KV_PLANE_SEQUENCE, PW_ANOTHER_BYTES);
}

/* Draws policies until one suits the layers. */
static void add_planes(struct pw_world *w, struct kv_layout *layout)
{
	struct kvc_plane planes[KVC_POLICY_PLANES];
	struct kvc_layer layers[PW_LAYERS];
	int n;

	for (uint32_t l = 0; l < layout->n_layers; l++)
		layers[l] = (struct kvc_layer){layout->layers[l].n_query_groups,
					       layout->layers[l].k_width, layout->layers[l].v_width,
					       layout->layers[l].bound_slots};
	do {
		draw_policy(w);
		n = kvc_policy_planes(&w->options, layout->n_layers, layers, planes);
		MC_CHECK(n >= 0 || kvc_error() == KVC_EINVAL);
	} while (n < 0);
	MC_CHECK(policy_options(&w->options, &w->resolved, &w->ops) == 0);
	add_other(w, layout);
	for (int i = 0; i < n; i++) {
		mc_add_plane(layout, planes[i].name, planes[i].scope, planes[i].bytes);
		w->has_state |= planes[i].scope == KVC_PLANE_SEQUENCE;
		for (int side = 0; side < POLICY_SIDES; side++)
			w->has_side[side] |= strcmp(planes[i].name, policy_side_names[side]) == 0;
	}
	add_other(w, layout);
}

static struct kv_layout *draw_layout(struct pw_world *w)
{
	struct kv_layout *layout = mc_layout_begin(&w->mc);
	uint32_t bounds[2] = {3 + (uint32_t)mc_draw(&w->mc, PW_SLOTS - 2), 0};

	if (mc_one_in(&w->mc, 2))
		bounds[1] = 3 + (uint32_t)mc_draw(&w->mc, PW_SLOTS - 2);
	mc_draw_layers(&w->mc, layout, bounds, 12);
	add_planes(w, layout);
	return mc_layout_finish(&w->mc, layout);
}

static void lay_out(struct pw_world *w)
{
	size_t off = 0;

	for (uint32_t l = 0; l < w->mc.layout->n_layers; l++) {
		const struct kv_layer *layer = &w->mc.layout->layers[l];

		w->first_cell[l] = w->n_cells;
		w->n_cells += (uint32_t)pw_slots(w, l, PW_TOKENS) * layer->n_query_groups;
		w->layer_off[l] = off;
		off += policy_layer_bytes(w->ops, layer->n_query_groups,
					  (uint32_t)layer->bound_slots);
	}
}

static void say_shape(struct pw_world *w)
{
	const struct kv_layout *l = w->mc.layout;
	const struct kvc_policy_options *o = &w->resolved;

	pw_say(w, "policy %s, grace %u, reset %u, keep %g, normalise %u, chunk %u, pinned %u",
	       o->name, o->grace_tokens, o->reset_grace_scores, o->keep_fraction,
	       o->normalise_scores, o->max_chunk_tokens, o->pinned_tokens);
	pw_say(w, "K %s, V %s, dtype %u, %u slots a block, %u layers, journal rows %u/%u",
	       kv_format_name(l->k_format), kv_format_name(l->v_format), l->dtype, l->block_tokens,
	       l->n_layers, 1u << l->journal[1].rows_log2, 1u << l->journal[2].rows_log2);
	for (uint32_t i = 0; i < l->n_layers; i++)
		pw_say(w, "layer %u: %u heads, %u and %u wide, bound %u", i,
		       l->layers[i].n_query_groups, l->layers[i].k_width, l->layers[i].v_width,
		       (uint32_t)l->layers[i].bound_slots);
}

struct pw_world *pw_world_new(uint64_t seed, uint32_t format, bool verbose)
{
	struct pw_world *w = calloc(1, sizeof(*w));

	MC_CHECK(w);
	pw_report->n_lines = 0;
	w->own_seed = seed;
	w->mc.random = seed;
	w->mc.format = format;
	w->mc.verbose = verbose;
	w->mc.bare = bare_new(draw_layout(w));
	w->mc.layout = w->mc.bare->layout.fields;
	mc_values_init(&w->mc);
	w->mc.writer = bare_writer(w->mc.bare, 0);
	lay_out(w);
	say_shape(w);
	return w;
}

/* Everything goes: no block may be left with anybody. */
void pw_world_free(struct pw_world *w)
{
	for (int i = 0; i < PW_SEQS; i++)
		if (w->seqs[i].seq)
			pw_drop(w, &w->seqs[i]);
	bare_take_back(w->mc.bare, w->mc.writer, true);
	if (bare_n_used(w->mc.bare))
		MC_FAIL("%llu blocks are left", (unsigned long long)bare_n_used(w->mc.bare));
	writer_free(w->mc.writer);
	mc_values_free(&w->mc);
	bare_free(w->mc.bare);
	free(w);
}

/* ---- choices ------------------------------------------------------------------------------ */

struct pw_seq *pw_pick(struct pw_world *w)
{
	int i = (int)mc_draw(&w->mc, PW_SEQS);

	for (int n = 0; n < PW_SEQS; n++, i = (i + 1) % PW_SEQS)
		if (w->seqs[i].seq && !w->seqs[i].is_reader)
			return &w->seqs[i];
	return NULL;
}

struct pw_seq *pw_free_seq(struct pw_world *w)
{
	for (int i = 0; i < PW_SEQS; i++)
		if (!w->seqs[i].seq)
			return &w->seqs[i];
	return NULL;
}

static void (*const ops[])(struct pw_world *) = {
	pw_op_update,     pw_op_update,         pw_op_update,   pw_op_update,   pw_op_update,
	pw_op_update,     pw_op_update,         pw_op_update,   pw_op_update,   pw_op_update,
	pw_op_update,     pw_op_rollback,       pw_op_rollback, pw_op_rollback, pw_op_forward,
	pw_op_mark,       pw_op_mark,           pw_op_fold,     pw_op_mode,     pw_op_hand,
	pw_op_fork_local, pw_op_snapshot_local, pw_op_core,     pw_op_drop,     pw_op_new,
};

void pw_step(struct pw_world *w, uint64_t number)
{
	w->mc.random = number;
	w->n_ops++;
	if (!pw_pick(w))
		pw_op_new(w);
	ops[mc_draw(&w->mc, sizeof(ops) / sizeof(ops[0]))](w);
	for (int i = 0; i < PW_SEQS; i++)
		if (w->seqs[i].seq)
			pw_compare(w, &w->seqs[i]);
}
