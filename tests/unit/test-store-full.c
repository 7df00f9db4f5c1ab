/*
 * A disk that is really full: a file system of one MiB, with a store that may take much more.
 * Needs root, to mount it where nobody else sees it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/unit/store-world.h"

#define MIB (UINT64_C(1) << 20)
#define BALLAST_BYTES (256u << 10)

struct full {
	struct world w;
	char disk[200], ballast[300];
};

static void begin(struct full *f, bool preallocate)
{
	int fd;

	/* mounts of this process alone, gone with it */
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		kt_skip("needs root, to mount a small file system: %s", strerror(errno));
	world_begin(&f->w, 1024 * MIB);
	f->w.options.preallocate = preallocate;
	snprintf(f->disk, sizeof(f->disk), "%s", f->w.root);
	snprintf(f->ballast, sizeof(f->ballast), "%s/ballast", f->w.root);
	if (mount("none", f->disk, "tmpfs", 0, "size=1m,mode=700"))
		kt_skip("needs tmpfs: %s", strerror(errno));
	fd = open(f->ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(fallocate(fd, 0, 0, BALLAST_BYTES), 0);
	close(fd);
	world_open(&f->w);
}

static void end(struct full *f)
{
	world_close(&f->w);
	assert_int_equal(umount(f->disk), 0);
	world_end(&f->w);
}

/* Images that are all in use, until there is no room. */
static uint32_t fill(struct full *f, store_place *places, uint32_t n_max)
{
	uint32_t n = 0;

	while (n < n_max && (places[n] = world_write(&f->w, 1, n)) != 0)
		n++;
	return n;
}

static void check(struct full *f, const store_place *places, uint32_t n)
{
	const struct store_identity identity = world_identity(1);

	for (uint32_t key = 0; key < n; key++) {
		const struct store_check c = world_check(1, key);

		assert_true(world_verify(&f->w, places[key], &identity, &c));
	}
	assert_int_equal(world_stats(&f->w).used_bytes, n * WORLD_SLOT_BYTES(1));
}

static void test_full_disk(void **state)
{
	static store_place places[300];
	struct full f;
	uint32_t n, m;

	(void)state;
	begin(&f, true);
	n = fill(&f, places, 300);
	assert_true(n > 100 && n < 192); /* of 3/4 MiB, less what else is there */
	assert_int_equal(f.w.err.status, KV_EIO);
	assert_non_null(strstr(f.w.err.text, "No space left on device"));
	assert_non_null(strstr(f.w.err.text, "free room"));
	assert_true(world_stats(&f.w).is_full);
	check(&f, places, n);
	for (int i = 0; i < 100; i++) /* nothing is lost by trying */
		assert_int_equal(world_write(&f.w, 1, 1000), 0);
	check(&f, places, n);
	/* what nobody uses makes room without the disk */
	store_unuse(f.w.store, places[n - 1]);
	assert_int_equal(world_write(&f.w, 1, n - 1), places[n - 1]);
	assert_int_equal(unlink(f.ballast), 0);
	m = fill(&f, places + n, 300 - n); /* by itself */
	assert_true(m >= BALLAST_BYTES / WORLD_SLOT_BYTES(1) - 4);
	assert_true(world_stats(&f.w).is_full); /* again */
	end(&f);
}

/* Another size takes what this one has and nobody uses, on a full disk too. */
static void test_other_size_on_full_disk(void **state)
{
	static store_place places[300];
	struct full f;
	store_place place;
	uint32_t n;

	(void)state;
	begin(&f, true);
	place = world_write(&f.w, 0, 1); /* so that its files are there */
	store_unuse(f.w.store, place);
	n = fill(&f, places, 300);
	for (uint32_t i = 0; i < n; i++)
		store_unuse(f.w.store, places[i]);
	for (uint32_t key = 1; key < 40; key++) {
		place = world_put(&f.w, 0, key);
		if (!place)
			fail_msg("image %u: %s", key, f.w.err.text);
	}
	assert_int_equal(world_stats(&f.w).used_bytes, 39 * WORLD_SLOT_BYTES(0));
	end(&f);
}

/* There is no room for the file of a saved snapshot: what was saved is there, the rest goes on. */
static void test_no_room_for_saved(void **state)
{
	const struct content content = world_content(0, 3, 3), other = world_content(5, 3, 3);
	struct full f;
	char junk[4096] = {1};
	int fd;

	(void)state;
	begin(&f, true);
	assert_true(world_save(&f.w, "a", &content));
	for (uint32_t key = 5; key < 8; key++)
		for (uint32_t g = 0; g < WORLD_GROUPS; g++)
			store_unuse(f.w.store, world_put(&f.w, g, key));
	snprintf(f.ballast + strlen(f.ballast), 8, "2");
	fd = open(f.ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, junk, sizeof(junk)) > 0)
		continue;
	close(fd);
	assert_false(world_save(&f.w, "a", &other));
	assert_int_equal(f.w.err.status, KV_EIO);
	assert_true(world_saved_is(&f.w, "a", &content));
	assert_int_equal(world_count(&f.w, "saved", ".tmp"), 0);
	world_reopen(&f.w); /* a full disk does not keep a store shut */
	assert_true(world_saved_is(&f.w, "a", &content));
	assert_int_equal(world_stats(&f.w).n_images, 12);
	assert_int_equal(unlink(f.ballast), 0);
	assert_true(world_save(&f.w, "a", &other));
	assert_true(world_saved_is(&f.w, "a", &other));
	end(&f);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a full disk is a clear error, and goes by itself when there is room",
		test_full_disk),
	KT_TEST("on a full disk one size takes from another what nobody uses",
		test_other_size_on_full_disk),
	KT_TEST("without room for its file a save fails, and what was saved stays",
		test_no_room_for_saved),
};

KT_MAIN(tests)
