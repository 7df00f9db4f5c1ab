/*
 * Library and daemon when something dies or stops: no command is lost or run twice, calls end at
 * their deadlines, and a dead or stopped client harms nobody else.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
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
static const char *runtime_dir; /* of a process that this program started */

#define ok(call) \
	do { \
		if ((call) != 0) \
			fail_msg("%s: %s: %s", #call, kvc_status_name(kvc_error()), \
				 kvc_error_text()); \
	} while (0)

#define there(pointer) \
	do { \
		if (!(pointer)) \
			fail_msg("%s: %s: %s", #pointer, kvc_status_name(kvc_error()), \
				 kvc_error_text()); \
	} while (0)

static kvc_session *open_session(uint32_t deadline_ms)
{
	struct kvc_session_options options = {
		.size = sizeof(options), .runtime_dir = runtime_dir, .deadline_ms = deadline_ms};

	if (!runtime_dir)
		options.runtime_dir = kt_daemon_dir(daemon_);
	return kvc_open(&options);
}

static kvc_seq *new_seq(kvc_session *session, kvc_writer *writer, const char *name)
{
	const struct kvc_layer layer = {1, 8, 8, 0};
	const struct kvc_layout_options options = {.size = sizeof(options),
						   .fingerprint = {3},
						   .n_layers = 1,
						   .layers = &layer,
						   .dtype = KVC_F32,
						   .block_tokens = 4};
	const struct kvc_seq_options seq_options = {.size = sizeof(seq_options), .name = name};
	kvc_layout *layout = kvc_layout_register(session, &options);

	return layout ? kvc_seq_new(writer, layout, &seq_options) : NULL;
}

static int append(kvc_writer *writer, kvc_seq *seq, uint64_t n)
{
	float row[64 * 8];

	for (uint64_t i = 0; i < n * 8; i++)
		row[i] = (float)(kvc_length(seq) * 8 + i);
	return kvc_reserve(seq, n) || kvc_append_begin(seq, n) || kvc_write(seq, 0, row, row) ||
	       kvc_commit(writer, &seq, 1);
}

/* ---- nothing lost, nothing twice --------------------------------------------------------- */

struct namer {
	_Atomic bool stop;
	_Atomic unsigned n_done;
	unsigned n_restarted;
	int failed_status; /* of a call that may not fail so */
	char failed_text[256];
};

/* A new name each time: run twice it would be taken, lost it would not be there. */
static bool name_one(struct namer *me, kvc_session *session, kvc_seq *seq, unsigned i)
{
	char name[32];
	const struct kvc_snapshot_options options = {.size = sizeof(options), .name = name};

	snprintf(name, sizeof(name), "faults/%u", i);
	for (;;) {
		if (kvc_snapshot(seq, &options, NULL) == 0)
			break;
		if (kvc_error() != KVC_ERESTARTED)
			return false;
		me->n_restarted++;
	}
	return kvc_remove(session, name) == 0;
}

static void *name_many(void *arg)
{
	struct namer *me = arg;
	kvc_session *session = open_session(0);
	kvc_writer *writer = session ? kvc_writer_new(session) : NULL;
	kvc_seq *seq = writer ? new_seq(session, writer, NULL) : NULL;
	bool good = seq && append(writer, seq, 6) == 0;

	for (unsigned i = 0; good && !me->stop; i++) {
		good = name_one(me, session, seq, i);
		me->n_done++;
	}
	if (!good) {
		me->failed_status = kvc_error();
		snprintf(me->failed_text, sizeof(me->failed_text), "%s", kvc_error_text());
	}
	kvc_close(session);
	return NULL;
}

struct more {
	struct namer *namer;
	unsigned n_before;
};

static bool did_more(void *arg)
{
	struct more *more = arg;

	return more->namer->n_done >= more->n_before + 3 || more->namer->failed_status;
}

/* Kills under load, each after the namer has done something since the last. */
static void kill_under_load(int (*kill_one)(const struct kt_daemon *daemon), int n)
{
	struct namer namer = {.stop = false};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, name_many, &namer), 0);
	for (int i = 0; i < n && !namer.failed_status; i++) {
		struct more more = {&namer, namer.n_done};

		assert_true(kt_wait_until(did_more, &more, 10000));
		assert_int_equal(kill_one(daemon_), 0);
	}
	namer.stop = true;
	pthread_join(thread, NULL);
	if (namer.failed_status)
		fail_msg("after %u: %s: %s", namer.n_done, kvc_status_name(namer.failed_status),
			 namer.failed_text);
	assert_int_equal(namer.n_restarted, 0);
}

static void test_front_under_load(void **state)
{
	(void)state;
	kill_under_load(kt_daemon_kill_front, 30);
}

static void test_core_under_load(void **state)
{
	(void)state;
	kill_under_load(kt_daemon_kill_core, 8);
}

/* ---- stopped ----------------------------------------------------------------------------- */

static void test_core_stopped(void **state)
{
	kvc_session *session = open_session(200);
	pid_t core = kt_daemon_core(daemon_);
	int64_t begin_ms;

	(void)state;
	there(session);
	ok(kvc_ping(session));
	assert_true(core > 0);
	assert_int_equal(kill(core, SIGSTOP), 0);
	for (int i = 0; i < 2; i++) {
		begin_ms = kt_now_ms();
		assert_int_equal(kvc_ping(session), -1);
		assert_int_equal(kvc_error(), KVC_ETIMEOUT);
		assert_in_range(kt_now_ms() - begin_ms, 200, kt_scale_ms(1500));
	}
	assert_int_equal(kvc_watch(session, "faults/none"), -1);
	assert_int_equal(kvc_error(), KVC_ETIMEOUT);
	assert_int_equal(kill(core, SIGCONT), 0);
	kvc_close(session);
	there(session = open_session(0));
	ok(kvc_ping(session));
	kvc_close(session);
}

/* ---- other processes: this program again ------------------------------------------------- */

static int say(int fd, pid_t pid)
{
	return write(fd, &pid, sizeof(pid)) == sizeof(pid) ? 0 : -1;
}

/* Makes a named sequence of 7 tokens. "forks": forks a child that lives on. */
static int run_role(const char *role, int fd)
{
	kvc_session *session = open_session(0);
	kvc_writer *writer = session ? kvc_writer_new(session) : NULL;
	kvc_seq *seq = writer ? new_seq(session, writer, role) : NULL;
	pid_t child = 0;

	if (!seq || append(writer, seq, 7))
		return 1;
	if (strcmp(role, "forks") == 0) {
		child = fork();
		if (child == 0)
			for (;;)
				pause();
	}
	if (say(fd, child))
		return 1;
	for (;;)
		pause();
}

/* Starts it and waits until its sequence is there; *child: what it forked. */
static pid_t start_role(const char *role, pid_t *child)
{
	int pipe_fds[2];
	char number[16];
	pid_t pid;

	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		const int fd = dup(pipe_fds[1]);

		snprintf(number, sizeof(number), "%d", fd);
		execl("/proc/self/exe", "test-faults", role, kt_daemon_dir(daemon_), number, NULL);
		_exit(127);
	}
	close(pipe_fds[1]);
	assert_int_equal(read(pipe_fds[0], child, sizeof(*child)), sizeof(*child));
	close(pipe_fds[0]);
	return pid;
}

static void end_process(pid_t pid)
{
	int status;

	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(kt_wait_child(pid, 5000, &status), 0);
}

static void test_forked_client_dies(void **state)
{
	kvc_session *session = open_session(0);
	kvc_writer *writer = kvc_writer_new(session);
	kvc_seq *seq = NULL;
	pid_t child, pid = start_role("forks", &child);

	(void)state;
	there(writer);
	assert_null(kvc_takeover(writer, "forks"));
	assert_int_equal(kvc_error(), KVC_EBUSY);
	end_process(pid);
	for (int64_t until = kt_now_ms() + kt_scale_ms(5000); !seq && kt_now_ms() < until;)
		seq = kvc_takeover(writer, "forks");
	there(seq);
	assert_int_equal(kill(child, 0), 0); /* it lives on, with the attach socket open */
	assert_int_equal(kvc_length(seq), 7);
	assert_int_equal(append(writer, seq, 5), 0);
	ok(kvc_seq_drop(seq));
	kvc_close(session);
	assert_int_equal(kill(child, SIGKILL), 0);
}

static void test_stopped_client(void **state)
{
	kvc_session *session = open_session(0);
	kvc_writer *writer = kvc_writer_new(session);
	pid_t child, pid = start_role("stops", &child);
	kvc_seq *fork_;

	(void)state;
	there(writer);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	there(fork_ = kvc_fork(writer, "stops", NULL)); /* its word is idle: it need not run */
	assert_int_equal(kvc_length(fork_), 7);
	assert_int_equal(append(writer, fork_, 3), 0);
	assert_null(kvc_takeover(writer, "stops"));
	assert_int_equal(kvc_error(), KVC_EBUSY);
	ok(kvc_ping(session));
	end_process(pid);
	ok(kvc_seq_drop(fork_));
	kvc_close(session);
}

/* ---- ------------------------------------------------------------------------------------- */

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
	KT_TEST("no command is lost or run twice while the front is killed", test_front_under_load),
	KT_TEST("no command is lost or run twice while the core is killed", test_core_under_load),
	KT_TEST("calls to a stopped core end at their deadline", test_core_stopped),
	KT_TEST("a session ends with its process although a forked child lives",
		test_forked_client_dies),
	KT_TEST("a stopped client keeps its sequences and blocks nobody", test_stopped_client),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), setup, teardown};

	if (argc == 4) {
		runtime_dir = argv[2];
		return run_role(argv[1], atoi(argv[3]));
	}
	return kt_run(argc, argv, &group, 1);
}
