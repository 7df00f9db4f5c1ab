/*
 * Saves and loads that cannot be: no disk pool, one that is full, damaged or not to be had, names
 * that are taken, other users, quotas, a caller that changes its mind, a core that goes. Each is
 * refused with the reason, changes nothing, and the service goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/jobs.h"
#include "tests/integration/machine.h"
#include "tests/integration/shadow.h"
#include "tests/support/client.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

#define SLOT_BYTES 4096u /* of a block of kt_layout, which has 1,536 bytes */
#define BOB 20002

/* ---- objects ------------------------------------------------------------------------------ */

static struct kt_client client_of(const struct machine *m)
{
	struct kt_client client = {.session = m->session, .writer = m->writer};

	there(client.layout = kt_layout(m->session, 1));
	return client;
}

/* A snapshot of n tokens first, first + 1, ... */
static void make(const struct machine *m, const char *name, uint64_t first, uint64_t n)
{
	const struct kvc_snapshot_options options = {
		.size = sizeof(options), .name = name, .replace = 1};
	struct kt_client client = client_of(m);
	kvc_seq *seq = kt_seq_new(&client, NULL);

	kt_append_numbers(m->writer, seq, first, n, NULL, NULL);
	ok(kvc_snapshot(seq, &options, NULL));
	ok(kvc_seq_drop(seq));
}

static void assert_holds(const struct machine *m, const char *name, uint64_t first, uint64_t n)
{
	uint64_t *tokens = calloc(n, sizeof(*tokens));
	kvc_seq *seq;

	assert_non_null(tokens);
	for (uint64_t i = 0; i < n; i++)
		tokens[i] = first + i;
	there(seq = kvc_open_snapshot(m->writer, name));
	assert_int_equal(kvc_length(seq), n);
	kt_assert_tokens(seq, tokens, n);
	kvc_seq_free(seq);
	free(tokens);
}

/* Loads it, in place of what has the name, and reads it. */
static void assert_saved(const struct machine *m, const char *name, uint64_t first, uint64_t n)
{
	const struct kvc_load_options options = {
		.size = sizeof(options), .name = "look", .replace = 1};

	ok(kvc_load(m->session, name, &options, NULL, NULL, NULL));
	assert_holds(m, "look", first, n);
	ok(kvc_remove(m->session, "look"));
}

static void assert_text(const char *part)
{
	if (!strstr(kvc_error_text(), part))
		fail_msg("\"%s\" does not say: %s", kvc_error_text(), part);
}

/* ---- names -------------------------------------------------------------------------------- */

static void test_names(void **state)
{
	struct kvc_save_options save = {.size = sizeof(save), .name = "name/1"};
	struct kvc_load_options load = {.size = sizeof(load), .name = "a"};
	struct machine m;

	(void)state;
	machine_begin(&m, NULL);
	make(&m, "a", 1, 10);
	make(&m, "b", 100, 11);
	refused(kvc_save(m.session, "nobody", NULL, NULL, NULL, NULL), KVC_ENOTFOUND);
	refused(kvc_load(m.session, "name/1", NULL, NULL, NULL, NULL), KVC_ENOTFOUND);
	refused(kvc_saved_remove(m.session, "name/1"), KVC_ENOTFOUND);
	ok(kvc_save(m.session, "a", &save, NULL, NULL, NULL));
	refused(kvc_save(m.session, "b", &save, NULL, NULL, NULL), KVC_EEXIST);
	assert_saved(&m, "name/1", 1, 10);
	save.replace = 1;
	ok(kvc_save(m.session, "b", &save, NULL, NULL, NULL));
	assert_saved(&m, "name/1", 100, 11);
	/* in memory too, names are replaced only when asked */
	refused(kvc_load(m.session, "name/1", &load, NULL, NULL, NULL), KVC_EEXIST);
	assert_holds(&m, "a", 1, 10);
	load.replace = 1;
	ok(kvc_load(m.session, "name/1", &load, NULL, NULL, NULL));
	assert_holds(&m, "a", 100, 11);
	ok(kvc_saved_remove(m.session, "name/1"));
	refused(kvc_load(m.session, "name/1", &load, NULL, NULL, NULL), KVC_ENOTFOUND);
	assert_holds(&m, "a", 100, 11);
	assert_int_equal(machine_disk_used(&m), 0);
	machine_end(&m);
}

/* ---- no disk pool ------------------------------------------------------------------------- */

static void test_no_pool(void **state)
{
	struct kt_daemon *daemon = kt_daemon_start(NULL);
	struct machine m = {.daemon = daemon};
	struct kt_client client;

	(void)state;
	assert_non_null(daemon);
	client = kt_client_open(kt_daemon_dir(daemon));
	m.session = client.session;
	m.writer = client.writer;
	make(&m, "a", 1, 10);
	refused(kvc_save(m.session, "a", NULL, NULL, NULL, NULL), KVC_EUNSUPPORTED);
	assert_text("no disk pool");
	assert_text("--disk-dir");
	refused(kvc_load(m.session, "a", NULL, NULL, NULL, NULL), KVC_EUNSUPPORTED);
	refused(kvc_saved_remove(m.session, "a"), KVC_EUNSUPPORTED);
	assert_holds(&m, "a", 1, 10);
	kvc_close(m.session);
	assert_int_equal(kt_daemon_stop(daemon), 0);
}

/* The daemon serves, says why there is none, and has it as soon as it can be had. */
static void test_open_to_others(void **state)
{
	char store[300];
	struct machine m;

	(void)state;
	machine_begin(&m, NULL);
	make(&m, "a", 1, 10);
	machine_save(&m, "a");
	snprintf(store, sizeof(store), "%s/store", m.disk_dir);
	kvc_close(m.session);
	assert_int_equal(kt_daemon_stop(m.daemon), 0);
	assert_int_equal(chmod(store, 0755), 0);
	machine_start(&m);
	make(&m, "b", 1, 10);
	refused(kvc_save(m.session, "b", NULL, NULL, NULL, NULL), KVC_EPERM);
	assert_text("no disk pool");
	assert_text("chmod 700");
	assert_holds(&m, "b", 1, 10);
	assert_int_equal(chmod(store, 0700), 0);
	machine_wait_disk(&m);
	assert_saved(&m, "a", 1, 10);
	machine_save(&m, "b");
	machine_end(&m);
}

static void test_two_daemons(void **state)
{
	struct machine first, second;
	char dir[300];
	const char *const arguments[] = {dir, NULL};

	(void)state;
	machine_begin(&first, NULL);
	make(&first, "a", 1, 10);
	machine_save(&first, "a");
	snprintf(dir, sizeof(dir), "--disk-dir=%s/store", first.disk_dir);
	machine_begin(&second, arguments);
	refused(kvc_load(second.session, "a", NULL, NULL, NULL, NULL), KVC_EBUSY);
	assert_saved(&first, "a", 1, 10);
	kvc_close(first.session);
	assert_int_equal(kt_daemon_stop(first.daemon), 0);
	machine_wait_disk(&second);
	assert_saved(&second, "a", 1, 10);
	machine_end(&second);
	kt_tmpdir_free(first.runtime_dir);
	kt_tmpdir_free(first.disk_dir);
}

/* ---- full --------------------------------------------------------------------------------- */

/* 1 MiB has 256 slots; 600 tokens take 150. */
static void test_full(void **state)
{
	static const char *const small[] = {"--disk-bytes", "1M", NULL};
	struct machine m;

	(void)state;
	machine_begin(&m, small);
	make(&m, "a", 1, 600);
	make(&m, "b", 5000, 600);
	machine_save(&m, "a");
	assert_int_equal(machine_disk_used(&m), 150 * SLOT_BYTES);
	refused(kvc_save(m.session, "b", NULL, NULL, NULL, NULL), KVC_EPOOL);
	assert_text("is full");
	assert_text("1 MiB");
	assert_text("remove saved snapshots or raise the limit");
	/* nothing of it is left, and what was there is */
	assert_true(kt_wait_until(machine_is_quiet, &m, 10000));
	assert_int_equal(machine_disk_used(&m), 150 * SLOT_BYTES);
	refused(kvc_load(m.session, "b", NULL, NULL, NULL, NULL), KVC_EEXIST);
	assert_saved(&m, "a", 1, 600);
	assert_holds(&m, "b", 5000, 600);
	ok(kvc_saved_remove(m.session, "a"));
	machine_save(&m, "b");
	machine_power_cut(&m);
	assert_saved(&m, "b", 5000, 600);
	refused(kvc_load(m.session, "a", NULL, NULL, NULL, NULL), KVC_ENOTFOUND);
	machine_end(&m);
}

/* ---- quotas ------------------------------------------------------------------------------- */

/* 600 tokens take 230,400 bytes, once in memory; a load needs as much again. */
static void test_bytes_quota(void **state)
{
	static const char *const quota[] = {"--bytes-per-user", "400K", NULL};
	struct kvc_load_options again = {.size = sizeof(again), .name = "again"};
	struct kt_gauges before;
	struct machine m;

	(void)state;
	machine_begin(&m, quota);
	make(&m, "a", 1, 600);
	machine_save(&m, "a");
	before = kt_gauges(m.session);
	refused(kvc_load(m.session, "a", &again, NULL, NULL, NULL), KVC_EQUOTA);
	kt_wait_gauges(m.session, &before);
	refused_null(kvc_open_snapshot(m.writer, "again"), KVC_ENOTFOUND);
	again.n_tokens = 100;
	ok(kvc_load(m.session, "a", &again, NULL, NULL, NULL));
	assert_holds(&m, "again", 1, 100);
	ok(kvc_remove(m.session, "again"));
	ok(kvc_remove(m.session, "a"));
	machine_load(&m, "a");
	assert_holds(&m, "a", 1, 600);
	machine_end(&m);
}

static void test_objects_quota(void **state)
{
	static const char *const quota[] = {"--sequences", "4", NULL};
	struct kvc_load_options again = {.size = sizeof(again), .name = "again"};
	struct kt_client client;
	struct machine m;
	kvc_seq *seq;

	(void)state;
	machine_begin(&m, quota);
	make(&m, "a", 1, 10);
	make(&m, "b", 1, 10);
	machine_save(&m, "a");
	make(&m, "c", 1, 10);
	client = client_of(&m);
	seq = kt_seq_new(&client, "d");
	refused(kvc_load(m.session, "a", &again, NULL, NULL, NULL), KVC_EQUOTA);
	ok(kvc_seq_drop(seq));
	ok(kvc_load(m.session, "a", &again, NULL, NULL, NULL));
	assert_holds(&m, "again", 1, 10);
	machine_end(&m);
}

/* ---- damage ------------------------------------------------------------------------------- */

static void flip(const struct machine *m, off_t at)
{
	char path[300];
	uint8_t byte;
	int fd;

	snprintf(path, sizeof(path), "%s/store/blocks-%u.data", m->disk_dir, SLOT_BYTES);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x04;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	assert_int_equal(fdatasync(fd), 0);
	close(fd);
}

/* "block N of group 0": N. */
static unsigned named_block(void)
{
	const char *at = strstr(kvc_error_text(), "block ");
	unsigned block = 0, group = 1;

	assert_non_null(at);
	assert_int_equal(sscanf(at, "block %u of group %u", &block, &group), 2);
	assert_int_equal(group, 0);
	return block;
}

#define N_BLOCKS 6u

/* Each in turn is damaged, named, and saved anew from memory. */
static void test_flipped(void **state)
{
	const uint64_t n_tokens = N_BLOCKS * KT_BLOCK_TOKENS;
	const struct kvc_load_options as = {.size = sizeof(as), .name = "loaded"};
	bool is_named[N_BLOCKS] = {false};
	struct kt_gauges before;
	struct machine m;

	(void)state;
	machine_begin(&m, NULL);
	make(&m, "a", 1, n_tokens);
	before = kt_gauges(m.session);
	for (unsigned slot = 0; slot < N_BLOCKS; slot++) {
		struct kvc_saved_result result = machine_save(&m, "a");
		unsigned block;

		assert_int_equal(result.n_known, slot ? N_BLOCKS - 1 : 0);
		flip(&m, (off_t)slot * SLOT_BYTES + 1000 + slot);
		refused(kvc_load(m.session, "a", &as, NULL, NULL, NULL), KVC_ECORRUPT);
		block = named_block();
		assert_in_range(block, 0, N_BLOCKS - 1);
		assert_false(is_named[block]);
		is_named[block] = true;
		refused_null(kvc_open_snapshot(m.writer, "loaded"), KVC_ENOTFOUND);
		kt_wait_gauges(m.session, &before);
		/* it is set aside, and not loaded a second time */
		refused(kvc_load(m.session, "a", &as, NULL, NULL, NULL), KVC_ENOTFOUND);
	}
	machine_save(&m, "a");
	machine_power_cut(&m);
	assert_saved(&m, "a", 1, n_tokens);
	machine_end(&m);
}

static int check_store(const struct machine *m, bool repair)
{
	const struct jobs_watch watch = {.what = "check"};
	Kv__Wire__StoreCheck command = KV__WIRE__STORE_CHECK__INIT;
	Kv__Wire__Request request;
	Kv__Wire__Reply *reply;
	int status;

	command.repair = repair;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_STORE_CHECK;
	request.store_check = &command;
	reply = jobs_run(m->session, &request, &watch);
	if (!reply)
		return kvc_error();
	status = (int)reply->job->status;
	rpc_reply_free(reply);
	return status;
}

/* Two that have blocks in common, and one that has none of those. */
static void test_repair(void **state)
{
	struct kvc_load_options as = {.size = sizeof(as), .name = "x"};
	struct machine m;

	(void)state;
	machine_begin(&m, NULL);
	make(&m, "a", 1, 20);
	make(&m, "longer", 1, 24);
	make(&m, "other", 500, 20);
	machine_save(&m, "a");
	machine_save(&m, "longer");
	machine_save(&m, "other");
	assert_int_equal(check_store(&m, false), KVC_OK);
	flip(&m, 5); /* the first block of the first that was saved */
	assert_int_equal(check_store(&m, false), KVC_ECORRUPT);
	assert_int_equal(check_store(&m, true), KVC_ECORRUPT);
	assert_int_equal(check_store(&m, false), KVC_OK);
	refused(kvc_load(m.session, "a", &as, NULL, NULL, NULL), KVC_ENOTFOUND);
	refused(kvc_load(m.session, "longer", &as, NULL, NULL, NULL), KVC_ENOTFOUND);
	assert_saved(&m, "other", 500, 20);
	/* what is in memory is saved again, whole */
	machine_save(&m, "a");
	machine_save(&m, "longer");
	machine_power_cut(&m);
	assert_saved(&m, "a", 1, 20);
	assert_saved(&m, "longer", 1, 24);
	assert_saved(&m, "other", 500, 20);
	machine_end(&m);
}

/* ---- another mind ------------------------------------------------------------------------- */

static int cancel(void *arg, uint64_t n_done_bytes, uint64_t n_bytes)
{
	unsigned *n_calls = arg;

	assert_true(n_done_bytes <= n_bytes);
	++*n_calls;
	return 1;
}

/* A cancel may come too late: then it is saved, else nothing is. */
static void test_cancelled(void **state)
{
	struct kvc_load_options load = {.size = sizeof(load), .name = "x"};
	unsigned n_calls = 0;
	struct machine m;

	(void)state;
	machine_begin(&m, NULL);
	make(&m, "a", 1, 20000);
	if (kvc_save(m.session, "a", NULL, cancel, &n_calls, NULL)) {
		assert_int_equal(kvc_error(), KVC_ECANCELLED);
		refused(kvc_load(m.session, "a", &load, NULL, NULL, NULL), KVC_ENOTFOUND);
		machine_save(&m, "a");
	}
	assert_int_equal(n_calls, 1);
	if (kvc_load(m.session, "a", &load, cancel, &n_calls, NULL)) {
		assert_int_equal(kvc_error(), KVC_ECANCELLED);
		refused_null(kvc_open_snapshot(m.writer, "x"), KVC_ENOTFOUND);
		ok(kvc_load(m.session, "a", &load, NULL, NULL, NULL));
	}
	assert_int_equal(n_calls, 2);
	assert_holds(&m, "x", 1, 20000);
	machine_end(&m);
}

/* ---- a core that goes --------------------------------------------------------------------- */

struct killer {
	struct kt_daemon *daemon;
	unsigned n_kills;
};

static int kill_core(void *arg, uint64_t n_done_bytes, uint64_t n_bytes)
{
	struct killer *killer = arg;

	(void)n_done_bytes;
	(void)n_bytes;
	if (killer->n_kills++ == 0)
		assert_int_equal(kt_daemon_kill_core(killer->daemon), 0);
	return 0;
}

static void test_core_killed(void **state)
{
	struct kvc_save_options save = {.size = sizeof(save), .replace = 1};
	struct kvc_load_options load = {.size = sizeof(load), .name = "x", .replace = 1};
	struct killer killer = {0};
	struct machine m;

	(void)state;
	machine_begin(&m, NULL);
	killer.daemon = m.daemon;
	make(&m, "a", 1, 20000);
	refused(kvc_save(m.session, "a", &save, kill_core, &killer, NULL), KVC_ERESTARTED);
	assert_text("repeat the call");
	machine_wait_disk(&m);
	ok(kvc_save(m.session, "a", &save, NULL, NULL, NULL));
	killer.n_kills = 0;
	refused(kvc_load(m.session, "a", &load, kill_core, &killer, NULL), KVC_ERESTARTED);
	machine_wait_disk(&m);
	ok(kvc_load(m.session, "a", &load, NULL, NULL, NULL));
	assert_holds(&m, "x", 1, 20000);
	machine_end(&m);
}

/* ---- other users -------------------------------------------------------------------------- */

static size_t count_saved(kvc_session *session)
{
	Kv__Wire__SavedList command = KV__WIRE__SAVED_LIST__INIT;
	Kv__Wire__Request request;
	Kv__Wire__Reply *reply;
	size_t n;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SAVED_LIST;
	request.saved_list = &command;
	there(reply = rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_SAVED));
	n = reply->saved->n_saved;
	rpc_reply_free(reply);
	return n;
}

/* Tries what is the other's, then saves the same bytes under the same name. */
static int role_bob(const char *dir, const char *arg, int in, int out)
{
	struct kvc_saved_result result;
	struct kt_client client;
	struct machine m;

	(void)arg;
	(void)in;
	(void)out;
	assert_int_equal(setgroups(0, NULL), 0);
	assert_int_equal(setgid(BOB), 0);
	assert_int_equal(setuid(BOB), 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* went with the uid */
	client = kt_client_open(dir);
	m = (struct machine){.session = client.session, .writer = client.writer};
	assert_int_equal(count_saved(m.session), 0);
	refused(kvc_load(m.session, "a", NULL, NULL, NULL, NULL), KVC_ENOTFOUND);
	refused(kvc_saved_remove(m.session, "a"), KVC_ENOTFOUND);
	assert_int_equal(check_store(&m, false), KVC_EPERM);
	make(&m, "a", 1, 20);
	result = machine_save(&m, "a");
	assert_int_equal(result.n_known, 0); /* not even that the bytes are there is told */
	assert_int_equal(count_saved(m.session), 1);
	assert_saved(&m, "a", 1, 20);
	ok(kvc_saved_remove(m.session, "a"));
	kvc_close(m.session);
	return 0;
}

static void test_users(void **state)
{
	static const char *const open_to_all[] = {"--socket-mode", "0666", NULL};
	struct machine m;
	struct kt_kid kid;
	char parent[300];

	(void)state;
	if (geteuid() != 0)
		kt_skip("needs root, to be another user");
	machine_begin(&m, open_to_all);
	snprintf(parent, sizeof(parent), "%s", m.runtime_dir);
	assert_int_equal(chmod(dirname(parent), 0711), 0);
	assert_int_equal(chmod(m.runtime_dir, 0711), 0);
	make(&m, "a", 1, 20);
	machine_save(&m, "a");
	kt_kid_start(&kid, "bob", m.runtime_dir, NULL);
	assert_int_equal(kt_kid_wait(&kid), 0);
	assert_int_equal(count_saved(m.session), 1);
	assert_saved(&m, "a", 1, 20);
	machine_end(&m);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("names are replaced only when asked, on the disk and in memory", test_names),
	KT_TEST("without a disk pool the error says how to have one", test_no_pool),
	KT_TEST("a store that others may enter is refused until they may not", test_open_to_others),
	KT_TEST("of two daemons one has the store, then the other", test_two_daemons),
	KT_TEST("a full pool is told with its limit, and what is there stays", test_full),
	KT_TEST("a load above the user's bytes changes nothing", test_bytes_quota),
	KT_TEST("a load above the user's objects changes nothing", test_objects_quota),
	KT_TEST("each flipped block is named and nothing is loaded", test_flipped),
	KT_TEST("a repair sets aside what is damaged and keeps the rest", test_repair),
	KT_TEST("a save or load that is cancelled leaves nothing", test_cancelled),
	KT_TEST("a core that goes during a save or load is told, and it may be repeated",
		test_core_killed),
	KT_TEST("another user sees nothing of what is saved", test_users),
};

static const struct kt_role roles[] = {{"bob", role_bob}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = KT_GROUP(tests);

	kt_kid_main(argc, argv, roles);
	return kt_run(argc, argv, &group, 1);
}
