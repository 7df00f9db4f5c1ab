/*
 * The runner itself: what it prints for tests that pass, fail, skip, die.
 *
 * Runs tests/support/runner-sample with --only and compares what it says.
 * Thread: one.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

struct said {
	char text[8192];
	int status;
};

/* Runs the sample; environment is "NAME=VALUE " or "". */
static struct said sample(const char *environment, const char *options)
{
	const char *builddir = getenv("top_builddir");
	struct said said = {.status = -1};
	char command[1024];
	size_t n;
	FILE *pipe;

	snprintf(command, sizeof(command), "%s '%s/tests/support/runner-sample' %s 2>&1",
		 environment, builddir ? builddir : ".", options);
	pipe = popen(command, "re");
	assert_non_null(pipe);
	n = fread(said.text, 1, sizeof(said.text) - 1, pipe);
	said.text[n] = '\0';
	said.status = pclose(pipe);
	return said;
}

static void assert_says(const char *options, const char *text, int exit_status)
{
	const struct said said = sample("", options);

	assert_string_equal(said.text, text);
	assert_true(WIFEXITED(said.status));
	assert_int_equal(WEXITSTATUS(said.status), exit_status);
}

static void test_pass(void **state)
{
	(void)state;
	assert_says("--only 'it passes'", "ok 1 - it passes\n1..1\n", 0);
}

static void test_fail(void **state)
{
	const struct said said = sample("", "--only 'it fails'");

	(void)state;
	assert_non_null(strstr(said.text, "# said before\n"));
	assert_non_null(strstr(said.text, "# 0x7 != 0x8\n"));
	assert_non_null(strstr(said.text, "not ok 1 - it fails   with a strange name\n1..1\n"));
	assert_int_equal(WEXITSTATUS(said.status), 1);
}

static void test_skip(void **state)
{
	(void)state;
	assert_says("--only 'it skips'", "ok 1 - it skips # SKIP the moon is full\n1..1\n", 0);
}

static void test_abort(void **state)
{
	(void)state;
	assert_says("--only 'it aborts'",
		    "# died of signal 6 (Aborted)\nnot ok 1 - it aborts\n1..1\n", 1);
}

static void test_exit(void **state)
{
	(void)state;
	assert_says("--only 'it exits'",
		    "# ended the process with status 3\nnot ok 1 - it exits\n1..1\n", 1);
}

static void test_hang(void **state)
{
	const struct said said = sample("KT_TIME_SCALE=1 KT_TEST_LIMIT_S=1", "--only 'it hangs'");

	(void)state;
	assert_string_equal(said.text,
			    "# hung for 1000 ms and was killed\nnot ok 1 - it hangs\n1..1\n");
}

static void test_goes_on(void **state)
{
	const struct said said = sample("KT_TIME_SCALE=1 KT_TEST_LIMIT_S=1", "");

	(void)state;
	assert_non_null(strstr(said.text, "ok 1 - it passes\n"));
	assert_non_null(strstr(said.text, "not ok 4 - it aborts\n"));
	assert_non_null(strstr(said.text, "not ok 5 - it exits\n"));
	assert_non_null(strstr(said.text, "not ok 6 - it hangs\n"));
	assert_non_null(strstr(said.text, "ok 7 - it leaves a process\n"));
	assert_non_null(strstr(said.text, "ok 11 - passes\n"));
}

static void test_leftover_process(void **state)
{
	const struct said said = sample("KT_TIME_SCALE=1", "--only 'it leaves a process'");
	int pid = 0;
	const char *line = strstr(said.text, "# left running: ");

	(void)state;
	assert_non_null(strstr(said.text, "ok 1 - it leaves a process\n"));
	assert_non_null(strstr(said.text, "not ok 2 - no process is left behind\n1..2\n"));
	assert_non_null(line);
	assert_int_equal(sscanf(line, "# left running: %d", &pid), 1);
	assert_int_equal(kill(pid, 0), -1);
}

static void test_leftover_folder(void **state)
{
	const struct said said = sample("", "--only 'it leaves a folder'");
	char path[256];

	(void)state;
	assert_int_equal(sscanf(said.text, "# made %255s", path), 1);
	assert_int_equal(strncmp(path, "/tmp/", 5), 0);
	assert_int_equal(strncmp(path + 5, kt_name_prefix(), strlen(kt_name_prefix())), 0);
	assert_int_equal(access(path, F_OK), -1);
}

/* What a run that was killed has left is removed by the next, and only that. */
static void test_lost_root(void **state)
{
	char lost[128];
	char other[128];

	(void)state;
	snprintf(lost, sizeof(lost), "/tmp/%sroot-lost00", kt_name_prefix());
	snprintf(other, sizeof(other), "/tmp/%sother", kt_name_prefix());
	assert_int_equal(mkdir(lost, 0700), 0);
	assert_int_equal(mkdir(other, 0700), 0);
	sample("", "--only 'it passes'");
	assert_int_equal(access(lost, F_OK), -1);
	assert_int_equal(rmdir(other), 0);
}

static void test_child_assert(void **state)
{
	const struct said said = sample("", "--only 'it asserts in a child'");

	(void)state;
	assert_non_null(strstr(said.text, "ok 1 - it asserts in a child\n"));
	assert_non_null(strstr(said.text, "\n1..1\n"));
	assert_null(strstr(said.text, "ok 2"));
}

static void test_parameters(void **state)
{
	(void)state;
	assert_says("--only 'has a parameter'", "ok 1 - it has a parameter\n1..1\n", 0);
	assert_says("--only 'state of its group'", "ok 1 - it sees the state of its group\n1..1\n",
		    0);
}

static void test_setup_fails(void **state)
{
	(void)state;
	assert_says("--only 'cannot be set up'",
		    "# the group's set-up failed: -1\nnot ok 1 - it cannot be set up\n1..1\n", 1);
}

static bool never(void *arg)
{
	++*(int *)arg;
	return false;
}

static bool third_time(void *arg)
{
	return ++*(int *)arg == 3;
}

static void test_wait_until(void **state)
{
	int n_asked = 0;
	int64_t begin_ms;

	(void)state;
	assert_true(kt_wait_until(third_time, &n_asked, 60000));
	assert_int_equal(n_asked, 3);
	n_asked = 0;
	begin_ms = kt_now_ms();
	assert_false(kt_wait_until(never, &n_asked, 20));
	assert_true(kt_now_ms() - begin_ms >= 20);
	assert_true(n_asked >= 2);
}

static void test_wait_child(void **state)
{
	int status = 0;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(9);
	assert_int_equal(kt_wait_child(pid, 5000, &status), 0);
	assert_int_equal(WEXITSTATUS(status), 9);
	pid = fork();
	if (pid == 0)
		for (;;)
			pause();
	assert_int_equal(kt_wait_child(pid, 10, &status), -ETIMEDOUT);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(kt_wait_child(pid, 5000, &status), 0);
	assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void test_tmpdir(void **state)
{
	char *path = kt_tmpdir_new();
	char *inner = NULL;
	FILE *file;

	(void)state;
	assert_true(strlen(path) < 50);
	assert_true(asprintf(&inner, "%s/file", path) > 0);
	file = fopen(inner, "we");
	assert_non_null(file);
	fclose(file);
	kt_remove_tree(path);
	assert_int_equal(access(path, F_OK), -1);
	free(inner);
	kt_tmpdir_free(path);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a test that passes is one ok line", test_pass),
	KT_TEST("a test that fails shows the values and its output", test_fail),
	KT_TEST("a skipped test is ok and says why", test_skip),
	KT_TEST("a test that aborts is one failed test", test_abort),
	KT_TEST("a test that exits the program is one failed test", test_exit),
	KT_TEST("a test that hangs is killed and fails", test_hang),
	KT_TEST("the tests after a dead one still run", test_goes_on),
	KT_TEST("a process left behind is a failure and is killed", test_leftover_process),
	KT_TEST("a folder left behind is removed", test_leftover_folder),
	KT_TEST("a folder that a killed run left is removed by the next", test_lost_root),
	KT_TEST("a failed assertion in a forked child reports nothing", test_child_assert),
	KT_TEST("tests get their parameter and the state of their group", test_parameters),
	KT_TEST("a group that cannot be set up fails its tests", test_setup_fails),
	KT_TEST("waiting ends with the condition or at the deadline", test_wait_until),
	KT_TEST("waiting for a child has a deadline", test_wait_child),
	KT_TEST("a temporary folder is short and goes with its contents", test_tmpdir),
};

KT_MAIN(tests)
