/*
 * Every call of the system that the store makes fails once, each in turn and with each reason: what
 * was saved before is there, the figures add up, and the next attempt succeeds.
 *
 * The linker gives us these calls first (--wrap).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "tests/support/runner.h"
#include "tests/unit/store-world.h"

#define MAX_BYTES (16 * WORLD_SLOT_BYTES(0) + 12 * WORLD_SLOT_BYTES(1))

/* ---- calls that fail ---------------------------------------------------------------------- */

static uint64_t n_calls, fail_at; /* 0: never */
static int fail_with;
static const char *failed_call;
static unsigned fail_for = 1; /* calls in a row */

static bool fails(const char *call)
{
	if (world_own_calls || !fail_at)
		return false;
	n_calls++;
	if (n_calls < fail_at || n_calls >= fail_at + fail_for)
		return false;
	failed_call = call;
	errno = fail_with;
	return true;
}

#define WRAP(type, bad, name, parameters, arguments) \
	type __real_##name parameters; \
	type __wrap_##name parameters; \
	type __wrap_##name parameters \
	{ \
		return fails(#name) ? (bad) : __real_##name arguments; \
	}

WRAP(ssize_t, -1, pwrite, (int fd, const void *p, size_t n, off_t off), (fd, p, n, off))
WRAP(ssize_t, -1, pread, (int fd, void *p, size_t n, off_t off), (fd, p, n, off))
WRAP(int, -1, ftruncate, (int fd, off_t n), (fd, n))
WRAP(int, -1, fallocate, (int fd, int mode, off_t off, off_t n), (fd, mode, off, n))
WRAP(int, -1, fdatasync, (int fd), (fd))
WRAP(int, -1, fsync, (int fd), (fd))
WRAP(int, -1, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
WRAP(int, -1, unlinkat, (int at, const char *name, int flags), (at, name, flags))
WRAP(int, -1, mkdirat, (int at, const char *name, mode_t mode), (at, name, mode))
WRAP(int, -1, fstat, (int fd, struct stat *st), (fd, st))
WRAP(int, -1, flock, (int fd, int operation), (fd, operation))
WRAP(void *, NULL, malloc, (size_t n), (n))
WRAP(void *, NULL, calloc, (size_t n, size_t m), (n, m))
WRAP(void *, NULL, reallocarray, (void *p, size_t n, size_t m), (p, n, m))

int __real_openat(int at, const char *name, int flags, ...);
int __wrap_openat(int at, const char *name, int flags, ...);
int __wrap_openat(int at, const char *name, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	return fails("openat") ? -1 : __real_openat(at, name, flags, mode);
}

static void arm(uint64_t at, int errno_value)
{
	n_calls = 0;
	failed_call = NULL;
	fail_at = at;
	fail_with = errno_value;
}

/* ---- the work that goes wrong ------------------------------------------------------------- */

struct faults {
	struct world w;
	char template[300];
	struct content kept, old, new, removed, added;
};

static void begin(struct faults *f, bool preallocate)
{
	world_begin_in_memory(&f->w, MAX_BYTES);
	f->w.options.preallocate = preallocate;
	snprintf(f->template, sizeof(f->template), "%s/template", f->w.root);
	f->kept = world_content(0, 3, 2);
	f->old = world_content(2, 3, 2);
	f->new = world_content(4, 3, 2);
	f->removed = world_content(20, 3, 2);
	f->added = world_content(30, 3, 2);
	world_open(&f->w);
	world_must(world_save(&f->w, "kept", &f->kept));
	world_must(world_save(&f->w, "replaced", &f->old));
	world_must(world_save(&f->w, "removed", &f->removed));
	for (uint32_t key = 40; key < 60; key++) /* the second size is not there yet at its end */
		store_unuse(f->w.store, world_put(&f->w, 0, key));
	world_close(&f->w);
	world_copy_tree(f->w.dir, f->template);
}

/* Something may fail, and then says why; everything else must be in order. */
static void work(struct faults *f)
{
	struct world *w = &f->w;
	struct saved *removed;

	if (!world_try_open(w))
		return;
	for (uint32_t key = 60; key < 70; key++) {
		store_place place = world_put(w, 1, key);

		if (place)
			store_unuse(w->store, place);
	}
	world_save(w, "added", &f->added);
	world_save(w, "replaced", &f->new);
	removed = store_saved_find(w->store, WORLD_UID, "removed");
	if (removed)
		store_saved_remove(w->store, removed, &w->err);
}

static bool is_either(struct faults *f, const char *name, const struct content *a,
		      const struct content *b)
{
	bool is_there = store_saved_find(f->w.store, WORLD_UID, name) != NULL;

	return (is_there ? (a && world_saved_is(&f->w, name, a)) : !a) ||
	       (is_there ? (b && world_saved_is(&f->w, name, b)) : !b);
}

/* A file that could not be read is kept for people, under another name. */
static bool is_aside(struct faults *f, const char *name)
{
	char path[600];
	struct stat st;

	snprintf(path, sizeof(path), "%s.damaged", world_saved_path(&f->w, name));
	return stat(path, &st) == 0;
}

static const char *check_all(struct faults *f)
{
	struct store_check check;
	uint32_t n_bytes;
	uint64_t seed;

	world_stats(&f->w);
	if (!is_aside(f, "kept") && !world_saved_is(&f->w, "kept", &f->kept))
		return "what was kept is lost";
	if (!is_aside(f, "replaced") && !is_either(f, "replaced", &f->old, &f->new))
		return "what was replaced is neither old nor new";
	if (!is_either(f, "removed", &f->removed, NULL))
		return "what was removed is half there";
	if (!is_either(f, "added", &f->added, NULL))
		return "what was added is half there";
	for (store_place at = 0; (at = store_next(f->w.store, at, &seed, &check, &n_bytes));) {
		const struct store_identity identity = world_identity(n_bytes ==
								      WORLD_IMAGE_BYTES(1));

		if (!world_verify(&f->w, at, &identity, &check))
			return "an image is found that is not there";
	}
	return NULL;
}

static const char *check_goes_on(struct faults *f)
{
	if (!world_save(&f->w, "added", &f->added) || !world_save(&f->w, "replaced", &f->new))
		return f->w.err.text;
	if (!world_saved_is(&f->w, "added", &f->added) ||
	    !world_saved_is(&f->w, "replaced", &f->new))
		return "what was saved then is not there";
	return NULL;
}

/* False: there are not that many calls. */
static bool fail_once(struct faults *f, uint64_t at, int errno_value)
{
	const char *wrong = NULL;

	world_copy_tree(f->template, f->w.dir);
	arm(at, errno_value);
	work(f);
	fail_at = 0;
	if (f->w.store) {
		wrong = check_all(f);
		if (!wrong && failed_call)
			wrong = check_goes_on(f);
		world_close(&f->w);
	}
	world_open(&f->w);
	if (!wrong)
		wrong = check_all(f);
	if (!wrong)
		wrong = check_goes_on(f);
	world_close(&f->w);
	if (wrong)
		fail_msg("call %llu, %s: %s: %s\n%s", (unsigned long long)at,
			 failed_call ? failed_call : "-", strerror(errno_value), wrong,
			 f->w.reports);
	return failed_call != NULL;
}

static void fail_each(int errno_value, bool preallocate, unsigned n_in_a_row, uint64_t step)
{
	struct faults f;
	uint64_t at = 1;

	begin(&f, preallocate);
	fail_for = n_in_a_row;
	while (fail_once(&f, at, errno_value))
		at += step;
	if (at < 150)
		fail_msg("only %llu calls", (unsigned long long)at);
	world_end(&f.w);
}

static void test_eio(void **state)
{
	(void)state;
	fail_each(EIO, false, 1, 1);
}

static void test_enospc(void **state)
{
	(void)state;
	fail_each(ENOSPC, true, 1, 2);
}

/* The disk fails, or is full, for good; then it is well again. */
static void test_for_good(void **state)
{
	(void)state;
	fail_each(EIO, true, UINT32_MAX, 5);
	fail_each(ENOSPC, false, UINT32_MAX, 5);
}

/* ---- flushes ------------------------------------------------------------------------------ */

/* After a sync that failed the next one says nothing about what the first was for: the images must
 * be written again, and no saved snapshot may name them. */
static void test_failed_flush(void **state)
{
	const struct content content = world_content(100, 2, 1);
	struct faults f;
	struct saved_file *before, *after;
	const struct store_identity identity = world_identity(1);
	const struct store_check check = world_check(1, 100);

	(void)state;
	begin(&f, false);
	world_open(&f.w);
	before = world_pack(&f.w, "before", &content);
	assert_non_null(before);
	fail_for = 1;
	arm(1, EIO);
	assert_int_equal(store_flush(f.w.store), -EIO);
	fail_at = 0;
	assert_string_equal(failed_call, "fdatasync");
	assert_int_equal(store_flush(f.w.store), 0);
	assert_int_equal(store_saved_write(before), -EIO); /* although this flush went well */
	assert_int_equal(store_find(f.w.store, &identity, &check), 0);
	after = world_pack(&f.w, "after", &content); /* images are written anew */
	assert_non_null(after);
	assert_non_null(strstr(f.w.reports, "the disk failed"));
	assert_int_equal(store_flush(f.w.store), 0);
	assert_int_equal(store_saved_write(after), 0);
	assert_int_equal(store_saved_add(after, NULL), 0);
	saved_file_free(before);
	saved_file_free(after);
	assert_true(world_saved_is(&f.w, "after", &content));
	assert_true(world_saved_is(&f.w, "kept", &f.kept)); /* was durable long before */
	world_reopen(&f.w);
	assert_true(world_saved_is(&f.w, "after", &content));
	assert_null(store_saved_find(f.w.store, WORLD_UID, "before"));
	world_end(&f.w);
}

/* Nor does the next start believe what a last flush could not make durable. */
static void test_failed_last_flush(void **state)
{
	struct faults f;

	(void)state;
	begin(&f, false);
	world_open(&f.w);
	store_unuse(f.w.store, world_put(&f.w, 0, 500));
	fail_for = 1;
	arm(1, EIO);
	world_close(&f.w);
	fail_at = 0;
	assert_string_equal(failed_call, "fdatasync");
	world_open(&f.w);
	assert_int_equal(world_stats(&f.w).cached_bytes, 0);
	assert_true(world_saved_is(&f.w, "kept", &f.kept));
	assert_true(world_saved_is(&f.w, "replaced", &f.old));
	world_end(&f.w);
}

/* The new file has taken its name, and the folder cannot be synced: an error, and memory has what
 * the disk has. */
static void test_failed_folder_sync(void **state)
{
	struct faults f;
	struct saved_file *file;
	uint64_t n;

	(void)state;
	begin(&f, false);
	for (n = 1;; n++) {
		world_copy_tree(f.template, f.w.dir);
		world_open(&f.w);
		file = world_pack(&f.w, "replaced", &f.new);
		assert_int_equal(store_flush(f.w.store), 0);
		fail_for = 1;
		arm(n, EIO);
		if (store_saved_write(file) == 0)
			break;
		fail_at = 0;
		saved_file_free(file);
		assert_true(world_saved_is(&f.w, "replaced", &f.new) ||
			    world_saved_is(&f.w, "replaced", &f.old));
		world_reopen(&f.w);
		assert_true(world_saved_is(&f.w, "replaced", &f.new) ||
			    world_saved_is(&f.w, "replaced", &f.old));
		world_close(&f.w);
	}
	fail_at = 0;
	assert_int_equal(store_saved_add(file, NULL), 0);
	saved_file_free(file);
	assert_true(n > 4);
	world_end(&f.w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("each call that fails with EIO costs at most what it was for", test_eio),
	KT_TEST("each call that finds no room costs at most what it was for", test_enospc),
	KT_TEST("a disk that fails for good costs nothing that was there before", test_for_good),
	KT_TEST("images of a failed flush are not believed, and written anew", test_failed_flush),
	KT_TEST("after a last flush that failed only what is saved is believed",
		test_failed_last_flush),
	KT_TEST("a save that fails at any step leaves old or new", test_failed_folder_sync),
};

KT_MAIN(tests)
