/*
 * Journals on a real daemon where they are nothing, or as much as they may be: reserves that are
 * too much, journals of empty sequences, the largest sequence plane, rows of a process that has
 * gone, calls in a forked child.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/runner.h"

#define WIDTH 16u
#define BIG_BYTES (64u << 20)

static struct kt_daemon *daemon_of_test;

static int start_daemon(void **state)
{
	const char *const arguments[] = {"--pool-bytes", "512M", NULL};

	(void)state;
	daemon_of_test = kt_daemon_start(arguments);
	return daemon_of_test ? 0 : -1;
}

static int stop_daemon(void **state)
{
	(void)state;
	return kt_daemon_stop(daemon_of_test);
}

static kvc_layout *layout_of(kvc_session *session, uint32_t plane_bytes)
{
	static const struct kvc_layer layer = {1, WIDTH, WIDTH, 0};
	const struct kvc_plane plane = {"state", KVC_PLANE_SEQUENCE, plane_bytes};
	const struct kvc_layout_options options = {.size = sizeof(options),
						   .fingerprint = {8},
						   .n_layers = 1,
						   .layers = &layer,
						   .dtype = KVC_F32,
						   .block_tokens = 4,
						   .n_planes = 1,
						   .planes = &plane};
	kvc_layout *layout = kvc_layout_register(session, &options);

	assert_non_null(layout);
	return layout;
}

static kvc_seq *seq_of(const struct kt_client *c, uint32_t plane_bytes, const char *name,
		       uint32_t mode)
{
	struct kvc_seq_options options = {.size = sizeof(options), .name = name};
	struct kvc_journal_options journal = {.size = sizeof(journal), .mode = mode};
	kvc_seq *seq = kvc_seq_new(c->writer, layout_of(c->session, plane_bytes), &options);

	assert_non_null(seq);
	kt_ok(kvc_journal_set(seq, &journal));
	return seq;
}

static void append(const struct kt_client *c, kvc_seq *seq, float value)
{
	float k[WIDTH] = {value}, v[WIDTH] = {-value};

	kt_ok(kvc_reserve(seq, 1));
	kt_ok(kvc_append_begin(seq, 1));
	kt_ok(kvc_write(seq, 0, k, v));
	kt_ok(kvc_commit(c->writer, &seq, 1));
}

static void scatter(const struct kt_client *c, kvc_seq *seq, uint32_t slot, float value)
{
	float k[WIDTH] = {value}, v[WIDTH] = {-value};

	kt_ok(kvc_reserve_scatter(seq, 1, 1, 1));
	kt_ok(kvc_update_begin(seq, 0, 0));
	kt_ok(kvc_scatter(seq, 0, 1, &slot, 1, k, v, NULL));
	kt_ok(kvc_commit(c->writer, &seq, 1));
}

static void test_that_reserves_have_limits(void **state)
{
	struct kt_client c = kt_client_open(kt_daemon_dir(daemon_of_test));
	kvc_seq *seq = seq_of(&c, 8, NULL, KVC_JOURNAL_REPLAY), *reader;
	struct kvc_snapshot_options named = {.size = sizeof(named), .name = "limits"};
	struct kvc_journal_options small = {
		.size = sizeof(small), .mode = KVC_JOURNAL_REPLAY, .max_rows = 22};
	struct kvc_journal_info info;

	(void)state;
	kt_ok(kvc_journal_info(seq, &info));
	kt_fails(kvc_reserve_scatter(seq, 1, info.max_rows, 0), KVC_EJOURNAL);
	kt_fails(kvc_reserve_scatter(seq, UINT64_MAX, UINT64_MAX, 0), KVC_EJOURNAL);
	kt_fails(kvc_reserve_scatter(seq, UINT64_MAX, 1, 0), KVC_EJOURNAL);
	/* ten tokens have ten rows and ten records, behind the first one; room for one more */
	kt_ok(kvc_journal_set(seq, &small));
	kt_fails(kvc_reserve(seq, 11), KVC_EJOURNAL);
	kt_ok(kvc_reserve(seq, 10));
	for (unsigned i = 0; i < 10; i++)
		append(&c, seq, (float)i);
	kt_fails(kvc_reserve(seq, 1), KVC_EJOURNAL);
	kt_fails(kvc_append_begin(seq, 1), KVC_EJOURNAL);
	kt_ok(kvc_snapshot(seq, &named, NULL));
	reader = kvc_open_snapshot(c.writer, named.name);
	assert_non_null(reader);
	kt_fails(kvc_reserve_scatter(reader, 1, 1, 1), KVC_EREADONLY);
	kvc_seq_free(reader);
	kvc_seq_free(seq);
	seq = seq_of(&c, 8, NULL, KVC_JOURNAL_UNDO);
	kt_fails(kvc_reserve_scatter(seq, 1, 1, UINT32_MAX), KVC_ELIMIT);
	kvc_close(c.session);
}

static void test_that_nothing_has_a_journal(void **state)
{
	struct kt_client c = kt_client_open(kt_daemon_dir(daemon_of_test));
	struct kvc_snapshot_options named = {
		.size = sizeof(named), .name = "nothing", .replace = 1};

	(void)state;
	for (uint32_t mode = KVC_JOURNAL_UNDO; mode <= KVC_JOURNAL_REPLAY; mode++) {
		kvc_seq *seq = seq_of(&c, 8, NULL, mode), *reader, *fork;

		kt_ok(kvc_snapshot(seq, &named, NULL));
		reader = kvc_open_snapshot(c.writer, named.name);
		fork = kvc_fork(c.writer, named.name, NULL);
		if (!reader || !fork)
			fail_msg("mode %u: %s", mode, kvc_error_text());
		assert_int_equal(kvc_diff(seq, reader, NULL, NULL), 0);
		append(&c, fork, 1);
		kvc_seq_free(reader);
		kvc_seq_free(fork);
		kvc_seq_free(seq);
	}
	kvc_close(c.session);
}

static void test_that_a_plane_may_be_large(void **state)
{
	struct kt_client c = kt_client_open(kt_daemon_dir(daemon_of_test));
	kvc_seq *seq = seq_of(&c, BIG_BYTES, NULL, KVC_JOURNAL_REPLAY);
	float k[WIDTH] = {1};
	char *bytes = malloc(BIG_BYTES);
	const char *now;

	(void)state;
	assert_non_null(bytes);
	for (unsigned i = 1; i <= 2; i++) {
		memset(bytes, (int)i, BIG_BYTES);
		kt_ok(kvc_reserve(seq, 1));
		kt_ok(kvc_append_begin(seq, 1));
		kt_ok(kvc_write(seq, 0, k, k));
		kt_fails(kvc_plane_set(seq, "state", bytes, BIG_BYTES - 1), KVC_ERANGE);
		kt_ok(kvc_plane_set(seq, "state", bytes, BIG_BYTES));
		kt_ok(kvc_commit(c.writer, &seq, 1));
	}
	kt_ok(kvc_rollback_steps(seq, 1));
	now = kvc_plane_get(seq, "state");
	assert_non_null(now);
	assert_int_equal(now[0], 1);
	assert_int_equal(now[BIG_BYTES - 1], 1);
	free(bytes);
	kvc_close(c.session);
}

/* Makes "left" and ends. */
static int role_leave(const char *dir, const char *arg, int in, int out)
{
	struct kt_client c = kt_client_open(dir);
	kvc_seq *seq = seq_of(&c, 8, "left", (uint32_t)atoi(arg));

	(void)in;
	(void)out;
	for (unsigned i = 0; i < 4; i++)
		append(&c, seq, (float)i);
	scatter(&c, seq, 1, 10);
	scatter(&c, seq, 1, 11);
	_exit(0);
}

/* Its blocks are mapped for reading only. */
static void test_that_rows_of_the_gone_are_only_read(void **state)
{
	struct kt_client c = kt_client_open(kt_daemon_dir(daemon_of_test));

	(void)state;
	for (uint32_t mode = KVC_JOURNAL_UNDO; mode <= KVC_JOURNAL_REPLAY; mode++) {
		uint8_t before[16], after[16];
		const char *arg = mode == KVC_JOURNAL_UNDO ? "1" : "2";
		struct kt_kid kid;
		kvc_seq *seq;

		kt_kid_start(&kid, "leave", kt_daemon_dir(daemon_of_test), arg);
		assert_int_equal(kt_kid_wait(&kid), 0);
		kt_ok(kvc_wait(c.session, "left", 0));
		while (!(seq = kvc_takeover(c.writer, "left")))
			assert_int_equal(kvc_error(), KVC_EBUSY);
		kt_ok(kvc_digest(seq, before));
		kt_ok(kvc_reserve_scatter(seq, 4, 4, 4));
		kt_ok(kvc_rollback_steps(seq, 2));
		assert_int_equal(kvc_replay(seq, 0), 2);
		kt_ok(kvc_digest(seq, after));
		assert_memory_equal(before, after, sizeof(before));
		scatter(&c, seq, 2, 12);
		kt_ok(kvc_rollback_steps(seq, 1));
		kt_ok(kvc_digest(seq, after));
		assert_memory_equal(before, after, sizeof(before));
		kt_ok(kvc_seq_drop(seq));
	}
	kvc_close(c.session);
}

/* The number of calls that do anything but say whose child it is. */
static int call_all(const struct kt_client *c, kvc_seq *seq)
{
	struct kvc_journal_options options = {.size = sizeof(options)};
	struct kvc_journal_info info;
	uint32_t slot = 0;
	char bytes[8] = {0};
	const void *planes[1] = {NULL};
	int n = 0;

#define REFUSED(call) (n += !((call) && kvc_error() == KVC_EFORKED))
	REFUSED(kvc_journal_set(seq, &options) < 0);
	REFUSED(kvc_journal_info(seq, &info) < 0);
	REFUSED(kvc_reserve_scatter(seq, 1, 1, 1) < 0);
	REFUSED(kvc_update_begin(seq, 0, 0) < 0);
	REFUSED(kvc_scatter(seq, 0, 1, &slot, 1, bytes, bytes, NULL) < 0);
	REFUSED(kvc_write_planes(seq, 0, 0, 1, planes) < 0);
	REFUSED(kvc_plane_set(seq, "state", bytes, 8) < 0);
	REFUSED(!kvc_plane_get(seq, "state"));
	REFUSED(kvc_rollback_steps(seq, 1) < 0);
	REFUSED(kvc_replay(seq, 1) < 0);
	REFUSED(kvc_replay_from(seq, seq) < 0);
	REFUSED(kvc_fold(seq, 0) < 0);
	REFUSED(!kvc_convert(seq, c->layout, NULL, NULL, NULL));
	REFUSED(kvc_read(seq, 0, 0, 0, NULL, NULL) < 0);
	REFUSED(kvc_read_plane(seq, "x", 0, 0, 0, bytes) < 0);
	REFUSED(kvc_diff(seq, seq, NULL, NULL) < 0);
	REFUSED(!kvc_layout_variant(c->session, c->layout, 0, 0));
#undef REFUSED
	return n;
}

static void test_that_a_forked_child_is_refused(void **state)
{
	struct kt_client c = kt_client_open(kt_daemon_dir(daemon_of_test));
	kvc_seq *seq = seq_of(&c, 8, NULL, KVC_JOURNAL_REPLAY);
	int status;
	pid_t pid;

	(void)state;
	append(&c, seq, 1);
	pid = fork();
	if (pid == 0)
		_exit(call_all(&c, seq));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	append(&c, seq, 2);
	kvc_close(c.session);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("what a journal may not have is not reserved", test_that_reserves_have_limits),
	KT_TEST("a sequence of nothing has a journal, and snapshots and forks of it",
		test_that_nothing_has_a_journal),
	KT_TEST("a sequence plane may have 64 MiB", test_that_a_plane_may_be_large),
	KT_TEST("rows of a process that has gone are rolled back and replayed",
		test_that_rows_of_the_gone_are_only_read),
	KT_TEST("every call about journals is refused in a forked child",
		test_that_a_forked_child_is_refused),
};

static const struct kt_role roles[] = {{"leave", role_leave}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), start_daemon,
				       stop_daemon};

	kt_kid_main(argc, argv, roles);
	return kt_run(argc, argv, &group, 1);
}
