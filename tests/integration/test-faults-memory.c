/*
 * Memory and places that are used up, refused or not there: each is one clear error that names
 * what is short, nothing is half done, and it goes on when there is room again (KV-31, KV-50,
 * KV-64).
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/session.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

#define NOBODY 65534

static struct kt_daemon *daemon_;

static struct kt_client open_client(void)
{
	return kt_client_open(kt_daemon_dir(daemon_));
}

static void assert_same_gauges(kvc_session *session, const struct kt_gauges *before)
{
	struct kt_gauges now = kt_gauges(session);

	assert_int_equal(now.free, before->free);
	assert_int_equal(now.live, before->live);
	assert_int_equal(now.reserved, before->reserved);
	assert_int_equal(now.n_sequences, before->n_sequences);
	assert_int_equal(now.n_snapshots, before->n_snapshots);
}

/* ---- the pool ---------------------------------------------------------------------------------- */

static void test_pool_exhausted(void **state)
{
	struct kt_client one = open_client(), two = open_client();
	kvc_seq *first = kt_seq_new(&one, NULL), *other = kt_seq_new(&two, NULL);
	const struct kt_gauges empty = kt_gauges(one.session);
	const uint64_t most = empty.total / KT_TOKEN_BYTES;
	uint64_t shadow[64], n = 0;
	struct kt_gauges full;

	(void)state;
	kt_append_numbers(one.writer, first, 1, 10, shadow, &n);
	for (int i = 0; i < 3; i++) {
		kt_ok(kvc_reserve(first, most - 2000));
		kt_append_numbers(two.writer, other, 1, 10, NULL, NULL);
		full = kt_gauges(one.session);
		kt_fails(kvc_reserve(other, 4000), KVC_EPOOL);
		assert_non_null(strstr(kvc_error_text(), "free"));
		kt_fails_null(kvc_batch_new(two.writer, two.layout, 8, 4096), KVC_EPOOL);
		kt_fails(kvc_reserve(first, 2 * most), KVC_EPOOL);
		assert_same_gauges(one.session, &full);
		/* what it has it can use, and what needs no memory works */
		kt_append_numbers(one.writer, first, 50, 10, shadow, &n);
		kt_assert_tokens(first, shadow, n);
		kt_ok(kvc_seq_drop(first));
		kt_ok(kvc_reserve(other, 4000));
		kt_ok(kvc_seq_drop(other));
		kt_ok(kvc_writer_free(one.writer));
		one.writer = kvc_writer_new(one.session);
		kt_wait_gauges(one.session,
			       &(struct kt_gauges){.free = empty.total, .n_sessions = 2});
		first = kt_seq_new(&one, NULL);
		other = kt_seq_new(&two, NULL);
		n = 0;
		kt_append_numbers(one.writer, first, 1, 10, shadow, &n);
	}
	kvc_close(one.session);
	kvc_close(two.session);
}

/* The pool is filled by appends until it is refused; what was committed is whole. */
static void test_append_until_full(void **state)
{
	struct kt_client client = open_client();
	kvc_seq *big = kt_seq_new(&client, NULL), *seq = kt_seq_new(&client, NULL);
	const struct kt_gauges before = kt_gauges(client.session);
	uint64_t shadow[8192], n = 0, token[64];
	kvc_seq *fork;

	(void)state;
	kt_ok(kvc_reserve(big, before.free / KT_TOKEN_BYTES - 3000));
	for (;;) {
		for (int i = 0; i < 64; i++)
			token[i] = n + (uint64_t)i;
		if (kt_append_try(client.writer, seq, token, 64))
			break;
		memcpy(shadow + n, token, sizeof(token));
		n += 64;
		assert_true(n < 8000);
	}
	assert_int_equal(kvc_error(), KVC_EPOOL);
	kt_assert_tokens(seq, shadow, n);
	fork = kvc_fork_local(seq, 0);
	kt_fails_null(fork, KVC_ERESERVE);
	kt_ok(kvc_rollback_keep(seq, 7));
	kt_append_numbers(client.writer, seq, 90, 3, NULL, NULL);
	kt_ok(kvc_seq_drop(big));
	kt_ok(kvc_reserve(seq, 4096));
	kt_ok(kvc_seq_drop(seq));
	kvc_close(client.session);
}

/* ---- quotas ------------------------------------------------------------------------------------- */

static void test_quotas(void **state)
{
	static const char *const arguments[] = {"--bytes-per-user", "8M", "--sessions", "3",
						"--sequences",      "6",  NULL};
	struct kt_daemon *daemon = kt_daemon_start(arguments);
	struct kt_client clients[3], refused;
	struct kt_gauges before;
	kvc_seq *seqs[7], *seq;

	(void)state;
	assert_non_null(daemon);
	for (int i = 0; i < 3; i++)
		clients[i] = kt_client_open(kt_daemon_dir(daemon));
	kt_fails(kt_client_try(&refused, kt_daemon_dir(daemon), 0), KVC_EQUOTA);
	assert_non_null(strstr(kvc_error_text(), "3 sessions"));
	kvc_close(clients[2].session);
	clients[2] = kt_client_open(kt_daemon_dir(daemon));

	for (int i = 0; i < 6; i++)
		seqs[i] = kt_seq_new(&clients[i % 2], NULL);
	kt_append_numbers(clients[0].writer, seqs[0], 1, 6, NULL, NULL);
	before = kt_gauges(clients[0].session);
	kt_fails_null(kvc_seq_new(clients[0].writer, clients[0].layout, NULL), KVC_EQUOTA);
	assert_non_null(strstr(kvc_error_text(), "6"));
	kt_fails(kvc_snapshot(seqs[0], NULL, NULL), KVC_EQUOTA);
	assert_same_gauges(clients[0].session, &before);
	kt_ok(kvc_seq_drop(seqs[5]));
	kt_ok(kvc_snapshot(seqs[0], NULL, NULL));

	kt_ok(kvc_reserve(seqs[1], 15000));
	before = kt_gauges(clients[0].session);
	kt_fails(kvc_reserve(seqs[2], 15000), KVC_EQUOTA); /* of all sessions of the user */
	assert_non_null(strstr(kvc_error_text(), "bytes_per_user"));
	assert_non_null(strstr(kvc_error_text(), "8388608"));
	assert_same_gauges(clients[0].session, &before);
	kt_ok(kvc_seq_drop(seqs[1]));
	kt_ok(kvc_reserve(seqs[2], 15000));
	seq = kvc_seq_new(clients[1].writer, clients[1].layout, NULL);
	kt_ok(seq ? 0 : -1);
	for (int i = 0; i < 3; i++)
		kvc_close(clients[i].session);
	assert_int_equal(kt_daemon_stop(daemon), 0);
}

/* ---- fresh memory (KV-31) ------------------------------------------------------------------------ */

#define TAG "secret tag of another"

/* Fills blocks with a tag and with NaN, gives half of them back, and is killed with the rest. */
static int role_fill(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client = kt_client_open(dir);
	char k[8 * 128], v[8 * 64], byte;

	(void)arg;
	memset(v, 0xff, sizeof(v));
	for (size_t i = 0; i < sizeof(k); i++)
		k[i] = TAG[i % sizeof(TAG)];
	for (int s = 0; s < 2; s++) {
		kvc_seq *seq = kt_seq_new(&client, NULL);

		kt_ok(kvc_reserve(seq, 4096));
		for (int i = 0; i < 512; i++) {
			kt_ok(kvc_append_begin(seq, 8));
			for (uint32_t l = 0; l < 2; l++)
				kt_ok(kvc_write(seq, l, k, v));
			kt_ok(kvc_commit(client.writer, &seq, 1));
		}
		if (s == 0)
			kt_ok(kvc_seq_drop(seq));
	}
	if (write(out, "f", 1) != 1 || read(in, &byte, 1) != 1)
		return 1;
	return 1;
}

static void assert_zero_but(const struct arena_map *map, const char *from, const char *to)
{
	for (const char *at = map->base; at < map->base + map->n_bytes; at++)
		if (at < from || at >= to)
			assert_int_equal(*at, 0);
}

static void test_fresh_is_zero(void **state)
{
	struct kt_client client = open_client();
	struct kt_gauges before = kt_gauges(client.session);
	struct kvc_run run;
	struct kt_kid kid;
	kvc_seq *seq;
	char byte;

	(void)state;
	for (int i = 0; i < 3; i++) {
		kt_kid_start(&kid, "fill", kt_daemon_dir(daemon_), NULL);
		kt_kid_read(&kid, &byte, 1);
		kt_kid_kill(&kid);
	}
	kt_wait_gauges(client.session, &before);
	/* 5 of 4 + 4 slots, and 8,000 blocks more: nothing in all of it but the 5 */
	seq = kt_seq_new(&client, NULL);
	kt_ok(kvc_reserve(seq, 32000));
	for (uint32_t i = 1; i < KV_ARENAS_MAX; i++) {
		struct arena_map *map = session_arena_mapped(client.session, i);

		if (map)
			assert_zero_but(map, NULL, NULL);
	}
	kt_append_numbers(client.writer, seq, 1, 5, NULL, NULL);
	kt_ok(kvc_view_run(seq, 0, &run));
	for (int i = 5 * 128; i < 8 * 128; i++)
		assert_int_equal(((const char *)run.k)[i], 0);
	kt_ok(kvc_seq_drop(seq));
	kvc_close(client.session);
}

/* ---- daemons under odd conditions ------------------------------------------------------------------ */

struct odd {
	char dir[256]; /* served */
	char log[256]; /* what it says on stderr */
	uid_t uid;
	rlim_t memlock; /* 0: as it is */
	rlim_t fsize;   /* 0: as it is */
	rlim_t nofile;  /* 0: as it is */
	bool no_memfd;
	bool tiny_shm;
	bool readonly_fs;
};

static int filter_memfd(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* A file system of one page in place of another, in a mount name space of its own. */
static int mount_tiny(const char *path, unsigned long flags)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return -1;
	return mount("none", path, "tmpfs", flags, "size=4096,mode=0755");
}

static void prepare(void *arg)
{
	const struct odd *odd = arg;
	const struct rlimit memlock = {odd->memlock, odd->memlock};
	const struct rlimit fsize = {odd->fsize, odd->fsize};
	const struct rlimit nofile = {odd->nofile, odd->nofile};
	int fd = open(odd->log, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0666);

	if (fd < 0 || dup2(fd, 2) < 0 || (odd->memlock && setrlimit(RLIMIT_MEMLOCK, &memlock)) ||
	    (odd->fsize && setrlimit(RLIMIT_FSIZE, &fsize)) ||
	    (odd->nofile && setrlimit(RLIMIT_NOFILE, &nofile)) ||
	    (odd->tiny_shm && mount_tiny("/dev/shm", 0)) ||
	    (odd->readonly_fs && mount_tiny(odd->dir, MS_RDONLY)) ||
	    (odd->uid && (setgroups(0, NULL) || setgid(odd->uid) || setuid(odd->uid))) ||
	    (odd->no_memfd && filter_memfd())) {
		dprintf(2, "prepare: %s\n", strerror(errno));
		_exit(99);
	}
}

static char *new_dir(void)
{
	char *dir = kt_tmpdir_new(), root[256], *slash;

	snprintf(root, sizeof(root), "%s", dir);
	slash = strrchr(root, '/');
	*slash = '\0';
	chmod(root, 0711); /* for other users */
	chmod(dir, 0711);
	return dir;
}

static struct odd odd_new(const char *dir)
{
	struct odd odd = {.uid = 0};

	snprintf(odd.dir, sizeof(odd.dir), "%s/run", dir);
	snprintf(odd.log, sizeof(odd.log), "%s/log", dir);
	return odd;
}

/* Lines of the log that contain `text`. */
static int count_lines(const struct odd *odd, const char *text)
{
	FILE *file = fopen(odd->log, "re");
	char line[1024];
	int n = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		n += strstr(line, text) != NULL;
	fclose(file);
	return n;
}

static void show_log(const struct odd *odd)
{
	FILE *file = fopen(odd->log, "re");
	char line[1024];

	while (file && fgets(line, sizeof(line), file))
		fputs(line, stderr);
	if (file)
		fclose(file);
}

static struct kt_daemon *start_odd(struct odd *odd, const char *const *arguments)
{
	struct kt_daemon *daemon = kt_daemon_spawn_prepared(odd->dir, arguments, prepare, odd);

	if (kt_daemon_wait_ready(daemon))
		return daemon;
	if (kt_daemon_wait_end(daemon, 5000) == 99 << 8) {
		kt_daemon_stop(daemon);
		kt_skip("no privilege for this here: root, or a mount name space");
	}
	show_log(odd);
	kt_daemon_stop(daemon);
	return NULL;
}

/* It does not come up, and says why in one line. */
static void refuses_to_start(struct odd *odd, const char *const *arguments, const char *reason,
			     const char *advice)
{
	struct kt_daemon *daemon = kt_daemon_spawn_prepared(odd->dir, arguments, prepare, odd);
	int status;

	assert_false(kt_daemon_wait_ready(daemon));
	status = kt_daemon_wait_end(daemon, 5000);
	kt_daemon_stop(daemon);
	if (status == 99 << 8)
		kt_skip("no privilege for this here: root, or a mount name space");
	if (status != 1 << 8 || count_lines(odd, reason) != 1 || count_lines(odd, advice) != 1)
		show_log(odd);
	assert_int_equal(status, 1 << 8);
	assert_int_equal(count_lines(odd, reason), 1);
	assert_int_equal(count_lines(odd, advice), 1);
}

static void serves(const char *dir)
{
	struct kt_client client = kt_client_open(dir);
	kvc_seq *seq = kt_seq_new(&client, NULL);
	uint64_t shadow[2048], n = 0;

	kt_append_numbers(client.writer, seq, 1, 2000, shadow, &n);
	kt_assert_tokens(seq, shadow, n);
	kvc_close(client.session);
}

static void need_root(void)
{
	if (geteuid() != 0)
		kt_skip("needs root, to be another user");
}

static bool has_warned(void *arg)
{
	return count_lines(arg, "LimitMEMLOCK") > 0;
}

static void test_memlock(void **state)
{
	char *dir = new_dir();
	struct odd odd = odd_new(dir);
	struct kt_daemon *daemon;

	(void)state;
	need_root();
	odd.uid = NOBODY;
	odd.memlock = 64 * 1024;
	mkdir(odd.dir, 0755);
	chmod(odd.dir, 0755);
	assert_int_equal(chown(odd.dir, NOBODY, NOBODY), 0);
	daemon = start_odd(&odd, (const char *const[]){"--socket-mode", "0666", NULL});
	assert_non_null(daemon);
	serves(odd.dir);
	serves(odd.dir);
	assert_true(kt_wait_until(has_warned, &odd, 5000));
	assert_int_equal(count_lines(&odd, "LimitMEMLOCK"), 1);
	assert_int_equal(count_lines(&odd, "RLIMIT_MEMLOCK is 64 KiB"), 1);
	assert_int_equal(kt_daemon_stop(daemon), 0);
	kt_tmpdir_free(dir);
}

static void test_no_memfd(void **state)
{
	char *dir = new_dir();
	struct odd odd = odd_new(dir);

	(void)state;
	odd.no_memfd = true;
	refuses_to_start(&odd, NULL, "memfd_create", "sandbox");
	kt_tmpdir_free(dir);
}

static void test_file_limit(void **state)
{
	char *dir = new_dir();
	struct odd odd = odd_new(dir);

	(void)state;
	odd.fsize = 64 * 1024;
	refuses_to_start(&odd, NULL, "RLIMIT_FSIZE", "LimitFSIZE");
	kt_tmpdir_free(dir);
}

#define N_MANY 40

/* Sessions until there are no descriptors for one: it is told, and room makes room again. */
static void test_few_descriptors(void **state)
{
	char *dir = new_dir();
	struct odd odd = odd_new(dir);
	struct kt_client clients[N_MANY];
	struct kt_daemon *daemon;
	pid_t core;
	int n = 0;

	(void)state;
	odd.nofile = 48;
	daemon = start_odd(&odd, NULL);
	assert_non_null(daemon);
	core = kt_daemon_core(daemon);
	for (int i = 0; i < 3; i++) {
		while (n < N_MANY && kt_client_try(&clients[n], odd.dir, 1000) == 0)
			n++;
		assert_in_range(n, 4, N_MANY - 1);
		assert_true(kvc_error() == KVC_ELIMIT || kvc_error() == KVC_ETIMEOUT);
		kt_ok(kvc_ping(clients[0].session));
		while (n > 2)
			kvc_close(clients[--n].session);
	}
	while (n)
		kvc_close(clients[--n].session);
	serves(odd.dir);
	assert_int_equal(count_lines(&odd, "LimitNOFILE"), 1); /* not one for each try */
	assert_int_equal(kt_daemon_core(daemon), core);
	assert_int_equal(kt_daemon_stop(daemon), 0);
	kt_tmpdir_free(dir);
}

static void test_tiny_shm(void **state)
{
	char *dir = new_dir();
	struct odd odd = odd_new(dir);
	struct kt_daemon *daemon;

	(void)state;
	odd.tiny_shm = true;
	daemon = start_odd(&odd, NULL);
	assert_non_null(daemon);
	serves(odd.dir); /* memfds are not files there */
	assert_int_equal(kt_daemon_stop(daemon), 0);
	kt_tmpdir_free(dir);
}

static void test_too_big_pool(void **state)
{
	char *dir = new_dir();
	struct odd odd = odd_new(dir);

	(void)state;
	refuses_to_start(&odd, (const char *const[]){"--pool-bytes", "60T", NULL},
			 "asks for 60 TiB", "--pool-bytes");
	kt_tmpdir_free(dir);
}

/* ---- the runtime directory ------------------------------------------------------------------------- */

static void test_directory(void **state)
{
	char *dir = new_dir();
	struct odd odd = odd_new(dir);
	char nowhere[300];

	(void)state;
	snprintf(nowhere, sizeof(nowhere), "%s/none/run", dir);
	refuses_to_start(&odd, (const char *const[]){"--runtime-dir", nowhere, NULL}, nowhere,
			 "parent directory");
	mkdir(odd.dir, 0755);
	chmod(odd.dir, 0777);
	refuses_to_start(&odd, NULL, "can be written by others", "chmod go-w");
	chmod(odd.dir, 0755);
	need_root();
	odd.uid = NOBODY;
	refuses_to_start(&odd, NULL, odd.dir, "--runtime-dir");
	odd.uid = 0;
	assert_int_equal(chown(odd.dir, NOBODY, NOBODY), 0);
	refuses_to_start(&odd, NULL, "belongs to uid 65534", "--runtime-dir");
	assert_int_equal(chown(odd.dir, 0, 0), 0);
	kt_tmpdir_free(dir);
}

static void test_readonly(void **state)
{
	char *dir = new_dir();
	struct odd odd = odd_new(dir);

	(void)state;
	mkdir(odd.dir, 0755);
	odd.readonly_fs = true;
	refuses_to_start(&odd, NULL, "read-only", "--runtime-dir");
	kt_tmpdir_free(dir);
}

/* Taken away under its feet: who is there goes on, who comes is told, and it ends as it should. */
static void test_directory_gone(void **state)
{
	char *dir = new_dir();
	struct odd odd = odd_new(dir);
	struct kt_daemon *daemon = start_odd(&odd, NULL);
	struct kt_client client, late;
	uint64_t shadow[64], n = 0;
	kvc_seq *seq;

	(void)state;
	assert_non_null(daemon);
	client = kt_client_open(odd.dir);
	seq = kt_seq_new(&client, NULL);
	kt_append_numbers(client.writer, seq, 1, 10, shadow, &n);
	kt_remove_tree(odd.dir);
	kt_append_numbers(client.writer, seq, 50, 10, shadow, &n);
	kt_ok(kvc_snapshot(seq, NULL, NULL));
	kt_assert_tokens(seq, shadow, n);
	kt_fails(kt_client_try(&late, odd.dir, 500), KVC_EDAEMON);
	assert_non_null(strstr(kvc_error_text(), odd.dir));
	kvc_close(client.session);
	assert_int_equal(kt_daemon_stop(daemon), 0);
	kt_tmpdir_free(dir);
}

/* ---- clients with little ------------------------------------------------------------------------------ */

static int role_little(const char *dir, const char *arg, int in, int out)
{
	struct kvc_session_options options = {.size = sizeof(options), .runtime_dir = dir};
	const struct rlimit limit = {1u << 30, 1u << 30};

	(void)arg;
	(void)in;
	(void)out;
	if (setrlimit(RLIMIT_AS, &limit))
		return 1;
	kt_fails_null(kvc_open(&options), KVC_ENOMEM);
	return strstr(kvc_error_text(), "ulimit -v") ? 0 : 2;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true /* which takes terabytes of addresses for itself */
#else
#define SANITIZED false
#endif

static void test_little_address_space(void **state)
{
	struct kt_client client;
	struct kt_gauges before;
	struct kt_kid kid;

	(void)state;
	if (SANITIZED)
		kt_skip("a sanitizer needs the address space for itself");
	client = open_client();
	before = kt_gauges(client.session);
	kt_kid_start(&kid, "little", kt_daemon_dir(daemon_), NULL);
	assert_int_equal(kt_kid_wait(&kid), 0);
	kt_wait_gauges(client.session, &before);
	kvc_close(client.session);
}

/* ------------------------------------------------------------------------------------------------------ */

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
	KT_TEST("an exhausted pool is a clear error, nothing is half done, and it serves again",
		test_pool_exhausted),
	KT_TEST("appends until the pool is full leave whole updates", test_append_until_full),
	KT_TEST("quotas of sessions, sequences and bytes name the limit", test_quotas),
	KT_TEST("KV-31 memory of others is zero for the next", test_fresh_is_zero),
	KT_TEST("a client with little address space is told", test_little_address_space),
	KT_TEST("KV-64 little RLIMIT_MEMLOCK is one warning", test_memlock),
	KT_TEST("KV-64 without memfd_create it says so and does not start", test_no_memfd),
	KT_TEST("a small limit of file sizes is named", test_file_limit),
	KT_TEST("without descriptors for one more session it is told, and others go on",
		test_few_descriptors),
	KT_TEST("KV-50 a tiny /dev/shm does not matter", test_tiny_shm),
	KT_TEST("KV-50 a pool above what there is is refused with both numbers", test_too_big_pool),
	KT_TEST("a runtime directory that cannot be used is named, with what to do",
		test_directory),
	KT_TEST("so is one on a file system that is read-only", test_readonly),
	KT_TEST("a runtime directory that is removed ends nobody's work", test_directory_gone),
};

static const struct kt_role roles[] = {{"fill", role_fill}, {"little", role_little}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), setup, teardown};

	kt_kid_main(argc, argv, roles);
	return kt_run(argc, argv, &group, 1);
}
