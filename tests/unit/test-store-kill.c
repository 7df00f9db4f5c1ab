/*
 * A process that is killed at each write, sync, rename and unlink of a store: whatever was saved
 * before is there, what was being saved is old, new or absent, every image that can be found has
 * its bytes, and nothing half done is left after the second start.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/fault.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"
#include "tests/unit/store-world.h"

/* So small that what is saved takes the slots of what is cached. */
#define MAX_BYTES (16 * WORLD_SLOT_BYTES(0) + 12 * WORLD_SLOT_BYTES(1))
#define POINTS_MAX 2000u

struct killed {
	struct world w;
	char template[300];
	struct content kept, old, new, removed, added;
};

static void begin(struct killed *k)
{
	world_begin_in_memory(&k->w, MAX_BYTES);
	snprintf(k->template, sizeof(k->template), "%s/template", k->w.root);
	k->kept = world_content(0, 3, 2);
	k->old = world_content(2, 3, 2); /* has one image in common with each neighbour */
	k->new = world_content(4, 3, 2);
	k->removed = world_content(20, 3, 2);
	k->added = world_content(30, 3, 2);
	world_open(&k->w);
	world_must(world_save(&k->w, "kept", &k->kept));
	world_must(world_save(&k->w, "replaced", &k->old));
	world_must(world_save(&k->w, "removed", &k->removed));
	for (uint32_t key = 40; key < 60; key++)
		for (uint32_t g = 0; g < WORLD_GROUPS; g++)
			store_unuse(k->w.store, world_put(&k->w, g, key));
	world_close(&k->w);
	world_copy_tree(k->w.dir, k->template);
}

static void end(struct killed *k)
{
	world_end(&k->w);
}

static void work(struct killed *k)
{
	struct world *w = &k->w;

	world_open(w);
	world_must(world_save(w, "added", &k->added));
	world_must(world_save(w, "replaced", &k->new));
	world_must(store_saved_remove(w->store, store_saved_find(w->store, WORLD_UID, "removed"),
				      NULL) == 0);
	for (uint32_t key = 60; key < 64; key++)
		store_unuse(w->store, world_put(w, 0, key));
	world_close(w);
}

static void only_open(struct killed *k)
{
	world_open(&k->w);
	world_close(&k->w);
}

/* Runs it in a process that dies at point n. False: it got to its end. */
static bool dies(struct killed *k, void (*fn)(struct killed *k), uint64_t n)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		kv_fault_passed = 0;
		kv_fault_at = n;
		fn(k);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(kt_wait_child(pid, 20000, &status), 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return false;
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
	return true;
}

static bool is_either(struct killed *k, const char *name, const struct content *a,
		      const struct content *b)
{
	bool is_there = store_saved_find(k->w.store, WORLD_UID, name) != NULL;

	return (is_there ? (a && world_saved_is(&k->w, name, a)) : !a) ||
	       (is_there ? (b && world_saved_is(&k->w, name, b)) : !b);
}

static void check_all_verify(struct killed *k)
{
	struct store_check check;
	uint32_t n_bytes;
	uint64_t seed;

	for (store_place at = 0; (at = store_next(k->w.store, at, &seed, &check, &n_bytes));) {
		const struct store_identity identity = world_identity(n_bytes ==
								      WORLD_IMAGE_BYTES(1));

		assert_int_equal(seed, store_seed(&identity));
		assert_true(world_verify(&k->w, at, &identity, &check));
	}
}

static void check_start(struct killed *k)
{
	world_open(&k->w);
	assert_int_equal(world_stats(&k->w).n_set_aside, 0);
	assert_true(world_saved_is(&k->w, "kept", &k->kept));
	assert_true(is_either(k, "replaced", &k->old, &k->new));
	assert_true(is_either(k, "removed", &k->removed, NULL));
	assert_true(is_either(k, "added", &k->added, NULL));
	check_all_verify(k);
	world_close(&k->w);
}

static void check_no_leftovers(struct killed *k)
{
	world_open(&k->w);
	assert_int_equal(world_count(&k->w, ".", ".tmp"), 0);
	assert_int_equal(world_count(&k->w, "saved", ".tmp"), 0);
	assert_int_equal(world_count(&k->w, ".", ".damaged"), 0);
	assert_int_equal(world_count(&k->w, "saved", ".damaged"), 0);
	world_close(&k->w);
}

static void need_points(void)
{
#ifndef KV_FAULT_INJECTION
	kt_skip("needs a build with --enable-fault-injection");
#endif
}

static void test_at_each_step(void **state)
{
	struct killed k;
	uint64_t n = 1;

	(void)state;
	need_points();
	begin(&k);
	for (;; n++) {
		bool died;

		world_copy_tree(k.template, k.w.dir);
		died = dies(&k, work, n);
		check_start(&k);
		check_no_leftovers(&k);
		if (!died)
			break;
		assert_true(n < POINTS_MAX);
	}
	assert_true(n > 100);
	end(&k);
}

/* What was decided stays decided: after each death the work is done again, to its end. */
static void test_again_after_death(void **state)
{
	struct killed k;

	(void)state;
	need_points();
	begin(&k);
	for (uint64_t n = 1;; n += 3) {
		bool died;

		world_copy_tree(k.template, k.w.dir);
		died = dies(&k, work, n);
		if (!died)
			break;
		for (uint64_t i = 1; i <= 3; i++)
			dies(&k, only_open, n * i % 31 + 1);
		world_open(&k.w);
		assert_true(world_save(&k.w, "added", &k.added));
		assert_true(world_save(&k.w, "replaced", &k.new));
		assert_true(world_saved_is(&k.w, "added", &k.added));
		assert_true(world_saved_is(&k.w, "replaced", &k.new));
		assert_true(world_saved_is(&k.w, "kept", &k.kept));
		world_close(&k.w);
	}
	end(&k);
}

/* The start that repairs is killed at each of its steps too. */
static void test_repair_at_each_step(void **state)
{
	static const char *const lost[] = {"blocks-8192.index", "blocks-4096.index", "store"};
	struct killed k;
	uint64_t n = 1;

	(void)state;
	need_points();
	begin(&k);
	for (;; n++) {
		bool died;

		world_copy_tree(k.template, k.w.dir);
		for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++)
			assert_int_equal(truncate(world_path(&k.w, lost[i]), 100), 0);
		died = dies(&k, only_open, n);
		world_open(&k.w);
		assert_true(world_saved_is(&k.w, "kept", &k.kept));
		assert_true(world_saved_is(&k.w, "replaced", &k.old));
		assert_true(world_saved_is(&k.w, "removed", &k.removed));
		check_all_verify(&k);
		world_close(&k.w);
		if (!died)
			break;
		assert_true(n < POINTS_MAX);
	}
	assert_true(n > 20);
	end(&k);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a save, a replacement and a removal that die at each step leave old or new",
		test_at_each_step),
	KT_TEST("starts that die are followed by one that does all of it", test_again_after_death),
	KT_TEST("a repair that dies at each step is done by the next start",
		test_repair_at_each_step),
};

KT_MAIN(tests)
