/*
 * Digests: 128-bit XXH3 over what a sequence holds, wherever it lies. The same code runs in the
 * library (over mappings) and in the core (over pread).
 *
 * Block digest: XXH3_128 over the filled rows of the block's pieces in the written order of the
 * regions (proto/layout.h). Sequence digest: XXH3_128 over, little-endian: "kvc-digest-1" and a
 * zero byte, the layout hash (32 bytes), length (8), position (8), then for each group its number
 * (4) and slots (8) followed by the block digests (16 each, canonical order) in table order; then,
 * if a sequence plane was ever set, "states" and a zero byte and the planes' bytes in the order of
 * the layout; then, if rows of a replay journal are in force, "rows" and a zero byte, their number
 * (8), and for each, by rising layer, head, slot: layer (2), head (2), slot (4), flags (2), and the
 * payload: K, V (not with KV_ROW_BASE), slot planes.
 */
#ifndef KV_PROTO_DIGEST_H
#define KV_PROTO_DIGEST_H

#include <string.h>

#include <xxhash.h>

#include "proto/journal.h"

#define KV_DIGEST_BYTES 16

struct kv_block_digest {
	uint8_t bytes[KV_DIGEST_BYTES];
};

/* A hash as digests are stored: the canonical order of its bytes. */
static inline void kv_hash_store(XXH128_hash_t hash, uint8_t out[KV_DIGEST_BYTES])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, hash);
	memcpy(out, canonical.digest, KV_DIGEST_BYTES);
}

struct kv_digest {
	XXH3_state_t *state;
};

/* Begins a sequence digest. 0, or -ENOMEM. Ended by kv_digest_final or kv_digest_drop. */
int kv_digest_begin(struct kv_digest *digest, const struct kv_layout *layout,
		    uint64_t length_tokens, uint64_t position);
void kv_digest_group(struct kv_digest *digest, uint32_t group, uint64_t n_slots);
void kv_digest_block(struct kv_digest *digest, const struct kv_block_digest *block);

/* The version of the sequence planes that counts; `block` is a whole block of the states group. */
void kv_digest_states(struct kv_digest *digest, const struct kv_layout *layout, const void *block);

/* The same piece by piece: the bytes of the sequence planes in the order of the layout. */
void kv_digest_states_begin(struct kv_digest *digest);
void kv_digest_states_part(struct kv_digest *digest, const void *bytes, size_t n_bytes);

/* How many rows are in force, then each of them in the order above; payload is the row's. */
void kv_digest_rows(struct kv_digest *digest, uint64_t n_rows);
void kv_digest_row(struct kv_digest *digest, const struct kv_layout *layout,
		   const struct kv_row *row, const void *payload);

void kv_digest_final(struct kv_digest *digest, uint8_t out[KV_DIGEST_BYTES]);
void kv_digest_drop(struct kv_digest *digest);

/*
 * Digest of one block: pieces[n_regions of the group] point to the piece of each region in
 * written order (memory of the caller's, or a mapping), n_slots of each are hashed. `state` is
 * the caller's, so that nothing is allocated per block.
 */
void kv_block_digest(XXH3_state_t *state, const struct kv_layout *layout, uint32_t group,
		     const void *const *pieces, uint32_t n_slots, struct kv_block_digest *out);

#endif
