/*
 * kill-client [--rounds N] [--seed S]: clients of a running daemon die, at random times and at
 * points between two stores, while the core dies too.
 *
 * A round: a client works on two named sequences of one writer and acknowledges each step through
 * a pipe; what it does follows from a history that the test has too. After its death the test
 * takes the sequences over: both are what the last acknowledged step left, or both what the one in
 * flight did, every byte; so is the snapshot. Then they are parked, and another client takes over
 * and goes on. At the end they are dropped: gauges are what they were.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/fault.h"
#include "tests/crash/rounds.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/random.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define N_SEQS 2
#define MOST_TOKENS 160u
#define N_LIVES 3 /* a round */

static uint64_t n_rounds = 20;
static uint64_t seed = 1;
static struct kt_daemon *daemon_;

static const char *const names[N_SEQS] = {"kill/a", "kill/b"};
#define SNAPSHOT "kill/snap"

/* ---- the history, known to both sides ------------------------------------------------------ */

struct shadow {
	uint64_t n;
	uint64_t tokens[MOST_TOKENS];
};

struct history {
	struct shadow seqs[N_SEQS];
	struct shadow snapshot; /* of the first sequence */
	uint64_t has_snapshot;
	uint64_t random, next_token;
};

enum op { OP_APPEND, OP_ROLLBACK, OP_SNAPSHOT, OP_FORK };

struct step {
	enum op op;
	uint64_t n[N_SEQS]; /* tokens appended to or removed from each; 0: not touched */
	uint64_t first;     /* number of the first new token; those of both follow one another */
};

static struct step next_step(struct history *h)
{
	struct step s = {.first = h->next_token};
	const uint64_t which = kt_draw(&h->random, 16), both = kt_draw(&h->random, 3);

	s.op = which < 8  ? OP_APPEND :
	       which < 13 ? OP_ROLLBACK :
	       which < 14 ? OP_SNAPSHOT :
			    OP_FORK;
	for (int i = 0; i < N_SEQS; i++) {
		const uint64_t length = h->seqs[i].n, n = kt_draw(&h->random, 11) + 1;

		if (both != 2 && both != (uint64_t)i)
			continue;
		if (s.op == OP_APPEND && length + n > MOST_TOKENS - 16)
			s.op = OP_ROLLBACK;
		s.n[i] = s.op == OP_ROLLBACK ? kt_draw(&h->random, length + 1) : n;
	}
	if (s.op == OP_ROLLBACK) /* one of them may have been meant to be appended to */
		for (int i = 0; i < N_SEQS; i++)
			s.n[i] = s.n[i] > h->seqs[i].n ? h->seqs[i].n : s.n[i];
	return s;
}

static void apply(struct history *h, const struct step *s)
{
	for (int i = 0; i < N_SEQS; i++) {
		struct shadow *shadow = &h->seqs[i];

		if (s->op == OP_ROLLBACK)
			shadow->n -= s->n[i];
		for (uint64_t t = 0; s->op == OP_APPEND && t < s->n[i]; t++)
			shadow->tokens[shadow->n++] = h->next_token++;
	}
	if (s->op == OP_SNAPSHOT) {
		h->snapshot = h->seqs[0];
		h->has_snapshot = 1;
	}
	h->next_token += 100; /* forks write, too */
}

/* ---- the client ------------------------------------------------------------------------------ */

struct worker {
	struct kt_client client;
	kvc_seq *seqs[N_SEQS];
};

#define AGAIN(call) \
	while ((call) && kvc_error() == KVC_ERESTARTED) \
		;

static void write_tokens(kvc_seq *seq, uint64_t first, uint64_t n)
{
	int rc;

	AGAIN(rc = kvc_reserve(seq, n));
	kt_ok(rc);
	kt_ok(kvc_append_begin(seq, n));
	kt_write_numbers(seq, first, n);
}

static void do_append(struct worker *w, const struct step *s)
{
	kvc_seq *open[N_SEQS];
	uint64_t first = s->first;
	size_t n = 0;

	for (int i = 0; i < N_SEQS; i++) {
		if (s->n[i] == 0)
			continue;
		write_tokens(w->seqs[i], first, s->n[i]);
		first += s->n[i];
		open[n++] = w->seqs[i];
	}
	kt_ok(kvc_commit(w->client.writer, open, n));
}

static void do_rollback(struct worker *w, const struct step *s)
{
	kt_ok(kvc_rollback_many(w->client.writer, w->seqs, s->n, N_SEQS));
}

static void do_snapshot(struct worker *w)
{
	const struct kvc_snapshot_options options = {
		.size = sizeof(options), .name = SNAPSHOT, .replace = 1};
	int rc;

	AGAIN(rc = kvc_snapshot(w->seqs[0], &options, NULL));
	kt_ok(rc);
}

/* A fork inside the session, and one through the core; neither leaves anything. */
static void do_fork(struct worker *w, const struct step *s)
{
	kvc_seq *fork;
	int rc;

	AGAIN(rc = kvc_reserve_forks(w->seqs[0], 1));
	kt_ok(rc);
	AGAIN(rc = kvc_reserve(w->seqs[0], 8));
	kt_ok(rc);
	fork = kvc_fork_local(w->seqs[0], 4);
	kt_ok(fork ? 0 : -1);
	write_tokens(fork, s->first, 3);
	kt_ok(kvc_commit(w->client.writer, &fork, 1));
	kvc_seq_free(fork);
	AGAIN(!(fork = kvc_fork(w->client.writer, names[1], NULL)));
	kt_ok(fork ? 0 : -1);
	write_tokens(fork, s->first + 50, 5);
	kt_ok(kvc_commit(w->client.writer, &fork, 1));
	AGAIN(rc = kvc_seq_drop(fork));
	kt_ok(rc);
}

static void do_step(struct worker *w, const struct step *s)
{
	switch (s->op) {
	case OP_APPEND: do_append(w, s); break;
	case OP_ROLLBACK: do_rollback(w, s); break;
	case OP_SNAPSHOT: do_snapshot(w); break;
	case OP_FORK: do_fork(w, s); break;
	}
}

static bool read_all(int fd, void *bytes, size_t n)
{
	char *at = bytes;

	while (n) {
		ssize_t got = read(fd, at, n);

		if (got <= 0)
			return false;
		at += got;
		n -= (size_t)got;
	}
	return true;
}

static int role_work(const char *dir, const char *arg, int in, int out)
{
	struct worker w;
	struct history h;

	if (!read_all(in, &h, sizeof(h)))
		return 1;
	w.client = kt_client_open_ms(dir, 20000);
	kv_fault_at = kv_fault_passed + strtoull(arg, NULL, 10);
	if (*arg == '\0')
		kv_fault_at = 0;
	for (int i = 0; i < N_SEQS; i++) {
		AGAIN(!(w.seqs[i] = kvc_takeover(w.client.writer, names[i])));
		kt_ok(w.seqs[i] ? 0 : -1);
		kt_assert_tokens(w.seqs[i], h.seqs[i].tokens, h.seqs[i].n);
	}
	for (;;) {
		const struct step s = next_step(&h);

		do_step(&w, &s);
		if (write(out, "k", 1) != 1)
			return 1;
		apply(&h, &s);
	}
}

/* ---- the test ---------------------------------------------------------------------------------- */

struct world {
	struct kt_client client;
	struct history now;
	uint64_t random;
	uint64_t n_steps, n_in_flight;
	bool kill_core;
};

static void world_new(struct world *w, bool kill_core)
{
	memset(w, 0, sizeof(*w));
	w->client = kt_client_open_ms(kt_daemon_dir(daemon_), 20000);
	w->random = seed;
	w->kill_core = kill_core;
}

static void begin_round(struct world *w)
{
	memset(&w->now, 0, sizeof(w->now));
	w->now.random = kt_draw(&w->random, UINT64_C(1) << 30);
	w->now.next_token = 1;
	for (int i = 0; i < N_SEQS; i++)
		kvc_seq_free(kt_seq_new(&w->client, names[i])); /* parked */
}

static void nap_us(uint64_t us)
{
	const struct timespec t = {0, (long)us * 1000};

	nanosleep(&t, NULL);
}

static uint64_t read_acks(int fd)
{
	char bytes[4096];
	uint64_t n = 0;
	ssize_t got;

	while ((got = read(fd, bytes, sizeof(bytes))) > 0)
		n += (uint64_t)got;
	return n;
}

struct takeover {
	struct kt_client *client;
	const char *name;
	kvc_seq *seq;
};

static bool taken_over(void *arg)
{
	struct takeover *t = arg;

	t->seq = kvc_takeover(t->client->writer, t->name);
	return t->seq != NULL;
}

static bool is_state(struct world *w, kvc_seq *const *seqs, kvc_seq *snapshot,
		     const struct history *h)
{
	(void)w;
	for (int i = 0; i < N_SEQS; i++)
		if (kt_seq_differs(seqs[i], h->seqs[i].tokens, h->seqs[i].n))
			return false;
	if (!snapshot)
		return !h->has_snapshot;
	return h->has_snapshot && !kt_seq_differs(snapshot, h->snapshot.tokens, h->snapshot.n);
}

/* Takes over what a dead client left, checks it, and parks it for the next. */
static void check(struct world *w, uint64_t n_acked)
{
	struct history before = w->now, after;
	kvc_seq *seqs[N_SEQS], *snapshot;
	struct step s;

	while (n_acked--) {
		s = next_step(&before);
		apply(&before, &s);
		w->n_steps++;
	}
	after = before;
	s = next_step(&after);
	apply(&after, &s);
	for (int i = 0; i < N_SEQS; i++) {
		struct takeover t = {&w->client, names[i], NULL};

		if (!kt_wait_until(taken_over, &t, 10000))
			fail_msg("%s is not to be had: %s", names[i], kvc_error_text());
		seqs[i] = t.seq;
	}
	snapshot = kvc_open_snapshot(w->client.writer, SNAPSHOT);
	if (is_state(w, seqs, snapshot, &before)) {
		w->now = before;
	} else if (is_state(w, seqs, snapshot, &after)) {
		w->now = after;
		w->n_in_flight++;
	} else {
		fail_msg("lengths %llu and %llu are neither what was acknowledged (%llu, %llu) nor "
			 "what was in flight (%llu, %llu; operation %d)",
			 (unsigned long long)kvc_length(seqs[0]),
			 (unsigned long long)kvc_length(seqs[1]),
			 (unsigned long long)before.seqs[0].n, (unsigned long long)before.seqs[1].n,
			 (unsigned long long)after.seqs[0].n, (unsigned long long)after.seqs[1].n,
			 s.op);
	}
	kvc_seq_free(snapshot);
	for (int i = 0; i < N_SEQS; i++)
		kvc_seq_free(seqs[i]);
}

/* One life of a client; fault_at 0: it is killed at a random time. */
static void life(struct world *w, uint64_t fault_at)
{
	struct kt_kid kid;
	char arg[32] = "";
	int status;

	if (fault_at)
		snprintf(arg, sizeof(arg), "%llu", (unsigned long long)fault_at);
	kt_kid_start(&kid, "work", kt_daemon_dir(daemon_), arg);
	kt_kid_write(&kid, &w->now, sizeof(w->now));
	if (fault_at == 0) {
		nap_us(10000 + kt_draw(&w->random, 40000));
		if (w->kill_core)
			assert_int_equal(kt_daemon_kill_core(daemon_), 0);
		nap_us(kt_draw(&w->random, 20000));
		kill(kid.pid, SIGKILL);
	}
	assert_int_equal(kt_wait_child(kid.pid, 20000, &status), 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(kid.in);
	check(w, read_acks(kid.out));
	close(kid.out);
}

static void end_round(struct world *w, const struct kt_gauges *before)
{
	for (int i = 0; i < N_SEQS; i++)
		kt_ok(kvc_remove(w->client.session, names[i]));
	if (w->now.has_snapshot)
		kt_ok(kvc_remove(w->client.session, SNAPSHOT));
	kt_wait_gauges(w->client.session, before);
}

static void killed_at_random(bool kill_core)
{
	struct world w;
	struct kt_gauges before;

	world_new(&w, kill_core);
	before = kt_gauges(w.client.session);
	for (uint64_t i = 0; i < n_rounds; i++) {
		begin_round(&w);
		for (int k = 0; k < N_LIVES; k++)
			life(&w, 0);
		end_round(&w, &before);
	}
	printf("%llu steps, %llu found in flight\n", (unsigned long long)w.n_steps,
	       (unsigned long long)w.n_in_flight);
	assert_true(w.n_steps > n_rounds);
	kvc_close(w.client.session);
}

static void test_random(void **state)
{
	(void)state;
	killed_at_random(false);
}

static void test_random_and_core(void **state)
{
	(void)state;
	killed_at_random(true);
}

#ifdef KV_FAULT_INJECTION
/* At points of one history, one after the other. */
static void test_points(void **state)
{
	struct world w;
	struct kt_gauges before;

	(void)state;
	world_new(&w, false);
	before = kt_gauges(w.client.session);
	for (uint64_t i = 0; i < n_rounds; i++) {
		begin_round(&w);
		for (unsigned int k = 0; k < N_LIVES; k++)
			life(&w, 1 + i * N_LIVES + k + kt_draw(&w.random, 20));
		end_round(&w, &before);
	}
	printf("%llu steps, %llu found in flight\n", (unsigned long long)w.n_steps,
	       (unsigned long long)w.n_in_flight);
	assert_true(w.n_in_flight > 0);
	kvc_close(w.client.session);
}
#else
static void test_points(void **state)
{
	(void)state;
	kt_skip("needs --enable-fault-injection");
}
#endif

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
	KT_TEST("clients killed at random times leave the last step or the one in flight",
		test_random),
	KT_TEST("so do clients whose core was killed meanwhile", test_random_and_core),
	KT_TEST("clients that die between two stores leave the state before or after", test_points),
};

static const struct kt_role roles[] = {{"work", role_work}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), setup, teardown};

	kt_kid_main(argc, argv, roles);
	if (!rounds_parse(argc, argv, &n_rounds, &seed))
		return 2;
	return kt_run(1, argv, &group, 1);
}
