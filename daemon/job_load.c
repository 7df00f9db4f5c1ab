/*
 * The job that loads what was saved: a snapshot, or a sequence that waits for takeover.
 *
 * Images are read into arenas that only the core writes, straight into the pieces where these are
 * aligned for it, else through a buffer. Each is compared with the checksum of the saved snapshot;
 * then the digest of the whole is made from the bytes that lie in memory, and compared too. Only
 * what is right in both ways becomes an object, at once and whole; a mismatch names the block, and
 * nothing is there.
 *
 * A transfer that is late or lost keeps its memory, and `struct load` with it, until the kernel is
 * through; the job may be gone by then. Core thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/arena_store.h"
#include "daemon/digest_rest.h"
#include "daemon/disk.h"
#include "daemon/events.h"
#include "daemon/image.h"
#include "daemon/jobs.h"
#include "daemon/names.h"
#include "daemon/objects.h"
#include "daemon/saved_state.h"
#include "daemon/session.h"
#include "daemon/state_log.h"
#include "proto/runtime.h"

#define SLICE_BLOCKS 64u
#define ROOM_BYTES (UINT64_C(64) << 10) /* for records in the catalogue, but lists of blocks */
#define REST_BYTES (UINT64_C(512) << 10)

struct load_read {
	struct load *load;
	struct io_request request;
	struct iovec *iov;
	char *buffer; /* room for an image, or for what fills its last page */
	bool is_busy, is_read, is_direct, is_second;
	uint32_t group;
	uint64_t index;
};

struct load {
	struct core *core;
	struct job *job; /* NULL: nobody waits any more */
	struct disk *disk;
	struct saved *saved; /* held */
	struct state *state; /* not published; tables point into the arenas */
	struct arena *arenas[KV_GROUPS_MAX];
	uint32_t uid;
	char name[KV_NAME_BYTES_MAX + 1];
	bool replace, is_whole;

	struct image image; /* that is read next */
	struct kv_block_digest *digests[KV_GROUPS_MAX];
	struct image_sums sums; /* of one image */
	struct kv_digest digest;
	struct digest_rest rest;
	bool is_summed; /* digests of the blocks are in the digest */

	struct disk_buffers memory;
	struct load_read reads[DISK_BUFFERS_MAX]; /* [memory.n] */
	uint32_t n_in_flight;
	bool failed;
	struct errbuf fault;
};

/* ---- its end ------------------------------------------------------------------------------ */

static void free_load(struct load *load)
{
	for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) {
		if (load->arenas[g])
			arenas_give_up(load->core, load->arenas[g]);
		free(load->digests[g]);
	}
	for (uint32_t i = 0; i < DISK_BUFFERS_MAX; i++)
		free(load->reads[i].iov);
	if (load->digest.state)
		kv_digest_drop(&load->digest);
	image_sums_free(&load->sums);
	digest_rest_end(&load->rest);
	state_unref(load->core, load->state);
	saved_release(load->disk->store, load->saved);
	disk_buffers_free(&load->memory);
	free(load);
}

static void wake(struct load *load)
{
	if (load->job)
		job_wake(load->core, load->job);
	else if (load->n_in_flight == 0)
		free_load(load);
}

static void fail(struct load *load, const struct errbuf *fault)
{
	if (!load->failed)
		load->fault = *fault;
	load->failed = true;
}

/* ---- what was read ------------------------------------------------------------------------ */

static const Kv__Saved__Group *group_of(const struct load *load, uint32_t g)
{
	return load->saved->head->groups[g];
}

static char *piece_at(const struct load *load, uint32_t g, uint64_t index, uint32_t region)
{
	const struct kv_layout *layout = load->state->layout->layout;

	return load->arenas[g]->base + load->arenas[g]->region_off[region] +
	       index * image_piece_bytes(layout, g, region);
}

/* Puts an image that came through a buffer where it belongs. */
static void scatter(struct load *load, const struct load_read *read)
{
	const struct kv_layout *layout = load->state->layout->layout;
	const char *from = read->buffer;

	for (uint32_t r = 0; r < layout->groups[read->group].n_regions; r++) {
		uint64_t n = image_piece_bytes(layout, read->group, r);

		memcpy(piece_at(load, read->group, read->index, r), from, n);
		from += n;
	}
}

static void say_damaged(struct load *load, const struct load_read *read)
{
	const struct kv_layout *layout = load->state->layout->layout;
	struct errbuf fault;

	if (read->group < layout->n_layer_groups)
		errbuf_set(&fault, KV_ECORRUPT,
			   "%s: block %llu of group %u, from token %llu on, is damaged on the "
			   "disk; nothing was loaded",
			   load->saved->head->name, (unsigned long long)read->index, read->group,
			   (unsigned long long)(read->index * layout->block_tokens));
	else
		errbuf_set(&fault, KV_ECORRUPT,
			   "%s: block %llu of the %s is damaged on the disk; nothing was loaded",
			   load->saved->head->name, (unsigned long long)read->index,
			   read->group == layout->journal_group ? "journal" : "sequence planes");
	fail(load, &fault);
}

/* The bytes are in the arena: are they those that were saved? Then their digest is taken. */
static bool check_image(struct load *load, const struct load_read *read)
{
	struct image image = {load->state, read->group, read->index};
	const uint8_t *saved = group_of(load, read->group)->checks.data;
	struct store_check check;

	image_sums_begin(&load->sums, &image, load->uid);
	for (uint32_t r = 0; r < load->state->layout->layout->groups[read->group].n_regions; r++)
		image_sums_piece(&load->sums, &image, r,
				 piece_at(load, read->group, read->index, r));
	image_sums_end(&load->sums, &check, &load->digests[read->group][read->index]);
	return memcmp(check.bytes, saved + read->index * STORE_CHECK_BYTES, sizeof(check.bytes)) ==
	       0;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Can the kernel put the pieces where they belong? */
static bool fits_direct(const struct load *load, uint32_t g, uint32_t align)
{
	const struct kv_layout *layout = load->state->layout->layout;

	if (layout->groups[g].n_regions + 1 > IO_IOVECS_MAX)
		return false;
	for (uint32_t r = 0; r < layout->groups[g].n_regions; r++)
		if (image_piece_bytes(layout, g, r) % align)
			return false;
	return true;
}

static void aim_memory(struct load *load, struct load_read *read, uint64_t room, uint32_t align)
{
	const struct kv_layout *layout = load->state->layout->layout;
	uint64_t rest = room - image_bytes(layout, read->group);
	uint32_t n = 0;

	read->is_direct = fits_direct(load, read->group, align);
	if (!read->is_direct) {
		read->iov[n++] = (struct iovec){read->buffer, room};
	} else {
		for (uint32_t r = 0; r < layout->groups[read->group].n_regions; r++)
			read->iov[n++] = (struct iovec){piece_at(load, read->group, read->index, r),
							image_piece_bytes(layout, read->group, r)};
		if (rest)
			read->iov[n++] = (struct iovec){read->buffer, rest};
	}
	read->request.iov = read->iov;
	read->request.n_iov = n;
}

static void on_settled(struct io_request *request);

static void on_read(struct io_request *request, int result)
{
	struct load_read *read = request->arg;
	struct load *load = read->load;
	struct errbuf fault;

	read->is_read = result == 0;
	if (result == 0)
		return;
	disk_fail(load->disk, result, "a block cannot be read", &fault);
	fail(load, &fault);
	wake(load);
}

/* The image of read->group and read->index on its way. 0; 1: the engine is full; -1: failed. */
static int send_read(struct load *load, struct load_read *read)
{
	struct store *store = load->disk->store;
	store_place place = group_of(load, read->group)->places[read->index];

	read->request = (struct io_request){
		.op = IO_READ, .done = on_read, .settled = on_settled, .arg = read};
	if (disk_aim(load->disk, place, &read->request, &load->job->err))
		return -1;
	aim_memory(load, read, store_room_bytes(place), store_align(store, place));
	return disk_submit(load->disk, &read->request) ? 1 : 0;
}

/* What was read is wrong. Once, it may be the way and not the disk: it is read again before the
 * image, and all that was saved with it, is given up. True: it is on its way. */
static bool read_again(struct load *load, struct load_read *read)
{
	struct errbuf fault;

	if (read->is_second) {
		say_damaged(load, read);
		disk_drop_image(load->disk, group_of(load, read->group)->places[read->index]);
		return false;
	}
	read->is_second = true;
	if (send_read(load, read) == 0)
		return true;
	errbuf_set(&fault, KV_EBUSY,
		   "a block was read wrong and cannot be read again now: try again");
	fail(load, &fault);
	return false;
}

static void on_settled(struct io_request *request)
{
	struct load_read *read = request->arg;
	struct load *load = read->load;

	if (read->is_read && !load->failed && load->job) {
		if (!read->is_direct)
			scatter(load, read);
		if (check_image(load, read)) {
			load->job->n_done_bytes += image_bytes(load->state->layout->layout,
							       read->group);
			load->job->n_blocks++;
		} else if (read_again(load, read)) {
			return;
		}
	}
	read->is_busy = false;
	load->n_in_flight--;
	wake(load);
}

static struct load_read *free_read(struct load *load)
{
	for (uint32_t i = 0; i < load->memory.n; i++)
		if (!load->reads[i].is_busy)
			return &load->reads[i];
	return NULL;
}

/* The next image on its way. As send_read(). */
static int begin_read(struct load *load, struct load_read *read)
{
	int rc;

	*read = (struct load_read){.load = load,
				   .iov = read->iov,
				   .buffer = read->buffer,
				   .group = load->image.group,
				   .index = load->image.index};
	rc = send_read(load, read);
	if (rc)
		return rc;
	read->is_busy = true;
	load->n_in_flight++;
	load->image.index++;
	return 0;
}

static bool next_block(struct load *load)
{
	struct image *image = &load->image;

	while (image->group < load->state->layout->layout->n_groups &&
	       image->index == load->state->n_blocks[image->group]) {
		image->group++;
		image->index = 0;
	}
	return image->group < load->state->layout->layout->n_groups;
}

static enum job_step step_read(struct load *load)
{
	for (uint32_t i = 0; i < SLICE_BLOCKS && next_block(load); i++) {
		struct load_read *read = free_read(load);
		int rc;

		if (!read)
			return JOB_WAIT;
		rc = begin_read(load, read);
		if (rc)
			return rc < 0 ? JOB_FAIL : JOB_WAIT;
	}
	if (next_block(load))
		return JOB_MORE;
	return load->n_in_flight ? JOB_WAIT : JOB_END;
}

/* ---- the digest, and the object ------------------------------------------------------------ */

static void sum_blocks(struct load *load)
{
	const struct kv_layout *layout = load->state->layout->layout;

	if (load->is_summed)
		return;
	for (uint32_t g = 0; g < layout->n_layer_groups; g++) {
		kv_digest_group(&load->digest, g, load->state->n_slots[g]);
		for (uint64_t i = 0; i < load->state->n_blocks[g]; i++)
			kv_digest_block(&load->digest, &load->digests[g][i]);
	}
	load->is_summed = true;
}

/* Digests are remembered of blocks that the state pins. */
static void log_digests(struct load *load)
{
	struct core *core = load->core;
	struct state *state = load->state;
	uint32_t n_full;

	for (uint32_t g = 0; g < state->layout->layout->n_layer_groups; g++) {
		uint32_t *blocks = state_alloc(state->n_blocks[g], sizeof(blocks[0]));

		n_full = 0;
		for (uint64_t i = 0; i < state->n_blocks[g]; i++) {
			struct image image = {state, g, i};

			if (!image_is_full(&image)) {
				state->partial[g] = load->digests[g][i];
				state->partial_known[g] = true;
			} else if (arena_digest_set(load->arenas[g], (uint32_t)i,
						    &load->digests[g][i]) == 0) {
				blocks[n_full++] = (uint32_t)i;
			}
		}
		if (n_full)
			log_arena_digests(core, load->arenas[g], blocks, n_full, true);
		free(blocks);
	}
	log_partial_digests(core, state);
}

/* A snapshot of the parent's name and digest is the parent. */
static uint64_t parent_of(const struct load *load)
{
	const Kv__Saved__Saved *head = load->saved->head;
	const struct object *parent = head->parent_name[0] ?
					      names_find(load->core, load->uid, head->parent_name) :
					      NULL;

	if (!parent || !parent->has_digest || head->parent_digest.len != KV_DIGEST_BYTES ||
	    memcmp(parent->digest, head->parent_digest.data, KV_DIGEST_BYTES) != 0)
		return 0;
	return parent->id;
}

static void make_object(struct load *load, struct object *old)
{
	const Kv__Saved__Saved *head = load->saved->head;
	struct core *core = load->core;
	struct object *object;
	uint64_t parent_id = parent_of(load);

	state_publish(core, load->state);
	log_digests(load);
	object = object_new(core, (enum object_kind)head->kind, load->uid, load->state->layout,
			    true);
	object->state = state_ref(load->state);
	object->parent_id = parent_id == object->id ? 0 : parent_id;
	object->parent_update = head->parent_update;
	object->created_unix_ns = head->created_unix_ns;
	object->has_digest = true;
	memcpy(object->digest, load->job->digest, sizeof(object->digest));
	if (old)
		object_unlist(core, old);
	names_add(core, object, load->name);
	log_object(core, object);
	if (object->kind == OBJECT_SNAPSHOT)
		event_note(core, EVENT_SNAPSHOT_MADE, object->id, load->job->session->id,
			   object->uid, object->state->head.length_tokens);
}

/* What make_object() logs must find room: there is no way back from it. */
static int check_room(struct load *load, struct errbuf *err)
{
	const struct state *state = load->state;
	uint64_t n_bytes = ROOM_BYTES + state->head.n_marks * sizeof(struct cat_mark);

	for (uint32_t g = 0; g < state->layout->layout->n_layer_groups; g++)
		n_bytes += state->n_blocks[g] * sizeof(struct cat_digest);
	return catalogue_room(&load->core->catalogue, n_bytes, err);
}

static enum job_step finish(struct load *load)
{
	struct job *job = load->job;
	struct object *old;

	kv_digest_final(&load->digest, job->digest);
	load->digest.state = NULL;
	if (load->is_whole &&
	    memcmp(job->digest, load->saved->head->digest.data, sizeof(job->digest)) != 0) {
		errbuf_set(&job->err, KV_ECORRUPT,
			   "%s: its digest is not the one that was saved; nothing was loaded",
			   load->saved->head->name);
		return JOB_FAIL;
	}
	if (names_check(load->core, load->uid, load->name, load->replace, &old, &job->err) ||
	    objects_check_quota(load->core, job->session->user, 1, &job->err) ||
	    check_room(load, &job->err) || state_count_arenas(load->core, load->state, &job->err))
		return JOB_FAIL;
	make_object(load, old);
	state_commit(load->core);
	return JOB_END;
}

static enum job_step step(struct core *core, struct job *job)
{
	struct load *load = job->work;
	enum job_step rc;
	uint64_t n_bytes;
	int done;

	if (load->failed) {
		job->err = load->fault;
		return JOB_FAIL;
	}
	rc = step_read(load);
	if (rc != JOB_END)
		return rc;
	sum_blocks(load);
	done = digest_rest_step(core, &load->rest, &load->digest, REST_BYTES, &n_bytes, &job->err);
	if (done < 0)
		return JOB_FAIL;
	return done ? finish(load) : JOB_MORE;
}

static void stop(struct core *core, struct job *job)
{
	struct load *load = job->work;

	(void)core;
	job->work = NULL;
	load->job = NULL;
	wake(load);
}

static const struct job_kind load_kind = {.step = step, .stop = stop};

/* ---- the command -------------------------------------------------------------------------- */

static int make_reads(struct load *load, struct errbuf *err)
{
	const struct kv_layout *layout = load->state->layout->layout;
	uint32_t n_regions = 0;

	for (uint32_t g = 0; g < layout->n_groups; g++)
		if (layout->groups[g].n_regions > n_regions)
			n_regions = layout->groups[g].n_regions;
	if (disk_buffers_make(&load->memory, layout, err))
		return -1;
	for (uint32_t i = 0; i < load->memory.n; i++) {
		load->reads[i].buffer = load->memory.memory + i * load->memory.room;
		load->reads[i].iov = state_alloc(n_regions + 1, sizeof(struct iovec));
	}
	return 0;
}

static int make_arenas(struct load *load, struct pool_user *user, struct errbuf *err)
{
	struct state *state = load->state;

	for (uint32_t g = 0; g < state->layout->layout->n_groups; g++) {
		uint64_t n = state->n_blocks[g];

		if (n == 0)
			continue;
		if (n > GREF_BLOCK_MAX)
			return errbuf_set(err, KV_ELIMIT, "%llu blocks are too many for one arena",
					  (unsigned long long)n);
		load->arenas[g] = arenas_make_own(load->core, state->layout, g, (uint32_t)n, user,
						  err);
		if (!load->arenas[g])
			return -1;
		for (uint64_t i = 0; i < n; i++)
			state->refs[g][i] = gref_make(load->arenas[g]->id, (uint32_t)i);
		load->digests[g] = state_alloc(n, sizeof(load->digests[g][0]));
	}
	return 0;
}

/* Only so many tokens of what was saved, if that is asked for. */
static int cut(struct load *load, uint64_t n_tokens, struct errbuf *err)
{
	struct state *state = load->state;

	load->is_whole = n_tokens == 0 || n_tokens == state->head.length_tokens;
	if (load->is_whole)
		return 0;
	if (n_tokens > state->head.length_tokens)
		return errbuf_set(err, KV_ERANGE, "%s has %llu tokens, %llu were asked for",
				  load->saved->head->name,
				  (unsigned long long)state->head.length_tokens,
				  (unsigned long long)n_tokens);
	if (state_may_cut(state->layout->layout, &state->head, n_tokens, load->saved->head->name,
			  err))
		return -1;
	load->state = state_cut(state, n_tokens);
	state_free(state);
	return 0;
}

static int prepare(struct command *cmd, struct load *load)
{
	const Kv__Wire__Load *request = cmd->request->load;
	const Kv__Saved__Saved *head = load->saved->head;
	const struct layout_entry *layout;

	layout = layout_register(load->core, load->uid, head->layout, &cmd->err);
	if (!layout || saved_state_read(layout, head, &load->state, &cmd->err) ||
	    cut(load, request->n_tokens, &cmd->err) ||
	    make_arenas(load, cmd->session->user, &cmd->err) || make_reads(load, &cmd->err))
		return -1;
	load->image.state = load->state;
	image_sums_make(&load->sums);
	digest_state_begin(&load->digest, load->state);
	digest_rest_begin(&load->rest, load->state);
	return 0;
}

static enum cmd_step run_load(struct command *cmd)
{
	const Kv__Wire__Load *request = cmd->request->load;
	const char *name = request->as_name[0] ? request->as_name : request->name;
	struct disk *disk = disk_of(cmd->core, &cmd->err);
	struct object *old;
	struct saved *saved;
	struct load *load;

	if (!disk || jobs_check_quota(cmd) || kv_name_check(request->name, &cmd->err) ||
	    catalogue_room(&cmd->core->catalogue, ROOM_BYTES, &cmd->err) ||
	    names_check(cmd->core, cmd->session->uid, name, request->replace, &old, &cmd->err) ||
	    objects_check_quota(cmd->core, cmd->session->user, 1, &cmd->err))
		return CMD_FAIL;
	saved = store_saved_find(disk->store, cmd->session->uid, request->name);
	if (!saved)
		return cmd_fail(cmd, KV_ENOTFOUND, "nothing is saved as %s", request->name);
	load = state_alloc(1, sizeof(*load));
	load->core = cmd->core;
	load->disk = disk;
	load->saved = saved;
	saved_hold(saved);
	load->uid = cmd->session->uid;
	load->replace = request->replace != 0;
	snprintf(load->name, sizeof(load->name), "%s", name);
	if (prepare(cmd, load)) {
		free_load(load);
		return CMD_FAIL;
	}
	load->job = jobs_begin(cmd, &load_kind, load, state_bytes(load->state));
	return CMD_DONE;
}

const struct command_entry cmd_load = {.run = run_load};
