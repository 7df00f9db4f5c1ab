/* xxHash compiled in, with AVX2. A block that is one piece is hashed in one call, for a state that
 * takes it bit by bit has only half the speed. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "proto/digest_wide.h"

void kv_block_digest_avx2(const struct kv_layout *layout, uint32_t group, const void *const *pieces,
			  uint32_t n_slots, struct kv_block_digest *out)
{
	const struct kv_group *g = &layout->groups[group];
	const size_t one_bytes = (size_t)n_slots * layout->regions[g->first_region].row_bytes;
	XXH128_hash_t hash;
	XXH3_state_t state;

	if (g->n_regions == 1) {
		hash = XXH3_128bits(pieces[0], one_bytes);
	} else {
		XXH3_INITSTATE(&state);
		hash = kv_hash_pieces(&state, layout, group, pieces, n_slots);
	}
	kv_hash_store(hash, out->bytes);
}
