/*
 * Starting and stopping a private kvcached; see daemon.h.
 *
 * The daemon writes a newline to the pipe --ready-fd when it serves; an end of the pipe without
 * one says that it has ended. The keeper's children are found in /proc by parent and name.
 */
#include "tests/support/daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

#define ARGUMENTS_MAX 32
#define READY_MS 20000
#define SUCCESSOR_MS 5000
#define STOP_MS 10000
#define FIRST_FD 3 /* of those that are handed over; the ready pipe comes behind them */
#define PROGRAM_FD_MIN 100

struct kt_daemon {
	pid_t pid; /* 0: was waited for */
	int status;
	int ready_fd; /* -1: read already */
	bool ready;
	char *own_dir; /* NULL: the caller's folder */
	char *dir;
};

static const char *program(void)
{
	static char path[4096];
	const char *named = getenv("KVCACHED");
	const char *builddir = getenv("top_builddir");

	if (named)
		return named;
	snprintf(path, sizeof(path), "%s/kvcached", builddir ? builddir : ".");
	return path;
}

/* Above the descriptors that the child moves things to. */
static int open_program(size_t n_fds)
{
	const int fd = open(program(), O_PATH | O_CLOEXEC);
	const int high_fd = fcntl(fd, F_DUPFD_CLOEXEC, PROGRAM_FD_MIN + 2 * (int)n_fds);

	if (high_fd < 0) {
		fprintf(stderr, "cannot open %s: %s\n", program(), strerror(errno));
		abort();
	}
	close(fd);
	return high_fd;
}

/* In the child: fds[n], a copy of each, as descriptors from `first` on. */
static void move_fds(const int *fds, size_t n, int first)
{
	int *high = calloc(n + 1, sizeof(*high));

	for (size_t i = 0; high && i < n; i++)
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, first + (int)n);
	for (size_t i = 0; high && i < n; i++)
		dup2(high[i], first + (int)i);
	free(high);
}

/*
 * In the child: what is handed over, then the pipe, and no other descriptor of the test's but the
 * standard ones. As another user the program may lie beyond a folder that is closed to us: then by
 * its descriptor.
 */
static void run_program(const struct kt_daemon_start *start, const char *dir, int ready_fd,
			int program_fd, pid_t parent)
{
	const int last_fd = FIRST_FD + (int)start->n_fds;
	char ready[16];
	const char *argv[ARGUMENTS_MAX + 8] = {program(), "--runtime-dir", dir,   "--pool-bytes",
					       "64M",     "--ready-fd",    ready, NULL};
	size_t n = 7;

	for (const char *const *a = start->arguments; a && *a && n < ARGUMENTS_MAX; a++)
		argv[n++] = *a;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	snprintf(ready, sizeof(ready), "%d", last_fd);
	ready_fd = fcntl(ready_fd, F_DUPFD_CLOEXEC, last_fd + (int)start->n_fds + 1);
	move_fds(start->fds, start->n_fds, FIRST_FD);
	dup2(ready_fd, last_fd);
	close_range((unsigned int)last_fd + 1, (unsigned int)program_fd - 1, 0);
	close_range((unsigned int)program_fd + 1, ~0U, 0);
	execv(argv[0], (char *const *)argv);
	if (errno == EACCES)
		fexecve(program_fd, (char *const *)argv, environ);
	fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

struct kt_daemon *kt_daemon_spawn(const char *dir, const char *const *arguments)
{
	return kt_daemon_spawn_as(&(struct kt_daemon_start){.dir = dir, .arguments = arguments});
}

void kt_daemon_core_dies(void *most)
{
	if (most)
		setenv("KVC_CORE_FAULT_MAX", most, 1);
}

struct kt_daemon *kt_daemon_spawn_prepared(const char *dir, const char *const *arguments,
					   void (*prepare)(void *arg), void *arg)
{
	return kt_daemon_spawn_as(&(struct kt_daemon_start){
		.dir = dir, .arguments = arguments, .prepare = prepare, .arg = arg});
}

struct kt_daemon *kt_daemon_spawn_as(const struct kt_daemon_start *start)
{
	struct kt_daemon *daemon = calloc(1, sizeof(*daemon));
	const pid_t parent = getpid();
	int pipe_fds[2], program_fd;

	if (!daemon || pipe2(pipe_fds, O_CLOEXEC) < 0)
		abort();
	program_fd = open_program(start->n_fds);
	daemon->own_dir = start->dir ? NULL : kt_tmpdir_new();
	daemon->dir = strdup(start->dir ? start->dir : daemon->own_dir);
	daemon->ready_fd = pipe_fds[0];
	daemon->pid = fork();
	if (daemon->pid < 0)
		abort();
	if (daemon->pid == 0 && start->prepare)
		start->prepare(start->arg);
	if (daemon->pid == 0)
		run_program(start, daemon->dir, pipe_fds[1], program_fd, parent);
	close(pipe_fds[1]);
	close(program_fd);
	return daemon;
}

bool kt_daemon_wait_ready(struct kt_daemon *daemon)
{
	struct pollfd p = {.fd = daemon->ready_fd, .events = POLLIN};
	char byte;

	if (daemon->ready_fd < 0)
		return daemon->ready;
	if (poll(&p, 1, (int)kt_scale_ms(READY_MS)) > 0)
		daemon->ready = read(daemon->ready_fd, &byte, 1) == 1;
	close(daemon->ready_fd);
	daemon->ready_fd = -1;
	return daemon->ready;
}

struct kt_daemon *kt_daemon_start(const char *const *arguments)
{
	struct kt_daemon *daemon = kt_daemon_spawn(NULL, arguments);

	if (kt_daemon_wait_ready(daemon))
		return daemon;
	fprintf(stderr, "%s did not come up\n", program());
	kt_daemon_stop(daemon);
	return NULL;
}

const char *kt_daemon_dir(const struct kt_daemon *daemon)
{
	return daemon->dir;
}

/* ---- processes --------------------------------------------------------------------------- */

pid_t kt_daemon_keeper(const struct kt_daemon *daemon)
{
	return daemon->pid;
}

/* Is it a live child of parent whose name ends so? */
static bool is_child(pid_t pid, pid_t parent, const char *name_end)
{
	char path[64];
	char text[512] = "";
	char *open, *close_;
	char state;
	int ppid;
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = '\0';
	open = strchr(text, '(');
	close_ = strrchr(text, ')');
	if (!open || !close_ || sscanf(close_ + 1, " %c %d", &state, &ppid) != 2)
		return false;
	*close_ = '\0';
	n = strlen(open + 1);
	return ppid == parent && state != 'Z' && n >= strlen(name_end) &&
	       strcmp(open + 1 + n - strlen(name_end), name_end) == 0;
}

static pid_t find_child(pid_t parent, const char *name_end)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	pid_t found = 0;

	while (proc && parent && !found && (entry = readdir(proc))) {
		const pid_t pid = atoi(entry->d_name);

		if (pid > 0 && is_child(pid, parent, name_end))
			found = pid;
	}
	if (proc)
		closedir(proc);
	return found;
}

struct succession {
	const struct kt_daemon *daemon;
	const char *name_end;
	pid_t old;
};

static bool has_successor(void *arg)
{
	const struct succession *s = arg;
	const pid_t pid = find_child(s->daemon->pid, s->name_end);

	return pid != 0 && pid != s->old;
}

/* One that has just died is being replaced. */
static pid_t child_now(const struct kt_daemon *daemon, const char *name_end)
{
	struct succession s = {daemon, name_end, 0};

	if (daemon->pid)
		kt_wait_until(has_successor, &s, SUCCESSOR_MS);
	return find_child(daemon->pid, name_end);
}

pid_t kt_daemon_core(const struct kt_daemon *daemon)
{
	return child_now(daemon, "core");
}

pid_t kt_daemon_front(const struct kt_daemon *daemon)
{
	return child_now(daemon, "front");
}

pid_t kt_daemon_locker(const struct kt_daemon *daemon)
{
	return find_child(find_child(daemon->pid, "core"), "lock");
}

static int kill_child(const struct kt_daemon *daemon, const char *name_end)
{
	struct succession s = {daemon, name_end, find_child(daemon->pid, name_end)};

	if (s.old == 0 || kill(s.old, SIGKILL) < 0)
		return -1;
	return kt_wait_until(has_successor, &s, SUCCESSOR_MS) ? 0 : -1;
}

int kt_daemon_kill_core(const struct kt_daemon *daemon)
{
	return kill_child(daemon, "core");
}

int kt_daemon_kill_front(const struct kt_daemon *daemon)
{
	return kill_child(daemon, "front");
}

/* ---- the end ----------------------------------------------------------------------------- */

int kt_daemon_wait_end(struct kt_daemon *daemon, int ms)
{
	if (daemon->pid && kt_wait_child(daemon->pid, ms, &daemon->status) != 0)
		return -1;
	daemon->pid = 0;
	return daemon->status;
}

int kt_daemon_stop(struct kt_daemon *daemon)
{
	int status;

	if (!daemon)
		return 0;
	if (daemon->pid)
		kill(daemon->pid, SIGTERM);
	status = kt_daemon_wait_end(daemon, STOP_MS);
	if (status == -1 && daemon->pid) {
		kill(daemon->pid, SIGKILL);
		kt_daemon_wait_end(daemon, STOP_MS);
	}
	if (daemon->ready_fd >= 0)
		close(daemon->ready_fd);
	kt_tmpdir_free(daemon->own_dir);
	free(daemon->dir);
	free(daemon);
	return status;
}
