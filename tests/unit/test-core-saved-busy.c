/*
 * Saved snapshots in the core with much going on at once: queues that are full, two that want the
 * same name, checks and repairs besides, an end that the disk does not let happen; and layouts of
 * every shape.
 */
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/disk.h"
#include "daemon/image.h"
#include "daemon/jobs.h"
#include "daemon/leave.h"
#include "daemon/objects.h"
#include "tests/support/runner.h"
#include "tests/unit/saved-world.h"

/* A snapshot of an operator's that is saved, in a core whose engine goes wrong by these rules. */
static void begin_operator(struct world *w, const char *rules)
{
	struct world_result result;

	setenv("KV_IO_FAULTS", rules, 1);
	world_begin_as(w, &world_fields, 0, false);
	unsetenv("KV_IO_FAULTS");
	w->f->settings.n_jobs_max = 200;
	world_snap(w, KV_JOURNAL_REPLAY);
	result = world_save(w, "snap", "", false);
	world_assert_ok(&result);
}

/* ---- the queue of the engine is full --------------------------------------------------------- */

#define LOADS 20

static uint64_t n_full(const struct world *w)
{
	struct io_gauges gauges;

	io_gauges(w->f->core->disk->io, &gauges);
	return gauges.n_full;
}

static void test_full_queue(void **state)
{
	uint64_t loads[LOADS], checks[LOADS];
	struct world_result result;
	struct world w;
	char name[16];

	(void)state;
	begin_operator(&w, "read:1+1:late=20");
	for (int i = 0; i < LOADS; i++) {
		snprintf(name, sizeof(name), "load-%d", i);
		loads[i] = world_start_load(&w, "snap", name);
		checks[i] = world_start_check(&w, false);
	}
	for (int i = 0; i < LOADS; i++) {
		result = world_finish(&w, loads[i]);
		world_assert_ok(&result);
		result = world_finish(&w, checks[i]);
		world_assert_ok(&result);
		assert_int_equal(result.n_blocks, world_stats(&w).n_images);
	}
	assert_true(n_full(&w) > 0);
	world_end(&w);
}

static void test_saves_at_once(void **state)
{
	uint64_t saves[LOADS];
	struct world_result result;
	struct kv_head head;
	struct world w;
	char name[16];

	(void)state;
	begin_operator(&w, "write:1+1:late=5");
	for (int i = 0; i < LOADS; i++) {
		head = world_head(&w, KV_JOURNAL_REPLAY, 0);
		snprintf(name, sizeof(name), "live-%d", i);
		world_make(&w, name, &head);
		saves[i] = world_start_save(&w, name, "", false);
	}
	for (int i = 0; i < LOADS; i++) {
		result = world_finish(&w, saves[i]);
		world_assert_ok(&result);
	}
	for (int i = 0; i < LOADS; i++) {
		char again[24];

		snprintf(name, sizeof(name), "live-%d", i);
		snprintf(again, sizeof(again), "again-%d", i);
		result = world_load(&w, name, again, 0);
		world_assert_ok(&result);
	}
	world_end(&w);
}

/* ---- one name, many who want it --------------------------------------------------------------- */

static void test_one_name(void **state)
{
	struct world_result a, b;
	struct kv_head head;
	struct world w;
	uint64_t one, two;

	(void)state;
	for (int replace = 0; replace < 2; replace++) {
		begin_operator(&w, "write:3+7:late=3");
		head = world_head(&w, KV_JOURNAL_NONE, 0);
		world_make(&w, "other", &head);
		one = world_start_save(&w, "snap", "name", replace);
		two = world_start_save(&w, "other", "name", replace);
		a = world_finish(&w, one);
		b = world_finish(&w, two);
		assert_true(!a.status || !b.status);
		if (a.status && a.status != KV_EBUSY)
			assert_int_equal(a.status, KV_EEXIST);
		if (b.status && b.status != KV_EBUSY)
			assert_int_equal(b.status, KV_EEXIST);
		assert_true(replace || a.status || b.status);
		assert_int_equal(world_stats(&w).n_saved, 2);
		a = world_load(&w, "name", "", 0);
		world_assert_ok(&a);
		world_end(&w);
	}
}

/* Saves, loads and two repairs of what is damaged: nothing wrong is loaded, and afterwards all is
 * well. */
static void test_repairs_besides(void **state)
{
	struct world_result result;
	uint64_t ids[5];
	struct world w;

	(void)state;
	begin_operator(&w, "read:2+3:late=2");
	world_damage(&w);
	ids[0] = world_start_check(&w, true);
	ids[1] = world_start_check(&w, true);
	ids[2] = world_start_load(&w, "snap", "loaded");
	ids[3] = world_start_save(&w, "snap", "second", false);
	ids[4] = world_start_save(&w, "snap", "snap", true);
	for (int i = 0; i < 5; i++) {
		result = world_finish(&w, ids[i]);
		if (i < 3)
			assert_int_equal(result.status, KV_ECORRUPT);
	}
	assert_null(world_find(&w, "loaded"));
	world_check(&w, true);
	result = world_check(&w, true);
	world_assert_ok(&result);
	result = world_save(&w, "snap", "snap", true);
	world_assert_ok(&result);
	result = world_load(&w, "snap", "loaded", 0);
	world_assert_ok(&result);
	world_end(&w);
}

/* ---- what a check may take for damage ---------------------------------------------------------- */

static void test_check_out_of_resources(void **state)
{
	struct world_result result;
	struct world w;

	(void)state;
	begin_operator(&w, "read:2:enospc,read:6:eio");
	result = world_check(&w, true);
	assert_int_equal(result.status, KV_EIO);
	assert_int_equal(world_stats(&w).n_set_aside, 0);
	assert_int_equal(world_stats(&w).n_saved, 1);
	result = world_check(&w, true);
	assert_int_equal(result.status, KV_ECORRUPT);
	assert_int_equal(world_stats(&w).n_set_aside, 1);
	world_end(&w);
}

/* A read that does not come back ends the check at its deadline, or when it is cancelled. */
static void test_check_lost(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t id;

	(void)state;
	for (int cancels = 0; cancels < 2; cancels++) {
		begin_operator(&w, "read:2:lost");
		id = world_start_check(&w, true);
		for (int i = 0; i < 20; i++)
			loop_once(w.f->env.loop, 1);
		assert_true(world_runs(&w, id));
		if (cancels)
			assert_int_equal(world_cancel(&w, id), JOB_CANCELLED);
		else
			w.f->offset_ns += DISK_DEADLINE_NS;
		result = world_finish(&w, id);
		assert_int_equal(result.status, cancels ? KV_ECANCELLED : KV_EIO);
		assert_int_equal(world_stats(&w).n_set_aside, 0);
		result = world_check(&w, true);
		world_assert_ok(&result);
		world_end(&w);
	}
}

/* ---- the end ----------------------------------------------------------------------------------- */

static void set_true(void *arg)
{
	*(bool *)arg = true;
}

struct stuck {
	struct io_request call;
	sem_t go;
};

static int wait_for_go(void *arg)
{
	struct stuck *stuck = arg;

	while (sem_wait(&stuck->go))
		;
	return 0;
}

static void ignore(struct io_request *request, int result)
{
	(void)request;
	(void)result;
}

/* A disk that does not answer a flush: the core ends all the same. */
static void test_leave_stuck(void **state)
{
	struct stuck stuck = {
		.call = {.op = IO_CALL, .call = wait_for_go, .done = ignore, .arg = &stuck}};
	struct kv_head head;
	struct world w;
	bool done = false;

	(void)state;
	begin_operator(&w, "read:1000:eio");
	head = world_head(&w, KV_JOURNAL_NONE, 0);
	world_make(&w, "other", &head);
	craft_snapshot(&w.a, "other", "unsaved");
	assert_int_equal(sem_init(&stuck.go, 0, 0), 0);
	assert_int_equal(disk_submit(w.f->core->disk, &stuck.call), 0);
	core_leave(w.f->core, set_true, &done);
	for (int i = 0; i < 50; i++)
		loop_once(w.f->env.loop, 1);
	assert_false(done);
	w.f->offset_ns += 61 * LOOP_NS_PER_S;
	for (int i = 0; i < 50 && !done; i++)
		loop_once(w.f->env.loop, 1);
	assert_true(done);
	sem_post(&stuck.go);
	world_end(&w);
	sem_destroy(&stuck.go);
}

/* Asked a second time, at any moment, it ends at once. */
static void test_leave_twice(void **state)
{
	struct world w;

	(void)state;
	for (int i = 0; i < 12; i++) {
		bool done = false, again = false;
		struct kv_head head;

		begin_operator(&w, "write:14:late=10");
		head = world_head(&w, KV_JOURNAL_REPLAY, 0);
		world_make(&w, "other", &head);
		craft_snapshot(&w.a, "other", "unsaved");
		core_leave(w.f->core, set_true, &done);
		for (int n = 0; n < i; n++)
			loop_once(w.f->env.loop, 1);
		if (!done) {
			core_leave(w.f->core, set_true, &again);
			assert_true(again);
		}
		assert_null(w.f->core->leave);
		world_reboot(&w, &world_fields);
		assert_true(world_stats(&w).n_saved >= 1);
		world_end(&w);
	}
}

/* ---- layouts ------------------------------------------------------------------------------------ */

static void there_and_back(struct world *w, const struct kv_layout *fields, uint64_t length)
{
	struct kv_head head = {
		.length_tokens = length, .base_tokens = length, .state = KV_HEAD_LIVE};
	struct world_result saved, result;
	uint64_t used;

	world_begin(w, fields);
	world_make(w, "live", &head);
	craft_snapshot(&w->a, "live", "snap");
	result = world_verify(w, "snap");
	world_assert_ok(&result);
	saved = world_save(w, "snap", "", false);
	world_assert_ok(&saved);
	assert_memory_equal(saved.digest, result.digest, sizeof(saved.digest));
	world_reboot(w, fields);
	used = world_used_bytes(w);
	result = world_load(w, "snap", "", 0);
	world_assert_ok(&result);
	assert_memory_equal(saved.digest, result.digest, sizeof(saved.digest));
	result = world_verify(w, "snap");
	world_assert_ok(&result);
	assert_int_equal(world_used_bytes(w) - used,
			 kv_layout_blocks(w->layout, length) * image_bytes(w->layout, 0));
}

static void test_opaque(void **state)
{
	const struct kv_layout fields = {
		.fingerprint = {3}, .block_tokens = 1, .opaque_bytes = 777};
	struct world w;

	(void)state;
	there_and_back(&w, &fields, 10);
	world_end(&w);
}

static void test_raw_2_mib(void **state)
{
	static struct kv_layer layers[1] = {{8, 128, 128, 0}};
	const struct kv_layout fields = {.fingerprint = {4},
					 .n_layers = 1,
					 .layers = layers,
					 .dtype = KV_DTYPE_F32,
					 .k_format = KV_FORMAT_RAW,
					 .v_format = KV_FORMAT_RAW,
					 .block_tokens = 256};
	struct world w;

	(void)state;
	there_and_back(&w, &fields, 1000);
	assert_int_equal(image_bytes(w.layout, 0), 2u << 20);
	world_end(&w);
}

/* More pieces than one request can have. */
static void test_many_regions(void **state)
{
	static struct kv_layer layers[KV_LAYERS_MAX];
	const struct kv_layout fields = {.fingerprint = {5},
					 .n_layers = KV_LAYERS_MAX,
					 .layers = layers,
					 .dtype = KV_DTYPE_F32,
					 .k_format = KV_FORMAT_INT8,
					 .v_format = KV_FORMAT_RAW,
					 .block_tokens = 2};
	struct world w;

	(void)state;
	for (int i = 0; i < (int)KV_LAYERS_MAX; i++)
		layers[i] = (struct kv_layer){1, 4, 4, 0};
	there_and_back(&w, &fields, 7);
	assert_true(w.layout->groups[0].n_regions > IO_IOVECS_MAX);
	world_end(&w);
}

static void test_nothing_in_it(void **state)
{
	struct world w;

	(void)state;
	there_and_back(&w, &world_fields, 0);
	world_end(&w);
}

/* ---- the writer goes on ------------------------------------------------------------------------- */

static void fill(const struct world *w, uint64_t ref, uint32_t first, uint32_t n, char value)
{
	const struct kv_group *g = &w->layout->groups[0];

	for (uint32_t r = 0; r < g->n_regions; r++) {
		uint32_t row = w->layout->regions[g->first_region + r].row_bytes;
		char bytes[4096];

		assert_true(n * row <= sizeof(bytes));
		memset(bytes, value, n * row);
		craft_write(&w->a, ref, r, (uint64_t)first * row, bytes, (size_t)n * row);
	}
}

/* Slots behind the snapshot's, in its last block, change while it is saved and afterwards. */
static void test_writer_goes_on(void **state)
{
	static struct kv_layer layers[1] = {{2, 8, 8, 0}};
	const struct kv_layout fields = {.fingerprint = {6},
					 .n_layers = 1,
					 .layers = layers,
					 .dtype = KV_DTYPE_F32,
					 .k_format = KV_FORMAT_INT8,
					 .v_format = KV_FORMAT_RAW,
					 .block_tokens = 8};
	struct kv_head head = {.length_tokens = 13, .base_tokens = 13, .state = KV_HEAD_LIVE};
	struct world_result saved, result;
	struct world w;
	uint64_t id, ref;
	char value = 0;

	(void)state;
	world_begin(&w, &fields);
	world_make(&w, "live", &head);
	craft_snapshot(&w.a, "live", "snap");
	ref = craft_entry_get(&w.a, 0, 0, 1);
	assert_true(ref != 0);
	result = world_verify(&w, "snap");
	world_assert_ok(&result);
	id = world_start_save(&w, "snap", "", false);
	while (world_runs(&w, id)) {
		fill(&w, ref, 5, 3, ++value);
		loop_once(w.f->env.loop, 1);
	}
	saved = world_finish(&w, id);
	world_assert_ok(&saved);
	assert_memory_equal(saved.digest, result.digest, sizeof(saved.digest));
	fill(&w, ref, 5, 3, 99);
	result = world_save(&w, "snap", "second", false);
	world_assert_ok(&result);
	assert_int_equal(result.n_known, result.n_blocks);
	world_reboot(&w, &fields);
	result = world_load(&w, "snap", "", 0);
	world_assert_ok(&result);
	assert_memory_equal(saved.digest, result.digest, sizeof(saved.digest));
	world_end(&w);
}

/* ---- limits ------------------------------------------------------------------------------------- */

static void test_job_limit(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t id;

	(void)state;
	begin_operator(&w, "read:1:late=30");
	w.f->settings.n_jobs_max = 1;
	id = world_start_load(&w, "snap", "loaded");
	result = world_load(&w, "snap", "again", 0);
	assert_int_equal(result.status, KV_EQUOTA);
	result = world_save(&w, "snap", "again", false);
	assert_int_equal(result.status, KV_EQUOTA);
	result = world_check(&w, false);
	assert_int_equal(result.status, KV_EQUOTA);
	result = world_finish(&w, id);
	world_assert_ok(&result);
	result = world_load(&w, "snap", "again", 0);
	world_assert_ok(&result);
	world_end(&w);
}

static void test_keeper_is_full(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t used;

	(void)state;
	begin_operator(&w, "read:1000:eio");
	used = world_used_bytes(&w);
	w.f->keeper_is_full = true;
	result = world_load(&w, "snap", "loaded", 0);
	assert_int_equal(result.status, KV_ELIMIT);
	assert_int_equal(world_used_bytes(&w), used);
	w.f->keeper_is_full = false;
	result = world_load(&w, "snap", "loaded", 0);
	world_assert_ok(&result);
	world_end(&w);
}

/* The books have room for so much: at the command, or not any more when all is read. */
static void test_catalogue_is_full(void **state)
{
	struct catalogue *catalogue;
	struct world_result result;
	struct world w;
	uint64_t used, id;

	(void)state;
	begin_operator(&w, "read:2:late=20");
	catalogue = &w.f->core->catalogue;
	used = world_used_bytes(&w);
	id = world_start_load(&w, "snap", "loaded");
	catalogue->end_off = catalogue->write_off = CATALOGUE_BYTES_MAX - 16384;
	catalogue->ready_off = CATALOGUE_BYTES_MAX;
	catalogue->rewritten_end_off = CATALOGUE_BYTES_MAX; /* not stale */
	assert_int_equal(fallocate(catalogue->fd, 0, (off_t)CATALOGUE_BYTES_MAX - 16384, 16384), 0);
	result = world_finish(&w, id);
	assert_int_equal(result.status, KV_ENOMEM);
	assert_null(world_find(&w, "loaded"));
	assert_int_equal(world_used_bytes(&w), used);
	result = world_load(&w, "snap", "loaded", 0);
	assert_int_equal(result.status, KV_ENOMEM);
	world_end(&w);
}

/* What no command should say. */
static void test_absurd_requests(void **state)
{
	static const char *const names[] = {"", "a b", "\n", "../../../etc/passwd\001"};
	char long_name[KV_NAME_BYTES_MAX + 2];
	struct world_result result;
	struct world w;

	(void)state;
	begin_operator(&w, "read:1000:eio");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		result = world_load(&w, names[i], "x", 0);
		assert_int_equal(result.status, KV_ENAME);
		if (i == 0)
			continue;
		result = world_load(&w, "snap", names[i], 0);
		assert_int_equal(result.status, KV_ENAME);
		result = world_save(&w, "snap", names[i], false);
		assert_int_equal(result.status, KV_ENAME);
	}
	memset(long_name, 'n', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	result = world_save(&w, "snap", long_name, false);
	assert_int_equal(result.status, KV_ENAME);
	result = world_save(&w, long_name, "x", false);
	assert_int_equal(result.status, KV_ENOTFOUND);
	long_name[KV_NAME_BYTES_MAX] = '\0';
	result = world_save(&w, "snap", long_name, false);
	world_assert_ok(&result);
	result = world_load(&w, long_name, "", 0);
	world_assert_ok(&result);
	result = world_load(&w, "snap", "x", UINT64_MAX);
	assert_int_equal(result.status, KV_ERANGE);
	result = world_load(&w, "snap", "x", 1);
	assert_int_equal(result.status, KV_EUNSUPPORTED);
	{
		COMMAND(SAVE, save, Save);

		kv__wire__save__init(&command);
		command.name = (char *)(uintptr_t) "x";
		result = world_follow(&w, &request);
		assert_int_equal(result.status, KV_EINVAL);
	}
	world_end(&w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("loads and checks that find the queue full leave nothing out", test_full_queue),
	KT_TEST("many saves at once are all saved", test_saves_at_once),
	KT_TEST("of two saves of one name one wins, whole", test_one_name),
	KT_TEST("repairs beside saves and loads set aside what is damaged", test_repairs_besides),
	KT_TEST("a check does not take a lack of room for damage", test_check_out_of_resources),
	KT_TEST("a check whose read is lost ends", test_check_lost),
	KT_TEST("an orderly end does not wait longer than its limit", test_leave_stuck),
	KT_TEST("an orderly end that is asked for twice is at once", test_leave_twice),
	KT_TEST("an opaque layout comes back", test_opaque),
	KT_TEST("raw blocks of 2 MiB come back", test_raw_2_mib),
	KT_TEST("more pieces than one request takes come back", test_many_regions),
	KT_TEST("a snapshot of nothing comes back", test_nothing_in_it),
	KT_TEST("what a writer appends meanwhile is in no image", test_writer_goes_on),
	KT_TEST("the limit of jobs is of saves, loads and checks", test_job_limit),
	KT_TEST("a load that the keeper has no room for changes nothing", test_keeper_is_full),
	KT_TEST("a load that the catalogue has no room for changes nothing",
		test_catalogue_is_full),
	KT_TEST("requests that nobody should make are refused", test_absurd_requests),
};

KT_MAIN(tests)
