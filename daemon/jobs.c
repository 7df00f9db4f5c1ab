#include "daemon/jobs.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/arena_store.h"
#include "daemon/command.h"
#include "daemon/digest_rest.h"
#include "daemon/objects.h"
#include "daemon/session.h"
#include "daemon/source.h"
#include "daemon/state_log.h"

#define SLICE_BYTES (UINT64_C(4) << 20)
#define REST_BYTES (UINT64_C(512) << 10) /* small pieces, and to be sorted */
#define CHUNK_BYTES (256u << 10)
#define BAD_MAX 64u
#define LEARN_MAX 256u
#define ENDED_JOBS_MAX 64u /* of a session, whose result can be asked for */

enum job_state { JOB_RUNNING = 1, JOB_DONE = 2, JOB_FAILED = 3, JOB_CANCELLED = 4 };

struct bad_block {
	uint32_t group;
	uint64_t index;
};

struct job {
	uint64_t id;
	struct session *session;
	uint64_t object_id;  /* whose digest this is; 0: of a state that nobody names */
	struct state *state; /* one reference, while it runs */
	enum job_state phase;
	uint32_t group;
	uint64_t index;
	struct kv_digest digest;
	XXH3_state_t *block_state; /* of the block that is being read */
	uint32_t region;
	uint64_t off; /* in the piece of the region */
	char *buffer; /* CHUNK_BYTES */
	struct digest_rest rest;
	uint64_t n_done_bytes, n_total_bytes, n_blocks, n_known, n_bad;
	struct bad_block bad[BAD_MAX];
	uint64_t bad_slots[BAD_MAX];
	uint8_t result[KV_DIGEST_BYTES];
	struct errbuf err;
	uint32_t block_tokens;
};

/* ---- reading blocks ----------------------------------------------------------------------- */

/* The digest that kv_block_digest() gives, a chunk at a time: a block may be larger than what can
 * be read in one round. */
static int read_chunk(struct job *job, const struct arena *arena, uint32_t block, uint32_t n_slots)
{
	const struct kv_layout *layout = job->state->layout->layout;
	const struct kv_group *group = &layout->groups[job->group];
	uint64_t piece = (uint64_t)n_slots *
			 layout->regions[group->first_region + job->region].row_bytes;
	size_t n = piece - job->off < CHUNK_BYTES ? (size_t)(piece - job->off) : CHUNK_BYTES;

	if (job->region == 0 && job->off == 0)
		XXH3_128bits_reset(job->block_state);
	if (arena_read(arena, block, job->region, job->off, n, job->buffer, &job->err))
		return -1;
	XXH3_128bits_update(job->block_state, job->buffer, n);
	job->n_done_bytes += n;
	job->off += n;
	if (job->off == piece) {
		job->off = 0;
		job->region++;
	}
	return 0;
}

/* All regions are read: the digest, and the next block begins with the first. */
static void block_digest(struct job *job, struct kv_block_digest *out)
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(job->block_state));
	memcpy(out->bytes, canonical.digest, sizeof(out->bytes));
	job->region = 0;
}

static const struct kv_block_digest *known_digest(const struct job *job, const struct arena *arena,
						  uint32_t block, bool is_full)
{
	if (is_full)
		return arena_digest(arena, block);
	return job->state->partial_known[job->group] ? &job->state->partial[job->group] : NULL;
}

static void note_bad(struct job *job, uint32_t n_slots)
{
	if (job->n_bad < BAD_MAX) {
		job->bad[job->n_bad] = (struct bad_block){job->group, job->index};
		job->bad_slots[job->n_bad] = n_slots;
	}
	job->n_bad++;
}

/* Digests learnt in one slice, of one arena: one record. */
struct learnt {
	struct arena *arena;
	uint32_t blocks[LEARN_MAX];
	uint32_t n;
	bool partial;
};

static void log_learnt(struct core *core, const struct job *job, struct learnt *learnt)
{
	if (learnt->n)
		log_arena_digests(core, learnt->arena, learnt->blocks, learnt->n, true);
	if (learnt->partial)
		log_partial_digests(core, job->state);
	learnt->n = 0;
	learnt->partial = false;
}

static int learn(struct core *core, struct job *job, struct arena *arena, uint32_t block,
		 bool is_full, const struct kv_block_digest *digest, struct learnt *learnt)
{
	if (!is_full) {
		job->state->partial[job->group] = *digest;
		job->state->partial_known[job->group] = true;
		learnt->partial = true;
		return 0;
	}
	if (learnt->n == LEARN_MAX || (learnt->n && learnt->arena != arena))
		log_learnt(core, job, learnt);
	if (arena_digest_set(arena, block, digest))
		return errbuf_set(&job->err, KV_ENOMEM, "no memory to remember digests");
	learnt->arena = arena;
	learnt->blocks[learnt->n++] = block;
	return 0;
}

/* A block has been read: compares or learns. 0, or -1 when the job has failed. */
static int end_block(struct core *core, struct job *job, struct arena *arena, uint32_t block,
		     uint32_t n_slots, struct learnt *learnt)
{
	bool is_full = n_slots == job->block_tokens;
	const struct kv_block_digest *known = known_digest(job, arena, block, is_full);
	struct kv_block_digest digest;

	block_digest(job, &digest);
	kv_digest_block(&job->digest, &digest);
	job->n_blocks++;
	job->n_known += known != NULL;
	if (!known)
		return learn(core, job, arena, block, is_full, &digest, learnt);
	if (memcmp(known, &digest, sizeof(digest)) != 0)
		note_bad(job, n_slots);
	return 0;
}

/* One chunk: 0, or -1 when the job has failed. */
static int step_chunk(struct core *core, struct job *job, struct learnt *learnt)
{
	const struct state *state = job->state;
	uint64_t ref = state->refs[job->group][job->index];
	struct arena *arena = arenas_find(core, gref_arena(ref));
	uint64_t left = state->n_slots[job->group] - job->index * job->block_tokens;
	uint32_t n_slots = left < job->block_tokens ? (uint32_t)left : job->block_tokens;

	if (read_chunk(job, arena, gref_block(ref), n_slots))
		return -1;
	if (job->region < state->layout->layout->groups[job->group].n_regions)
		return 0;
	if (end_block(core, job, arena, gref_block(ref), n_slots, learnt))
		return -1;
	job->index++;
	return 0;
}

/* ---- life of a job ------------------------------------------------------------------------ */

static void stop(struct core *core, struct job *job, enum job_state phase)
{
	job->phase = phase;
	if (job->digest.state)
		kv_digest_drop(&job->digest);
	if (job->block_state)
		XXH3_freeState(job->block_state);
	job->block_state = NULL;
	free(job->buffer);
	job->buffer = NULL;
	digest_rest_end(&job->rest);
	state_unref(core, job->state);
	job->state = NULL;
	job->session->n_jobs--;
	job->session->user->n_jobs--;
}

static void complete(struct core *core, struct job *job)
{
	struct object *object = idlist_find(&core->objects, job->object_id);
	enum job_state phase = JOB_DONE;

	kv_digest_final(&job->digest, job->result);
	job->n_done_bytes = job->n_total_bytes; /* rows that are not in force are not read */
	if (job->n_bad) {
		errbuf_set(&job->err, KV_ECORRUPT, "%llu of %llu blocks are not what they were",
			   (unsigned long long)job->n_bad, (unsigned long long)job->n_blocks);
	} else if (object && object->state == job->state && object->has_digest &&
		   memcmp(object->digest, job->result, sizeof(object->digest)) != 0) {
		errbuf_set(&job->err, KV_ECORRUPT,
			   "all blocks are what they were, but sequence planes or journal rows are "
			   "not");
		phase = JOB_FAILED;
	} else if (object && object->state == job->state && !object->has_digest) {
		memcpy(object->digest, job->result, sizeof(object->digest));
		object->has_digest = true;
		log_object(core, object);
	}
	stop(core, job, phase);
}

/* To the next block of a layer group; false at the end. */
static bool advance(struct job *job)
{
	const struct kv_layout *layout = job->state->layout->layout;

	while (job->group < layout->n_layer_groups) {
		if (job->index < job->state->n_blocks[job->group])
			return true;
		job->index = 0;
		if (++job->group < layout->n_layer_groups)
			kv_digest_group(&job->digest, job->group, job->state->n_slots[job->group]);
	}
	return false;
}

/* A slice of the blocks. 1: all are read. */
static int step_blocks(struct core *core, struct job *job)
{
	uint64_t begin = job->n_done_bytes;
	struct learnt learnt = {.n = 0};
	int rc = 0;

	while (rc == 0 && job->n_done_bytes - begin < SLICE_BYTES)
		rc = advance(job) ? step_chunk(core, job, &learnt) : 1;
	log_learnt(core, job, &learnt);
	return rc;
}

static void step(struct core *core, struct job *job)
{
	uint64_t n_bytes = 0;
	int rc = step_blocks(core, job);

	if (rc == 1)
		rc = digest_rest_step(core, &job->rest, &job->digest, REST_BYTES, &n_bytes,
				      &job->err);
	job->n_done_bytes += n_bytes;
	if (rc < 0)
		stop(core, job, JOB_FAILED);
	else if (rc == 1)
		complete(core, job);
}

bool jobs_step(struct core *core)
{
	bool more = false;

	for (size_t i = 0; i < core->jobs.n; i++) {
		struct job *job = core->jobs.items[i].thing;

		if (job->phase != JOB_RUNNING)
			continue;
		if (more)
			return true; /* one slice a round, the oldest first */
		step(core, job);
		more = true;
	}
	return more;
}

static void free_job(struct core *core, struct job *job)
{
	if (job->phase == JOB_RUNNING)
		stop(core, job, JOB_CANCELLED);
	idlist_remove(&core->jobs, job->id);
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
	for (size_t i = 0; i < core->jobs.n; i++) {
		struct job *job = core->jobs.items[i].thing;

		if (job->digest.state)
			kv_digest_drop(&job->digest);
		if (job->block_state)
			XXH3_freeState(job->block_state);
		free(job->buffer);
		digest_rest_end(&job->rest);
		free(job);
	}
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

static Kv__Wire__BadBlock *bad_wire(const struct job *job, uint64_t i)
{
	Kv__Wire__BadBlock *bad = reply_alloc(1, sizeof(*bad));

	kv__wire__bad_block__init(bad);
	bad->group = job->bad[i].group;
	bad->index = job->bad[i].index;
	bad->first_token = job->bad[i].index * job->block_tokens;
	bad->n_tokens = job->bad_slots[i];
	return bad;
}

static void reply_job(struct command *cmd, const struct job *job)
{
	Kv__Wire__JobResult *result = reply_alloc(1, sizeof(*result));
	uint64_t n_bad = job->n_bad < BAD_MAX ? job->n_bad : BAD_MAX;

	kv__wire__job_result__init(result);
	result->job_id = job->id;
	result->state = (uint32_t)job->phase;
	result->n_done_bytes = job->n_done_bytes;
	result->n_total_bytes = job->n_total_bytes;
	if (job->phase == JOB_DONE)
		result->digest = reply_bytes(job->result, sizeof(job->result));
	result->n_blocks = job->n_blocks;
	result->n_known = job->n_known;
	result->n_bad_blocks = job->n_bad;
	result->bad = reply_alloc(n_bad, sizeof(result->bad[0]));
	for (uint64_t i = 0; i < n_bad; i++)
		result->bad[result->n_bad++] = bad_wire(job, i);
	result->status = (uint32_t)job->err.status;
	result->detail = reply_string(job->err.text);
	cmd->reply->result_case = KV__WIRE__REPLY__RESULT_JOB;
	cmd->reply->job = result;
}

/* Bytes of what is read: slots that hold tokens, sequence planes, rows. */
static uint64_t filled_bytes(const struct state *state)
{
	const struct kv_layout *layout = state->layout->layout;
	uint64_t bytes = 0;

	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		bytes += state->n_slots[g] * (layout->groups[g].block_bytes / layout->block_tokens);
	return bytes + digest_rest_bytes(state);
}

static struct job *begin_job(struct command *cmd, const struct source *source)
{
	struct core *core = cmd->core;
	const struct kv_layout *layout = source->state->layout->layout;
	struct job *job = state_alloc(1, sizeof(*job));

	job->id = core_new_id(core);
	job->session = cmd->session;
	job->object_id = source->target.object ? source->target.object->id : 0;
	job->state = state_ref(source->state);
	job->phase = JOB_RUNNING;
	job->block_tokens = layout->block_tokens;
	job->n_total_bytes = filled_bytes(source->state);
	job->block_state = XXH3_createState();
	job->buffer = malloc(CHUNK_BYTES);
	if (!job->block_state || !job->buffer ||
	    kv_digest_begin(&job->digest, layout, source->state->head.length_tokens,
			    source->state->head.position))
		state_die("no memory for a job");
	kv_digest_group(&job->digest, 0, source->state->n_slots[0]);
	digest_rest_begin(&job->rest, job->state);
	if (idlist_add(&core->jobs, job->id, job))
		state_die("no memory for a job");
	cmd->session->n_jobs++;
	cmd->session->user->n_jobs++;
	return job;
}

static enum cmd_step run_verify(struct command *cmd)
{
	uint32_t most = cmd->core->env->settings->n_jobs_max;
	struct sources *sources;
	enum cmd_step step = CMD_FAIL;

	if (most && cmd->session->user->n_jobs >= most)
		return cmd_fail(cmd, KV_EQUOTA,
				"user %u has %u jobs running, the limit; wait for one",
				cmd->session->uid, cmd->session->user->n_jobs);
	sources = state_alloc(1, sizeof(*sources));
	if (sources_add(cmd, sources, cmd->request->verify->source) == 0)
		step = sources_read(cmd, sources, SOURCE_STORED);
	if (step == CMD_DONE && sources_freeze(cmd, sources))
		step = CMD_FAIL;
	if (step == CMD_DONE) {
		make_room(cmd->core, cmd->session);
		reply_job(cmd, begin_job(cmd, &sources->ones[0]));
		loop_task_add(cmd->core->env->loop, &cmd->core->work_task);
	}
	sources_fini(cmd, sources);
	free(sources);
	return step;
}

const struct command_entry cmd_verify = {.run = run_verify};

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
	if (job->phase == JOB_RUNNING) {
		errbuf_set(&job->err, KV_ECANCELLED, "cancelled after %llu of %llu bytes",
			   (unsigned long long)job->n_done_bytes,
			   (unsigned long long)job->n_total_bytes);
		stop(cmd->core, job, JOB_CANCELLED);
	}
	reply_job(cmd, job);
	return CMD_DONE;
}

const struct command_entry cmd_job_cancel = {.run = run_job_cancel};
