/*
 * The job that saves a state in the disk store, whole or not at all (save.h: its images).
 *
 * When all images are there and durable, the saved snapshot is written beside and renamed to its
 * name: that is the moment at which it exists. From there on the job is finished, also if its
 * session goes. Core thread.
 */
#include "daemon/save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/objects.h"
#include "daemon/saved_state.h"
#include "daemon/session.h"
#include "daemon/source.h"
#include "daemon/state_log.h"
#include "proto/runtime.h"

#define REST_BYTES (UINT64_C(512) << 10)

/* ---- its end ------------------------------------------------------------------------------ */

static void free_save(struct save *save)
{
	save_images_end(save);
	if (save->digest.state)
		kv_digest_drop(&save->digest);
	image_sums_free(&save->sums);
	digest_rest_end(&save->rest);
	saved_file_free(save->file);
	state_unref(save->core, save->state);
	free(save);
}

void save_wake(struct save *save)
{
	if (save->job)
		job_wake(save->core, save->job);
	else if (save->n_in_flight == 0 && !save->is_calling)
		free_save(save);
}

void save_fail(struct save *save, const struct errbuf *fault)
{
	if (!save->failed)
		save->fault = *fault;
	save->failed = true;
}

/* ---- the rest of the digest, and the end ---------------------------------------------------- */

/* The digest of the whole: what it was, or known from now on. */
static int check_sum(struct save *save)
{
	struct object *object = idlist_find(&save->core->objects, save->object_id);

	if (!object || object->state != save->state)
		return 0;
	if (!object->has_digest) {
		memcpy(object->digest, save->sum, sizeof(object->digest));
		object->has_digest = true;
		log_object(save->core, object);
	}
	if (memcmp(object->digest, save->sum, sizeof(save->sum)) == 0)
		return 0;
	return errbuf_set(&save->job->err, KV_ECORRUPT,
			  "sequence planes or journal rows are not what they were; nothing was "
			  "saved");
}

static enum job_step step_rest(struct save *save)
{
	uint64_t n_bytes;
	int rc = digest_rest_step(save->core, &save->rest, &save->digest, REST_BYTES, &n_bytes,
				  &save->job->err);

	if (rc < 0)
		return JOB_FAIL;
	if (rc == 0)
		return JOB_MORE;
	kv_digest_final(&save->digest, save->sum);
	save->digest.state = NULL;
	if (check_sum(save))
		return JOB_FAIL;
	save->phase = SAVE_FLUSH;
	return JOB_MORE;
}

static int call_flush(void *arg)
{
	struct save *save = arg;

	return store_flush(save->disk->store);
}

static int call_write(void *arg)
{
	struct save *save = arg;

	return store_saved_write(save->file);
}

/* The file is there: the store takes it up, whether somebody waits or not. */
static void take_up(struct save *save)
{
	struct errbuf fault;

	if (store_saved_add(save->file, &fault))
		save_fail(save, &fault);
}

static void on_called(struct io_request *request, int result)
{
	struct save *save = request->arg;

	save->result = result;
	save->has_called = true;
	if (save->phase == SAVE_WRITE && result == 0)
		take_up(save);
}

static void on_call_settled(struct io_request *request)
{
	struct save *save = request->arg;

	save->is_calling = false;
	save_wake(save);
}

/* Runs a call on the engine's thread: JOB_WAIT, then with its result JOB_END or JOB_FAIL. */
static enum job_step call(struct save *save, int (*fn)(void *arg), const char *what)
{
	if (save->has_called) {
		if (save->is_calling)
			return JOB_WAIT;
		save->has_called = false;
		if (save->result == 0)
			return JOB_END;
		disk_fail(save->disk, save->result, what, &save->job->err);
		return JOB_FAIL;
	}
	if (save->is_calling)
		return JOB_WAIT;
	save->call = (struct io_request){.op = IO_CALL,
					 .call = fn,
					 .done = on_called,
					 .settled = on_call_settled,
					 .arg = save};
	if (disk_submit(save->disk, &save->call))
		return JOB_WAIT;
	save->is_calling = true;
	return JOB_WAIT;
}

static void fill_group(struct save *save, Kv__Saved__Group *group, uint32_t g)
{
	struct save_group *mine = &save->groups[g];
	uint64_t n = save->state->n_blocks[g];

	group->checks = (ProtobufCBinaryData){n * sizeof(mine->checks[0]), (uint8_t *)mine->checks};
	group->n_places = n;
	group->places = mine->places;
}

static void fill_parent(const struct save *save, Kv__Saved__Saved *head)
{
	const struct object *parent = idlist_find(&save->core->objects, save->parent_id);

	if (!parent || !parent->listed || parent->uid != save->uid || !parent->name)
		return;
	head->parent_name = parent->name;
	if (parent->has_digest)
		head->parent_digest = (ProtobufCBinaryData){sizeof(parent->digest),
							    (uint8_t *)parent->digest};
}

static int pack(struct save *save)
{
	struct store *store = save->disk->store;
	const struct object *object = idlist_find(&save->core->objects, save->object_id);
	Kv__Saved__Saved head;

	if (!save->replace && store_saved_find(store, save->uid, save->name))
		return errbuf_set(&save->job->err, KV_EEXIST, "%s was saved meanwhile", save->name);
	saved_state_fill(save->state, &head);
	for (uint32_t g = 0; g < head.n_groups; g++)
		fill_group(save, head.groups[g], g);
	head.number = store_saved_number(store);
	head.name = save->name;
	head.uid = save->uid;
	head.kind = save->kind;
	head.saved_unix_ns = unix_now_ns();
	head.created_unix_ns = save->created_unix_ns;
	head.digest = (ProtobufCBinaryData){sizeof(save->sum), save->sum};
	head.parent_update = object ? object->parent_update : 0;
	fill_parent(save, &head);
	save->file = store_saved_pack(store, &head, &save->job->err);
	head.name = head.parent_name = NULL;
	saved_state_drop(&head);
	return save->file ? 0 : -1;
}

static enum job_step step_write(struct save *save)
{
	enum job_step rc;

	if (!save->file && pack(save))
		return JOB_FAIL;
	rc = call(save, call_write, "the saved snapshot cannot be written");
	if (rc == JOB_END)
		memcpy(save->job->digest, save->sum, sizeof(save->sum));
	return rc;
}

static enum job_step step(struct core *core, struct job *job)
{
	struct save *save = job->work;
	enum job_step rc;

	(void)core;
	if (save->failed) {
		job->err = save->fault;
		return JOB_FAIL;
	}
	switch (save->phase) {
	case SAVE_BLOCKS:
		rc = save_images_step(save);
		if (rc != JOB_END)
			return rc;
		save->phase = SAVE_REST;
		return JOB_MORE;
	case SAVE_REST: return step_rest(save);
	case SAVE_FLUSH:
		if (save->n_in_flight)
			return JOB_WAIT;
		rc = call(save, call_flush, "images cannot be made durable");
		if (rc != JOB_END)
			return rc;
		save->phase = SAVE_WRITE;
		return JOB_MORE;
	case SAVE_WRITE: break;
	}
	return step_write(save);
}

/* A full buffer that never went out gives its slot back; what is in flight stays. */
static void stop(struct core *core, struct job *job)
{
	struct save *save = job->work;

	(void)core;
	job->work = NULL;
	save->job = NULL;
	save_images_stop(save);
	save_wake(save);
}

static bool is_decided(const struct job *job)
{
	const struct save *save = job->work;

	return save->phase == SAVE_WRITE && save->file;
}

const struct job_kind save_kind = {.step = step, .stop = stop, .is_decided = is_decided};

/* ---- the command -------------------------------------------------------------------------- */

struct save *save_new(struct core *core, struct disk *disk, const struct save_order *order,
		      struct errbuf *err)
{
	const struct object *object = order->object;
	struct save *save = state_alloc(1, sizeof(*save));

	save->core = core;
	save->disk = disk;
	save->state = state_ref(order->state);
	save->object_id = object ? object->id : 0;
	save->parent_id = object ? object->parent_id : order->origin_id;
	save->created_unix_ns = object ? object->created_unix_ns : unix_now_ns();
	save->uid = order->uid;
	save->kind = object && object->kind == OBJECT_SEQUENCE && object->state ? OBJECT_SEQUENCE :
										  OBJECT_SNAPSHOT;
	snprintf(save->name, sizeof(save->name), "%s", order->name);
	save->replace = order->replace;
	save->image.state = save->state;
	image_sums_make(&save->sums);
	digest_state_begin(&save->digest, save->state);
	kv_digest_group(&save->digest, 0, save->state->n_slots[0]);
	digest_rest_begin(&save->rest, save->state);
	if (save_images_begin(save, err)) {
		free_save(save);
		return NULL;
	}
	return save;
}

static int begin(struct command *cmd, struct disk *disk, const struct source *source,
		 const char *name)
{
	const struct save_order order = {.state = source->state,
					 .object = source->target.object,
					 .origin_id = source->origin_id,
					 .uid = cmd->session->uid,
					 .name = name,
					 .replace = cmd->request->save->replace != 0};
	struct save *save = save_new(cmd->core, disk, &order, &cmd->err);

	if (!save)
		return -1;
	save->job = jobs_begin(cmd, &save_kind, save, state_bytes(save->state));
	return 0;
}

/* The name in the store: given, or the source's. NULL with err. */
static const char *name_of(struct command *cmd, const struct source *source)
{
	const Kv__Wire__Save *request = cmd->request->save;
	const char *name = request->name;

	if (!name[0] && source->target.object && source->target.object->name)
		name = source->target.object->name;
	if (!name[0]) {
		errbuf_set(&cmd->err, KV_EINVAL,
			   "what has no name is saved under one: give it with --as");
		return NULL;
	}
	if (kv_name_check(name, &cmd->err))
		return NULL;
	return name;
}

static int check(struct command *cmd, struct disk *disk, const struct source *source,
		 const char **name)
{
	*name = name_of(cmd, source);
	if (!*name)
		return -1;
	if (!cmd->request->save->replace && store_saved_find(disk->store, cmd->session->uid, *name))
		return errbuf_set(&cmd->err, KV_EEXIST,
				  "%s is saved already; choose another name or ask to replace it",
				  *name);
	return image_check_layout(source->state->layout->layout, &cmd->err);
}

static enum cmd_step run_save(struct command *cmd)
{
	struct disk *disk = disk_of(cmd->core, &cmd->err);
	struct sources *sources;
	enum cmd_step rc = CMD_FAIL;
	const char *name;

	if (!disk || jobs_check_quota(cmd))
		return CMD_FAIL;
	sources = state_alloc(1, sizeof(*sources));
	if (sources_add(cmd, sources, cmd->request->save->source) == 0)
		rc = sources_read(cmd, sources, SOURCE_STORED);
	if (rc == CMD_DONE &&
	    (check(cmd, disk, &sources->ones[0], &name) || sources_freeze(cmd, sources) ||
	     begin(cmd, disk, &sources->ones[0], name)))
		rc = CMD_FAIL;
	sources_fini(cmd, sources);
	free(sources);
	return rc;
}

const struct command_entry cmd_save = {.run = run_save};
