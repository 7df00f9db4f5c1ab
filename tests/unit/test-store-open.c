/*
 * Who may open a store, and what a store refuses to be: folders of others or open to others,
 * symbolic links, a second process, another version.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/whole_file.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"
#include "tests/unit/store-world.h"

#define MIB (UINT64_C(1) << 20)

static void refused(struct world *w, int status, const char *text)
{
	assert_false(world_try_open(w));
	if (w->err.status != status || !strstr(w->err.text, text))
		fail_msg("status %d: %s", w->err.status, w->err.text);
}

static void test_made(void **state)
{
	static const char *const files[] = {"store", "lock", "saved", "blocks-8192.data",
					    "blocks-8192.index"};
	struct world w;
	struct stat st;

	(void)state;
	world_begin(&w, MIB);
	umask(0);
	world_open(&w);
	store_unuse(w.store, world_write(&w, 0, 1));
	assert_int_equal(stat(w.dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		assert_int_equal(stat(world_path(&w, files[i]), &st), 0);
		assert_int_equal(st.st_mode & 0077, 0);
	}
	world_end(&w);
}

static void test_no_parent(void **state)
{
	struct world w;

	(void)state;
	world_begin(&w, MIB);
	strcat(w.dir, "/not/there");
	refused(&w, KV_EIO, "No such file");
	world_end(&w);
}

static void test_loose_mode(void **state)
{
	static const mode_t loose[] = {0701, 0710, 0740, 0777};
	struct world w;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	world_close(&w);
	for (size_t i = 0; i < sizeof(loose) / sizeof(loose[0]); i++) {
		assert_int_equal(chmod(w.dir, loose[i]), 0);
		refused(&w, KV_EPERM, "chmod 700");
	}
	assert_int_equal(chmod(w.dir, 0700), 0);
	assert_int_equal(chmod(world_path(&w, "saved"), 0755), 0);
	refused(&w, KV_EPERM, "chmod 700");
	assert_int_equal(chmod(world_path(&w, "saved"), 0700), 0);
	world_open(&w);
	world_end(&w);
}

static void test_other_owner(void **state)
{
	struct world w;

	(void)state;
	if (geteuid() != 0)
		kt_skip("needs root, to give a folder away");
	world_begin(&w, MIB);
	world_open(&w);
	world_close(&w);
	assert_int_equal(chown(w.dir, 65534, 65534), 0);
	refused(&w, KV_EPERM, "chown");
	assert_int_equal(chown(w.dir, 0, 0), 0);
	world_open(&w);
	world_end(&w);
}

static void test_links(void **state)
{
	static const char *const files[] = {"lock", "blocks-8192.data", "blocks-8192.index"};
	struct world w;
	char real[300];

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	store_unuse(w.store, world_write(&w, 0, 1));
	world_close(&w);
	snprintf(real, sizeof(real), "%s/real", w.root);
	assert_int_equal(rename(w.dir, real), 0);
	assert_int_equal(symlink(real, w.dir), 0);
	refused(&w, KV_EPERM, "symbolic link");
	assert_int_equal(unlink(w.dir), 0);
	assert_int_equal(rename(real, w.dir), 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		assert_int_equal(rename(world_path(&w, files[i]), real), 0);
		assert_int_equal(symlink(real, world_path(&w, files[i])), 0);
		refused(&w, KV_EIO, files[i]);
		assert_int_equal(rename(real, world_path(&w, files[i])), 0);
	}
	assert_int_equal(rename(world_path(&w, "blocks-8192.data"), real), 0);
	assert_int_equal(mkfifo(world_path(&w, "blocks-8192.data"), 0600), 0);
	assert_false(world_try_open(&w));
	assert_int_equal(rename(real, world_path(&w, "blocks-8192.data")), 0);
	world_open(&w);
	world_end(&w);
}

static void test_no_folder(void **state)
{
	struct world w;

	(void)state;
	world_begin(&w, MIB);
	close(open(w.dir, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	refused(&w, KV_EIO, "Not a directory");
	world_end(&w);
}

static void test_second_process(void **state)
{
	const struct content a = world_content(0, 2, 1);
	struct world w, second;
	char pid[32];

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	assert_true(world_save(&w, "a", &a));
	second = w;
	second.store = NULL;
	snprintf(pid, sizeof(pid), "pid %d", getpid());
	for (int i = 0; i < 3; i++)
		refused(&second, KV_EBUSY, pid);
	assert_true(world_save(&w, "b", &a));
	world_reopen(&w);
	assert_true(world_saved_is(&w, "a", &a));
	assert_true(world_saved_is(&w, "b", &a));
	world_end(&w);
}

/* ---- a transfer of a process that was killed ---------------------------------------------- */

struct late {
	const struct world *w;
	int data_fd;
	bool was_waited_for;
};

static bool store_is_locked(void *arg)
{
	const struct late *late = arg;
	char path[300];
	bool is_locked;
	int fd;

	snprintf(path, sizeof(path), "%s/lock", late->w->dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	is_locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
	close(fd);
	return is_locked;
}

static void *end_transfer(void *arg)
{
	struct late *late = arg;

	late->was_waited_for = kt_wait_until(store_is_locked, late, 5000);
	close(late->data_fd); /* the last reference that the kernel had */
	return NULL;
}

static void test_late_transfer(void **state)
{
	struct world w;
	struct late late = {&w, -1, false};
	pthread_t thread;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	store_unuse(w.store, world_write(&w, 0, 1));
	world_close(&w);
	late.data_fd = open(world_path(&w, "blocks-8192.data"), O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(late.data_fd, LOCK_EX), 0);
	assert_int_equal(pthread_create(&thread, NULL, end_transfer, &late), 0);
	world_open(&w);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(late.was_waited_for);
	assert_int_equal(world_stats(&w).n_images, 1);
	world_end(&w);
}

/* ---- versions ----------------------------------------------------------------------------- */

/* The same file as version 2 would seal it. */
static void age(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	char bytes[8192];
	ssize_t n = pread(fd, bytes, sizeof(bytes), 0);
	struct store_head head;

	assert_true(n > (ssize_t)sizeof(head));
	memcpy(&head, bytes, sizeof(head));
	head.version = STORE_VERSION + 1;
	store_head_reseal(&head, bytes + sizeof(head));
	assert_int_equal(pwrite(fd, &head, sizeof(head), 0), sizeof(head));
	close(fd);
}

static void test_versions(void **state)
{
	const struct content a = world_content(0, 2, 1);
	struct world w;
	char template[300];

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	assert_true(world_save(&w, "a", &a));
	world_close(&w);
	snprintf(template, sizeof(template), "%s/template", w.root);
	world_copy_tree(w.dir, template);
	for (int i = 0; i < 3; i++) {
		world_copy_tree(template, w.dir);
		age(i == 0 ? world_path(&w, "store") :
		    i == 1 ? world_path(&w, "blocks-8192.index") :
			     world_saved_path(&w, "a"));
		refused(&w, KV_EVERSION, "version 2");
		refused(&w, KV_EVERSION, "version 2");
		assert_int_equal(world_count(&w, ".", ".damaged"), 0);
		assert_int_equal(world_count(&w, "saved", ".damaged"), 0);
	}
	world_copy_tree(template, w.dir);
	world_open(&w);
	assert_true(world_saved_is(&w, "a", &a));
	world_end(&w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a store is made for its owner alone", test_made),
	KT_TEST("a folder is not made without its parent", test_no_parent),
	KT_TEST("a folder that others may enter is refused, with the remedy", test_loose_mode),
	KT_TEST("a folder of another user is refused, with the remedy", test_other_owner),
	KT_TEST("a symbolic link is no store, and no file of one", test_links),
	KT_TEST("a file is no store", test_no_folder),
	KT_TEST("a second process is refused and told who has the store", test_second_process),
	KT_TEST("a start waits for transfers of a process that was killed", test_late_transfer),
	KT_TEST("files of a later version are refused and left as they are", test_versions),
};

KT_MAIN(tests)
