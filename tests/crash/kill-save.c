/*
 * kill-save [--rounds N] [--seed S]: the core dies, at random times and at its points between
 * writes, syncs and renames, or the whole daemon does, while snapshots are saved, replaced, loaded
 * and removed.
 *
 * What was saved is old, new or absent, whole, as the answers allow: after each operation that no
 * answer came to, what is there is loaded and compared with both. At the end everything is removed,
 * and no slot of the store is in use.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/rpc.h"
#include "tests/crash/rounds.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/random.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

#define N_NAMES 4
#define TOKENS_MAX 60u
#define TRIES_MAX 1000
#define DEADLINE_MS 20000

static uint64_t n_rounds = 60;
static uint64_t seed = 1;

struct content {
	uint64_t first, n; /* tokens first, first + 1, ...; n 0: not there */
};

struct world {
	struct kt_daemon *daemon;
	struct kt_client client;
	char *runtime_dir, *disk_dir;
	const char *most;
	uint64_t random;
	struct content source, saved[N_NAMES];
	uint64_t n_ops, n_unanswered, n_new, n_old;
};

static uint64_t draw(struct world *w, uint64_t n)
{
	return kt_draw(&w->random, n);
}

/* ---- the daemon --------------------------------------------------------------------------- */

static void start(struct world *w)
{
	const char *const arguments[] = {"--disk-dir",  w->disk_dir,     "--disk-bytes",
					 "64M",         "--preallocate", "no",
					 "--log-level", "error",         NULL};

	w->daemon = kt_daemon_spawn_prepared(w->runtime_dir, arguments, kt_daemon_core_dies,
					     (void *)(uintptr_t)w->most);
	assert_true(kt_daemon_wait_ready(w->daemon));
	w->client = kt_client_open_ms(w->runtime_dir, DEADLINE_MS);
}

/* All its processes at once, as when the machine loses power but for what the kernel has. */
static void kill_all(struct world *w)
{
	kvc_close(w->client.session);
	kill(kt_daemon_keeper(w->daemon), SIGKILL);
	assert_true(kt_daemon_wait_end(w->daemon, DEADLINE_MS) != -1);
	kt_daemon_stop(w->daemon);
	start(w);
	w->source.n = 0;
}

/* ---- operations --------------------------------------------------------------------------- */

/* May the same call be made again? */
static bool is_passing(void)
{
	return kvc_error() == KVC_ERESTARTED || kvc_error() == KVC_EDAEMON ||
	       kvc_error() == KVC_EBUSY;
}

static void must_pass(const char *what)
{
	if (!is_passing())
		fail_msg("%s: %s", what, kvc_error_text());
}

static bool append_and_snapshot(struct world *w, const struct content *content)
{
	const struct kvc_snapshot_options options = {
		.size = sizeof(options), .name = "source", .replace = 1};
	uint64_t tokens[TOKENS_MAX];
	kvc_seq *seq = kvc_seq_new(w->client.writer, w->client.layout, NULL);
	bool done;

	if (!seq)
		return false;
	for (uint64_t i = 0; i < content->n; i++)
		tokens[i] = content->first + i;
	done = kt_append_try(w->client.writer, seq, tokens, content->n) == 0 &&
	       kvc_snapshot(seq, &options, NULL) == 0;
	kvc_seq_drop(seq);
	return done;
}

static void new_source(struct world *w)
{
	struct content content = {1 + draw(w, 1u << 30), 1 + draw(w, TOKENS_MAX)};

	for (int i = 0; !append_and_snapshot(w, &content); i++) {
		must_pass("making a source");
		assert_true(i < TRIES_MAX);
	}
	w->source = content;
}

static void name_of(size_t i, char name[32])
{
	snprintf(name, 32, "kept/%zu", i);
}

/* Loads it: what it holds, or n 0. Each byte is that of one of the candidates. */
static struct content look(struct world *w, size_t i, const struct content candidates[2])
{
	struct kvc_load_options options = {.size = sizeof(options), .name = "look", .replace = 1};
	uint64_t tokens[TOKENS_MAX];
	char name[32];
	kvc_seq *seq = NULL;

	name_of(i, name);
	for (int tries = 0; !seq; tries++) {
		assert_true(tries < TRIES_MAX);
		if (kvc_load(w->client.session, name, &options, NULL, NULL, NULL) == 0)
			seq = kvc_open_snapshot(w->client.writer, "look");
		else if (kvc_error() == KVC_ENOTFOUND)
			return (struct content){0, 0};
		if (!seq)
			must_pass(name);
	}
	for (int c = 0; c < 2; c++) {
		for (uint64_t t = 0; t < candidates[c].n; t++)
			tokens[t] = candidates[c].first + t;
		if (candidates[c].n && kvc_length(seq) == candidates[c].n &&
		    !kt_seq_differs(seq, tokens, candidates[c].n)) {
			kvc_seq_drop(seq);
			return candidates[c];
		}
	}
	fail_msg("%s holds neither what it held before nor what was to be saved", name);
	return candidates[0];
}

/* No answer came: it is the one or the other. */
static void find_out(struct world *w, size_t i, struct content next)
{
	const struct content candidates[2] = {w->saved[i], next};
	struct content now = look(w, i, candidates);
	bool is_old = now.n == w->saved[i].n && now.first == w->saved[i].first;

	if (now.n == 0)
		assert_true(w->saved[i].n == 0 || next.n == 0);
	w->n_unanswered++;
	w->n_old += is_old;
	w->n_new += !is_old;
	w->saved[i] = now;
}

static void save(struct world *w, size_t i)
{
	struct kvc_save_options options = {.size = sizeof(options), .replace = 1};
	char name[32];

	name_of(i, name);
	options.name = name;
	if (kvc_save(w->client.session, "source", &options, NULL, NULL, NULL) == 0) {
		w->saved[i] = w->source;
		return;
	}
	must_pass(name);
	find_out(w, i, w->source);
}

static void unsave(struct world *w, size_t i)
{
	char name[32];
	int rc;

	name_of(i, name);
	rc = kvc_saved_remove(w->client.session, name);
	if (rc == 0) {
		w->saved[i].n = 0;
		return;
	}
	if (kvc_error() != KVC_ENOTFOUND) /* else a core did it that died before it said so */
		must_pass(name);
	find_out(w, i, (struct content){0, 0});
}

static void check(struct world *w, size_t i)
{
	const struct content candidates[2] = {w->saved[i], w->saved[i]};
	struct content now = look(w, i, candidates);

	assert_int_equal(now.n, w->saved[i].n);
}

static void operate(struct world *w)
{
	size_t i = draw(w, N_NAMES);

	if (w->source.n == 0 || draw(w, 3) == 0)
		new_source(w);
	switch (draw(w, 6)) {
	case 0:
	case 1:
	case 2: save(w, i); break;
	case 3: unsave(w, i); break;
	default: check(w, i);
	}
	w->n_ops++;
}

/* ---- worlds ------------------------------------------------------------------------------- */

static void world_new(struct world *w, const char *most)
{
	*w = (struct world){.random = seed, .most = most};
	w->runtime_dir = kt_tmpdir_new();
	w->disk_dir = kt_tmpdir_new();
	start(w);
}

/* A core that was killed has its lock on the store until the kernel is through with it. */
static bool has_disk(void *arg)
{
	const struct world *w = arg;
	Kv__Wire__Reply *reply = kt_status(w->client.session);
	bool has = reply && reply->status_result->disk && !reply->status_result->disk->fault[0];

	rpc_reply_free(reply);
	return has;
}

/* The gauges of the disk pool add up; the bytes that something uses. */
static uint64_t used_bytes(struct world *w)
{
	const Kv__Wire__DiskInfo *disk;
	Kv__Wire__Reply *reply = NULL;
	uint64_t used;

	assert_true(kt_wait_until(has_disk, w, DEADLINE_MS));
	while (!reply)
		reply = kt_status(w->client.session);
	disk = reply->status_result->disk;
	assert_int_equal(disk->n_set_aside, 0);
	used = disk->used_bytes;
	assert_int_equal(used + disk->cached_bytes + disk->free_bytes, disk->file_bytes);
	rpc_reply_free(reply);
	return used;
}

static void world_end(struct world *w)
{
	for (size_t i = 0; i < N_NAMES; i++)
		check(w, i);
	for (size_t i = 0; i < N_NAMES; i++)
		while (w->saved[i].n)
			unsave(w, i);
	assert_int_equal(used_bytes(w), 0);
	assert_true(w->n_unanswered > 0); /* else nothing was tried */
	printf("%llu operations, %u deaths of the last daemon's core, %llu without an answer: "
	       "%llu done, %llu not\n",
	       (unsigned long long)w->n_ops, kt_gauges(w->client.session).n_core_restarts,
	       (unsigned long long)w->n_unanswered, (unsigned long long)w->n_new,
	       (unsigned long long)w->n_old);
	kvc_close(w->client.session);
	kt_daemon_stop(w->daemon);
	kt_tmpdir_free(w->runtime_dir);
	kt_tmpdir_free(w->disk_dir);
}

/* Kills at random times come from beside. */
static pid_t killer(struct world *w)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	for (;;) {
		const struct timespec nap = {0, 3000000 + (long)draw(w, 60000000)};
		pid_t core;

		nanosleep(&nap, NULL);
		core = kt_daemon_core(w->daemon);
		if (core > 0)
			kill(core, SIGKILL);
	}
}

static void test_random(void **state)
{
	struct world w;

	(void)state;
	world_new(&w, NULL);
	for (uint64_t done = 0; done < n_rounds;) {
		pid_t pid = killer(&w);
		int status;

		for (unsigned int i = 0; i < 20 && done < n_rounds; i++, done++)
			operate(&w);
		kill(pid, SIGKILL);
		assert_int_equal(kt_wait_child(pid, DEADLINE_MS, &status), 0);
		kill_all(&w);
		used_bytes(&w);
	}
	world_end(&w);
}

#ifdef KV_FAULT_INJECTION
static void test_points(void **state)
{
	struct world w;

	(void)state;
	world_new(&w, "400");
	for (uint64_t i = 0; i < n_rounds; i++)
		operate(&w);
	world_end(&w);
}
#else
static void test_points(void **state)
{
	(void)state;
	kt_skip("needs --enable-fault-injection");
}
#endif

static const struct CMUnitTest tests[] = {
	KT_TEST("what is saved survives kills at random times, old, new or absent", test_random),
	KT_TEST("what is saved survives deaths between writes, syncs and renames", test_points),
};

int main(int argc, char **argv)
{
	const struct kt_group group = KT_GROUP(tests);

	if (!rounds_parse(argc, argv, &n_rounds, &seed))
		return 2;
	return kt_run(1, argv, &group, 1);
}
