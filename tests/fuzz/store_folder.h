/*
 * A folder of a store for fuzz targets: in memory where that can be had, since a store syncs. What
 * is done with it after each start is the same for all. Thread: one.
 */
#ifndef KVCACHED_TESTS_FUZZ_STORE_FOLDER_H
#define KVCACHED_TESTS_FUZZ_STORE_FOLDER_H

#include <stddef.h>

#include "offload/store_format.h"

#define FOLDER_SLOTS 8u
#define FOLDER_SLOT_BYTES 4096u

/* Makes the folder with `store` and a slot file; its path lives until folder_remove(). */
const char *folder_make(void);
void folder_remove(void);

/* Writes a file of the folder: head (NULL: none), then bytes. */
void folder_write(const char *name, const struct store_head *head, const void *bytes, size_t n);

/* The id and the life that `store` says. */
void folder_about(struct store_about *about);

/* Opens the store, looks at all that is there, writes, closes; twice. It must open, figures must
 * add up, and the second start must find nothing to say. */
void folder_use(void);

#endif
