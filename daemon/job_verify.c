/*
 * The job that verifies: reads every byte of a state, compares the digests of its blocks with
 * those that are known and remembers the others. Core thread.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/arena_store.h"
#include "daemon/block_digest.h"
#include "daemon/digest_rest.h"
#include "daemon/image.h"
#include "daemon/jobs.h"
#include "daemon/objects.h"
#include "daemon/source.h"
#include "daemon/state_log.h"

#define SLICE_BYTES (UINT64_C(4) << 20)
#define REST_BYTES (UINT64_C(512) << 10) /* small pieces, and to be sorted */
#define BAD_MAX 64u
#define LEARN_MAX 256u

struct bad_block {
	uint32_t group;
	uint64_t index;
};

struct verify {
	struct job *job;
	uint64_t object_id;  /* whose digest this is; 0: of a state that nobody names */
	struct state *state; /* one reference, while it runs */
	uint32_t group;
	uint64_t index;
	struct kv_digest digest;
	struct block_digest block; /* that is being read */
	struct digest_rest rest;
	uint64_t n_bad;
	struct bad_block bad[BAD_MAX];
	uint64_t bad_slots[BAD_MAX];
	uint32_t block_tokens;
};

/* ---- blocks ------------------------------------------------------------------------------- */

static void note_bad(struct verify *verify, uint32_t n_slots)
{
	if (verify->n_bad < BAD_MAX) {
		verify->bad[verify->n_bad] = (struct bad_block){verify->group, verify->index};
		verify->bad_slots[verify->n_bad] = n_slots;
	}
	verify->n_bad++;
}

/* Digests learnt in one slice, of one arena: one record. */
struct learnt {
	struct arena *arena;
	uint32_t blocks[LEARN_MAX];
	uint32_t n;
	bool partial;
};

static void log_learnt(struct core *core, const struct verify *verify, struct learnt *learnt)
{
	if (learnt->n)
		log_arena_digests(core, learnt->arena, learnt->blocks, learnt->n, true);
	if (learnt->partial)
		log_partial_digests(core, verify->state);
	learnt->n = 0;
	learnt->partial = false;
}

static int learn(struct core *core, struct verify *verify, struct arena *arena, uint32_t block,
		 bool is_full, const struct kv_block_digest *digest, struct learnt *learnt)
{
	if (!is_full) {
		verify->state->partial[verify->group] = *digest;
		verify->state->partial_known[verify->group] = true;
		learnt->partial = true;
		return 0;
	}
	if (learnt->n == LEARN_MAX || (learnt->n && learnt->arena != arena))
		log_learnt(core, verify, learnt);
	if (arena_digest_set(arena, block, digest))
		return errbuf_set(&verify->job->err, KV_ENOMEM, "no memory to remember digests");
	learnt->arena = arena;
	learnt->blocks[learnt->n++] = block;
	return 0;
}

/* A block has been read: compares or learns. 0, or -1 when the job has failed. */
static int end_block(struct core *core, struct verify *verify, struct arena *arena,
		     const struct image *image, struct learnt *learnt)
{
	const struct kv_block_digest *known = image_known_digest(image, arena);
	uint64_t ref = image->state->refs[image->group][image->index];
	struct kv_block_digest digest;

	block_digest_end(&verify->block, &digest);
	kv_digest_block(&verify->digest, &digest);
	verify->job->n_blocks++;
	verify->job->n_known += known != NULL;
	if (!known)
		return learn(core, verify, arena, gref_block(ref), image_is_full(image), &digest,
			     learnt);
	if (memcmp(known, &digest, sizeof(digest)) != 0)
		note_bad(verify, image_slots(image));
	return 0;
}

/* One chunk: 0, or -1 when the job has failed. */
static int step_chunk(struct core *core, struct verify *verify, struct learnt *learnt)
{
	const struct image image = {verify->state, verify->group, verify->index};
	uint64_t ref = verify->state->refs[verify->group][verify->index];
	struct arena *arena = arenas_find(core, gref_arena(ref));
	int64_t n = block_digest_step(&verify->block, arena, gref_block(ref), image_slots(&image),
				      &verify->job->err);

	if (n < 0)
		return -1;
	verify->job->n_done_bytes += (uint64_t)n;
	if (!block_digest_is_read(&verify->block, arena))
		return 0;
	if (end_block(core, verify, arena, &image, learnt))
		return -1;
	verify->index++;
	return 0;
}

/* ---- life of the job ---------------------------------------------------------------------- */

static enum job_step complete(struct core *core, struct verify *verify)
{
	struct object *object = idlist_find(&core->objects, verify->object_id);
	struct job *job = verify->job;

	kv_digest_final(&verify->digest, job->digest);
	if (verify->n_bad) {
		errbuf_set(&job->err, KV_ECORRUPT, "%llu of %llu blocks are not what they were",
			   (unsigned long long)verify->n_bad, (unsigned long long)job->n_blocks);
		return JOB_END;
	}
	if (!object || object->state != verify->state)
		return JOB_END;
	if (!object->has_digest) {
		memcpy(object->digest, job->digest, sizeof(object->digest));
		object->has_digest = true;
		log_object(core, object);
	} else if (memcmp(object->digest, job->digest, sizeof(object->digest)) != 0) {
		errbuf_set(&job->err, KV_ECORRUPT,
			   "all blocks are what they were, but sequence planes or journal rows are "
			   "not");
		return JOB_FAIL;
	}
	return JOB_END;
}

/* To the next block of a layer group; false at the end. */
static bool advance(struct verify *verify)
{
	const struct state *state = verify->state;
	const struct kv_layout *layout = state->layout->layout;

	while (verify->group < layout->n_layer_groups) {
		if (verify->index < state->n_blocks[verify->group])
			return true;
		verify->index = 0;
		if (++verify->group < layout->n_layer_groups)
			kv_digest_group(&verify->digest, verify->group,
					state->n_slots[verify->group]);
	}
	return false;
}

/* A slice of the blocks. 1: all are read. */
static int step_blocks(struct core *core, struct verify *verify)
{
	uint64_t begin = verify->job->n_done_bytes;
	struct learnt learnt = {.n = 0};
	int rc = 0;

	while (rc == 0 && verify->job->n_done_bytes - begin < SLICE_BYTES)
		rc = advance(verify) ? step_chunk(core, verify, &learnt) : 1;
	log_learnt(core, verify, &learnt);
	return rc;
}

static enum job_step step(struct core *core, struct job *job)
{
	struct verify *verify = job->work;
	uint64_t n_bytes = 0;
	int rc = step_blocks(core, verify);

	if (rc == 1)
		rc = digest_rest_step(core, &verify->rest, &verify->digest, REST_BYTES, &n_bytes,
				      &job->err);
	job->n_done_bytes += n_bytes;
	if (rc < 0)
		return JOB_FAIL;
	return rc == 1 ? complete(core, verify) : JOB_MORE;
}

static void stop(struct core *core, struct job *job)
{
	struct verify *verify = job->work;

	if (verify->digest.state)
		kv_digest_drop(&verify->digest);
	block_digest_free(&verify->block);
	digest_rest_end(&verify->rest);
	state_unref(core, verify->state);
}

/* ---- the command -------------------------------------------------------------------------- */

static Kv__Wire__BadBlock *bad_wire(const struct verify *verify, uint64_t i)
{
	Kv__Wire__BadBlock *bad = reply_alloc(1, sizeof(*bad));

	kv__wire__bad_block__init(bad);
	bad->group = verify->bad[i].group;
	bad->index = verify->bad[i].index;
	bad->first_token = verify->bad[i].index * verify->block_tokens;
	bad->n_tokens = verify->bad_slots[i];
	return bad;
}

static void reply(const struct job *job, Kv__Wire__JobResult *result)
{
	const struct verify *verify = job->work;
	uint64_t n_bad = verify->n_bad < BAD_MAX ? verify->n_bad : BAD_MAX;

	result->n_bad_blocks = verify->n_bad;
	result->bad = reply_alloc(n_bad, sizeof(result->bad[0]));
	for (uint64_t i = 0; i < n_bad; i++)
		result->bad[result->n_bad++] = bad_wire(verify, i);
}

static const struct job_kind verify_kind = {.step = step, .stop = stop, .reply = reply};

/* Bytes of what is read: slots that hold tokens, sequence planes, rows. */
static uint64_t filled_bytes(const struct state *state)
{
	const struct kv_layout *layout = state->layout->layout;
	uint64_t bytes = 0;

	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		bytes += state->n_slots[g] * (layout->groups[g].block_bytes / layout->block_tokens);
	return bytes + digest_rest_bytes(state);
}

static void begin(struct command *cmd, const struct source *source)
{
	const struct kv_layout *layout = source->state->layout->layout;
	struct verify *verify = state_alloc(1, sizeof(*verify));

	verify->object_id = source->target.object ? source->target.object->id : 0;
	verify->state = state_ref(source->state);
	verify->block_tokens = layout->block_tokens;
	if (block_digest_make(&verify->block))
		state_die("no memory for a job");
	digest_state_begin(&verify->digest, verify->state);
	kv_digest_group(&verify->digest, 0, source->state->n_slots[0]);
	digest_rest_begin(&verify->rest, verify->state);
	verify->job = jobs_begin(cmd, &verify_kind, verify, filled_bytes(source->state));
}

static enum cmd_step run_verify(struct command *cmd)
{
	struct sources *sources;
	enum cmd_step rc = CMD_FAIL;

	if (jobs_check_quota(cmd))
		return CMD_FAIL;
	sources = state_alloc(1, sizeof(*sources));
	if (sources_add(cmd, sources, cmd->request->verify->source) == 0)
		rc = sources_read(cmd, sources, SOURCE_STORED);
	if (rc == CMD_DONE && sources_freeze(cmd, sources))
		rc = CMD_FAIL;
	if (rc == CMD_DONE)
		begin(cmd, &sources->ones[0]);
	sources_fini(cmd, sources);
	free(sources);
	return rc;
}

const struct command_entry cmd_verify = {.run = run_verify};
