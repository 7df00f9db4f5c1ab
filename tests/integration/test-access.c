/*
 * Users and each other: what belongs to another uid is not found, its memory cannot be had in any
 * way, its session and token are of no use. A reader of the same user cannot write (design 5,
 * kvcache-security(7)). Needs root, to be two other users.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/clock.h"
#include "client/link.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

#define ALICE 20001
#define BOB 20002
#define NOGROUP 65534

#define TOKENS 10u
#define SNAP "access/snap"
#define SEQ "access/seq"
#define PARKED "access/parked"

static struct kt_daemon *daemon_;

/* ---- being someone ------------------------------------------------------------------------------ */

static void become(uid_t uid, gid_t gid)
{
	assert_int_equal(setgroups(0, NULL), 0);
	assert_int_equal(setgid(gid), 0);
	assert_int_equal(setuid(uid), 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* went with the uid */
	prctl(PR_SET_DUMPABLE, 1);        /* so that /proc/self/fd is ours */
}

static int take_snapshot(kvc_seq *seq, const char *name)
{
	const struct kvc_snapshot_options options = {.size = sizeof(options), .name = name};

	return kvc_snapshot(seq, &options, NULL);
}

/* What Alice tells: enough to try to be her. */
struct told {
	uint64_t session;
	uint8_t token[LINK_TOKEN_BYTES];
	uint8_t hash[32];
	pid_t pid;
};

/* Makes one of each kind of object, and waits. */
static int role_alice(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client;
	struct told told = {.pid = getpid()};
	uint64_t token = 7;
	kvc_seq *seq;
	char byte;

	(void)arg;
	become(ALICE, ALICE);
	client = kt_client_open(dir);
	seq = kt_seq_new(&client, PARKED);
	kt_append_numbers(client.writer, seq, 1, TOKENS, NULL, NULL);
	kvc_seq_free(seq);
	seq = kt_seq_new(&client, SEQ);
	kt_append_numbers(client.writer, seq, 1, TOKENS, NULL, NULL);
	kt_ok(take_snapshot(seq, SNAP));
	told.session = client.session->link->session_id;
	memcpy(told.token, client.session->link->token, sizeof(told.token));
	memcpy(told.hash, kvc_layout_hash(client.layout), sizeof(told.hash));
	if (write(out, &told, sizeof(told)) != sizeof(told) || read(in, &byte, 1) != 1)
		return 1;
	/* nobody has touched anything */
	assert_int_equal(kvc_length(seq), TOKENS);
	kt_ok(kt_append_try(client.writer, seq, &token, 1)); /* no EMOVED */
	kt_ok(kvc_seq_drop(seq));
	kt_ok(kvc_remove(client.session, SNAP));
	kt_ok(kvc_remove(client.session, PARKED));
	kvc_close(client.session);
	return 0;
}

/* ---- what Bob tries ------------------------------------------------------------------------------ */

static void not_found(kvc_session *session, kvc_writer *writer, const char *name)
{
	const uint64_t one = 1;

	kt_fails_null(kvc_open_snapshot(writer, name), KVC_ENOTFOUND);
	kt_fails_null(kvc_fork(writer, name, NULL), KVC_ENOTFOUND);
	kt_fails_null(kvc_takeover(writer, name), KVC_ENOTFOUND);
	kt_fails(kvc_remove(session, name), KVC_ENOTFOUND);
	kt_fails(kvc_verify(session, name, NULL, NULL, NULL), KVC_ENOTFOUND);
	kt_fails(kvc_wait(session, name, 50), KVC_ETIMEOUT);
	kt_fails(kt_show(session, name, NULL), KVC_ENOTFOUND);
	kt_fails(kt_snapshot_by_name(session, &name, (const char *const[]){"mine"}, 1, 0),
		 KVC_ENOTFOUND);
	kt_fails(kt_rollback_by_name(session, &name, &one, KT_REMOVE, 1, 0), KVC_ENOTFOUND);
}

static void no_such_ids(const struct kt_client *client)
{
	for (uint64_t id = 1; id < 64; id++)
		kt_fails_null(kvc_fork_id(client->writer, id, NULL), KVC_ENOTFOUND);
}

/* Arena numbers are of a session: there is none before something was reserved. */
static void no_such_arenas(struct kt_client *client)
{
	for (uint32_t arena = 1; arena < 64; arena++)
		kt_fails_null(session_arena(client->session, arena), KVC_ENOTFOUND);
}

static void not_her_session(const char *dir, const struct told *alice)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Hello hello = KV__WIRE__HELLO__INIT;
	struct kv_runtime runtime;
	struct attach attach;
	struct attach_answer answer;
	struct errbuf err;

	assert_int_equal(kv_runtime_paths(&runtime, dir, &err), 0);
	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_HELLO;
	request.hello = &hello;
	hello.session = alice->session;
	for (int right_token = 0; right_token < 2; right_token++) {
		uint8_t token[LINK_TOKEN_BYTES];

		memcpy(token, alice->token, sizeof(token));
		token[3] ^= !right_token;
		hello.token.data = token;
		hello.token.len = sizeof(token);
		assert_int_equal(
			attach_open(&attach, runtime.attach, clock_deadline_ns(5000), &err), 0);
		assert_int_equal(attach_exchange(&attach, &request, -1, clock_deadline_ns(5000),
						 &answer, &err),
				 -1);
		assert_int_equal(err.status, KVC_ESESSION);
		attach_close(&attach);
	}
}

/* Commands in her name with his token. */
static void not_in_her_name(const char *dir, const struct told *alice)
{
	struct kt_client client = kt_client_open(dir);
	const uint64_t own = client.session->link->session_id;

	client.session->link->session_id = alice->session;
	kt_fails(kvc_ping(client.session), KVC_ESESSION);
	client.session->link->session_id = own;
	kt_ok(kvc_ping(client.session));
	kvc_close(client.session);
}

static void denied(pid_t pid, const char *what)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
	assert_int_equal(open(path, O_RDONLY | O_CLOEXEC), -1);
	assert_true(errno == EACCES || errno == EPERM);
}

static int role_bob(const char *dir, const char *arg, int in, int out)
{
	static const char *const names[] = {SNAP, SEQ, PARKED};
	const pid_t core = atoi(arg);
	struct kt_client client;
	struct told alice;
	uint64_t ids[64];
	kvc_seq *seq;

	(void)out;
	if (read(in, &alice, sizeof(alice)) != sizeof(alice))
		return 1;
	become(BOB, BOB);
	client = kt_client_open(dir);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		not_found(client.session, client.writer, names[i]);
	no_such_ids(&client);
	no_such_arenas(&client);
	assert_int_equal(kt_sessions(client.session, ids, 64), 1); /* his own */
	assert_int_not_equal(ids[0], alice.session);
	kt_fails(kt_session_end(client.session, alice.session), KVC_ENOTFOUND);
	not_her_session(dir, &alice);
	not_in_her_name(dir, &alice);
	denied(alice.pid, "mem");
	denied(alice.pid, "map_files");
	denied(alice.pid, "fd");
	denied(core, "fd");
	/* the names are his to use, and the model's cache is not hers */
	seq = kt_seq_new(&client, SEQ);
	kt_append_numbers(client.writer, seq, 500, 3, NULL, NULL);
	kt_ok(take_snapshot(seq, SNAP));
	kt_assert_tokens(kvc_open_snapshot(client.writer, SNAP), (const uint64_t[]){500, 501, 502},
			 3);
	kt_ok(kvc_remove(client.session, SNAP));
	kt_ok(kvc_seq_drop(seq));
	kvc_close(client.session);
	return 0;
}

static void test_other_user(void **state)
{
	struct kt_kid alice, bob;
	struct told told;
	char core[16];

	(void)state;
	snprintf(core, sizeof(core), "%d", kt_daemon_core(daemon_));
	kt_kid_start(&alice, "alice", kt_daemon_dir(daemon_), NULL);
	kt_kid_read(&alice, &told, sizeof(told));
	kt_kid_start(&bob, "bob", kt_daemon_dir(daemon_), core);
	kt_kid_write(&bob, &told, sizeof(told));
	assert_int_equal(kt_kid_wait(&bob), 0);
	kt_kid_write(&alice, "e", 1);
	assert_int_equal(kt_kid_wait(&alice), 0);
}

/* A layout that only Alice has registered. */
static int role_layout(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client;
	uint8_t hash[32];
	kvc_layout *layout;

	(void)arg;
	become(BOB, BOB);
	client = kt_client_open(dir);
	if (read(in, hash, sizeof(hash)) != sizeof(hash))
		return 1;
	kt_fails_null(kvc_layout_find(client.session, hash), KVC_ENOTFOUND);
	layout = kt_layout(client.session, 77);
	kt_ok(layout ? 0 : -1);
	assert_memory_equal(kvc_layout_hash(layout), hash, 32);
	layout = kvc_layout_find(client.session, hash); /* his now too */
	kt_ok(layout ? 0 : -1);
	kvc_close(client.session);
	return write(out, "d", 1) == 1 ? 0 : 1;
}

static void test_layouts(void **state)
{
	struct kt_client client = kt_client_open(kt_daemon_dir(daemon_)); /* root */
	kvc_layout *layout = kt_layout(client.session, 77);
	struct kt_kid bob;

	(void)state;
	kt_kid_start(&bob, "layout", kt_daemon_dir(daemon_), NULL);
	kt_kid_write(&bob, kvc_layout_hash(layout), 32);
	assert_int_equal(kt_kid_wait(&bob), 0);
	kvc_close(client.session);
}

/* Root sees what there is and may end sessions; names are per user for it too. */
static void test_operator(void **state)
{
	struct kt_client client = kt_client_open(kt_daemon_dir(daemon_));
	struct kt_kid alice;
	struct told told;
	uint64_t ids[64];
	size_t n;
	bool seen = false;

	(void)state;
	kt_kid_start(&alice, "alice", kt_daemon_dir(daemon_), NULL);
	kt_kid_read(&alice, &told, sizeof(told));
	not_found(client.session, client.writer, SEQ);
	n = kt_sessions(client.session, ids, 64);
	for (size_t i = 0; i < n; i++)
		seen |= ids[i] == told.session;
	assert_true(seen);
	kt_kid_write(&alice, "e", 1);
	assert_int_equal(kt_kid_wait(&alice), 0);
	kvc_close(client.session);
}

/* ---- a reader of the same user -------------------------------------------------------------------- */

/* The descriptor that the daemon gives for an arena of this session's numbers. */
static int arena_fd(kvc_session *session, uint32_t number)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__ArenaGet get = KV__WIRE__ARENA_GET__INIT;
	struct attach_answer answer;
	struct errbuf err;
	int fd;

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_ARENA_GET;
	request.arena_get = &get;
	get.arena = number;
	assert_int_equal(link_exchange(session->link, &request, -1, &answer, &err), 0);
	assert_false(answer.reply->arena->writable);
	fd = answer.fd;
	answer.fd = -1;
	attach_answer_free(&answer);
	return fd;
}

static void cannot_write(struct arena_map *map, int fd)
{
	char path[64], byte;
	void *again;

	assert_false(map->writable);
	assert_int_equal(mprotect(map->base, 4096, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	again = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(again, MAP_FAILED);
	assert_int_equal(mprotect(again, 4096, PROT_READ | PROT_WRITE), -1);
	munmap(again, 4096);
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	assert_int_equal(pread(fd, &byte, 1, 0), 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(open(path, O_RDWR | O_CLOEXEC), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(chmod(path, 0666), -1);
}

static int role_reader(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client;
	unsigned int n_arenas = 0;
	uint64_t tokens[TOKENS];
	kvc_seq *seq;

	(void)arg;
	(void)in;
	(void)out;
	become(ALICE, ALICE);
	client = kt_client_open(dir);
	seq = kvc_open_snapshot(client.writer, SNAP);
	kt_ok(seq ? 0 : -1);
	for (uint64_t i = 0; i < TOKENS; i++)
		tokens[i] = 1 + i;
	kt_assert_tokens(seq, tokens, TOKENS);
	kt_fails(kvc_append_begin(seq, 1), KVC_EREADONLY);
	kt_fails(kvc_rollback_keep(seq, 0), KVC_EREADONLY);
	for (uint32_t number = 0; number < KV_ARENAS_MAX; number++) {
		struct arena_map *map = session_arena_mapped(client.session, number);
		int fd;

		if (!map)
			continue;
		fd = arena_fd(client.session, number);
		cannot_write(map, fd);
		close(fd);
		n_arenas++;
	}
	assert_int_equal(n_arenas, 1);
	kt_fails(kvc_remove(client.session, SEQ), KVC_EBUSY); /* it has a writer */
	kt_fails_null(kvc_takeover(client.writer, SEQ), KVC_EBUSY);
	kvc_close(client.session);
	return 0;
}

static void test_reader(void **state)
{
	struct kt_kid alice, reader;
	struct told told;

	(void)state;
	kt_kid_start(&alice, "alice", kt_daemon_dir(daemon_), NULL);
	kt_kid_read(&alice, &told, sizeof(told));
	kt_kid_start(&reader, "reader", kt_daemon_dir(daemon_), NULL);
	assert_int_equal(kt_kid_wait(&reader), 0);
	kt_kid_write(&alice, "e", 1);
	assert_int_equal(kt_kid_wait(&alice), 0);
}

/* ---- memory that was another's (KV-31) -------------------------------------------------------------- */

static int role_leave(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client;
	kvc_seq *seq;

	(void)arg;
	(void)in;
	become(ALICE, ALICE);
	client = kt_client_open(dir);
	seq = kt_seq_new(&client, NULL);
	kt_append_numbers(client.writer, seq, 1, 60000, NULL, NULL);
	if (write(out, "l", 1) != 1)
		return 1;
	raise(SIGKILL);
	return 1;
}

static int role_take(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client;
	unsigned int n_arenas = 0;
	kvc_seq *seq;

	(void)arg;
	(void)in;
	(void)out;
	become(BOB, BOB);
	client = kt_client_open(dir);
	seq = kt_seq_new(&client, NULL);
	kt_ok(kvc_reserve(seq, 60000));
	for (uint32_t number = 0; number < KV_ARENAS_MAX; number++) {
		struct arena_map *map = session_arena_mapped(client.session, number);

		for (uint64_t i = 0; map && i < map->n_bytes; i++)
			assert_int_equal(map->base[i], 0);
		n_arenas += map != NULL;
	}
	assert_true(n_arenas > 0);
	kvc_close(client.session);
	return 0;
}

static void test_fresh_memory(void **state)
{
	struct kt_client client = kt_client_open(kt_daemon_dir(daemon_));
	const struct kt_gauges before = kt_gauges(client.session);
	struct kt_kid kid;

	(void)state;
	for (int i = 0; i < 2; i++) {
		kt_kid_start(&kid, "leave", kt_daemon_dir(daemon_), NULL);
		assert_true(WIFSIGNALED(kt_kid_wait(&kid)));
		kt_wait_gauges(client.session, &before);
		kt_kid_start(&kid, "take", kt_daemon_dir(daemon_), NULL);
		assert_int_equal(kt_kid_wait(&kid), 0);
	}
	kvc_close(client.session);
}

/* ---- who may connect (KV-64) ---------------------------------------------------------------------- */

static int role_connect(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client;
	const gid_t gid = (gid_t)atoi(arg);

	(void)in;
	(void)out;
	become(ALICE, gid);
	if (gid == NOGROUP) {
		client = kt_client_open(dir);
		kvc_close(client.session);
		return 0;
	}
	kt_fails(kt_client_try(&client, dir, 1000), KVC_EPERM);
	assert_non_null(strstr(kvc_error_text(), "attach.sock"));
	assert_non_null(strstr(kvc_error_text(), "group"));
	return 0;
}

static char *open_dir(void)
{
	char *dir = kt_tmpdir_new(), root[256];

	snprintf(root, sizeof(root), "%s", dir);
	*strrchr(root, '/') = '\0';
	chmod(root, 0711);
	chmod(dir, 0711);
	return dir;
}

static void set_umask(void *arg)
{
	(void)arg;
	umask(077);
}

static void test_group(void **state)
{
	static const char *const arguments[] = {"--socket-mode", "0660", "--socket-group",
						"nogroup", NULL};
	char *dir = open_dir();
	struct kt_daemon *daemon;
	struct kt_kid kid;

	(void)state;
	if (!getgrnam("nogroup") || getgrnam("nogroup")->gr_gid != NOGROUP) {
		kt_tmpdir_free(dir);
		kt_skip("there is no group nogroup of number 65534");
	}
	daemon = kt_daemon_spawn_prepared(dir, arguments, set_umask, NULL);
	assert_true(kt_daemon_wait_ready(daemon));
	for (int i = 0; i < 2; i++) { /* also sockets of a front that came later */
		kt_kid_start(&kid, "connect", dir, "65534");
		assert_int_equal(kt_kid_wait(&kid), 0);
		kt_kid_start(&kid, "connect", dir, "20001");
		assert_int_equal(kt_kid_wait(&kid), 0);
		assert_int_equal(kt_daemon_kill_front(daemon), 0);
	}
	assert_int_equal(kt_daemon_stop(daemon), 0);
	kt_tmpdir_free(dir);
}

/* ------------------------------------------------------------------------------------------------------ */

static char *dir_;

static int setup(void **state)
{
	static const char *const arguments[] = {"--socket-mode", "0666", NULL};

	(void)state;
	if (geteuid() != 0)
		return 0;
	dir_ = open_dir();
	daemon_ = kt_daemon_spawn(dir_, arguments);
	return kt_daemon_wait_ready(daemon_) ? 0 : -1;
}

static int teardown(void **state)
{
	int rc = kt_daemon_stop(daemon_);

	(void)state;
	kt_tmpdir_free(dir_);
	return rc;
}

static int need_root(void **state)
{
	(void)state;
	if (geteuid() != 0)
		kt_skip("needs root, to be other users");
	return 0;
}

#define TEST(sentence, fn) KT_TEST_FIXTURE(sentence, fn, need_root, NULL)

static const struct CMUnitTest tests[] = {
	TEST("what belongs to another user is not found, and its memory is not to be had",
	     test_other_user),
	TEST("a layout is found by who has registered it", test_layouts),
	TEST("root sees sessions of others and has names of its own", test_operator),
	TEST("a reader of the same user cannot write, in any way", test_reader),
	TEST("KV-31 memory that was another user's is zero", test_fresh_memory),
	TEST("KV-64 who is not in the group of the sockets is told so", test_group),
};

static const struct kt_role roles[] = {{"alice", role_alice},     {"bob", role_bob},
				       {"layout", role_layout},   {"reader", role_reader},
				       {"leave", role_leave},     {"take", role_take},
				       {"connect", role_connect}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), setup, teardown};

	kt_kid_main(argc, argv, roles);
	return kt_run(argc, argv, &group, 1);
}
