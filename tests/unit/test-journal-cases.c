/*
 * Cases that people met in systems like this one, where journals and quantised storage are
 * concerned, over bare memory: a rollback that reaches one of two stores only (KV-13), rings
 * (KV-15), refusals half way (KV-16), limits (KV-17), scatter across heads (KV-24), positions after
 * eviction (KV-25), scales of odd rows (KV-27).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/unit/journal-world.h"

/* ---- KV-13: overlay and base roll back together ---------------------------------------------- */

#define BASE_TOKENS 256u
#define OVERLAY_TOKENS 40u

static const struct jw_shape u4_shape = {
	.n_layers = 2,
	.layers = {{2, 32, 16, 0}, {1, 16, 32, 0}},
	.k_format = KV_FORMAT_U4,
	.v_format = KV_FORMAT_U4,
	.block_tokens = 16,
};

/* A sequence of n tokens in blocks, as it would be had it never been longer. */
static struct jw_picture picture_of(struct jw *w, uint64_t n, enum kvc_journal_mode mode)
{
	kvc_seq *seq = jw_seq(w);
	struct jw_picture picture;

	for (uint64_t t = 0; t < n; t += 32)
		jw_append(w, seq, t, n - t < 32 ? n - t : 32);
	jw_journal(w, seq, mode);
	picture = jw_picture(w, seq);
	jw_drop(w, seq);
	return picture;
}

static void check_back_and_forth(struct jw *w, kvc_seq *seq,
				 struct jw_picture pictures[OVERLAY_TOKENS + 1])
{
	static const uint64_t keeps[] = {280, BASE_TOKENS};

	for (size_t i = 0; i < 2; i++) {
		jw_ok(kvc_rollback_keep(seq, keeps[i]));
		jw_assert_picture(w, seq, &pictures[keeps[i] - BASE_TOKENS]);
		assert_int_equal(kvc_replay(seq, 0), BASE_TOKENS + OVERLAY_TOKENS - keeps[i]);
		jw_assert_picture(w, seq, &pictures[OVERLAY_TOKENS]);
	}
}

static void test_kv13_rollback(void **state)
{
	struct jw *w = jw_new(&u4_shape);
	struct jw_picture pictures[OVERLAY_TOKENS + 1], inside, empty;
	kvc_seq *seq = jw_seq(w);

	(void)state;
	for (uint64_t t = 0; t < BASE_TOKENS; t += 32)
		jw_append(w, seq, t, 32);
	jw_journal(w, seq, KVC_JOURNAL_REPLAY);
	for (uint64_t t = 0; t <= OVERLAY_TOKENS; t++) {
		pictures[t] = jw_picture(w, seq);
		if (t < OVERLAY_TOKENS)
			jw_append(w, seq, BASE_TOKENS + t, 1);
	}
	check_back_and_forth(w, seq, pictures);
	inside = picture_of(w, 200, KVC_JOURNAL_REPLAY);
	empty = picture_of(w, 0, KVC_JOURNAL_REPLAY);
	jw_ok(kvc_rollback_keep(seq, 200));
	jw_assert_picture(w, seq, &inside);
	assert_int_equal(kvc_replay(seq, 0), 0);
	jw_ok(kvc_rollback_keep(seq, 0));
	jw_assert_picture(w, seq, &empty);
	assert_int_equal(kvc_replay(seq, 0), 0);
	for (uint64_t t = 0; t <= OVERLAY_TOKENS; t++)
		jw_picture_free(&pictures[t]);
	jw_picture_free(&inside);
	jw_picture_free(&empty);
	jw_free(w);
}

/* Beams: four sequences are permuted, two are selected. */
static void test_kv13_permute(void **state)
{
	static const int order[] = {2, 0, 3, 1};
	struct jw *w = jw_new(&u4_shape);
	kvc_seq *seqs[4], *forks[4];
	struct jw_picture pictures[4];

	(void)state;
	for (uint64_t flushed = 0; flushed < 3; flushed++) { /* overlay empty, part full, folded */
		for (uint64_t i = 0; i < 4; i++) {
			seqs[i] = jw_seq(w);
			jw_append(w, seqs[i], 1000 * i, 21);
			jw_journal(w, seqs[i], KVC_JOURNAL_REPLAY);
			for (uint64_t t = 0; flushed && t < 3 + i; t++)
				jw_append(w, seqs[i], 1000 * i + 21 + t, 1);
			if (flushed == 2)
				assert_true(kvc_fold(seqs[i], 0) > 0);
			pictures[i] = jw_picture(w, seqs[i]);
		}
		for (int i = 0; i < 4; i++)
			forks[i] = jw_fork(w, seqs[order[i]]);
		for (int i = 0; i < 4; i++)
			jw_drop(w, seqs[i]);
		for (int i = 0; i < 4; i++)
			jw_assert_picture(w, forks[i], &pictures[order[i]]);
		jw_drop(w, forks[1]);
		jw_drop(w, forks[3]);
		jw_append(w, forks[0], 9000, 5);
		jw_assert_picture(w, forks[2], &pictures[order[2]]);
		jw_ok(kvc_rollback_remove(forks[0], 5));
		jw_assert_picture(w, forks[0], &pictures[order[0]]);
		jw_drop(w, forks[0]);
		jw_drop(w, forks[2]);
		for (int i = 0; i < 4; i++)
			jw_picture_free(&pictures[i]);
	}
	jw_free(w);
}

/* ---- KV-15: rings ---------------------------------------------------------------------------- */

#define RING 64u

static const struct jw_shape ring_shape = {
	.n_layers = 1,
	.layers = {{2, 16, 16, RING}},
	.k_format = KV_FORMAT_INT8,
	.v_format = KV_FORMAT_U8,
	.block_tokens = 16,
	.has_positions = true,
};

/* Slot t % 64 holds token t, of the last 64; in the order of positions. */
static void check_ring(struct jw *w, kvc_seq *seq)
{
	uint64_t n = kvc_length(seq);
	uint32_t positions[RING * 2];

	assert_int_equal(kvc_position(seq), n);
	assert_int_equal(kvc_slots(seq, 0), n < RING ? n : RING);
	jw_ok(kvc_read_plane(seq, "position", 0, 0, kvc_slots(seq, 0), positions));
	for (uint64_t t = n < RING ? 0 : n - RING; t < n; t++)
		for (uint32_t h = 0; h < 2; h++) {
			assert_int_equal(positions[t % RING * 2 + h], t);
			jw_assert_vector(w, seq, 0, h, t % RING, t);
		}
}

static void append_to(struct jw *w, kvc_seq *seq, uint64_t n)
{
	while (kvc_length(seq) < n)
		jw_append(w, seq, kvc_length(seq), 1);
}

static void check_ring_rollback(enum kvc_journal_mode mode)
{
	static const uint64_t removes[] = {10, 40, 64, 100};
	struct jw *w = jw_new(&ring_shape);
	kvc_seq *seq = jw_seq(w);
	const struct kvc_journal_options options = {
		.size = sizeof(options), .mode = mode, .keep_steps = mode == 1 ? 128 : 0};

	jw_ok(kvc_journal_set(seq, &options));
	append_to(w, seq, 60);
	jw_ok(kvc_rollback_remove(seq, 10));
	check_ring(w, seq);
	for (size_t i = 0; i < 4; i++) {
		append_to(w, seq, 100);
		check_ring(w, seq);
		jw_ok(kvc_rollback_remove(seq, removes[i]));
		check_ring(w, seq);
		append_to(w, seq, kvc_length(seq) + 5);
		check_ring(w, seq);
	}
	jw_free(w);
}

static void test_kv15_undo(void **state)
{
	(void)state;
	check_ring_rollback(KVC_JOURNAL_UNDO);
}

static void test_kv15_replay(void **state)
{
	(void)state;
	check_ring_rollback(KVC_JOURNAL_REPLAY);
}

/* What is not kept is refused, and nothing moves. */
static void test_kv15_refused(void **state)
{
	const struct kvc_journal_options options = {
		.size = sizeof(options), .mode = KVC_JOURNAL_UNDO, .keep_steps = 8};
	struct jw *w = jw_new(&ring_shape);
	kvc_seq *seq = jw_seq(w), *without = jw_seq(w);
	struct jw_picture before;

	(void)state;
	append_to(w, without, RING);
	jw_fails(kvc_append_begin(without, 1), KVC_EBOUND, "64");
	jw_ok(kvc_journal_set(seq, &options));
	append_to(w, seq, 100);
	before = jw_picture(w, seq);
	for (uint64_t n = 20; n <= 100; n += 40) {
		jw_fails(kvc_rollback_remove(seq, n), KVC_EJOURNAL, "journal");
		jw_assert_picture(w, seq, &before);
	}
	check_ring(w, seq);
	jw_ok(kvc_rollback_remove(seq, 8));
	check_ring(w, seq);
	jw_picture_free(&before);
	jw_free(w);
}

/* Forgotten versions of the planes come back into the reserve. */
static void test_reserve_of_planes(void **state)
{
	static const struct jw_shape shape = {
		.n_layers = 1,
		.layers = {{1, 16, 16, 8}},
		.k_format = KV_FORMAT_RAW,
		.v_format = KV_FORMAT_RAW,
		.block_tokens = 8,
		.state_bytes = 24,
	};
	struct kvc_journal_options options = {.size = sizeof(options), .mode = KVC_JOURNAL_UNDO};

	(void)state;
	for (options.keep_steps = 1; options.keep_steps <= 5; options.keep_steps += 2) {
		struct jw *w = jw_new(&shape);
		kvc_seq *seq = jw_seq(w);
		float row[16] = {1};
		char bytes[24] = {0};

		jw_ok(kvc_journal_set(seq, &options));
		jw_reserve(w, seq, 40, 40);
		for (char token = 0; token < 40; token++) {
			bytes[0] = token;
			jw_ok(kvc_append_begin(seq, 1));
			jw_ok(kvc_write(seq, 0, row, row));
			jw_ok(kvc_plane_set(seq, "state", bytes, sizeof(bytes)));
			jw_ok(kvc_commit(w->writer, &seq, 1));
			assert_int_equal(*(const char *)kvc_plane_get(seq, "state"), token);
		}
		jw_free(w);
	}
}

/* ---- KV-16: all layers, all sequences, or none ------------------------------------------------ */

static const struct jw_shape mixed_shape = {
	.n_layers = 3,
	.layers = {{2, 16, 16, 0}, {1, 32, 16, 24}, {3, 16, 16, 0}},
	.k_format = KV_FORMAT_INT8,
	.v_format = KV_FORMAT_U4,
	.block_tokens = 8,
	.has_positions = true,
};

/* The ring of layer 1 no longer has what the dense layers have. */
static void test_kv16_layers(void **state)
{
	const struct kvc_journal_options options = {
		.size = sizeof(options), .mode = KVC_JOURNAL_UNDO, .keep_steps = 4};
	struct jw *w = jw_new(&mixed_shape);
	struct jw_picture before;
	kvc_seq *seqs[3];

	(void)state;
	for (uint64_t i = 0; i < 3; i++) {
		seqs[i] = jw_seq(w);
		jw_ok(kvc_journal_set(seqs[i], &options));
		append_to(w, seqs[i], i == 1 ? 60 : 20);
	}
	before = jw_picture(w, seqs[1]);
	jw_fails(kvc_rollback_keep(seqs[1], 30), KVC_EJOURNAL, "30");
	jw_assert_picture(w, seqs[1], &before);
	jw_fails(kvc_rollback_many(w->writer, seqs, (const uint64_t[]){3, 30, 3}, 3), KVC_EJOURNAL,
		 "sequence 1");
	jw_assert_picture(w, seqs[1], &before);
	for (int i = 0; i < 3; i += 2)
		assert_int_equal(kvc_length(seqs[i]), 20);
	jw_ok(kvc_rollback_many(w->writer, seqs, (const uint64_t[]){3, 2, 0}, 3));
	assert_int_equal(kvc_length(seqs[0]), 17);
	assert_int_equal(kvc_length(seqs[1]), 58);
	assert_int_equal(kvc_length(seqs[2]), 20);
	jw_picture_free(&before);
	jw_free(w);
}

/* Blocks are lacking for one of three; then they are there. */
static void test_kv16_blocks(void **state)
{
	struct jw *w = jw_new(&mixed_shape);
	struct jw_picture before[3], after[3];
	struct seg_state snapshot;
	kvc_seq *seqs[3];

	(void)state;
	for (uint64_t i = 0; i < 3; i++) {
		seqs[i] = jw_seq(w);
		jw_journal(w, seqs[i], KVC_JOURNAL_UNDO);
		append_to(w, seqs[i], 40);
		after[i] = jw_picture(w, seqs[i]);
		append_to(w, seqs[i], 44);
		before[i] = jw_picture(w, seqs[i]);
	}
	/* the ring of one is frozen, and its reserve is gone */
	assert_int_equal(bare_snapshot(w->bare, seqs[2]->place, &snapshot), 0);
	while (seqs[2]->groups[1].spares.n)
		seqs[2]->groups[1].release.refs[seqs[2]->groups[1].release.n++] =
			seqs[2]->groups[1].spares.refs[--seqs[2]->groups[1].spares.n];
	jw_fails(kvc_rollback_many(w->writer, seqs, (const uint64_t[]){4, 4, 4}, 3), KVC_ERESERVE,
		 "reserve");
	for (int i = 0; i < 3; i++)
		jw_assert_picture(w, seqs[i], &before[i]);
	assert_int_equal(bare_reserve_scatter(w->bare, seqs[2], 1, 1, 4), 0);
	jw_ok(kvc_rollback_many(w->writer, seqs, (const uint64_t[]){4, 4, 4}, 3));
	for (int i = 0; i < 3; i++) {
		jw_assert_picture(w, seqs[i], &after[i]);
		jw_picture_free(&before[i]);
		jw_picture_free(&after[i]);
	}
	bare_pin(w->bare, &snapshot, -1);
	seg_state_fini(&snapshot);
	jw_free(w);
}

/* ---- KV-17: limits ---------------------------------------------------------------------------- */

static void check_steps(enum kvc_journal_mode mode, uint64_t length)
{
	static const uint64_t amounts[] = {0, 1, 3, 17, 18, UINT64_C(1) << 31, UINT64_MAX};
	struct jw *w = jw_new(&mixed_shape);
	kvc_seq *seq = jw_seq(w);
	struct jw_picture whole, *at = calloc(length + 1, sizeof(*at));

	jw_journal(w, seq, mode);
	for (uint64_t t = 0; t <= length; t++) {
		at[t] = jw_picture(w, seq);
		if (t < length)
			jw_append(w, seq, t, 1);
	}
	whole = jw_picture(w, seq);
	for (size_t i = 0; i < sizeof(amounts) / sizeof(amounts[0]); i++) {
		uint64_t n = amounts[i];

		if (n > length) {
			jw_fails(kvc_rollback_steps(seq, n), KVC_EJOURNAL, "steps");
			jw_fails(kvc_rollback_remove(seq, n), KVC_ERANGE, "cannot remove");
			jw_fails(kvc_rollback_keep(seq, n), KVC_ERANGE, "cannot keep");
			jw_assert_picture(w, seq, &whole);
			continue;
		}
		jw_ok(n % 2 ? kvc_rollback_steps(seq, n) : kvc_rollback_remove(seq, n));
		jw_assert_picture(w, seq, &at[length - n]);
		for (uint64_t t = length - n; t < length; t++)
			jw_append(w, seq, t, 1);
		jw_assert_picture(w, seq, &whole);
	}
	for (uint64_t t = 0; t <= length; t++)
		jw_picture_free(&at[t]);
	jw_picture_free(&whole);
	free(at);
	jw_free(w);
}

static void test_kv17_steps(void **state)
{
	static const uint64_t lengths[] = {0, 3, 16, 17};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		check_steps(KVC_JOURNAL_UNDO, lengths[i]);
		check_steps(KVC_JOURNAL_REPLAY, lengths[i]);
	}
}

/* Marks: of now, older than the oldest, newer than the newest, of an empty cache. */
static void test_kv17_marks(void **state)
{
	struct kvc_journal_options options = {.size = sizeof(options),
					      .mode = KVC_JOURNAL_UNDO,
					      .when_full = KVC_FULL_FORGET,
					      .max_rows = 40};
	struct jw *w = jw_new(&mixed_shape);
	kvc_seq *seq = jw_seq(w);
	struct jw_picture empty, now;
	kvc_mark marks[3];

	(void)state;
	jw_ok(kvc_journal_set(seq, &options));
	jw_mark(w, seq, &marks[0]);
	empty = jw_picture(w, seq);
	jw_append(w, seq, 0, 3);
	jw_mark(w, seq, &marks[1]);
	now = jw_picture(w, seq);
	jw_ok(kvc_rollback_mark(seq, &marks[1]));
	jw_assert_picture(w, seq, &now);
	jw_append(w, seq, 3, 2);
	jw_mark(w, seq, &marks[2]);
	jw_ok(kvc_rollback_mark(seq, &marks[0]));
	jw_assert_picture(w, seq, &empty);
	for (int i = 1; i < 3; i++)
		jw_fails(kvc_rollback_mark(seq, &marks[i]), KVC_ENOTFOUND, "mark");
	append_to(w, seq, 60);
	jw_picture_free(&now);
	now = jw_picture(w, seq);
	jw_fails(kvc_rollback_mark(seq, &marks[0]), KVC_EJOURNAL, "mark");
	jw_assert_picture(w, seq, &now);
	jw_ok(kvc_mark_release(seq, &marks[0]));
	jw_fails(kvc_mark_release(seq, &marks[0]), KVC_ENOTFOUND, "mark");
	jw_picture_free(&now);
	jw_picture_free(&empty);
	jw_free(w);
}

/* ---- KV-24: scatter ---------------------------------------------------------------------------- */

#define SCATTER_SLOTS 100u

/* Every stored byte of the layer: written vectors as their codec has them, all others, and what is
 * behind the last slot, as before. */
static void check_scatter(uint32_t n_heads, uint32_t width, uint32_t format, uint32_t n,
			  bool replay)
{
	const struct jw_shape shape = {.n_layers = 1,
				       .layers = {{n_heads, width, width, 0}},
				       .k_format = format,
				       .v_format = format,
				       .block_tokens = 16};
	struct jw *w = jw_new(&shape);
	kvc_seq *seq = jw_seq(w);
	uint32_t *index = calloc((size_t)n_heads * n, sizeof(*index));
	uint64_t tokens[8][SCATTER_SLOTS];
	struct jw_picture before, after;

	for (uint64_t t = 0; t < SCATTER_SLOTS; t += 25)
		jw_append(w, seq, t, 25);
	jw_journal(w, seq, replay ? KVC_JOURNAL_REPLAY : KVC_JOURNAL_UNDO);
	for (uint32_t h = 0; h < n_heads; h++)
		for (uint32_t s = 0; s < SCATTER_SLOTS; s++)
			tokens[h][s] = s;
	for (uint32_t h = 0; h < n_heads; h++)
		for (uint32_t i = 0; i < n; i++) { /* first and last slots are among them */
			uint32_t slot = (i * 37 + h * 99) % SCATTER_SLOTS;

			index[h * n + i] = slot;
			tokens[h][slot] = 1000 + i;
		}
	before = jw_picture(w, seq);
	jw_scatter(w, seq, 0, n, index, 1000);
	for (uint32_t h = 0; h < n_heads; h++)
		for (uint32_t s = 0; s < SCATTER_SLOTS; s++)
			jw_assert_vector(w, seq, 0, h, s, tokens[h][s]);
	jw_assert_untouched(w, seq, &before, 0, n, replay ? NULL : index);
	if (replay) {
		assert_true(kvc_fold(seq, 0) > 0);
		jw_assert_untouched(w, seq, &before, 0, n, index);
	} else {
		jw_ok(kvc_rollback_steps(seq, 1));
		after = jw_picture(w, seq);
		assert_memory_equal(before.stored, after.stored, before.stored_bytes);
		jw_picture_free(&after);
	}
	jw_picture_free(&before);
	free(index);
	jw_free(w);
}

static void test_kv24(void **state)
{
	static const uint32_t heads[] = {3, 5, 8}, widths[] = {64, 80, 96, 128},
			      batches[] = {1, 31, 32, 33, 65},
			      formats[] = {KV_FORMAT_RAW, KV_FORMAT_INT8, KV_FORMAT_U8,
					   KV_FORMAT_U4, KV_FORMAT_FP8};
	unsigned n = 0;

	(void)state;
	for (size_t h = 0; h < 3; h++)
		for (size_t wd = 0; wd < 4; wd++)
			for (size_t b = 0; b < 5; b++, n++)
				check_scatter(heads[h], widths[wd], formats[n % 5], batches[b],
					      n % 2);
	for (size_t f = 0; f < 5; f++)
		for (size_t b = 0; b < 5; b++)
			check_scatter(5, 80, formats[f], batches[b], (f + b) % 2);
}

/* ---- KV-25: positions after eviction ------------------------------------------------------------ */

#define CAPACITY 32u
#define EVICTING_HEADS 4u

static const struct jw_shape evicting_shape = {
	.n_layers = 1,
	.layers = {{EVICTING_HEADS, 16, 16, CAPACITY}},
	.k_format = KV_FORMAT_RAW,
	.v_format = KV_FORMAT_RAW,
	.block_tokens = 8,
	.has_positions = true,
};

/* Token t goes to another slot in each head. */
static uint32_t victim(uint64_t t, uint32_t head)
{
	return (uint32_t)(t * (2 * head + 3) + head * 7) % CAPACITY;
}

static void evict(struct jw *w, kvc_seq *seq)
{
	uint32_t index[EVICTING_HEADS];
	uint64_t t = kvc_length(seq);

	for (uint32_t h = 0; h < EVICTING_HEADS; h++)
		index[h] = victim(t, h);
	jw_append_scattered(w, seq, t, index);
}

static void check_map(kvc_seq *seq)
{
	uint32_t got[CAPACITY * EVICTING_HEADS];
	uint64_t n = kvc_length(seq);

	assert_int_equal(kvc_position(seq), n);
	assert_int_equal(kvc_slots(seq, 0), CAPACITY);
	jw_ok(kvc_read_plane(seq, "position", 0, 0, CAPACITY, got));
	for (uint32_t h = 0; h < EVICTING_HEADS; h++) {
		uint32_t want[CAPACITY];

		for (uint32_t t = 0; t < n; t++)
			want[t < CAPACITY ? t : victim(t, h)] = t;
		for (uint32_t s = 0; s < CAPACITY; s++)
			assert_int_equal(got[s * EVICTING_HEADS + h], want[s]);
	}
}

static void check_positions(enum kvc_journal_mode mode)
{
	struct jw *w = jw_new(&evicting_shape);
	kvc_seq *seq = jw_seq(w), *fork, *snapshot;
	struct jw_picture at_50, at_55;

	jw_journal(w, seq, mode);
	append_to(w, seq, CAPACITY);
	while (kvc_length(seq) < 50)
		evict(w, seq);
	check_map(seq);
	at_50 = jw_picture(w, seq);
	snapshot = jw_snapshot(w, seq);
	fork = jw_fork(w, seq);
	for (int i = 0; i < 5; i++)
		evict(w, seq);
	check_map(seq);
	at_55 = jw_picture(w, seq);
	check_map(fork);
	for (int i = 0; i < 3; i++)
		evict(w, fork);
	check_map(fork);
	jw_assert_picture(w, seq, &at_55);
	jw_ok(kvc_rollback_steps(seq, 5));
	jw_assert_picture(w, seq, &at_50);
	check_map(snapshot);
	assert_int_equal(kvc_length(fork), 53);
	check_map(fork);
	jw_picture_free(&at_50);
	jw_picture_free(&at_55);
	jw_free(w);
}

static void test_kv25(void **state)
{
	(void)state;
	check_positions(KVC_JOURNAL_UNDO);
	check_positions(KVC_JOURNAL_REPLAY);
}

/* ---- KV-27: odd rows --------------------------------------------------------------------------- */

static const struct {
	const char *name;
	float a, b; /* elements, taken in turn */
	bool is_refused;
} odd_rows[] = {
	{"zero", 0, 0, false},
	{"minus zero", -0.0f, -0.0f, false},
	{"constant 100", 100, 100, false},
	{"at most 1e-4", 1e-4f, -5e-5f, false},
	{"at most 6e4", 6e4f, -6e4f, false},
	{"denormal", 1e-41f, -2e-41f, false},
	{"NaN", NAN, 1, true},
	{"infinity", 1, INFINITY, true},
	{"minus infinity", -INFINITY, 0, true},
};

static void check_odd_row(uint32_t format, size_t row, enum kvc_journal_mode mode)
{
	const struct jw_shape shape = {.n_layers = 1,
				       .layers = {{1, 32, 32, 0}},
				       .k_format = format,
				       .v_format = format,
				       .block_tokens = 4};
	struct jw *w = jw_new(&shape);
	kvc_seq *seq = jw_seq(w);
	const struct kv_codec *codec = &w->bare->layout.codecs[0];
	bool refused = odd_rows[row].is_refused && format != KV_FORMAT_RAW;
	float vector[32], k[64], v[64], bound;

	jw_append(w, seq, 7, 1);
	jw_journal(w, seq, mode);
	for (int i = 0; i < 32; i++)
		vector[i] = i % 2 ? odd_rows[row].a : odd_rows[row].b;
	jw_reserve(w, seq, 1, 4);
	jw_ok(kvc_append_begin(seq, 1));
	if (refused && mode != KVC_JOURNAL_REPLAY) {
		jw_fails(kvc_write(seq, 0, vector, vector), KVC_EVALUE, "NaN or an infinity");
		jw_ok(kvc_abort(seq));
	} else {
		jw_ok(kvc_write(seq, 0, vector, vector));
		jw_ok(kvc_commit(w->writer, &seq, 1));
		if (mode == KVC_JOURNAL_REPLAY && refused) {
			jw_fails(kvc_fold(seq, 0), KVC_EVALUE, "NaN or an infinity");
			jw_ok(kvc_read(seq, 0, 1, 1, k, v));
			assert_memory_equal(k, vector, sizeof(vector));
			jw_ok(kvc_rollback_remove(seq, 1));
		} else if (mode == KVC_JOURNAL_REPLAY) {
			assert_true(kvc_fold(seq, 0) > 0);
		}
	}
	jw_assert_vector(w, seq, 0, 0, 0, 7); /* the neighbour */
	assert_int_equal(kvc_length(seq), refused ? 1 : 2);
	if (!refused) {
		jw_ok(kvc_read(seq, 0, 1, 1, k, v));
		bound = kv_codec_error_bound(codec, fminf(odd_rows[row].a, odd_rows[row].b),
					     fmaxf(odd_rows[row].a, odd_rows[row].b));
		for (int i = 0; i < 32 && format != KV_FORMAT_RAW; i++)
			if (!(fabsf(k[i] - vector[i]) <= bound && v[i] == k[i]))
				fail_msg("%s, format %u: %g comes back as %g, the bound is %g",
					 odd_rows[row].name, format, (double)vector[i],
					 (double)k[i], (double)bound);
		if (format == KV_FORMAT_RAW)
			assert_memory_equal(k, vector, sizeof(vector));
	}
	jw_free(w);
}

static void test_kv27(void **state)
{
	(void)state;
	for (uint32_t format = 1; format <= KV_FORMAT_MAX; format++)
		for (size_t row = 0; row < sizeof(odd_rows) / sizeof(odd_rows[0]); row++)
			for (uint32_t mode = 0; mode < 3; mode++)
				check_odd_row(format, row, (enum kvc_journal_mode)mode);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("KV-13: a rollback reaches overlay and quantised base", test_kv13_rollback),
	KT_TEST("KV-13: beams keep their overlays when they are permuted", test_kv13_permute),
	KT_TEST("KV-15: a ring rolls back over slots that were overwritten: undo", test_kv15_undo),
	KT_TEST("KV-15: a ring rolls back over slots that were overwritten: replay",
		test_kv15_replay),
	KT_TEST("KV-15: a ring refuses what it does not hold any more", test_kv15_refused),
	KT_TEST("a reserve for n tokens has the planes of n updates", test_reserve_of_planes),
	KT_TEST("KV-16: one layer refuses, and none rolls back", test_kv16_layers),
	KT_TEST("KV-16: blocks lack for one sequence, and none rolls back", test_kv16_blocks),
	KT_TEST("KV-17: steps: 0, all, more than all", test_kv17_steps),
	KT_TEST("KV-17: marks: of now, gone, forgotten", test_kv17_marks),
	KT_TEST("KV-24: a scatter changes the named vectors, and no other byte", test_kv24),
	KT_TEST("KV-25: positions are those of the tokens, whatever was evicted", test_kv25),
	KT_TEST("KV-27: odd rows come back within the bound, or are refused", test_kv27),
};

KT_MAIN(tests)
