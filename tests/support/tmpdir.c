/*
 * Private folders for tests; see tmpdir.h.
 *
 * Failure modes: a folder that cannot be made aborts the program, for no test
 * can go on without it. Thread: that of the runner and the test.
 */
#include "tests/support/tmpdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];
static int root_fd = -1;

/* Two builds on one machine must not take each other's things for leftovers. */
static uint16_t build_hash(void)
{
	const char *text = getenv("top_builddir");
	char cwd[PATH_MAX];
	uint32_t hash = 2166136261U;

	if (!text)
		text = getcwd(cwd, sizeof(cwd));
	for (; text && *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619U;
	return (uint16_t)(hash ^ (hash >> 16));
}

const char *kt_name_prefix(void)
{
	static char prefix[32];

	if (!prefix[0])
		snprintf(prefix, sizeof(prefix), "kvcached-test-%04x-", build_hash());
	return prefix;
}

static int make_enterable(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (flag == FTW_D || flag == FTW_DNR)
		chmod(path, 0700);
	return 0;
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	if (remove(path) < 0)
		fprintf(stderr, "cannot remove %s: %s\n", path, strerror(errno));
	return 0;
}

void kt_remove_tree(const char *path)
{
	nftw(path, make_enterable, 16, FTW_PHYS | FTW_MOUNT);
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* A root is locked by the supervisor that made it, so one without a lock has lost it. */
static int lock_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* What a killed run left must not make this one fail. */
static void remove_lost_roots(void)
{
	DIR *dir = opendir("/tmp");
	struct dirent *entry;
	char prefix[64];
	char path[512];

	snprintf(prefix, sizeof(prefix), "%sroot-", kt_name_prefix());
	while (dir && (entry = readdir(dir))) {
		int fd;

		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		snprintf(path, sizeof(path), "/tmp/%s", entry->d_name);
		fd = lock_folder(path);
		if (fd >= 0) {
			kt_remove_tree(path);
			close(fd);
		}
	}
	if (dir)
		closedir(dir);
}

void kt_tmproot_make(void)
{
	remove_lost_roots();
	do {
		snprintf(root, sizeof(root), "/tmp/%sroot-XXXXXX", kt_name_prefix());
		if (!mkdtemp(root)) {
			printf("Bail out! cannot make %s: %s\n", root, strerror(errno));
			exit(1);
		}
		/* Another program may have taken it for a lost one just now. */
		root_fd = lock_folder(root);
	} while (root_fd < 0);
}

char *kt_tmpdir_new(void)
{
	static unsigned int n_made;
	char *path = NULL;

	if (!root[0] || asprintf(&path, "%s/%u-XXXXXX", root, n_made++) < 0 || !mkdtemp(path)) {
		fprintf(stderr, "cannot make a folder in '%s': %s\n", root, strerror(errno));
		abort();
	}
	return path;
}

void kt_tmpdir_free(char *path)
{
	if (path)
		kt_remove_tree(path);
	free(path);
}

void kt_tmproot_leave(void)
{
	if (root_fd >= 0)
		close(root_fd);
	root_fd = -1;
}

void kt_tmproot_remove(void)
{
	if (root[0])
		kt_remove_tree(root);
	root[0] = '\0';
	kt_tmproot_leave();
}
