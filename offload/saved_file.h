/*
 * The file of one saved snapshot: its name, its bytes, and what is checked of them. Knows nothing
 * of a store; saved.c has those that are there.
 */
#ifndef KV_OFFLOAD_SAVED_FILE_H
#define KV_OFFLOAD_SAVED_FILE_H

#include "offload/store_format.h"

#define SAVED_HASH_BYTES 32
#define SAVED_FILE_NAME_BYTES (10 + 1 + 2 * SAVED_HASH_BYTES + 1)
#define SAVED_NUMBER_MAX (UINT64_C(1) << 62)

/* UID-HASH: the hash is BLAKE2b-256 over the snapshot's name, in hexadecimal. */
void saved_file_name(uint32_t uid, const char *name, char out[SAVED_FILE_NAME_BYTES]);

/* Could a file of this name be one? */
bool saved_file_name_fits(const char *file_name);

/* Packs a head into the bytes of a file (heap). -1 with err: KV_ELIMIT, KV_ENOMEM. */
int saved_pack(const Kv__Saved__Saved *head, void **bytes, size_t *n_bytes, struct errbuf *err);

/*
 * The other way: unpacked and checked for sense (numbers, names, and that each group has a checksum,
 * a place and one size for its images), with the hash of its layout. NULL with err:
 * KV_ECORRUPT, KV_EVERSION, KV_ENOMEM, or what is wrong with the layout. Freed by
 * kv__saved__saved__free_unpacked().
 */
Kv__Saved__Saved *saved_parse(const void *bytes, size_t n_bytes, uint8_t layout_hash[KV_HASH_BYTES],
			      struct errbuf *err);

#endif
