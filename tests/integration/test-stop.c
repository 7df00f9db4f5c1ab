/*
 * The daemon is told to end: it says what goes with it, and the memory is free. Under a service
 * manager it says that the manager decides.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/client.h"
#include "tests/support/manager.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

/* A live sequence of 30 tokens, 8 blocks, and a snapshot of its first 20; an unnamed one. */
static struct kt_client fill(const char *dir)
{
	struct kt_client client = kt_client_open(dir);
	const struct kvc_snapshot_options options = {.size = sizeof(options), .name = "stop/snap"};
	kvc_seq *seq = kt_seq_new(&client, "stop/seq");

	kt_append_numbers(client.writer, seq, 1, 20, NULL, NULL);
	kt_ok(kvc_snapshot(seq, &options, NULL));
	kt_append_numbers(client.writer, seq, 21, 10, NULL, NULL);
	kt_append_numbers(client.writer, kt_seq_new(&client, NULL), 100, 4, NULL, NULL);
	return client;
}

#define SEQ_LINE "in memory only: sequence stop/seq of user %u, 30 tokens, %u bytes"
#define SNAP_LINE "in memory only: snapshot stop/snap of user %u, 20 tokens, %u bytes"
#define ALL_LINE "2 sequences and 1 snapshots, "

static void lines(char seq[128], char snap[128])
{
	const unsigned block_bytes = KT_TOKEN_BYTES * KT_BLOCK_TOKENS;

	snprintf(seq, 128, SEQ_LINE, getuid(), 8 * block_bytes);
	snprintf(snap, 128, SNAP_LINE, getuid(), 5 * block_bytes);
}

/* ---- who has it open ---------------------------------------------------------------------- */

/* Inode of the daemon's first arena. */
static ino_t arena_inode(pid_t core)
{
	char path[64], target[256];
	struct stat st;

	for (int fd = 3; fd < 256; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", core, fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		if (strstr(target, "memfd:kvc-arena") && stat(path, &st) == 0)
			return st.st_ino;
	}
	return 0;
}

/* Has a process mapped it? */
static bool has_mapped(const char *pid, ino_t inode)
{
	char path[300], line[512], number[32];
	bool has = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	snprintf(number, sizeof(number), " %llu ", (unsigned long long)inode);
	file = fopen(path, "re");
	while (file && !has && fgets(line, sizeof(line), file))
		has = strstr(line, "memfd:kvc-arena") && strstr(line, number);
	if (file)
		fclose(file);
	return has;
}

static unsigned n_holders(ino_t inode)
{
	DIR *proc = opendir("/proc");
	const struct dirent *entry;
	unsigned n = 0;

	while (proc && (entry = readdir(proc)))
		n += entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
		     has_mapped(entry->d_name, inode);
	if (proc)
		closedir(proc);
	return n;
}

static bool is_only_ours(void *arg)
{
	return n_holders(*(ino_t *)arg) == 1;
}

/* ---- tests -------------------------------------------------------------------------------- */

static void log_to(void *arg)
{
	const int fd = open(arg, O_CREAT | O_WRONLY | O_APPEND, 0600);

	dup2(fd, STDERR_FILENO);
	unsetenv("NOTIFY_SOCKET");
}

static char *read_log(const char *path)
{
	char *text = calloc(1, 1u << 16);
	const int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_non_null(text);
	assert_true(fd >= 0 && read(fd, text, (1u << 16) - 1) > 0);
	close(fd);
	fputs(text, stderr);
	return text;
}

static void test_alone(void **state)
{
	char *dir = kt_tmpdir_new(), *log;
	char path[256], seq[128], snap[128];
	struct kt_daemon *daemon;
	struct kt_client client;
	ino_t inode;

	(void)state;
	snprintf(path, sizeof(path), "%s/log", dir);
	daemon = kt_daemon_spawn_prepared(NULL, NULL, log_to, path);
	assert_true(kt_daemon_wait_ready(daemon));
	client = fill(kt_daemon_dir(daemon));
	inode = arena_inode(kt_daemon_core(daemon));
	assert_int_not_equal(inode, 0);
	assert_true(n_holders(inode) >= 2); /* the core and we; the locker, where there is one */
	assert_int_equal(kt_daemon_stop(daemon), 0);
	log = read_log(path);
	lines(seq, snap);
	assert_non_null(strstr(log, seq));
	assert_non_null(strstr(log, snap));
	assert_non_null(strstr(log, ALL_LINE));
	assert_non_null(strstr(log, "in use: dropped"));
	free(log);
	kt_fails(kvc_ping(client.session), KVC_EDAEMON);
	assert_true(kt_wait_until(is_only_ours, &inode, 10000)); /* nobody waits for the locker */
	kvc_close(client.session);
	assert_int_equal(n_holders(inode), 0);
	kt_tmpdir_free(dir);
}

/* What has no name, or is there a thousand times, does not fill the log. */
static void test_many(void **state)
{
	char *dir = kt_tmpdir_new(), *log;
	char path[256], name[32];
	struct kt_daemon *daemon;
	struct kt_client client;
	unsigned n_lines = 0;

	(void)state;
	snprintf(path, sizeof(path), "%s/log", dir);
	daemon = kt_daemon_spawn_prepared(NULL, NULL, log_to, path);
	assert_true(kt_daemon_wait_ready(daemon));
	client = kt_client_open(kt_daemon_dir(daemon));
	for (int i = 0; i < 130; i++) {
		snprintf(name, sizeof(name), "stop/%d", i);
		kvc_seq_free(kt_seq_new(&client, name)); /* parked */
	}
	kvc_close(client.session);
	assert_int_equal(kt_daemon_stop(daemon), 0);
	log = read_log(path);
	for (const char *at = log; (at = strstr(at, "in memory only: sequence")); at++)
		n_lines++;
	assert_int_equal(n_lines, 100);
	assert_non_null(strstr(log, "in memory only: and 30 more that have names"));
	assert_non_null(strstr(log, "130 sequences and 0 snapshots, 0 bytes of the pool in use"));
	free(log);
	kt_tmpdir_free(dir);
}

static void test_nothing(void **state)
{
	char *dir = kt_tmpdir_new(), *log;
	struct kt_daemon *daemon;
	char path[256];

	(void)state;
	snprintf(path, sizeof(path), "%s/log", dir);
	daemon = kt_daemon_spawn_prepared(NULL, NULL, log_to, path);
	assert_true(kt_daemon_wait_ready(daemon));
	kvc_close(kt_client_open(kt_daemon_dir(daemon)).session);
	assert_int_equal(kt_daemon_stop(daemon), 0);
	log = read_log(path);
	assert_null(strstr(log, "in memory only"));
	assert_null(strstr(log, "dropped"));
	free(log);
	kt_tmpdir_free(dir);
}

#ifdef HAVE_SYSTEMD
static void test_under_a_manager(void **state)
{
	struct kt_manager *manager = kt_manager_new();
	struct kt_daemon *daemon = kt_manager_start(manager, NULL);
	char seq[128], snap[128];
	struct kt_client client;

	(void)state;
	assert_non_null(daemon);
	client = fill(kt_manager_dir(manager));
	assert_int_equal(kt_manager_stop(manager, daemon), 0);
	lines(seq, snap);
	assert_true(kt_manager_has_said(manager, seq));
	assert_true(kt_manager_has_said(manager, snap));
	assert_true(kt_manager_has_said(manager, "left to the service manager"));
	assert_false(kt_manager_has_said(manager, "in use: dropped"));
	kvc_close(client.session);
	kt_manager_free(manager);
}
#else
static void test_under_a_manager(void **state)
{
	(void)state;
	kt_skip("built without libsystemd");
}
#endif

static const struct CMUnitTest tests[] = {
	KT_TEST("told to end it names what is dropped, with tokens and bytes, and frees the memory",
		test_alone),
	KT_TEST("of very many it names some, and counts the others", test_many),
	KT_TEST("it says nothing where there is nothing", test_nothing),
	KT_TEST("under a service manager it says that a restart keeps them", test_under_a_manager),
};

KT_MAIN(tests)
