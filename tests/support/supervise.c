/*
 * The parent half of the runner: TAP out of what a child reports and prints.
 *
 * Promise: every test gets exactly one TAP line, also when the child dies or
 * hangs in it; the plan comes last. Happy path: fork, read records and output
 * until the child has finished, wait until every descendant is gone. Failure
 * modes: the child dies (the running test failed, a new child goes on behind
 * it), hangs (it is aborted, then killed), leaves processes (one more failed
 * test that names them; they are killed). Output of tests becomes comments; the
 * chatter of cmocka is dropped.
 * Invariant: when kt_supervise() returns, this process has no children.
 * Thread: the only one.
 */
#include "tests/support/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

#define ABORT_GRACE_MS 2000
#define LEFTOVER_GRACE_MS 3000
#define LIMIT_DEFAULT_S 120

struct supervisor {
	const char *const *names;
	size_t n_tests;
	size_t next;    /* the first test without a verdict */
	size_t running; /* the index that was started; SIZE_MAX between tests */
	unsigned int n_lines;
	unsigned int n_failed;
	pid_t child;
	int status; /* of the child, once it is gone */
	bool child_gone;
	bool finished;
	bool hung;
	int output_fd;
	int record_fd;
	int signal_fd;
	int64_t started_ms;
	size_t line_len;
	char line[4096];
};

/* A '#' would begin a directive and a line feed another line: neither may be in a name. */
static void put_text(const char *text)
{
	for (; *text; text++)
		putchar(*text == '#' || *text == '\n' ? ' ' : *text);
}

void kt_tap_line(unsigned int number, const char *name, const struct kt_record *record)
{
	printf("%s %u - ", record->verdict == KT_FAILED ? "not ok" : "ok", number);
	put_text(name);
	if (record->verdict == KT_SKIPPED) {
		fputs(" # SKIP ", stdout);
		put_text(record->text);
	}
	putchar('\n');
	fflush(stdout);
}

static bool is_chatter(const char *line)
{
	static const char *const chatter[] = {
		"[==========]", "[ RUN      ]", "[       OK ]",      "[  PASSED  ]",
		"[  FAILED  ]", "[  SKIPPED ]", " 1 FAILED TEST(S)", " 1 SKIPPED TEST(S)",
	};

	for (size_t i = 0; i < sizeof(chatter) / sizeof(chatter[0]); i++)
		if (strncmp(line, chatter[i], strlen(chatter[i])) == 0)
			return true;
	return line[0] == '\0';
}

static void line_flush(struct supervisor *s)
{
	static const char *const prefixes[] = {"[  ERROR   ] --- ", "[   LINE   ] --- "};
	const char *line = s->line;

	s->line[s->line_len] = '\0';
	s->line_len = 0;
	if (is_chatter(line))
		return;
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(line, prefixes[i], strlen(prefixes[i])) == 0)
			line += strlen(prefixes[i]);
	printf("# %s\n", line);
}

static void drain_output(struct supervisor *s)
{
	char buf[4096];
	ssize_t n;

	while ((n = read(s->output_fd, buf, sizeof(buf))) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			if (buf[i] == '\n' || s->line_len == sizeof(s->line) - 1)
				line_flush(s);
			if (buf[i] != '\n')
				s->line[s->line_len++] = buf[i] ? buf[i] : ' ';
		}
	}
}

static void verdict(struct supervisor *s, const char *name, const struct kt_record *record)
{
	drain_output(s);
	if (s->line_len)
		line_flush(s);
	kt_tap_line(++s->n_lines, name, record);
	if (record->verdict == KT_FAILED)
		s->n_failed++;
}

static void drain_records(struct supervisor *s)
{
	struct kt_record record;

	while (recv(s->record_fd, &record, sizeof(record), 0) == (ssize_t)sizeof(record)) {
		record.text[sizeof(record.text) - 1] = '\0';
		if (record.verdict == KT_STARTED) {
			s->running = record.index;
			s->started_ms = kt_now_ms();
		} else if (record.verdict == KT_FINISHED) {
			s->finished = true;
			s->running = SIZE_MAX;
		} else if (record.index < s->n_tests) {
			verdict(s, s->names[record.index], &record);
			s->next = record.index + 1;
			s->running = SIZE_MAX;
		}
	}
}

/* Reaps the child and every descendant that came to us. Returns whether any is left. */
static bool reap(struct supervisor *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == s->child) {
			s->child_gone = true;
			s->status = status;
		}
	}
	return pid == 0;
}

static bool has_no_children(void *arg)
{
	return !reap(arg);
}

/* Calls fn(pid) for each of our children; in what order does not matter. */
static void for_each_child(void (*fn)(struct supervisor *s, pid_t pid), struct supervisor *s)
{
	char path[64];
	FILE *list;
	int pid;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	list = fopen(path, "re");
	if (!list) {
		if (s->child > 0 && !s->child_gone)
			fn(s, s->child);
		return;
	}
	while (fscanf(list, "%d", &pid) == 1)
		fn(s, pid);
	fclose(list);
}

static void kill_child(struct supervisor *s, pid_t pid)
{
	(void)s;
	kill(pid, SIGKILL);
}

static void name_child(struct supervisor *s, pid_t pid)
{
	char path[64];
	char comm[64] = "";
	FILE *file;

	(void)s;
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	file = fopen(path, "re");
	if (file) {
		if (!fgets(comm, sizeof(comm), file))
			comm[0] = '\0';
		comm[strcspn(comm, "\n")] = '\0';
		fclose(file);
	}
	printf("# left running: %d %s\n", (int)pid, comm);
}

/* Killing one hands its children to us, so it takes as many rounds as they are deep. */
static void kill_all(struct supervisor *s)
{
	while (reap(s)) {
		for_each_child(kill_child, s);
		kt_wait_until(has_no_children, s, 20);
	}
}

static void handle_signals(struct supervisor *s)
{
	struct signalfd_siginfo info;

	while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			continue;
		kill_all(s);
		kt_tmproot_remove();
		_exit(128 + (int)info.ssi_signo);
	}
	reap(s);
}

static int64_t limit_ms(void)
{
	const char *text = getenv("KT_TEST_LIMIT_S");
	const long limit_s = text ? atol(text) : 0;

	return limit_s > 0 ? limit_s * 1000 : kt_scale_ms(LIMIT_DEFAULT_S * 1000);
}

static void watch_time(struct supervisor *s)
{
	const int64_t ran_ms = kt_now_ms() - s->started_ms;

	if (s->running == SIZE_MAX || ran_ms < limit_ms())
		return;
	if (!s->hung) {
		s->hung = true;
		kill(s->child, SIGABRT);
	} else if (ran_ms > limit_ms() + ABORT_GRACE_MS) {
		kill(s->child, SIGKILL);
	}
}

static void listen_to_child(struct supervisor *s)
{
	struct pollfd fds[] = {
		{.fd = s->record_fd, .events = POLLIN},
		{.fd = s->output_fd, .events = POLLIN},
		{.fd = s->signal_fd, .events = POLLIN},
	};

	while (!s->child_gone) {
		/* A closed end is readable for ever: stop asking for it. */
		for (size_t i = 0; i < 2; i++)
			if ((fds[i].revents & POLLHUP) && !(fds[i].revents & POLLIN))
				fds[i].fd = -1;
		if (poll(fds, 3, 100) < 0 && errno != EINTR)
			break;
		drain_output(s);
		drain_records(s);
		handle_signals(s);
		watch_time(s);
	}
	drain_records(s);
	drain_output(s);
}

static void say_how_it_died(const struct supervisor *s)
{
	if (s->hung)
		printf("# hung for %lld ms and was killed\n", (long long)limit_ms());
	else if (WIFSIGNALED(s->status))
		printf("# died of signal %d (%s)\n", WTERMSIG(s->status),
		       strsignal(WTERMSIG(s->status)));
	else
		printf("# ended the process with status %d\n", WEXITSTATUS(s->status));
}

/* The child is gone: settle the test it was in, and what it left behind. */
static void settle(struct supervisor *s)
{
	const struct kt_record failed = {.verdict = KT_FAILED};

	if (!s->finished) {
		const bool in_test = s->running < s->n_tests;

		drain_output(s);
		say_how_it_died(s);
		verdict(s, in_test ? s->names[s->running] : "the program lives to its end",
			&failed);
		s->next = in_test ? s->running + 1 : s->n_tests;
	} else if (s->status != 0) {
		say_how_it_died(s);
		verdict(s, "the program leaves with status 0", &failed);
	} else if (!kt_wait_until(has_no_children, s, LEFTOVER_GRACE_MS)) {
		for_each_child(name_child, s);
		verdict(s, "no process is left behind", &failed);
	}
	kill_all(s);
	drain_output(s);
}

static void become_child(int output, int record, const sigset_t *mask, pid_t parent)
{
	int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	dup2(null_fd, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	setvbuf(stdout, NULL, _IOLBF, 0);
	fcntl(record, F_SETFD, FD_CLOEXEC);
	sigprocmask(SIG_SETMASK, mask, NULL);
}

/* One life of a child: from test s->next on. */
static int run_child(struct supervisor *s, const sigset_t *mask,
		     void (*child)(size_t from, int record_fd, void *arg), void *arg)
{
	const pid_t parent = getpid();
	int record[2];
	int output[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, record) < 0)
		return -errno;
	if (pipe2(output, O_CLOEXEC) < 0) {
		close(record[0]);
		close(record[1]);
		return -errno;
	}
	fflush(stdout);
	s->child_gone = s->finished = s->hung = false;
	s->running = SIZE_MAX;
	s->child = fork();
	if (s->child == 0) {
		close(record[0]);
		close(output[0]);
		close(s->signal_fd);
		kt_tmproot_leave();
		become_child(output[1], record[1], mask, parent);
		child(s->next, record[1], arg);
		exit(0);
	}
	close(record[1]);
	close(output[1]);
	fcntl(record[0], F_SETFL, O_NONBLOCK);
	fcntl(output[0], F_SETFL, O_NONBLOCK);
	s->record_fd = record[0];
	s->output_fd = output[0];
	if (s->child > 0) {
		listen_to_child(s);
		settle(s);
	}
	close(record[0]);
	close(output[0]);
	return s->child > 0 ? 0 : -EAGAIN;
}

unsigned int kt_supervise(const char *const *names, size_t n_tests,
			  void (*child)(size_t from, int record_fd, void *arg), void *arg)
{
	struct supervisor s = {.names = names, .n_tests = n_tests};
	sigset_t mask;
	sigset_t old;
	int rc = 0;

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, &old);
	s.signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	while (s.next < n_tests && rc == 0)
		rc = run_child(&s, &old, child, arg);
	if (rc != 0) {
		printf("Bail out! cannot start a child: %s\n", strerror(-rc));
		s.n_failed++;
	}
	printf("1..%u\n", s.n_lines);
	fflush(stdout);
	close(s.signal_fd);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return s.n_failed;
}
