/* The monotonic clock and deadlines, in nanoseconds. */
#ifndef KV_CLIENT_CLOCK_H
#define KV_CLIENT_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)

static inline int64_t clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t clock_deadline_ns(uint32_t ms)
{
	return clock_now_ns() + (int64_t)ms * NS_PER_MS;
}

/* Milliseconds left, rounded up; 0 when the deadline has passed. */
static inline int clock_left_ms(int64_t deadline_ns)
{
	int64_t left = deadline_ns - clock_now_ns();

	if (left <= 0)
		return 0;
	left = (left + NS_PER_MS - 1) / NS_PER_MS;
	return left > INT32_MAX ? INT32_MAX : (int)left;
}

#endif
