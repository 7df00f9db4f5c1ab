/*
 * The daemon is started again, as `systemctl restart` does and after its keeper was killed, with
 * the descriptors that a stand-in for the service manager has kept: nothing that was committed is
 * lost, and clients go on. Also: its core alone, while everything is in use.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/catalogue_format.h"
#include "tests/integration/lives.h"
#include "tests/support/manager.h"
#include "tests/support/raw_client.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

static const char *const arguments[] = {"--pool-bytes", "32M", "--bytes-per-user", "24M", NULL};

#ifdef HAVE_SYSTEMD
static void need_manager(void)
{
}
#else
static void need_manager(void)
{
	kt_skip("built without libsystemd");
}
#endif

struct world {
	struct kt_manager *manager;
	struct kt_daemon *daemon;
	struct lives lives;
	struct lives_look before;
};

static void world_new(struct world *w)
{
	need_manager();
	w->manager = kt_manager_new();
	w->daemon = kt_manager_start(w->manager, arguments);
	assert_non_null(w->daemon);
	lives_start(&w->lives, kt_manager_dir(w->manager));
	lives_look(&w->lives, &w->before);
}

static void world_end(struct world *w)
{
	free(w->before.objects);
	lives_end(&w->lives);
	assert_int_equal(kt_manager_stop(w->manager, w->daemon), 0);
	kt_manager_free(w->manager);
}

static void start_again(struct world *w)
{
	w->daemon = kt_manager_start(w->manager, arguments);
	assert_non_null(w->daemon);
}

/* All is as it was; then they go on, and that is what the next round finds. */
static void check(struct world *w)
{
	struct lives_look after;

	lives_look(&w->lives, &after);
	lives_assert_same(&w->before, &after);
	lives_go_on(&w->lives);
	lives_look(&w->lives, &w->before);
}

static void test_restart(void **state)
{
	struct world w;

	(void)state;
	world_new(&w);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(kt_manager_stop(w.manager, w.daemon), 0);
		start_again(&w);
		check(&w);
	}
	world_end(&w);
}

static void test_keeper_killed(void **state)
{
	struct world w;

	(void)state;
	world_new(&w);
	for (int i = 0; i < 3; i++) {
		kt_manager_kill(w.manager, w.daemon);
		start_again(&w);
		check(&w);
	}
	world_end(&w);
}

static void test_core_killed(void **state)
{
	struct world w;

	(void)state;
	world_new(&w);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(kt_daemon_kill_core(w.daemon), 0);
		check(&w);
	}
	world_end(&w);
}

/* ---- sessions that begin and end meanwhile ------------------------------------------------ */

/* The goodbye is said to the next core, and not lost with the old one. */
static void test_close(void **state)
{
	struct kt_daemon *daemon = kt_daemon_start(NULL);
	struct kt_client observer;
	struct kt_gauges before;

	(void)state;
	assert_non_null(daemon);
	observer = kt_client_open(kt_daemon_dir(daemon));
	before = kt_gauges(observer.session);
	for (int i = 0; i < 5; i++) {
		struct kt_client client = kt_client_open(kt_daemon_dir(daemon));

		kt_append_numbers(client.writer, kt_seq_new(&client, NULL), 1, 50, NULL, NULL);
		assert_int_equal(kt_daemon_kill_core(daemon), 0);
		kvc_close(client.session); /* its process lives on */
	}
	kt_wait_gauges(observer.session, &before);
	kvc_close(observer.session);
	assert_int_equal(kt_daemon_stop(daemon), 0);
}

/* Says Hello for a new session: its number. */
static uint64_t hello(const char *dir, const char *nonce, int *fd)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Hello words = KV__WIRE__HELLO__INIT;
	uint8_t bytes[KV_ATTACH_BYTES_MAX];
	Kv__Wire__AttachReply *reply;
	uint64_t session;

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_HELLO;
	request.hello = &words;
	words.nonce.data = (uint8_t *)(uintptr_t)nonce;
	words.nonce.len = 16;
	*fd = raw_connect(dir);
	assert_int_equal(raw_send(*fd, bytes, raw_pack_attach(&request, bytes), NULL, 0), 0);
	reply = raw_receive(*fd);
	assert_non_null(reply);
	assert_int_equal(reply->status, KV_OK);
	session = reply->welcome->session;
	kv__wire__attach_reply__free_unpacked(reply, NULL);
	return session;
}

/* A core dies before its Welcome has arrived: the session that it made is not left over. */
static void test_hello_again(void **state)
{
	struct kt_daemon *daemon = kt_daemon_start(NULL);
	const char *dir = kt_daemon_dir(daemon);
	struct kt_gauges before;
	kvc_session *observer;
	int fds[4];
	uint64_t first;

	(void)state;
	observer = kt_client_open(dir).session;
	before = kt_gauges(observer);
	first = hello(dir, "a wish as others", &fds[0]);
	assert_int_equal(kt_daemon_kill_core(daemon), 0);
	assert_int_equal(hello(dir, "a wish as others", &fds[1]), first);
	assert_int_equal(kt_gauges(observer).n_sessions, before.n_sessions + 1);
	/* another wish, and one of a session that is there */
	assert_int_not_equal(hello(dir, "another of those", &fds[2]), first);
	assert_int_not_equal(hello(dir, "a wish as others", &fds[3]), first);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	kt_wait_gauges(observer, &before);
	kvc_close(observer);
	assert_int_equal(kt_daemon_stop(daemon), 0);
}

/* ---- a job of the daemon ------------------------------------------------------------------ */

struct job_watch {
	struct kt_daemon *daemon;
	unsigned n_kills, most;
};

static int kill_core_meanwhile(void *arg, uint64_t n_done_bytes, uint64_t n_bytes)
{
	struct job_watch *watch = arg;

	(void)n_done_bytes;
	(void)n_bytes;
	if (watch->n_kills < watch->most) {
		assert_int_equal(kt_daemon_kill_core(watch->daemon), 0);
		watch->n_kills++;
	}
	return 0;
}

/* What a core is reading goes with it: the library has the next one read it from the beginning. */
static void test_job(void **state)
{
	struct job_watch watch = {.daemon = kt_daemon_start(NULL), .most = 3};
	const struct kvc_snapshot_options named = {.size = sizeof(named), .name = "job/snapshot"};
	struct kvc_verify_result before, after;
	struct kt_client client;
	kvc_seq *seq;

	(void)state;
	assert_non_null(watch.daemon);
	client = kt_client_open_ms(kt_daemon_dir(watch.daemon), 20000);
	seq = kt_seq_new(&client, "job/seq");
	kt_append_numbers(client.writer, seq, 1, 60000, NULL, NULL);
	kt_ok(kvc_snapshot(seq, &named, NULL));
	kt_ok(kvc_verify(client.session, "job/snapshot", NULL, NULL, &before));
	kt_ok(kvc_verify(client.session, "job/snapshot", kill_core_meanwhile, &watch, &after));
	assert_int_equal(watch.n_kills, watch.most);
	assert_memory_equal(after.digest, before.digest, 16);
	assert_int_equal(after.n_blocks, before.n_blocks);
	assert_int_equal(after.n_known, before.n_blocks);
	assert_int_equal(after.n_bad, 0);
	kvc_close(client.session);
	assert_int_equal(kt_daemon_stop(watch.daemon), 0);
}

/* ---- what a core does behind its first answers -------------------------------------------- */

static bool has_settled(void *arg)
{
	const struct kt_gauges now = kt_gauges(((struct kt_client *)arg)->session);

	return now.has_start && now.locked == now.to_lock && now.verified == now.to_verify &&
	       now.quarantined == 0;
}

/* Pages of arenas that a process has mapped. Counted one by one: other numbers are estimates. */
static uint64_t mapped_bytes(pid_t pid)
{
	unsigned long long kib, all_kib = 0;
	char path[64], line[512];
	bool is_arena = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (strchr(line, '-') && strchr(line, '/'))
			is_arena = strstr(line, "memfd:kvc-arena") != NULL;
		else if (is_arena && sscanf(line, "Rss: %llu kB", &kib) == 1)
			all_kib += kib;
	}
	if (file)
		fclose(file);
	return all_kib * 1024;
}

/* May a process of ours lock as much as a pool? Then the daemon must. */
static bool may_lock(void)
{
	const size_t n = 64u << 20;
	void *memory = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool may = memory != MAP_FAILED && mlock2(memory, n, MLOCK_ONFAULT) == 0;

	if (memory != MAP_FAILED)
		munmap(memory, n);
	return may;
}

#define SETTLE_TOKENS 20000u
#define SETTLE_BYTES (SETTLE_TOKENS * (uint64_t)KT_TOKEN_BYTES)

struct settling {
	struct kt_daemon *daemon;
	struct kt_client client;
	kvc_seq *seq;
};

/* 20,000 tokens, a snapshot of all of them whose digests are known. */
static void settle_new(struct settling *s)
{
	const struct kvc_snapshot_options named = {.size = sizeof(named), .name = "settle/snap"};

	s->daemon = kt_daemon_start(NULL);
	assert_non_null(s->daemon);
	s->client = kt_client_open_ms(kt_daemon_dir(s->daemon), 20000);
	s->seq = kt_seq_new(&s->client, "settle/seq");
	assert_false(kt_gauges(s->client.session).has_start);
	kt_append_numbers(s->client.writer, s->seq, 1, SETTLE_TOKENS, NULL, NULL);
	kt_ok(kvc_snapshot(s->seq, &named, NULL));
	kt_ok(kvc_verify(s->client.session, "settle/snap", NULL, NULL, NULL));
}

static void settle_end(struct settling *s)
{
	kvc_close(s->client.session);
	assert_int_equal(kt_daemon_stop(s->daemon), 0);
}

static void test_settled(void **state)
{
	struct kt_gauges now;
	struct settling s;

	(void)state;
	settle_new(&s);
	for (int i = 0; i < 3; i++) {
		/* i 1: the next core dies before it has done all of that */
		assert_int_equal(kt_daemon_kill_core(s.daemon), 0);
		if (i == 1)
			continue;
		assert_true(kt_wait_until(has_settled, &s.client, 20000));
		now = kt_gauges(s.client.session);
		assert_int_equal(now.verified, SETTLE_BYTES);
		assert_int_equal(now.n_bad, 0);
		/* where memory can be locked, all that is there is mapped again, and so locked */
		assert_true(now.locked >= (may_lock() ? SETTLE_BYTES : 0));
		if (may_lock())
			assert_true(mapped_bytes(kt_daemon_locker(s.daemon)) >= SETTLE_BYTES);
		/* and none of it by the core: its successor would wait until it is unmapped */
		assert_int_equal(mapped_bytes(now.core_pid), 0);
	}
	settle_end(&s);
}

struct locker_watch {
	struct settling *s;
	pid_t old;
	uint64_t n_bytes;
};

static bool has_locked(void *arg)
{
	const struct locker_watch *watch = arg;
	const pid_t pid = kt_daemon_locker(watch->s->daemon);

	return pid > 0 && pid != watch->old && mapped_bytes(pid) >= watch->n_bytes;
}

static bool is_gone(void *arg)
{
	return kill(*(pid_t *)arg, 0) < 0;
}

/* The process that locks dies: another one does it again. With its core it ends, and leaves no
 * zombie. */
static void test_locker(void **state)
{
	struct locker_watch watch;
	struct settling s;

	(void)state;
	settle_new(&s);
	watch = (struct locker_watch){&s, 0, SETTLE_BYTES};
	if (!may_lock()) {
		settle_end(&s);
		kt_skip("memory may not be locked here");
	}
	assert_true(kt_wait_until(has_locked, &watch, 10000));
	watch.old = kt_daemon_locker(s.daemon);
	assert_int_equal(kill(watch.old, SIGKILL), 0);
	assert_true(kt_wait_until(has_locked, &watch, 10000));
	watch.old = kt_daemon_locker(s.daemon);
	assert_int_equal(kt_daemon_kill_core(s.daemon), 0);
	assert_true(kt_wait_until(is_gone, &watch.old, 10000));
	assert_true(kt_wait_until(has_locked, &watch, 10000));
	/* what comes from now on is locked too */
	kt_append_numbers(s.client.writer, s.seq, 1, SETTLE_TOKENS, NULL, NULL);
	watch = (struct locker_watch){&s, 0, 2 * SETTLE_BYTES};
	assert_true(kt_wait_until(has_locked, &watch, 10000));
	settle_end(&s);
}

/* A client writes where it must not, while nobody looks. */
static void test_bad_block(void **state)
{
	struct kvc_verify_result result;
	struct kvc_run run;
	struct settling s;
	char *byte;

	(void)state;
	settle_new(&s);
	assert_true(kvc_view_runs(s.seq, 1, &run, 1) >= 1);
	byte = (char *)(uintptr_t)run.k + 10 * run.k_row_bytes;
	*byte ^= 1;
	assert_int_equal(kt_daemon_kill_core(s.daemon), 0);
	assert_true(kt_wait_until(has_settled, &s.client, 20000));
	assert_int_equal(kt_gauges(s.client.session).n_bad, 1);
	assert_int_equal(kt_gauges(s.client.session).verified, SETTLE_BYTES);
	kt_fails(kvc_verify(s.client.session, "settle/snap", NULL, NULL, &result), KVC_ECORRUPT);
	assert_int_equal(result.n_bad, 1);
	assert_int_equal(result.first_bad_token, 8);
	*byte ^= 1;
	assert_int_equal(kt_daemon_kill_core(s.daemon), 0);
	assert_true(kt_wait_until(has_settled, &s.client, 20000));
	assert_int_equal(kt_gauges(s.client.session).n_bad, 0);
	settle_end(&s);
}

/* What was given back just before is zeroed behind the start, and only then had by someone. */
static void test_given_back(void **state)
{
	struct settling s;
	char zeros[64] = {0};
	kvc_seq *other;
	void *k, *v;

	(void)state;
	settle_new(&s);
	for (int i = 0; i < 4; i++) {
		kt_ok(kvc_remove(s.client.session, "settle/snap"));
		kt_ok(kvc_seq_drop(s.seq));
		assert_int_equal(kt_daemon_kill_core(s.daemon), 0);
		other = kt_seq_new(&s.client, "settle/other");
		kt_ok(kvc_reserve(other, 4 * KT_BLOCK_TOKENS)); /* at once */
		kt_ok(kvc_append_begin(other, 4 * KT_BLOCK_TOKENS));
		for (uint64_t t = 0; t < 4 * KT_BLOCK_TOKENS; t++) {
			assert_true(kvc_write_span(other, 0, t, 1, &k, &v) == 1);
			assert_memory_equal(k, zeros, sizeof(zeros));
		}
		kt_ok(kvc_abort(other));
		kt_ok(kvc_seq_drop(other));
		assert_true(kt_wait_until(has_settled, &s.client, 20000));
		assert_int_equal(kt_gauges(s.client.session).free,
				 kt_gauges(s.client.session).total);
		s.seq = kt_seq_new(&s.client, "settle/seq");
		kt_append_numbers(s.client.writer, s.seq, 1, SETTLE_TOKENS, NULL, NULL);
		kt_ok(kvc_snapshot(
			s.seq,
			&(struct kvc_snapshot_options){.size = sizeof(struct kvc_snapshot_options),
						       .name = "settle/snap"},
			NULL));
	}
	settle_end(&s);
}

/* ---- clients that die meanwhile ----------------------------------------------------------- */

static void assert_parked(struct world *w, int kid, const char *name)
{
	struct kvc_verify_result verified;

	kt_ok(kvc_verify(w->lives.session, name, NULL, NULL, &verified));
	assert_memory_equal(verified.digest, w->before.kids[kid].digest, 16);
}

static bool is_parked(void *arg)
{
	struct world *w = ((void **)arg)[0];
	struct kt_client client;
	kvc_seq *seq;

	kt_ok(kt_client_try(&client, kt_manager_dir(w->manager), 20000));
	seq = kvc_takeover(client.writer, ((void **)arg)[1]);
	if (!seq && kvc_error() != KVC_EBUSY)
		kt_ok(-1);
	kvc_close(client.session);
	return seq != NULL;
}

/* Another process becomes its writer, and finds every byte. */
static void check_dead(struct world *w, int kid, const char *name)
{
	void *arg[2] = {w, (void *)(uintptr_t)name};

	assert_true(kt_wait_until(is_parked, arg, 10000));
	assert_parked(w, kid, name);
}

static void test_dead_clients(void **state)
{
	struct world w;

	(void)state;
	world_new(&w);
	lives_kill(&w.lives, 0); /* dead before the core is */
	assert_int_equal(kt_daemon_kill_core(w.daemon), 0);
	check_dead(&w, 0, "lives/undo");
	assert_int_equal(kt_manager_stop(w.manager, w.daemon), 0);
	lives_kill(&w.lives, 1); /* while nothing runs */
	start_again(&w);
	check_dead(&w, 1, "lives/replay");
	assert_int_equal(kt_daemon_kill_core(w.daemon), 0);
	assert_parked(&w, 0, "lives/undo"); /* and goes on being so */
	assert_parked(&w, 1, "lives/replay");
	world_end(&w);
}

/* ---- what the manager hands back is not what it got --------------------------------------- */

/* Kinds of the names in the store: kv-KIND-ID-NUMBER. */
#define CATALOGUE "kv-1-"
#define ARENA "kv-2-"
#define SEGMENT "kv-3-"
#define PIDFD "kv-4-"
#define WATCH "kv-5-"

/* Nothing of before is there, sessions of then have ended and say so, and all works. */
static void check_empty(struct world *w, const char *reason)
{
	struct kt_client client;
	uint64_t shadow[64], n = 0;
	pid_t core;

	start_again(w);
	assert_true(kt_manager_has_said(w->manager, reason));
	assert_true(kt_manager_has_said(w->manager, "starting empty"));
	core = kt_daemon_core(w->daemon);
	kt_fails(kvc_ping(w->lives.session), KVC_ESESSION);
	client = kt_client_open(kt_manager_dir(w->manager));
	assert_int_equal(kt_gauges(client.session).n_sequences, 0);
	assert_int_equal(kt_gauges(client.session).n_snapshots, 0);
	assert_int_equal(kt_gauges(client.session).n_sessions, 1);
	assert_int_equal(kt_gauges(client.session).free, kt_gauges(client.session).total);
	kt_append_numbers(client.writer, kt_seq_new(&client, "empty/new"), 1, 30, shadow, &n);
	kt_ok(kvc_verify(client.session, "empty/new", NULL, NULL, NULL));
	kvc_close(client.session);
	assert_int_equal(kt_daemon_core(w->daemon), core);
	/* what was stored before is not any more: catalogue, and the arena that is parked */
	assert_int_equal(kt_manager_count(w->manager, CATALOGUE), 1);
	assert_int_equal(kt_manager_count(w->manager, ARENA), 1);
}

static void drop_world(struct world *w)
{
	for (int i = 0; i < LIVES_KIDS; i++)
		lives_kill(&w->lives, i);
	kvc_close(w->lives.session);
	free(w->before.objects);
	assert_int_equal(kt_manager_stop(w->manager, w->daemon), 0);
	kt_manager_free(w->manager);
}

enum swap { LOST, NULL_DEVICE, PIPE, SMALL_MEMFD, LARGE_MEMFD };

static int other_fd(enum swap swap)
{
	int fds[2];

	switch (swap) {
	case NULL_DEVICE: return open("/dev/null", O_RDWR | O_CLOEXEC);
	case PIPE:
		assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
		close(fds[1]);
		return fds[0];
	case LARGE_MEMFD:
		fds[0] = memfd_create("other", MFD_CLOEXEC);
		assert_int_equal(ftruncate(fds[0], INT64_C(64) << 30), 0);
		return fds[0];
	default: return memfd_create("other", MFD_CLOEXEC);
	}
}

/* One descriptor of a kind is lost, or another one comes under its name. */
static void swap_one(const char *kind, enum swap swap, const char *reason)
{
	struct world w;
	char name[64];
	int fd;

	world_new(&w);
	assert_int_equal(kt_manager_stop(w.manager, w.daemon), 0);
	kt_manager_forget_said(w.manager);
	kt_manager_name(w.manager, kind, name);
	assert_int_equal(kt_manager_lose(w.manager, name, 1), 1);
	if (swap != LOST) {
		fd = other_fd(swap);
		kt_manager_plant(w.manager, name, fd);
		close(fd);
	}
	check_empty(&w, reason);
	drop_world(&w);
}

static void test_lost(void **state)
{
	(void)state;
	swap_one(CATALOGUE, LOST, "none of a catalogue");
	swap_one(ARENA, LOST, "an arena that the keeper does not have");
	swap_one(SEGMENT, LOST, "a session whose control segment the keeper does not have");
	swap_one(PIDFD, LOST, "a session whose process the keeper does not have");
}

static void test_other(void **state)
{
	(void)state;
	for (enum swap swap = NULL_DEVICE; swap <= LARGE_MEMFD; swap++) {
		swap_one(CATALOGUE, swap, "a catalogue that was kept is no sealed memory");
		swap_one(ARENA, swap, "is no sealed memory");
		swap_one(SEGMENT, swap, "is no sealed memory");
		swap_one(PIDFD, swap, "a session whose kept process is none");
	}
}

/* Those that nobody knows, by name or by number, and an older one of a name: all is as it was, and
 * the store does not hold them any longer. */
static void test_too_many(void **state)
{
	static const char *const names[] = {"kv-2-ffff-3", "kv-5-fffe-4", "kv-9-1-1",
					    "kv-2-x-1",    "web.socket",  "stored"};
	const size_t n_names = sizeof(names) / sizeof(names[0]);
	struct world w;
	char older[80];
	size_t n;
	int fd;

	(void)state;
	world_new(&w);
	assert_int_equal(kt_manager_stop(w.manager, w.daemon), 0);
	n = kt_manager_n_stored(w.manager);
	for (size_t i = 0; i < n_names; i++) {
		fd = other_fd((enum swap)(NULL_DEVICE + i % 4));
		kt_manager_plant(w.manager, names[i], fd);
		close(fd);
	}
	kt_manager_name(w.manager, CATALOGUE, older);
	strcpy(strrchr(older, '-'), "-0");
	fd = other_fd(SMALL_MEMFD);
	kt_manager_plant(w.manager, older, fd);
	close(fd);
	start_again(&w);
	check(&w);
	assert_int_equal(kt_manager_n_stored(w.manager), n);
	assert_true(kt_manager_has_said(w.manager, "descriptor web.socket, which is none of ours"));
	world_end(&w);
}

/* A store that is smaller than what is kept. */
static void test_store_full(void **state)
{
	struct world w;

	(void)state;
	need_manager();
	w.manager = kt_manager_new();
	kt_manager_set_max(w.manager, 9);
	w.daemon = kt_manager_start(w.manager, arguments);
	assert_non_null(w.daemon);
	lives_start(&w.lives, kt_manager_dir(w.manager));
	lives_look(&w.lives, &w.before);
	assert_int_equal(kt_daemon_kill_core(w.daemon), 0); /* the keeper has them all */
	check(&w);
	assert_int_equal(kt_manager_stop(w.manager, w.daemon), 0);
	assert_int_equal(kt_manager_n_stored(w.manager), 9);
	check_empty(&w, "keeper does not have");
	drop_world(&w);
}

/* ---- a catalogue of another version, or damaged ------------------------------------------- */

static void change_catalogue(struct world *w, uint64_t off, uint8_t with)
{
	const int fd = kt_manager_fd(w->manager, CATALOGUE);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, (off_t)off), 1);
	byte ^= with;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)off), 1);
	close(fd);
}

static void with_changed(uint64_t off, const char *reason)
{
	struct world w;

	world_new(&w);
	assert_int_equal(kt_manager_stop(w.manager, w.daemon), 0);
	change_catalogue(&w, off, 0x40);
	check_empty(&w, reason);
	drop_world(&w);
}

static void test_other_version(void **state)
{
	char text[96];

	(void)state;
	snprintf(text, sizeof(text), "catalogue has version %u, this is %u", CAT_VERSION ^ 0x40,
		 CAT_VERSION);
	with_changed(offsetof(struct cat_head, version), text);
	snprintf(text, sizeof(text), "catalogue is of control segments of version %u, this is %u",
		 KV_SHM_VERSION ^ 0x40, KV_SHM_VERSION);
	with_changed(offsetof(struct cat_head, shm_version), text);
	with_changed(CAT_HEAD_BYTES + offsetof(struct cat_record, version), "catalogue ");
}

static void test_damaged(void **state)
{
	(void)state;
	with_changed(0, "catalogue is damaged at offset 0: wrong magic");
	with_changed(offsetof(struct cat_head, end_off) + 6, "end offset makes no sense");
	with_changed(CAT_HEAD_BYTES + 100, "catalogue is damaged at offset 4");
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a restart by the service manager keeps all caches, and clients go on",
		test_restart),
	KT_TEST("so does a start after the keeper was killed", test_keeper_killed),
	KT_TEST("so does a start of the core alone", test_core_killed),
	KT_TEST("a session that is closed while the core is down has ended", test_close),
	KT_TEST("a Hello that is said again to the next core gets the session of the first",
		test_hello_again),
	KT_TEST("verification goes on with the next core, and the one after it", test_job),
	KT_TEST("behind its first answers a core locks and verifies what it found", test_settled),
	KT_TEST("the process that locks is started again, and ends with its core", test_locker),
	KT_TEST("and counts the blocks that are not what they were", test_bad_block),
	KT_TEST("what was given back before a start is zero before someone else has it",
		test_given_back),
	KT_TEST("blocks of clients that died meanwhile remain readable", test_dead_clients),
	KT_TEST("a descriptor that is lost: it starts empty and says why", test_lost),
	KT_TEST("another descriptor under the name of one: it starts empty and says why",
		test_other),
	KT_TEST("descriptors that are not ours are given back, and nothing is lost", test_too_many),
	KT_TEST("a store that is too small: the core's restart keeps all, the service's nothing",
		test_store_full),
	KT_TEST("a catalogue of another version: it starts empty and says which",
		test_other_version),
	KT_TEST("a damaged catalogue: it starts empty and says where", test_damaged),
};

int main(int argc, char **argv)
{
	const struct kt_group group = KT_GROUP(tests);

	kt_kid_main(argc, argv, lives_roles);
	return kt_run(argc, argv, &group, 1);
}
