/*
 * Processes of the demonstration: started by fork, they report over a socket and go on when they
 * are told to. None outlives its parent.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/demo.h"

#define REPORT_S 120

volatile int demo_interrupted;

static void on_signal(int number)
{
	demo_interrupted = number;
}

void demo_signals(bool on)
{
	struct sigaction act = {.sa_handler = on ? on_signal : SIG_DFL};

	sigemptyset(&act.sa_mask);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
}

double demo_now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static const char *role_name(const struct demo_process *process)
{
	static const char *const names[] = {"process alone",
					    "process A",
					    "sampler",
					    "process that asks the daemon",
					    "process that scores a format",
					    "process that drafts",
					    "process with a policy",
					    "process that draws the tree",
					    "process that saves",
					    "process that loads",
					    "process that flips a bit"};

	return process->role == DEMO_PREFILL && process->act == 2 ? "process B" :
								    names[process->role];
}

int demo_spawn(struct demo_process *process, const struct demo_settings *settings,
	       struct errbuf *err)
{
	pid_t parent = getpid();
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return errbuf_errno(err, KV_EINTERNAL, errno, "socketpair");
	fflush(NULL);
	process->pid = fork();
	if (process->pid < 0) {
		process->pid = 0;
		close(fds[0]);
		close(fds[1]);
		return errbuf_errno(err, KV_ENOMEM, errno, "fork");
	}
	if (process->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		demo_signals(false);
		close(fds[0]);
		process->fd = fds[1];
		_exit(getppid() == parent ? demo_play(process, settings) : 1);
	}
	close(fds[1]);
	process->fd = fds[0];
	return 0;
}

int demo_hear(struct demo_process *process, struct errbuf *err)
{
	struct pollfd wait = {.fd = process->fd, .events = POLLIN};
	double end_s = demo_now_s() + REPORT_S;
	ssize_t n;

	while (poll(&wait, 1, 1000) <= 0)
		if (demo_interrupted || demo_now_s() > end_s)
			return errbuf_set(err, demo_interrupted ? KV_ECANCELLED : KV_ETIMEOUT, "%s",
					  demo_interrupted ?
						  "interrupted" :
						  "a process said nothing for two minutes");
	n = recv(process->fd, &process->report, sizeof(process->report), 0);
	if (n != (ssize_t)sizeof(process->report))
		return errbuf_set(err, KV_EINTERNAL, "%s %d ended without a word",
				  role_name(process), (int)process->pid);
	if (!process->report.failed)
		return 0;
	*err = process->report.err;
	errbuf_wrap(err, "%s %d", role_name(process), (int)process->pid);
	return -1;
}

void demo_go_on(struct demo_process *process)
{
	if (send(process->fd, "", 1, MSG_NOSIGNAL) < 0)
		return; /* it has gone: demo_hear() or demo_wait() says so */
}

int demo_wait(struct demo_process *process, struct errbuf *err)
{
	int status;

	while (waitpid(process->pid, &status, 0) < 0)
		if (errno != EINTR)
			return errbuf_errno(err, KV_EINTERNAL, errno, "waitpid");
	close(process->fd);
	process->pid = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return errbuf_set(err, KV_EINTERNAL, "%s ended with status %#x", role_name(process),
			  (unsigned)status);
}

void demo_kill(struct demo_process *process)
{
	struct errbuf err;

	if (process->pid <= 0)
		return;
	kill(process->pid, SIGKILL);
	demo_wait(process, &err);
}

uint64_t demo_pss_bytes(pid_t pid)
{
	unsigned long long kib = 0;
	char line[256], *path = ctl_format("/proc/%d/smaps_rollup", (int)pid);
	FILE *file = fopen(path, "re");

	free(path);
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Pss: %llu kB", &kib) == 1)
			break;
	fclose(file);
	return kib * 1024;
}

void demo_tell(int fd, const struct demo_report *report)
{
	if (send(fd, report, sizeof(*report), MSG_NOSIGNAL) < 0)
		_exit(1);
}

int demo_pause(int fd)
{
	char byte;
	ssize_t n;

	while ((n = recv(fd, &byte, 1, 0)) < 0 && errno == EINTR)
		;
	return n == 1 ? 0 : -1;
}
