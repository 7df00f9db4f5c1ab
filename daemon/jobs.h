/*
 * Jobs: long work that is answered at once with a number, done a slice a round of the loop, asked
 * for with JobGet and ended with JobCancel. What a job does is its kind: verify (job_verify.c),
 * save (job_save.c), load (job_load.c), check of the store (job_check.c). Those that run take
 * turns. A job belongs to a session and goes with it; a life of the core does not take over jobs
 * of another. Core thread.
 */
#ifndef KV_DAEMON_JOBS_H
#define KV_DAEMON_JOBS_H

#include "daemon/command.h"

enum job_phase { JOB_RUNNING = 1, JOB_DONE = 2, JOB_FAILED = 3, JOB_CANCELLED = 4 };

enum job_step {
	JOB_FAIL = -1, /* job->err says why */
	JOB_MORE = 0,
	JOB_END = 1,  /* done */
	JOB_WAIT = 2, /* nothing to do until job_wake() */
};

struct job;

struct job_kind {
	/* One slice. */
	enum job_step (*step)(struct core *core, struct job *job);
	/* It is over, in whichever way: gives back what it holds. The results stay. */
	void (*stop)(struct core *core, struct job *job);
	/* What only this kind has to say. NULL: nothing. */
	void (*reply)(const struct job *job, Kv__Wire__JobResult *result);
	/* Can it not be cancelled any more? NULL: always. */
	bool (*is_decided)(const struct job *job);
};

struct job {
	uint64_t id;
	struct session *session;
	const struct job_kind *kind;
	void *work; /* the kind's; freed with free() when the job goes, after stop() */
	enum job_phase phase;
	bool is_waiting;
	uint64_t n_done_bytes, n_total_bytes, n_blocks;
	uint64_t n_known; /* blocks whose digest was known, or that were on the disk already */
	uint8_t digest[KV_DIGEST_BYTES]; /* when done */
	struct errbuf err;
};

/* -1 KV_EQUOTA if the user has as many as allowed. */
int jobs_check_quota(struct command *cmd);

/* A running job, which takes over `work`; the reply to the command says so. */
struct job *jobs_begin(struct command *cmd, const struct job_kind *kind, void *work,
		       uint64_t n_total_bytes);

void job_wake(struct core *core, struct job *job);

/* A slice of one running job. True if there is more to do. */
bool jobs_step(struct core *core);

void jobs_forget_session(struct session *session);
void jobs_free_all(struct core *core);

#endif
