/*
 * Jobs: long work that is answered at once with a number, done a slice a round of the loop, asked
 * for with JobGet and ended with JobCancel. There is one kind: verify, which reads every byte of
 * a state, compares the digests of its blocks with those that are known and remembers the others.
 * A job belongs to a session and goes with it; a life of the core does not take over jobs of
 * another. Core thread.
 */
#ifndef KV_DAEMON_JOBS_H
#define KV_DAEMON_JOBS_H

#include "daemon/state.h"

/* One slice of the oldest running job. True if there is more to do. */
bool jobs_step(struct core *core);

void jobs_forget_session(struct session *session);
void jobs_free_all(struct core *core);

#endif
