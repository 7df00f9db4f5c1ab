#include "offload/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "proto/fault.h"

int whole_file_pwrite(int fd, const void *bytes, size_t n_bytes, uint64_t off)
{
	const char *at = bytes;

	while (n_bytes) {
		ssize_t n = pwrite(fd, at, n_bytes, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		at += n;
		off += (uint64_t)n;
		n_bytes -= (size_t)n;
	}
	return 0;
}

ssize_t whole_file_pread(int fd, void *bytes, size_t n_bytes, uint64_t off)
{
	char *at = bytes;
	size_t done = 0;

	while (done < n_bytes) {
		ssize_t n = pread(fd, at + done, n_bytes - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* ---- writing ------------------------------------------------------------------------------ */

static int write_beside(int dir_fd, const char *temp, const void *bytes, size_t n_bytes)
{
	int rc, fd;

	if (unlinkat(dir_fd, temp, 0) && errno != ENOENT)
		return -errno;
	KV_FAULT_POINT();
	fd = openat(dir_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	KV_FAULT_POINT();
	rc = whole_file_pwrite(fd, bytes, n_bytes, 0);
	KV_FAULT_POINT();
	if (!rc && fsync(fd))
		rc = -errno;
	KV_FAULT_POINT();
	if (close(fd) && !rc)
		rc = -errno;
	return rc;
}

static int sync_folder(int dir_fd)
{
	int rc;

	KV_FAULT_POINT();
	rc = fsync(dir_fd) ? -errno : 0;
	KV_FAULT_POINT();
	return rc;
}

int whole_file_write(int dir_fd, const char *name, const void *bytes, size_t n_bytes,
		     bool *is_there)
{
	char temp[NAME_MAX + 1];
	int rc;

	*is_there = false;
	if ((size_t)snprintf(temp, sizeof(temp), "%s" WHOLE_FILE_TEMP, name) >= sizeof(temp))
		return -ENAMETOOLONG;
	rc = write_beside(dir_fd, temp, bytes, n_bytes);
	if (!rc && renameat(dir_fd, temp, dir_fd, name))
		rc = -errno;
	if (rc) {
		unlinkat(dir_fd, temp, 0);
		return rc;
	}
	*is_there = true;
	return sync_folder(dir_fd);
}

int whole_file_set_aside(int dir_fd, const char *name)
{
	char aside[NAME_MAX + 1];

	if ((size_t)snprintf(aside, sizeof(aside), "%s" WHOLE_FILE_ASIDE, name) >= sizeof(aside))
		return -ENAMETOOLONG;
	KV_FAULT_POINT();
	if (renameat(dir_fd, name, dir_fd, aside))
		return -errno;
	return sync_folder(dir_fd);
}

int whole_file_remove(int dir_fd, const char *name, bool *is_gone)
{
	*is_gone = false;
	KV_FAULT_POINT();
	if (unlinkat(dir_fd, name, 0) && errno != ENOENT)
		return -errno;
	*is_gone = true;
	return sync_folder(dir_fd);
}

bool whole_file_ends(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);

	return n > m && strcmp(name + n - m, end) == 0;
}

DIR *whole_file_list(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int error = errno;

	if (!dir && fd >= 0)
		close(fd);
	errno = error;
	return dir;
}

int whole_file_sweep(int dir_fd)
{
	DIR *dir = whole_file_list(dir_fd);
	int rc = 0;

	if (!dir)
		return -errno;
	for (struct dirent *entry; (entry = readdir(dir));)
		if (whole_file_ends(entry->d_name, WHOLE_FILE_TEMP) &&
		    unlinkat(dir_fd, entry->d_name, 0))
			rc = -errno;
	closedir(dir);
	return rc;
}

/* ---- reading ------------------------------------------------------------------------------ */

int whole_file_read(int dir_fd, const char *name, size_t n_max, void **bytes, size_t *n_bytes)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc = 0;
	struct stat st;
	ssize_t n;

	*bytes = NULL;
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		rc = -errno;
	else if (!S_ISREG(st.st_mode))
		rc = -EINVAL;
	else if ((uint64_t)st.st_size > n_max)
		rc = -EFBIG;
	else if (!(*bytes = malloc((size_t)st.st_size + 1)))
		rc = -ENOMEM;
	if (!rc) {
		n = whole_file_pread(fd, *bytes, (size_t)st.st_size, 0);
		*n_bytes = n < 0 ? 0 : (size_t)n;
		rc = n < 0 ? (int)n : 0;
	}
	if (rc) {
		free(*bytes);
		*bytes = NULL;
	}
	close(fd);
	return rc;
}

bool whole_file_is_damaged(int rc)
{
	return rc == -EIO || rc == -EFBIG || rc == -ELOOP || rc == -EINVAL;
}

/* ---- heads -------------------------------------------------------------------------------- */

static uint64_t checksum_of(const struct store_head *head, const void *body)
{
	return XXH64(body, head->n_bytes, XXH64(head, offsetof(struct store_head, checksum), 0));
}

void store_head_seal(struct store_head *head, uint64_t magic, const void *body, size_t n_bytes)
{
	*head = (struct store_head){.magic = magic, .version = STORE_VERSION, .n_bytes = n_bytes};
	store_head_reseal(head, body);
}

void store_head_reseal(struct store_head *head, const void *body)
{
	head->checksum = checksum_of(head, body);
}

int store_head_check(const void *bytes, size_t n_bytes, uint64_t magic, struct errbuf *err)
{
	struct store_head head;

	if (n_bytes < sizeof(head))
		return errbuf_set(err, KV_ECORRUPT, "it ends after %zu bytes, in its head",
				  n_bytes);
	memcpy(&head, bytes, sizeof(head));
	if (head.magic != magic)
		return errbuf_set(err, KV_ECORRUPT, "it begins with something else");
	if (head.n_bytes > n_bytes - sizeof(head))
		return errbuf_set(err, KV_ECORRUPT, "it ends after %zu of %llu bytes",
				  n_bytes - sizeof(head), (unsigned long long)head.n_bytes);
	if (head.checksum != checksum_of(&head, (const char *)bytes + sizeof(head)))
		return errbuf_set(err, KV_ECORRUPT, "its bytes do not give its checksum");
	if (head.version != STORE_VERSION)
		return errbuf_set(err, KV_EVERSION,
				  "it was written by version %u, this one knows version %u; use "
				  "the program that wrote it, or another folder",
				  head.version, STORE_VERSION);
	return 0;
}
