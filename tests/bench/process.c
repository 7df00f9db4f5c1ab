/*
 * Groups and their helpers as processes; see bench.h.
 *
 * A group is a child of the program, a helper a child of its group that the kernel kills when the
 * group ends, however it ends.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/group.h"

static const struct bench_group *running;

static void note_rows(const struct bench_group *group, const char *why)
{
	for (size_t i = 0; i < BENCH_GROUP_ROWS && group->rows[i]; i++) {
		struct bench_result *result = bench_result(group->rows[i]);

		if (!result->measured)
			snprintf(result->note, sizeof(result->note), "%s", why);
	}
}

void bench_die(const char *what, ...)
{
	char text[400];
	va_list ap;
	int n;

	va_start(ap, what);
	n = vsnprintf(text, sizeof(text), what, ap);
	va_end(ap);
	if (kvc_error() && n >= 0 && (size_t)n < sizeof(text))
		snprintf(text + n, sizeof(text) - (size_t)n, ": %s", kvc_error_text());
	note_rows(running, text);
	fprintf(stderr, "kvcbench: %s\n", text);
	_exit(1);
}

/* A child dies with its parent, also if that is dead before the child could ask for it. */
static pid_t fork_bound(void)
{
	pid_t parent = getpid();
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	return 0;
}

void bench_group_run(const struct bench_group *group)
{
	int status = 0;
	pid_t pid;

	running = group;
	note_rows(group, "its group ended early");
	pid = fork_bound();
	if (pid == 0) {
		group->fn();
		_exit(0);
	}
	if (pid < 0)
		note_rows(group, strerror(errno));
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		note_rows(group, strsignal(WTERMSIG(status)));
}

struct bench_helper bench_helper_start(void (*fn)(int fd, void *arg), void *arg)
{
	struct bench_helper helper;
	int pair[2];

	BENCH_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	helper.pid = fork_bound();
	BENCH_CHECK(helper.pid >= 0);
	if (helper.pid == 0) {
		close(pair[0]);
		fn(pair[1], arg);
		_exit(0);
	}
	close(pair[1]);
	helper.fd = pair[0];
	return helper;
}

void bench_helper_stop(struct bench_helper *helper)
{
	int status;

	close(helper->fd);
	waitpid(helper->pid, &status, 0);
}

void bench_tell(int fd, uint64_t word)
{
	if (write(fd, &word, sizeof(word)) != sizeof(word))
		bench_die("a process of the group has gone");
}

uint64_t bench_hear(int fd)
{
	uint64_t word;

	if (recv(fd, &word, sizeof(word), MSG_WAITALL) != sizeof(word))
		bench_die("a process of the group has gone");
	return word;
}
