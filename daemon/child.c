#include "daemon/child.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void close_between(unsigned first, unsigned last)
{
	if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
		return;
	/* A kernel or a filter without the call. */
	for (long fd = first; fd <= (long)last && fd < sysconf(_SC_OPEN_MAX); fd++)
		close((int)fd);
}

static int compare_int(const void *a, const void *b)
{
	int x = *(const int *)a;
	int y = *(const int *)b;

	return (x > y) - (x < y);
}

static void close_others(int *keep, size_t n_keep)
{
	unsigned next = 3;

	qsort(keep, n_keep, sizeof(*keep), compare_int);
	for (size_t i = 0; i < n_keep; i++) {
		if (keep[i] < 3)
			continue;
		if ((unsigned)keep[i] > next)
			close_between(next, (unsigned)keep[i] - 1);
		next = (unsigned)keep[i] + 1;
	}
	close_between(next, UINT_MAX);
}

pid_t child_fork(const char *name, const sigset_t *mask, int *keep, size_t n_keep)
{
	pid_t parent = getpid();
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid > 0)
		return pid;
	prctl(PR_SET_NAME, name);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1); /* it died before the kernel knew what we want */
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGTERM, SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	close_others(keep, n_keep);
	return 0;
}

const char *child_fate(int status, char text[64])
{
	if (WIFSIGNALED(status))
		snprintf(text, 64, "died of signal %d (%.40s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(text, 64, "exited with status %d", WEXITSTATUS(status));
	return text;
}
