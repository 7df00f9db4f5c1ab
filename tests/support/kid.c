/*
 * Other processes of a test: this program again, as a role (client.h).
 *
 *	PROGRAM --kid ROLE DIR ARG IN OUT PARENT
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/client.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define SAY_MS 10000

void kt_kid_main(int argc, char **argv, const struct kt_role *roles)
{
	if (argc != 8 || strcmp(argv[1], "--kid") != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != atoi(argv[7]))
		_exit(127);
	for (; roles->name; roles++)
		if (strcmp(roles->name, argv[2]) == 0)
			exit(roles->fn(argv[3], argv[4], atoi(argv[5]), atoi(argv[6])));
	fprintf(stderr, "no role %s\n", argv[2]);
	_exit(127);
}

static void run_self(const char *role, const char *dir, const char *arg, int in, int out,
		     int parent)
{
	char numbers[3][16];

	snprintf(numbers[0], sizeof(numbers[0]), "%d", in);
	snprintf(numbers[1], sizeof(numbers[1]), "%d", out);
	snprintf(numbers[2], sizeof(numbers[2]), "%d", parent);
	fcntl(in, F_SETFD, 0);
	fcntl(out, F_SETFD, 0);
	execl("/proc/self/exe", "kid", "--kid", role, dir, arg ? arg : "", numbers[0], numbers[1],
	      numbers[2], NULL);
	_exit(127);
}

void kt_kid_start(struct kt_kid *kid, const char *role, const char *dir, const char *arg)
{
	const pid_t parent = getpid();
	int to[2], from[2];

	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from, O_CLOEXEC), 0);
	kid->pid = fork();
	if (kid->pid == 0)
		run_self(role, dir, arg, to[0], from[1], parent);
	assert_true(kid->pid > 0);
	close(to[0]);
	close(from[1]);
	kid->in = to[1];
	kid->out = from[0];
}

void kt_kid_read(const struct kt_kid *kid, void *bytes, size_t n)
{
	struct pollfd p = {.fd = kid->out, .events = POLLIN};
	char *at = bytes;

	while (n) {
		ssize_t got;

		assert_int_equal(poll(&p, 1, (int)kt_scale_ms(SAY_MS)), 1);
		got = read(kid->out, at, n);
		if (got < 0 && errno == EINTR)
			continue;
		assert_true(got > 0); /* else it ended before it said all */
		at += got;
		n -= (size_t)got;
	}
}

void kt_kid_write(const struct kt_kid *kid, const void *bytes, size_t n)
{
	assert_int_equal(write(kid->in, bytes, n), (ssize_t)n);
}

int kt_kid_wait(struct kt_kid *kid)
{
	int status;

	assert_int_equal(kt_wait_child(kid->pid, SAY_MS, &status), 0);
	close(kid->in);
	close(kid->out);
	kid->pid = 0;
	return status;
}

int kt_kid_kill(struct kt_kid *kid)
{
	kill(kid->pid, SIGKILL);
	return kt_kid_wait(kid);
}
