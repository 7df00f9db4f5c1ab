/*
 * Runs last: looks for what the suite left behind, and names it.
 *
 * Promise: fails if a program of this build still runs, or if a folder, socket
 * or shared memory object exists whose name marks it as made by a test of this
 * build (kt_name_prefix()). The other way round is tested too: each search
 * finds a thing that is really there. Thread: one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"

/* Prints what it finds; returns how many. keep is a path that may be there. */
static unsigned int find_entries(const char *folder, const char *keep)
{
	DIR *dir = opendir(folder);
	unsigned int n_found = 0;
	struct dirent *entry;
	char path[PATH_MAX];

	if (!dir)
		return 0;
	while ((entry = readdir(dir))) {
		if (strncmp(entry->d_name, kt_name_prefix(), strlen(kt_name_prefix())) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		if (keep && strncmp(path, keep, strlen(path)) == 0)
			continue;
		printf("left over: %s\n", path);
		n_found++;
	}
	closedir(dir);
	return n_found;
}

static unsigned int find_sockets(void)
{
	FILE *file = fopen("/proc/net/unix", "re");
	unsigned int n_found = 0;
	char line[512];

	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file)) {
		if (!strstr(line, kt_name_prefix()))
			continue;
		printf("left over: socket %s", line);
		n_found++;
	}
	fclose(file);
	return n_found;
}

/* Programs whose file lies in the build folder, but for ourselves and the runner above us. */
static unsigned int find_processes(const char *builddir, pid_t self, pid_t parent)
{
	DIR *proc = opendir("/proc");
	unsigned int n_found = 0;
	struct dirent *entry;

	if (!proc)
		return 0;
	while ((entry = readdir(proc))) {
		const pid_t pid = (pid_t)atoi(entry->d_name);
		char exe[PATH_MAX];
		char link[64];
		ssize_t n;

		if (pid <= 0 || pid == self || pid == parent)
			continue;
		snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
		n = readlink(link, exe, sizeof(exe) - 1);
		if (n < 0)
			continue;
		exe[n] = '\0';
		if (strncmp(exe, builddir, strlen(builddir)) != 0 || exe[strlen(builddir)] != '/')
			continue;
		printf("left over: process %d, %s\n", (int)pid, exe);
		n_found++;
	}
	closedir(proc);
	return n_found;
}

static const char *builddir(void)
{
	const char *path = getenv("top_builddir");

	if (!path)
		kt_skip("top_builddir is not set: run by make check");
	return path;
}

static void test_no_process(void **state)
{
	(void)state;
	assert_int_equal(find_processes(builddir(), getpid(), getppid()), 0);
}

static void test_processes_are_found(void **state)
{
	(void)state;
	assert_true(find_processes(builddir(), 0, getppid()) >= 1);
}

static void test_no_folder(void **state)
{
	char *own = kt_tmpdir_new();
	const unsigned int n_found = find_entries("/tmp", own);

	(void)state;
	kt_tmpdir_free(own);
	assert_int_equal(n_found, 0);
}

static void test_folders_are_found(void **state)
{
	(void)state;
	assert_true(find_entries("/tmp", NULL) >= 1);
}

static void test_no_shm(void **state)
{
	(void)state;
	assert_int_equal(find_entries("/dev/shm", NULL), 0);
}

static void test_shm_is_found(void **state)
{
	char name[64];
	unsigned int n_found;
	int fd;

	(void)state;
	snprintf(name, sizeof(name), "/%sobject", kt_name_prefix());
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		kt_skip("no POSIX shared memory here: %s", strerror(errno));
	n_found = find_entries("/dev/shm", NULL);
	close(fd);
	shm_unlink(name);
	assert_int_equal(n_found, 1);
}

static void test_no_socket(void **state)
{
	(void)state;
	assert_int_equal(find_sockets(), 0);
}

static void test_sockets_are_found(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char *path = kt_tmpdir_new();
	unsigned int n_found;
	int fd;

	(void)state;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	if (access("/proc/net/unix", R_OK) < 0) {
		close(fd);
		kt_skip("/proc/net/unix cannot be read: %s", strerror(errno));
	}
	n_found = find_sockets();
	close(fd);
	kt_tmpdir_free(path);
	assert_int_equal(n_found, 1);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("no program of this build still runs", test_no_process),
	KT_TEST("a program that runs would be found", test_processes_are_found),
	KT_TEST("no temporary folder is left", test_no_folder),
	KT_TEST("a temporary folder would be found", test_folders_are_found),
	KT_TEST("no shared memory object is left", test_no_shm),
	KT_TEST("a shared memory object would be found", test_shm_is_found),
	KT_TEST("no socket is left", test_no_socket),
	KT_TEST("a socket would be found", test_sockets_are_found),
};

KT_MAIN(tests)
