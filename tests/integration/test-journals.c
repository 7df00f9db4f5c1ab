/*
 * Journals, quantised formats and planes on a real daemon: they travel with snapshots and forks,
 * survive their process and the core, and a process that dies in the middle of an update in place
 * leaves the state before it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/fault.h"
#include "tests/integration/shadow.h"
#include "tests/support/client.h"
#include "tests/support/wait.h"

#define WIDTH 32
#define HEADS 2
#define RING 24

/* A global layer and a ring, int8 over f32, a plane of each kind. */
static kvc_layout *layout_of(kvc_session *session, uint32_t format)
{
	static const struct kvc_layer layers[2] = {{HEADS, WIDTH, WIDTH, 0},
						   {HEADS, WIDTH, WIDTH, RING}};
	static const struct kvc_plane planes[2] = {{"position", KVC_PLANE_SLOT, 4},
						   {"counter", KVC_PLANE_SEQUENCE, 8}};
	struct kvc_layout_options options = {
		.size = sizeof(options),
		.fingerprint = {9, 1},
		.n_layers = 2,
		.layers = layers,
		.dtype = KVC_F32,
		.k_format = format,
		.v_format = format,
		.block_tokens = 8,
		.n_planes = 2,
		.planes = planes,
	};
	kvc_layout *layout;

	there(layout = kvc_layout_register(session, &options));
	return layout;
}

static void fill_vectors(float *to, uint64_t token, uint32_t layer, int is_value)
{
	for (uint32_t i = 0; i < HEADS * WIDTH; i++)
		to[i] = (float)((token * 131 + layer * 17 + (uint32_t)is_value * 7 + i * 29) %
				251) -
			100.0f;
}

/* One update of one token; `token` says what it holds. */
static void append_one(kvc_writer *writer, kvc_seq *seq, uint64_t token)
{
	float k[HEADS * WIDTH], v[HEADS * WIDTH];
	uint32_t position[HEADS] = {(uint32_t)token, (uint32_t)token + 1000};
	const void *planes[1] = {position};

	ok(kvc_reserve(seq, 1));
	ok(kvc_append_begin(seq, 1));
	for (uint32_t layer = 0; layer < 2; layer++) {
		fill_vectors(k, token, layer, 0);
		fill_vectors(v, token, layer, 1);
		ok(kvc_write(seq, layer, k, v));
		ok(kvc_write_planes(seq, layer, 0, 1, planes));
	}
	ok(kvc_plane_set(seq, "counter", &token, sizeof(token)));
	ok(kvc_commit(writer, &seq, 1));
}

static void append_many(kvc_writer *writer, kvc_seq *seq, uint64_t first, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		append_one(writer, seq, first + i);
}

/* Slot i of head h of layer 0 gets token's vectors. */
static void scatter_one(kvc_writer *writer, kvc_seq *seq, uint32_t slot0, uint32_t slot1,
			uint64_t token)
{
	const uint32_t index[HEADS] = {slot0, slot1};
	float k[HEADS * WIDTH], v[HEADS * WIDTH];

	ok(kvc_reserve_scatter(seq, 1, HEADS, 4));
	ok(kvc_update_begin(seq, 0, 0));
	fill_vectors(k, token, 0, 0);
	fill_vectors(v, token, 0, 1);
	ok(kvc_scatter(seq, 0, 1, index, 0, k, v, NULL));
	ok(kvc_commit(writer, &seq, 1));
}

static void set_journal(kvc_seq *seq, uint32_t mode)
{
	struct kvc_journal_options options = {.size = sizeof(options), .mode = mode};

	ok(kvc_journal_set(seq, &options));
}

struct digest {
	uint8_t bytes[16];
};

static struct digest digest_of(kvc_seq *seq)
{
	struct digest digest;

	ok(kvc_digest(seq, digest.bytes));
	return digest;
}

static void assert_digest(kvc_seq *seq, struct digest expected)
{
	struct digest now = digest_of(seq);

	assert_memory_equal(now.bytes, expected.bytes, sizeof(now.bytes));
}

static uint64_t counter_of(kvc_seq *seq)
{
	const uint64_t *counter = kvc_plane_get(seq, "counter");

	return counter ? *counter : 0;
}

/* ---- replay ------------------------------------------------------------------------------- */

static void test_that_a_replay_journal_travels(void **state)
{
	kvc_session *one = open_session(), *two = open_session();
	kvc_writer *w1 = kvc_writer_new(one), *w2 = kvc_writer_new(two);
	struct digest base, with_rows;
	kvc_seq *seq, *fork, *opened;
	float k[HEADS * WIDTH], want[HEADS * WIDTH];

	(void)state;
	there(seq = kvc_seq_new(w1, layout_of(one, KVC_INT8), NULL));
	append_many(w1, seq, 1, 20);
	base = digest_of(seq);
	set_journal(seq, KVC_JOURNAL_REPLAY);
	append_many(w1, seq, 21, 10);
	scatter_one(w1, seq, 3, 5, 500);
	with_rows = digest_of(seq);
	snapshot(seq, "journals/replay");
	kvc_close(one);

	there(opened = kvc_open_snapshot(w2, "journals/replay"));
	assert_digest(opened, with_rows);
	assert_int_equal(counter_of(opened), 30);
	there(fork = kvc_fork(w2, "journals/replay", NULL));
	assert_digest(fork, with_rows);
	/* In full precision, where the row is; the other head of the slot is the base's. */
	ok(kvc_read(fork, 0, 3, 1, k, NULL));
	fill_vectors(want, 500, 0, 0);
	assert_memory_equal(k, want, WIDTH * sizeof(k[0]));
	assert_memory_not_equal(k + WIDTH, want + WIDTH, WIDTH * sizeof(k[0]));
	/* Back below the fork and forward again. */
	ok(kvc_rollback_keep(fork, 20));
	assert_digest(fork, base);
	assert_int_equal(counter_of(fork), 20);
	assert_int_equal(kvc_replay(fork, 0), 11);
	assert_digest(fork, with_rows);
	kvc_seq_free(opened);
	kvc_seq_free(fork);
	ok(kvc_remove(two, "journals/replay"));
	kvc_close(two);
}

static void test_that_a_fold_leaves_snapshots_alone(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	struct digest before, folded;
	kvc_seq *seq, *fork, *opened;
	struct kvc_journal_info info;

	(void)state;
	there(seq = kvc_seq_new(writer, layout_of(session, KVC_U8), NULL));
	append_many(writer, seq, 1, 13);
	set_journal(seq, KVC_JOURNAL_REPLAY);
	append_many(writer, seq, 14, 7);
	scatter_one(writer, seq, 2, 9, 300);
	snapshot(seq, "journals/unfolded");
	before = digest_of(seq);
	assert_true(kvc_fold(seq, 0) > 0);
	folded = digest_of(seq);
	assert_memory_not_equal(folded.bytes, before.bytes, sizeof(folded.bytes));
	ok(kvc_journal_info(seq, &info));
	assert_int_equal(info.n_rows, 0);
	assert_int_equal(info.base_tokens, 20);
	there(opened = kvc_open_snapshot(writer, "journals/unfolded"));
	assert_digest(opened, before);
	there(fork = kvc_fork(writer, "journals/unfolded", NULL));
	assert_true(kvc_fold(fork, 0) > 0);
	assert_digest(fork, folded);
	assert_digest(opened, before);
	kvc_seq_free(opened);
	kvc_seq_free(fork);
	kvc_seq_free(seq);
	ok(kvc_remove(session, "journals/unfolded"));
	kvc_close(session);
}

static void test_that_rows_go_onto_another_fork(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_seq *seq, *one, *two;
	struct digest end;

	(void)state;
	there(seq = kvc_seq_new(writer, layout_of(session, KVC_INT8), NULL));
	append_many(writer, seq, 1, 11);
	snapshot(seq, "journals/base");
	there(one = kvc_fork(writer, "journals/base", NULL));
	there(two = kvc_fork(writer, "journals/base", NULL));
	set_journal(one, KVC_JOURNAL_REPLAY);
	append_many(writer, one, 12, 30); /* past the ring's bound */
	scatter_one(writer, one, 0, 35, 700);
	end = digest_of(one);
	set_journal(two, KVC_JOURNAL_REPLAY);
	ok(kvc_reserve(two, 32));
	assert_int_equal(kvc_replay_from(two, one), 31);
	assert_digest(two, end);
	ok(kvc_rollback_steps(two, 6));
	assert_int_equal(kvc_length(two), 36);
	assert_int_equal(kvc_replay(two, 0), 6);
	assert_digest(two, end);
	kvc_seq_free(one);
	kvc_seq_free(two);
	kvc_seq_free(seq);
	ok(kvc_remove(session, "journals/base"));
	kvc_close(session);
}

/* ---- undo --------------------------------------------------------------------------------- */

static void test_that_an_undo_journal_survives_its_process(void **state)
{
	kvc_session *one = open_session(), *two;
	kvc_writer *w1 = kvc_writer_new(one), *w2;
	struct kvc_seq_options named = {.size = sizeof(named), .name = "journals/undo"};
	struct digest at_mark, end;
	kvc_seq *seq;
	kvc_mark mark;

	(void)state;
	there(seq = kvc_seq_new(w1, layout_of(one, KVC_INT8), &named));
	set_journal(seq, KVC_JOURNAL_UNDO);
	append_many(w1, seq, 1, 30);
	ok(kvc_mark_set(seq, &mark));
	at_mark = digest_of(seq);
	append_many(w1, seq, 31, 9);
	scatter_one(w1, seq, 7, 8, 900);
	end = digest_of(seq);
	kvc_close(one);

	two = open_session();
	w2 = kvc_writer_new(two);
	there(seq = kvc_takeover(w2, "journals/undo"));
	assert_digest(seq, end);
	ok(kvc_reserve_scatter(seq, 1, 8, 8));
	ok(kvc_rollback_mark(seq, &mark));
	assert_digest(seq, at_mark);
	assert_int_equal(counter_of(seq), 30);
	ok(kvc_seq_drop(seq));
	kvc_close(two);
}

static void test_that_the_core_may_die_under_journals(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	struct digest replay_end, undo_end, undo_base;
	kvc_seq *replay, *undo, *fork;

	(void)state;
	there(replay = kvc_seq_new(writer, layout_of(session, KVC_U4), NULL));
	append_many(writer, replay, 1, 9);
	set_journal(replay, KVC_JOURNAL_REPLAY);
	append_many(writer, replay, 10, 6);
	snapshot(replay, "journals/kept");
	replay_end = digest_of(replay);
	there(undo = kvc_seq_new(writer, layout_of(session, KVC_U4), NULL));
	set_journal(undo, KVC_JOURNAL_UNDO);
	append_many(writer, undo, 1, 26);
	undo_base = digest_of(undo);
	append_many(writer, undo, 27, 3);
	undo_end = digest_of(undo);
	assert_int_equal(kt_daemon_kill_core(daemon_), 0);
	while (kvc_ping(session))
		assert_int_equal(kvc_error(), KVC_ERESTARTED);
	assert_digest(replay, replay_end);
	assert_digest(undo, undo_end);
	ok(kvc_rollback_remove(undo, 3));
	assert_digest(undo, undo_base);
	there(fork = kvc_fork(writer, "journals/kept", NULL));
	assert_digest(fork, replay_end);
	append_many(writer, undo, 27, 3);
	assert_digest(undo, undo_end);
	kvc_seq_free(fork);
	kvc_seq_free(undo);
	kvc_seq_free(replay);
	ok(kvc_remove(session, "journals/kept"));
	kvc_close(session);
}

/* ---- verify ------------------------------------------------------------------------------- */

static void test_that_verify_gives_the_digest_of_the_library(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	struct kvc_verify_result result;
	struct digest digest;
	kvc_seq *seq;

	(void)state;
	there(seq = kvc_seq_new(writer, layout_of(session, KVC_FP8), NULL));
	append_many(writer, seq, 1, 17);
	set_journal(seq, KVC_JOURNAL_REPLAY);
	append_many(writer, seq, 18, 40);
	scatter_one(writer, seq, 5, 50, 77);
	scatter_one(writer, seq, 5, 6, 78);
	digest = digest_of(seq);
	snapshot(seq, "journals/verified");
	ok(kvc_verify(session, "journals/verified", NULL, NULL, &result));
	assert_memory_equal(result.digest, digest.bytes, sizeof(result.digest));
	ok(kvc_verify(session, "journals/verified", NULL, NULL, &result));
	assert_true(result.n_known > 0);
	kvc_seq_free(seq);
	ok(kvc_remove(session, "journals/verified"));
	kvc_close(session);
}

/* ---- an operator -------------------------------------------------------------------------- */

static void test_that_the_daemon_leaves_journals_to_their_writers(void **state)
{
	struct kvc_seq_options named = {.size = sizeof(named), .name = "journals/live"};
	const char *name = "journals/live";
	const uint64_t one = 1;
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_seq *seq;

	(void)state;
	there(seq = kvc_seq_new(writer, layout_of(session, KVC_INT8), &named));
	set_journal(seq, KVC_JOURNAL_UNDO);
	append_many(writer, seq, 1, 30);
	refused(kt_rollback_by_name(session, &name, &one, KT_REMOVE, 1, 0), KVC_EUNSUPPORTED);
	assert_int_equal(kvc_length(seq), 30);
	append_many(writer, seq, 31, 1);
	ok(kvc_seq_drop(seq));
	kvc_close(session);
}

/* ---- errors ------------------------------------------------------------------------------- */

static void test_that_the_error_is_the_distance(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *layout = layout_of(session, KVC_U4);
	float k[HEADS * WIDTH], back[HEADS * WIDTH], error[HEADS];
	kvc_seq *seq;

	(void)state;
	there(seq = kvc_seq_new(writer, layout, NULL));
	append_one(writer, seq, 41);
	fill_vectors(k, 41, 0, 0);
	ok(kvc_read(seq, 0, 0, 1, back, NULL));
	ok(kvc_quantisation_error(layout, 0, 1, k, NULL, error, NULL));
	for (int h = 0; h < HEADS; h++) {
		double sum = 0;

		for (int i = h * WIDTH; i < (h + 1) * WIDTH; i++)
			sum += ((double)k[i] - back[i]) * ((double)k[i] - back[i]);
		assert_true(sum > 1);
		assert_true(error[h] * error[h] > sum * 0.99999 &&
			    error[h] * error[h] < sum * 1.00001);
	}
	k[WIDTH + 3] = NAN;
	refused(kvc_quantisation_error(layout, 0, 1, k, NULL, error, NULL), KVC_EVALUE);
	refused(kvc_quantisation_error(layout, 2, 1, k, NULL, error, NULL), KVC_ERANGE);
	refused(kvc_quantisation_error(layout, 0, 1, k, NULL, NULL, NULL), KVC_EINVAL);
	kvc_close(session);
}

/* ---- death in the middle ------------------------------------------------------------------- */

/* What a process does to "journals/victim" and dies in; each is one update. */
enum act { ACT_SCATTER, ACT_RING, ACT_ROLLBACK, ACT_FORWARD, ACT_FOLD, N_ACTS };

static bool is_replay(int act)
{
	return act == ACT_FOLD;
}

static void prepare_act(kvc_writer *writer, kvc_seq *seq, int act)
{
	set_journal(seq, is_replay(act) ? KVC_JOURNAL_REPLAY : KVC_JOURNAL_UNDO);
	append_many(writer, seq, 21, 10);
	scatter_one(writer, seq, 1, 2, 600);
	scatter_one(writer, seq, 2, 12, 601);
}

static int do_act(kvc_writer *writer, kvc_seq *seq, int act)
{
	switch (act) {
	case ACT_SCATTER: scatter_one(writer, seq, 3, 25, 800); return 0;
	case ACT_RING: append_one(writer, seq, 801); return 0;
	case ACT_ROLLBACK: return kvc_rollback_steps(seq, 3);
	case ACT_FORWARD: return kvc_replay(seq, 0) == 2 ? 0 : -1;
	default: return kvc_fold(seq, 0) > 0 ? 0 : -1;
	}
}

/* arg: the act and the point at which it dies. Writes the digests before and, if it lives, after. */
static int role_victim(const char *dir, const char *arg, int in, int out)
{
	struct kvc_seq_options named = {.size = sizeof(named), .name = "journals/victim"};
	struct kvc_session_options options = {.size = sizeof(options), .runtime_dir = dir};
	kvc_session *session = kvc_open(&options);
	kvc_writer *writer = kvc_writer_new(session);
	kvc_seq *seq, *fork;
	struct digest digest;
	int act = atoi(arg);

	(void)in;
	there(seq = kvc_seq_new(writer, layout_of(session, KVC_INT8), &named));
	append_many(writer, seq, 1, 20);
	prepare_act(writer, seq, act);
	/* Half of the blocks are frozen: some are written in place, some copied. */
	ok(kvc_reserve_forks(seq, 1));
	if (act != ACT_RING)
		ok(kvc_reserve_forks(seq, 1));
	there(fork = kvc_fork_local(seq, 0));
	append_one(writer, seq, 700);
	scatter_one(writer, seq, 4, 13, 602);
	scatter_one(writer, seq, 5, 14, 603);
	ok(kvc_reserve_scatter(seq, 4, 16, 8));
	if (act == ACT_FORWARD)
		ok(kvc_rollback_steps(seq, 2));
	digest = digest_of(seq);
	if (write(out, &digest, sizeof(digest)) != (ssize_t)sizeof(digest))
		return 1;
	kv_fault_at = kv_fault_passed + strtoull(strchr(arg, ',') + 1, NULL, 10);
	ok(do_act(writer, seq, act));
	kv_fault_at = 0;
	digest = digest_of(seq);
	if (write(out, &digest, sizeof(digest)) != (ssize_t)sizeof(digest))
		return 1;
	kvc_close(session);
	return 0;
}

/* The victim's state after its act, when it is not killed. */
static struct digest after_act(int act, struct digest *before)
{
	struct digest after;
	struct kt_kid kid;
	char arg[32];

	snprintf(arg, sizeof(arg), "%d,1000000", act);
	kt_kid_start(&kid, "victim", kt_daemon_dir(daemon_), arg);
	kt_kid_read(&kid, before, sizeof(*before));
	kt_kid_read(&kid, &after, sizeof(after));
	assert_int_equal(kt_kid_wait(&kid), 0);
	return after;
}

/* The daemon hears of a death a little later than its parent. */
static bool removes_victim(void *session)
{
	return kvc_remove(session, "journals/victim") == 0;
}

static void drop_victim(kvc_session *session)
{
	if (!kt_wait_until(removes_victim, session, 5000))
		ok(kvc_remove(session, "journals/victim"));
}

struct heir {
	kvc_writer *writer;
	kvc_seq *seq;
};

static bool takes_over(void *arg)
{
	struct heir *heir = arg;

	heir->seq = kvc_takeover(heir->writer, "journals/victim");
	return heir->seq != NULL;
}

/* Dies at point n of the act: the next one finds before or after. False: it was not that long. */
static bool die_at(kvc_session *session, int act, unsigned n, const struct digest *before,
		   const struct digest *after)
{
	struct heir heir = {.writer = kvc_writer_new(session)};
	kvc_writer *writer = heir.writer;
	struct digest found, its_before;
	struct kt_kid kid;
	kvc_seq *seq;
	char arg[32];
	int status;

	snprintf(arg, sizeof(arg), "%d,%u", act, n);
	kt_kid_start(&kid, "victim", kt_daemon_dir(daemon_), arg);
	kt_kid_read(&kid, &its_before, sizeof(its_before));
	assert_memory_equal(its_before.bytes, before->bytes, sizeof(before->bytes));
	status = kt_kid_wait(&kid);
	kt_wait_until(takes_over, &heir, 5000);
	there(seq = heir.seq);
	found = digest_of(seq);
	if (memcmp(found.bytes, before->bytes, sizeof(found.bytes)) != 0)
		assert_memory_equal(found.bytes, after->bytes, sizeof(found.bytes));
	/* Its journal serves the next writer. */
	if (!is_replay(act)) {
		append_one(writer, seq, 810);
		ok(kvc_reserve_scatter(seq, 1, 64, 8));
		ok(kvc_rollback_steps(seq, 1));
		assert_digest(seq, found);
	}
	ok(kvc_seq_drop(seq));
	ok(kvc_writer_free(writer));
	return status != 0;
}

static void test_that_a_death_leaves_before_or_after(void **state)
{
	kvc_session *session = open_session();
	unsigned step = getenv("KV_EACH_POINT") ? 1 : 7;

	(void)state;
#ifndef KV_FAULT_INJECTION
	kt_skip("needs --enable-fault-injection");
#endif
	for (int act = 0; act < N_ACTS; act++) {
		struct digest before, after = after_act(act, &before);
		unsigned n = 1;

		drop_victim(session);
		while (die_at(session, act, n, &before, &after))
			n += n < 20 ? 1 : step;
		assert_true(n > 3);
	}
	kvc_close(session);
}

/* An empty journal whose row numbers are far from zero ends, or becomes one of another mode. */
static void test_that_an_empty_journal_changes_its_mode(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	struct digest before;
	kvc_seq *seq, *fork, *folded;

	(void)state;
	there(seq = kvc_seq_new(writer, layout_of(session, KVC_INT8), NULL));
	append_many(writer, seq, 1, 10);
	set_journal(seq, KVC_JOURNAL_UNDO);
	for (uint32_t i = 0; i < 10; i++)
		scatter_one(writer, seq, i % 5, i % 7, 100 + i);
	before = digest_of(seq);
	/* A fork of an undo sequence has an empty journal. */
	ok(kvc_reserve_forks(seq, 1));
	there(fork = kvc_fork_local(seq, 0));
	set_journal(fork, KVC_JOURNAL_REPLAY);
	assert_digest(fork, before);
	append_many(writer, fork, 11, 3);
	ok(kvc_rollback_steps(fork, 3));
	assert_digest(fork, before);
	/* So has one that was folded. */
	ok(kvc_reserve_forks(fork, 1));
	there(folded = kvc_fork_local(fork, 0));
	append_many(writer, folded, 11, 5);
	scatter_one(writer, folded, 0, 1, 200);
	assert_true(kvc_fold(folded, 0) > 0);
	before = digest_of(folded);
	set_journal(folded, KVC_JOURNAL_UNDO);
	assert_digest(folded, before);
	scatter_one(writer, folded, 2, 3, 300);
	ok(kvc_rollback_steps(folded, 1));
	assert_digest(folded, before);
	kvc_seq_free(folded);
	kvc_seq_free(fork);
	kvc_seq_free(seq);
	kvc_close(session);
}

/* ------------------------------------------------------------------------------------------- */

static const struct CMUnitTest tests[] = {
	KT_TEST("a replay journal travels with a snapshot, back and forth",
		test_that_a_replay_journal_travels),
	KT_TEST("a fold leaves snapshots and forks alone", test_that_a_fold_leaves_snapshots_alone),
	KT_TEST("rows are replayed onto another fork of the base",
		test_that_rows_go_onto_another_fork),
	KT_TEST("marks and undo rows survive their process",
		test_that_an_undo_journal_survives_its_process),
	KT_TEST("an empty journal ends, or changes its mode, and nothing else changes",
		test_that_an_empty_journal_changes_its_mode),
	KT_TEST("journals go on when the core has died", test_that_the_core_may_die_under_journals),
	KT_TEST("verify gives the library's digest, rows in force included",
		test_that_verify_gives_the_digest_of_the_library),
	KT_TEST("an operator's rollback of a journal is refused",
		test_that_the_daemon_leaves_journals_to_their_writers),
	KT_TEST("the quantisation error is the distance of what is stored",
		test_that_the_error_is_the_distance),
	KT_TEST("a process that dies in an update leaves the state before or after it",
		test_that_a_death_leaves_before_or_after),
};

static const struct kt_role roles[] = {{"victim", role_victim}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), start_daemon,
				       stop_daemon};

	kt_kid_main(argc, argv, roles);
	return kt_run(argc, argv, &group, 1);
}
