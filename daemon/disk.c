#include "daemon/disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/image.h"
#include "daemon/jobs.h"
#include "daemon/leave.h"

#define BUFFER_BYTES_MOST (UINT64_C(16) << 20) /* of all buffers of a job, if more than one */

/* ---- the engine in the loop --------------------------------------------------------------- */

static void set_timer(struct disk *disk)
{
	uint64_t next = io_next_ns(disk->io);

	loop_timer_cancel(disk->core->env->loop, &disk->timer);
	if (next != UINT64_MAX && loop_timer_at(disk->core->env->loop, &disk->timer, next))
		log_error("disk", "no memory for a timer");
}

/* There is room in the queue again for those that found it full. */
static void wake_refused(struct disk *disk)
{
	struct core *core = disk->core;

	disk->has_refused = false;
	for (size_t i = 0; i < core->jobs.n; i++) {
		struct job *job = core->jobs.items[i].thing;

		if (job->phase == JOB_RUNNING && job->is_waiting)
			job_wake(core, job);
	}
	leave_wake(core);
}

static void reap(struct disk *disk)
{
	io_reap(disk->io, core_now_ns(disk->core));
	if (disk->has_refused)
		wake_refused(disk);
	set_timer(disk);
}

static void on_event(void *arg, uint32_t events)
{
	(void)events;
	reap(arg);
}

static void on_timer(void *arg)
{
	reap(arg);
}

int disk_submit(struct disk *disk, struct io_request *request)
{
	int rc = io_submit(disk->io, request);

	if (rc == 0)
		set_timer(disk);
	else
		disk->has_refused = true;
	return rc;
}

/* ---- birth and end ------------------------------------------------------------------------ */

static void report(void *arg, const char *text)
{
	(void)arg;
	log_warn("disk", "%s", text);
}

static void close_all(struct disk *disk)
{
	loop_io_remove(disk->core->env->loop, &disk->io_event);
	loop_timer_cancel(disk->core->env->loop, &disk->timer);
	io_close(disk->io);
	store_close(disk->store);
	disk->io = NULL;
	disk->store = NULL;
	disk->n_files = 0;
}

static int open_all(struct disk *disk)
{
	const struct settings *settings = disk->core->env->settings;
	struct io_options io = {.kind = (enum io_kind)settings->io};
	struct store_options options = {.dir = settings->disk_dir,
					.max_bytes = settings->disk_bytes,
					.preallocate = settings->preallocate == SETTINGS_ON};
	int rc;

	disk->io_event = (struct loop_io){.fn = on_event, .arg = disk, .fd = -1};
	disk->timer = (struct loop_timer){.fn = on_timer, .arg = disk};
	disk->fault = (struct errbuf){0};
	disk->store = store_open(&options, report, NULL, &disk->fault);
	if (disk->store)
		disk->io = io_open(&io, &disk->fault);
	if (!disk->io) {
		store_close(disk->store);
		disk->store = NULL;
		return -1;
	}
	rc = loop_io_add(disk->core->env->loop, &disk->io_event, io_fd(disk->io), EPOLLIN);
	if (rc) {
		errbuf_errno(&disk->fault, KV_EINTERNAL, -rc, "the I/O engine cannot be watched");
		close_all(disk);
		return -1;
	}
	return 0;
}

struct disk *disk_new(struct core *core)
{
	struct disk *disk;

	if (!core->env->settings->disk_dir[0])
		return NULL;
	disk = state_alloc(1, sizeof(*disk));
	disk->core = core;
	if (open_all(disk))
		log_error("disk", "no disk pool: %s", disk->fault.text);
	else
		log_info("disk", "%s: %s", core->env->settings->disk_dir, io_text(disk->io));
	return disk;
}

void disk_free(struct disk *disk)
{
	if (!disk)
		return;
	if (disk->store)
		close_all(disk);
	free(disk);
}

void disk_retry(struct core *core)
{
	if (core->disk && !core->disk->store && open_all(core->disk) == 0)
		log_info("disk", "%s: can be had again, %s", core->env->settings->disk_dir,
			 io_text(core->disk->io));
}

struct disk *disk_of(struct core *core, struct errbuf *err)
{
	struct disk *disk = core->disk;

	if (!disk) {
		errbuf_set(err, KV_EUNSUPPORTED,
			   "the daemon has no disk pool; set dir in [pool disk] of kvcached.conf, "
			   "or --disk-dir");
		return NULL;
	}
	if (disk->store || open_all(disk) == 0)
		return disk;
	errbuf_set(err, disk->fault.status, "no disk pool: %s", disk->fault.text);
	return NULL;
}

/* ---- transfers ---------------------------------------------------------------------------- */

static int file_of(struct disk *disk, int fd)
{
	int file;

	for (uint32_t i = 0; i < disk->n_files; i++)
		if (disk->files[i].fd == fd)
			return disk->files[i].file;
	file = io_file_add(disk->io, fd);
	if (file >= 0)
		disk->files[disk->n_files++] = (struct disk_file){fd, file};
	return file;
}

int disk_aim(struct disk *disk, store_place place, struct io_request *request, struct errbuf *err)
{
	int file = file_of(disk, store_fd(disk->store, place));

	if (file < 0)
		return errbuf_errno(err, KV_EIO, -file, "a slot file cannot be used");
	request->file = file;
	request->off = store_off(place);
	request->deadline_ns = core_now_ns(disk->core) + DISK_DEADLINE_NS;
	return 0;
}

int disk_buffers_make(struct disk_buffers *buffers, const struct kv_layout *layout,
		      struct errbuf *err)
{
	buffers->room = image_room_bytes(layout);
	buffers->n = (uint32_t)(BUFFER_BYTES_MOST / buffers->room);
	buffers->n = buffers->n > DISK_BUFFERS_MAX ? DISK_BUFFERS_MAX :
		     buffers->n == 0               ? 1 :
						     buffers->n;
	buffers->n_bytes = buffers->n * buffers->room;
	buffers->memory = mmap(NULL, buffers->n_bytes, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (buffers->memory != MAP_FAILED)
		return 0;
	buffers->memory = NULL;
	return errbuf_errno(err, KV_ENOMEM, errno, "no memory for buffers of %llu bytes",
			    (unsigned long long)buffers->n_bytes);
}

void disk_buffers_free(struct disk_buffers *buffers)
{
	if (buffers->memory)
		munmap(buffers->memory, buffers->n_bytes);
}

void disk_drop_image(struct disk *disk, store_place place)
{
	struct saved *saved;

	while ((saved = store_saved_naming(disk->store, place)) != NULL)
		store_saved_set_aside(disk->store, saved, "an image of it is damaged");
	store_drop(disk->store, place);
}

int disk_fail(const struct disk *disk, int result, const char *what, struct errbuf *err)
{
	const char *dir = disk->core->env->settings->disk_dir;

	switch (-result) {
	case ETIMEDOUT:
		return errbuf_set(err, KV_EIO, "%s: the disk under %s has not answered for %llu s",
				  what, dir,
				  (unsigned long long)(DISK_DEADLINE_NS / LOOP_NS_PER_S));
	case ENOSPC:
	case EDQUOT:
		return errbuf_set(err, KV_EIO, "%s: the disk under %s is full; make room there",
				  what, dir);
	case ENODATA:
		return errbuf_set(err, KV_ECORRUPT, "%s: a slot file under %s has been cut", what,
				  dir);
	}
	return errbuf_errno(err, KV_EIO, -result, "%s: the disk under %s", what, dir);
}
