/*
 * The disk pool of the core: the store and the I/O engine, wired to the loop.
 *
 * One that cannot be had (no folder, another daemon has it, wrong owner) is no reason not to
 * serve: the fault is in the log, in the status and in the answer to whoever wants it, and each
 * such request tries again, as does each tick. Core thread.
 */
#ifndef KV_DAEMON_DISK_H
#define KV_DAEMON_DISK_H

#include "daemon/state.h"
#include "offload/io.h"
#include "offload/store.h"

#define DISK_DEADLINE_NS (30 * LOOP_NS_PER_S) /* of one transfer */

struct disk {
	struct core *core;
	struct store *store; /* NULL: see fault */
	struct io_engine *io;
	struct loop_io io_event;
	struct loop_timer timer;
	struct disk_file {
		int fd, file;
	} files[IO_FILES_MAX];
	uint32_t n_files;
	bool has_refused; /* a transfer found the queue full since the last that ended */
	struct errbuf fault;
};

/* Opens what the settings say; NULL: they say nothing. */
struct disk *disk_new(struct core *core);
/* Waits for what is in flight. NULL is allowed. */
void disk_free(struct disk *disk);

/* Once a tick: tries again to open one that could not be opened. */
void disk_retry(struct core *core);

/* The open pool of a core, opened again if it could not be before. NULL with err. */
struct disk *disk_of(struct core *core, struct errbuf *err);

/* Fills file and offset of a transfer of the image at a place, and its deadline. -1 with err. */
int disk_aim(struct disk *disk, store_place place, struct io_request *request, struct errbuf *err);

/* The image at a place is damaged: it is not found any more, so that a save writes it anew, and what
 * was saved with it is set aside. */
void disk_drop_image(struct disk *disk, store_place place);

/* As io_submit(). A job that is refused waits, and is woken when a transfer has ended. */
int disk_submit(struct disk *disk, struct io_request *request);

/* Memory for the transfers of a job: so many buffers, each with room for an image. */
#define DISK_BUFFERS_MAX 8u
struct disk_buffers {
	char *memory; /* [n][room] */
	uint64_t n_bytes, room;
	uint32_t n;
};
int disk_buffers_make(struct disk_buffers *buffers, const struct kv_layout *layout,
		      struct errbuf *err);
void disk_buffers_free(struct disk_buffers *buffers);

/* Text for a result of a transfer. Returns -1. */
int disk_fail(const struct disk *disk, int result, const char *what, struct errbuf *err);

#endif
