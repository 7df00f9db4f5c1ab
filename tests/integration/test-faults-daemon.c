/*
 * Parts of the daemon die, stop or are told to end, under load: core and front (KV-11), keeper
 * (KV-60), all of them stopped (KV-55), SIGTERM (KV-54), a second daemon in the same place.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

static struct kt_daemon *daemon_;

/* ---- load ------------------------------------------------------------------------------------ */

struct load {
	struct kt_client client;
	kvc_seq *seq;
	char name[32], snapshot[32], fork[32];
	uint64_t shadow[4096], n;
	unsigned int n_restarted;
};

static bool is_over(int in)
{
	struct pollfd p = {.fd = in, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* ERESTARTED may come once for a restart, and says that the call may be repeated. */
#define AGAIN(load, call) \
	while ((call) && kvc_error() == KVC_ERESTARTED) \
	assert_true((load)->n_restarted++ < 100)

#define AGAIN_FOR_EVER(call) \
	while ((call) && kvc_error() == KVC_ERESTARTED) \
		;

static void load_append(struct load *l, uint64_t n)
{
	uint64_t tokens[16];
	int rc;

	for (uint64_t i = 0; i < n; i++)
		tokens[i] = l->n * 31 + i;
	AGAIN(l, rc = kt_append_try(l->client.writer, l->seq, tokens, n));
	kt_ok(rc);
	memcpy(l->shadow + l->n, tokens, n * sizeof(tokens[0]));
	l->n += n;
}

/* A command with an effect that counts: run twice it would remove twice. */
static void load_remove(struct load *l, uint64_t n)
{
	const char *source = l->name;
	uint64_t length;
	int rc;

	AGAIN(l, rc = kt_rollback_by_name(l->client.session, &source, &n, KT_REMOVE, 1, 0));
	kt_ok(rc);
	l->n -= n;
	AGAIN(l, rc = kt_show(l->client.session, l->name, &length));
	kt_ok(rc);
	assert_int_equal(length, l->n);
	kt_fails(kt_append_try(l->client.writer, l->seq, &n, 1), KVC_EMOVED);
}

static void load_snapshot(struct load *l)
{
	const struct kvc_snapshot_options options = {.size = sizeof(options), .name = l->snapshot};
	kvc_seq *seq;
	int rc;

	AGAIN(l, rc = kvc_snapshot(l->seq, &options, NULL));
	kt_ok(rc); /* EEXIST if it was run twice */
	AGAIN(l, !(seq = kvc_open_snapshot(l->client.writer, l->snapshot)));
	kt_ok(seq ? 0 : -1);
	kt_assert_tokens(seq, l->shadow, l->n);
	kvc_seq_free(seq);
}

static void load_fork(struct load *l)
{
	const struct kvc_seq_options options = {.size = sizeof(options), .name = l->fork};
	const uint64_t before = l->n;
	kvc_seq *own = l->seq;
	int rc;

	AGAIN(l, !(l->seq = kvc_fork(l->client.writer, l->snapshot, &options)));
	kt_ok(l->seq ? 0 : -1);
	load_append(l, 3);
	kt_assert_tokens(l->seq, l->shadow, l->n);
	AGAIN(l, rc = kvc_seq_drop(l->seq));
	kt_ok(rc);
	AGAIN(l, rc = kvc_remove(l->client.session, l->snapshot));
	kt_ok(rc);
	l->seq = own;
	l->n = before;
}

static int role_load(const char *dir, const char *arg, int in, int out)
{
	struct load *l = calloc(1, sizeof(*l));

	snprintf(l->name, sizeof(l->name), "load/%s/seq", arg);
	snprintf(l->snapshot, sizeof(l->snapshot), "load/%s/snap", arg);
	snprintf(l->fork, sizeof(l->fork), "load/%s/fork", arg);
	l->client = kt_client_open_ms(dir, 15000);
	l->seq = kt_seq_new(&l->client, l->name);
	while (!is_over(in)) {
		load_append(l, 5);
		load_remove(l, 3);
		kt_assert_tokens(l->seq, l->shadow, l->n);
		load_snapshot(l);
		load_fork(l);
		if (l->n > 200) {
			l->n = 2;
			kt_ok(kvc_rollback_keep(l->seq, 2));
		}
		if (write(out, "", 1) != 1)
			return 1;
	}
	kt_ok(kvc_seq_drop(l->seq));
	kvc_close(l->client.session);
	if (write(out, &l->n_restarted, sizeof(l->n_restarted)) < 0)
		return 1;
	free(l);
	return 0;
}

/* Sessions one after the other: each takes over what the one before has parked, appends, leaves. */
static int role_short(const char *dir, const char *arg, int in, int out)
{
	const struct kvc_seq_options options = {.size = sizeof(options), .name = "short/seq"};
	uint64_t shadow[64], n = 0, token = 1;
	struct kt_client client;
	int rc;

	(void)arg;
	for (bool is_first = true; is_first || !is_over(in); is_first = false) {
		kvc_seq *seq;

		client = kt_client_open_ms(dir, 20000);
		AGAIN_FOR_EVER(!(seq = is_first ?
					       kvc_seq_new(client.writer, client.layout, &options) :
					       kvc_takeover(client.writer, options.name)));
		kt_ok(seq ? 0 : -1);
		kt_assert_tokens(seq, shadow, n);
		if (n > 40) {
			n = 3;
			kt_ok(kvc_rollback_keep(seq, n));
		}
		for (int i = 0; i < 5; i++) {
			AGAIN_FOR_EVER(rc = kt_append_try(client.writer, seq, &token, 1));
			kt_ok(rc);
			shadow[n++] = token++;
		}
		AGAIN_FOR_EVER(rc = kvc_snapshot(seq, NULL, NULL));
		kt_ok(rc);
		rc = kvc_watch(client.session, "short/never");
		kt_ok(rc < 0 ? -1 : 0);
		close(rc);
		kvc_close(client.session);
		if (write(out, "", 1) != 1)
			return 1;
	}
	client = kt_client_open_ms(dir, 20000);
	AGAIN_FOR_EVER(rc = kvc_remove(client.session, options.name));
	kt_ok(rc);
	kvc_close(client.session);
	return 0;
}

#define N_LOADS 4

struct loads {
	struct kt_kid kids[N_LOADS];
	unsigned int n_rounds[N_LOADS]; /* since the last kill */
};

static void loads_start(struct loads *loads, const char *dir)
{
	char arg[8];

	for (int i = 0; i < N_LOADS; i++) {
		snprintf(arg, sizeof(arg), "%d", i);
		kt_kid_start(&loads->kids[i], i == N_LOADS - 1 ? "short" : "load", dir, arg);
		fcntl(loads->kids[i].out, F_SETFL, O_NONBLOCK);
	}
}

/* Has each done something since it was asked last? */
static bool all_went_on(void *arg)
{
	struct loads *loads = arg;
	bool all = true;

	for (int i = 0; i < N_LOADS; i++) {
		char bytes[256];
		ssize_t n = read(loads->kids[i].out, bytes, sizeof(bytes));

		assert_int_not_equal(n, 0); /* it has ended */
		loads->n_rounds[i] += n > 0 ? (unsigned int)n : 0;
		all &= loads->n_rounds[i] >= 2;
	}
	return all;
}

static void loads_go_on(struct loads *loads)
{
	memset(loads->n_rounds, 0, sizeof(loads->n_rounds));
	assert_true(kt_wait_until(all_went_on, loads, 20000));
}

static void loads_stop(struct loads *loads)
{
	for (int i = 0; i < N_LOADS; i++) {
		kt_kid_write(&loads->kids[i], "e", 1);
		assert_int_equal(kt_kid_wait(&loads->kids[i]), 0);
	}
}

static void kill_under_load(int (*kill_one)(const struct kt_daemon *), int n_kills, int n_each)
{
	struct kt_client client = kt_client_open(kt_daemon_dir(daemon_));
	const struct kt_gauges before = kt_gauges(client.session);
	struct loads loads;

	loads_start(&loads, kt_daemon_dir(daemon_));
	loads_go_on(&loads);
	for (int i = 0; i < n_kills; i++) {
		assert_int_equal(kill_one(daemon_), 0);
		if (i % n_each == 0)
			loads_go_on(&loads);
	}
	loads_go_on(&loads);
	loads_stop(&loads);
	kt_wait_gauges(client.session, &before); /* no session lost, none left */
	kvc_close(client.session);
}

static void test_core_killed(void **state)
{
	(void)state;
	kill_under_load(kt_daemon_kill_core, 12, 1);
}

static void test_core_killed_quickly(void **state)
{
	(void)state;
	kill_under_load(kt_daemon_kill_core, 10, 5);
}

/* A process goes on while its sessions come and go: what the parked sequence has of each of them
 * is there after a restart. */
static void test_parked_restart(void **state)
{
	const struct kvc_seq_options options = {.size = sizeof(options), .name = "parked/seq"};
	uint64_t shadow[64], n = 0;
	struct kt_client client;
	kvc_seq *seq;

	(void)state;
	for (uint64_t i = 0; i < 5; i++) {
		client = kt_client_open(kt_daemon_dir(daemon_));
		seq = i == 0 ? kvc_seq_new(client.writer, client.layout, &options) :
			       kvc_takeover(client.writer, options.name);
		kt_ok(seq ? 0 : -1);
		kt_assert_tokens(seq, shadow, n);
		kt_append_numbers(client.writer, seq, 100 * i, 6, shadow, &n);
		kvc_close(client.session);
		if (i != 1)
			assert_int_equal(kt_daemon_kill_core(daemon_), 0);
	}
	client = kt_client_open(kt_daemon_dir(daemon_));
	kt_ok(kvc_remove(client.session, options.name));
	kvc_close(client.session);
}

#ifdef KV_FAULT_INJECTION
#define N_CORES 40

/* Each core dies by itself at one of the first points that it passes: between what it logs, does
 * in memory that it shares, gives the keeper and answers. */
static void core_dies_at_points(const char *most)
{
	struct kt_daemon *daemon;
	struct kt_client client;
	struct loads loads;

	daemon = kt_daemon_spawn_prepared(NULL, NULL, kt_daemon_core_dies, (void *)(uintptr_t)most);
	assert_true(kt_daemon_wait_ready(daemon));
	client = kt_client_open_ms(kt_daemon_dir(daemon), 20000);
	loads_start(&loads, kt_daemon_dir(daemon));
	do
		loads_go_on(&loads);
	while (kt_gauges(client.session).n_core_restarts < N_CORES);
	loads_stop(&loads);
	assert_int_equal(kt_gauges(client.session).n_sequences, 0);
	assert_int_equal(kt_gauges(client.session).n_snapshots, 0);
	kvc_close(client.session);
	assert_int_equal(kt_daemon_stop(daemon), 0);
}

static void test_core_dies_at_points(void **state)
{
	(void)state;
	core_dies_at_points("60");
	core_dies_at_points("400");
}
#else
static void test_core_dies_at_points(void **state)
{
	(void)state;
	kt_skip("needs --enable-fault-injection");
}
#endif

static void test_front_killed(void **state)
{
	(void)state;
	kill_under_load(kt_daemon_kill_front, 100, 5);
}

/* ---- stopped (KV-55) --------------------------------------------------------------------------- */

/* Process 0 would be this test and all around it. */
static void signal_one(pid_t pid, int number)
{
	assert_true(pid > 0);
	assert_int_equal(kill(pid, number), 0);
}

static void signal_daemon(int number)
{
	signal_one(kt_daemon_keeper(daemon_), number);
	signal_one(kt_daemon_core(daemon_), number);
	signal_one(kt_daemon_front(daemon_), number);
}

#define STOPPED_MS 300

struct timed {
	int64_t began;
	const char *what;
};

static void within_deadline(struct timed *timed, const char *what)
{
	int64_t took = kt_now_ms() - timed->began;

	if (took > kt_scale_ms(STOPPED_MS + 1500))
		fail_msg("%s took %lld ms", what, (long long)took);
	timed->began = kt_now_ms();
}

static void test_stopped(void **state)
{
	struct kt_client client = kt_client_open_ms(kt_daemon_dir(daemon_), STOPPED_MS);
	kvc_seq *seq = kt_seq_new(&client, "kv55/seq");
	struct kvc_session_options options = {.size = sizeof(options),
					      .runtime_dir = kt_daemon_dir(daemon_),
					      .deadline_ms = STOPPED_MS};
	uint64_t shadow[64], n = 0;
	struct timed timed;
	kvc_seq *fork;

	(void)state;
	kt_append_numbers(client.writer, seq, 1, 6, shadow, &n);
	kt_ok(kvc_reserve(seq, 8));
	signal_daemon(SIGSTOP);
	timed.began = kt_now_ms();
#define ENDS(call) \
	kt_fails((call) ? -1 : 0, KVC_ETIMEOUT); \
	within_deadline(&timed, #call)
	ENDS(kvc_ping(client.session));
	ENDS(kvc_reserve(seq, 1000));
	ENDS(kvc_snapshot(seq, NULL, NULL));
	ENDS(!kvc_fork(client.writer, "kv55/seq", NULL));
	ENDS(kvc_wait(client.session, "kv55/none", STOPPED_MS));
	ENDS(kvc_watch(client.session, "kv55/none") < 0);
	ENDS(kvc_verify(client.session, "kv55/seq", NULL, NULL, NULL));
	ENDS(!kvc_open(&options));
#undef ENDS
	/* what needs no daemon goes on */
	kt_append_numbers(client.writer, seq, 50, 8, shadow, &n);
	kt_assert_tokens(seq, shadow, n);
	signal_daemon(SIGCONT);
	kt_ok(kvc_ping(client.session));
	fork = kvc_fork(client.writer, "kv55/seq", NULL);
	kt_ok(fork ? 0 : -1);
	kt_assert_tokens(fork, shadow, n);
	kt_ok(kvc_seq_drop(seq));
	/* and a session can be closed while nobody answers */
	signal_daemon(SIGSTOP);
	timed.began = kt_now_ms();
	kvc_close(client.session);
	within_deadline(&timed, "kvc_close");
	signal_daemon(SIGCONT);
}

static pid_t stopped_pid;

static void on_alarm(int number)
{
	(void)number;
	kill(stopped_pid, SIGCONT);
}

/* A core that takes longer than a second to start: calls wait for it. */
static void test_slow_start(void **state)
{
	struct kt_client client = kt_client_open(kt_daemon_dir(daemon_));
	const struct itimerval later = {.it_value = {.tv_sec = 2}};
	const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};

	(void)state;
	assert_int_equal(kt_daemon_kill_core(daemon_), 0);
	stopped_pid = kt_daemon_core(daemon_);
	signal_one(stopped_pid, SIGSTOP);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &later, NULL);
	kt_ok(kvc_ping(client.session));
	kvc_close(client.session);
}

/* ---- a second one ------------------------------------------------------------------------------ */

static void test_second(void **state)
{
	struct kt_client client = kt_client_open(kt_daemon_dir(daemon_));
	const pid_t core = kt_daemon_core(daemon_);
	struct kt_daemon *second;
	int status;

	(void)state;
	for (int i = 0; i < 3; i++) {
		second = kt_daemon_spawn(kt_daemon_dir(daemon_), NULL);
		assert_false(kt_daemon_wait_ready(second));
		status = kt_daemon_wait_end(second, 5000);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
		kt_daemon_stop(second);
		kt_ok(kvc_ping(client.session));
		kvc_close(kt_client_open(kt_daemon_dir(daemon_)).session);
	}
	assert_int_equal(kt_daemon_core(daemon_), core);
	kvc_close(client.session);
}

/* ---- the keeper is killed (KV-60) ---------------------------------------------------------------- */

static size_t count_entries(const char *path)
{
	DIR *dir = opendir(path);
	size_t n = 0;

	if (!dir)
		return 0;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* A socket that a daemon of another time left, and a file where one should be. */
static void plant_stale(const char *dir)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/command.sock", dir);
	unlink(address.sun_path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/event.sock", dir);
	unlink(address.sun_path);
	fd = open(address.sun_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, 12345), 0);
	close(fd);
}

static bool has_none(void *arg)
{
	return kill(*(pid_t *)arg, 0) < 0;
}

static void test_keeper_killed(void **state)
{
	char *dir = kt_tmpdir_new();
	const size_t n_shm = count_entries("/dev/shm");

	(void)state;
	for (int i = 0; i < 10; i++) {
		struct kt_daemon *daemon = kt_daemon_spawn(dir, NULL);
		pid_t core = 0;

		if (i % 2 == 0) { /* else while it starts */
			struct kt_client client;
			kvc_seq *seq;

			assert_true(kt_daemon_wait_ready(daemon));
			core = kt_daemon_core(daemon);
			client = kt_client_open(dir);
			seq = kt_seq_new(&client, "kv60/seq");
			kt_append_numbers(client.writer, seq, 1, 100, NULL, NULL);
			kill(kt_daemon_keeper(daemon), SIGKILL);
			assert_true(kt_wait_until(has_none, &core, 5000));
			kt_fails(kvc_ping(client.session), KVC_EDAEMON);
			kvc_close(client.session);
		}
		kill(kt_daemon_keeper(daemon), SIGKILL);
		assert_true(kt_daemon_wait_end(daemon, 5000) != -1);
		kt_daemon_stop(daemon);
		if (core)
			assert_true(kt_wait_until(has_none, &core, 5000));
		assert_int_equal(count_entries("/dev/shm"), n_shm);
		if (i % 3 == 0)
			plant_stale(dir);
	}
	kt_tmpdir_free(dir);
}

/* ---- SIGTERM (KV-54) ------------------------------------------------------------------------------ */

/* Sessions one after the other, each in the middle of something when its daemon ends. */
static int role_endless(const char *dir, const char *arg, int in, int out)
{
	(void)arg;
	while (!is_over(in)) {
		struct kt_client client;
		kvc_seq *seq;
		int rc = 0;

		if (kt_client_try(&client, dir, 2000))
			continue;
		seq = kvc_seq_new(client.writer, client.layout, NULL);
		rc = seq ? 0 : -1;
		for (uint64_t i = 0; rc == 0 && !is_over(in); i++) {
			rc = kt_append_try(client.writer, seq, &i, 1);
			rc = rc ? rc : kvc_snapshot(seq, NULL, NULL);
			rc = rc ? rc : kvc_rollback_keep(seq, 0);
			if (i == 2 && write(out, "", 1) != 1)
				return 1;
			if (i == 3 && *arg == 'w') /* waits for what never comes */
				rc = kvc_wait(client.session, "kv54/never", 2000);
		}
		kvc_close(client.session);
	}
	return 0;
}

#define N_ENDLESS 6
#define N_TERMS 50

static void test_terminated(void **state)
{
	char *dir = kt_tmpdir_new();
	static const char *const sockets[] = {"attach.sock", "command.sock", "event.sock"};
	struct kt_kid kids[N_ENDLESS];
	char path[256], byte;

	(void)state;
	for (int k = 0; k < N_ENDLESS; k++)
		kt_kid_start(&kids[k], "endless", dir, k % 2 ? "w" : "");
	for (int i = 0; i < N_TERMS; i++) {
		struct kt_daemon *daemon = kt_daemon_spawn(dir, NULL);
		int64_t began;

		assert_true(kt_daemon_wait_ready(daemon));
		for (int k = 0; k < N_ENDLESS; k++)
			kt_kid_read(&kids[k], &byte, 1);
		began = kt_now_ms();
		kill(kt_daemon_keeper(daemon), SIGTERM);
		assert_int_equal(kt_daemon_wait_end(daemon, 5000), 0);
		assert_true(kt_now_ms() - began < kt_scale_ms(5000));
		kt_daemon_stop(daemon);
		for (size_t s = 0; s < sizeof(sockets) / sizeof(sockets[0]); s++) {
			snprintf(path, sizeof(path), "%s/%s", dir, sockets[s]);
			assert_int_equal(access(path, F_OK), -1);
		}
	}
	for (int k = 0; k < N_ENDLESS; k++) {
		kt_kid_write(&kids[k], "e", 1);
		assert_int_equal(kt_kid_wait(&kids[k]), 0);
	}
	kt_tmpdir_free(dir);
}

/* ------------------------------------------------------------------------------------------------ */

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
	KT_TEST("core killed under load: clients go on with the bytes that they had",
		test_core_killed),
	KT_TEST("cores killed one after the other, some before they served",
		test_core_killed_quickly),
	KT_TEST("a parked sequence outlives its sessions and the core", test_parked_restart),
	KT_TEST("a core that dies between any two of its acts loses nothing",
		test_core_dies_at_points),
	KT_TEST("KV-11 front killed 100 times under load: no command lost or run twice",
		test_front_killed),
	KT_TEST("KV-55 calls to a stopped daemon end by their deadline, the data plane goes on",
		test_stopped),
	KT_TEST("KV-55 a call waits for a core that needs two seconds to start", test_slow_start),
	KT_TEST("KV-60 a second daemon is refused and harms nothing", test_second),
	KT_TEST("KV-60 the keeper killed ten times, also while it starts: the next start works",
		test_keeper_killed),
	KT_TEST("KV-54 SIGTERM in the middle of requests, 50 times: it ends, sockets are gone",
		test_terminated),
};

static const struct kt_role roles[] = {
	{"load", role_load}, {"short", role_short}, {"endless", role_endless}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), setup, teardown};

	kt_kid_main(argc, argv, roles);
	return kt_run(argc, argv, &group, 1);
}
