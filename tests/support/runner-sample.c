/*
 * A test program that misbehaves on request: what test-runner.c runs and reads.
 *
 * Each test does what its sentence says. It is no test of the suite. Thread:
 * one.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"

static void passes(void **state)
{
	(void)state;
	assert_int_equal(2, 1 + 1);
}

static void fails(void **state)
{
	(void)state;
	printf("said before\n");
	assert_int_equal(7, 8);
}

static void skips(void **state)
{
	(void)state;
	kt_skip("the moon is %s", "full");
}

static void aborts(void **state)
{
	(void)state;
	abort();
}

static void exits(void **state)
{
	(void)state;
	exit(3);
}

static void hangs(void **state)
{
	(void)state;
	signal(SIGABRT, SIG_IGN);
	for (;;)
		pause();
}

/* Forks twice, so that nobody but the runner can know of the process. */
static void leaves_a_process(void **state)
{
	(void)state;
	if (fork() == 0) {
		if (fork() == 0)
			for (;;)
				pause();
		_exit(0);
	}
}

static void leaves_a_folder(void **state)
{
	char *path = kt_tmpdir_new();

	(void)state;
	printf("made %s\n", path);
	free(path);
}

static void asserts_in_a_child(void **state)
{
	(void)state;
	if (fork() == 0)
		assert_true(false);
}

static void has_a_parameter(void **state)
{
	assert_string_equal(*state, "parameter");
}

static char parameter[] = "parameter";

static const struct CMUnitTest tests[] = {
	KT_TEST("it passes", passes),
	KT_TEST("it fails # with\na strange name", fails),
	KT_TEST("it skips", skips),
	KT_TEST("it aborts", aborts),
	KT_TEST("it exits", exits),
	KT_TEST("it hangs", hangs),
	KT_TEST("it leaves a process", leaves_a_process),
	KT_TEST("it leaves a folder", leaves_a_folder),
	KT_TEST("it asserts in a child", asserts_in_a_child),
	KT_TEST_PARAM("it has a parameter", has_a_parameter, parameter),
	cmocka_unit_test(passes),
};

static int group_setup(void **state)
{
	*state = parameter;
	return 0;
}

static int group_setup_fails(void **state)
{
	(void)state;
	return -1;
}

static const struct CMUnitTest state_tests[] = {
	KT_TEST("it sees the state of its group", has_a_parameter),
};

static const struct CMUnitTest no_setup_tests[] = {
	KT_TEST("it cannot be set up", passes),
};

int main(int argc, char **argv)
{
	const struct kt_group groups[] = {
		KT_GROUP(tests),
		{state_tests, 1, group_setup, NULL},
		{no_setup_tests, 1, group_setup_fails, NULL},
	};

	return kt_run(argc, argv, groups, sizeof(groups) / sizeof(groups[0]));
}
