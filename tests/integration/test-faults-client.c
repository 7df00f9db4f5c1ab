/*
 * What clients do to the daemon: they are killed with everything in hand (KV-58), stopped
 * (KV-38), fork (KV-52), and write over all they can write. Others must not notice.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/seq.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

static struct kt_daemon *daemon_;

static struct kt_client open_client(void)
{
	return kt_client_open(kt_daemon_dir(daemon_));
}

static int take_snapshot(kvc_seq *seq, const char *name)
{
	const struct kvc_snapshot_options options = {
		.size = sizeof(options), .name = name, .replace = 1};

	return kvc_snapshot(seq, &options, NULL);
}

/* ---- killed (KV-58) -------------------------------------------------------------------------- */

/* Holds what a client can hold, says so, and goes on writing and taking snapshots. */
static int role_hold(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client = kt_client_open(dir);
	kvc_seq *seq = kt_seq_new(&client, NULL), *local, *fork;
	uint64_t token = 1;

	(void)in;
	kt_append_numbers(client.writer, seq, token, 200, NULL, NULL);
	kt_ok(take_snapshot(seq, NULL));
	fork = kvc_fork(client.writer, arg, NULL);
	kt_ok(fork ? 0 : -1);
	kt_append_numbers(client.writer, fork, token, 10, NULL, NULL);
	kt_ok(kvc_open_snapshot(client.writer, arg) ? 0 : -1);
	kt_ok(kvc_reserve_forks(seq, 2));
	kt_ok(kvc_reserve(seq, 100));
	local = kvc_fork_local(seq, 40);
	kt_ok(local ? 0 : -1);
	assert_true(kvc_watch(client.session, "kv58/never") >= 0);
	kt_ok(kvc_batch_new(client.writer, client.layout, 4, 64) ? 0 : -1);
	if (write(out, "h", 1) != 1)
		return 1;
	for (;;) {
		kt_append_numbers(client.writer, local, token++, 3, NULL, NULL);
		kt_append_numbers(client.writer, fork, token++, 3, NULL, NULL);
		kt_ok(take_snapshot(fork, NULL));
		kt_ok(kvc_rollback_keep(local, 200));
		kt_ok(kvc_rollback_keep(fork, 20));
	}
}

/* Dies right behind its welcome. */
static int role_open(const char *dir, const char *arg, int in, int out)
{
	struct kvc_session_options options = {.size = sizeof(options), .runtime_dir = dir};

	(void)arg;
	(void)in;
	(void)out;
	kt_ok(kvc_open(&options) ? 0 : -1);
	raise(SIGKILL);
	return 1;
}

#define N_KILLS 100

struct fds {
	pid_t pid;
	size_t n;
};

static bool has_fds(void *arg)
{
	const struct fds *fds = arg;

	return kt_count_fds(fds->pid) == fds->n;
}

static void test_killed(void **state)
{
	struct kt_client client = open_client();
	kvc_seq *seq = kt_seq_new(&client, NULL);
	const pid_t core = kt_daemon_core(daemon_), keeper = kt_daemon_keeper(daemon_);
	struct kt_gauges before;
	size_t fds[2];
	struct kt_kid kid;
	char byte;

	(void)state;
	kt_append_numbers(client.writer, seq, 1, 10, NULL, NULL);
	kt_ok(take_snapshot(seq, "kv58/prompt"));
	before = kt_gauges(client.session);
	kt_kid_start(&kid, "hold", kt_daemon_dir(daemon_), "kv58/prompt");
	kt_kid_read(&kid, &byte, 1); /* the first reader makes a descriptor that stays */
	kt_kid_kill(&kid);
	kt_wait_gauges(client.session, &before);
	fds[0] = kt_count_fds(core);
	fds[1] = kt_count_fds(keeper);
	for (int i = 0; i < N_KILLS; i++) {
		if (i % 10 == 9) {
			kt_kid_start(&kid, "open", kt_daemon_dir(daemon_), NULL);
			assert_true(WIFSIGNALED(kt_kid_wait(&kid)));
			continue;
		}
		kt_kid_start(&kid, "hold", kt_daemon_dir(daemon_), "kv58/prompt");
		kt_kid_read(&kid, &byte, 1);
		assert_true(WIFSIGNALED(kt_kid_kill(&kid)));
		if (i % 10 == 0)
			kt_wait_gauges(client.session, &before);
	}
	kt_wait_gauges(client.session, &before);
	assert_true(kt_wait_until(has_fds, &(struct fds){core, fds[0]}, 5000));
	assert_true(kt_wait_until(has_fds, &(struct fds){keeper, fds[1]}, 5000));
	assert_int_equal(kt_daemon_core(daemon_), core);
	kt_ok(kvc_remove(client.session, "kv58/prompt"));
	kvc_close(client.session);
}

/* Half of an update is written when it is killed. */
static int role_half(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client = kt_client_open(dir);
	kvc_seq *seq = kt_seq_new(&client, arg);
	char rows[2][8 * 128];

	(void)in;
	memset(rows, 0x5a, sizeof(rows));
	kt_append_numbers(client.writer, seq, 1, 6, NULL, NULL);
	kt_ok(kvc_reserve(seq, 8));
	kt_ok(kvc_append_begin(seq, 8));
	kt_ok(kvc_write(seq, 0, rows[0], rows[1])); /* not layer 1 */
	if (write(out, "h", 1) != 1)
		return 1;
	pause();
	return 1;
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

static void test_half_written(void **state)
{
	static const uint64_t tokens[] = {1, 2, 3, 4, 5, 6};
	struct kt_client client = open_client();
	struct takeover t = {&client, "kv58/half", NULL};
	struct kt_kid kid;
	char byte;

	(void)state;
	kt_kid_start(&kid, "half", kt_daemon_dir(daemon_), t.name);
	kt_kid_read(&kid, &byte, 1);
	assert_int_equal(kt_snapshot_by_name(client.session, &t.name,
					     (const char *const[]){"kv58/s"}, 1, 0),
			 0);
	assert_true(WIFSIGNALED(kt_kid_kill(&kid)));
	assert_true(kt_wait_until(taken_over, &t, 5000));
	kt_assert_tokens(t.seq, tokens, 6);
	kt_ok(kvc_seq_drop(t.seq));
	t.seq = kvc_open_snapshot(client.writer, "kv58/s");
	kt_assert_tokens(t.seq, tokens, 6);
	kt_ok(kvc_remove(client.session, "kv58/s"));
	kvc_close(client.session);
}

/* The library's sessions of one process, one after the other, do not add up. */
static void test_many_sessions(void **state)
{
	struct kt_client watcher = open_client();
	struct kt_gauges before = kt_gauges(watcher.session);

	(void)state;
	for (int i = 0; i < 300; i++) {
		struct kt_client client = open_client();
		kvc_seq *seq = kt_seq_new(&client, NULL);

		kt_append_numbers(client.writer, seq, 1, 5, NULL, NULL);
		kvc_close(client.session);
	}
	kt_wait_gauges(watcher.session, &before);
	kvc_close(watcher.session);
}

/* ---- stopped (KV-38) -------------------------------------------------------------------------- */

/* Flips its commit word to open and stays there, as if it had been stopped while publishing. */
static int role_open_word(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client = kt_client_open(dir);
	kvc_seq *seq = kt_seq_new(&client, arg);
	struct kv_shm_writer *shm = client.writer->shm;
	uint64_t word;
	char byte;

	kt_append_numbers(client.writer, seq, 1, 6, NULL, NULL);
	word = kv_word_load(shm);
	assert_true(kv_word_swap(shm, word,
				 kv_word(KV_OPEN, kv_word_generation(word), kv_word_update(word))));
	if (write(out, "o", 1) != 1 || read(in, &byte, 1) != 1)
		return 1;
	/* it goes on: what it had begun is abandoned, the word goes back */
	while (word = kv_word_load(shm),
	       !kv_word_swap(shm, word,
			     kv_word(KV_IDLE, kv_word_generation(word), kv_word_update(word))))
		;
	kt_append_numbers(client.writer, seq, 7, 2, NULL, NULL);
	if (write(out, "d", 1) != 1 || read(in, &byte, 1) != 1)
		return 1;
	kt_ok(kvc_seq_drop(seq));
	kvc_close(client.session);
	return 0;
}

static void test_stopped(void **state)
{
	static const char *const sources[2] = {"kv38/stopped", "kv38/mine"};
	static const char *const names[2] = {"kv38/s0", "kv38/s1"};
	struct kt_client client = open_client();
	kvc_seq *seq = kt_seq_new(&client, sources[1]);
	struct kt_client other = open_client();
	uint64_t shadow[64], n = 0;
	struct kt_kid kid;
	int64_t began;
	char byte;

	(void)state;
	kt_append_numbers(client.writer, seq, 1, 6, shadow, &n);
	kt_kid_start(&kid, "open-word", kt_daemon_dir(daemon_), sources[0]);
	kt_kid_read(&kid, &byte, 1);
	kill(kid.pid, SIGSTOP);
	began = kt_now_ms();
	kt_fails(kt_snapshot_by_name(client.session, sources, names, 1, 400), KVC_EBUSY);
	assert_true(kt_now_ms() - began < kt_scale_ms(2000));
	/* with another that could: neither, and the other goes on meanwhile */
	kt_fails(kt_snapshot_by_name(client.session, sources, names, 2, 400), KVC_EBUSY);
	assert_non_null(strstr(kvc_error_text(), "stopped"));
	kt_fails(kt_rollback_by_name(client.session, sources, (const uint64_t[]){1, 1}, KT_KEEP, 2,
				     400),
		 KVC_EBUSY);
	kt_fails(kt_show(other.session, names[0], NULL), KVC_ENOTFOUND);
	kt_fails(kt_show(other.session, names[1], NULL), KVC_ENOTFOUND);
	began = kt_now_ms();
	kt_append_numbers(client.writer, seq, 50, 3, shadow, &n); /* no EMOVED */
	kt_ok(kvc_ping(other.session));
	assert_true(kt_now_ms() - began < kt_scale_ms(1000));
	kill(kid.pid, SIGCONT);
	kt_kid_write(&kid, "g", 1);
	kt_kid_read(&kid, &byte, 1);
	kt_ok(kt_snapshot_by_name(client.session, sources, names, 2, 0));
	kt_assert_tokens(kvc_open_snapshot(other.writer, names[0]),
			 (const uint64_t[]){1, 2, 3, 4, 5, 6, 7, 8}, 8);
	kt_assert_tokens(kvc_open_snapshot(other.writer, names[1]), shadow, n);
	kt_kid_write(&kid, "e", 1);
	assert_int_equal(kt_kid_wait(&kid), 0);
	for (int i = 0; i < 2; i++)
		kt_ok(kvc_remove(client.session, names[i]));
	kvc_close(other.session);
	kt_ok(kvc_seq_drop(seq));
	kvc_close(client.session);
}

/* ---- forks (KV-52) ---------------------------------------------------------------------------- */

/* In the child: no call gets as far as its object. */
static int use_in_child(struct kt_client *client, kvc_seq *seq, const char *dir)
{
	struct kvc_session_options options = {.size = sizeof(options), .runtime_dir = dir};
	kvc_mark mark;
	uint8_t digest[16];
	struct kvc_run run;
	int n_wrong = 0;

#define FORKED(call) n_wrong += !((call) && kvc_error() == KVC_EFORKED)
	FORKED(kvc_ping(client->session));
	FORKED(!kvc_layout_register(client->session, NULL));
	FORKED(!kvc_writer_new(client->session));
	FORKED(kvc_reserve(seq, 1));
	FORKED(kvc_append_begin(seq, 1));
	FORKED(kvc_commit(client->writer, NULL, 0));
	FORKED(kvc_mark_set(seq, &mark));
	FORKED(kvc_rollback_keep(seq, 0));
	FORKED(kvc_snapshot(seq, NULL, NULL));
	FORKED(!kvc_fork(client->writer, "kv52/seq", NULL));
	FORKED(!kvc_fork_local(seq, 0));
	FORKED(kvc_digest(seq, digest));
	FORKED(kvc_view_run(seq, 0, &run));
	FORKED(kvc_remove(client->session, "kv52/seq"));
	FORKED(kvc_seq_drop(seq));
	FORKED(!kvc_open(&options));
#undef FORKED
	kvc_seq_free(seq);
	kvc_close(client->session);
	return n_wrong;
}

static void test_child(void **state)
{
	struct kt_client client = open_client();
	kvc_seq *seq = kt_seq_new(&client, "kv52/seq");
	uint64_t shadow[64], n = 0;
	struct kt_gauges before;
	int status;
	pid_t pid;

	(void)state;
	kt_append_numbers(client.writer, seq, 1, 6, shadow, &n);
	kt_ok(kvc_reserve(seq, 8));
	before = kt_gauges(client.session);
	pid = fork();
	if (pid == 0)
		_exit(use_in_child(&client, seq, kt_daemon_dir(daemon_)));
	assert_int_equal(kt_wait_child(pid, 10000, &status), 0);
	assert_int_equal(status, 0);
	/* its end released nothing */
	kt_ok(kvc_append_begin(seq, 8));
	kt_ok(kvc_abort(seq));
	kt_append_numbers(client.writer, seq, 50, 8, shadow, &n);
	kt_assert_tokens(seq, shadow, n);
	assert_int_equal(kt_gauges(client.session).n_sessions, before.n_sessions);
	assert_int_equal(kt_gauges(client.session).free, before.free);
	kt_ok(kvc_seq_drop(seq));
	kvc_close(client.session);
}

/* Opens a session, forks a child that sleeps with all descriptors, and another that execs; then
 * waits to be killed. */
static int role_parent(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client = kt_client_open(dir);
	kvc_seq *seq = kt_seq_new(&client, arg);
	pid_t pids[2];

	kt_append_numbers(client.writer, seq, 1, 6, NULL, NULL);
	pids[0] = fork();
	if (pids[0] == 0) {
		close(out);
		pause();
		_exit(0);
	}
	pids[1] = fork();
	if (pids[1] == 0) {
		dup2(in, 0); /* ends when the test closes it */
		close(out);
		execl("/bin/cat", "cat", NULL);
		_exit(127);
	}
	if (write(out, pids, sizeof(pids)) != sizeof(pids))
		return 1;
	pause();
	return 0;
}

static bool runs_cat(void *arg)
{
	char path[64], target[256];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/exe", *(pid_t *)arg);
	n = readlink(path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = '\0';
	return strstr(target, "cat") != NULL;
}

static void test_parent_dies(void **state)
{
	static const uint64_t tokens[] = {1, 2, 3, 4, 5, 6};
	struct kt_client client = open_client();
	struct takeover t = {&client, "kv52/parent", NULL};
	struct kt_gauges before = kt_gauges(client.session);
	char path[64], target[256];
	struct kt_kid kid;
	pid_t pids[2];
	ssize_t n;

	(void)state;
	kt_kid_start(&kid, "parent", kt_daemon_dir(daemon_), t.name);
	kt_kid_read(&kid, pids, sizeof(pids));
	assert_true(kt_wait_until(runs_cat, &pids[1], 5000));
	/* descriptors are close-on-exec: cat has its pipes and nothing of the library's */
	for (int fd = 3; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pids[1], fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		assert_null(strstr(target, "socket:"));
		assert_null(strstr(target, "memfd:"));
	}
	kill(kid.pid, SIGKILL);
	/* the session ends although a child has its socket */
	assert_true(kt_wait_until(taken_over, &t, 5000));
	kt_assert_tokens(t.seq, tokens, 6);
	assert_int_equal(kill(pids[0], 0), 0);
	/* and the daemon can be started anew while the children live */
	assert_int_equal(kt_daemon_kill_core(daemon_), 0);
	kt_ok(kvc_seq_drop(t.seq));
	kt_wait_gauges(client.session, &before);
	kill(pids[0], SIGKILL);
	kill(pids[1], SIGKILL);
	kt_kid_wait(&kid);
	kvc_close(client.session);
}

/* ---- scribblers -------------------------------------------------------------------------------- */

static uint64_t random_state;

static uint64_t draw(void)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return random_state >> 16;
}

/* Random bytes over pages that are there, and over some of the rest. */
static void scribble(char *base, uint64_t n_bytes, bool whole)
{
	uint64_t from = whole ? 0 : draw() % n_bytes, n = whole ? n_bytes : 1 + draw() % 65536;

	for (uint64_t i = 0; i < n && from + i < n_bytes; i++)
		base[from + i] = (char)draw();
}

/* What a client can do to the file behind a mapping. */
static void mistreat_file(const char *name_part)
{
	char path[64], target[256];

	for (int fd = 0; fd < 256; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		if (!strstr(target, name_part))
			continue;
		assert_int_equal(ftruncate(fd, 0), -1);
		assert_int_equal(ftruncate(fd, INT64_C(1) << 40), -1);
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20);
	}
}

/* The mapped files of this process whose name has this part, each opened again and mistreated. */
static void mistreat_mappings(const char *name_part)
{
	char line[512], path[128], range[64];
	FILE *maps = fopen("/proc/self/maps", "re");

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		int fd;

		if (!strstr(line, name_part) || sscanf(line, "%63s", range) != 1)
			continue;
		snprintf(path, sizeof(path), "/proc/self/map_files/%s", range);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		assert_int_equal(ftruncate(fd, 0), -1);
		assert_int_equal(ftruncate(fd, INT64_C(1) << 40), -1);
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20);
		close(fd);
	}
	fclose(maps);
}

/* head: as it was before. kind 0: places (headers, stamps, marks) and tables; 1: commit words;
 * 2: anything in the parts that are in use. */
static void scribble_control(char *base, const struct kv_shm_head *head, int kind)
{
	if (kind == 0) {
		scribble(base + head->places_off, 16 * sizeof(struct kv_shm_place), true);
		scribble(base + head->tables_off, 1u << 18, true);
	} else if (kind == 1) {
		scribble(base + head->writers_off, 4 * sizeof(struct kv_shm_writer), true);
	} else {
		for (int i = 0; i < 40; i++)
			scribble(base, head->tables_off + (1u << 20), false);
	}
}

static void scribble_arenas(struct kt_client *client)
{
	for (uint32_t i = 0; i < KV_ARENAS_MAX; i++) {
		struct arena_map *map = session_arena_mapped(client->session, i);

		if (!map || !map->writable)
			continue;
		for (int k = 0; k < 20; k++)
			scribble(map->base, 1u << 20, false);
		madvise(map->base, 1u << 20, MADV_REMOVE); /* a hole */
		scribble(map->base, 1u << 16, true);
	}
}

#define SCRIBBLE_TOKENS 40u
#define SCRIBBLE_BLOCKS (SCRIBBLE_TOKENS / KT_BLOCK_TOKENS)

/* Where the tokens lie, and what they were. */
struct original {
	struct kvc_run runs[2];
	char k[2][SCRIBBLE_TOKENS * 128], v[2][SCRIBBLE_TOKENS * 64];
};

/* What verify has to find. */
struct damage {
	uint64_t n_bad, first_token;
};

static void remember(kvc_seq *seq, struct original *original)
{
	for (uint32_t l = 0; l < 2; l++) {
		struct kvc_run *run = &original->runs[l];

		kt_ok(kvc_view_run(seq, l, run));
		assert_int_equal(run->k_row_bytes, 128);
		assert_int_equal(run->v_row_bytes, 64);
		memcpy(original->k[l], run->k, sizeof(original->k[l]));
		memcpy(original->v[l], run->v, sizeof(original->v[l]));
	}
}

static bool block_differs(const struct original *original, size_t block)
{
	const size_t k_bytes = 128 * KT_BLOCK_TOKENS, v_bytes = 64 * KT_BLOCK_TOKENS;

	for (uint32_t l = 0; l < 2; l++) {
		const struct kvc_run *run = &original->runs[l];

		if (memcmp((const char *)run->k + block * k_bytes, original->k[l] + block * k_bytes,
			   k_bytes) != 0 ||
		    memcmp((const char *)run->v + block * v_bytes, original->v[l] + block * v_bytes,
			   v_bytes) != 0)
			return true;
	}
	return false;
}

static struct damage damage_of(const struct original *original)
{
	struct damage damage = {0};

	for (size_t block = SCRIBBLE_BLOCKS; block-- > 0;) {
		if (!block_differs(original, block))
			continue;
		damage.n_bad++;
		damage.first_token = block * KT_BLOCK_TOKENS;
	}
	return damage;
}

/* A few bytes of its own tokens. */
static void scribble_tokens(const struct original *original)
{
	for (int i = 0; i < 4; i++) {
		const struct kvc_run *run = &original->runs[draw() % 2];

		scribble((char *)(uintptr_t)run->k + draw() % (SCRIBBLE_TOKENS * 128 - 64), 64,
			 true);
	}
}

/*
 * Makes a sequence with a name, a snapshot that another session holds, and writes over everything;
 * then asks the daemon for all kinds of things in that state, and says what it did to the snapshot.
 */
static int role_scribble(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client = kt_client_open(dir);
	kvc_seq *seq = kt_seq_new(&client, "scribble/seq");
	static const char *const source = "scribble/seq";
	static const uint64_t one = 1;
	struct original original;
	struct damage damage;
	struct kv_shm_head head;
	int kind = atoi(arg) % 3;
	char byte;

	random_state = (uint64_t)atoi(arg);
	memcpy(&head, client.session->segment, sizeof(head));
	kt_append_numbers(client.writer, seq, 1, SCRIBBLE_TOKENS, NULL, NULL);
	remember(seq, &original);
	kt_ok(take_snapshot(seq, "scribble/snap"));
	kt_ok(kvc_reserve_forks(seq, 2));
	kt_ok(kvc_reserve(seq, 64));
	kt_ok(kvc_fork_local(seq, 8) ? 0 : -1);
	if (write(out, "s", 1) != 1 || read(in, &byte, 1) != 1)
		return 1;
	for (int i = 0; i < 8; i++) {
		scribble_control((char *)client.session->segment, &head, kind);
		if (kind == 2)
			scribble_arenas(&client);
		mistreat_file("memfd:kvc-");
		mistreat_mappings("memfd:kvc-");
		/* whatever it answers, within its time */
		kt_show(client.session, source, NULL);
		kt_snapshot_by_name(client.session, &source, (const char *const[]){""}, 1, 50);
		kt_rollback_by_name(client.session, &source, &one, KT_REMOVE, 1, 50);
		kt_sessions(client.session, (uint64_t[64]){0}, 64);
	}
	scribble_tokens(&original);
	damage = damage_of(&original);
	if (write(out, &damage, sizeof(damage)) != sizeof(damage) || read(in, &byte, 1) != 1)
		return 1;
	raise(SIGKILL);
	return 1;
}

#define N_SCRIBBLERS 9

struct bystander {
	struct kt_client client;
	kvc_seq *seq;
	uint64_t shadow[1024], n;
};

static void check_bystander(struct bystander *b)
{
	kt_append_numbers(b->client.writer, b->seq, b->n * 7, 3, b->shadow, &b->n);
	kt_assert_tokens(b->seq, b->shadow, b->n);
}

/* Each block was known when it was written over. */
static void check_verify(kvc_session *session, const struct damage *damage)
{
	struct kvc_verify_result result;

	kt_fails(kvc_verify(session, "scribble/snap", NULL, NULL, &result), KVC_ECORRUPT);
	assert_int_equal(result.n_blocks, SCRIBBLE_BLOCKS);
	assert_int_equal(result.n_known, SCRIBBLE_BLOCKS);
	assert_int_equal(result.n_bad, damage->n_bad);
	assert_int_equal(result.first_bad_token, damage->first_token);
}

static struct bystander bystander_open(void)
{
	struct bystander b = {.client = open_client()};

	b.seq = kt_seq_new(&b.client, "bystander");
	kt_ok(kvc_reserve(b.seq, 512)); /* so that what it does changes no gauge */
	check_bystander(&b);
	return b;
}

static void bystander_close(struct bystander *b)
{
	check_bystander(b);
	kt_ok(kvc_seq_drop(b->seq));
	kvc_close(b->client.session);
}

static bool is_removed(void *arg)
{
	return kvc_remove(arg, "scribble/seq") == 0 || kvc_error() == KVC_ENOTFOUND;
}

static void scribbler_start(struct kt_kid *kid, kvc_session *session, int number)
{
	struct kvc_verify_result result;
	char arg[16], byte;

	snprintf(arg, sizeof(arg), "%d", number);
	kt_kid_start(kid, "scribble", kt_daemon_dir(daemon_), arg);
	kt_kid_read(kid, &byte, 1);
	kt_ok(kvc_verify(session, "scribble/snap", NULL, NULL, &result)); /* learns the digests */
	assert_int_equal(result.n_blocks, SCRIBBLE_BLOCKS);
	kt_kid_write(kid, "g", 1);
}

/* Its snapshot and what is left of its sequence are only wrong, and can go. */
static void scribbler_end(struct kt_kid *kid, kvc_session *session, const struct kt_gauges *before)
{
	assert_true(WIFSIGNALED(kt_kid_kill(kid)));
	kt_ok(kvc_remove(session, "scribble/snap"));
	assert_true(kt_wait_until(is_removed, session, 5000));
	kt_wait_gauges(session, before);
}

static void test_scribbler(void **state)
{
	struct bystander b = bystander_open();
	const struct kt_gauges before = kt_gauges(b.client.session);
	const pid_t core = kt_daemon_core(daemon_);

	(void)state;
	for (int i = 0; i < N_SCRIBBLERS; i++) {
		struct damage damage;
		struct kt_kid kid;

		scribbler_start(&kid, b.client.session, i);
		kt_kid_read(&kid, &damage, sizeof(damage));
		check_bystander(&b);
		kt_gauges(b.client.session);
		check_verify(b.client.session, &damage);
		scribbler_end(&kid, b.client.session, &before);
		assert_int_equal(kt_daemon_core(daemon_), core);
	}
	bystander_close(&b);
}

/* A core that starts over scribbled segments comes up, and others have what they had. */
static void test_scribbled_restart(void **state)
{
	struct bystander b = bystander_open();
	const struct kt_gauges before = kt_gauges(b.client.session);

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct damage damage;
		struct kt_kid kid;

		scribbler_start(&kid, b.client.session, 100 + i);
		kt_kid_read(&kid, &damage, sizeof(damage));
		assert_int_equal(kt_daemon_kill_core(daemon_), 0);
		check_bystander(&b);
		kt_gauges(b.client.session);
		check_verify(b.client.session, &damage);
		scribbler_end(&kid, b.client.session, &before);
	}
	bystander_close(&b);
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
	KT_TEST("KV-58 killed with everything in hand, 100 times: all comes back", test_killed),
	KT_TEST("KV-58 half an update of a killed client is nowhere", test_half_written),
	KT_TEST("a process may open and close sessions for ever", test_many_sessions),
	KT_TEST("KV-38 a stopped client makes a snapshot busy, and nobody else waits",
		test_stopped),
	KT_TEST("KV-52 a child is refused, and its end releases nothing", test_child),
	KT_TEST("KV-52 a parent's death ends the session that a child holds", test_parent_dies),
	KT_TEST("a client writes over all it can: only its own is wrong, and verify says so",
		test_scribbler),
	KT_TEST("a core starts over what a client has ruined", test_scribbled_restart),
};

static const struct kt_role roles[] = {{"hold", role_hold},
				       {"open", role_open},
				       {"half", role_half},
				       {"open-word", role_open_word},
				       {"parent", role_parent},
				       {"scribble", role_scribble},
				       {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), setup, teardown};

	kt_kid_main(argc, argv, roles);
	return kt_run(argc, argv, &group, 1);
}
