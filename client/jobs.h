/*
 * Jobs of the daemon's, followed from start to end: verify, save, load.
 *
 * The daemon answers at once with a job; its progress is asked for in turns that grow from one
 * to fifty milliseconds. The session's deadline holds for each question, not for the job. A
 * caller's cancel is passed on and the end awaited: a job that was decided before is done.
 *
 * Jobs end with the core that runs them, and their numbers may be given out again by the next: a
 * job is asked for only of the life that began it. In another it is begun anew, or given up with
 * KVC_ERESTARTED where it may have come to its end and its end can be seen. Any thread.
 */
#ifndef KV_CLIENT_JOBS_H
#define KV_CLIENT_JOBS_H

#include "client/rpc.h"

enum job_state { JOB_RUNNING = 1, JOB_DONE = 2, JOB_FAILED = 3, JOB_CANCELLED = 4 };

typedef int jobs_progress(void *arg, uint64_t n_done_bytes, uint64_t n_bytes);

struct jobs_watch {
	jobs_progress *progress; /* may be NULL; not 0: cancel */
	void *arg;
	const char *what;   /* "verification": in the text of a cancelled one */
	const char *remedy; /* what to do after a restart of the core; NULL: begin anew */
};

/* Sends the command that starts a job and follows it. The reply with the job that is done, for
 * rpc_reply_free(); NULL with the error set when it failed, was cancelled, or went with a core. */
Kv__Wire__Reply *jobs_run(struct kvc_session *session, Kv__Wire__Request *request,
			  const struct jobs_watch *watch);

/* The digest of a job that is done. 0, or -1 KVC_EPROTO. */
int jobs_digest(const Kv__Wire__JobResult *job, uint8_t digest[16]);

#endif
