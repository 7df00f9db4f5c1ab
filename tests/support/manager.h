/*
 * A stand-in for the service manager: it starts a private kvcached as systemd(1) starts a service
 * of Type=notify with a descriptor store, and keeps what the service stores.
 *
 *	struct kt_manager *manager = kt_manager_new();
 *	struct kt_daemon *daemon = kt_manager_start(manager, NULL);
 *	assert_int_equal(kt_manager_stop(manager, daemon), 0);       first half of a restart
 *	daemon = kt_manager_start(manager, NULL);                    gets the descriptors back
 *
 * A thread reads $NOTIFY_SOCKET all the time, for a service that fills its queue waits. It heeds
 * READY, STOPPING, STATUS, FDSTORE, FDSTOREREMOVE, FDNAME, FDPOLL; it drops, as systemd does, a
 * descriptor that is there already, one that would be one too many, one that hangs up if nobody
 * said FDPOLL=0, and words that do not come from the main process. Everything here fails the test
 * that calls it. Thread: that of the test.
 */
#ifndef KVCACHED_TESTS_SUPPORT_MANAGER_H
#define KVCACHED_TESTS_SUPPORT_MANAGER_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/support/daemon.h"

struct kt_manager;

struct kt_manager *kt_manager_new(void);

/* Closes what is stored and removes the folder; no daemon runs any more. */
void kt_manager_free(struct kt_manager *manager);

/* The runtime directory of its daemons. */
const char *kt_manager_dir(const struct kt_manager *manager);

/* Most descriptors that are stored from here on. */
void kt_manager_set_max(struct kt_manager *manager, size_t max);

/* Starts the service and waits until it says READY=1, with the descriptors that are stored.
 * NULL if it ends without. kt_daemon_stop() or kt_manager_stop() frees it. */
struct kt_daemon *kt_manager_start(struct kt_manager *manager, const char *const *arguments);

/*
 * Ends it by SIGTERM to all its processes, as KillMode=control-group does, and frees it: the status
 * of waitpid(). It must have said STOPPING=1. What is stored stays, as for a restart.
 */
int kt_manager_stop(struct kt_manager *manager, struct kt_daemon *daemon);

/* SIGKILL to the keeper alone: the others must follow it by themselves. Frees the daemon. */
void kt_manager_kill(struct kt_manager *manager, struct kt_daemon *daemon);

/* What is stored, once all that was sent has been read. */
size_t kt_manager_n_stored(struct kt_manager *manager);
/* Is there one whose name begins so? How many? */
size_t kt_manager_count(struct kt_manager *manager, const char *prefix);

/* The store loses those whose name begins so (at most `most`): how many. */
size_t kt_manager_lose(struct kt_manager *manager, const char *prefix, size_t most);

/* The whole name of the first that begins so; there must be one. */
void kt_manager_name(struct kt_manager *manager, const char *prefix, char name[64]);

/* Puts one in; fd is copied. */
void kt_manager_plant(struct kt_manager *manager, const char *name, int fd);

/* A copy of the first descriptor whose name begins so; -1: none. */
int kt_manager_fd(struct kt_manager *manager, const char *prefix);

/* Is this in what the service wrote to its stderr (to ours too) since the last forget? */
bool kt_manager_has_said(struct kt_manager *manager, const char *text);
void kt_manager_forget_said(struct kt_manager *manager);

/* The last STATUS= of the service; valid until the next one comes. */
const char *kt_manager_status(struct kt_manager *manager);

#endif
