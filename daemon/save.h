/*
 * A save in progress, and its images: block by block read into a buffer of the save's, checksum
 * and digest taken on the way, and written unless the store has the image already: what was hashed
 * is what is written, whoever changes the memory meanwhile.
 *
 * A transfer that is late or lost keeps its buffer and its slot until the kernel is through with
 * it, and `struct save` with them; the job itself may be gone by then. Core thread.
 */
#ifndef KV_DAEMON_SAVE_H
#define KV_DAEMON_SAVE_H

#include "daemon/digest_rest.h"
#include "daemon/disk.h"
#include "daemon/image.h"
#include "daemon/jobs.h"

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
	struct state *state; /* one reference */
	uint64_t object_id, parent_id, created_unix_ns;
	uint32_t uid, kind;
	char name[KV_NAME_BYTES_MAX + 1];
	bool replace;

	enum save_phase phase;
	struct image image; /* that is being read */
	uint32_t region;
	uint64_t off;           /* of the piece, in the image */
	struct image_sums sums; /* of the image */
	struct save_buffer *filling;
	struct save_group groups[KV_GROUPS_MAX];
	struct kv_digest digest;
	struct digest_rest rest;
	uint8_t sum[KV_DIGEST_BYTES];

	struct disk_buffers memory;
	struct save_buffer buffers[DISK_BUFFERS_MAX]; /* [memory.n] */
	uint32_t n_in_flight;
	struct errbuf fault; /* of a transfer */
	bool failed;

	struct io_request call;
	bool is_calling, has_called;
	int result;
	struct saved_file *file;
};

/* What is to be saved: a state, whose it is, and under which name. */
struct save_order {
	struct state *state;
	const struct object *object; /* that has the state; NULL: a local fork */
	uint64_t origin_id;          /* parent of a local fork */
	uint32_t uid;
	const char *name;
	bool replace;
};

/* A save to be stepped by the job that the caller makes of it (save->job). NULL with err. */
struct save *save_new(struct core *core, struct disk *disk, const struct save_order *order,
		      struct errbuf *err);
extern const struct job_kind save_kind;

/* Buffers and lists for the images of save->state. 0, or -1 with err. */
int save_images_begin(struct save *save, struct errbuf *err);
/* A slice. JOB_END: all are on their way. */
enum job_step save_images_step(struct save *save);
/* Gives back a full buffer that never went out: nobody waits any more. */
void save_images_stop(struct save *save);
/* Nothing is in flight: gives up places, lists and buffers. */
void save_images_end(struct save *save);

/* The first fault counts. */
void save_fail(struct save *save, const struct errbuf *fault);
/* Something has ended: the job goes on, or, if it is gone, the save ends when nothing of it is in
 * flight any more. */
void save_wake(struct save *save);

#endif
