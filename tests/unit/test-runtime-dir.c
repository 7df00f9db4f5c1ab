/*
 * The runtime directory: one daemon, stale sockets, and what a refusal says.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/runtime_dir.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"

static char *root;
static struct settings settings;

static int set_up(void **state)
{
	(void)state;
	root = kt_tmpdir_new();
	settings_default(&settings);
	snprintf(settings.runtime_dir, sizeof(settings.runtime_dir), "%s/run", root);
	return 0;
}

static int clean_up(void **state)
{
	(void)state;
	kt_tmpdir_free(root);
	return 0;
}

static unsigned mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

static void test_it_is_made_and_given_back(void **state)
{
	struct runtime_dir dir;
	struct errbuf err = {0};
	int fd;

	(void)state;
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), 0);
	assert_int_equal(mode_of(dir.paths.dir), 0700);
	fd = runtime_dir_listen(&dir, &settings, &err);
	assert_true(fd >= 0);
	assert_int_equal(mode_of(dir.paths.attach), 0600);
	runtime_dir_release(&dir);
	close(fd);
	assert_int_equal(access(dir.paths.attach, F_OK), -1);
	assert_int_equal(access(dir.paths.lock, F_OK), 0);
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), 0);
	runtime_dir_release(&dir);
}

static void test_modes_follow_the_settings(void **state)
{
	struct runtime_dir dir;
	struct errbuf err = {0};
	int fd;

	(void)state;
	settings.socket_mode = 0666;
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), 0);
	assert_int_equal(mode_of(dir.paths.dir), 0755);
	fd = runtime_dir_listen(&dir, &settings, &err);
	assert_int_equal(mode_of(dir.paths.attach), 0666);
	close(fd);
	runtime_dir_release(&dir);
}

static void test_a_second_one_is_refused_and_harms_nothing(void **state)
{
	struct runtime_dir first;
	struct runtime_dir second;
	struct errbuf err = {0};
	char want[64];
	int fd;

	(void)state;
	assert_int_equal(runtime_dir_take(&first, &settings, &err), 0);
	fd = runtime_dir_listen(&first, &settings, &err);
	assert_int_equal(runtime_dir_take(&second, &settings, &err), -1);
	assert_int_equal(err.status, KV_EBUSY);
	snprintf(want, sizeof(want), "another kvcached (pid %d) serves ", getpid());
	assert_int_equal(strncmp(err.text, want, strlen(want)), 0);
	runtime_dir_release(&second);
	assert_int_equal(access(first.paths.attach, F_OK), 0);
	assert_int_equal(runtime_dir_take(&second, &settings, NULL), -1);
	close(fd);
	runtime_dir_release(&first);
}

static void test_stale_sockets_are_removed(void **state)
{
	struct runtime_dir dir;
	struct errbuf err = {0};
	int fd;

	(void)state;
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), 0);
	fd = runtime_dir_listen(&dir, &settings, &err);
	close(fd);
	assert_int_equal(mknod(dir.paths.command, S_IFREG | 0600, 0), 0);
	close(dir.lock_fd); /* as a killed daemon leaves it */
	assert_int_equal(access(dir.paths.attach, F_OK), 0);
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), 0);
	assert_int_equal(access(dir.paths.attach, F_OK), -1);
	assert_int_equal(access(dir.paths.command, F_OK), -1);
	fd = runtime_dir_listen(&dir, &settings, &err);
	assert_true(fd >= 0);
	close(fd);
	runtime_dir_release(&dir);
}

static void test_a_path_that_is_too_long_is_refused_with_the_number(void **state)
{
	struct runtime_dir dir;
	struct errbuf err;
	size_t n;

	(void)state;
	n = strlen(settings.runtime_dir);
	memset(settings.runtime_dir + n, 'x',
	       95 - n); /* "/attach.sock" fits, "/command.sock" not */
	settings.runtime_dir[95] = '\0';
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), -1);
	assert_int_equal(err.status, KV_ETOOBIG);
	assert_non_null(strstr(err.text, "has 108 bytes, the limit is 107"));
	settings.runtime_dir[94] = '\0';
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), 0);
	runtime_dir_release(&dir);
}

static void test_a_missing_parent_says_what_to_do(void **state)
{
	struct runtime_dir dir;
	struct errbuf err;

	(void)state;
	snprintf(settings.runtime_dir, sizeof(settings.runtime_dir), "%s/a/b", root);
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), -1);
	assert_non_null(strstr(err.text, "cannot make runtime directory "));
	assert_non_null(strstr(err.text, "No such file or directory; make its parent directory "
					 "first, or choose another with --runtime-dir"));
}

static void test_a_file_in_its_place_is_refused(void **state)
{
	struct runtime_dir dir;
	struct errbuf err;

	(void)state;
	assert_int_equal(mknod(settings.runtime_dir, S_IFREG | 0600, 0), 0);
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), -1);
	assert_non_null(strstr(err.text, "Not a directory"));
}

static void test_a_directory_that_others_can_write_is_refused(void **state)
{
	struct runtime_dir dir;
	struct errbuf err;

	(void)state;
	assert_int_equal(mkdir(settings.runtime_dir, 0700), 0);
	assert_int_equal(chmod(settings.runtime_dir, 01777), 0);
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), -1);
	assert_int_equal(err.status, KV_EPERM);
	assert_non_null(strstr(err.text, "can be written by others (mode 1777): chmod go-w it"));
	assert_int_equal(chmod(settings.runtime_dir, 0755), 0);
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), 0);
	runtime_dir_release(&dir);
}

/* Root may write everywhere until this capability is put aside. */
static void set_dac_override(bool on)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	assert_int_equal(syscall(SYS_capget, &header, data), 0);
	data[0].effective &= ~(1u << CAP_DAC_OVERRIDE);
	if (on)
		data[0].effective |= data[0].permitted & 1u << CAP_DAC_OVERRIDE;
	assert_int_equal(syscall(SYS_capset, &header, data), 0);
}

static void test_a_directory_without_write_access_says_what_to_do(void **state)
{
	struct runtime_dir dir;
	struct errbuf err;

	(void)state;
	assert_int_equal(mkdir(settings.runtime_dir, 0755), 0);
	assert_int_equal(chmod(settings.runtime_dir, 0555), 0);
	set_dac_override(false);
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), -1);
	set_dac_override(true);
	assert_non_null(strstr(err.text, "cannot open the lock "));
	assert_non_null(strstr(err.text,
			       "Permission denied; give this user write access, or choose "
			       "another with --runtime-dir"));
}

static void test_an_unknown_group_is_refused(void **state)
{
	struct runtime_dir dir;
	struct errbuf err;

	(void)state;
	strcpy(settings.socket_group, "no-such-group");
	assert_int_equal(runtime_dir_take(&dir, &settings, &err), 0);
	assert_int_equal(runtime_dir_listen(&dir, &settings, &err), -1);
	assert_string_equal(err.text, "socket_group = no-such-group: there is no such group");
	runtime_dir_release(&dir);
}

#define TEST(sentence, fn) KT_TEST_FIXTURE(sentence, fn, set_up, clean_up)

static const struct CMUnitTest tests[] = {
	TEST("it is made and given back", test_it_is_made_and_given_back),
	TEST("modes follow the settings", test_modes_follow_the_settings),
	TEST("a second one is refused and harms nothing",
	     test_a_second_one_is_refused_and_harms_nothing),
	TEST("stale sockets are removed", test_stale_sockets_are_removed),
	TEST("a path that is too long is refused with the number",
	     test_a_path_that_is_too_long_is_refused_with_the_number),
	TEST("a missing parent says what to do", test_a_missing_parent_says_what_to_do),
	TEST("a file in its place is refused", test_a_file_in_its_place_is_refused),
	TEST("a directory that others can write is refused",
	     test_a_directory_that_others_can_write_is_refused),
	TEST("a directory without write access says what to do",
	     test_a_directory_without_write_access_says_what_to_do),
	TEST("an unknown group is refused", test_an_unknown_group_is_refused),
};

KT_MAIN(tests)
