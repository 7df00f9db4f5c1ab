/*
 * Saved snapshots in the core: what is saved in one life of the machine has the same digest, head
 * and bytes when it is loaded in another; what is damaged, full, late or cancelled leaves nothing
 * behind, and the gauges add up.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/arena_store.h"
#include "daemon/disk.h"
#include "daemon/image.h"
#include "daemon/names.h"
#include "daemon/objects.h"
#include "tests/support/craft.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

#define UID 1000u
#define BLOCK_TOKENS 4u
#define BOUND 8u
#define LENGTH 18u
#define PLANE_BYTES 100u

struct world {
	char *dir;
	struct settings settings;
	struct fake_core *f;
	struct craft a;
	struct kv_layout *layout;
};

static struct kv_layer layers[2] = {{2, 4, 4, 0}, {1, 8, 4, BOUND}};
static struct kv_plane planes[2] = {{"position", KV_PLANE_SLOT, 4},
				    {"counters", KV_PLANE_SEQUENCE, PLANE_BYTES}};
static const struct kv_layout fields = {.fingerprint = {1},
					.n_layers = 2,
					.layers = layers,
					.dtype = KV_DTYPE_F32,
					.k_format = KV_FORMAT_INT8,
					.v_format = KV_FORMAT_RAW,
					.block_tokens = BLOCK_TOKENS,
					.n_planes = 2,
					.planes = planes};

/* ---- lives -------------------------------------------------------------------------------- */

static void live(struct world *w, const struct kv_layout *layout)
{
	w->f = fake_core_new(&w->settings);
	assert_non_null(w->f->core->disk);
	craft_begin(&w->a, w->f, UID, layout);
	w->layout = w->a.layout;
}

static void die(struct world *w)
{
	craft_end(&w->a);
	fake_core_free(w->f);
}

static void begin(struct world *w, const struct kv_layout *layout)
{
	log_init(LOG_LEVEL_ERROR);
	*w = (struct world){0};
	w->dir = kt_tmpdir_new();
	settings_default(&w->settings);
	w->settings.pool_bytes = 64u << 20;
	w->settings.arena_bytes = 16u << 20;
	w->settings.huge = w->settings.mlock = SETTINGS_NO;
	snprintf(w->settings.disk_dir, sizeof(w->settings.disk_dir), "%s/store", w->dir);
	w->settings.disk_bytes = 32u << 20;
	w->settings.preallocate = SETTINGS_OFF;
	live(w, layout);
}

static void end(struct world *w)
{
	die(w);
	kt_tmpdir_free(w->dir);
}

/* Another life of the machine: no memory is left. */
static void reboot(struct world *w, const struct kv_layout *layout)
{
	die(w);
	live(w, layout);
}

/* ---- what is saved ------------------------------------------------------------------------ */

static void write_random(struct world *w, uint32_t group, uint64_t ref)
{
	const struct kv_group *g = &w->layout->groups[group];

	for (uint32_t r = 0; r < g->n_regions; r++) {
		uint64_t n = image_piece_bytes(w->layout, group, r);
		unsigned char *bytes = malloc(n);

		assert_non_null(bytes);
		for (uint64_t i = 0; i < n; i++)
			bytes[i] = (unsigned char)rand();
		craft_write(&w->a, ref, r, 0, bytes, n);
		free(bytes);
	}
}

static void make(struct world *w, const char *name, const struct kv_head *head)
{
	uint32_t place = craft_seq(&w->a, 0, name, 1u << 16);
	uint64_t refs[64];

	craft_open(&w->a, 0);
	for (uint32_t g = 0; g < w->layout->n_groups; g++) {
		struct kv_window window = kv_head_window(w->layout, head, g);

		if (window.n == 0)
			continue;
		assert_true(window.n <= 64);
		craft_reserve(&w->a, g, (uint32_t)window.n, refs);
		for (uint64_t i = 0; i < window.n; i++) {
			write_random(w, g, refs[i]);
			craft_entry(&w->a, place, g, window.first + i, refs[i]);
		}
	}
	for (uint32_t i = 0; i < head->n_marks; i++) {
		struct kv_shm_mark *mark = &craft_place(&w->a, place)->marks[i];

		atomic_store(&mark->id, i + 1);
		atomic_store(&mark->length_tokens, head->length_tokens);
		atomic_store(&mark->journal_end, head->journal_end);
	}
	craft_head_put(&w->a, place, head);
	craft_close(&w->a, 0);
}

static struct kv_head head_of(const struct world *w, enum kv_journal_mode mode, uint32_t n_marks)
{
	uint64_t rows = UINT64_C(1) << w->layout->journal[mode].rows_log2;
	struct kv_head head = {.length_tokens = LENGTH,
			       .base_tokens = mode == KV_JOURNAL_REPLAY ? 13 : LENGTH,
			       .position = 90,
			       .state = kv_head_word(KV_HEAD_LIVE, mode),
			       .planes = kv_planes(3, 5),
			       .n_marks = n_marks};

	if (mode == KV_JOURNAL_NONE) {
		head.planes = 0;
		return head;
	}
	head.journal_first = rows + 3;
	head.journal_end = 3 * rows + 2;
	head.state |= KV_HEAD_SCATTERED;
	return head;
}

static struct object *find(const struct world *w, const char *name)
{
	return names_find(w->f->core, UID, name);
}

/* ---- commands ----------------------------------------------------------------------------- */

#define COMMAND(which, field, type) \
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT; \
	Kv__Wire__##type command; \
	request.command_case = KV__WIRE__REQUEST__COMMAND_##which; \
	request.field = &command

struct result {
	uint32_t status;
	uint64_t n_blocks, n_known;
	uint8_t digest[KV_DIGEST_BYTES];
	char detail[512];
};

static Kv__Wire__Reply *job_get(struct world *w, uint64_t id)
{
	COMMAND(JOB_GET, job_get, JobGet);

	kv__wire__job_get__init(&command);
	command.job_id = id;
	return craft_call(&w->a, &request, 0);
}

static bool runs(struct world *w, uint64_t id)
{
	Kv__Wire__Reply *reply = job_get(w, id);
	bool running = reply->job->state == 1;

	kv__wire__reply__free_unpacked(reply, NULL);
	return running;
}

static void wait_job(struct world *w, uint64_t id)
{
	while (runs(w, id))
		loop_once(w->f->env.loop, 10);
}

static void take(struct result *result, uint32_t status, const char *detail)
{
	result->status = status;
	snprintf(result->detail, sizeof(result->detail), "%s", detail);
}

/* The reply to a command that may begin a job, to the end of that. */
static struct result follow(struct world *w, Kv__Wire__Request *request)
{
	Kv__Wire__Reply *reply = fake_call(w->a.c, request);
	struct result result = {0};
	uint64_t id;

	assert_non_null(reply);
	if (reply->status) {
		take(&result, reply->status, reply->detail);
		kv__wire__reply__free_unpacked(reply, NULL);
		return result;
	}
	id = reply->job->job_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	wait_job(w, id);
	reply = job_get(w, id);
	take(&result, reply->job->status, reply->job->detail);
	result.n_blocks = reply->job->n_blocks;
	result.n_known = reply->job->n_known;
	if (reply->job->digest.len)
		memcpy(result.digest, reply->job->digest.data, sizeof(result.digest));
	kv__wire__reply__free_unpacked(reply, NULL);
	return result;
}

static struct result save(struct world *w, const char *source, const char *name, bool replace)
{
	Kv__Wire__Target target = craft_named(source);
	COMMAND(SAVE, save, Save);

	kv__wire__save__init(&command);
	command.source = &target;
	command.name = (char *)name;
	command.replace = replace;
	return follow(w, &request);
}

static struct result load(struct world *w, const char *name, const char *as, uint64_t n_tokens)
{
	COMMAND(LOAD, load, Load);

	kv__wire__load__init(&command);
	command.name = (char *)name;
	command.as_name = (char *)as;
	command.n_tokens = n_tokens;
	return follow(w, &request);
}

static struct result verify(struct world *w, const char *name)
{
	Kv__Wire__Target target = craft_named(name);
	COMMAND(VERIFY, verify, Verify);

	kv__wire__verify__init(&command);
	command.source = &target;
	return follow(w, &request);
}

static struct result check(struct world *w, bool repair)
{
	COMMAND(STORE_CHECK, store_check, StoreCheck);

	kv__wire__store_check__init(&command);
	command.repair = repair;
	return follow(w, &request);
}

static void assert_ok(const struct result *result)
{
	if (result->status)
		print_message("%s\n", result->detail);
	assert_int_equal(result->status, KV_OK);
}

/* Everything in the pool is accounted for, and so many bytes are in use. */
static uint64_t used_bytes(const struct world *w)
{
	const struct pool *pool = &w->f->core->pool;
	uint64_t sum = 0;

	fake_settle(w->f);
	for (int i = 0; i < BLOCK_CLASSES; i++)
		sum += pool->class_bytes[i];
	assert_int_equal(sum, pool->total_bytes);
	return pool->total_bytes - pool->class_bytes[BLOCK_FREE];
}

static struct store_stats stats_of(const struct world *w)
{
	struct store_stats stats;

	store_stats(w->f->core->disk->store, &stats);
	assert_int_equal(stats.used_bytes + stats.cached_bytes + stats.free_bytes,
			 stats.file_bytes);
	return stats;
}

/* ---- there and back ----------------------------------------------------------------------- */

static void assert_same_head(const struct kv_head *a, const struct kv_head *b)
{
	assert_int_equal(a->length_tokens, b->length_tokens);
	assert_int_equal(a->position, b->position);
	assert_int_equal(a->journal_first, b->journal_first);
	assert_int_equal(a->journal_end, b->journal_end);
	assert_int_equal(a->planes, b->planes);
	assert_int_equal(a->base_tokens, b->base_tokens);
	assert_int_equal(a->n_marks, b->n_marks);
	assert_int_equal(a->state, b->state);
}

static void test_there_and_back(void **state)
{
	static const char *const names[] = {"none", "undo", "replay"};
	struct kv_head heads[3];
	uint8_t digests[3][KV_DIGEST_BYTES];
	struct result result;
	struct world w;

	(void)state;
	begin(&w, &fields);
	for (int mode = 0; mode < 3; mode++) {
		struct kv_head head = head_of(&w, (enum kv_journal_mode)mode, 0);
		char live_name[32];

		snprintf(live_name, sizeof(live_name), "%s-live", names[mode]);
		make(&w, live_name, &head);
		craft_snapshot(&w.a, live_name, names[mode]);
		result = verify(&w, names[mode]);
		assert_ok(&result);
		memcpy(digests[mode], result.digest, sizeof(result.digest));
		heads[mode] = find(&w, names[mode])->state->head;
		result = save(&w, names[mode], "", false);
		assert_ok(&result);
		assert_memory_equal(result.digest, digests[mode], KV_DIGEST_BYTES);
		assert_true(result.n_blocks >= 5);
	}
	reboot(&w, &fields);
	for (int mode = 0; mode < 3; mode++) {
		assert_null(find(&w, names[mode]));
		result = load(&w, names[mode], "", 0);
		assert_ok(&result);
		assert_memory_equal(result.digest, digests[mode], KV_DIGEST_BYTES);
		assert_same_head(&find(&w, names[mode])->state->head, &heads[mode]);
		assert_memory_equal(find(&w, names[mode])->digest, digests[mode], KV_DIGEST_BYTES);
		result = verify(&w, names[mode]);
		assert_ok(&result);
		assert_memory_equal(result.digest, digests[mode], KV_DIGEST_BYTES);
	}
	/* and over a restart of the core, whose catalogue has them */
	assert_int_equal(fake_core_restart(w.f), 0);
	fake_client_again(w.a.c);
	for (int mode = 0; mode < 3; mode++) {
		result = verify(&w, names[mode]);
		assert_ok(&result);
		assert_memory_equal(result.digest, digests[mode], KV_DIGEST_BYTES);
	}
	end(&w);
}

/* A sequence that waits for takeover comes back as one, with journal and marks. */
static void test_parked(void **state)
{
	struct kv_head head, after;
	struct result result;
	struct world w;
	struct craft b;

	(void)state;
	begin(&w, &fields);
	head = head_of(&w, KV_JOURNAL_UNDO, 2);
	make(&w, "seq", &head);
	fake_client_kill(w.a.c);
	craft_end(&w.a);
	craft_begin(&b, w.f, UID, &fields);
	w.a = b;
	w.layout = b.layout;
	head = find(&w, "seq")->state->head;
	assert_int_equal(head.n_marks, 2);
	result = save(&w, "seq", "kept/seq", false);
	assert_ok(&result);
	reboot(&w, &fields);
	result = load(&w, "kept/seq", "again", 0);
	assert_ok(&result);
	assert_int_equal(find(&w, "again")->kind, OBJECT_SEQUENCE);
	after = find(&w, "again")->state->head;
	assert_same_head(&after, &head);
	craft_takeover(&w.a, 0, "again", 64);
	end(&w);
}

/* ---- what the store does with it ------------------------------------------------------------ */

static void test_same_bytes_once(void **state)
{
	struct kv_head head;
	struct store_stats before, after;
	struct result result;
	struct world w;

	(void)state;
	begin(&w, &fields);
	head = head_of(&w, KV_JOURNAL_NONE, 0);
	make(&w, "live", &head);
	craft_snapshot(&w.a, "live", "one");
	craft_snapshot(&w.a, "live", "two");
	result = save(&w, "one", "", false);
	assert_ok(&result);
	assert_int_equal(result.n_known, 0);
	before = stats_of(&w);
	result = save(&w, "two", "", false);
	assert_ok(&result);
	assert_int_equal(result.n_known, result.n_blocks);
	after = stats_of(&w);
	assert_int_equal(before.used_bytes, after.used_bytes);
	assert_int_equal(after.n_saved, 2);
	result = save(&w, "two", "", false);
	assert_int_equal(result.status, KV_EEXIST);
	result = save(&w, "two", "", true);
	assert_ok(&result);
	assert_int_equal(stats_of(&w).n_saved, 2);
	end(&w);
}

static void test_first_tokens(void **state)
{
	static struct kv_layer plain[1] = {{2, 8, 8, 0}};
	struct kv_layout layout = fields;
	struct kv_head head;
	struct result result, whole;
	struct world w;

	(void)state;
	layout.n_layers = 1;
	layout.layers = plain;
	layout.n_planes = 1;
	begin(&w, &layout);
	head = head_of(&w, KV_JOURNAL_NONE, 0);
	make(&w, "live", &head);
	craft_snapshot(&w.a, "live", "snap");
	whole = save(&w, "snap", "", false);
	assert_ok(&whole);
	result = load(&w, "snap", "cut", 7);
	assert_ok(&result);
	assert_int_equal(find(&w, "cut")->state->head.length_tokens, 7);
	assert_int_equal(find(&w, "cut")->state->n_blocks[0], 2);
	assert_true(memcmp(result.digest, whole.digest, sizeof(whole.digest)) != 0);
	result = load(&w, "snap", "all", LENGTH);
	assert_ok(&result);
	assert_memory_equal(result.digest, whole.digest, sizeof(whole.digest));
	result = load(&w, "snap", "more", LENGTH + 1);
	assert_int_equal(result.status, KV_ERANGE);
	end(&w);
}

/* ---- faults ------------------------------------------------------------------------------- */

/* Flips a bit of each slot file of the class that an image of group 0 is in. */
static void damage(const struct world *w)
{
	uint64_t room = (image_bytes(w->layout, 0) + STORE_PAGE - 1) / STORE_PAGE * STORE_PAGE;
	char path[600];
	unsigned char byte;
	int fd;

	snprintf(path, sizeof(path), "%s/blocks-%llu.data", w->settings.disk_dir,
		 (unsigned long long)room);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, 17), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, 17), 1);
	assert_int_equal(fsync(fd), 0);
	close(fd);
}

static void test_damaged(void **state)
{
	struct kv_head head;
	struct result result;
	struct world w;
	uint64_t used;

	(void)state;
	begin(&w, &fields);
	head = head_of(&w, KV_JOURNAL_NONE, 0);
	make(&w, "live", &head);
	craft_snapshot(&w.a, "live", "snap");
	result = save(&w, "snap", "", false);
	assert_ok(&result);
	damage(&w);
	reboot(&w, &fields);
	used = used_bytes(&w);
	result = load(&w, "snap", "", 0);
	assert_int_equal(result.status, KV_ECORRUPT);
	assert_non_null(strstr(result.detail, "block 0 of group 0"));
	assert_null(find(&w, "snap"));
	assert_int_equal(used_bytes(&w), used);
	result = check(&w, false);
	assert_int_equal(result.status, KV_EPERM);
	end(&w);
}

static void test_no_room(void **state)
{
	struct kv_head head;
	struct result result;
	struct world w;
	uint64_t used;

	(void)state;
	begin(&w, &fields);
	head = head_of(&w, KV_JOURNAL_REPLAY, 0);
	make(&w, "live", &head);
	craft_snapshot(&w.a, "live", "snap");
	result = save(&w, "snap", "", false);
	assert_ok(&result);
	w.f->core->pool.user_bytes_max = used_bytes(&w) + 1;
	used = used_bytes(&w);
	result = load(&w, "snap", "again", 0);
	assert_int_equal(result.status, KV_EQUOTA);
	assert_int_equal(used_bytes(&w), used);
	w.f->core->pool.user_bytes_max = 0;
	result = load(&w, "snap", "again", 0);
	assert_ok(&result);
	result = load(&w, "snap", "again", 0);
	assert_int_equal(result.status, KV_EEXIST);
	result = load(&w, "nothing", "", 0);
	assert_int_equal(result.status, KV_ENOTFOUND);
	end(&w);
}

/* The session goes while images are written: nothing is saved, nothing is lost count of. */
static void test_session_goes(void **state)
{
	Kv__Wire__Target target = craft_named("snap");
	struct kv_head head;
	struct world w;
	struct craft b;
	Kv__Wire__Reply *reply;
	COMMAND(SAVE, save, Save);

	(void)state;
	begin(&w, &fields);
	head = head_of(&w, KV_JOURNAL_REPLAY, 0);
	make(&w, "live", &head);
	craft_snapshot(&w.a, "live", "snap");
	kv__wire__save__init(&command);
	command.source = &target;
	reply = fake_call(w.a.c, &request);
	assert_int_equal(reply->status, 0);
	kv__wire__reply__free_unpacked(reply, NULL);
	loop_once(w.f->env.loop, 0);
	fake_client_kill(w.a.c);
	for (int i = 0; i < 100; i++)
		loop_once(w.f->env.loop, 1);
	craft_begin(&b, w.f, UID, &fields);
	craft_end(&w.a);
	w.a = b;
	w.layout = b.layout;
	assert_int_equal(w.f->core->jobs.n, 0);
	if (stats_of(&w).n_saved == 0)
		assert_int_equal(stats_of(&w).used_bytes, 0);
	end(&w);
}

/* ---- an orderly end ----------------------------------------------------------------------- */

static void set_true(void *arg)
{
	*(bool *)arg = true;
}

static void test_leave(void **state)
{
	struct kv_head head;
	struct result result;
	uint8_t digest[KV_DIGEST_BYTES];
	struct world w;
	bool done = false;

	(void)state;
	begin(&w, &fields);
	head = head_of(&w, KV_JOURNAL_REPLAY, 0);
	make(&w, "live", &head);
	craft_snapshot(&w.a, "live", "old");
	result = save(&w, "old", "snap", false); /* other contents, in a moment, under that name */
	assert_ok(&result);
	memcpy(digest, result.digest, sizeof(digest));
	craft_snapshot(&w.a, "live", "one");
	craft_snapshot(&w.a, "live", "two");
	head = head_of(&w, KV_JOURNAL_NONE, 0);
	make(&w, "other", &head);
	craft_snapshot(&w.a, "other", "snap");
	core_leave(w.f->core, set_true, &done);
	while (!done)
		loop_once(w.f->env.loop, 10);
	assert_null(w.f->core->leave);
	assert_int_equal(stats_of(&w).n_saved, 4); /* snap, and: old, one, two */
	reboot(&w, &fields);
	result = load(&w, "two", "", 0);
	assert_ok(&result);
	result = load(&w, "snap", "", 0);
	assert_ok(&result);
	assert_memory_equal(result.digest, digest, sizeof(digest));
	result = load(&w, "live", "", 0);
	assert_int_equal(result.status, KV_ENOTFOUND);
	end(&w);
}

/* ---- a disk that does not do as it should ---------------------------------------------------- */

/* A snapshot in a core whose engine goes wrong by these rules. */
static void begin_faulty(struct world *w, const char *rules)
{
	struct kv_head head;

	setenv("KV_IO_FAULTS", rules, 1);
	begin(w, &fields);
	unsetenv("KV_IO_FAULTS");
	head = head_of(w, KV_JOURNAL_REPLAY, 0);
	make(w, "live", &head);
	craft_snapshot(&w->a, "live", "snap");
}

/* What a failed job had in flight ends by itself. */
static void wait_transfers(struct world *w)
{
	struct io_gauges gauges;

	do {
		loop_once(w->f->env.loop, 10);
		io_gauges(w->f->core->disk->io, &gauges);
	} while (gauges.n_in_flight + gauges.n_waiting);
}

/* What fails once leaves nothing, and the next try succeeds. */
static void fails_once(const char *rules, const char *text)
{
	struct result result;
	struct world w;
	uint64_t used;

	begin_faulty(&w, rules);
	used = used_bytes(&w);
	result = save(&w, "snap", "", false);
	assert_int_equal(result.status, KV_EIO);
	assert_non_null(strstr(result.detail, text));
	wait_transfers(&w);
	assert_int_equal(stats_of(&w).used_bytes, 0);
	assert_int_equal(stats_of(&w).n_saved, 0);
	assert_int_equal(used_bytes(&w), used);
	result = save(&w, "snap", "", false);
	assert_ok(&result);
	result = load(&w, "snap", "again", 0);
	assert_ok(&result);
	end(&w);
}

static void test_write_fails(void **state)
{
	(void)state;
	fails_once("write:3:eio", "Input/output error");
	fails_once("write:1:enospc", "is full; make room");
}

static void test_read_fails(void **state)
{
	struct result result;
	struct world w;
	uint64_t used;

	(void)state;
	begin_faulty(&w, "read:3:eio");
	result = save(&w, "snap", "", false);
	assert_ok(&result);
	used = used_bytes(&w);
	result = load(&w, "snap", "again", 0);
	assert_int_equal(result.status, KV_EIO);
	assert_null(find(&w, "again"));
	wait_transfers(&w);
	assert_int_equal(used_bytes(&w), used);
	result = load(&w, "snap", "again", 0);
	assert_ok(&result);
	end(&w);
}

static void test_short_transfers(void **state)
{
	struct result saved, result;
	struct world w;

	(void)state;
	begin_faulty(&w, "any:1+1:short=2");
	saved = save(&w, "snap", "", false);
	assert_ok(&saved);
	result = load(&w, "snap", "again", 0);
	assert_ok(&result);
	assert_memory_equal(result.digest, saved.digest, sizeof(saved.digest));
	end(&w);
}

static uint64_t quarantined(const struct world *w)
{
	struct io_gauges gauges;

	io_gauges(w->f->core->disk->io, &gauges);
	return gauges.quarantined_bytes;
}

/* A read that never comes back: the load fails at its deadline, its memory is nobody else's. */
static void test_lost_read(void **state)
{
	struct result result;
	struct world w;
	uint64_t used, id;
	Kv__Wire__Reply *reply;
	COMMAND(LOAD, load, Load);

	(void)state;
	begin_faulty(&w, "read:2:lost");
	result = save(&w, "snap", "", false);
	assert_ok(&result);
	used = used_bytes(&w);
	kv__wire__load__init(&command);
	command.name = (char *)"snap";
	command.as_name = (char *)"again";
	reply = fake_call(w.a.c, &request);
	assert_int_equal(reply->status, KV_OK);
	id = reply->job->job_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	for (int i = 0; i < 20; i++)
		loop_once(w.f->env.loop, 1);
	assert_true(runs(&w, id));
	w.f->offset_ns += DISK_DEADLINE_NS;
	wait_job(&w, id);
	reply = job_get(&w, id);
	assert_int_equal(reply->job->status, KV_EIO);
	assert_non_null(strstr(reply->job->detail, "has not answered for 30 s"));
	kv__wire__reply__free_unpacked(reply, NULL);
	assert_true(quarantined(&w) > 0);
	assert_true(used_bytes(&w) > used);
	result = load(&w, "snap", "again", 0);
	assert_ok(&result);
	end(&w);
}

/* A save is cancelled while a write does not come back: the slot is nobody else's. */
static void test_lost_write(void **state)
{
	Kv__Wire__Target target = craft_named("snap");
	Kv__Wire__Request again = KV__WIRE__REQUEST__INIT;
	Kv__Wire__JobCancel cancel = KV__WIRE__JOB_CANCEL__INIT;
	struct result result;
	struct world w;
	Kv__Wire__Reply *reply;
	COMMAND(SAVE, save, Save);

	(void)state;
	begin_faulty(&w, "write:2:lost");
	kv__wire__save__init(&command);
	command.source = &target;
	reply = fake_call(w.a.c, &request);
	assert_int_equal(reply->status, KV_OK);
	cancel.job_id = reply->job->job_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	for (int i = 0; i < 20; i++)
		loop_once(w.f->env.loop, 1);
	again.command_case = KV__WIRE__REQUEST__COMMAND_JOB_CANCEL;
	again.job_cancel = &cancel;
	reply = craft_call(&w.a, &again, 0);
	assert_int_equal(reply->job->state, 4);
	assert_int_equal(reply->job->status, KV_ECANCELLED);
	kv__wire__reply__free_unpacked(reply, NULL);
	result = save(&w, "snap", "", false);
	assert_ok(&result);
	result = load(&w, "snap", "again", 0);
	assert_ok(&result);
	end(&w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a snapshot is loaded in another life as it was saved", test_there_and_back),
	KT_TEST("a sequence that waits is loaded with its journal and marks", test_parked),
	KT_TEST("the same bytes are on the disk once", test_same_bytes_once),
	KT_TEST("the first tokens of what was saved can be loaded alone", test_first_tokens),
	KT_TEST("a damaged block is named and nothing is loaded", test_damaged),
	KT_TEST("a load that finds no room changes nothing", test_no_room),
	KT_TEST("a write that fails saves nothing, and the next one does", test_write_fails),
	KT_TEST("a read that fails loads nothing, and the next one does", test_read_fails),
	KT_TEST("short transfers are carried on with", test_short_transfers),
	KT_TEST("a read that is lost ends at its deadline and keeps its memory", test_lost_read),
	KT_TEST("a cancelled save leaves a lost write its slot", test_lost_write),
	KT_TEST("an orderly end saves what has a name and no writer, and replaces nothing",
		test_leave),
	KT_TEST("a session that goes takes its save with it", test_session_goes),
};

KT_MAIN(tests)
