/* A world of a random shape, and the choice of operations. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/model/mc.h"

static struct mc_world *at_work; /* whose library calls these are */

/* The doubles of proto/fault.c: what happens between two stores. */
uint64_t kv_fault_passed, kv_fault_at;

void kv_fault_pass(void)
{
	if (at_work)
		mc_at_point(at_work);
}

void kv_fault_from_env(const char *variable)
{
	(void)variable;
}

_Noreturn void mc_fail(const char *file, int line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("  %s:%d: ", file, line);
	vprintf(format, args);
	printf("\n");
	va_end(args);
	fflush(stdout);
	_exit(1);
}

uint64_t mc_draw(struct mc_world *w, uint64_t n)
{
	uint64_t x = w->random += UINT64_C(0x9e3779b97f4a7c15);

	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return (x ^ x >> 31) % n;
}

bool mc_one_in(struct mc_world *w, uint64_t n)
{
	return mc_draw(w, n) == 0;
}

void mc_say(struct mc_world *w, const char *format, ...)
{
	va_list args;

	if (!w->verbose)
		return;
	va_start(args, format);
	printf("  ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
	fflush(stdout);
}

/* ---- shape -------------------------------------------------------------------------------- */

static const char *const slot_names[MC_PLANES] = {"position", "norm"};
static const char *const seq_names[MC_PLANES] = {"counters", "state"};

static uint32_t draw_format(struct mc_world *w)
{
	return w->format ? w->format : 1 + (uint32_t)mc_draw(w, KV_FORMAT_MAX);
}

static uint32_t draw_width(struct mc_world *w, uint32_t format)
{
	static const uint32_t raw[] = {1, 3, 16, 24, 33}, coded[] = {16, 18, 32, 48};

	if (format == KV_FORMAT_Q4)
		return 32 * (1 + (uint32_t)mc_draw(w, 2));
	if (format == KV_FORMAT_RAW || format == KV_FORMAT_FP8)
		return raw[mc_draw(w, 5)];
	return coded[mc_draw(w, 4)];
}

void mc_add_plane(struct kv_layout *layout, const char *name, uint32_t scope, uint32_t bytes)
{
	struct kv_plane *plane = &layout->planes[layout->n_planes++];

	snprintf(plane->name, sizeof(plane->name), "%s", name);
	plane->scope = scope;
	plane->bytes = bytes;
}

static void draw_planes(struct mc_world *w, struct kv_layout *layout)
{
	w->n_slot_planes = (uint32_t)mc_draw(w, MC_PLANES + 1);
	w->n_seq_planes = (uint32_t)mc_draw(w, MC_PLANES + 1);
	for (uint32_t i = 0; i < w->n_seq_planes; i++) {
		w->seq_plane[i] = seq_names[i];
		w->seq_plane_bytes[i] = 1 + (uint32_t)mc_draw(w, 200);
		mc_add_plane(layout, seq_names[i], KV_PLANE_SEQUENCE, w->seq_plane_bytes[i]);
	}
	for (uint32_t i = 0; i < w->n_slot_planes; i++) {
		w->slot_plane[i] = slot_names[i];
		w->slot_plane_bytes[i] = 1 + (uint32_t)mc_draw(w, 12);
		mc_add_plane(layout, slot_names[i], KV_PLANE_SLOT, w->slot_plane_bytes[i]);
	}
}

static void shrink_journal(struct mc_world *w, struct kv_layout *layout)
{
	for (uint32_t m = KV_JOURNAL_UNDO; m <= KV_JOURNAL_REPLAY; m++) {
		struct kv_journal_shape *shape = &layout->journal[m];
		uint32_t log2 = 3 + (uint32_t)mc_draw(w, 3);

		if (log2 > shape->rows_log2)
			continue;
		shape->rows_log2 = log2;
		shape->payload_off = (uint32_t)((sizeof(struct kv_row) << log2) + 63) & ~63u;
	}
}

struct kv_layout *mc_layout_begin(struct mc_world *w)
{
	static const uint32_t block_tokens[] = {1, 2, 4, 8, 16};
	struct kv_layout *layout = calloc(1, sizeof(*layout));

	MC_CHECK(layout);
	layout->fingerprint[0] = 1;
	layout->dtype = 1 + (uint32_t)mc_draw(w, 3);
	layout->k_format = draw_format(w);
	layout->v_format = mc_one_in(w, 2) ? layout->k_format : draw_format(w);
	layout->block_tokens = block_tokens[mc_draw(w, 5)];
	layout->planes = calloc(KV_PLANES_MAX, sizeof(layout->planes[0]));
	MC_CHECK(layout->planes);
	return layout;
}

void mc_draw_layers(struct mc_world *w, struct kv_layout *layout, const uint32_t bounds[2],
		    uint64_t no_values_one_in)
{
	layout->n_layers = 1 + (uint32_t)mc_draw(w, MC_LAYERS);
	layout->layers = calloc(layout->n_layers, sizeof(layout->layers[0]));
	MC_CHECK(layout->layers);
	for (uint32_t l = 0; l < layout->n_layers; l++)
		layout->layers[l] = (struct kv_layer){
			.n_query_groups = 1 + (uint32_t)mc_draw(w, MC_HEADS),
			.k_width = draw_width(w, layout->k_format),
			.v_width = mc_one_in(w, no_values_one_in) ? 0 :
								    draw_width(w, layout->v_format),
			.bound_slots = bounds[l % 2],
		};
}

struct kv_layout *mc_layout_finish(struct mc_world *w, struct kv_layout *layout)
{
	struct kv_layout *derived;
	struct errbuf err = {0};

	if (kv_layout_check(layout, &err))
		MC_FAIL("layout: %s", err.text);
	derived = kv_layout_copy(layout);
	MC_CHECK(derived);
	kv_layout_free(layout);
	if (!mc_one_in(w, 4))
		shrink_journal(w, derived);
	return derived;
}

static struct kv_layout *draw_layout(struct mc_world *w)
{
	struct kv_layout *layout = mc_layout_begin(w);
	uint32_t bounds[2] = {0, mc_one_in(w, 4) ? 0 : 3 + (uint32_t)mc_draw(w, 22)};

	if (mc_one_in(w, 4))
		bounds[0] = 2 + (uint32_t)mc_draw(w, 30);
	mc_draw_layers(w, layout, bounds, 8);
	draw_planes(w, layout);
	return mc_layout_finish(w, layout);
}

/* Pools that run out, tables that go round. */
static void draw_limits(struct mc_world *w)
{
	const struct kv_layout *layout = w->layout;

	for (uint32_t g = 0; g < layout->n_layer_groups && mc_one_in(w, 2); g++)
		w->bare->most_blocks[g] = 20 + (uint32_t)mc_draw(w, 100);
	if (mc_one_in(w, 2))
		w->bare->most_blocks[layout->journal_group] = 20 + (uint32_t)mc_draw(w, 200);
	if (mc_one_in(w, 2))
		w->bare->most_entries[layout->journal_group] = 5 + (uint32_t)mc_draw(w, 30);
	if (layout->states_group < layout->n_groups && mc_one_in(w, 2))
		w->bare->most_entries[layout->states_group] = 3 + (uint32_t)mc_draw(w, 12);
}

static void lay_out_cells(struct mc_world *w)
{
	for (uint32_t l = 0; l < w->layout->n_layers; l++) {
		w->n_slots[l] = (uint32_t)mc_slots(w, l, MC_TOKENS);
		w->first_cell[l] = w->n_cells;
		w->n_cells += w->n_slots[l] * w->layout->layers[l].n_query_groups;
	}
}

static void say_shape(struct mc_world *w)
{
	const struct kv_layout *l = w->layout;

	mc_say(w,
	       "K %s, V %s, dtype %u, %u slots a block, %u layers, planes %u + %u, journal rows %u/%u "
	       "of blocks %u of %u",
	       kv_format_name(l->k_format), kv_format_name(l->v_format), l->dtype, l->block_tokens,
	       l->n_layers, w->n_slot_planes, w->n_seq_planes, 1u << l->journal[1].rows_log2,
	       1u << l->journal[2].rows_log2, w->bare->most_entries[l->journal_group],
	       w->bare->most_blocks[l->journal_group]);
	for (uint32_t i = 0; i < l->n_layers; i++)
		mc_say(w, "layer %u: %u heads, %u and %u wide, bound %u", i,
		       l->layers[i].n_query_groups, l->layers[i].k_width, l->layers[i].v_width,
		       l->layers[i].bound_slots);
}

struct mc_world *mc_world_new(uint64_t seed, uint32_t format, bool verbose)
{
	struct mc_world *w = calloc(1, sizeof(*w));

	MC_CHECK(w);
	at_work = w;
	w->random = seed;
	w->format = format;
	w->verbose = verbose;
	w->bare = bare_new(draw_layout(w));
	w->layout = w->bare->layout.fields;
	draw_limits(w);
	lay_out_cells(w);
	mc_values_init(w);
	w->writer = bare_writer(w->bare, 0);
	w->writer->deadline_ms = 1;
	w->reader = bare_writer(w->bare, MC_READER);
	say_shape(w);
	return w;
}

/* Everything goes: no block may be left with anybody. */
void mc_world_free(struct mc_world *w)
{
	for (int i = 0; i < MC_SNAPS; i++)
		if (w->snaps[i].used)
			mc_snap_drop(w, &w->snaps[i]);
	for (int i = 0; i < MC_SEQS; i++) {
		struct mc_seq *s = &w->seqs[i];

		if (!s->seq)
			continue;
		if (!s->local)
			segment_place(&w->bare->segment, s->seq->place)->seq_id = 0;
		seq_end(s->seq, s->local ? SEQ_END_LOCAL : SEQ_END_DROPPED);
		mc_base_unref(w, s->base);
		mc_seq_clear(s);
	}
	bare_take_back(w->bare, w->writer, true);
	if (bare_n_used(w->bare) || atomic_load(&w->writer->shm->n_reserved_bytes))
		MC_FAIL("%llu blocks are left, and %llu bytes are counted as reserved",
			(unsigned long long)bare_n_used(w->bare),
			(unsigned long long)atomic_load(&w->writer->shm->n_reserved_bytes));
	writer_free(w->writer);
	writer_free(w->reader);
	mc_values_free(w);
	bare_free(w->bare);
	free(w);
	at_work = NULL;
}

/* ---- choices ------------------------------------------------------------------------------ */

/* A sequence that can be written; NULL: none. */
struct mc_seq *mc_pick(struct mc_world *w)
{
	int i = (int)mc_draw(w, MC_SEQS);

	for (int n = 0; n < MC_SEQS; n++, i = (i + 1) % MC_SEQS)
		if (w->seqs[i].seq && seq_is_live(w->seqs[i].seq))
			return &w->seqs[i];
	return NULL;
}

struct mc_seq *mc_free_seq(struct mc_world *w)
{
	for (int i = 0; i < MC_SEQS; i++)
		if (!w->seqs[i].seq)
			return &w->seqs[i];
	return NULL;
}

bool mc_reserve(struct mc_world *w, struct mc_seq *s, uint64_t n_tokens, uint64_t n_rows)
{
	uint32_t n_blocks = mc_one_in(w, 2) ? 2 : 2 + s->seq->groups[0].n_entries;
	bool in_call = w->in_call;
	int rc;

	w->in_call = false;
	rc = bare_reserve(w->bare, s->seq, n_tokens);
	if (rc == 0 && s->shadow.mode != KVC_JOURNAL_NONE)
		rc = bare_reserve_scatter(w->bare, s->seq, 1, n_rows, n_blocks);
	if (rc)
		w->n_skipped++;
	w->in_call = in_call;
	return rc == 0;
}

static void (*const ops[])(struct mc_world *) = {
	mc_op_update,      mc_op_update,      mc_op_update,     mc_op_update,        mc_op_update,
	mc_op_update,      mc_op_update,      mc_op_update,     mc_op_update,        mc_op_rollback,
	mc_op_rollback,    mc_op_rollback,    mc_op_rollback,   mc_op_rollback_many, mc_op_marks,
	mc_op_marks,       mc_op_marks,       mc_op_forward,    mc_op_forward,       mc_op_fold,
	mc_op_fold,        mc_op_replay_from, mc_op_journal,    mc_op_journal,       mc_op_new,
	mc_op_new,         mc_op_fork_local,  mc_op_fork_local, mc_op_drop,          mc_op_drop,
	mc_op_snapshot,    mc_op_snapshot,    mc_op_fork,       mc_op_reserved,      mc_op_operator,
	mc_op_replay_base,
};

static void draw_event(struct mc_world *w)
{
	struct mc_snap *snap = &w->snaps[mc_draw(w, MC_SNAPS)];

	w->event = MC_NOTHING;
	w->event_in = 1 + (mc_one_in(w, 3) ? mc_draw(w, 2) : mc_draw(w, 1 + mc_draw(w, 100)));
	if (mc_one_in(w, 5))
		w->event = MC_FREEZE;
	else if (mc_one_in(w, 12))
		w->event = MC_DEATH;
	else if (mc_one_in(w, 60))
		w->event = MC_HOLD;
	w->dies_open = mc_one_in(w, 100);
	if (w->event != MC_NOTHING && snap->used) /* there is room for another */
		mc_snap_drop(w, snap);
}

uint64_t mc_op_number(uint64_t seed, uint64_t i)
{
	return (seed * 1000 + i) * UINT64_C(0x2545f4914f6cdd1d);
}

static void operate(struct mc_world *w)
{
	bool none = true;

	for (int i = 0; i < MC_SEQS; i++)
		none &= w->seqs[i].seq == NULL;
	if (none)
		mc_op_new(w);
	ops[mc_draw(w, sizeof(ops) / sizeof(ops[0]))](w);
}

void mc_step(struct mc_world *w, uint64_t number)
{
	w->random = number;
	w->n_ops++;
	draw_event(w);
	if (setjmp(w->death))
		mc_after_death(w);
	else if (mc_one_in(w, 60))
		mc_op_death(w);
	else
		operate(w);
	w->event = MC_NOTHING;
	mc_compare_all(w);
}

uint64_t mc_step_dying(struct mc_world *w, uint64_t number, uint64_t at)
{
	w->random = number;
	w->n_ops++;
	w->event = at ? MC_DEATH : MC_NOTHING;
	w->event_in = at;
	w->dies_open = false;
	w->n_points = 0;
	if (setjmp(w->death))
		mc_after_death(w);
	else
		operate(w);
	w->event = MC_NOTHING;
	mc_compare_all(w);
	return w->n_points;
}
