/*
 * A writer appends and rolls back at full speed in another process, while an operator takes
 * snapshots of it and rolls it back, all by name; a thread samples the gauges, which add up at
 * every sample. Every snapshot is whole and its digest stays what it was: the first verify learns
 * it, the last finds nothing else.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/random.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define N_SNAPSHOTS 300
#define N_KEPT 24
#define MOST_TOKENS 600u
#define STRIDE 1024u
#define N_CHOICES 16u

static struct kt_daemon *daemon_;
static const char *const source = "stress/seq";

/* ---- the writer --------------------------------------------------------------------------------- */

struct writing {
	struct kt_client client;
	kvc_seq *seq;
	uint64_t random, next_token;
	uint64_t n_updates, n_moved;
};

static void count(struct writing *w, int rc)
{
	w->n_updates++;
	if (rc == 0)
		return;
	w->n_moved++;
	kt_fails(rc, KVC_EMOVED);
}

/* Token i is i + k * STRIDE, with another k for each update: what is written twice differs. */
static void write_once(struct writing *w)
{
	uint64_t length = kvc_length(w->seq), n = 1 + kt_draw(&w->random, 12), tokens[12];

	if (length + n > MOST_TOKENS || kt_draw(&w->random, 3) == 0) {
		count(w, kvc_rollback_keep(w->seq, length - kt_draw(&w->random, length / 2 + 1)));
		return;
	}
	w->next_token = (w->next_token + STRIDE) % (STRIDE * N_CHOICES);
	for (uint64_t i = 0; i < n; i++)
		tokens[i] = w->next_token + length + i;
	count(w, kt_append_try(w->client.writer, w->seq, tokens, n));
}

static int role_write(const char *dir, const char *arg, int in, int out)
{
	struct writing w = {.random = 3};
	struct pollfd p = {.fd = in, .events = POLLIN};
	uint64_t told[2];

	(void)arg;
	w.client = kt_client_open(dir);
	w.seq = kt_seq_new(&w.client, source);
	if (write(out, "w", 1) != 1)
		return 1;
	while (w.n_updates % 64 || poll(&p, 1, 0) == 0)
		write_once(&w);
	kt_ok(kvc_seq_drop(w.seq));
	kvc_close(w.client.session);
	told[0] = w.n_updates;
	told[1] = w.n_moved;
	return write(out, told, sizeof(told)) == sizeof(told) ? 0 : 1;
}

/* ---- gauges ----------------------------------------------------------------------------------------- */

struct sampling {
	_Atomic bool stop;
	_Atomic unsigned int n_samples;
	_Atomic unsigned int n_wrong;
};

static void *sample(void *arg)
{
	struct sampling *s = arg;
	struct kt_client client = kt_client_open(kt_daemon_dir(daemon_));

	while (!s->stop) {
		struct kt_gauges g;

		if (kt_gauges_try(client.session, &g) ||
		    g.live + g.reserved + g.cached + g.quarantined + g.free != g.total ||
		    g.used > g.total)
			s->n_wrong++;
		s->n_samples++;
	}
	kvc_close(client.session);
	return NULL;
}

/* ---- the operator ------------------------------------------------------------------------------------- */

struct kept {
	bool used;
	char name[32];
	uint8_t digest[16];
};

struct operating {
	struct kt_client client;
	struct kept kept[N_KEPT];
	uint64_t random;
	unsigned int n_taken, n_rolled_back, n_checked;
};

/* Whole: each token is the same in all layers, K and V, and the digest is the daemon's. */
static void check_content(struct operating *o, struct kept *k)
{
	kvc_seq *seq = kvc_open_snapshot(o->client.writer, k->name);
	uint64_t tokens[MOST_TOKENS];
	uint8_t digest[16];

	kt_ok(seq ? 0 : -1);
	assert_true(kvc_length(seq) <= MOST_TOKENS);
	assert_true(kt_seq_guess(seq, STRIDE, N_CHOICES, tokens));
	kt_assert_tokens(seq, tokens, kvc_length(seq));
	kt_ok(kvc_digest(seq, digest));
	assert_memory_equal(digest, k->digest, 16);
	kvc_seq_free(seq);
}

static void verify(struct operating *o, const struct kept *k, bool known)
{
	struct kvc_verify_result result;

	kt_ok(kvc_verify(o->client.session, k->name, NULL, NULL, &result));
	assert_int_equal(result.n_bad, 0);
	if (known)
		assert_int_equal(result.n_known, result.n_blocks);
	assert_memory_equal(result.digest, k->digest, 16);
	o->n_checked++;
}

static void let_go(struct operating *o, struct kept *k)
{
	verify(o, k, true);
	check_content(o, k);
	kt_ok(kvc_remove(o->client.session, k->name));
	k->used = false;
}

static void take_one(struct operating *o)
{
	struct kept *k = &o->kept[kt_draw(&o->random, N_KEPT)];
	struct kvc_verify_result result;
	const char *name = k->name;

	if (k->used)
		let_go(o, k);
	snprintf(k->name, sizeof(k->name), "stress/%u", o->n_taken++);
	kt_ok(kt_snapshot_by_name(o->client.session, &source, &name, 1, 0));
	kt_ok(kvc_verify(o->client.session, k->name, NULL, NULL, &result));
	assert_int_equal(result.n_bad, 0);
	memcpy(k->digest, result.digest, sizeof(k->digest));
	k->used = true;
}

static void roll_back(struct operating *o)
{
	const uint64_t keep = kt_draw(&o->random, 40);

	if (kt_rollback_by_name(o->client.session, &source, &keep, KT_KEEP, 1, 0) == 0)
		o->n_rolled_back++;
	else
		assert_int_equal(kvc_error(), KVC_ERANGE); /* it is shorter than that now */
}

static void operate(struct operating *o)
{
	while (o->n_taken < N_SNAPSHOTS) {
		take_one(o);
		if (kt_draw(&o->random, 3) == 0)
			roll_back(o);
		if (kt_draw(&o->random, 4) == 0) {
			struct kept *k = &o->kept[kt_draw(&o->random, N_KEPT)];

			if (k->used)
				verify(o, k, true);
		}
	}
	for (size_t i = 0; i < N_KEPT; i++)
		if (o->kept[i].used)
			let_go(o, &o->kept[i]);
}

static void test_stress(void **state)
{
	struct operating *o = calloc(1, sizeof(*o));
	struct sampling sampling = {.stop = false};
	struct kt_gauges before;
	uint64_t told[2];
	struct kt_kid kid;
	pthread_t thread;
	char byte;

	(void)state;
	o->client = kt_client_open(kt_daemon_dir(daemon_));
	o->random = 11;
	before = kt_gauges(o->client.session);
	kt_kid_start(&kid, "write", kt_daemon_dir(daemon_), NULL);
	kt_kid_read(&kid, &byte, 1);
	assert_int_equal(pthread_create(&thread, NULL, sample, &sampling), 0);
	operate(o);
	sampling.stop = true;
	pthread_join(thread, NULL);
	kt_kid_write(&kid, "e", 1);
	kt_kid_read(&kid, told, sizeof(told));
	assert_int_equal(kt_kid_wait(&kid), 0);
	printf("%llu updates, %llu moved; %u snapshots, %u rollbacks, %u verified, %u samples\n",
	       (unsigned long long)told[0], (unsigned long long)told[1], o->n_taken,
	       o->n_rolled_back, o->n_checked, sampling.n_samples);
	assert_int_equal(sampling.n_wrong, 0);
	assert_true(sampling.n_samples > 100);
	assert_true(o->n_rolled_back > 10);
	assert_true(told[1] > 10); /* both were at work at the same time */
	kt_wait_gauges(o->client.session, &before);
	kvc_close(o->client.session);
	free(o);
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
	KT_TEST("snapshots of a writer at full speed stay what they were, gauges add up",
		test_stress),
};

static const struct kt_role roles[] = {{"write", role_write}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), setup, teardown};

	kt_kid_main(argc, argv, roles);
	return kt_run(argc, argv, &group, 1);
}
