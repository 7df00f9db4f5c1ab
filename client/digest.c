/* kvc_digest: over the mappings of this process. Reads every byte; not a hot-path call. */
#include "proto/digest.h"
#include "client/error.h"
#include "client/seq.h"

static void hash_block(struct kvc_seq *seq, XXH3_state_t *state, uint32_t group, uint64_t index,
		       const void **pieces, struct kv_block_digest *out)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_group *g = &layout->groups[group];
	struct kvc_block block = seq->groups[group].mirror[index];
	const struct arena_map *arena = session_arena_mapped(seq->writer->session, block.arena);
	uint64_t left = seq->head.length_tokens - index * layout->block_tokens;

	for (uint32_t r = 0; r < g->n_regions; r++)
		pieces[r] = arena->base + arena->region_off[r] +
			    (uint64_t)block.block *
				    layout->regions[g->first_region + r].piece_bytes;
	kv_block_digest(state, layout, group, pieces,
			left < layout->block_tokens ? (uint32_t)left : layout->block_tokens, out);
}

int kvc_digest(kvc_seq *seq, uint8_t digest[16])
{
	const struct kv_layout *layout = seq->layout->fields;
	const void *pieces[2 * KV_LAYERS_MAX];
	struct kv_digest all;
	XXH3_state_t *state;

	if (session_check(seq->writer->session))
		return -1;
	state = XXH3_createState();
	if (!state || kv_digest_begin(&all, layout, seq->head.length_tokens, seq->head.position)) {
		XXH3_freeState(state);
		return kvc_fail(KVC_ENOMEM, "no memory for a digest");
	}
	for (uint32_t g = 0; g < seq->n_groups; g++) {
		kv_digest_group(&all, g, seq->head.length_tokens);
		for (uint64_t i = 0; i < seq->groups[g].n_blocks; i++) {
			struct kv_block_digest block;

			hash_block(seq, state, g, i, pieces, &block);
			kv_digest_block(&all, &block);
		}
	}
	kv_digest_final(&all, digest);
	XXH3_freeState(state);
	return 0;
}
