/* The threads of kvc_attend: each runs the function once a call, between calls they sleep, signals
 * are not theirs, a child has none of them. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
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

/* Is a thread of this process asleep? One that is gone is, too. */
static bool is_asleep(const char *thread)
{
	char path[64], line[256] = "", *end;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%.16s/stat", thread);
	file = fopen(path, "re");
	if (file && !fgets(line, sizeof(line), file))
		line[0] = '\0';
	if (file)
		fclose(file);
	end = strrchr(line, ')'); /* behind the name: a space, the state */
	return !end || end[2] == 'S';
}

/* All but the calling thread. */
static bool others_are_asleep(void *arg)
{
	long self = syscall(SYS_gettid);
	DIR *tasks = opendir("/proc/self/task");
	bool all = tasks != NULL;
	struct dirent *entry;

	(void)arg;
	while (all && (entry = readdir(tasks)))
		if (entry->d_name[0] != '.' && strtol(entry->d_name, NULL, 10) != self)
			all = is_asleep(entry->d_name);
	if (tasks)
		closedir(tasks);
	return all;
}

static void test_after_sleep(void **state)
{
	kvc_workers *workers = kvc_workers_new(3);
	struct calls calls = {0};

	(void)state;
	for (uint32_t round = 1; round <= 3; round++) {
		assert_true(kt_wait_until(others_are_asleep, NULL, 10000));
		workers_run(workers, count, &calls);
		for (uint32_t i = 0; i < 3; i++)
			assert_int_equal(atomic_load(&calls.n_of[i]), round);
	}
	assert_true(kt_wait_until(others_are_asleep, NULL, 10000));
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
		bool refused = workers_enter(workers) == -1 && kvc_error() == KVC_EFORKED;

		kvc_workers_free(workers);
		_exit(refused ? 0 : 1);
	}
	assert_int_equal(kt_wait_child(pid, 10000, &status), 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(workers_enter(workers), 0);
	workers_run(workers, count, &calls);
	assert_int_equal(atomic_load(&calls.n_of[1]), 2);
	kvc_workers_free(workers);
}

/* What another thread gets: 0, or the error. */
static void *enter(void *workers)
{
	return (void *)(uintptr_t)(workers_enter(workers) ? kvc_error() : 0);
}

static uintptr_t enter_elsewhere(kvc_workers *workers)
{
	pthread_t thread;
	void *got;

	assert_int_equal(pthread_create(&thread, NULL, enter, workers), 0);
	assert_int_equal(pthread_join(thread, &got), 0);
	return (uintptr_t)got;
}

static void test_two_threads(void **state)
{
	kvc_workers *workers = kvc_workers_new(2);

	(void)state;
	assert_int_equal(workers_enter(workers), 0);
	assert_int_equal(enter_elsewhere(workers), KVC_EBUSY);
	workers_leave(workers);
	assert_int_equal(enter_elsewhere(workers), 0);
	assert_int_equal(workers_enter(workers), -1);
	assert_int_equal(kvc_error(), KVC_EBUSY);
	workers_leave(workers);
	kvc_workers_free(workers);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("each worker runs the function once a call, the caller being one", test_each_once),
	KT_TEST("workers go to sleep between calls, and are woken", test_after_sleep),
	KT_TEST("signals are blocked in workers, and as they were in the caller", test_signals),
	KT_TEST("a number of workers that cannot be is refused", test_wrong_numbers),
	KT_TEST("scratch memory grows when more is asked for, else it stays", test_scratch),
	KT_TEST("a child cannot use its parent's workers, the parent can", test_child),
	KT_TEST("workers that are in a call are refused to another one", test_two_threads),
};

KT_MAIN(tests)
