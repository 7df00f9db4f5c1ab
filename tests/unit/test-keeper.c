/*
 * The keeper: what outlives core and front, who is started again, how it ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <nanomsg/nn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/packet.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"
#include "tests/unit/echo-core.h"

#define CORE "kvcached-core"
#define FRONT "kvcached-front"

static void assert_exit(int status, int code)
{
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), code);
}

static void stop_and_fini(struct echo_daemon *daemon)
{
	assert_exit(echo_stop(daemon), 0);
	echo_fini(daemon);
}

static void test_it_serves_and_ends_in_order(void **state)
{
	struct echo_daemon daemon;
	pid_t core;
	pid_t front;

	(void)state;
	echo_start(&daemon);
	assert_string_equal(echo_ask(&daemon, "echo hello"), "hello");
	core = echo_child(&daemon, CORE);
	front = echo_child(&daemon, FRONT);
	assert_true(core > 0);
	assert_true(front > 0);
	assert_int_equal(echo_ask_who(&daemon).pid, core);
	assert_int_equal(echo_ask_who(&daemon).life, 1);
	assert_int_equal(access(daemon.paths.attach, F_OK), 0);
	assert_exit(echo_stop(&daemon), 0);
	assert_int_equal(kill(core, 0), -1);
	assert_int_equal(kill(front, 0), -1);
	assert_int_equal(access(daemon.paths.attach, F_OK), -1);
	assert_int_equal(access(daemon.paths.command, F_OK), -1);
	assert_int_equal(access(daemon.paths.event, F_OK), -1);
	echo_fini(&daemon);
}

static void test_ready_is_said_only_when_the_core_serves(void **state)
{
	struct echo_daemon daemon;
	struct pollfd p = {.events = POLLIN};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char gate[300];
	int waiting;
	int client;

	(void)state;
	echo_init(&daemon);
	assert_int_equal(mkdir(daemon.settings.runtime_dir, 0700), 0);
	snprintf(gate, sizeof(gate), "%s/gate", daemon.settings.runtime_dir);
	assert_int_equal(close(open(gate, O_CREAT | O_WRONLY, 0600)), 0);
	echo_fork(&daemon);
	p.fd = daemon.ready_fd;
	client = echo_connect(&daemon);
	assert_int_equal(poll(&p, 1, 200), 0);
	/* Who connects now waits, he is not refused. */
	strcpy(address.sun_path, daemon.paths.attach);
	waiting = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	assert_int_equal(connect(waiting, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(unlink(gate), 0);
	echo_wait_ready(&daemon);
	assert_string_equal(echo_ask_on(client, "echo late"), "late");
	nn_close(client);
	close(waiting);
	stop_and_fini(&daemon);
}

/* Waits until the core of another life answers. */
static struct echo_who next_life(struct echo_daemon *daemon, unsigned long life)
{
	struct echo_who who = echo_ask_who(daemon);

	assert_int_equal(who.life, life);
	return who;
}

static void test_kept_descriptors_outlive_the_core(void **state)
{
	struct echo_daemon daemon;
	struct echo_who who;

	(void)state;
	echo_start(&daemon);
	assert_string_equal(echo_ask(&daemon, "keep 7 a"), "0");
	assert_string_equal(echo_ask(&daemon, "keep 8 b"), "0");
	assert_string_equal(echo_ask(&daemon, "keep 9 c"), "0");
	assert_string_equal(echo_ask(&daemon, "keep 7 A"), "0"); /* replaces */
	assert_string_equal(echo_ask(&daemon, "drop 8"), "0");
	assert_string_equal(echo_ask(&daemon, "drop 8"), "0"); /* is not there */
	who = echo_ask_who(&daemon);
	kill(who.pid, SIGKILL);
	who = next_life(&daemon, 2);
	assert_int_equal(who.n_kept, 2);
	assert_string_equal(echo_ask(&daemon, "kept 7"), "A");
	assert_string_equal(echo_ask(&daemon, "kept 8"), "none");
	assert_string_equal(echo_ask(&daemon, "kept 9"), "c");
	stop_and_fini(&daemon);
}

static void test_a_thousand_dead_cores_leak_no_descriptor(void **state)
{
	struct echo_daemon daemon;
	struct echo_who first;
	struct echo_who who;
	int n_keeper = -1;

	(void)state;
	echo_start(&daemon);
	for (int i = 0; i < 20; i++) {
		char request[32];

		snprintf(request, sizeof(request), "keep %d x", i);
		assert_string_equal(echo_ask(&daemon, request), "0");
	}
	kill(echo_ask_who(&daemon).pid, SIGKILL);
	first = next_life(&daemon, 2);
	n_keeper = echo_n_open(daemon.keeper);
	for (unsigned long life = 3; life < 1003; life++) {
		kill(echo_child(&daemon, CORE), SIGKILL);
		who = next_life(&daemon, life);
		assert_int_equal(who.n_kept, 20);
		assert_int_equal(who.n_open, first.n_open);
	}
	assert_int_equal(echo_n_open(daemon.keeper), n_keeper);
	stop_and_fini(&daemon);
}

static void test_a_hundred_dead_fronts_lose_no_request(void **state)
{
	struct echo_daemon daemon;
	int core;
	int n_keeper;

	(void)state;
	echo_start(&daemon);
	core = echo_ask_who(&daemon).pid;
	n_keeper = echo_n_open(daemon.keeper);
	for (int i = 0; i < 100; i++) {
		char request[32];
		pid_t front;

		while ((front = echo_child(&daemon, FRONT)) == 0)
			poll(NULL, 0, 1);
		kill(front, SIGKILL);
		snprintf(request, sizeof(request), "echo %d", i);
		assert_string_equal(echo_ask(&daemon, request), request + 5);
	}
	assert_int_equal(echo_ask_who(&daemon).pid, core);
	assert_int_equal(echo_n_open(daemon.keeper), n_keeper);
	stop_and_fini(&daemon);
}

static void test_the_front_holds_no_memory(void **state)
{
	struct echo_daemon daemon;
	char path[64];
	char target[256];
	pid_t front;

	(void)state;
	echo_start(&daemon);
	assert_string_equal(echo_ask(&daemon, "keep 1 x"), "0");
	kill(echo_child(&daemon, FRONT),
	     SIGKILL); /* the next one is forked from a keeper with it */
	assert_string_equal(echo_ask(&daemon, "kept 1"), "x");
	front = echo_child(&daemon, FRONT);
	for (int fd = 0; fd < 256; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", front, fd);
		n = readlink(path, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = '\0';
		assert_null(strstr(target, "memfd:"));
		assert_null(strstr(target, "/lock"));
	}
	stop_and_fini(&daemon);
}

static void test_a_core_that_crashes_again_and_again_is_given_up(void **state)
{
	struct echo_daemon daemon;
	int status;

	(void)state;
	echo_start(&daemon);
	/* REQ sends the deadly request again to each new core. */
	assert_int_equal(nn_send(daemon.client, "abort", 5, 0), 5);
	assert_int_equal(kt_wait_child(daemon.keeper, 60000, &status), 0);
	assert_exit(status, 1);
	assert_int_equal(access(daemon.paths.attach, F_OK), -1);
	echo_fini(&daemon);
}

static int core_without_start(const struct core_start *start)
{
	(void)start;
	return 1;
}

static void test_a_core_that_cannot_start_ends_all(void **state)
{
	struct echo_daemon daemon;
	char byte;
	int status;

	(void)state;
	echo_init(&daemon);
	daemon.core = core_without_start;
	echo_fork(&daemon);
	assert_int_equal(kt_wait_child(daemon.keeper, 20000, &status), 0);
	assert_exit(status, 1);
	assert_int_equal(read(daemon.ready_fd, &byte, 1), 0); /* never ready */
	echo_fini(&daemon);
}

static void test_a_pool_larger_than_the_memory_ends_all(void **state)
{
	struct echo_daemon daemon;
	int status;

	(void)state;
	echo_init(&daemon);
	daemon.settings.pool_bytes = UINT64_C(1) << 46;
	echo_fork(&daemon);
	assert_int_equal(kt_wait_child(daemon.keeper, 20000, &status), 0);
	assert_exit(status, 1);
	assert_int_equal(access(daemon.paths.attach, F_OK), -1);
	echo_fini(&daemon);
}

static void test_a_core_that_does_not_end_is_killed(void **state)
{
	struct echo_daemon daemon;
	int64_t begun_ms;

	(void)state;
	echo_start(&daemon);
	echo_ask(&daemon, "deaf");
	begun_ms = kt_now_ms();
	assert_exit(echo_stop(&daemon), 0);
	assert_true(kt_now_ms() - begun_ms >= KEEPER_STOP_MS);
	echo_fini(&daemon);
}

static void test_a_second_daemon_is_refused_and_harms_nothing(void **state)
{
	struct echo_daemon daemon;
	struct echo_daemon second;
	int status;

	(void)state;
	echo_init(&daemon);
	second = daemon;
	echo_prepare(&second);
	echo_fork(&daemon);
	echo_wait_ready(&daemon);
	echo_go(&second);
	assert_int_equal(kt_wait_child(second.keeper, 20000, &status), 0);
	assert_exit(status, 1);
	close(second.ready_fd);
	assert_string_equal(echo_ask(&daemon, "echo still here"), "still here");
	assert_int_equal(access(daemon.paths.attach, F_OK), 0);
	assert_int_equal(echo_ask_who(&daemon).life, 1);
	stop_and_fini(&daemon);
}

static bool has_gone(void *arg)
{
	return kill(*(pid_t *)arg, 0) != 0;
}

static void test_core_and_front_end_with_the_keeper_and_a_new_one_takes_over(void **state)
{
	struct echo_daemon daemon;
	struct echo_daemon next;
	pid_t core;
	pid_t front;
	int status;

	(void)state;
	echo_init(&daemon);
	next = daemon;
	echo_prepare(&next);
	echo_fork(&daemon);
	echo_wait_ready(&daemon);
	core = echo_child(&daemon, CORE);
	front = echo_child(&daemon, FRONT);
	kill(daemon.keeper, SIGKILL);
	assert_int_equal(kt_wait_child(daemon.keeper, 20000, &status), 0);
	assert_true(kt_wait_until(has_gone, &core, 20000));
	assert_true(kt_wait_until(has_gone, &front, 20000));
	assert_int_equal(access(daemon.paths.attach, F_OK), 0); /* stale */
	echo_go(&next);
	echo_wait_ready(&next);
	assert_string_equal(echo_ask(&next, "echo new"), "new");
	assert_string_equal(echo_ask(&daemon, "echo old"), "old"); /* reconnected by itself */
	nn_close(daemon.client);
	close(daemon.ready_fd);
	stop_and_fini(&next);
}

static void test_hangup_and_interrupts_are_taken_by_the_keeper_alone(void **state)
{
	struct echo_daemon daemon;
	pid_t core;
	int status;

	(void)state;
	echo_start(&daemon);
	core = echo_child(&daemon, CORE);
	kill(daemon.keeper, SIGHUP);
	kill(core, SIGINT);
	kill(core, SIGHUP);
	kill(echo_child(&daemon, FRONT), SIGINT);
	assert_string_equal(echo_ask(&daemon, "echo up"), "up");
	assert_int_equal(echo_ask_who(&daemon).pid, core);
	kill(daemon.keeper, SIGINT);
	assert_int_equal(kt_wait_child(daemon.keeper, 20000, &status), 0);
	assert_exit(status, 0);
	echo_fini(&daemon);
}

/* ---- under a service manager ------------------------------------------------------------- */

/* The manager's end: a datagram socket, and what is in the descriptor store. */
struct manager {
	int sock;
	char names[64][64];
	int fds[64];
	int n;
	bool ready;
};

#ifdef HAVE_SYSTEMD
static void manager_open(struct manager *manager, const char *folder)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	*manager = (struct manager){.sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", folder);
	assert_int_equal(bind(manager->sock, (struct sockaddr *)&address, sizeof(address)), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
}

static void manager_take(struct manager *manager, const char *text, int fd)
{
	const char *name = strstr(text, "FDNAME=");

	if (strstr(text, "READY=1"))
		manager->ready = true;
	if (!name)
		return;
	if (strstr(text, "FDSTOREREMOVE=1")) {
		for (int i = 0; i < manager->n; i++) {
			if (strcmp(manager->names[i], name + 7) != 0)
				continue;
			close(manager->fds[i]);
			manager->n--;
			manager->fds[i] = manager->fds[manager->n];
			memcpy(manager->names[i], manager->names[manager->n], 64);
		}
	} else if (strstr(text, "FDSTORE=1")) {
		assert_true(fd >= 0);
		snprintf(manager->names[manager->n], 64, "%s", name + 7);
		manager->fds[manager->n++] = fd;
	}
}

static void manager_read(struct manager *manager)
{
	char text[512];
	int fd;
	size_t n_fds = 1;
	ssize_t n;

	while ((n = packet_recv(manager->sock, text, sizeof(text) - 1, &fd, &n_fds)) > 0) {
		text[n] = '\0';
		manager_take(manager, text, n_fds > 0 ? fd : -1);
		n_fds = 1;
	}
}

/* In the process that will be the keeper: the store's descriptors from 3 on. */
static void hand_back(const struct manager *manager)
{
	char names[4096] = "";
	char number[16];
	int fds[64];

	for (int i = 0; i < manager->n; i++) {
		fds[i] = fcntl(manager->fds[i], F_DUPFD, 200);
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i ? ":" : "",
			 manager->names[i]);
	}
	for (int i = 0; i < manager->n; i++)
		dup2(fds[i], 3 + i);
	snprintf(number, sizeof(number), "%d", manager->n);
	setenv("LISTEN_FDS", number, 1);
	setenv("LISTEN_FDNAMES", names, 1);
	snprintf(number, sizeof(number), "%d", getpid());
	setenv("LISTEN_PID", number, 1);
}

static void run_handed_back(struct echo_daemon *daemon, const struct manager *manager)
{
	const struct keeper_options options = {
		.settings = &daemon->settings,
		.core = core_main,
		.front = front_main,
		.ready_fd = -1,
	};

	hand_back(manager);
	_exit(keeper_run(&options));
}

static bool manager_is_ready(void *arg)
{
	manager_read(arg);
	return ((struct manager *)arg)->ready;
}

static void test_the_descriptor_store_outlives_the_keeper(void **state)
{
	struct manager manager;
	struct echo_daemon daemon;
	struct echo_who who;
	int status;

	(void)state;
	echo_init(&daemon);
	manager_open(&manager, daemon.root);
	echo_fork(&daemon);
	echo_wait_ready(&daemon);
	assert_string_equal(echo_ask(&daemon, "keep 1 a"), "0");
	assert_string_equal(echo_ask(&daemon, "keep 2 b"), "0");
	assert_string_equal(echo_ask(&daemon, "keep 3 c"), "0");
	assert_string_equal(echo_ask(&daemon, "keep 1 A"), "0");
	assert_string_equal(echo_ask(&daemon, "drop 2"), "0");
	kill(daemon.keeper, SIGKILL);
	assert_int_equal(kt_wait_child(daemon.keeper, 20000, &status), 0);
	nn_close(daemon.client); /* before the next fork */
	manager_read(&manager);
	assert_true(manager.ready);
	assert_int_equal(manager.n, 2);
	manager.ready = false;

	daemon.keeper = fork();
	if (daemon.keeper == 0)
		run_handed_back(&daemon, &manager);
	assert_true(kt_wait_until(manager_is_ready, &manager, 20000));
	daemon.client = echo_connect(&daemon);
	who = echo_ask_who(&daemon);
	assert_int_equal(who.n_kept, 2);
	assert_true(who.life > 2); /* no life of the first keeper */
	assert_string_equal(echo_ask(&daemon, "kept 1"), "A");
	assert_string_equal(echo_ask(&daemon, "kept 2"), "none");
	assert_string_equal(echo_ask(&daemon, "kept 3"), "c");
	assert_string_equal(echo_ask(&daemon, "drop 3"), "0");
	manager_read(&manager);
	assert_int_equal(manager.n, 1);
	unsetenv("NOTIFY_SOCKET");
	close(manager.fds[0]);
	close(manager.sock);
	stop_and_fini(&daemon);
}
#else
static void test_the_descriptor_store_outlives_the_keeper(void **state)
{
	(void)state;
	kt_skip("built without libsystemd");
}
#endif

static const struct CMUnitTest tests[] = {
	KT_TEST("it serves, and ends in order", test_it_serves_and_ends_in_order),
	KT_TEST("ready is said only when the core serves",
		test_ready_is_said_only_when_the_core_serves),
	KT_TEST("kept descriptors outlive the core", test_kept_descriptors_outlive_the_core),
	KT_TEST("a thousand dead cores leak no descriptor",
		test_a_thousand_dead_cores_leak_no_descriptor),
	KT_TEST("a hundred dead fronts lose no request",
		test_a_hundred_dead_fronts_lose_no_request),
	KT_TEST("the front holds no memory", test_the_front_holds_no_memory),
	KT_TEST("a core that crashes again and again is given up",
		test_a_core_that_crashes_again_and_again_is_given_up),
	KT_TEST("a core that cannot start ends all", test_a_core_that_cannot_start_ends_all),
	KT_TEST("a pool larger than the memory ends all",
		test_a_pool_larger_than_the_memory_ends_all),
	KT_TEST("a core that does not end is killed", test_a_core_that_does_not_end_is_killed),
	KT_TEST("a second daemon is refused and harms nothing",
		test_a_second_daemon_is_refused_and_harms_nothing),
	KT_TEST("core and front end with the keeper, and a new one takes over",
		test_core_and_front_end_with_the_keeper_and_a_new_one_takes_over),
	KT_TEST("the descriptor store outlives the keeper",
		test_the_descriptor_store_outlives_the_keeper),
	KT_TEST("hangup and interrupts are taken by the keeper alone",
		test_hangup_and_interrupts_are_taken_by_the_keeper_alone),
};

KT_MAIN(tests)
