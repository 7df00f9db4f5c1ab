/* The images of a save (daemon/save.h). */
#include "daemon/save.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/arena_store.h"

#define SLICE_BYTES (UINT64_C(4) << 20)

/* ---- writing ------------------------------------------------------------------------------ */

static void on_written(struct io_request *request, int result)
{
	struct save_buffer *buffer = request->arg;
	struct save *save = buffer->save;
	struct errbuf fault;

	buffer->is_written = result == 0;
	if (result == 0)
		return;
	disk_fail(save->disk, result, "a block cannot be written", &fault);
	save_fail(save, &fault);
	save_wake(save);
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
		save_fail(save, &fault);
	else
		save->groups[buffer->group].places[buffer->index] = buffer->place;
	buffer->place = 0;
	save->n_in_flight--;
	save_wake(save);
}

/* A place for the image in the buffer that is being filled. 0: it has one on the disk, or the
 * buffer has one now; -1: failed. */
static int find_place(struct save *save)
{
	struct save_group *group = &save->groups[save->image.group];
	const struct store_check *check = &group->checks[save->image.index];
	struct store_identity identity = image_identity(save->state->layout->layout,
							save->image.group, save->uid);
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
	buffer->iov = (struct iovec){buffer->bytes, store_room_bytes(buffer->place)};
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

/* The digest of a block of a layer group: into the sum, and compared with what it was. */
static int take_digest(struct save *save, const struct kv_block_digest *digest)
{
	const struct image *image = &save->image;
	uint64_t ref = image->state->refs[image->group][image->index];
	const struct kv_block_digest *known = image_known_digest(
		image, arenas_find(save->core, gref_arena(ref)));

	kv_digest_block(&save->digest, digest);
	if (!known || memcmp(known, digest, sizeof(*digest)) == 0)
		return 0;
	return errbuf_set(&save->job->err, KV_ECORRUPT,
			  "block %llu of group %u is not what it was; nothing was saved",
			  (unsigned long long)image->index, image->group);
}

static struct save_buffer *free_buffer(struct save *save)
{
	for (uint32_t i = 0; i < save->memory.n; i++)
		if (!save->buffers[i].place)
			return &save->buffers[i];
	return NULL;
}

/* Reads pieces of one block. 1: all are read; 0: the slice is used up; -1: failed. */
static int read_block(struct save *save, uint64_t *budget)
{
	const struct kv_layout *layout = save->state->layout->layout;
	uint32_t g = save->image.group;
	struct kv_block_digest digest;

	if (save->region == 0) {
		image_sums_begin(&save->sums, &save->image, save->uid);
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
		image_sums_piece(&save->sums, &save->image, save->region, piece);
		save->off += n;
		save->job->n_done_bytes += n;
		*budget -= n < *budget ? n : *budget;
	}
	image_sums_end(&save->sums, &save->groups[g].checks[save->image.index], &digest);
	if (image_has_digest(&save->image) && take_digest(save, &digest))
		return -1;
	save->job->n_blocks++;
	return find_place(save) ? -1 : 1;
}

/* To the next group that has blocks; false: all blocks are read. */
static bool next_block(struct save *save)
{
	const struct kv_layout *layout = save->state->layout->layout;
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

enum job_step save_images_step(struct save *save)
{
	uint64_t budget = SLICE_BYTES;

	while (budget) {
		if (save->filling && save->filling->place && !submit(save))
			return JOB_WAIT;
		if (!save->filling && !next_block(save))
			return JOB_END;
		if (!save->filling)
			save->filling = free_buffer(save);
		if (!save->filling)
			return JOB_WAIT;
		switch (read_block(save, &budget)) {
		case -1: return JOB_FAIL;
		case 0: return JOB_MORE;
		}
		if (!submit(save))
			return JOB_WAIT;
	}
	return JOB_MORE;
}

/* ---- birth and end ------------------------------------------------------------------------ */

static int make_buffers(struct save *save, struct errbuf *err)
{
	struct disk_buffers *memory = &save->memory;

	if (disk_buffers_make(memory, save->state->layout->layout, err))
		return -1;
	madvise(memory->memory, memory->n_bytes, MADV_HUGEPAGE); /* few pieces for the disk */
	io_memory_add(save->disk->io, memory->memory, memory->n_bytes);
	for (uint32_t i = 0; i < memory->n; i++) {
		save->buffers[i].save = save;
		save->buffers[i].bytes = memory->memory + i * memory->room;
	}
	return 0;
}

static void make_lists(struct save *save)
{
	for (uint32_t g = 0; g < save->state->layout->layout->n_groups; g++) {
		uint64_t n = save->state->n_blocks[g];
		struct save_group *group = &save->groups[g];

		group->places = state_alloc(n, sizeof(group->places[0]));
		group->checks = state_alloc(n, sizeof(group->checks[0]));
	}
}

int save_images_begin(struct save *save, struct errbuf *err)
{
	make_lists(save);
	return make_buffers(save, err);
}

void save_images_stop(struct save *save)
{
	if (!save->filling || !save->filling->place)
		return;
	store_abort(save->disk->store, save->filling->place);
	save->filling->place = 0;
}

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

void save_images_end(struct save *save)
{
	give_up_places(save);
	if (save->memory.memory)
		io_memory_remove(save->disk->io, save->memory.memory);
	disk_buffers_free(&save->memory);
}
