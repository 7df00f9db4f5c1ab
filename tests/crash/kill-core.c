/*
 * kill-core [--rounds N] [--seed S]: the core dies, at random times and at points between what it
 * logs, does in shared memory, gives the keeper and answers, while several clients are at work.
 *
 * A round: the clients (core-load.h) work, the core dies at least once, then they stop and compare
 * everything that they have with their shadows; the gauges add up, and the daemon has as many
 * sessions and objects as they have. At the end everything is removed: the pool is empty,
 * and the keeper holds nothing but what belongs to the observer.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/crash/core-load.h"
#include "tests/crash/rounds.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/random.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define N_CLIENTS 3
#define ROUND_MS 30000
#define N_KEPT 3 /* in the end: the catalogue; segment and process of the observer */

static uint64_t n_rounds = 40;
static uint64_t seed = 1;

struct world {
	struct kt_daemon *daemon;
	struct kt_client client; /* an observer */
	struct kt_gauges before;
	struct kt_kid kids[N_CLIENTS];
	uint64_t random, n_ops, n_restarted;
};

static uint64_t draw(struct world *w, uint64_t n)
{
	return kt_draw(&w->random, n);
}

/* most: at which point at most each core dies by itself; NULL: it does not. */
static void world_new(struct world *w, const char *most)
{
	/* small arenas, so that many come and go */
	static const char *const arguments[] = {"--arena-bytes", "1M", "--log-level", "error",
						NULL};
	char arg[64];

	memset(w, 0, sizeof(*w));
	w->random = seed;
	w->daemon = kt_daemon_spawn_prepared(NULL, arguments, kt_daemon_core_dies,
					     (void *)(uintptr_t)most);
	assert_true(kt_daemon_wait_ready(w->daemon));
	w->client = kt_client_open_ms(kt_daemon_dir(w->daemon), ROUND_MS);
	w->before = kt_gauges(w->client.session);
	for (unsigned i = 0; i < N_CLIENTS; i++) {
		snprintf(arg, sizeof(arg), "%u %llu", i, (unsigned long long)seed);
		kt_kid_start(&w->kids[i], "load", kt_daemon_dir(w->daemon), arg);
	}
}

/* A client that has found a mistake has said it, and is gone. */
static void read_report(struct world *w, int kid, struct core_load_report *report)
{
	(void)w;
	kt_kid_read(&w->kids[kid], report, sizeof(*report));
}

static void check(struct world *w)
{
	struct core_load_report report;
	uint32_t n_sequences = 0, n_snapshots = 0;
	uint64_t ids[N_CLIENTS + 4];
	struct kt_gauges now;

	for (int i = 0; i < N_CLIENTS; i++)
		kt_kid_write(&w->kids[i], "c", 1);
	for (int i = 0; i < N_CLIENTS; i++) {
		read_report(w, i, &report);
		w->n_ops += report.n_ops;
		w->n_restarted += report.n_restarted;
		n_sequences += report.n_sequences;
		n_snapshots += report.n_snapshots;
	}
	now = kt_gauges(w->client.session);
	assert_int_equal(now.n_sequences, n_sequences);
	assert_int_equal(now.n_snapshots, n_snapshots);
	assert_int_equal(kt_sessions(w->client.session, ids, N_CLIENTS + 4), N_CLIENTS + 1);
	assert_int_equal(now.used, now.total - now.free);
	for (int i = 0; i < N_CLIENTS; i++)
		kt_kid_write(&w->kids[i], "g", 1);
}

/* Memory and processes that the keeper holds; its sockets come and go with the core. */
static size_t n_kept(const struct kt_daemon *daemon)
{
	char path[64], target[64];
	size_t n = 0;

	for (int fd = 3; fd < 1024; fd++) {
		ssize_t got;

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", kt_daemon_keeper(daemon), fd);
		got = readlink(path, target, sizeof(target) - 1);
		target[got > 0 ? got : 0] = '\0';
		n += strncmp(target, "/memfd:", 7) == 0 || strstr(target, "pidfd");
	}
	return n;
}

/* A core that has just begun lets go of what its predecessor had given the keeper for nothing. */
static bool has_few_kept(void *arg)
{
	const struct world *w = arg;

	return n_kept(w->daemon) == N_KEPT;
}

static void world_end(struct world *w)
{
	check(w);
	for (int i = 0; i < N_CLIENTS; i++) {
		kt_kid_write(&w->kids[i], "e", 1);
		assert_int_equal(kt_kid_wait(&w->kids[i]), 0);
	}
	kt_wait_gauges(w->client.session, &w->before);
	assert_int_equal(kt_gauges(w->client.session).n_arenas, w->before.n_arenas);
	assert_true(kt_wait_until(has_few_kept, w, ROUND_MS));
	printf("%llu operations, %u deaths of the core, %llu times KVC_ERESTARTED\n",
	       (unsigned long long)w->n_ops, kt_gauges(w->client.session).n_core_restarts,
	       (unsigned long long)w->n_restarted);
	kvc_close(w->client.session);
	assert_int_equal(kt_daemon_stop(w->daemon), 0);
}

static void nap_us(uint64_t us)
{
	const struct timespec t = {0, (long)us * 1000};

	nanosleep(&t, NULL);
}

/* One death, or a few behind one another, some before the core serves. */
static void test_random(void **state)
{
	struct world w;

	(void)state;
	world_new(&w, NULL);
	for (uint64_t i = 0; i < n_rounds; i++) {
		uint64_t n_kills = draw(&w, 4) ? 1 : 1 + draw(&w, 4);

		nap_us(2000 + draw(&w, 30000));
		for (uint64_t k = 0; k < n_kills; k++) {
			assert_int_equal(kt_daemon_kill_core(w.daemon), 0);
			nap_us(draw(&w, 3000));
		}
		check(&w);
	}
	world_end(&w);
}

#ifdef KV_FAULT_INJECTION
struct deaths {
	struct world *w;
	uint32_t n;
};

static bool have_died(void *arg)
{
	const struct deaths *deaths = arg;

	return kt_gauges(deaths->w->client.session).n_core_restarts >= deaths->n;
}

static void at_points(const char *most, uint64_t rounds)
{
	struct world w;

	world_new(&w, most);
	for (uint64_t i = 0; i < rounds; i++) {
		struct deaths deaths = {&w, kt_gauges(w.client.session).n_core_restarts + 1};

		assert_true(kt_wait_until(have_died, &deaths, ROUND_MS));
		check(&w);
	}
	world_end(&w);
}

static void test_points(void **state)
{
	(void)state;
	at_points("150", n_rounds - n_rounds / 2);
	at_points("2000", n_rounds / 2);
}
#else
static void test_points(void **state)
{
	(void)state;
	kt_skip("needs --enable-fault-injection");
}
#endif

static const struct CMUnitTest tests[] = {
	KT_TEST("cores killed at random times under load lose nothing", test_random),
	KT_TEST("cores that die between any two of their acts lose nothing", test_points),
};

static const struct kt_role roles[] = {{"load", core_load_role}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = KT_GROUP(tests);

	kt_kid_main(argc, argv, roles);
	if (!rounds_parse(argc, argv, &n_rounds, &seed))
		return 2;
	return kt_run(1, argv, &group, 1);
}
