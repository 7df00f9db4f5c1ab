/*
 * One session used by four threads, each with a writer: they reserve, append, mark, roll back,
 * snapshot, fork, verify and take each other's snapshots at the same time, by themselves and while the
 * core is killed. Clean under ThreadSanitizer (--enable-sanitizers=thread).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define N_THREADS 4
#define N_ROUNDS 60
#define N_KILLS 4

static struct kt_daemon *daemon_;

struct worker {
	pthread_t thread;
	struct kt_client client; /* one session, a writer of its own */
	int number;
	_Atomic unsigned int n_rounds;
	uint64_t shadow[4096], n;
	unsigned int n_restarted; /* calls that were answered by KVC_ERESTARTED */
	char failure[256];        /* empty: none. Assertions belong to the test's own thread. */
};

#define TRY(w, call) \
	do { \
		int rc_; \
		while ((rc_ = (call) ? 0 : -1) && kvc_error() == KVC_ERESTARTED) \
			(w)->n_restarted++; \
		if (rc_) { \
			snprintf((w)->failure, sizeof((w)->failure), "%s: %s: %s", #call, \
				 kvc_status_name(kvc_error()), kvc_error_text()); \
			return false; \
		} \
	} while (0)

static bool append(struct worker *w, kvc_seq *seq, uint64_t first, uint64_t n)
{
	uint64_t tokens[KT_APPEND_MAX];

	for (uint64_t i = 0; i < n; i++)
		tokens[i] = first + i;
	TRY(w, kt_append_try(w->client.writer, seq, tokens, n) == 0);
	memcpy(w->shadow + w->n, tokens, n * sizeof(tokens[0]));
	w->n += n;
	return true;
}

static bool same(struct worker *w, kvc_seq *seq)
{
	const char *why = kt_seq_differs(seq, w->shadow, w->n);

	if (why)
		snprintf(w->failure, sizeof(w->failure), "%s", why);
	return !why;
}

static bool fork_and_back(struct worker *w, const char *name, bool local, kvc_seq *from)
{
	const uint64_t before = w->n;
	kvc_seq *fork;

	if (local) {
		TRY(w, kvc_reserve_forks(from, 1) == 0);
		TRY(w, kvc_reserve(from, 8) == 0);
		TRY(w, fork = kvc_fork_local(from, 4));
	} else {
		TRY(w, fork = kvc_fork(w->client.writer, name, NULL));
	}
	if (!append(w, fork, 900000 + (uint64_t)w->number, 3) || !same(w, fork))
		return false;
	w->n = before;
	TRY(w, kvc_seq_drop(fork) == 0);
	return true;
}

/* Reads what another thread has published, whatever that is now. */
static bool read_other(struct worker *w)
{
	char name[32];
	kvc_seq *seq;
	uint8_t digest[16];

	snprintf(name, sizeof(name), "threads/%d", (w->number + 1) % N_THREADS);
	seq = kvc_open_snapshot(w->client.writer, name);
	if (!seq && (kvc_error() == KVC_ENOTFOUND || kvc_error() == KVC_ERESTARTED))
		return true;
	TRY(w, seq != NULL);
	TRY(w, kvc_digest(seq, digest) == 0);
	kvc_seq_free(seq);
	return true;
}

static bool one_round(struct worker *w, kvc_seq *seq)
{
	const uint64_t first = (uint64_t)w->number * 100000 + w->n;
	char name[32];
	const struct kvc_snapshot_options options = {
		.size = sizeof(options), .name = name, .replace = 1};
	kvc_mark mark;
	uint64_t marked;

	snprintf(name, sizeof(name), "threads/%d", w->number);
	if (!append(w, seq, first, 7))
		return false;
	TRY(w, kvc_mark_set(seq, &mark) == 0);
	marked = w->n;
	if (!append(w, seq, first + 50, 9))
		return false;
	TRY(w, kvc_rollback_mark(seq, &mark) == 0);
	w->n = marked;
	TRY(w, kvc_mark_release(seq, &mark) == 0);
	TRY(w, kvc_snapshot(seq, &options, NULL) == 0);
	TRY(w, kvc_ping(w->client.session) == 0);
	TRY(w, kvc_verify(w->client.session, name, NULL, NULL, NULL) == 0);
	return fork_and_back(w, name, w->n % 2, seq) && read_other(w) && same(w, seq);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	kvc_seq *seq = kvc_seq_new(w->client.writer, w->client.layout, NULL);
	bool good = seq != NULL;

	for (int i = 0; good && i < N_ROUNDS; i++) {
		good = one_round(w, seq);
		w->n_rounds++;
	}
	kvc_seq_free(seq);
	return NULL;
}

static void start(struct worker *workers, kvc_session *session)
{
	for (int i = 0; i < N_THREADS; i++) {
		struct worker *w = &workers[i];

		memset(w, 0, sizeof(*w));
		w->number = i;
		w->client.session = session;
		w->client.layout = kt_layout(session, 1);
		w->client.writer = kvc_writer_new(session);
		kt_ok(w->client.writer ? 0 : -1);
	}
	for (int i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
}

/* Each restart of the core is told to each thread once at most. */
static void finish(struct worker *workers, kvc_session *session, unsigned int n_kills)
{
	for (int i = 0; i < N_THREADS; i++) {
		char name[32];

		pthread_join(workers[i].thread, NULL);
		if (workers[i].failure[0])
			fail_msg("thread %d, round %u: %s", i, workers[i].n_rounds,
				 workers[i].failure);
		assert_int_equal(workers[i].n_rounds, N_ROUNDS);
		assert_true(workers[i].n_restarted <= n_kills);
		kt_ok(kvc_writer_free(workers[i].client.writer));
		snprintf(name, sizeof(name), "threads/%d", i);
		kt_ok(kvc_remove(session, name));
	}
}

static void test_threads(void **state)
{
	struct kt_client client = kt_client_open_ms(kt_daemon_dir(daemon_), 20000);
	const struct kt_gauges before = kt_gauges(client.session);
	struct worker *workers = calloc(N_THREADS, sizeof(*workers));

	(void)state;
	start(workers, client.session);
	finish(workers, client.session, 0);
	kt_wait_gauges(client.session, &before);
	kvc_close(client.session);
	free(workers);
}

struct progress {
	const struct worker *workers;
	unsigned int rounds;
};

static bool has_gone_on(void *arg)
{
	const struct progress *p = arg;
	unsigned int n = 0;

	for (int i = 0; i < N_THREADS; i++)
		n += p->workers[i].n_rounds;
	return n >= p->rounds;
}

static void test_threads_and_core(void **state)
{
	struct kt_client client = kt_client_open_ms(kt_daemon_dir(daemon_), 20000);
	const struct kt_gauges before = kt_gauges(client.session);
	struct worker *workers = calloc(N_THREADS, sizeof(*workers));

	(void)state;
	start(workers, client.session);
	for (unsigned int i = 1; i <= N_KILLS; i++) {
		struct progress p = {workers, i * N_THREADS * N_ROUNDS / 8};

		kt_wait_until(has_gone_on, &p, 20000);
		assert_int_equal(kt_daemon_kill_core(daemon_), 0);
	}
	finish(workers, client.session, N_KILLS);
	kt_wait_gauges(client.session, &before);
	kvc_close(client.session);
	free(workers);
}

/* ------------------------------------------------------------------------------------------------ */

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
	KT_TEST("four threads of one session, each with its writer", test_threads),
	KT_TEST("the same while the core is killed four times", test_threads_and_core),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), setup, teardown};

	return kt_run(argc, argv, &group, 1);
}
