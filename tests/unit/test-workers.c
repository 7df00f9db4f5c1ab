/* The threads of kvc_attend: each runs the function once a call, between calls they sleep, signals
 * are not theirs, a child has none of them. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/workers.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

struct calls {
	_Atomic uint32_t n_of[8];
	pthread_t thread_of[8];
	sigset_t blocked_of[8];
};

static void count(void *arg, uint32_t number)
{
	struct calls *calls = arg;

	atomic_fetch_add(&calls->n_of[number], 1);
	calls->thread_of[number] = pthread_self();
	pthread_sigmask(SIG_SETMASK, NULL, &calls->blocked_of[number]);
}

static void test_each_once(void **state)
{
	(void)state;
	for (uint32_t n = 1; n <= 5; n++) {
		kvc_workers *workers = kvc_workers_new(n);
		struct calls calls = {0};

		assert_non_null(workers);
		assert_int_equal(workers_n(workers), n);
		for (uint32_t round = 1; round <= 200; round++) {
			workers_run(workers, count, &calls);
			for (uint32_t i = 0; i < 8; i++)
				assert_int_equal(atomic_load(&calls.n_of[i]), i < n ? round : 0);
		}
		assert_true(pthread_equal(calls.thread_of[0], pthread_self()));
		for (uint32_t i = 1; i < n; i++)
			for (uint32_t j = 0; j < i; j++)
				assert_false(pthread_equal(calls.thread_of[i], calls.thread_of[j]));
		kvc_workers_free(workers);
	}
}

/* Long enough apart that all have gone to sleep. */
static void test_after_sleep(void **state)
{
	kvc_workers *workers = kvc_workers_new(3);
	struct calls calls = {0};
	struct rusage before, after;
	struct timespec nap = {.tv_nsec = 50 * 1000 * 1000};

	(void)state;
	for (uint32_t round = 1; round <= 3; round++) {
		nanosleep(&nap, NULL);
		workers_run(workers, count, &calls);
		for (uint32_t i = 0; i < 3; i++)
			assert_int_equal(atomic_load(&calls.n_of[i]), round);
	}
	nanosleep(&nap, NULL);
	getrusage(RUSAGE_SELF, &before);
	for (int i = 0; i < 4; i++)
		nanosleep(&nap, NULL);
	getrusage(RUSAGE_SELF, &after);
	assert_true(after.ru_utime.tv_sec == before.ru_utime.tv_sec);
	assert_true(after.ru_utime.tv_usec - before.ru_utime.tv_usec < 50 * 1000);
	kvc_workers_free(workers);
}

static void test_signals(void **state)
{
	static const int some[] = {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGPROF};
	kvc_workers *workers = kvc_workers_new(2);
	struct calls calls = {0};
	sigset_t before, after;

	(void)state;
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	workers_run(workers, count, &calls);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		assert_int_equal(sigismember(&calls.blocked_of[1], some[i]), 1);
		assert_int_equal(sigismember(&before, some[i]), sigismember(&after, some[i]));
		assert_int_equal(sigismember(&calls.blocked_of[0], some[i]), 0);
	}
	kvc_workers_free(workers);
}

static void test_wrong_numbers(void **state)
{
	(void)state;
	assert_null(kvc_workers_new(0));
	assert_int_equal(kvc_error(), KVC_ERANGE);
	assert_non_null(strstr(kvc_error_text(), "1 to 256"));
	assert_null(kvc_workers_new(257));
	assert_int_equal(kvc_error(), KVC_ERANGE);
	kvc_workers_free(NULL);
}

static void test_scratch(void **state)
{
	kvc_workers *workers = kvc_workers_new(1);
	char *first, *second;

	(void)state;
	first = workers_scratch(workers, 1000);
	assert_non_null(first);
	assert_int_equal((uintptr_t)first % 64, 0);
	memset(first, 1, 1000);
	assert_ptr_equal(workers_scratch(workers, 10), first);
	assert_ptr_equal(workers_scratch(workers, 1000), first);
	assert_int_equal(workers_scratch_bytes(workers), 1000);
	second = workers_scratch(workers, 5000);
	assert_non_null(second);
	memset(second, 1, 5000);
	assert_int_equal(workers_scratch_bytes(workers), 5000);
	kvc_workers_free(workers);
}

/* The child would wait for threads that it does not have. */
static void test_child(void **state)
{
	kvc_workers *workers = kvc_workers_new(2);
	struct calls calls = {0};
	int status;
	pid_t pid;

	(void)state;
	workers_run(workers, count, &calls);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool refused = workers_check(workers) == -1 && kvc_error() == KVC_EFORKED;

		kvc_workers_free(workers);
		_exit(refused ? 0 : 1);
	}
	assert_int_equal(kt_wait_child(pid, 10000, &status), 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(workers_check(workers), 0);
	workers_run(workers, count, &calls);
	assert_int_equal(atomic_load(&calls.n_of[1]), 2);
	kvc_workers_free(workers);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("each worker runs the function once a call, the caller being one", test_each_once),
	KT_TEST("workers that sleep are woken, and use no processor meanwhile", test_after_sleep),
	KT_TEST("signals are blocked in workers, and as they were in the caller", test_signals),
	KT_TEST("a number of workers that cannot be is refused", test_wrong_numbers),
	KT_TEST("scratch memory grows when more is asked for, else it stays", test_scratch),
	KT_TEST("a child cannot use its parent's workers, the parent can", test_child),
};

KT_MAIN(tests)
