/*
 * Damage: each file of a store, and each region of it, is flipped, cut, made longer, deleted, or
 * put back to an older version. Whatever is done, the store opens, what it gives out has the right
 * bytes or none, what is not hit is there, and it goes on.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/whole_file.h"
#include "tests/support/runner.h"
#include "tests/unit/store-world.h"

#define MAX_BYTES (24 * WORLD_SLOT_BYTES(0))

enum { KEPT, REPLACED, N_SAVED };
static const char *const names[N_SAVED] = {"kept", "replaced"};

struct damaged {
	struct world w;
	char template[300], older[300];
	struct content now[N_SAVED], before;
	char target[128]; /* file that is damaged, in the folder */
	int hits;         /* number of the saved snapshot whose file it is, or -1 */
	bool hits_data;
};

static void put_unused(struct world *w, uint32_t first, uint32_t n)
{
	for (uint32_t key = first; key < first + n; key++)
		for (uint32_t g = 0; g < WORLD_GROUPS; g++)
			store_unuse(w->store, world_put(w, g, key));
}

/* Two lives: a snapshot replaced, one removed, slots that now hold other images than before. */
static void begin(struct damaged *d)
{
	struct world *w = &d->w;
	const struct content gone = world_content(20, 4, 4);

	world_begin_in_memory(w, MAX_BYTES);
	snprintf(d->template, sizeof(d->template), "%s/template", w->root);
	snprintf(d->older, sizeof(d->older), "%s/older", w->root);
	d->now[KEPT] = world_content(0, 2, 2);
	d->before = world_content(1, 3, 3);
	d->now[REPLACED] = world_content(8, 3, 3);
	world_open(w);
	world_must(world_save(w, "kept", &d->now[KEPT]));
	world_must(world_save(w, "replaced", &d->before));
	world_must(world_save(w, "gone", &gone));
	world_close(w);
	world_copy_tree(w->dir, d->older);
	world_open(w);
	world_must(store_saved_remove(w->store, store_saved_find(w->store, WORLD_UID, "gone"),
				      NULL) == 0);
	world_must(world_save(w, "replaced", &d->now[REPLACED]));
	put_unused(w, 40, 24); /* evicts what nobody uses */
	world_close(w);
	world_copy_tree(w->dir, d->template);
}

/* ---- what must hold ----------------------------------------------------------------------- */

static void fail_about(const struct damaged *d, const char *how, long at, const char *what)
{
	fail_msg("%s, %s at %ld: %s\n%s", d->target, how, at, what, d->w.reports);
}

/* Content of a file that is damaged may be gone, with a reason, but not be other content. */
static const char *check_saved(struct damaged *d, int i)
{
	struct world *w = &d->w;
	const struct saved *saved = store_saved_find(w->store, WORLD_UID, names[i]);
	struct store_stats stats = world_stats(w);

	if (!saved) {
		if (d->hits != i && !d->hits_data)
			return "a snapshot is lost that was not hit";
		return stats.n_set_aside && w->n_reports ? NULL : "a snapshot is lost in silence";
	}
	if (world_saved_is(w, names[i], &d->now[i]))
		return NULL;
	if (!world_saved_verifies(w, saved)) /* a reader will notice */
		return d->hits_data || d->hits == i ? NULL : "bytes are wrong that were not hit";
	if (i == REPLACED && world_saved_is(w, names[i], &d->before))
		return d->hits == i ? NULL : "an old version came back";
	return "other content was accepted";
}

static const char *check_images(struct damaged *d)
{
	struct store_check check;
	uint32_t n_bytes;
	uint64_t seed;

	for (store_place at = 0; (at = store_next(d->w.store, at, &seed, &check, &n_bytes));) {
		const struct store_identity identity = world_identity(n_bytes ==
								      WORLD_IMAGE_BYTES(1));

		if (seed == store_seed(&identity) && !world_verify(&d->w, at, &identity, &check) &&
		    !d->hits_data)
			return "an image is found whose bytes are not there";
	}
	return NULL;
}

static const char *check_goes_on(struct damaged *d)
{
	const struct content fresh = world_content(200, 3, 3);

	if (!world_save(&d->w, "fresh", &fresh) || !world_saved_is(&d->w, "fresh", &fresh))
		return d->w.err.text;
	world_reopen(&d->w);
	if (d->w.n_reports)
		return "it was not put right by the first start";
	return world_saved_is(&d->w, "fresh", &fresh) ? NULL : "what was saved then is lost";
}

static void check(struct damaged *d, const char *how, long at)
{
	const char *wrong = NULL;

	if (!world_try_open(&d->w))
		fail_about(d, how, at, d->w.err.text);
	world_stats(&d->w);
	for (int i = 0; !wrong && i < N_SAVED; i++)
		wrong = check_saved(d, i);
	if (!wrong)
		wrong = check_images(d);
	if (!wrong)
		wrong = check_goes_on(d);
	if (wrong)
		fail_about(d, how, at, wrong);
	world_close(&d->w);
}

/* ---- doing damage ------------------------------------------------------------------------- */

static long size_of(const struct damaged *d)
{
	struct stat st;

	assert_int_equal(stat(world_path(&d->w, d->target), &st), 0);
	return st.st_size;
}

static void flip(struct damaged *d, long at, uint8_t mask)
{
	int fd = open(world_path(&d->w, d->target), O_RDWR | O_CLOEXEC);
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= mask;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void flip_each(struct damaged *d, long from, long to, long step)
{
	for (long at = from; at < to; at += step) {
		world_copy_tree(d->template, d->w.dir);
		flip(d, at, (uint8_t)(1u << at % 8));
		check(d, "flipped", at);
	}
}

static void resize_each(struct damaged *d)
{
	static const long by[] = {-1, -64, -4095, -4096, -(1L << 30), 1, 4096, 1 << 20};

	for (size_t i = 0; i < sizeof(by) / sizeof(by[0]); i++) {
		long size;

		world_copy_tree(d->template, d->w.dir);
		size = size_of(d) + by[i];
		assert_int_equal(truncate(world_path(&d->w, d->target), size > 0 ? size : 0), 0);
		check(d, "resized", by[i]);
	}
}

/* Longer by what is no zeros. */
static void append_junk(struct damaged *d)
{
	char junk[9000];
	int fd;

	world_copy_tree(d->template, d->w.dir);
	memset(junk, 0x5a, sizeof(junk));
	fd = open(world_path(&d->w, d->target), O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
	close(fd);
	check(d, "with junk behind it", 0);
}

static void overwrite(struct damaged *d)
{
	char junk[4096];
	int fd;

	for (int value = 0; value < 256; value += 255) {
		world_copy_tree(d->template, d->w.dir);
		memset(junk, value, sizeof(junk));
		fd = open(world_path(&d->w, d->target), O_WRONLY | O_CLOEXEC);
		assert_int_equal(pwrite(fd, junk, sizeof(junk), 0), sizeof(junk));
		close(fd);
		check(d, "overwritten", value);
	}
}

static void take_away(struct damaged *d)
{
	world_copy_tree(d->template, d->w.dir);
	assert_int_equal(unlink(world_path(&d->w, d->target)), 0);
	if (d->hits < 0) /* a saved snapshot whose file is deleted is removed */
		check(d, "deleted", 0);
}

static void swap_older(struct damaged *d)
{
	char command[800];

	world_copy_tree(d->template, d->w.dir);
	snprintf(command, sizeof(command), "cp %s/%s %s/%s", d->older, d->target, d->w.dir,
		 d->target);
	if (system(command) != 0)
		fail_msg("%s", command);
	check(d, "put back to an older version", 0);
}

static void all_of_it(struct damaged *d)
{
	resize_each(d);
	append_junk(d);
	overwrite(d);
	take_away(d);
	swap_older(d);
}

static void aim(struct damaged *d, const char *file, int hits, bool hits_data)
{
	snprintf(d->target, sizeof(d->target), "%s", file);
	d->hits = hits;
	d->hits_data = hits_data;
}

/* ---- tests -------------------------------------------------------------------------------- */

static void test_about(void **state)
{
	struct damaged d;

	(void)state;
	begin(&d);
	aim(&d, "store", -1, false);
	flip_each(&d, 0, size_of(&d), 1);
	all_of_it(&d);
	world_end(&d.w);
}

static void test_index(void **state)
{
	struct damaged d;

	(void)state;
	begin(&d);
	for (int i = 0; i < 2; i++) {
		aim(&d, i ? "blocks-4096.index" : "blocks-8192.index", -1, false);
		flip_each(&d, 0, 80, 1);                  /* head and what it is about */
		flip_each(&d, 80, 4096, 997);             /* zeros behind it */
		flip_each(&d, 4096, 4096 + 64, 1);        /* each field of a record */
		flip_each(&d, 4096 + 64, size_of(&d), 7); /* somewhere in the others */
		all_of_it(&d);
	}
	world_end(&d.w);
}

static void test_data(void **state)
{
	struct damaged d;

	(void)state;
	begin(&d);
	for (uint32_t g = 0; g < WORLD_GROUPS; g++) {
		aim(&d, g ? "blocks-4096.data" : "blocks-8192.data", -1, true);
		for (long slot = 0; slot < size_of(&d); slot += WORLD_SLOT_BYTES(g)) {
			flip_each(&d, slot, slot + 1, 1);
			flip_each(&d, slot + WORLD_IMAGE_BYTES(g) - 1, slot + WORLD_IMAGE_BYTES(g),
				  1);
		}
		all_of_it(&d);
	}
	/* what fills the page belongs to nobody */
	aim(&d, "blocks-8192.data", -1, false);
	flip_each(&d, WORLD_IMAGE_BYTES(0), WORLD_SLOT_BYTES(0), 997);
	world_end(&d.w);
}

static void test_saved(void **state)
{
	struct damaged d;

	(void)state;
	begin(&d);
	for (int i = 0; i < N_SAVED; i++) {
		aim(&d, world_saved_path(&d.w, names[i]) + strlen(d.w.dir) + 1, i, false);
		world_copy_tree(d.template, d.w.dir);
		flip_each(&d, 0, size_of(&d), i ? 5 : 1);
		resize_each(&d);
		append_junk(&d);
		overwrite(&d);
		take_away(&d);
	}
	aim(&d, world_saved_path(&d.w, "replaced") + strlen(d.w.dir) + 1, REPLACED, false);
	swap_older(&d);
	world_end(&d.w);
}

/* One that was removed comes back from a backup: its slots hold other images by now. */
static void test_removed_comes_back(void **state)
{
	struct damaged d;
	struct saved *gone;

	(void)state;
	begin(&d);
	aim(&d, world_saved_path(&d.w, "gone") + strlen(d.w.dir) + 1, -1, false);
	swap_older(&d);
	world_open(&d.w);
	gone = store_saved_find(d.w.store, WORLD_UID, "gone");
	assert_true(!gone || !world_saved_verifies(&d.w, gone));
	world_end(&d.w);
}

static void test_whole_older_index(void **state)
{
	struct damaged d;

	(void)state;
	begin(&d);
	aim(&d, "blocks-8192.index", -1, false);
	world_copy_tree(d.template, d.w.dir);
	swap_older(&d);
	/* what that index says of images that nobody claims must not be believed by a save */
	aim(&d, "blocks-4096.index", -1, false);
	swap_older(&d);
	world_end(&d.w);
}

/* A file of a saved snapshot under another name is not that other one. */
static void test_misnamed(void **state)
{
	struct damaged d;
	char from[600];

	(void)state;
	begin(&d);
	snprintf(from, sizeof(from), "%s", world_saved_path(&d.w, "kept"));
	assert_int_equal(rename(from, world_saved_path(&d.w, "another")), 0);
	world_open(&d.w);
	assert_null(store_saved_find(d.w.store, WORLD_UID, "another"));
	assert_null(store_saved_find(d.w.store, WORLD_UID, "kept"));
	assert_int_equal(world_stats(&d.w).n_set_aside, 1);
	assert_non_null(strstr(d.w.reports, "under another name"));
	world_end(&d.w);
}

/* ---- a power cut -------------------------------------------------------------------------- */

/* As if the machine had been started again without the store having been closed. */
static void cut_power(const struct world *w)
{
	struct {
		struct store_head head;
		struct store_about about;
	} file;
	int fd = open(world_path(w, "store"), O_RDWR | O_CLOEXEC);

	assert_int_equal(pread(fd, &file, sizeof(file), 0), sizeof(file));
	file.about.closed_in_order = 0;
	file.about.boot_id[5] ^= 1;
	store_head_reseal(&file.head, &file.about);
	assert_int_equal(pwrite(fd, &file, sizeof(file), 0), sizeof(file));
	close(fd);
}

static void test_power_cut(void **state)
{
	struct damaged d;

	(void)state;
	begin(&d);
	world_open(&d.w);
	assert_true(world_stats(&d.w).cached_bytes > 0);
	world_close(&d.w);
	cut_power(&d.w);
	world_open(&d.w);
	assert_int_equal(world_stats(&d.w).cached_bytes, 0);
	assert_int_equal(world_stats(&d.w).n_images, 10);
	assert_non_null(strstr(d.w.reports, "are forgotten"));
	for (int i = 0; i < N_SAVED; i++)
		assert_true(world_saved_is(&d.w, names[i], &d.now[i]));
	world_reopen(&d.w); /* and they do not come back */
	assert_int_equal(world_stats(&d.w).n_images, 10);
	assert_int_equal(d.w.n_reports, 0);
	world_end(&d.w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("damage to the file store costs no saved snapshot", test_about),
	KT_TEST("damage to an index costs no saved snapshot", test_index),
	KT_TEST("damage to images is noticed by who reads them", test_data),
	KT_TEST("damage to the file of a saved snapshot sets that one aside", test_saved),
	KT_TEST("a removed snapshot that comes back does not get others' images",
		test_removed_comes_back),
	KT_TEST("an older index does not make images be found that are not there",
		test_whole_older_index),
	KT_TEST("a saved snapshot under the file name of another is set aside", test_misnamed),
	KT_TEST("after a power cut what is saved counts and the rest is forgotten", test_power_cut),
};

KT_MAIN(tests)
