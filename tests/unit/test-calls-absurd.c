/*
 * Any call with any arguments, in any state: it does what it should, or fails and has changed
 * nothing. Random calls over bare memory, most of them absurd; after one that failed, lengths,
 * digests and journals of all sequences are what they were. That those which succeed do the right
 * thing is model-check's business. One parametrised set over layouts at their limits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/journal.h"
#include "tests/support/bare.h"
#include "tests/support/random.h"
#include "tests/support/runner.h"

#define MAX_SEQS 6u
#define MAX_SLOTS 64u
#define MAX_HEADS 3u
#define MAX_ROW (MAX_HEADS * 64u)
#define STEPS 1000u
#define ROUNDS 8u

struct shape {
	uint32_t n_layers;
	struct kv_layer layers[3];
	uint32_t k_format, v_format, block_tokens, n_planes;
	struct kv_plane planes[3];
	uint64_t max_tokens;
};

static const struct shape shapes[] = {
	{2, {{1, 17, 0, 0}, {3, 18, 17, 1}}, KV_FORMAT_RAW, KV_FORMAT_RAW, 1, 0, {{"", 0, 0}}, 40},
	{3,
	 {{2, 16, 16, 3}, {1, 18, 16, 0}, {2, 16, 18, 6}},
	 KV_FORMAT_INT8,
	 KV_FORMAT_U8,
	 4,
	 3,
	 {{"position", KV_PLANE_SLOT, 4}, {"odd", KV_PLANE_SLOT, 3}, {"all", KV_PLANE_SEQUENCE, 5}},
	 MAX_SLOTS},
	{1,
	 {{3, 32, 32, 0}},
	 KV_FORMAT_Q4,
	 KV_FORMAT_U4,
	 16,
	 1,
	 {{"all", KV_PLANE_SEQUENCE, 64}},
	 1},
	{0, {{0}}, 0, 0, 1, 0, {{"", 0, 0}}, MAX_SLOTS},
};

struct before {
	uint64_t length, position, slots;
	uint8_t digest[16];
	struct kvc_journal_info info;
	bool is_open;
};

struct world {
	struct bare *bare;
	struct kvc_writer *writer;
	const struct shape *shape;
	const struct kv_layout *layout;
	uint64_t random;
	struct kvc_seq *seqs[MAX_SEQS];
	struct kvc_mark marks[MAX_SEQS];
	struct before before[MAX_SEQS];
	uint64_t n_ok, n_failed;
};

static uint64_t draw(struct world *w, uint64_t n)
{
	return kt_draw(&w->random, n);
}

/* A number that makes sense as a rule, or is at a limit. */
static uint64_t number(struct world *w)
{
	static const uint64_t odd[] = {0,
				       UINT32_MAX,
				       UINT32_MAX + UINT64_C(1),
				       UINT64_MAX,
				       UINT64_MAX / 2,
				       UINT64_MAX / 2 + 1,
				       UINT64_C(1) << 40};

	if (draw(w, 6) == 0)
		return odd[draw(w, sizeof(odd) / sizeof(odd[0]))];
	return draw(w, 3) ? draw(w, 4) : draw(w, MAX_SLOTS + 2);
}

static uint32_t any_layer(struct world *w)
{
	uint64_t layers = w->shape->n_layers ? w->shape->n_layers : 1;

	return draw(w, 10) ? (uint32_t)draw(w, layers + !draw(w, 4)) : UINT32_MAX;
}

/* ---- what is compared ---------------------------------------------------------------------- */

static void look(struct kvc_seq *seq, struct before *b)
{
	memset(b, 0, sizeof(*b));
	b->length = kvc_length(seq);
	b->position = kvc_position(seq);
	b->slots = kvc_slots(seq, 0);
	b->is_open = seq->is_open;
	assert_int_equal(kvc_digest(seq, b->digest), 0);
	assert_int_equal(kvc_journal_info(seq, &b->info), 0);
	/* Rows that an update takes end the future, whether it comes to be or not. */
	b->info.n_forward = 0;
	b->info.n_bytes = 0;
}

static struct kvc_seq **any(struct world *w)
{
	struct kvc_seq **seq = &w->seqs[draw(w, MAX_SEQS)];

	if (!*seq) {
		*seq = bare_seq(w->bare, w->writer, w->shape->max_tokens, NULL);
		look(*seq, &w->before[seq - w->seqs]);
	}
	return seq;
}

/* With an open update, as a rule. */
static struct kvc_seq *any_open(struct world *w)
{
	uint64_t i = draw(w, MAX_SEQS);

	for (uint64_t n = 0; draw(w, 20) && n < MAX_SEQS; n++)
		if (w->seqs[(i + n) % MAX_SEQS] && w->seqs[(i + n) % MAX_SEQS]->is_open)
			return w->seqs[(i + n) % MAX_SEQS];
	return *any(w);
}

static void look_all(struct world *w)
{
	for (uint32_t i = 0; i < MAX_SEQS; i++)
		if (w->seqs[i])
			look(w->seqs[i], &w->before[i]);
}

static void check_all(struct world *w, const char *call)
{
	char why[200];

	snprintf(why, sizeof(why), "%s", kvc_error_text());
	for (uint32_t i = 0; i < MAX_SEQS; i++) {
		struct before now;

		if (!w->seqs[i])
			continue;
		look(w->seqs[i], &now);
		if (memcmp(&now, &w->before[i], sizeof(now)) != 0)
			fail_msg("%s failed (%s) and changed sequence %u", call, why, i);
	}
}

/* ---- calls --------------------------------------------------------------------------------- */

static float vectors[MAX_SLOTS * MAX_ROW];
static char plane_bytes[MAX_SLOTS * MAX_HEADS * 8];

static int64_t call_journal_set(struct world *w)
{
	static const uint32_t keep[] = {0, 1, 2, UINT32_MAX};
	static const uint64_t rows[] = {0, 0, 1, 2, 5, 40, 200, UINT64_MAX};
	struct {
		struct kvc_journal_options options;
		char more[100]; /* of a later header */
	} o = {.options = {
		       .size = draw(w, 20) ? sizeof(o.options) : number(w) % 100,
		       .mode = (uint32_t)(draw(w, 9) ? 1 + draw(w, 2) : draw(w, 4)),
		       .when_full = (uint32_t)(draw(w, 3) ? 0 : draw(w, 3)),
		       .max_rows = rows[draw(w, 8)],
		       .keep_steps = keep[draw(w, 4)],
	       }};

	return kvc_journal_set(*any(w), draw(w, 20) ? &o.options : NULL);
}

static int64_t call_begin(struct world *w)
{
	struct kvc_seq *seq = *any(w);
	uint64_t n = number(w);

	if (n <= MAX_SLOTS && draw(w, 4) && seq_is_live(seq) &&
	    n <= seq->max_tokens - kvc_length(seq))
		bare_reserve(w->bare, seq, n);
	look_all(w);
	return kvc_update_begin(seq, n, draw(w, 9) ? (uint32_t)draw(w, 2) : (uint32_t)number(w));
}

static int64_t call_write(struct world *w)
{
	const float *k = draw(w, 9) ? vectors : NULL, *v = draw(w, 3) ? vectors : NULL;
	struct kvc_seq *seq = any_open(w);
	uint32_t layer = any_layer(w);
	void *at_k, *at_v;

	switch (draw(w, 3)) {
	case 0: return kvc_write(seq, layer, k, v);
	case 1: return kvc_write_span(seq, layer, number(w), number(w), &at_k, &at_v);
	default:
		return kvc_write_rows(seq, layer, number(w), number(w), k, MAX_ROW * 4, v,
				      MAX_ROW * 4);
	}
}

static int64_t call_scatter(struct world *w)
{
	uint32_t index[MAX_SLOTS * MAX_HEADS];
	struct kvc_seq *seq = any_open(w);
	uint32_t layer = any_layer(w);
	uint64_t slots = kvc_slots(seq, layer) + draw(w, 3), n = number(w), odd = !draw(w, 3);
	const void *planes[2] = {draw(w, 2) ? plane_bytes : NULL, draw(w, 2) ? plane_bytes : NULL};

	for (uint32_t i = 0; i < MAX_SLOTS * MAX_HEADS; i++)
		index[i] = (uint32_t)(odd ? draw(w, slots + 1) : i % (slots + 1));
	if (draw(w, 8) == 0)
		index[draw(w, 4)] = (uint32_t)number(w);
	if (draw(w, 4) && seq_is_live(seq) && seq_mode(seq) != KV_JOURNAL_NONE)
		bare_reserve_scatter(w->bare, seq, 1, n % 16, (uint32_t)draw(w, 4));
	look_all(w);
	return kvc_scatter(seq, layer, n, draw(w, 20) ? index : NULL, (int)draw(w, 2),
			   draw(w, 4) ? vectors : NULL, draw(w, 3) ? vectors : NULL,
			   draw(w, 2) ? planes : NULL);
}

static int64_t call_planes(struct world *w)
{
	const void *planes[2] = {draw(w, 2) ? plane_bytes : NULL, draw(w, 2) ? plane_bytes : NULL};
	static const char *const names[] = {"all", "position", "", NULL};
	struct kvc_seq *seq = any_open(w);
	const char *name = names[draw(w, 4)];

	switch (draw(w, 3)) {
	case 0: return kvc_write_planes(seq, any_layer(w), number(w), number(w), planes);
	case 1: kvc_plane_get(seq, name); return 0;
	default:
		return kvc_plane_set(seq, name, draw(w, 9) ? plane_bytes : NULL,
				     draw(w, 3) ? 5 : (size_t)number(w));
	}
}

static int64_t call_commit(struct world *w)
{
	struct kvc_seq *two[2] = {any_open(w), any_open(w)};

	switch (draw(w, 5)) {
	case 0: return kvc_commit(w->writer, NULL, number(w) % 3);
	case 1: return kvc_commit(w->writer, two, 2);
	case 2: return kvc_abort(two[0]);
	default: return kvc_commit(w->writer, two, 1);
	}
}

static int64_t call_mark(struct world *w)
{
	struct kvc_seq **seq = any(w);
	struct kvc_mark *mark = &w->marks[draw(w, 9) ? (uint64_t)(seq - w->seqs) : 0];

	switch (draw(w, 3)) {
	case 0: return kvc_mark_set(*seq, mark);
	case 1: return kvc_mark_release(*seq, mark);
	default: return kvc_rollback_mark(*seq, mark);
	}
}

static int64_t call_rollback(struct world *w)
{
	struct kvc_seq *two[2] = {*any(w), *any(w)};
	uint64_t remove[2] = {draw(w, 3), number(w)};

	switch (draw(w, 5)) {
	case 0: return kvc_rollback_keep(two[0], number(w));
	case 1: return kvc_rollback_remove(two[0], number(w));
	case 2: return kvc_rollback_steps(two[0], number(w));
	case 3: return kvc_rollback_many(w->writer, two, remove, draw(w, 3));
	default: return kvc_replay(two[0], number(w));
	}
}

static int64_t call_fold(struct world *w)
{
	struct kvc_seq *seq = *any(w), *other = *any(w);

	if (draw(w, 3) && seq_is_live(seq))
		bare_reserve_scatter(w->bare, seq, 4, 40, 1);
	look_all(w);
	/* It begins a journal first. */
	if (draw(w, 3) == 0 && seq_mode(seq) == KV_JOURNAL_REPLAY)
		return kvc_replay_from(seq, other);
	return kvc_fold(seq, number(w));
}

static int64_t call_read(struct world *w)
{
	static char out[MAX_SLOTS * MAX_ROW * 4];
	struct kvc_seq *seq = *any(w);
	uint32_t layer = any_layer(w);

	switch (draw(w, 4)) {
	case 0: return kvc_read_plane(seq, "odd", layer, number(w), number(w), out);
	case 1: return kvc_read(seq, layer, number(w), number(w), NULL, out);
	case 2: return kvc_diff(seq, *any(w), NULL, NULL);
	default: return kvc_read(seq, layer, number(w), number(w), out, NULL);
	}
}

static int64_t call_fork(struct world *w)
{
	struct kvc_seq **to = &w->seqs[draw(w, MAX_SEQS)], *from = *any(w), *made;
	uint64_t n = number(w);

	if (*to == from || (*to && seq_is_live(*to) && draw(w, 3)))
		return 0;
	if (draw(w, 2))
		bare_spare_places(w->bare, w->writer, 1 + draw(w, w->shape->max_tokens), 1);
	look_all(w);
	made = draw(w, 5) ? kvc_fork_local(from, n) : kvc_snapshot_local(from);
	if (!made)
		return -1;
	if (*to)
		seq_end(*to, (*to)->seq_id ? SEQ_END_DROPPED : SEQ_END_LOCAL);
	*to = made;
	return 0;
}

/* As another process would: what it holds is looked at, and given back. */
static int64_t call_core(struct world *w)
{
	struct seg_state *state = calloc(1, sizeof(*state));
	struct kvc_seq *seq = *any(w), *reader;
	uint32_t place;

	assert_int_equal(bare_snapshot(w->bare, seq->place, state), 0);
	reader = bare_open(w->bare, w->writer, w->shape->max_tokens, state);
	assert_int_equal(kvc_diff(seq, reader, NULL, NULL), 0);
	bare_pin(w->bare, state, -1);
	place = reader->place;
	seq_end(reader, SEQ_END_PARKED);
	bare_place_free(w->bare, place);
	seg_state_fini(state);
	free(state);
	return 0;
}

static const struct {
	const char *name;
	int64_t (*fn)(struct world *w);
} calls[] = {
	{"kvc_journal_set", call_journal_set},
	{"kvc_update_begin", call_begin},
	{"kvc_update_begin", call_begin},
	{"kvc_write*", call_write},
	{"kvc_write*", call_write},
	{"kvc_scatter", call_scatter},
	{"kvc_scatter", call_scatter},
	{"kvc_*plane*", call_planes},
	{"kvc_commit or kvc_abort", call_commit},
	{"kvc_*mark*", call_mark},
	{"kvc_rollback_* or kvc_replay", call_rollback},
	{"kvc_fold or kvc_replay_from", call_fold},
	{"kvc_read* or kvc_diff", call_read},
	{"kvc_fork_local or kvc_snapshot_local", call_fork},
	{"a snapshot by the core", call_core},
};
#define N_CALLS (sizeof(calls) / sizeof(calls[0]))

static struct world world_new(const struct shape *shape, uint64_t seed)
{
	struct kv_layout fields = {.fingerprint = {1},
				   .n_layers = shape->n_layers,
				   .layers = (struct kv_layer *)(uintptr_t)shape->layers,
				   .dtype = shape->n_layers ? KV_DTYPE_F32 : 0,
				   .k_format = shape->k_format,
				   .v_format = shape->v_format,
				   .block_tokens = shape->block_tokens,
				   .opaque_bytes = shape->n_layers ? 0 : 48,
				   .n_planes = shape->n_planes,
				   .planes = (struct kv_plane *)(uintptr_t)shape->planes};
	struct world w = {.shape = shape, .random = seed};
	struct errbuf err;

	if (kv_layout_check(&fields, &err))
		fail_msg("%s", err.text);
	w.bare = bare_new(kv_layout_copy(&fields));
	w.writer = bare_writer(w.bare, 0);
	w.layout = w.bare->layout.fields;
	for (uint32_t i = 0; i < MAX_SLOTS * MAX_ROW; i++)
		vectors[i] = (float)(i % 251) - 100.0f;
	for (uint32_t i = 0; i < sizeof(plane_bytes); i++)
		plane_bytes[i] = (char)i;
	return w;
}

static void one_call(struct world *w)
{
	uint64_t c = draw(w, N_CALLS);

	look_all(w);
	if (calls[c].fn(w) >= 0) {
		w->n_ok++;
		return;
	}
	w->n_failed++;
	if (kvc_error() == KVC_EINTERNAL || kvc_error() == KVC_OK || !kvc_error_text()[0])
		fail_msg("%s failed with %s", calls[c].name, kvc_status_name(kvc_error()));
	check_all(w, calls[c].name);
}

static void test_calls(void **state)
{
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct world w = world_new(*state, round);

		for (uint32_t i = 0; i < STEPS; i++)
			one_call(&w);
		assert_true(w.n_ok > STEPS / 8 && w.n_failed > STEPS / 8);
		while (w.writer->seqs)
			seq_end(w.writer->seqs,
				w.writer->seqs->seq_id ? SEQ_END_DROPPED : SEQ_END_LOCAL);
		writer_free(w.writer);
		bare_free(w.bare);
	}
}

static const struct CMUnitTest tests[] = {
	KT_TEST_PARAM("what fails has changed nothing: blocks of one token, a ring of one slot",
		      test_calls, (void *)(uintptr_t)&shapes[0]),
	KT_TEST_PARAM("what fails has changed nothing: rings shorter than blocks, planes",
		      test_calls, (void *)(uintptr_t)&shapes[1]),
	KT_TEST_PARAM("what fails has changed nothing: one token at most", test_calls,
		      (void *)(uintptr_t)&shapes[2]),
	KT_TEST_PARAM("what fails has changed nothing: opaque slots", test_calls,
		      (void *)(uintptr_t)&shapes[3]),
};

KT_MAIN(tests)
