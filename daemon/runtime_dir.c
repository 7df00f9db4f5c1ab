#include "daemon/runtime_dir.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 512 /* connects that wait while the core starts */

static const char *advice(int errno_value)
{
	switch (errno_value) {
	case EROFS: return "; the file system is read-only: choose another with --runtime-dir";
	case ENOENT:
		return "; make its parent directory first, or choose another with --runtime-dir";
	case EACCES:
	case EPERM: return "; give this user write access, or choose another with --runtime-dir";
	case ENOSPC: return "; make room there, or choose another with --runtime-dir";
	default: return "";
	}
}

static int fail(struct errbuf *err, int errno_value, const char *what, const char *path)
{
	return errbuf_set(err, errno_value == EACCES || errno_value == EPERM ? KV_EPERM : KV_EINVAL,
			  "%s %s: %s%s", what, path, strerror(errno_value), advice(errno_value));
}

static int make_dir(const char *path, const struct settings *settings, struct errbuf *err)
{
	mode_t mode = (settings->socket_mode & 0066) != 0 ? 0755 : 0700;

	if (mkdir(path, 0700) != 0)
		return errno == EEXIST ? 0 :
					 fail(err, errno, "cannot make runtime directory", path);
	if (chmod(path, mode) != 0)
		return fail(err, errno, "cannot set the mode of runtime directory", path);
	return 0;
}

/* Whoever may write into the directory may put his own socket in place of ours. */
static int check_dir(const char *path, struct errbuf *err)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return fail(err, errno, "cannot use runtime directory", path);
	if (!S_ISDIR(st.st_mode))
		return fail(err, ENOTDIR, "cannot use runtime directory", path);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return errbuf_set(err, KV_EPERM,
				  "runtime directory %s belongs to uid %u, not to us (%u) or root: "
				  "choose another with --runtime-dir",
				  path, st.st_uid, geteuid());
	if ((st.st_mode & 0022) != 0)
		return errbuf_set(err, KV_EPERM,
				  "runtime directory %s can be written by others (mode %04o): "
				  "chmod go-w it, or choose another with --runtime-dir",
				  path, st.st_mode & 07777);
	return 0;
}

static int take_lock(struct runtime_dir *dir, struct errbuf *err)
{
	char pid[32];
	ssize_t n;

	dir->lock_fd = open(dir->paths.lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (dir->lock_fd < 0)
		return fail(err, errno, "cannot open the lock", dir->paths.lock);
	if (flock(dir->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK)
		return fail(err, errno, "cannot lock", dir->paths.lock);
	n = pread(dir->lock_fd, pid, sizeof(pid) - 1, 0);
	pid[n > 0 ? n : 0] = '\0';
	pid[strcspn(pid, "\n")] = '\0';
	close(dir->lock_fd);
	dir->lock_fd = -1;
	return errbuf_set(
		err, KV_EBUSY,
		"another kvcached (pid %s) serves %s; stop it, or choose another directory "
		"with --runtime-dir",
		pid[0] ? pid : "unknown", dir->paths.dir);
}

/* For people and for the message above; the lock is the flock, not the number. */
static int note_pid(const struct runtime_dir *dir, struct errbuf *err)
{
	char pid[32];
	int n = snprintf(pid, sizeof(pid), "%d\n", getpid());

	if (ftruncate(dir->lock_fd, 0) != 0 || pwrite(dir->lock_fd, pid, (size_t)n, 0) != n)
		return fail(err, errno, "cannot write to", dir->paths.lock);
	return 0;
}

static int remove_socket(const char *path, struct errbuf *err)
{
	if (unlink(path) != 0 && errno != ENOENT)
		return fail(err, errno, "cannot remove the stale socket", path);
	return 0;
}

static int remove_sockets(const struct runtime_dir *dir, struct errbuf *err)
{
	int rc = remove_socket(dir->paths.attach, err);

	rc |= remove_socket(dir->paths.command, err);
	return rc | remove_socket(dir->paths.event, err);
}

int runtime_dir_take(struct runtime_dir *dir, const struct settings *settings, struct errbuf *err)
{
	dir->lock_fd = -1;
	if (kv_runtime_paths(&dir->paths, settings->runtime_dir, err) != 0 ||
	    make_dir(dir->paths.dir, settings, err) != 0 || check_dir(dir->paths.dir, err) != 0 ||
	    take_lock(dir, err) != 0)
		return -1;
	if (note_pid(dir, err) != 0 || remove_sockets(dir, err) != 0) {
		close(dir->lock_fd);
		dir->lock_fd = -1;
		return -1;
	}
	return 0;
}

void runtime_dir_release(struct runtime_dir *dir)
{
	if (dir->lock_fd < 0)
		return;
	remove_sockets(dir, NULL);
	close(dir->lock_fd);
	dir->lock_fd = -1;
}

int runtime_dir_open_socket(const char *path, const struct settings *settings, struct errbuf *err)
{
	const struct group *group;

	if (settings->socket_group[0]) {
		group = getgrnam(settings->socket_group);
		if (!group)
			return errbuf_set(err, KV_EINVAL,
					  "socket_group = %s: there is no such group",
					  settings->socket_group);
		if (chown(path, (uid_t)-1, group->gr_gid) != 0)
			return errbuf_errno(err, KV_EPERM, errno,
					    "cannot give %s to group %s (are we in it?)", path,
					    settings->socket_group);
	}
	if (chmod(path, settings->socket_mode) != 0)
		return fail(err, errno, "cannot set the mode of", path);
	return 0;
}

int runtime_dir_listen(const struct runtime_dir *dir, const struct settings *settings,
		       struct errbuf *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	mode_t mask;
	int rc;
	int fd;

	static_assert(sizeof(address.sun_path) == KV_SOCKET_PATH_MAX + 1, "limit of the system");
	memcpy(address.sun_path, dir->paths.attach, strlen(dir->paths.attach));
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return errbuf_errno(err, KV_EINTERNAL, errno, "socket");
	mask = umask(0177);
	rc = bind(fd, (const struct sockaddr *)&address, sizeof(address));
	umask(mask);
	if (rc != 0) {
		fail(err, errno, "cannot bind", dir->paths.attach);
		goto fail;
	}
	if (runtime_dir_open_socket(dir->paths.attach, settings, err) != 0)
		goto fail;
	if (listen(fd, BACKLOG) != 0) {
		fail(err, errno, "cannot listen on", dir->paths.attach);
		goto fail;
	}
	return fd;
fail:
	close(fd);
	return -1;
}
