#include "tests/unit/saved-world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/arena_store.h"
#include "daemon/disk.h"
#include "daemon/image.h"
#include "daemon/names.h"
#include "offload/saved_file.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

static struct kv_layer layers[2] = {{2, 4, 4, 0}, {1, 8, 4, WORLD_BOUND}};
static struct kv_plane planes[2] = {{"position", KV_PLANE_SLOT, 4},
				    {"counters", KV_PLANE_SEQUENCE, WORLD_PLANE_BYTES}};
const struct kv_layout world_fields = {.fingerprint = {1},
				       .n_layers = 2,
				       .layers = layers,
				       .dtype = KV_DTYPE_F32,
				       .k_format = KV_FORMAT_INT8,
				       .v_format = KV_FORMAT_RAW,
				       .block_tokens = WORLD_BLOCK_TOKENS,
				       .n_planes = 2,
				       .planes = planes};

/* ---- lives -------------------------------------------------------------------------------- */

void world_live(struct world *w, const struct kv_layout *layout)
{
	w->f = fake_core_new(&w->settings);
	assert_non_null(w->f->core->disk);
	(w->is_self ? craft_begin_self : craft_begin)(&w->a, w->f, w->uid, layout);
	w->layout = w->a.layout;
}

void world_die(struct world *w)
{
	craft_end(&w->a);
	fake_core_free(w->f);
}

void world_begin_as(struct world *w, const struct kv_layout *layout, uint32_t uid, bool is_self)
{
	log_init(LOG_LEVEL_ERROR);
	*w = (struct world){.uid = uid, .is_self = is_self};
	w->dir = kt_tmpdir_new();
	settings_default(&w->settings);
	w->settings.pool_bytes = 64u << 20;
	w->settings.arena_bytes = 16u << 20;
	w->settings.huge = w->settings.mlock = SETTINGS_NO;
	snprintf(w->settings.disk_dir, sizeof(w->settings.disk_dir), "%s/store", w->dir);
	w->settings.disk_bytes = 32u << 20;
	w->settings.preallocate = SETTINGS_OFF;
	world_live(w, layout);
}

void world_begin(struct world *w, const struct kv_layout *layout)
{
	world_begin_as(w, layout, WORLD_UID, false);
}

void world_end(struct world *w)
{
	world_die(w);
	kt_tmpdir_free(w->dir);
}

/* Another life of the machine: no memory is left. */
void world_reboot(struct world *w, const struct kv_layout *layout)
{
	world_die(w);
	world_live(w, layout);
}

/* ---- what is saved ------------------------------------------------------------------------ */

static void write_random(const struct craft *craft, uint32_t group, uint64_t ref)
{
	const struct kv_group *g = &craft->layout->groups[group];

	for (uint32_t r = 0; r < g->n_regions; r++) {
		uint64_t n = image_piece_bytes(craft->layout, group, r);
		unsigned char *bytes = malloc(n);

		assert_non_null(bytes);
		for (uint64_t i = 0; i < n; i++)
			bytes[i] = (unsigned char)rand();
		craft_write(craft, ref, r, 0, bytes, n);
		free(bytes);
	}
}

void world_make(struct world *w, const char *name, const struct kv_head *head)
{
	craft_make(&w->a, name, 1u << 16, head, write_random);
}

struct kv_head world_head(const struct world *w, enum kv_journal_mode mode, uint32_t n_marks)
{
	uint64_t rows = UINT64_C(1) << w->layout->journal[mode].rows_log2;
	struct kv_head head = {.length_tokens = WORLD_LENGTH,
			       .base_tokens = mode == KV_JOURNAL_REPLAY ? 13 : WORLD_LENGTH,
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

void world_snap(struct world *w, enum kv_journal_mode mode)
{
	struct kv_head head = world_head(w, mode, 0);

	world_make(w, "live", &head);
	craft_snapshot(&w->a, "live", "snap");
}

struct object *world_find(const struct world *w, const char *name)
{
	return names_find(w->f->core, w->uid, name);
}

/* ---- commands ----------------------------------------------------------------------------- */

Kv__Wire__Reply *world_job(struct world *w, uint64_t id)
{
	COMMAND(JOB_GET, job_get, JobGet);

	kv__wire__job_get__init(&command);
	command.job_id = id;
	return craft_call(&w->a, &request, 0);
}

bool world_runs(struct world *w, uint64_t id)
{
	Kv__Wire__Reply *reply = world_job(w, id);
	bool running = reply->job->state == 1;

	kv__wire__reply__free_unpacked(reply, NULL);
	return running;
}

void world_wait(struct world *w, uint64_t id)
{
	while (world_runs(w, id))
		loop_once(w->f->env.loop, 10);
}

static void take(struct world_result *result, uint32_t status, const char *detail)
{
	result->status = status;
	snprintf(result->detail, sizeof(result->detail), "%s", detail);
}

/* The reply to a command that may begin a job, to the end of that. */
struct world_result world_finish(struct world *w, uint64_t id)
{
	struct world_result result = {0};
	Kv__Wire__Reply *reply;

	world_wait(w, id);
	reply = world_job(w, id);
	take(&result, reply->job->status, reply->job->detail);
	result.n_blocks = reply->job->n_blocks;
	result.n_known = reply->job->n_known;
	if (reply->job->digest.len)
		memcpy(result.digest, reply->job->digest.data, sizeof(result.digest));
	kv__wire__reply__free_unpacked(reply, NULL);
	return result;
}

struct world_result world_follow(struct world *w, Kv__Wire__Request *request)
{
	Kv__Wire__Reply *reply = fake_call(w->a.c, request);
	struct world_result result = {0};
	uint64_t id = 0;

	assert_non_null(reply);
	if (reply->status)
		take(&result, reply->status, reply->detail);
	else
		id = reply->job->job_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	return id ? world_finish(w, id) : result;
}

static uint64_t start(struct world *w, Kv__Wire__Request *request)
{
	Kv__Wire__Reply *reply = craft_call(&w->a, request, 0);
	uint64_t id = reply->job->job_id;

	kv__wire__reply__free_unpacked(reply, NULL);
	return id;
}

/* A command that begins a job, by one of the two above. */
#define SAVE(run, source_name) \
	Kv__Wire__Target target = craft_named(source_name); \
	COMMAND(SAVE, save, Save); \
\
	kv__wire__save__init(&command); \
	command.source = &target; \
	command.name = (char *)(uintptr_t)name; \
	command.replace = replace; \
	return run(w, &request)

#define LOAD(run, tokens) \
	COMMAND(LOAD, load, Load); \
\
	kv__wire__load__init(&command); \
	command.name = (char *)(uintptr_t)name; \
	command.as_name = (char *)(uintptr_t)as; \
	command.n_tokens = tokens; \
	return run(w, &request)

#define CHECK(run) \
	COMMAND(STORE_CHECK, store_check, StoreCheck); \
\
	kv__wire__store_check__init(&command); \
	command.repair = repair; \
	return run(w, &request)

struct world_result world_save(struct world *w, const char *source, const char *name, bool replace)
{
	SAVE(world_follow, source);
}

uint64_t world_start_save(struct world *w, const char *source, const char *name, bool replace)
{
	SAVE(start, source);
}

struct world_result world_load(struct world *w, const char *name, const char *as, uint64_t n_tokens)
{
	LOAD(world_follow, n_tokens);
}

uint64_t world_start_load(struct world *w, const char *name, const char *as)
{
	LOAD(start, 0);
}

uint32_t world_cancel(struct world *w, uint64_t id)
{
	Kv__Wire__Reply *reply;
	uint32_t state;
	COMMAND(JOB_CANCEL, job_cancel, JobCancel);

	kv__wire__job_cancel__init(&command);
	command.job_id = id;
	reply = craft_call(&w->a, &request, 0);
	state = reply->job->state;
	kv__wire__reply__free_unpacked(reply, NULL);
	return state;
}

struct world_result world_verify(struct world *w, const char *name)
{
	Kv__Wire__Target target = craft_named(name);
	COMMAND(VERIFY, verify, Verify);

	kv__wire__verify__init(&command);
	command.source = &target;
	return world_follow(w, &request);
}

struct world_result world_check(struct world *w, bool repair)
{
	CHECK(world_follow);
}

uint64_t world_start_check(struct world *w, bool repair)
{
	CHECK(start);
}

void world_assert_ok(const struct world_result *result)
{
	if (result->status)
		print_message("%s\n", result->detail);
	assert_int_equal(result->status, KV_OK);
}

/* Everything in the pool is accounted for, and so many bytes are in use. */
uint64_t world_used_bytes(const struct world *w)
{
	const struct pool *pool = &w->f->core->pool;
	uint64_t sum = 0;

	fake_settle(w->f);
	for (int i = 0; i < BLOCK_CLASSES; i++)
		sum += pool->class_bytes[i];
	assert_int_equal(sum, pool->total_bytes);
	return pool->total_bytes - pool->class_bytes[BLOCK_FREE];
}

struct store_stats world_stats(const struct world *w)
{
	struct store_stats stats;

	store_stats(w->f->core->disk->store, &stats);
	assert_int_equal(stats.used_bytes + stats.cached_bytes + stats.free_bytes,
			 stats.file_bytes);
	return stats;
}

/* ---- the disk ----------------------------------------------------------------------------- */

static size_t read_all(const char *path, void *bytes, size_t n_room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, bytes, n_room);

	assert_true(n > 0 && (size_t)n < n_room);
	close(fd);
	return (size_t)n;
}

static void write_all(const char *path, const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), n);
	close(fd);
}

void world_forge(struct world *w, const struct kv_layout *layout, const char *name,
		 void (*lie)(Kv__Saved__Saved *head, void *arg), void *arg)
{
	const size_t n_room = 1u << 20;
	char file[SAVED_FILE_NAME_BYTES], path[800];
	uint8_t hash[KV_HASH_BYTES];
	void *bytes = malloc(n_room), *forged;
	Kv__Saved__Saved *head;
	size_t n;

	world_die(w);
	assert_non_null(bytes);
	saved_file_name(w->uid, name, file);
	snprintf(path, sizeof(path), "%s/saved/%s", w->settings.disk_dir, file);
	n = read_all(path, bytes, n_room);
	head = saved_parse(bytes, n, hash, NULL);
	assert_non_null(head);
	lie(head, arg);
	assert_int_equal(saved_pack(head, &forged, &n, NULL), 0);
	write_all(path, forged, n);
	kv__saved__saved__free_unpacked(head, NULL);
	free(forged);
	free(bytes);
	world_live(w, layout);
}

/* Flips a bit of each slot file of the class that an image of group 0 is in. */
void world_damage(const struct world *w)
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

/* A snapshot in a core whose engine goes wrong by these rules. */
void world_begin_faulty(struct world *w, const char *rules)
{
	setenv("KV_IO_FAULTS", rules, 1);
	world_begin(w, &world_fields);
	unsetenv("KV_IO_FAULTS");
	world_snap(w, KV_JOURNAL_REPLAY);
}

/* What a failed job had in flight ends by itself. */
void world_wait_transfers(struct world *w)
{
	struct io_gauges gauges;

	do {
		loop_once(w->f->env.loop, 10);
		io_gauges(w->f->core->disk->io, &gauges);
	} while (gauges.n_in_flight + gauges.n_waiting);
}

uint64_t world_quarantined(const struct world *w)
{
	struct io_gauges gauges;

	io_gauges(w->f->core->disk->io, &gauges);
	return gauges.quarantined_bytes;
}
