/*
 * The digest of a block with wider instructions than those that libxxhash was built for: the same
 * bits, two to three times as fast where the block is in a cache. Inner header of proto/digest*.c.
 */
#ifndef KV_PROTO_DIGEST_WIDE_H
#define KV_PROTO_DIGEST_WIDE_H

#include "proto/digest.h"

/* As kv_block_digest(). */
typedef void kv_block_digest_fn(const struct kv_layout *layout, uint32_t group,
				const void *const *pieces, uint32_t n_slots,
				struct kv_block_digest *out);

/* The one for this processor; NULL: it has nothing better. */
kv_block_digest_fn *kv_block_digest_wide(void);

kv_block_digest_fn kv_block_digest_avx2;

#endif
