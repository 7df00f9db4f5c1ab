/*
 * A private kvcached for the demonstration, and finding the files that it needs: beside this
 * program (a build folder), then where they are installed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/demo.h"

#define READY_MS 10000
#define STOP_S 10

/* The folder of the running program. */
static int own_dir(char path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
	char *slash;

	if (n <= 0)
		return -1;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return -1;
	*slash = '\0';
	return 0;
}

/* The first of the candidates that can be accessed; candidates are freed. */
static int first_of(char path[PATH_MAX], char **candidates, int mode)
{
	bool found = false;

	for (; *candidates; candidates++) {
		if (!found && strlen(*candidates) < PATH_MAX && access(*candidates, mode) == 0) {
			strcpy(path, *candidates);
			found = true;
		}
		free(*candidates);
	}
	return found ? 0 : -1;
}

int demo_find_file(char path[PATH_MAX], const char *name, struct errbuf *err)
{
	const char *dir = getenv("KVC_MODEL_DIR");
	char own[PATH_MAX] = ".", *candidates[7] = {NULL};
	int n = 0;

	own_dir(own);
	if (dir && *dir)
		candidates[n++] = ctl_format("%s/%s", dir, name);
	candidates[n++] = ctl_format("%s/../client/examples/model/%s", own, name);
	candidates[n++] = ctl_format("%s/../../client/examples/model/%s", own, name);
	candidates[n++] = ctl_format("client/examples/model/%s", name);
	candidates[n++] = ctl_format("%s/../share/kvcached/model/%s", own, name);
	candidates[n++] = ctl_format("%s/model/%s", CTL_PKGDATADIR, name);
	if (first_of(path, candidates, R_OK) == 0)
		return 0;
	return errbuf_set(err, KV_ENOTFOUND,
			  "%s is nowhere (looked in KVC_MODEL_DIR, beside the program, %s/model); "
			  "name it by an option",
			  name, CTL_PKGDATADIR);
}

static int find_daemon(char path[PATH_MAX], struct errbuf *err)
{
	char own[PATH_MAX] = ".", *candidates[5] = {NULL};

	own_dir(own);
	candidates[0] = ctl_format("%s/kvcached", own);
	candidates[1] = ctl_format("%s/../kvcached", own);
	candidates[2] = ctl_format("%s/../sbin/kvcached", own);
	candidates[3] = ctl_format("%s/kvcached", CTL_SBINDIR);
	if (first_of(path, candidates, X_OK) == 0)
		return 0;
	return errbuf_set(err, KV_ENOTFOUND,
			  "kvcached is neither beside this program nor in %s; start one and give "
			  "--runtime-dir",
			  CTL_SBINDIR);
}

static void __attribute__((noreturn))
daemon_exec(const struct demo_daemon *daemon, const struct demo_settings *settings, int ready_fd)
{
	char *log = ctl_format("%s/kvcached.log", settings->dir);
	char *dir = ctl_format("--runtime-dir=%s", settings->runtime_dir);
	char *ready = ctl_format("--ready-fd=%d", ready_fd);
	char *disk = ctl_format("--disk-dir=%s/store", settings->dir);
	int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	if (settings->keep)
		setsid();
	else
		prctl(PR_SET_PDEATHSIG, SIGTERM);
	demo_signals(false);
	if (fd >= 0) {
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
	}
	execl(daemon->program, "kvcached", dir, ready, disk, "--disk-bytes=256M",
	      "--preallocate=no", "--pool-bytes=256M", (char *)NULL);
	_exit(127);
}

/* Last line of the daemon's log: why it did not come up. */
static void last_line(const struct demo_settings *settings, char *text, size_t size)
{
	char *path = ctl_format("%s/kvcached.log", settings->dir), line[256];
	FILE *file = fopen(path, "re");

	snprintf(text, size, "it said nothing");
	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		snprintf(text, size, "%.200s", line);
	}
	if (file)
		fclose(file);
	free(path);
}

int demo_daemon_start(struct demo_daemon *daemon, const struct ctl *ctl,
		      const struct demo_settings *settings, struct errbuf *err)
{
	struct pollfd wait = {.events = POLLIN};
	char byte, said[256];
	int fds[2];

	(void)ctl;
	if (find_daemon(daemon->program, err))
		return -1;
	if (pipe(fds))
		return errbuf_errno(err, KV_EINTERNAL, errno, "pipe");
	fcntl(fds[0], F_SETFD, FD_CLOEXEC);
	fflush(NULL);
	daemon->pid = fork();
	if (daemon->pid == 0)
		daemon_exec(daemon, settings, fds[1]);
	close(fds[1]);
	wait.fd = fds[0];
	if (daemon->pid > 0 && poll(&wait, 1, READY_MS) == 1 && read(fds[0], &byte, 1) == 1) {
		close(fds[0]);
		return 0;
	}
	close(fds[0]);
	last_line(settings, said, sizeof(said));
	demo_daemon_stop(daemon);
	return errbuf_set(err, KV_EDAEMON, "%s did not come up: %s", daemon->program, said);
}

void demo_daemon_stop(struct demo_daemon *daemon)
{
	double end_s = demo_now_s() + STOP_S;
	struct timespec pause = {0, 5000000};

	if (daemon->pid <= 0)
		return;
	kill(daemon->pid, SIGTERM);
	while (waitpid(daemon->pid, NULL, WNOHANG) == 0) {
		if (demo_now_s() > end_s)
			kill(daemon->pid, SIGKILL);
		nanosleep(&pause, NULL);
	}
	daemon->pid = 0;
}

static pid_t parent_of(pid_t pid)
{
	char *path = ctl_format("/proc/%d/stat", (int)pid), text[512];
	FILE *file = fopen(path, "re");
	int parent = 0;
	char *end;

	free(path);
	if (!file)
		return 0;
	if (fgets(text, sizeof(text), file) && (end = strrchr(text, ')')))
		if (sscanf(end, ") %*c %d", &parent) != 1)
			parent = 0;
	fclose(file);
	return (pid_t)parent;
}

/* Of a process and all below it: the keeper has a core and a front, the core may have a locker. */
static uint64_t tree_pss_bytes(pid_t pid, int depth)
{
	char *path = ctl_format("/proc/%d/task/%d/children", (int)pid, (int)pid);
	FILE *file = depth ? fopen(path, "re") : NULL;
	uint64_t n_bytes = demo_pss_bytes(pid);
	int child;

	free(path);
	if (!file)
		return n_bytes;
	while (fscanf(file, "%d", &child) == 1)
		n_bytes += tree_pss_bytes((pid_t)child, depth - 1);
	fclose(file);
	return n_bytes;
}

uint64_t demo_daemon_pss_bytes(pid_t core_pid)
{
	pid_t keeper = parent_of(core_pid);

	return tree_pss_bytes(keeper > 1 ? keeper : core_pid, 2);
}

void demo_remove_dir(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char *name = ctl_format("%s/%s", path, entry->d_name);

		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
			if (entry->d_type == DT_DIR)
				demo_remove_dir(name);
			else
				unlink(name);
		}
		free(name);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}
