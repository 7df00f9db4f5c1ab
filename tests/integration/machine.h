/*
 * A machine that loses power: a daemon with a disk pool whose processes all die at once, and that
 * is started again on the same folder. What is in memory is gone then, the disk is as it was.
 *
 * Everything here fails the test that calls it.
 */
#ifndef KVCACHED_TESTS_INTEGRATION_MACHINE_H
#define KVCACHED_TESTS_INTEGRATION_MACHINE_H

#include "client/kvcache.h"
#include "tests/support/daemon.h"

#define MACHINE_ARGUMENTS_MAX 8

struct machine {
	char *runtime_dir, *disk_dir;                 /* the store is disk_dir/store */
	const char *arguments[MACHINE_ARGUMENTS_MAX]; /* more of them; NULL ends */
	struct kt_daemon *daemon;
	kvc_session *session;
	kvc_writer *writer;
};

/* Starts a daemon with a disk pool of 64 MiB, and a session with a writer. arguments are added and
 * win; NULL: none. */
void machine_begin(struct machine *m, const char *const *arguments);
void machine_end(struct machine *m);

/* Power is lost, and comes back. */
void machine_power_cut(struct machine *m);

/* The daemon ends in order, and is started again. */
void machine_restart(struct machine *m);

/* Waits until the disk pool is there: the store may be locked for a moment yet. */
void machine_wait_disk(const struct machine *m);

/* Bytes of the disk pool that something uses; asserts that the gauges add up. */
uint64_t machine_disk_used(const struct machine *m);

/* Saves and loads an object under its name. */
struct kvc_saved_result machine_save(const struct machine *m, const char *name);
struct kvc_saved_result machine_load(const struct machine *m, const char *name);

#endif
