/*
 * Library and daemon together: the main ways through the core, from attach to verify, and what is
 * left after a core's death and a client's.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/kvcache.h"
#include "tests/support/daemon.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

static struct kt_daemon *daemon_;
static const char *runtime_dir; /* of a child; NULL: the daemon's */

static kvc_session *open_session(void)
{
	struct kvc_session_options options = {.size = sizeof(options), .runtime_dir = runtime_dir};
	kvc_session *session;

	if (!runtime_dir)
		options.runtime_dir = kt_daemon_dir(daemon_);
	session = kvc_open(&options);

	if (!session)
		printf("# %s\n", kvc_error_text());
	assert_non_null(session);
	return session;
}

/* Two layers of 2 heads, K 16 and V 8 of f32, 4 tokens a block. */
static kvc_layout *open_layout(kvc_session *session)
{
	struct kvc_layer layers[2] = {{2, 16, 8, 0}, {2, 16, 8, 0}};
	struct kvc_layout_options options = {.size = sizeof(options),
					     .fingerprint = {1},
					     .n_layers = 2,
					     .layers = layers,
					     .dtype = KVC_F32,
					     .block_tokens = 4};
	kvc_layout *layout = kvc_layout_register(session, &options);

	assert_non_null(layout);
	return layout;
}

/* Frees the layout (NULL is allowed) and ends the session. */
static void close_session(kvc_session *session, kvc_layout *layout)
{
	kvc_layout_free(layout);
	kvc_close(session);
}

static void ok(int rc)
{
	if (rc)
		printf("# %s: %s\n", kvc_status_name(kvc_error()), kvc_error_text());
	assert_int_equal(rc, 0);
}

/* Appends n tokens whose bytes follow from `value`. */
static void append(kvc_writer *writer, kvc_seq *seq, uint64_t n, int value)
{
	float k[64 * 32], v[64 * 16];

	assert_true(n <= 64);
	for (uint64_t i = 0; i < n * 32; i++)
		k[i] = (float)(value * 1000) + (float)i;
	for (uint64_t i = 0; i < n * 16; i++)
		v[i] = -(float)(value * 1000) - (float)i;
	ok(kvc_reserve(seq, n));
	ok(kvc_append_begin(seq, n));
	for (uint32_t layer = 0; layer < 2; layer++)
		ok(kvc_write(seq, layer, k, v));
	ok(kvc_commit(writer, &seq, 1));
}

static void digest_of(kvc_seq *seq, uint8_t digest[16])
{
	ok(kvc_digest(seq, digest));
}

static kvc_seq *new_seq(kvc_writer *writer, kvc_layout *layout, const char *name)
{
	struct kvc_seq_options options = {
		.size = sizeof(options), .name = name, .max_tokens = 4096};
	kvc_seq *seq = kvc_seq_new(writer, layout, &options);

	if (!seq)
		printf("# %s\n", kvc_error_text());
	assert_non_null(seq);
	return seq;
}

static void snapshot(kvc_seq *seq, const char *name, int replace)
{
	struct kvc_snapshot_options options = {
		.size = sizeof(options), .name = name, .replace = replace};

	ok(kvc_snapshot(seq, &options, NULL));
}

static void test_snapshot_fork(void **state)
{
	kvc_session *session = open_session();
	kvc_layout *layout = open_layout(session);
	kvc_writer *writer = kvc_writer_new(session);
	kvc_seq *seq = new_seq(writer, layout, NULL), *fork;
	uint8_t before[16], after[16], fork_digest[16];

	(void)state;
	append(writer, seq, 10, 1);
	digest_of(seq, before);
	snapshot(seq, "a/one", 0);
	append(writer, seq, 7, 2);
	fork = kvc_fork(writer, "a/one", NULL);
	assert_non_null(fork);
	assert_int_equal(kvc_length(fork), 10);
	digest_of(fork, fork_digest);
	assert_memory_equal(before, fork_digest, 16);
	append(writer, fork, 7, 2);
	digest_of(seq, before);
	digest_of(fork, after);
	assert_memory_equal(before, after, 16);
	append(writer, fork, 1, 3);
	digest_of(seq, after);
	assert_memory_equal(before, after, 16);
	kvc_seq_free(fork);
	kvc_seq_free(seq);
	ok(kvc_remove(session, "a/one"));
	assert_int_equal(kvc_remove(session, "a/one"), -1);
	assert_int_equal(kvc_error(), KVC_ENOTFOUND);
	close_session(session, layout);
}

static void test_names(void **state)
{
	kvc_session *session = open_session();
	kvc_layout *layout = open_layout(session);
	kvc_writer *writer = kvc_writer_new(session);
	kvc_seq *seq = new_seq(writer, layout, "b/seq");
	struct kvc_seq_options options = {.size = sizeof(options), .name = "b/seq"};
	struct kvc_snapshot_options snap = {.size = sizeof(snap), .name = "b/seq"};

	(void)state;
	assert_null(kvc_seq_new(writer, layout, &options));
	assert_int_equal(kvc_error(), KVC_EEXIST);
	assert_int_equal(kvc_snapshot(seq, &snap, NULL), -1);
	assert_int_equal(kvc_error(), KVC_EEXIST);
	snap.replace = 1; /* a live sequence is not replaced */
	assert_int_equal(kvc_snapshot(seq, &snap, NULL), -1);
	assert_int_equal(kvc_error(), KVC_EBUSY);
	snapshot(seq, "b/snap", 0);
	snapshot(seq, "b/snap", 1);
	ok(kvc_seq_name(seq, "b/other"));
	ok(kvc_seq_name(seq, NULL));
	assert_int_equal(kvc_remove(session, "b/other"), -1);
	ok(kvc_remove(session, "b/snap"));
	ok(kvc_seq_drop(seq));
	close_session(session, layout);
}

static void test_takeover(void **state)
{
	kvc_session *one = open_session(), *two = open_session();
	kvc_layout *layout = open_layout(one);
	kvc_writer *w1 = kvc_writer_new(one), *w2 = kvc_writer_new(two);
	kvc_seq *seq = new_seq(w1, layout, "c/seq");
	uint8_t before[16], after[16];
	kvc_mark mark;

	(void)state;
	append(w1, seq, 6, 1);
	ok(kvc_mark_set(seq, &mark));
	append(w1, seq, 3, 2);
	digest_of(seq, before);
	assert_null(kvc_takeover(w2, "c/seq"));
	assert_int_equal(kvc_error(), KVC_EBUSY);
	close_session(one, layout);
	seq = kvc_takeover(w2, "c/seq");
	assert_non_null(seq);
	assert_int_equal(kvc_length(seq), 9);
	digest_of(seq, after);
	assert_memory_equal(before, after, 16);
	append(w2, seq, 5, 3);
	ok(kvc_rollback_mark(seq, &mark));
	assert_int_equal(kvc_length(seq), 6);
	ok(kvc_seq_drop(seq));
	kvc_close(two);
}

/* ---- other processes: this program again, for nanomsg does not survive a fork --------------- */

/* Appends, acknowledges what it committed, and waits to be killed. */
static int child_append(int out_fd)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_seq *seq = new_seq(writer, open_layout(session), "d/seq");
	uint8_t told[16];

	append(writer, seq, 11, 5);
	if (kvc_digest(seq, told) || write(out_fd, told, 16) != 16)
		return 1;
	pause();
	return 0;
}

static int child_wait(int out_fd)
{
	kvc_session *session = open_session();
	int rc;

	if (write(out_fd, "", 1) != 1)
		return 1;
	rc = kvc_wait(session, "g/snap", 5000);
	kvc_close(session);
	return rc ? 1 : 0;
}

/* Starts this program as `role`; *fd: what it writes. */
static pid_t spawn(const char *role, int *fd)
{
	int pipe_fd[2];
	char number[16];
	pid_t pid;

	assert_int_equal(pipe(pipe_fd), 0);
	snprintf(number, sizeof(number), "%d", pipe_fd[1]);
	pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "test-core", role, kt_daemon_dir(daemon_), number, NULL);
		_exit(127);
	}
	close(pipe_fd[1]);
	*fd = pipe_fd[0];
	return pid;
}

static void test_killed_client(void **state)
{
	uint8_t told[16], found[16];
	kvc_session *session;
	kvc_writer *writer;
	kvc_seq *seq = NULL;
	int fd, status;
	pid_t pid = spawn("append", &fd);

	(void)state;
	assert_int_equal(read(fd, told, 16), 16);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(kt_wait_child(pid, 5000, &status), 0);
	session = open_session();
	writer = kvc_writer_new(session);
	for (int64_t until = kt_now_ms() + 5000; !seq && kt_now_ms() < until;)
		seq = kvc_takeover(writer, "d/seq");
	assert_non_null(seq);
	digest_of(seq, found);
	assert_memory_equal(told, found, 16);
	ok(kvc_seq_drop(seq));
	kvc_close(session);
	close(fd);
}

static void test_core_restart(void **state)
{
	kvc_session *session = open_session();
	kvc_layout *layout = open_layout(session);
	kvc_writer *writer = kvc_writer_new(session);
	kvc_seq *seq = new_seq(writer, layout, "e/seq"), *fork;
	uint8_t before[16], after[16], snap[16];

	(void)state;
	append(writer, seq, 9, 1);
	snapshot(seq, "e/snap", 0);
	digest_of(seq, snap);
	append(writer, seq, 9, 2);
	digest_of(seq, before);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(kt_daemon_kill_core(daemon_), 0);
		append(writer, seq, 2, 3);
		ok(kvc_rollback_remove(seq, 2));
		digest_of(seq, after);
		assert_memory_equal(before, after, 16);
		fork = kvc_fork(writer, "e/snap", NULL);
		if (!fork)
			printf("# %s\n", kvc_error_text());
		assert_non_null(fork);
		digest_of(fork, after);
		assert_memory_equal(snap, after, 16);
		append(writer, fork, 3, 4);
		ok(kvc_seq_drop(fork));
	}
	ok(kvc_seq_drop(seq));
	ok(kvc_remove(session, "e/snap"));
	close_session(session, layout);
}

static void test_verify(void **state)
{
	kvc_session *session = open_session();
	kvc_layout *layout = open_layout(session);
	kvc_writer *writer = kvc_writer_new(session);
	kvc_seq *seq = new_seq(writer, layout, NULL);
	struct kvc_verify_result result;
	uint8_t digest[16];
	struct kvc_run run;

	(void)state;
	append(writer, seq, 10, 1);
	digest_of(seq, digest);
	snapshot(seq, "f/snap", 0);
	ok(kvc_verify(session, "f/snap", NULL, NULL, &result));
	assert_int_equal(result.n_blocks, 3);
	assert_int_equal(result.n_known, 0);
	assert_memory_equal(result.digest, digest, 16);
	ok(kvc_verify(session, "f/snap", NULL, NULL, &result));
	assert_int_equal(result.n_known, 3);
	assert_int_equal(result.n_bad, 0);
	/* a bit of token 5 flips, in memory that this session may write */
	ok(kvc_view_run(seq, 1, &run));
	((unsigned char *)(uintptr_t)run.k)[5 * run.k_row_bytes] ^= 1;
	assert_int_equal(kvc_verify(session, "f/snap", NULL, NULL, &result), -1);
	assert_int_equal(kvc_error(), KVC_ECORRUPT);
	assert_int_equal(result.n_bad, 1);
	assert_int_equal(result.first_bad_token, 4);
	((unsigned char *)(uintptr_t)run.k)[5 * run.k_row_bytes] ^= 1;
	assert_int_equal(kt_daemon_kill_core(daemon_), 0);
	ok(kvc_verify(session, "f/snap", NULL, NULL, &result));
	assert_int_equal(result.n_known, 3); /* digests outlive the core */
	ok(kvc_remove(session, "f/snap"));
	ok(kvc_seq_drop(seq));
	close_session(session, layout);
}

static void test_wait_and_watch(void **state)
{
	kvc_session *session = open_session();
	kvc_layout *layout = open_layout(session);
	kvc_writer *writer = kvc_writer_new(session);
	kvc_seq *seq = new_seq(writer, layout, NULL);
	struct pollfd p = {.events = POLLIN};
	int status, fd;
	pid_t pid;
	char byte;

	(void)state;
	assert_int_equal(kvc_wait(session, "g/snap", 30), -1);
	assert_int_equal(kvc_error(), KVC_ETIMEOUT);
	p.fd = kvc_watch(session, "g/snap");
	assert_true(p.fd >= 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	pid = spawn("wait", &fd);
	assert_int_equal(read(fd, &byte, 1), 1);
	close(fd);
	append(writer, seq, 3, 1);
	snapshot(seq, "g/snap", 0);
	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(kt_wait_child(pid, 5000, &status), 0);
	assert_int_equal(WEXITSTATUS(status), 0);
	close(p.fd);
	p.fd = kvc_watch(session, "g/snap");
	assert_int_equal(poll(&p, 1, 5000), 1);
	close(p.fd);
	ok(kvc_remove(session, "g/snap"));
	ok(kvc_seq_drop(seq));
	close_session(session, layout);
}

static void test_exhausted(void **state)
{
	kvc_session *session = open_session();
	kvc_layout *layout = open_layout(session);
	kvc_writer *writer = kvc_writer_new(session);
	struct kvc_seq_options options = {.size = sizeof(options), .max_tokens = 1u << 20};
	kvc_seq *seq = kvc_seq_new(writer, layout, &options);
	uint64_t fits = (64u << 20) / kvc_layout_token_bytes(layout) - 1024;

	(void)state;
	assert_non_null(seq);
	assert_int_equal(kvc_reserve(seq, fits * 2), -1);
	assert_int_equal(kvc_error(), KVC_EPOOL);
	ok(kvc_reserve(seq, fits));
	ok(kvc_seq_drop(seq));
	seq = kvc_seq_new(writer, layout, &options);
	ok(kvc_reserve(seq, fits));
	ok(kvc_seq_drop(seq));
	close_session(session, layout);
}

static int setup(void **state)
{
	(void)state;
	daemon_ = kt_daemon_start(NULL);
	return daemon_ ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return kt_daemon_stop(daemon_);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a fork of a snapshot inside a block is its own from there", test_snapshot_fork),
	KT_TEST("names are one space, and replaced only when told to", test_names),
	KT_TEST("a sequence is taken over with its marks when its writer has gone", test_takeover),
	KT_TEST("what a killed client committed is there", test_killed_client),
	KT_TEST("everything goes on after the core was killed", test_core_restart),
	KT_TEST("verify learns digests and names the flipped block, also after a restart",
		test_verify),
	KT_TEST("waiting and watching end when the name appears", test_wait_and_watch),
	KT_TEST("an exhausted pool is refused and serves again", test_exhausted),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), setup, teardown};

	if (argc == 4) {
		runtime_dir = argv[2];
		return strcmp(argv[1], "append") == 0 ? child_append(atoi(argv[3])) :
							child_wait(atoi(argv[3]));
	}
	return kt_run(argc, argv, &group, 1);
}
