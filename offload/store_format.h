/*
 * What the store writes on disk, byte by byte; kvcache-store(5) says the same for people.
 *
 *   store               struct store_head, struct store_about
 *   blocks-N.data       slots of N bytes, one behind the other: images, nothing else
 *   blocks-N.index      struct store_head, struct store_index, zeros up to 4096; then for each
 *                       slot a struct store_record
 *   saved/UID-HASH      struct store_head, a packed kv.saved.Saved
 *
 * Little-endian, host order (only little-endian 64-bit machines are supported). Magic, version,
 * length and checksum of a head have their place and meaning in every version, so a version tells
 * what is later than itself from what is damaged.
 */
#ifndef KV_OFFLOAD_STORE_FORMAT_H
#define KV_OFFLOAD_STORE_FORMAT_H

#include <assert.h>
#include <stdint.h>

#include "offload/store.h"

#define STORE_VERSION 1u
#define STORE_MAGIC UINT64_C(0x65726f74733a766b)       /* "kv:store" */
#define STORE_INDEX_MAGIC UINT64_C(0x7865646e693a766b) /* "kv:index" */
#define STORE_SAVED_MAGIC UINT64_C(0x64657661733a766b) /* "kv:saved" */

#define STORE_ID_BYTES 16
#define STORE_LAYOUT_BYTES 16 /* of the hash of a layout */
#define STORE_INDEX_OFF 4096u /* of the first record */
#define STORE_SAVED_BYTES_MAX (64u << 20)
#define STORE_CLASSES_MAX 64u
#define STORE_SLOTS_MAX (UINT64_C(1) << 30) /* of one slot file */

#define STORE_IMAGE_NUMBER_MAX (UINT64_C(1) << 62)

/* Begins each file but the slot files. */
struct store_head {
	uint64_t magic;
	uint32_t version;
	uint32_t unused;
	uint64_t n_bytes;  /* that follow and are checked */
	uint64_t checksum; /* XXH64 over them, with the XXH64 of the 24 bytes above as seed */
};
static_assert(sizeof(struct store_head) == 32, "head");

struct store_about {
	uint8_t id[STORE_ID_BYTES]; /* drawn when the store was made */
	uint64_t created_unix_ns;
	uint64_t life;            /* how often it was opened */
	uint64_t next_number;     /* no saved snapshot has this number or a higher one */
	uint8_t boot_id[16];      /* of the machine, when it was opened last; zeros: unknown */
	uint32_t closed_in_order; /* 1: all was flushed behind the last change */
	uint32_t unused;
};
static_assert(sizeof(struct store_about) == 64, "about");

struct store_index {
	uint8_t id[STORE_ID_BYTES];
	uint64_t life; /* of the store, when the index was opened last */
	uint32_t slot_bytes;
	uint32_t record_bytes;
	uint8_t unused[STORE_INDEX_OFF - 64];
};
static_assert(sizeof(struct store_head) + sizeof(struct store_index) == STORE_INDEX_OFF, "index");

/* Numbers are never used again. */
enum store_kind {
	STORE_NOTHING = 0, /* the slot is free */
	STORE_IMAGE = 1,
	STORE_HOLE = 2 /* the slot is free and takes no room on the disk */
};

/* All zeros is a record too: of a slot that never held anything. */
struct store_record {
	uint8_t check[STORE_CHECK_BYTES];
	uint8_t layout[STORE_LAYOUT_BYTES];
	uint64_t number; /* of the image, from 1; a later one has a higher number */
	uint32_t uid;
	uint32_t group;
	uint32_t n_bytes;
	uint32_t kind;     /* enum store_kind */
	uint64_t checksum; /* XXH64 over the 56 bytes above, with the slot's number as seed */
};
static_assert(sizeof(struct store_record) == 64, "record");

#endif
