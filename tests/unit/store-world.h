/*
 * A store in a folder of its own, images whose bytes follow from a number, saved snapshots made of
 * them. Whatever goes wrong in here aborts with its line: the helpers run in tests and in their
 * forked children. Thread: one.
 */
#ifndef KVCACHED_TESTS_UNIT_STORE_WORLD_H
#define KVCACHED_TESTS_UNIT_STORE_WORLD_H

#include <stdio.h>
#include <stdlib.h>

#include "offload/store.h"

#define WORLD_UID 1000u
#define WORLD_GROUPS 2u
#define WORLD_IMAGES_MAX 16u /* of a group */

/* Bytes of an image of a group, and of its slot. */
#define WORLD_IMAGE_BYTES(group) ((group) ? 4096u : 5000u)
#define WORLD_SLOT_BYTES(group) ((group) ? 4096u : 8192u)

#define world_must(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "# %s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

/* Above 0: calls of the system are the test's own, and must not be made to fail. */
extern int world_own_calls;

struct world {
	char *root; /* of kt_tmpdir_new() */
	char dir[256];
	struct store *store;
	struct store_options options;
	struct errbuf err;   /* of the last call that failed */
	unsigned n_reports;  /* since world_open() */
	char reports[16384]; /* one a line */
};

/* What a saved snapshot is made of: images of each group by number. */
struct content {
	uint32_t n[WORLD_GROUPS];
	uint32_t keys[WORLD_GROUPS][WORLD_IMAGES_MAX];
};

/* An empty folder; the store is not opened. */
void world_begin(struct world *w, uint64_t max_bytes);
/* The same in memory, where syncs cost nothing, for tests that open a store a thousand times. */
void world_begin_in_memory(struct world *w, uint64_t max_bytes);
/* Closes the store if it is open and removes the folder. */
void world_end(struct world *w);

/* False with w->err. */
bool world_try_open(struct world *w);
void world_open(struct world *w);
void world_close(struct world *w);
void world_reopen(struct world *w);

/* The path of a file in the store's folder; valid until the next call. */
const char *world_path(const struct world *w, const char *name);
/* The path of the file of a saved snapshot. */
const char *world_saved_path(const struct world *w, const char *name);

/* What belongs to an image. */
struct store_identity world_identity(uint32_t group);
void world_image(uint32_t group, uint32_t key, void *bytes);
struct store_check world_check(uint32_t group, uint32_t key);

/* An image that is there already, or is written now; one use. 0 with w->err. */
store_place world_put(struct world *w, uint32_t group, uint32_t key);
/* Only writes it: store_alloc(), bytes, store_commit(). */
store_place world_write(struct world *w, uint32_t group, uint32_t key);
void world_write_bytes(struct world *w, store_place place, const void *bytes, size_t n_bytes);

/* Saves under a name as a daemon does. False with w->err; nothing is used then. */
bool world_save(struct world *w, const char *name, const struct content *content);
/* The same up to the packed file, which keeps its uses; the images' own go. */
struct saved_file *world_pack(struct world *w, const char *name, const struct content *content);

/* Content out of numbers: the images first, first + 1, ... of each group. */
struct content world_content(uint32_t first, uint32_t n0, uint32_t n1);

/* Do the bytes at a place give this checksum? */
bool world_verify(const struct world *w, store_place place, const struct store_identity *identity,
		  const struct store_check *check);
/* Do all bytes of all images of a saved snapshot give its checksums? */
bool world_saved_verifies(const struct world *w, const struct saved *saved);
/* Has it these images, and do they verify? */
bool world_saved_is(const struct world *w, const char *name, const struct content *content);

/* The figures add up. */
struct store_stats world_stats(const struct world *w);

/* Is a file there? How many files of the folder (saved: of saved/) end like this? */
bool world_has_file(const struct world *w, const char *name);
unsigned world_count(const struct world *w, const char *folder, const char *end);

/* A copy of a folder with all that is in it, in place of what is there. */
void world_copy_tree(const char *from, const char *to);

#endif
