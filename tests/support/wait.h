/*
 * Waiting in tests: for a condition, with a deadline, never for a time.
 *
 * Deadlines are multiplied by KT_TIME_SCALE (valgrind, slow machines), so a
 * test that fails at its deadline has really failed. Callable from any thread.
 */
#ifndef KVCACHED_TESTS_SUPPORT_WAIT_H
#define KVCACHED_TESTS_SUPPORT_WAIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Milliseconds of the monotonic clock. */
int64_t kt_now_ms(void);

/* ms times KT_TIME_SCALE. */
int64_t kt_scale_ms(int64_t ms);

/* Asks fn(arg) until it says true (returns true) or the deadline has passed (returns false). */
bool kt_wait_until(bool (*fn)(void *arg), void *arg, int64_t ms);

/*
 * Waits for a child and stores what waitpid() says in *status. Returns 0, or
 * -ETIMEDOUT if it still lives at the deadline, or another -errno.
 */
int kt_wait_child(pid_t pid, int64_t ms, int *status);

#endif
