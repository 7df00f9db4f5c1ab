/*
 * The job that saves a state in the disk store, whole or not at all.
 *
 * Block by block the image is read into a buffer of the job's, its checksum taken on the way, and
 * written unless the store has it already: what was hashed is what is written, whoever changes the
 * memory meanwhile. When all images are there and durable, the saved snapshot is written beside and
 * renamed to its name: that is the moment at which it exists. From there on the job is finished,
 * also if its session goes.
 *
 * A transfer that is late or lost keeps its buffer and its slot until the kernel is through with
 * it, and `struct save` with them; the job itself may be gone by then. Core thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/arena_store.h"
#include "daemon/digest_rest.h"
#include "daemon/disk.h"
#include "daemon/image.h"
#include "daemon/jobs.h"
#include "daemon/objects.h"
#include "daemon/saved_state.h"
#include "daemon/source.h"
#include "proto/runtime.h"

#define SLICE_BYTES (UINT64_C(4) << 20)
#define REST_BYTES (UINT64_C(512) << 10)
#define BUFFERS_MAX 8u
#define BUFFER_BYTES_MOST (UINT64_C(16) << 20) /* of all buffers of a job, if more than one */

enum save_phase { SAVE_BLOCKS, SAVE_REST, SAVE_FLUSH, SAVE_WRITE };

struct save_group {
	store_place *places;
	struct store_check *checks;
};

struct save_buffer {
	struct save *save;
	struct io_request request;
	struct iovec iov;
	char *bytes;
	store_place place; /* that is being written; 0: the buffer is free */
	uint32_t group;    /* of the block, and its index */
	uint64_t index;
	bool is_written;
};

struct save {
	struct core *core;
	struct job *job; /* NULL: nobody waits any more */
	struct disk *disk;
	struct state *state; /* one reference, until all is read */
	const struct layout_entry *layout;
	uint64_t object_id, parent_id, created_unix_ns;
	uint32_t uid, kind;
	char name[KV_NAME_BYTES_MAX + 1];
	bool replace;

	enum save_phase phase;
	struct image image; /* that is being read */
	uint32_t region;
	uint64_t off; /* of the piece, in the image */
	XXH3_state_t *check, *block;
	struct save_buffer *filling;
	struct save_group groups[KV_GROUPS_MAX];
	struct kv_digest digest;
	struct digest_rest rest;
	uint8_t sum[KV_DIGEST_BYTES];

	char *memory;
	uint64_t memory_bytes;
	struct save_buffer buffers[BUFFERS_MAX];
	uint32_t n_buffers, n_in_flight;
	struct errbuf fault; /* of a transfer */
	bool failed;

	struct io_request call;
	bool is_calling, has_called;
	int result;
	struct saved_file *file;
};

/* ---- its end ------------------------------------------------------------------------------ */

static void give_up_places(struct save *save)
{
	for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) {
		struct save_group *group = &save->groups[g];

		for (uint64_t i = 0; group->places && i < save->state->n_blocks[g]; i++)
			if (group->places[i])
				store_unuse(save->disk->store, group->places[i]);
		free(group->places);
		free(group->checks);
		*group = (struct save_group){0};
	}
}

static void free_save(struct save *save)
{
	give_up_places(save);
	if (save->digest.state)
		kv_digest_drop(&save->digest);
	XXH3_freeState(save->check);
	XXH3_freeState(save->block);
	digest_rest_end(&save->rest);
	saved_file_free(save->file);
	state_unref(save->core, save->state);
	if (save->memory) {
		io_memory_remove(save->disk->io, save->memory);
		munmap(save->memory, save->memory_bytes);
	}
	free(save);
}

static void wake(struct save *save)
{
	if (save->job)
		job_wake(save->core, save->job);
	else if (save->n_in_flight == 0 && !save->is_calling)
		free_save(save);
}

/* ---- writing ------------------------------------------------------------------------------ */

static void fail(struct save *save, const struct errbuf *fault)
{
	if (!save->failed)
		save->fault = *fault;
	save->failed = true;
}

static void on_written(struct io_request *request, int result)
{
	struct save_buffer *buffer = request->arg;
	struct save *save = buffer->save;
	struct errbuf fault;

	buffer->is_written = result == 0;
	if (result == 0)
		return;
	disk_fail(save->disk, result, "a block cannot be written", &fault);
	fail(save, &fault);
	wake(save);
}

/* The kernel is through with buffer and slot. */
static void on_settled(struct io_request *request)
{
	struct save_buffer *buffer = request->arg;
	struct save *save = buffer->save;
	struct errbuf fault;

	if (!buffer->is_written)
		store_abort(save->disk->store, buffer->place);
	else if (store_commit(save->disk->store, buffer->place, &fault))
		fail(save, &fault);
	else
		save->groups[buffer->group].places[buffer->index] = buffer->place;
	buffer->place = 0;
	save->n_in_flight--;
	wake(save);
}

static struct store_identity identity_of(const struct save *save)
{
	const struct kv_layout *layout = save->layout->layout;

	return (struct store_identity){.layout_hash = layout->hash,
				       .uid = save->uid,
				       .group = save->image.group,
				       .n_bytes = (uint32_t)image_bytes(layout, save->image.group)};
}

/* A place for the image in the buffer that is being filled. 0: it has one on the disk, or the
 * buffer has one now; -1: failed. */
static int find_place(struct save *save)
{
	struct save_group *group = &save->groups[save->image.group];
	const struct store_check *check = &group->checks[save->image.index];
	struct store_identity identity = identity_of(save);
	struct store *store = save->disk->store;
	struct save_buffer *buffer = save->filling;

	group->places[save->image.index] = store_find(store, &identity, check);
	if (group->places[save->image.index]) {
		save->job->n_known++;
		return 0;
	}
	buffer->place = store_alloc(store, &identity, check, &save->job->err);
	if (!buffer->place)
		return -1;
	buffer->request = (struct io_request){.op = IO_WRITE,
					      .iov = &buffer->iov,
					      .n_iov = 1,
					      .done = on_written,
					      .settled = on_settled,
					      .arg = buffer};
	buffer->iov = (struct iovec){buffer->bytes, store_room_bytes(store, buffer->place)};
	buffer->group = save->image.group;
	buffer->index = save->image.index;
	buffer->is_written = false;
	memset(buffer->bytes + identity.n_bytes, 0, buffer->iov.iov_len - identity.n_bytes);
	if (disk_aim(save->disk, buffer->place, &buffer->request, &save->job->err) == 0)
		return 0;
	store_abort(store, buffer->place);
	buffer->place = 0;
	return -1;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Into the digest goes what the block holds, not the zeros behind it. */
static void hash_piece(struct save *save, const char *piece, uint64_t n_bytes)
{
	struct image_range ranges[2];

	XXH3_128bits_update(save->check, piece, n_bytes);
	if (save->image.group >= save->layout->layout->n_layer_groups)
		return;
	image_ranges(&save->image, save->region, ranges);
	XXH3_128bits_update(save->block, piece, ranges[0].to);
}

static void take_hash(XXH3_state_t *state, uint8_t out[16])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
	memcpy(out, canonical.digest, 16);
}

/* The digest of a block of a layer group: into the sum, and compared with what it was. */
static int take_digest(struct save *save)
{
	const struct image *image = &save->image;
	uint64_t ref = image->state->refs[image->group][image->index];
	const struct arena *arena = arenas_find(save->core, gref_arena(ref));
	const struct kv_block_digest *known = arena_digest(arena, gref_block(ref));
	struct kv_block_digest digest;

	take_hash(save->block, digest.bytes);
	kv_digest_block(&save->digest, &digest);
	if (!image_is_full(image))
		known = image->state->partial_known[image->group] ?
				&image->state->partial[image->group] :
				NULL;
	if (!known || memcmp(known, &digest, sizeof(digest)) == 0)
		return 0;
	return errbuf_set(&save->job->err, KV_ECORRUPT,
			  "block %llu of group %u is not what it was; nothing was saved",
			  (unsigned long long)image->index, image->group);
}

static struct save_buffer *free_buffer(struct save *save)
{
	for (uint32_t i = 0; i < save->n_buffers; i++)
		if (!save->buffers[i].place)
			return &save->buffers[i];
	return NULL;
}

/* Reads pieces of one block. 1: all are read; 0: the slice is used up; -1: failed. */
static int read_block(struct save *save, uint64_t *budget)
{
	const struct kv_layout *layout = save->layout->layout;
	uint32_t g = save->image.group;
	struct store_identity identity = identity_of(save);

	if (save->region == 0) {
		XXH3_128bits_reset_withSeed(save->check, store_seed(&identity));
		XXH3_128bits_reset(save->block);
		save->off = 0;
	}
	for (; save->region < layout->groups[g].n_regions; save->region++) {
		uint64_t n = image_piece_bytes(layout, g, save->region);
		char *piece = save->filling->bytes + save->off;

		if (*budget == 0)
			return 0;
		if (image_read_piece(save->core, &save->image, save->region, piece,
				     &save->job->err))
			return -1;
		hash_piece(save, piece, n);
		save->off += n;
		save->job->n_done_bytes += n;
		*budget -= n < *budget ? n : *budget;
	}
	take_hash(save->check, save->groups[g].checks[save->image.index].bytes);
	if (g < layout->n_layer_groups && take_digest(save))
		return -1;
	save->job->n_blocks++;
	return find_place(save) ? -1 : 1;
}

/* To the next group that has blocks; false: all blocks are read. */
static bool next_block(struct save *save)
{
	const struct kv_layout *layout = save->layout->layout;
	struct image *image = &save->image;

	save->region = 0;
	while (image->group < layout->n_groups &&
	       image->index == save->state->n_blocks[image->group]) {
		image->index = 0;
		if (++image->group < layout->n_layer_groups)
			kv_digest_group(&save->digest, image->group,
					save->state->n_slots[image->group]);
	}
	return image->group < layout->n_groups;
}

/* Gives a full buffer to the engine. False: its queue is full. */
static bool submit(struct save *save)
{
	struct save_buffer *buffer = save->filling;

	if (buffer->place) {
		if (disk_submit(save->disk, &buffer->request))
			return false;
		save->n_in_flight++;
	}
	save->filling = NULL;
	save->image.index++;
	return true;
}

static enum job_step step_blocks(struct save *save)
{
	uint64_t budget = SLICE_BYTES;

	while (budget) {
		if (save->filling && save->filling->place && !submit(save))
			return JOB_MORE;
		if (!save->filling && !next_block(save)) {
			save->phase = SAVE_REST;
			return JOB_MORE;
		}
		if (!save->filling)
			save->filling = free_buffer(save);
		if (!save->filling)
			return JOB_WAIT;
		switch (read_block(save, &budget)) {
		case -1: return JOB_FAIL;
		case 0: return JOB_MORE;
		}
		if (!submit(save))
			return JOB_MORE;
	}
	return JOB_MORE;
}

/* ---- the rest of the digest, and the end ---------------------------------------------------- */

static enum job_step step_rest(struct save *save)
{
	const struct object *object = idlist_find(&save->core->objects, save->object_id);
	uint64_t n_bytes;
	int rc = digest_rest_step(save->core, &save->rest, &save->digest, REST_BYTES, &n_bytes,
				  &save->job->err);

	if (rc < 0)
		return JOB_FAIL;
	if (rc == 0)
		return JOB_MORE;
	kv_digest_final(&save->digest, save->sum);
	save->digest.state = NULL;
	if (object && object->state == save->state && object->has_digest &&
	    memcmp(object->digest, save->sum, sizeof(save->sum)) != 0) {
		errbuf_set(&save->job->err, KV_ECORRUPT,
			   "sequence planes or journal rows are not what they were; nothing was "
			   "saved");
		return JOB_FAIL;
	}
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

	if (store_saved_add(save->disk->store, save->file, &fault))
		fail(save, &fault);
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
	wake(save);
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
		return JOB_MORE;
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

static const struct job_kind save_kind;

/* Is a save of that name in its last step? */
static bool is_being_saved(const struct save *save)
{
	for (size_t i = 0; i < save->core->jobs.n; i++) {
		const struct job *job = save->core->jobs.items[i].thing;
		const struct save *other = job->kind == &save_kind ? job->work : NULL;

		if (other && other != save && other->file && other->uid == save->uid &&
		    strcmp(other->name, save->name) == 0)
			return true;
	}
	return false;
}

static int pack(struct save *save)
{
	struct store *store = save->disk->store;
	const struct object *object = idlist_find(&save->core->objects, save->object_id);
	Kv__Saved__Saved head;

	if (!save->replace && store_saved_find(store, save->uid, save->name))
		return errbuf_set(&save->job->err, KV_EEXIST, "%s was saved meanwhile", save->name);
	if (is_being_saved(save))
		return errbuf_set(&save->job->err, KV_EBUSY,
				  "%s is being saved by somebody else as well; try again",
				  save->name);
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
	case SAVE_BLOCKS: return step_blocks(save);
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
	if (save->filling && save->filling->place) {
		store_abort(save->disk->store, save->filling->place);
		save->filling->place = 0;
	}
	wake(save);
}

static bool is_decided(const struct job *job)
{
	const struct save *save = job->work;

	return save->phase == SAVE_WRITE && save->file;
}

static const struct job_kind save_kind = {.step = step, .stop = stop, .is_decided = is_decided};

/* ---- the command -------------------------------------------------------------------------- */

static int make_buffers(struct save *save, struct errbuf *err)
{
	const struct kv_layout *layout = save->layout->layout;
	uint64_t room = 0;

	for (uint32_t g = 0; g < layout->n_groups; g++)
		if (image_bytes(layout, g) > room)
			room = image_bytes(layout, g);
	room = (room + STORE_PAGE - 1) / STORE_PAGE * STORE_PAGE;
	save->n_buffers = (uint32_t)(BUFFER_BYTES_MOST / room);
	if (save->n_buffers > BUFFERS_MAX)
		save->n_buffers = BUFFERS_MAX;
	if (save->n_buffers == 0)
		save->n_buffers = 1;
	save->memory_bytes = save->n_buffers * room;
	save->memory = mmap(NULL, save->memory_bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (save->memory == MAP_FAILED) {
		save->memory = NULL;
		return errbuf_errno(err, KV_ENOMEM, errno, "no memory for buffers of %llu bytes",
				    (unsigned long long)save->memory_bytes);
	}
	io_memory_add(save->disk->io, save->memory, save->memory_bytes);
	for (uint32_t i = 0; i < save->n_buffers; i++) {
		save->buffers[i].save = save;
		save->buffers[i].bytes = save->memory + i * room;
	}
	return 0;
}

static void make_lists(struct save *save)
{
	for (uint32_t g = 0; g < save->layout->layout->n_groups; g++) {
		uint64_t n = save->state->n_blocks[g];
		struct save_group *group = &save->groups[g];

		group->places = state_alloc(n, sizeof(group->places[0]));
		group->checks = state_alloc(n, sizeof(group->checks[0]));
	}
}

static int begin(struct command *cmd, struct disk *disk, const struct source *source,
		 const char *name)
{
	const struct object *object = source->target.object;
	const struct kv_layout *layout = source->state->layout->layout;
	struct save *save = state_alloc(1, sizeof(*save));

	save->core = cmd->core;
	save->disk = disk;
	save->state = state_ref(source->state);
	save->layout = source->state->layout;
	save->object_id = object ? object->id : 0;
	save->parent_id = object ? object->parent_id : source->origin_id;
	save->created_unix_ns = object ? object->created_unix_ns : unix_now_ns();
	save->uid = cmd->session->uid;
	save->kind = object && object->kind == OBJECT_SEQUENCE && object->state ? OBJECT_SEQUENCE :
										  OBJECT_SNAPSHOT;
	snprintf(save->name, sizeof(save->name), "%s", name);
	save->replace = cmd->request->save->replace != 0;
	save->image.state = save->state;
	save->check = XXH3_createState();
	save->block = XXH3_createState();
	if (!save->check || !save->block ||
	    kv_digest_begin(&save->digest, layout, save->state->head.length_tokens,
			    save->state->head.position))
		state_die("no memory for a job");
	kv_digest_group(&save->digest, 0, save->state->n_slots[0]);
	digest_rest_begin(&save->rest, save->state);
	make_lists(save);
	if (make_buffers(save, &cmd->err)) {
		free_save(save);
		return -1;
	}
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
