/*
 * The runner of all test programs: cmocka's assertions, our own report.
 *
 * Promise: a program prints TAP, one line for each test, named as a sentence.
 * A test that dies, hangs or exits the process counts as one failed test and
 * the tests after it still run. A skipped test says why. Processes and files
 * that a program leaves behind are removed and make it fail.
 *
 * How: kt_run() forks. The child runs the tests one after another, the parent
 * (supervise.c) turns what it hears into TAP and starts a new child behind a
 * test that died. All descendants of the child end up as the parent's children
 * (it is their subreaper), so none can be forgotten.
 *
 *	static void test_that_one_and_one_are_two(void **state)
 *	{
 *		(void)state;
 *		assert_int_equal(1 + 1, 2);
 *	}
 *
 *	static const struct CMUnitTest tests[] = {
 *		KT_TEST("one and one are two", test_that_one_and_one_are_two),
 *	};
 *
 *	KT_MAIN(tests)
 *
 * Program options: --list names the tests, --only TEXT runs those whose name
 * contains TEXT. Environment:
 *	KT_DIRECT=1		no child, no filter: for gdb
 *	KT_TIME_SCALE=N		deadlines are N times as long: for valgrind
 *	KT_TEST_LIMIT_S=N	a test that takes longer has hung (default 120, scaled)
 *
 * Thread: tests may start threads; assertions belong to the thread that runs
 * the test. A process forked by a test must leave by _exit().
 */
#ifndef KVCACHED_TESTS_SUPPORT_RUNNER_H
#define KVCACHED_TESTS_SUPPORT_RUNNER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* One test; with fixtures; with a parameter, found in *state. */
#define KT_TEST(sentence, fn) \
	{ \
		sentence, fn, NULL, NULL, NULL \
	}
#define KT_TEST_FIXTURE(sentence, fn, setup, teardown) \
	{ \
		sentence, fn, setup, teardown, NULL \
	}
#define KT_TEST_PARAM(sentence, fn, param) \
	{ \
		sentence, fn, NULL, NULL, param \
	}

/*
 * Tests that share a set-up. setup and teardown may be NULL and run once,
 * outside of any test, so they return non-zero instead of asserting; what setup
 * stores in *state is the state of each test that has no parameter.
 */
struct kt_group {
	const struct CMUnitTest *tests;
	size_t n_tests;
	CMFixtureFunction setup;
	CMFixtureFunction teardown;
};

#define KT_GROUP(tests) \
	{ \
		tests, sizeof(tests) / sizeof((tests)[0]), NULL, NULL \
	}

/* Runs all and returns what main() returns: 0 if no test failed. */
int kt_run(int argc, char **argv, const struct kt_group *groups, size_t n_groups);

#define KT_MAIN(tests) \
	int main(int argc, char **argv) \
	{ \
		const struct kt_group group = KT_GROUP(tests); \
		return kt_run(argc, argv, &group, 1); \
	}

/* Ends the running test as skipped; the reason is for the person who reads the summary. */
void kt_skip(const char *reason, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
