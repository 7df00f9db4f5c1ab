/*
 * A client for kill-core: random operations on sequences and snapshots of its own, each with a
 * shadow that says what every slot holds, while its core dies as it likes.
 *
 * Three kinds of sequence: appended only; with an undo journal; with a replay journal over int8.
 * Numbers are such that int8 holds them exactly, so one shadow is right for blocks and rows alike.
 * Every call must succeed, or say KVC_ERESTARTED and succeed when it is made again.
 *
 * It reads letters: c(heck) everything and answer with a report, then wait for another letter to
 * go on; e(nd): drop everything. A mistake ends it with a message.
 */
#ifndef KVCACHED_TESTS_CRASH_CORE_LOAD_H
#define KVCACHED_TESTS_CRASH_CORE_LOAD_H

#include <stdint.h>

struct core_load_report {
	uint64_t n_ops, n_restarted; /* since the last report */
	uint32_t n_sequences, n_snapshots;
};

/* A role of kt_kid_start(); arg: "NUMBER SEED". */
int core_load_role(const char *dir, const char *arg, int in, int out);

#endif
