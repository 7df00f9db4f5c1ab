/*
 * The digest of a block (kv_block_digest, proto/digest.h), read from its arena a chunk at a time: a
 * block may be larger than what can be read in one round.
 *
 *	while (!block_digest_is_read(&digest, arena))
 *		n = block_digest_step(&digest, arena, block, n_slots, err);
 *	block_digest_end(&digest, &out);                    and the next block begins
 *
 * Core thread.
 */
#ifndef KV_DAEMON_BLOCK_DIGEST_H
#define KV_DAEMON_BLOCK_DIGEST_H

#include "daemon/arena.h"

#define BLOCK_DIGEST_CHUNK_BYTES (256u << 10)

struct block_digest {
	XXH3_state_t *state;
	char *buffer;    /* a chunk */
	uint32_t region; /* that is being read */
	uint64_t off;    /* in its piece */
};

/* 0, or -1: no memory. Freed in both cases. */
int block_digest_make(struct block_digest *digest);
void block_digest_free(struct block_digest *digest);

/* Forgets what was read of a block. */
void block_digest_restart(struct block_digest *digest);

/* A chunk of the first n_slots. Its bytes, or -1 with err. */
int64_t block_digest_step(struct block_digest *digest, const struct arena *arena, uint32_t block,
			  uint32_t n_slots, struct errbuf *err);

static inline bool block_digest_is_read(const struct block_digest *digest,
					const struct arena *arena)
{
	return digest->region == arena->layout->groups[arena->group].n_regions;
}

void block_digest_end(struct block_digest *digest, struct kv_block_digest *out);

#endif
