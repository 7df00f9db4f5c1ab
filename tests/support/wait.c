/*
 * Waiting for a condition with a deadline; see wait.h.
 *
 * The pause between two questions grows from 50 us to 5 ms: quick conditions
 * are seen at once, slow ones cost no processor. Any thread.
 */
#include "tests/support/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

#define PAUSE_MIN_NS 50000L
#define PAUSE_MAX_NS 5000000L

int64_t kt_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t kt_scale_ms(int64_t ms)
{
	const char *text = getenv("KT_TIME_SCALE");
	const long scale = text ? atol(text) : 1;

	return scale > 0 ? ms * scale : ms;
}

bool kt_wait_until(bool (*fn)(void *arg), void *arg, int64_t ms)
{
	const int64_t deadline_ms = kt_now_ms() + kt_scale_ms(ms);
	struct timespec pause = {.tv_nsec = PAUSE_MIN_NS};

	while (!fn(arg)) {
		if (kt_now_ms() >= deadline_ms)
			return fn(arg);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		if (pause.tv_nsec < PAUSE_MAX_NS)
			pause.tv_nsec *= 2;
	}
	return true;
}

struct child {
	pid_t pid;
	int status;
	int rc;
};

static bool child_has_ended(void *arg)
{
	struct child *child = arg;
	const pid_t pid = waitpid(child->pid, &child->status, WNOHANG);

	if (pid < 0 && errno != EINTR)
		child->rc = -errno;
	return pid == child->pid || child->rc != 0;
}

int kt_wait_child(pid_t pid, int64_t ms, int *status)
{
	struct child child = {.pid = pid};

	if (!kt_wait_until(child_has_ended, &child, ms))
		return -ETIMEDOUT;
	*status = child.status;
	return child.rc;
}
