/*
 * A private kvcached for a test.
 *
 *	struct kt_daemon *daemon = kt_daemon_start(NULL);
 *	struct kvc_session_options options = {.size = sizeof(options),
 *					      .runtime_dir = kt_daemon_dir(daemon)};
 *	...
 *	assert_int_equal(kt_daemon_stop(daemon), 0);
 *
 * It serves a folder of its own with a host pool of 64 MiB; what it writes to stderr goes to the
 * test's own. It is the program in $top_builddir, or $KVCACHED. When the process that started it
 * dies, it dies too. Thread: that of the test.
 */
#ifndef KVCACHED_TESTS_SUPPORT_DAEMON_H
#define KVCACHED_TESTS_SUPPORT_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct kt_daemon;

/*
 * Starts it and waits until it serves. arguments: NULL-terminated options that are added to ours
 * (and win over them), or NULL. NULL if it did not come up, with the reason on stderr: for
 * set-ups. Freed by kt_daemon_stop().
 */
struct kt_daemon *kt_daemon_start(const char *const *arguments);

/*
 * The same without waiting: serving or ended, kt_daemon_wait_ready() says. dir: an existing
 * folder to serve (stays the caller's), or NULL for a new one that goes with the daemon.
 */
struct kt_daemon *kt_daemon_spawn(const char *dir, const char *const *arguments);
bool kt_daemon_wait_ready(struct kt_daemon *daemon);

/* The same, and prepare(arg) is called in the new process before it becomes the daemon: limits,
 * credentials, filters, descriptors 1 and 2. */
struct kt_daemon *kt_daemon_spawn_prepared(const char *dir, const char *const *arguments,
					   void (*prepare)(void *arg), void *arg);

/* To prepare with: each core of the daemon dies by itself at one of the first `most` (a number, in
 * digits) points that it passes, in a build with fault injection. NULL: none does. */
void kt_daemon_core_dies(void *most);

/* All of it. */
struct kt_daemon_start {
	const char *dir;              /* NULL: a new one */
	const char *const *arguments; /* may be NULL */
	void (*prepare)(void *arg);   /* may be NULL */
	void *arg;
	const int *fds; /* that it gets as descriptors 3, 4, ..., as a service manager hands them */
	size_t n_fds;
};
struct kt_daemon *kt_daemon_spawn_as(const struct kt_daemon_start *start);

/* Its runtime directory; valid until kt_daemon_stop(). */
const char *kt_daemon_dir(const struct kt_daemon *daemon);

/* Processes: the keeper is the one that was started. 0: there is none at the moment. */
pid_t kt_daemon_keeper(const struct kt_daemon *daemon);
pid_t kt_daemon_core(const struct kt_daemon *daemon);
pid_t kt_daemon_front(const struct kt_daemon *daemon);
pid_t kt_daemon_locker(const struct kt_daemon *daemon); /* only where memory is locked */

/* Kills the core (the front) and waits until its successor is there. -1 if none came in 5 s. */
int kt_daemon_kill_core(const struct kt_daemon *daemon);
int kt_daemon_kill_front(const struct kt_daemon *daemon);

/* Waits for it to end by itself; the status of waitpid(), or -1 if it still runs after ms. */
int kt_daemon_wait_end(struct kt_daemon *daemon, int ms);

/*
 * Ends it by SIGTERM (by SIGKILL if it does not heed that), removes its folder and frees it. 0 if
 * it ended by itself with status 0, else what waitpid() said, or -1 if it had to be killed.
 * NULL is allowed.
 */
int kt_daemon_stop(struct kt_daemon *daemon);

#endif
