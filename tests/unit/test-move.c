/*
 * kvc_move over bare memory: stored bytes and slot planes of committed slots go to other slots,
 * bit for bit, other ones for each head; rollback and replay know it; forks keep what they had.
 */
#include <stdlib.h>
#include <string.h>

#include "client/journal.h"
#include "client/slots.h"
#include "tests/support/runner.h"
#include "tests/unit/journal-world.h"

#define TOKENS 40u
#define HEADS 2u

static const struct jw_shape shapes[] = {
	{1, {{HEADS, 32, 32, 0}}, KV_FORMAT_RAW, KV_FORMAT_RAW, 16, true, 0, 0},
	{1, {{HEADS, 32, 64, 0}}, KV_FORMAT_INT8, KV_FORMAT_U4, 16, true, 0, 0},
	{1, {{HEADS, 32, 32, 0}}, KV_FORMAT_Q4, KV_FORMAT_U8, 8, true, 0, 0},
	{1, {{HEADS, 64, 0, 0}}, KV_FORMAT_FP8, KV_FORMAT_FP8, 16, true, 0, 0},
};
#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* Everything that is stored of one head of a slot. */
static size_t stored_of(kvc_seq *seq, uint32_t head, uint64_t slot, char *to)
{
	memset(to, 0, 1024);
	journal_save_slot(seq, 0, head, slot, journal_all_parts(seq, 0), to);
	return seq->layout->fields->layer_maps[0].stored_bytes;
}

static const uint32_t from[HEADS * 3] = {0, 17, 5, 39, 0, 21};
static const uint32_t to[HEADS * 3] = {30, 0, 6, 3, 38, 22};

static kvc_seq *filled(struct jw *w, enum kvc_journal_mode mode)
{
	kvc_seq *seq = jw_seq(w);

	jw_journal(w, seq, mode);
	jw_append(w, seq, 0, TOKENS);
	return seq;
}

static void move(struct jw *w, kvc_seq *seq)
{
	jw_reserve(w, seq, 1, 16);
	jw_ok(kvc_update_begin(seq, 0, 0));
	jw_ok(kvc_move(seq, 0, 3, from, to, 0));
	jw_ok(kvc_commit(w->writer, &seq, 1));
}

static void test_undo_bytes(void **state)
{
	char before[HEADS][TOKENS][1024], now[1024];

	(void)state;
	for (size_t i = 0; i < N_SHAPES; i++) {
		struct jw *w = jw_new(&shapes[i]);
		kvc_seq *seq = filled(w, KVC_JOURNAL_UNDO);
		struct jw_picture picture = jw_picture(w, seq);
		size_t n = 0;

		for (uint32_t h = 0; h < HEADS; h++)
			for (uint32_t s = 0; s < TOKENS; s++)
				n = stored_of(seq, h, s, before[h][s]);
		move(w, seq);
		for (uint32_t h = 0; h < HEADS; h++)
			for (uint32_t j = 0; j < 3; j++) {
				stored_of(seq, h, to[h * 3 + j], now);
				assert_memory_equal(now, before[h][from[h * 3 + j]], n);
			}
		jw_assert_untouched(w, seq, &picture, 0, 3, to);
		jw_ok(kvc_rollback_steps(seq, 1));
		jw_assert_picture(w, seq, &picture);
		assert_int_equal(kvc_replay(seq, 0), 1);
		for (uint32_t h = 0; h < HEADS; h++)
			for (uint32_t j = 0; j < 3; j++) {
				stored_of(seq, h, to[h * 3 + j], now);
				assert_memory_equal(now, before[h][from[h * 3 + j]], n);
			}
		jw_picture_free(&picture);
		jw_free(w);
	}
}

/* What kvc_read and kvc_read_plane give of one head of a slot. */
static void shown_of(struct jw *w, kvc_seq *seq, uint32_t head, uint64_t slot, float shown[2][64],
		     uint32_t *position)
{
	const struct kv_layer *l = &w->layout->layers[0];
	float k[HEADS * 64], v[HEADS * 64];
	uint32_t positions[HEADS];

	memset(shown, 0, 2 * sizeof(shown[0]));
	jw_ok(kvc_read(seq, 0, slot, 1, k, l->v_width ? v : NULL));
	jw_ok(kvc_read_plane(seq, "position", 0, slot, 1, positions));
	memcpy(shown[0], k + head * l->k_width, l->k_width * sizeof(float));
	memcpy(shown[1], v + head * l->v_width, l->v_width * sizeof(float));
	*position = positions[head];
}

static void check_shown(struct jw *w, kvc_seq *seq, float (*shown)[TOKENS][2][64])
{
	float now[2][64];
	uint32_t position;

	for (uint32_t h = 0; h < HEADS; h++)
		for (uint32_t s = 0; s < TOKENS; s++) {
			uint32_t want = s;

			for (uint32_t j = 0; j < 3; j++)
				if (to[h * 3 + j] == s)
					want = from[h * 3 + j];
			shown_of(w, seq, h, s, now, &position);
			assert_memory_equal(now, shown[h][want], sizeof(now));
			assert_int_equal(position, want);
		}
}

/* Half of the tokens in blocks, half in rows. */
static void test_replay_values(void **state)
{
	static float shown[HEADS][TOKENS][2][64];
	uint32_t position;

	(void)state;
	for (size_t i = 0; i < N_SHAPES; i++) {
		struct jw *w = jw_new(&shapes[i]);
		kvc_seq *seq = jw_seq(w);
		struct jw_picture picture;

		jw_append(w, seq, 0, TOKENS / 2);
		jw_journal(w, seq, KVC_JOURNAL_REPLAY);
		jw_append(w, seq, TOKENS / 2, TOKENS / 2);
		for (uint32_t h = 0; h < HEADS; h++)
			for (uint32_t s = 0; s < TOKENS; s++)
				shown_of(w, seq, h, s, shown[h][s], &position);
		picture = jw_picture(w, seq);
		move(w, seq);
		check_shown(w, seq, shown);
		jw_assert_untouched(w, seq, &picture, 0, 0, NULL);
		jw_ok(kvc_rollback_steps(seq, 1));
		jw_assert_picture(w, seq, &picture);
		assert_int_equal(kvc_replay(seq, 0), 1);
		check_shown(w, seq, shown);
		jw_picture_free(&picture);
		jw_free(w);
	}
}

static void test_forks(void **state)
{
	(void)state;
	for (int mode = KVC_JOURNAL_UNDO; mode <= KVC_JOURNAL_REPLAY; mode++) {
		struct jw *w = jw_new(&shapes[1]);
		kvc_seq *seq = filled(w, mode), *fork = jw_fork(w, seq);
		kvc_seq *snapshot = jw_snapshot(w, seq);
		struct jw_picture picture = jw_picture(w, seq), moved, there;

		if (mode == KVC_JOURNAL_UNDO)
			jw_journal(w, fork, mode);
		move(w, seq);
		jw_assert_picture(w, fork, &picture);
		jw_assert_picture(w, snapshot, &picture);
		moved = jw_picture(w, seq);
		move(w, fork);
		there = jw_picture(w, fork);
		assert_memory_equal(moved.shown, there.shown, moved.shown_bytes);
		jw_assert_picture(w, snapshot, &picture);
		jw_picture_free(&there);
		jw_picture_free(&moved);
		jw_picture_free(&picture);
		jw_free(w);
	}
}

/* The slots of two tokens are swapped, a third is moved to where a new token would be, and the new
 * token takes its place: all with what was committed. */
static void test_swap_and_new(void **state)
{
	static const uint32_t sources[3] = {4, 9, 7}, targets[3] = {9, 4, TOKENS};

	(void)state;
	for (int mode = KVC_JOURNAL_UNDO; mode <= KVC_JOURNAL_REPLAY; mode++) {
		struct jw *w = jw_new(&shapes[0]);
		kvc_seq *seq = filled(w, mode);
		struct jw_picture picture = jw_picture(w, seq);

		jw_reserve(w, seq, 1, 16);
		jw_ok(kvc_update_begin(seq, 1, 0));
		jw_ok(kvc_write_planes(seq, 0, 0, 1, (const void *[]){(uint32_t[HEADS]){0}}));
		jw_ok(kvc_move(seq, 0, 3, sources, targets, 1));
		jw_ok(kvc_commit(w->writer, &seq, 1));
		for (uint32_t h = 0; h < HEADS; h++) {
			jw_assert_vector(w, seq, 0, h, 9, 4);
			jw_assert_vector(w, seq, 0, h, 4, 9);
			jw_assert_vector(w, seq, 0, h, TOKENS, 7);
			jw_assert_vector(w, seq, 0, h, 7, 7);
		}
		jw_ok(kvc_rollback_steps(seq, 1));
		jw_assert_picture(w, seq, &picture);
		jw_picture_free(&picture);
		jw_free(w);
	}
}

static void test_later_wins(void **state)
{
	struct jw *w = jw_new(&shapes[0]);
	kvc_seq *seq = filled(w, KVC_JOURNAL_UNDO);

	(void)state;
	jw_reserve(w, seq, 1, 16);
	jw_ok(kvc_update_begin(seq, 0, 0));
	jw_ok(kvc_move(seq, 0, 1, (uint32_t[]){1}, (uint32_t[]){2}, 1));
	jw_ok(kvc_move(seq, 0, 1, (uint32_t[]){2}, (uint32_t[]){3}, 1));
	jw_ok(kvc_move(seq, 0, 1, (uint32_t[]){5}, (uint32_t[]){2}, 1));
	jw_ok(kvc_commit(w->writer, &seq, 1));
	jw_assert_vector(w, seq, 0, 0, 3, 2); /* what was committed, not what was moved there */
	jw_assert_vector(w, seq, 0, 1, 2, 5);
	jw_free(w);
}

static void test_errors(void **state)
{
	static const uint32_t two[2] = {1, 2}, twice[2] = {3, 3}, far[2] = {1, TOKENS};
	struct jw *w = jw_new(&shapes[0]);
	kvc_seq *seq = filled(w, KVC_JOURNAL_UNDO), *without = jw_seq(w);
	struct jw_picture picture = jw_picture(w, seq);

	(void)state;
	jw_fails(kvc_move(seq, 0, 2, two, two, 1), KVC_EINVAL, "no update is open");
	jw_reserve(w, seq, 1, 16);
	jw_reserve(w, without, 1, 0);
	jw_ok(kvc_append_begin(without, 1));
	jw_fails(kvc_move(without, 0, 1, two, two, 1), KVC_EUNSUPPORTED, "journal");
	jw_ok(kvc_abort(without));
	jw_ok(kvc_update_begin(seq, 0, 0));
	jw_fails(kvc_move(seq, 1, 2, two, two, 1), KVC_ERANGE, "layer 1");
	jw_fails(kvc_move(seq, 0, 2, NULL, two, 1), KVC_EINVAL, "from is NULL");
	jw_fails(kvc_move(seq, 0, 2, two, NULL, 1), KVC_EINVAL, "to is NULL");
	jw_fails(kvc_move(seq, 0, 2, two, twice, 1), KVC_EINVAL, "twice");
	jw_fails(kvc_move(seq, 0, 2, far, two, 1), KVC_ERANGE, "slot 40");
	jw_fails(kvc_move(seq, 0, 2, two, far, 1), KVC_ERANGE, "slot 40");
	jw_fails(kvc_move(seq, 0, TOKENS + 1, two, two, 1), KVC_ERANGE, "41");
	jw_ok(kvc_move(seq, 0, 0, two, two, 1));
	jw_ok(kvc_move(seq, 0, 2, twice, two, 1)); /* one source for two */
	jw_ok(kvc_abort(seq));
	jw_assert_picture(w, seq, &picture);
	jw_picture_free(&picture);
	jw_free(w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("stored bytes and planes move as they are, head by head, back and again",
		test_undo_bytes),
	KT_TEST("rows of a replay journal get what kvc_read gives, over a base untouched",
		test_replay_values),
	KT_TEST("a fork and a snapshot keep what they had", test_forks),
	KT_TEST("slots swap, and a new slot gets an old token", test_swap_and_new),
	KT_TEST("of several moves the later wins, each with what was committed", test_later_wins),
	KT_TEST("what cannot be moved is refused, and nothing has changed", test_errors),
};

KT_MAIN(tests)
