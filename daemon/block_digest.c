#include "daemon/block_digest.h"

#include <stdlib.h>

int block_digest_make(struct block_digest *digest)
{
	*digest = (struct block_digest){.state = XXH3_createState(),
					.buffer = malloc(BLOCK_DIGEST_CHUNK_BYTES)};
	return digest->state && digest->buffer ? 0 : -1;
}

void block_digest_free(struct block_digest *digest)
{
	XXH3_freeState(digest->state);
	free(digest->buffer);
	*digest = (struct block_digest){0};
}

void block_digest_restart(struct block_digest *digest)
{
	digest->region = 0;
	digest->off = 0;
}

int64_t block_digest_step(struct block_digest *digest, const struct arena *arena, uint32_t block,
			  uint32_t n_slots, struct errbuf *err)
{
	const struct kv_layout *layout = arena->layout;
	const struct kv_group *group = &layout->groups[arena->group];
	uint64_t left = (uint64_t)n_slots *
				layout->regions[group->first_region + digest->region].row_bytes -
			digest->off;
	size_t n = left < BLOCK_DIGEST_CHUNK_BYTES ? (size_t)left : BLOCK_DIGEST_CHUNK_BYTES;

	if (digest->region == 0 && digest->off == 0)
		XXH3_128bits_reset(digest->state);
	if (arena_read(arena, block, digest->region, digest->off, n, digest->buffer, err))
		return -1;
	XXH3_128bits_update(digest->state, digest->buffer, n);
	digest->off += n;
	if (n == left) {
		digest->off = 0;
		digest->region++;
	}
	return (int64_t)n;
}

void block_digest_end(struct block_digest *digest, struct kv_block_digest *out)
{
	kv_hash_store(XXH3_128bits_digest(digest->state), out->bytes);
	block_digest_restart(digest);
}
