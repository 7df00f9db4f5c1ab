/*
 * Clients of every kind, for tests in which the daemon is started again: who they are, what they
 * have, and that it is still so afterwards.
 *
 *	lives_start(&lives, dir);         processes: a writer with an undo journal, one with a
 *	                                  replay journal over quantised vectors, one that appends,
 *	                                  and one with a fork of a fork
 *	lives_look(&lives, &before);      digests, lengths, positions, marks, journals; every object
 *	                                  with name, lineage and digest; gauges and quotas
 *	... the daemon is started again ...
 *	lives_look(&lives, &after);
 *	lives_assert_same(&before, &after);
 *	lives_go_on(&lives);              each commits, and goes back to its mark: as it was
 *
 * Beside them there are a sequence that waits for a writer and a snapshot, whose process has gone.
 * Everything here fails the test that calls it. main() begins with kt_kid_main(..., lives_roles).
 */
#ifndef KVCACHED_TESTS_INTEGRATION_LIVES_H
#define KVCACHED_TESTS_INTEGRATION_LIVES_H

#include "tests/support/client.h"

#define LIVES_KIDS 4
#define LIVES_PARKED "lives/parked"
#define LIVES_SNAPSHOT "lives/snapshot"

extern const struct kt_role lives_roles[];

/* What a client sees of its sequence. */
struct life_view {
	uint8_t digest[16];
	uint64_t length, position, slots[2], counter;
	uint64_t mode, n_rows, n_steps, first_tokens, base_tokens, journal_bytes;
};

struct lives {
	const char *dir;
	struct kt_kid kids[LIVES_KIDS];
	struct life_view marked[LIVES_KIDS]; /* at the mark that each has set */
	kvc_session *session;                /* the test's own, of the operator kind */
};

struct lives_look {
	struct life_view kids[LIVES_KIDS];
	uint8_t parked[16], snapshot[16]; /* digests, as a new session finds them */
	uint8_t verified[2][16];          /* and as the daemon does */
	uint8_t *objects; /* all of them, as they are listed; freed by assert_same */
	size_t n_objects_bytes;
	struct kt_gauges gauges;
};

void lives_start(struct lives *lives, const char *dir);
void lives_look(struct lives *lives, struct lives_look *look);
void lives_assert_same(struct lives_look *before, struct lives_look *after);

/* Commits of each writer: how many were answered by KVC_ERESTARTED, at most one each. */
unsigned lives_go_on(struct lives *lives);

/* Kills one of them; what it had a name for is parked, and readable by the others. */
void lives_kill(struct lives *lives, int kid);

/* All end; what they left is removed, and the pool is empty. */
void lives_end(struct lives *lives);

#endif
