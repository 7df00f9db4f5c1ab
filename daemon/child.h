/*
 * Processes that are forked without exec: core and front by the keeper, the locker by the core.
 *
 * child_fork() returns 0 in the child, which then has its name, ends when its parent ends
 * (SIGKILL from the kernel), ignores SIGINT and SIGHUP (a terminal sends those to all; the keeper
 * decides), and has no descriptor open but 0 to 2 and those in `keep`. The parent has one thread.
 */
#ifndef KV_DAEMON_CHILD_H
#define KV_DAEMON_CHILD_H

#include <signal.h>
#include <stddef.h>
#include <sys/types.h>

/* mask: the child's signal mask. keep is sorted in place. Returns the pid, 0 in the child, or
 * -errno. */
pid_t child_fork(const char *name, const sigset_t *mask, int *keep, size_t n_keep);

/* "exited with status 3" or "died of signal 11 (Segmentation fault)". */
const char *child_fate(int status, char text[64]);

#endif
