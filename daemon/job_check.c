/*
 * The job that reads every image of the store and compares it with its checksum. With `repair` a
 * damaged one is not found any more, and what was saved with it is set aside. Core thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/disk.h"
#include "daemon/jobs.h"
#include "daemon/session.h"

struct check {
	struct core *core;
	struct job *job; /* NULL: nobody waits any more */
	struct disk *disk;
	bool repair;
	store_place place; /* that is being read, or was last */
	struct store_check expected;
	uint64_t seed;
	uint32_t n_bytes;
	struct io_request request;
	struct iovec iov;
	char *buffer;
	uint64_t n_bad;
	bool is_reading, has_read, is_used;
	int result;
};

static void free_check(struct check *check)
{
	if (check->is_used)
		store_unuse(check->disk->store, check->place);
	munmap(check->buffer, STORE_IMAGE_BYTES_MAX);
	free(check);
}

static void on_read(struct io_request *request, int result)
{
	struct check *check = request->arg;

	check->result = result;
	if (check->job)
		job_wake(check->core, check->job);
}

static void on_settled(struct io_request *request)
{
	struct check *check = request->arg;

	check->is_reading = false;
	if (check->job)
		job_wake(check->core, check->job);
	else
		free_check(check);
}

/* Does the disk say that the bytes are not there any more? All else it may say is no fault of the
 * image's. */
static bool is_lost(int result)
{
	return result == -EIO || result == -ENODATA || result == -EBADMSG || result == -EUCLEAN;
}

static void compare(struct check *check)
{
	struct store_check found = {{0}};

	if (check->result == 0)
		store_image_check(check->seed, check->buffer, check->n_bytes, &found);
	check->job->n_blocks++;
	check->job->n_done_bytes += check->n_bytes;
	if (check->result == 0 &&
	    memcmp(found.bytes, check->expected.bytes, sizeof(found.bytes)) == 0)
		return;
	check->n_bad++;
	if (!check->repair)
		return;
	disk_drop_image(check->disk, check->place);
}

/* The next image, or the end. */
static enum job_step begin_read(struct check *check)
{
	struct store *store = check->disk->store;
	store_place place = store_next(store, check->place, &check->seed, &check->expected,
				       &check->n_bytes);

	if (check->is_used)
		store_unuse(store, check->place);
	check->is_used = false;
	if (!place)
		return JOB_END;
	check->iov = (struct iovec){check->buffer, store_room_bytes(place)};
	check->request = (struct io_request){.op = IO_READ,
					     .iov = &check->iov,
					     .n_iov = 1,
					     .done = on_read,
					     .settled = on_settled,
					     .arg = check};
	if (disk_aim(check->disk, place, &check->request, &check->job->err))
		return JOB_FAIL;
	if (disk_submit(check->disk, &check->request))
		return JOB_WAIT; /* the same one again */
	check->place = place;
	check->is_used = store_use(store, place);
	check->is_reading = true;
	check->has_read = true;
	return JOB_WAIT;
}

static enum job_step step(struct core *core, struct job *job)
{
	struct check *check = job->work;
	enum job_step rc;

	(void)core;
	if (check->is_reading && check->result != -ETIMEDOUT)
		return JOB_WAIT;
	if (check->has_read && check->result && !is_lost(check->result)) {
		disk_fail(check->disk, check->result, "an image cannot be read", &job->err);
		return JOB_FAIL;
	}
	if (check->has_read)
		compare(check);
	check->has_read = false;
	rc = begin_read(check);
	if (rc == JOB_END && check->n_bad)
		errbuf_set(&job->err, KV_ECORRUPT, "%llu of %llu images are damaged%s",
			   (unsigned long long)check->n_bad, (unsigned long long)job->n_blocks,
			   check->repair ? "; what was saved with them is set aside" :
					   "; kvcachectl store repair sets aside what was saved "
					   "with them");
	return rc;
}

static void stop(struct core *core, struct job *job)
{
	struct check *check = job->work;

	(void)core;
	check->job = NULL;
	if (!check->is_reading)
		free_check(check);
	job->work = NULL;
}

static const struct job_kind check_kind = {.step = step, .stop = stop};

static enum cmd_step run_store_check(struct command *cmd)
{
	struct disk *disk = disk_of(cmd->core, &cmd->err);
	struct check *check;
	struct store_stats stats;

	if (!disk || jobs_check_quota(cmd))
		return CMD_FAIL;
	if (!session_is_operator(cmd->session))
		return cmd_fail(cmd, KV_EPERM,
				"the whole store is checked for root and the daemon's own user");
	check = state_alloc(1, sizeof(*check));
	check->core = cmd->core;
	check->disk = disk;
	check->repair = cmd->request->store_check->repair != 0;
	check->buffer = mmap(NULL, STORE_IMAGE_BYTES_MAX, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (check->buffer == MAP_FAILED) {
		free(check);
		return cmd_fail(cmd, KV_ENOMEM, "no memory for an image");
	}
	store_stats(disk->store, &stats);
	check->job = jobs_begin(cmd, &check_kind, check, stats.used_bytes + stats.cached_bytes);
	return CMD_DONE;
}

const struct command_entry cmd_store_check = {.run = run_store_check};
