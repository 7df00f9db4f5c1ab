/*
 * The inside of a store, for the files of this folder that make it up:
 *
 *	store.c        images: found, given a slot, committed, used, dropped; figures
 *	store_room.c   slots come from somewhere: free ones, the disk, images that nobody uses
 *	store_open.c   a folder becomes a store, whatever state it is in, and is let go
 *	store_claims.c at opening: what saved snapshots say about slots against what the index says
 *	images.c       from checksum to slot
 *	saved.c        saved snapshots that are there; saved_file.c one of their files,
 *	saved_load.c   all of them, at opening
 *	slots.c, slots_index.c   the slots of one size and their two files
 */
#ifndef KV_OFFLOAD_STORE_IMPL_H
#define KV_OFFLOAD_STORE_IMPL_H

#include <pthread.h>

#include "offload/saved_file.h"
#include "offload/slots.h"
#include "offload/store_format.h"

struct store {
	char *dir;
	int dir_fd, saved_fd, lock_fd;
	uint64_t max_bytes;
	bool preallocate;
	void (*report)(void *arg, const char *text);
	void *report_arg;
	struct store_about about; /* as it is on disk */
	bool is_closed_in_order; /* it was, when we opened it, on this boot of the machine or not */

	/* A class is filled before it is counted, and then stays; store_flush() walks them. */
	struct slots classes[STORE_CLASSES_MAX];
	_Atomic uint32_t n_classes;

	/* images.c */
	store_place *buckets; /* [n_buckets], a power of two */
	uint64_t n_buckets, n_found;

	uint64_t next_image; /* number of the next image */

	/* Of a flush that failed: nobody knows which of the images since the last good one are
	 * there, and the next flush will not say either. */
	pthread_mutex_t flush_lock;
	_Atomic bool folder_is_dirty;
	_Atomic uint64_t last_image;  /* committed */
	_Atomic uint64_t flushed;     /* images up to this one are durable */
	_Atomic uint32_t n_failures;  /* of flushes */
	_Atomic uint32_t n_accounted; /* of them: their images are dropped */

	/* saved.c */
	struct saved_entry **saved; /* [n_saved], by number */
	size_t n_saved, n_saved_room;
	struct saved_file *pending; /* packed, and neither taken up nor freed */
	uint64_t next_number;

	uint64_t n_set_aside;
	bool is_full;
};

/* A saved snapshot that is there. */
struct saved_entry {
	struct saved saved; /* first: what the outside has a pointer to */
	char file_name[SAVED_FILE_NAME_BYTES];
};

void store_say(struct store *store, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- places ------------------------------------------------------------------------------- */

#define PLACE_SLOT_BITS 40

static inline uint64_t place_slot(store_place place)
{
	return place & ((UINT64_C(1) << PLACE_SLOT_BITS) - 1);
}

static inline uint64_t place_slot_bytes(store_place place)
{
	return (place >> PLACE_SLOT_BITS) * STORE_PAGE;
}

static inline store_place place_make(const struct slots *slots, uint32_t i)
{
	return (uint64_t)(slots->slot_bytes / STORE_PAGE) << PLACE_SLOT_BITS | i;
}

/* NULL: there is no such slot size. */
struct slots *store_class(const struct store *store, uint64_t slot_bytes);

/* The slot of a place, whatever number the place is; NULL: there is none. */
struct slot *store_slot(const struct store *store, store_place place, struct slots **slots,
			uint32_t *i);

/* Opens a slot size, from its files or new. NULL with err. */
struct slots *store_class_open(struct store *store, uint32_t slot_bytes, struct errbuf *err);

/* ---- images.c ----------------------------------------------------------------------------- */

/* Room for n images. 0 or -ENOMEM. */
int images_reserve(struct store *store, uint64_t n);
/* The place of an image that is found; 0: there is none. */
store_place images_find(const struct store *store, const struct slot *like);
/* Lets a slot be found, unless one of the same image already is. */
void images_add(struct store *store, store_place place);
void images_remove(struct store *store, store_place place);
/* What belongs to an image, from what callers say. */
void images_fill(struct slot *slot, const struct store_identity *identity,
		 const struct store_check *check);
bool images_equal(const struct slot *a, const struct slot *b);

/* ---- store_room.c ------------------------------------------------------------------------- */

/* A free slot, taken from its list as SLOT_WRITING with one use; SLOT_NONE with err. */
uint32_t room_take(struct store *store, struct slots *slots, struct errbuf *err);
/* The image of a slot that nobody uses goes: its record is cleared. 0 or -errno. */
int room_forget(struct store *store, struct slots *slots, uint32_t i);
/* Gives back to the disk what is above the limit, as far as nobody uses it. */
void room_fit(struct store *store);

/* ---- store.c ------------------------------------------------------------------------------ */

/* Drops the images that a failed flush may have lost. */
void store_account_failures(struct store *store);

/* ---- store_open.c, store_claims.c, saved.c ------------------------------------------------ */

/* Writes the file `store`. 0 or -errno. */
int store_write_about(struct store *store);

/* Entries come from files: entries[n], heap; those that contradict what is there are set aside,
 * the others become the store's. 0 or -1 with err. */
int claims_settle(struct store *store, struct saved_entry **entries, size_t n, struct errbuf *err);

/* Reads all of saved/. 0, or -1 with err. */
int saved_load_all(struct store *store, struct saved_entry ***entries, size_t *n,
		   struct errbuf *err);
/* Room for n, so that saved_insert() cannot fail. 0 or -ENOMEM. */
int saved_reserve(struct store *store, size_t n);
void saved_insert(struct store *store, struct saved_entry *entry);
/* An entry out of the bytes of a file (heap), or NULL with err. */
struct saved_entry *saved_entry_from(const void *bytes, size_t n_bytes, struct errbuf *err);
void saved_entry_free(struct saved_entry *entry);
void saved_set_file_aside(struct store *store, const char *file_name, const char *why);
void saved_free_all(struct store *store);

/* Calls fn for each place of a head with what belongs there (its image number and uses are not
 * filled in), until it says false. */
bool saved_each_place(const Kv__Saved__Saved *head, const uint8_t layout[STORE_LAYOUT_BYTES],
		      bool (*fn)(struct store *store, store_place place, const struct slot *image,
				 void *arg),
		      struct store *store, void *arg);

#endif
