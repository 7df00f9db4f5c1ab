/*
 * The disk store: images of blocks in slot files, an index of them, and saved snapshots, in one
 * folder that one daemon has (kvcache-store(5), byte by byte).
 *
 *	key = {check, ...}; place = store_find()        is such an image there already?
 *	place = store_alloc()                           a free slot, invisible
 *	... write the image to store_fd() at store_off() through an io engine ...
 *	store_commit()                                  index record: visible from now on
 *	store_flush(): slot files and index are durable
 *	store_saved_write() with a packed Saved that names the places: durable, whole or absent
 *
 * A place is kept as long as something uses it: a saved snapshot, or a user in memory. Images that
 * nobody uses stay as long as there is room (a later save of the same bytes finds them) and are
 * the first to go.
 *
 * What is on disk is not trusted: an image counts only if its bytes give the checksum that the
 * saved snapshot names, seeded by what it belongs to (store_seed()). So a torn, stale or foreign
 * slot is a miss with a reason, never data. Nothing here reads or writes images; nothing here
 * waits for the disk but what says so (records go to the page cache, room is a call of the file
 * system's). One thread, but for the calls that say otherwise.
 */
#ifndef KV_OFFLOAD_STORE_H
#define KV_OFFLOAD_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/errbuf.h"
#include "proto/layout.h"
#include "proto/limits.h"
#include "proto/saved.pb-c.h"

#define STORE_CHECK_BYTES 16
#define STORE_IMAGE_BYTES_MAX (UINT64_C(64) << 20) /* of one block */
#define STORE_PAGE 4096u                           /* images take multiples of this */

/* Where an image is: bytes of its slot / STORE_PAGE << 40 | slot; 0 is none. */
typedef uint64_t store_place;

struct store_check {
	uint8_t bytes[STORE_CHECK_BYTES];
};

/* What an image belongs to. The same bytes of another layout, user or group are another image. */
struct store_identity {
	const uint8_t *layout_hash; /* KV_HASH_BYTES */
	uint32_t uid, group;
	uint32_t n_bytes; /* of the image, without what fills the page */
};

/* Seed of the XXH3-128 over the image. */
uint64_t store_seed(const struct store_identity *identity);
void store_image_check(uint64_t seed, const void *image, size_t n_bytes, struct store_check *out);

struct store_options {
	const char *dir;
	uint64_t max_bytes; /* of all slot files */
	bool preallocate;   /* take room on the disk a slot file piece by piece, ahead of use */
};

struct store;

/*
 * Opens or makes the store. Refuses a folder of another user or that others may enter
 * (KV_EPERM), one that another process has (KV_EBUSY), one of another version (KV_EVERSION).
 * A damaged index is set aside and made again from the saved snapshots; a damaged saved snapshot
 * is set aside; both are said in the log through `report`. Blocks on the disk.
 */
struct store *store_open(const struct store_options *options,
			 void (*report)(void *arg, const char *text), void *arg,
			 struct errbuf *err);
void store_close(struct store *store); /* flushes; NULL is allowed */

/* ---- images ------------------------------------------------------------------------------- */

/* A visible image with this checksum; one use more. 0: there is none. */
store_place store_find(struct store *store, const struct store_identity *identity,
		       const struct store_check *check);

/* A slot for an image, with one use, invisible until store_commit(). May ask the disk for room
 * (fallocate), and takes it from images that nobody uses. 0 with err: KV_EPOOL the store is full
 * (limit, what is used, what to do), KV_EIO the disk is, KV_ETOOBIG, KV_ELIMIT. */
store_place store_alloc(struct store *store, const struct store_identity *identity,
			const struct store_check *check, struct errbuf *err);
/* The bytes are written: writes the index record. 0, or -1 with KV_EIO: the slot is given back. */
int store_commit(struct store *store, store_place place, struct errbuf *err);
/* Instead of store_commit(). No transfer to the place may be under way any more. */
void store_abort(struct store *store, store_place place);

/* One use more / less. A place that a client of this module got from nowhere is refused: false. */
bool store_use(struct store *store, store_place place);
void store_unuse(struct store *store, store_place place);

/* The image turned out to be damaged: it is not found any more, and goes with its last use. Nothing
 * if that was said before. */
void store_drop(struct store *store, store_place place);

/* Where it is: slot file (its descriptor, for io_file_add; open until store_close(), at most 64
 * different ones), offset, bytes with filling. */
int store_fd(const struct store *store, store_place place);
uint64_t store_off(store_place place);
uint64_t store_room_bytes(store_place place);
/* Transfers to and from that file want memory and lengths in multiples of this. */
uint32_t store_align(const struct store *store, store_place place);

/* Makes all that was committed durable (fdatasync of files and index). Blocks; any thread, as long
 * as the store is not closed. 0 or -errno: then nobody knows which images since the last good one
 * are there, they are not found any more, and what was packed with them cannot be written. */
int store_flush(struct store *store);

/* ---- saved snapshots ---------------------------------------------------------------------- */

struct saved {
	Kv__Saved__Saved *head; /* unpacked; the store's */
	uint8_t layout_hash[KV_HASH_BYTES];
	uint64_t n_bytes; /* of its images */
	bool is_replaced; /* removed while somebody reads it */
	uint32_t n_readers;
};

/* NULL: the user has none of that name. */
struct saved *store_saved_find(struct store *store, uint32_t uid, const char *name);
/* By rising number, from behind `after` on; NULL: no more. */
struct saved *store_saved_next(struct store *store, uint32_t uid, uint64_t after);

/* One that names the place, of whichever user; NULL: none does. */
struct saved *store_saved_naming(struct store *store, store_place place);

/* A number for the next one. Blocks on the disk once in a thousand times, shortly. */
uint64_t store_saved_number(struct store *store);

/*
 * Two halves, so that the disk is waited for elsewhere: store_saved_pack() on the store's thread
 * makes what is written; store_saved_write() (blocks; any thread) writes it beside, syncs, renames
 * it over one of the same user and name, syncs the folder; store_saved_add() on the store's thread
 * takes it up, and one of the same name goes.
 *
 * store_saved_pack(): each place must be in use and hold the image that the head says (KV_EIO: not
 * any more); it has one use of its own from then on, the caller keeps its uses. The sizes of images
 * are filled in. KV_EBUSY: one of that name is being saved, until saved_file_free(). Flush behind
 * the last commit and before store_saved_write().
 *
 * saved_file_free() comes last, also when a half failed. If its file has replaced the old one (the
 * folder could not be synced, the job was cancelled in between), it is taken up all the same:
 * memory says what the disk says.
 */
struct saved_file;
struct saved_file *store_saved_pack(struct store *store, const Kv__Saved__Saved *head,
				    struct errbuf *err);
int store_saved_write(struct saved_file *file); /* 0 or -errno: old or new is there, whole */
int store_saved_add(struct saved_file *file, struct errbuf *err);
void saved_file_free(struct saved_file *file);

/* Unlinks it and syncs the folder (blocks, shortly); its uses go now or with its last reader.
 * KV_EBUSY: one of that name is being saved. */
int store_saved_remove(struct store *store, struct saved *saved, struct errbuf *err);

/* One that cannot be loaded: its file is set aside as NAME.damaged, it is not found any more.
 * Syncs the folder (blocks, shortly). */
void store_saved_set_aside(struct store *store, struct saved *saved, const char *why);

/* Keeps it and its places while it is read. */
void saved_hold(struct saved *saved);
void saved_release(struct store *store, struct saved *saved);

/* ---- for people --------------------------------------------------------------------------- */

struct store_stats {
	uint64_t max_bytes, file_bytes; /* limit; of the slot files */
	uint64_t used_bytes;            /* slots that a saved snapshot or somebody in memory uses */
	uint64_t cached_bytes;          /* images that nobody uses, but that are whole */
	uint64_t free_bytes; /* slots that are there and free; the four add up: used + cached
	                                   + free = file_bytes */
	uint64_t n_images, n_saved, n_set_aside;
	bool is_full; /* the last attempt to take room failed */
};
void store_stats(const struct store *store, struct store_stats *stats);

/* Walks all visible images: the next one behind `after` (0: from the start), 0: no more. Fills
 * what is needed to check it. */
store_place store_next(const struct store *store, store_place after, uint64_t *seed,
		       struct store_check *check, uint32_t *n_bytes);

#endif
