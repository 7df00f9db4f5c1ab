#include "proto/digest.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "proto/digest_wide.h"

static void put(struct kv_digest *digest, const void *bytes, size_t n)
{
	XXH3_128bits_update(digest->state, bytes, n);
}

static void put_u32(struct kv_digest *digest, uint32_t value)
{
	uint32_t le = htole32(value);

	put(digest, &le, sizeof(le));
}

static void put_u64(struct kv_digest *digest, uint64_t value)
{
	uint64_t le = htole64(value);

	put(digest, &le, sizeof(le));
}

int kv_digest_begin(struct kv_digest *digest, const struct kv_layout *layout,
		    uint64_t length_tokens, uint64_t position)
{
	digest->state = XXH3_createState();
	if (!digest->state)
		return -ENOMEM;
	XXH3_128bits_reset(digest->state);
	put(digest, "kvc-digest-1", sizeof("kvc-digest-1"));
	put(digest, layout->hash, sizeof(layout->hash));
	put_u64(digest, length_tokens);
	put_u64(digest, position);
	return 0;
}

void kv_digest_group(struct kv_digest *digest, uint32_t group, uint64_t n_slots)
{
	put_u32(digest, group);
	put_u64(digest, n_slots);
}

void kv_digest_block(struct kv_digest *digest, const struct kv_block_digest *block)
{
	put(digest, block->bytes, sizeof(block->bytes));
}

void kv_digest_states_begin(struct kv_digest *digest)
{
	put(digest, "states", sizeof("states"));
}

void kv_digest_states_part(struct kv_digest *digest, const void *bytes, size_t n_bytes)
{
	put(digest, bytes, n_bytes);
}

void kv_digest_states(struct kv_digest *digest, const struct kv_layout *layout, const void *block)
{
	kv_digest_states_begin(digest);
	for (uint32_t i = 0; i < layout->n_planes; i++)
		if (layout->planes[i].scope == KV_PLANE_SEQUENCE)
			put(digest, (const char *)block + layout->plane_off[i],
			    layout->planes[i].bytes);
}

void kv_digest_rows(struct kv_digest *digest, uint64_t n_rows)
{
	put(digest, "rows", sizeof("rows"));
	put_u64(digest, n_rows);
}

static void put_u16(struct kv_digest *digest, uint16_t value)
{
	uint16_t le = htole16(value);

	put(digest, &le, sizeof(le));
}

void kv_digest_row(struct kv_digest *digest, const struct kv_layout *layout,
		   const struct kv_row *row, const void *payload)
{
	struct kv_row_parts parts = kv_row_parts(layout, row->layer);
	uint32_t vectors_bytes = parts.k_bytes + parts.v_bytes;

	put_u16(digest, row->layer);
	put_u16(digest, row->head);
	put_u32(digest, row->slot);
	put_u16(digest, row->flags & KV_ROW_BASE);
	if (!(row->flags & KV_ROW_BASE))
		put(digest, payload, vectors_bytes);
	put(digest, (const char *)payload + vectors_bytes, parts.planes_bytes);
}

void kv_digest_final(struct kv_digest *digest, uint8_t out[KV_DIGEST_BYTES])
{
	kv_hash_store(XXH3_128bits_digest(digest->state), out);
	kv_digest_drop(digest);
}

void kv_digest_drop(struct kv_digest *digest)
{
	XXH3_freeState(digest->state);
	digest->state = NULL;
}

void kv_block_digest(XXH3_state_t *state, const struct kv_layout *layout, uint32_t group,
		     const void *const *pieces, uint32_t n_slots, struct kv_block_digest *out)
{
	kv_block_digest_fn *wide = kv_block_digest_wide();

	if (wide)
		wide(layout, group, pieces, n_slots, out);
	else
		kv_hash_store(kv_hash_pieces(state, layout, group, pieces, n_slots), out->bytes);
}
