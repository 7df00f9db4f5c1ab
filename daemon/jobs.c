#include "daemon/jobs.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/session.h"

#define ENDED_JOBS_MAX 64u /* of a session, whose result can be asked for */

/* ---- life of a job ------------------------------------------------------------------------ */

static void stop(struct core *core, struct job *job, enum job_phase phase)
{
	job->phase = phase;
	job->kind->stop(core, job);
	job->session->n_jobs--;
	job->session->user->n_jobs--;
}

void job_wake(struct core *core, struct job *job)
{
	job->is_waiting = false;
	loop_task_add(core->env->loop, &core->work_task);
}

static void step(struct core *core, struct job *job)
{
	switch (job->kind->step(core, job)) {
	case JOB_FAIL: stop(core, job, JOB_FAILED); break;
	case JOB_END:
		job->n_done_bytes = job->n_total_bytes; /* of estimates, the rest is none */
		stop(core, job, JOB_DONE);
		break;
	case JOB_WAIT: job->is_waiting = true; break;
	case JOB_MORE: break;
	}
}

bool jobs_step(struct core *core)
{
	size_t first = idlist_after(&core->jobs, core->last_job);

	for (size_t i = 0; i < core->jobs.n; i++) {
		struct job *job = core->jobs.items[(first + i) % core->jobs.n].thing;

		if (job->phase != JOB_RUNNING || job->is_waiting)
			continue;
		core->last_job = job->id;
		step(core, job);
		return true; /* one slice a round; whether there is more, the next one sees */
	}
	return false;
}

static void free_job(struct core *core, struct job *job)
{
	if (job->phase == JOB_RUNNING)
		stop(core, job, JOB_CANCELLED);
	idlist_remove(&core->jobs, job->id);
	free(job->work);
	free(job);
}

void jobs_forget_session(struct session *session)
{
	struct core *core = session->core;

	for (size_t i = 0; i < core->jobs.n;) {
		struct job *job = core->jobs.items[i].thing;

		if (job->session == session)
			free_job(core, job);
		else
			i++;
	}
}

void jobs_free_all(struct core *core)
{
	while (core->jobs.n)
		free_job(core, core->jobs.items[core->jobs.n - 1].thing);
	idlist_fini(&core->jobs);
}

/* Of the results that wait to be asked for, the oldest goes. */
static void make_room(struct core *core, const struct session *session)
{
	struct job *oldest = NULL;
	uint32_t n = 0;

	for (size_t i = 0; i < core->jobs.n; i++) {
		struct job *job = core->jobs.items[i].thing;

		if (job->session != session || job->phase == JOB_RUNNING)
			continue;
		n++;
		if (!oldest)
			oldest = job;
	}
	if (n >= ENDED_JOBS_MAX)
		free_job(core, oldest);
}

/* ---- commands ----------------------------------------------------------------------------- */

static void reply_job(struct command *cmd, const struct job *job)
{
	Kv__Wire__JobResult *result = reply_alloc(1, sizeof(*result));

	kv__wire__job_result__init(result);
	result->job_id = job->id;
	result->state = (uint32_t)job->phase;
	result->n_done_bytes = job->n_done_bytes;
	result->n_total_bytes = job->n_total_bytes;
	if (job->phase == JOB_DONE)
		result->digest = reply_bytes(job->digest, sizeof(job->digest));
	result->n_blocks = job->n_blocks;
	result->n_known = job->n_known;
	result->status = (uint32_t)job->err.status;
	result->detail = reply_string(job->err.text);
	if (job->kind->reply)
		job->kind->reply(job, result);
	cmd->reply->result_case = KV__WIRE__REPLY__RESULT_JOB;
	cmd->reply->job = result;
}

int jobs_check_quota(struct command *cmd)
{
	uint32_t most = cmd->core->env->settings->n_jobs_max;

	if (most == 0 || cmd->session->user->n_jobs < most)
		return 0;
	return errbuf_set(&cmd->err, KV_EQUOTA,
			  "user %u has %u jobs running, the limit; wait for one", cmd->session->uid,
			  cmd->session->user->n_jobs);
}

struct job *jobs_begin(struct command *cmd, const struct job_kind *kind, void *work,
		       uint64_t n_total_bytes)
{
	struct core *core = cmd->core;
	struct job *job = state_alloc(1, sizeof(*job));

	make_room(core, cmd->session);
	job->id = core_new_id(core);
	job->session = cmd->session;
	job->kind = kind;
	job->work = work;
	job->phase = JOB_RUNNING;
	job->n_total_bytes = n_total_bytes;
	if (idlist_add(&core->jobs, job->id, job))
		state_die("no memory for a job");
	cmd->session->n_jobs++;
	cmd->session->user->n_jobs++;
	reply_job(cmd, job);
	job_wake(core, job);
	return job;
}

static struct job *find_job(struct command *cmd, uint64_t id)
{
	struct job *job = idlist_find(&cmd->core->jobs, id);

	if (job && job->session == cmd->session)
		return job;
	errbuf_set(&cmd->err, KV_ENOTFOUND, "the session has no job %llu", (unsigned long long)id);
	return NULL;
}

static enum cmd_step run_job_get(struct command *cmd)
{
	struct job *job = find_job(cmd, cmd->request->job_get->job_id);

	if (!job)
		return CMD_FAIL;
	reply_job(cmd, job);
	return CMD_DONE;
}

const struct command_entry cmd_job_get = {.run = run_job_get};

static enum cmd_step run_job_cancel(struct command *cmd)
{
	struct job *job = find_job(cmd, cmd->request->job_cancel->job_id);

	if (!job)
		return CMD_FAIL;
	if (job->phase == JOB_RUNNING && !(job->kind->is_decided && job->kind->is_decided(job))) {
		errbuf_set(&job->err, KV_ECANCELLED, "cancelled after %llu of %llu bytes",
			   (unsigned long long)job->n_done_bytes,
			   (unsigned long long)job->n_total_bytes);
		stop(cmd->core, job, JOB_CANCELLED);
	}
	reply_job(cmd, job);
	return CMD_DONE;
}

const struct command_entry cmd_job_cancel = {.run = run_job_cancel};
