/*
 * What each call of journals, planes and quantised storage refuses: the status that the header
 * promises, a text that names the limit and the remedy, and nothing changed. Over bare memory.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/unit/journal-world.h"

static const struct jw_shape shape = {
	.n_layers = 2,
	.layers = {{2, 32, 16, 0}, {1, 16, 0, 12}},
	.k_format = KV_FORMAT_INT8,
	.v_format = KV_FORMAT_U8,
	.block_tokens = 4,
	.has_positions = true,
	.state_bytes = 24,
};

static char some[1 << 14];

/* A sequence with n tokens. */
static kvc_seq *seq_of(struct jw *w, enum kvc_journal_mode mode, uint64_t n)
{
	kvc_seq *seq = jw_seq(w);

	jw_journal(w, seq, mode);
	for (uint64_t t = 0; t < n; t++)
		jw_append(w, seq, t, 1);
	return seq;
}

static void begin(struct jw *w, kvc_seq *seq, uint64_t n)
{
	jw_reserve(w, seq, n, 64);
	jw_ok(kvc_update_begin(seq, n, 0));
}

/* ---- begin ---------------------------------------------------------------------------------- */

static void test_begin(void **state)
{
	struct jw *w = jw_new(&shape);
	kvc_seq *none = seq_of(w, KVC_JOURNAL_NONE, 10), *undo = seq_of(w, KVC_JOURNAL_UNDO, 10);
	kvc_seq *snapshot = jw_snapshot(w, undo);

	(void)state;
	jw_fails(kvc_update_begin(none, 0, 0), KVC_EUNSUPPORTED, "kvc_journal_set");
	jw_fails(kvc_append_begin(none, 0), KVC_EINVAL, "n_tokens is 0");
	jw_fails(kvc_update_begin(undo, 1, 6), KVC_EINVAL, "KVC_UPDATE_SCATTER");
	jw_fails(kvc_update_begin(none, 3, 0), KVC_EBOUND, "kvc_journal_set");
	jw_fails(kvc_update_begin(undo, 13, 0), KVC_EBOUND, "prefill in chunks");
	jw_fails(kvc_update_begin(undo, JW_TOKENS - 9, KVC_UPDATE_SCATTER), KVC_ERANGE, "512");
	jw_fails(kvc_update_begin(snapshot, 1, 0), KVC_EREADONLY, "fork it");
	begin(w, undo, 12); /* at the limit */
	jw_fails(kvc_update_begin(undo, 1, 0), KVC_EBUSY, "commit or abort");
	jw_ok(kvc_abort(undo));
	jw_fails(kvc_abort(undo), KVC_EINVAL, "no update is open");
	jw_free(w);
}

/* Nothing is reserved: everything that takes a block says so. */
static void test_reserve(void **state)
{
	struct jw *w = jw_new(&shape);
	kvc_seq *seq = jw_seq(w);
	const uint32_t index[12] = {0, 1, 2};
	kvc_mark mark;

	(void)state;
	jw_fails(kvc_append_begin(seq, 1), KVC_ERESERVE, "kvc_reserve");
	jw_journal(w, seq, KVC_JOURNAL_UNDO);
	jw_fails(kvc_mark_set(seq, &mark), KVC_ERESERVE, "kvc_reserve");
	assert_int_equal(seq->head.n_marks, 0);
	jw_append(w, seq, 0, 12);
	while (kvc_update_begin(seq, 0, 0) == 0 &&
	       kvc_scatter(seq, 0, 3, index, 1, some, some, NULL) == 0)
		jw_ok(kvc_commit(w->writer, &seq, 1));
	assert_int_equal(kvc_error(), KVC_ERESERVE);
	assert_non_null(strstr(kvc_error_text(), "kvc_reserve"));
	jw_free(w);
}

/* ---- scatter -------------------------------------------------------------------------------- */

static void test_scatter(void **state)
{
	static const uint32_t good[4] = {0, 1, 2, 3}, twice[4] = {0, 3, 1, 3},
			      far[4] = {0, 1, 10, 2};
	static const uint32_t same[4] = {0, 1, 5, 5};
	struct jw *w = jw_new(&shape);
	kvc_seq *none = seq_of(w, KVC_JOURNAL_NONE, 8), *seq = seq_of(w, KVC_JOURNAL_UNDO, 8);
	struct jw_picture before = jw_picture(w, seq);
	const void *planes[1] = {some}, *no_planes[1] = {NULL};

	(void)state;
	jw_fails(kvc_scatter(seq, 0, 1, good, 1, some, some, NULL), KVC_EINVAL, "kvc_update_begin");
	begin(w, none, 1);
	jw_fails(kvc_scatter(none, 0, 1, good, 1, some, some, NULL), KVC_EUNSUPPORTED,
		 "kvc_journal_set");
	jw_ok(kvc_abort(none));
	begin(w, seq, 2);
	jw_fails(kvc_scatter(seq, 2, 1, good, 1, some, some, NULL), KVC_ERANGE,
		 "layer 2 is not there");
	jw_fails(kvc_scatter(seq, 0, 1, NULL, 1, some, some, NULL), KVC_EINVAL, "index");
	jw_fails(kvc_scatter(seq, 0, 1, good, 1, some, NULL, NULL), KVC_EINVAL, "both K and V");
	jw_fails(kvc_scatter(seq, 1, 1, good, 1, some, some, NULL), KVC_EINVAL, "K only");
	jw_fails(kvc_scatter(seq, 0, 4, twice, 1, some, some, NULL), KVC_EINVAL, "slot 3");
	jw_ok(kvc_scatter(seq, 0, 2, twice, 0, some, some, NULL)); /* other heads */
	jw_fails(kvc_scatter(seq, 0, 2, same, 0, some, some, NULL), KVC_EINVAL, "head 1");
	jw_fails(kvc_scatter(seq, 0, 4, far, 1, some, some, NULL), KVC_ERANGE, "slot 10");
	jw_fails(kvc_scatter(seq, 0, 11, far, 1, some, some, NULL), KVC_ERANGE,
		 "n is 11; layer 0 has 10 slots");
	jw_ok(kvc_scatter(seq, 0, 0, good, 1, some, some, NULL));
	jw_ok(kvc_scatter(seq, 0, 4, good, 1, NULL, NULL, no_planes));
	jw_ok(kvc_scatter(seq, 0, 4, good, 1, NULL, NULL, planes));
	jw_ok(kvc_abort(seq));
	jw_assert_picture(w, seq, &before);
	jw_picture_free(&before);
	jw_free(w);
}

/* ---- writing -------------------------------------------------------------------------------- */

static void test_write(void **state)
{
	struct jw *w = jw_new(&shape);
	kvc_seq *seq = seq_of(w, KVC_JOURNAL_REPLAY, 3);
	const void *planes[1] = {some};
	void *k, *v;

	(void)state;
	jw_fails(kvc_write_planes(seq, 0, 0, 1, planes), KVC_EINVAL, "kvc_append_begin");
	jw_fails(kvc_plane_set(seq, "state", some, 24), KVC_EINVAL, "kvc_update_begin");
	begin(w, seq, 2);
	jw_fails(kvc_write(seq, 2, some, some), KVC_ERANGE, "layer 2 is not there");
	jw_fails(kvc_write(seq, 1, some, some), KVC_EINVAL, "v = NULL");
	jw_fails(kvc_write_rows(seq, 0, 1, 2, some, 256, some, 128), KVC_ERANGE, "tokens 1+2");
	jw_fails(kvc_write_span(seq, 0, 0, 1, &k, &v), KVC_EUNSUPPORTED, "kvc_write");
	jw_fails(kvc_write_planes(seq, 0, 2, 1, planes), KVC_ERANGE, "tokens 2+1");
	jw_fails(kvc_plane_set(seq, "states", some, 24), KVC_ENOTFOUND, "states");
	jw_fails(kvc_plane_set(seq, "position", some, 4), KVC_ENOTFOUND, "position");
	jw_fails(kvc_plane_set(seq, "state", some, 23), KVC_ERANGE, "24 bytes");
	jw_ok(kvc_plane_set(seq, "state", some, 24));
	jw_ok(kvc_abort(seq));
	assert_null(kvc_plane_get(seq, "state"));
	assert_int_equal(kvc_error(), KVC_OK);
	assert_null(kvc_plane_get(seq, "position"));
	assert_int_equal(kvc_error(), KVC_ENOTFOUND);
	jw_free(w);
}

/* ---- rollback, marks ------------------------------------------------------------------------- */

static void test_back(void **state)
{
	struct jw *w = jw_new(&shape);
	kvc_seq *seq = seq_of(w, KVC_JOURNAL_UNDO, 9), *none = seq_of(w, KVC_JOURNAL_NONE, 9);
	kvc_seq *snapshot = jw_snapshot(w, seq);
	const uint64_t one = 1;
	kvc_mark mark;

	(void)state;
	jw_fails(kvc_rollback_keep(snapshot, 1), KVC_EREADONLY, "fork it");
	jw_fails(kvc_rollback_steps(snapshot, 1), KVC_EREADONLY, "fork it");
	jw_fails(kvc_replay(snapshot, 1), KVC_EREADONLY, "fork it");
	jw_fails(kvc_fold(snapshot, 0), KVC_EREADONLY, "fork it");
	jw_fails(kvc_mark_set(snapshot, &mark), KVC_EREADONLY, "fork it");
	jw_fails(kvc_rollback_steps(none, 1), KVC_EJOURNAL, "0 steps");
	jw_fails(kvc_rollback_steps(seq, 10), KVC_EJOURNAL, "9 steps");
	jw_mark(w, seq, &mark);
	begin(w, seq, 1);
	jw_fails(kvc_rollback_remove(seq, 1), KVC_EBUSY, "commit or abort");
	jw_fails(kvc_rollback_many(w->writer, &seq, &one, 1), KVC_EBUSY, "sequence 0");
	jw_fails(kvc_rollback_steps(seq, 1), KVC_EBUSY, "commit or abort");
	jw_fails(kvc_rollback_mark(seq, &mark), KVC_EBUSY, "commit or abort");
	jw_fails(kvc_mark_release(seq, &mark), KVC_EBUSY, "commit or abort");
	jw_fails(kvc_replay(seq, 1), KVC_EBUSY, "commit or abort");
	jw_ok(kvc_abort(seq));
	for (uint32_t n = 1; n < KV_MARKS_MAX; n++)
		jw_ok(kvc_mark_set(seq, &mark));
	jw_fails(kvc_mark_set(seq, &mark), KVC_ELIMIT, "64");
	jw_free(w);
}

/* A scatter update with tokens is one step: lengths inside of it are none to stop at. */
static void test_between(void **state)
{
	static const uint32_t index[2] = {1, 2};
	struct jw *w = jw_new(&shape);
	kvc_seq *seq = seq_of(w, KVC_JOURNAL_REPLAY, 5);
	struct jw_picture before;

	(void)state;
	begin(w, seq, 4);
	for (uint32_t l = 0; l < 2; l++)
		jw_ok(kvc_write(seq, l, some, l ? NULL : some));
	jw_ok(kvc_scatter(seq, 0, 2, index, 1, some, some, NULL));
	jw_ok(kvc_commit(w->writer, &seq, 1));
	before = jw_picture(w, seq);
	for (uint64_t n = 6; n < 9; n++) {
		jw_fails(kvc_rollback_keep(seq, n), KVC_ERANGE, "5 and 9");
		jw_assert_picture(w, seq, &before);
	}
	jw_ok(kvc_rollback_keep(seq, 5));
	jw_picture_free(&before);
	jw_free(w);
}

/* A state of the sequence planes that is not kept: refused, and nothing moves. */
static void test_planes_not_kept(void **state)
{
	struct jw *w = jw_new(&shape);
	kvc_seq *seq = seq_of(w, KVC_JOURNAL_NONE, 3);
	struct jw_picture before;

	(void)state;
	begin(w, seq, 1);
	for (uint32_t l = 0; l < 2; l++)
		jw_ok(kvc_write(seq, l, some, l ? NULL : some));
	jw_ok(kvc_plane_set(seq, "state", "abcdefghijklmnopqrstuvwx", 24));
	jw_ok(kvc_commit(w->writer, &seq, 1));
	before = jw_picture(w, seq);
	jw_fails(kvc_rollback_remove(seq, 1), KVC_EJOURNAL, "use a journal");
	jw_assert_picture(w, seq, &before);
	assert_memory_equal(kvc_plane_get(seq, "state"), "abcdefghijklmnopqrstuvwx", 24);
	jw_picture_free(&before);
	jw_free(w);
}

/* ---- journals -------------------------------------------------------------------------------- */

static void set_fails(kvc_seq *seq, uint32_t mode, uint32_t when_full, int status, const char *text)
{
	const struct kvc_journal_options o = {
		.size = sizeof(o), .mode = mode, .when_full = when_full};

	jw_fails(kvc_journal_set(seq, &o), status, text);
}

static void test_journal_set(void **state)
{
	struct jw *w = jw_new(&shape);
	kvc_seq *seq = seq_of(w, KVC_JOURNAL_UNDO, 3), *marked = seq_of(w, KVC_JOURNAL_NONE, 3);
	kvc_seq *snapshot = jw_snapshot(w, seq);
	struct jw_picture before = jw_picture(w, seq);
	kvc_mark mark;

	(void)state;
	set_fails(seq, 3, 0, KVC_EINVAL, "modes are 0 to 2");
	set_fails(seq, 1, 2, KVC_EINVAL, "when_full");
	set_fails(seq, 2, 1, KVC_EINVAL, "fold it");
	set_fails(seq, 0, 0, KVC_EBUSY, "leave the journal behind by a fork");
	set_fails(seq, 2, 0, KVC_EBUSY, "release the marks");
	set_fails(snapshot, 1, 0, KVC_EREADONLY, "fork it");
	jw_mark(w, marked, &mark);
	set_fails(marked, 1, 0, KVC_EBUSY, "release the marks");
	jw_ok(kvc_mark_release(marked, &mark));
	jw_journal(w, marked, KVC_JOURNAL_UNDO);
	jw_assert_picture(w, seq, &before);
	jw_picture_free(&before);
	jw_free(w);
}

/* At the limit it works, one row more is refused; a fold makes room. */
static void test_full(void **state)
{
	/* the first record; then a record and two heads, and one head, of each token; and one that
	 * a scatter might need */
	const struct kvc_journal_options o = {
		.size = sizeof(o), .mode = KVC_JOURNAL_REPLAY, .max_rows = 1 + 5 * 4 + 1};
	struct jw *w = jw_new(&shape);
	struct kvc_journal_info info;
	kvc_seq *seq = jw_seq(w);

	(void)state;
	jw_ok(kvc_journal_set(seq, &o));
	for (uint64_t t = 0; t < 5; t++)
		jw_append(w, seq, t, 1);
	jw_ok(kvc_journal_info(seq, &info));
	assert_int_equal(info.n_rows, 21);
	assert_int_equal(info.max_rows, 22);
	jw_reserve(w, seq, 1, 8);
	jw_fails(kvc_append_begin(seq, 1), KVC_EJOURNAL, "22");
	assert_non_null(strstr(kvc_error_text(), "fold it"));
	assert_int_equal(kvc_fold(seq, 0), 20);
	jw_append(w, seq, 5, 1);
	assert_int_equal(kvc_length(seq), 6);
	jw_free(w);
}

static void test_replay(void **state)
{
	struct jw *w = jw_new(&shape);
	kvc_seq *none = seq_of(w, KVC_JOURNAL_NONE, 4), *undo = seq_of(w, KVC_JOURNAL_UNDO, 4);
	kvc_seq *seq = seq_of(w, KVC_JOURNAL_REPLAY, 4);

	(void)state;
	jw_fails(kvc_replay(none, 0), KVC_EUNSUPPORTED, "kvc_journal_set");
	jw_fails(kvc_fold(none, 0), KVC_EUNSUPPORTED, "replay journal");
	jw_fails(kvc_fold(undo, 0), KVC_EUNSUPPORTED, "replay journal");
	assert_int_equal(kvc_replay(seq, 0), 0);
	jw_ok(kvc_rollback_remove(seq, 2));
	jw_fails(kvc_replay(seq, 3), KVC_EJOURNAL, "2 steps");
	assert_int_equal(kvc_replay(seq, 1), 1);
	assert_int_equal(kvc_length(seq), 3);
	jw_ok(kvc_rollback_remove(undo, 1));
	jw_fails(kvc_replay(undo, 1), KVC_EUNSUPPORTED, "write them again");
	assert_int_equal(kvc_length(undo), 3);
	jw_free(w);
}

static void test_replay_from(void **state)
{
	struct jw *w = jw_new(&shape);
	kvc_seq *undo = seq_of(w, KVC_JOURNAL_UNDO, 4), *source, *other, *longer, *rows;

	(void)state;
	source = seq_of(w, KVC_JOURNAL_NONE, 4);
	jw_journal(w, source, KVC_JOURNAL_REPLAY);
	other = seq_of(w, KVC_JOURNAL_NONE, 3);
	jw_append(w, other, 99, 1); /* as long, not the same */
	longer = seq_of(w, KVC_JOURNAL_NONE, 5);
	rows = jw_fork(w, source);
	jw_append(w, source, 4, 2);
	jw_append(w, rows, 4, 1);
	jw_fails(kvc_replay_from(other, undo), KVC_EINVAL, "no replay journal");
	jw_fails(kvc_replay_from(undo, source), KVC_EBUSY, "undo journal");
	jw_fails(kvc_replay_from(rows, source), KVC_EINVAL, "rows of its own");
	jw_fails(kvc_replay_from(longer, source), KVC_EINVAL, "no step begins here");
	jw_fails(kvc_replay_from(other, source), KVC_EINVAL, "bases differ");
	jw_ok(kvc_rollback_remove(rows, 1));
	jw_reserve(w, rows, 4, 16);
	assert_int_equal(kvc_replay_from(rows, source), 2);
	jw_free(w);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void test_read(void **state)
{
	struct jw *w = jw_new(&shape);
	kvc_seq *seq = seq_of(w, KVC_JOURNAL_REPLAY, 4);

	(void)state;
	jw_fails(kvc_read(seq, 2, 0, 1, some, some), KVC_ERANGE, "layer 2 is not there");
	jw_fails(kvc_read(seq, 0, 2, 3, some, some), KVC_ERANGE,
		 "slots 2+3 of layer 0, which has 4");
	jw_fails(kvc_read(seq, 0, UINT64_MAX, 2, some, some), KVC_ERANGE, "which has 4");
	jw_fails(kvc_read(seq, 1, 0, 1, some, some), KVC_EINVAL, "v = NULL");
	jw_fails(kvc_read_plane(seq, "state", 0, 0, 1, some), KVC_ENOTFOUND, "state");
	jw_fails(kvc_read_plane(seq, "position", 0, 3, 2, some), KVC_ERANGE,
		 "slots 3+2 of layer 0, which has 4");
	jw_ok(kvc_read(seq, 0, 4, 0, some, some));
	jw_ok(kvc_read(seq, 0, 0, 4, NULL, some));
	jw_free(w);
}

/* An opaque layout has neither journal nor planes. */
static void test_opaque(void **state)
{
	struct bare *bare = bare_new(bare_layout(0, NULL, 1));
	struct kvc_writer *writer = bare_writer(bare, 1);
	kvc_seq *seq = bare_seq(bare, writer, 16, NULL);
	struct kvc_journal_info info;

	(void)state;
	for (uint32_t mode = 1; mode < 3; mode++)
		set_fails(seq, mode, 0, KVC_EUNSUPPORTED, "opaque");
	set_fails(seq, 1, 0, KVC_EUNSUPPORTED, "opaque");
	jw_ok(kvc_journal_info(seq, &info));
	assert_int_equal(info.n_rows, 0);
	jw_fails(kvc_fold(seq, 0), KVC_EUNSUPPORTED, "replay journal");
	assert_int_equal(bare_reserve(bare, seq, 2), 0);
	jw_ok(kvc_append_begin(seq, 2));
	jw_fails(kvc_plane_set(seq, "state", some, 1), KVC_ENOTFOUND, "state");
	jw_fails(kvc_write_planes(seq, 0, 0, 1, (const void *[]){some}), KVC_ENOTFOUND, "planes");
	jw_ok(kvc_abort(seq));
	segment_place(&bare->segment, seq->place)->seq_id = 0;
	seq_end(seq, SEQ_END_DROPPED);
	bare_take_back(bare, writer, true);
	assert_int_equal(bare_n_used(bare), 0);
	writer_free(writer);
	bare_free(bare);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("an update that cannot be is not begun", test_begin),
	KT_TEST("a lack of blocks is said, with the remedy", test_reserve),
	KT_TEST("a scatter that makes no sense changes nothing", test_scatter),
	KT_TEST("writes and planes that make no sense are refused", test_write),
	KT_TEST("rollbacks and marks are refused on snapshots, in updates, and beyond limits",
		test_back),
	KT_TEST("there is no stopping inside a scatter update", test_between),
	KT_TEST("sequence planes that are not kept stop a rollback", test_planes_not_kept),
	KT_TEST("a journal's mode changes only while it is empty", test_journal_set),
	KT_TEST("a full journal refuses one row more, and a fold helps", test_full),
	KT_TEST("replay and fold are refused where there is nothing for them", test_replay),
	KT_TEST("rows go only onto the base that they belong to", test_replay_from),
	KT_TEST("reads beyond the end are refused", test_read),
	KT_TEST("an opaque layout has no journal", test_opaque),
};

KT_MAIN(tests)
