/*
 * kvc_layout_size: what a sequence takes, part by part, before anything is allocated. Any thread;
 * no session, no daemon. Refuses what kvc_layout_register refuses, and sizes beyond 64 bits.
 */
#include "client/error.h"
#include "client/layout.h"
#include "proto/journal.h"

/* Bytes of one slot of a group, by part. */
struct slot_bytes {
	uint64_t k, v, scale, plane;
};

static struct slot_bytes slot_bytes_of(const struct kv_layout *layout, const struct kv_group *group)
{
	struct slot_bytes bytes = {0};

	for (uint32_t r = group->first_region; r < group->first_region + group->n_regions; r++) {
		const struct kv_region *region = &layout->regions[r];

		switch (region->part) {
		case KV_PART_K_CODES: bytes.k += region->row_bytes; break;
		case KV_PART_V_CODES: bytes.v += region->row_bytes; break;
		case KV_PART_K_SCALE:
		case KV_PART_K_ZERO:
		case KV_PART_V_SCALE:
		case KV_PART_V_ZERO: bytes.scale += region->row_bytes; break;
		default: bytes.plane += region->row_bytes; break;
		}
	}
	return bytes;
}

/* Two copies of an entry for each block. */
#define ENTRY_BYTES (2 * sizeof(struct kv_shm_entry))

static void add_group(const struct kv_layout *layout, uint32_t g, uint64_t n_tokens,
		      struct kvc_size *size)
{
	struct slot_bytes bytes = slot_bytes_of(layout, &layout->groups[g]);
	uint64_t n_slots = kv_layout_slots(layout, g, n_tokens);
	uint64_t n_blocks = kv_layout_blocks(layout, n_slots);

	size->k_bytes += n_slots * bytes.k;
	size->v_bytes += n_slots * bytes.v;
	size->scale_bytes += n_slots * bytes.scale;
	size->plane_bytes += n_slots * bytes.plane;
	size->padding_bytes += (n_blocks * layout->block_tokens - n_slots) *
			       (bytes.k + bytes.v + bytes.scale + bytes.plane);
	size->table_bytes += n_blocks * ENTRY_BYTES;
}

static void add_other(const struct kv_layout *layout, struct kvc_size *size)
{
	if (layout->states_group < layout->n_groups) {
		size->state_bytes = layout->groups[layout->states_group].block_bytes;
		size->table_bytes += ENTRY_BYTES;
	}
	if (layout->journal_group == layout->n_groups)
		return;
	size->undo_row_bytes = sizeof(struct kv_row) +
			       layout->journal[KV_JOURNAL_UNDO].payload_bytes;
	size->replay_row_bytes = sizeof(struct kv_row) +
				 layout->journal[KV_JOURNAL_REPLAY].payload_bytes;
	size->rows_per_token = (uint64_t)layout->n_heads + 1;
}

static int check_length(const struct kv_layout *layout, uint64_t n_tokens)
{
	uint64_t bytes;

	if (n_tokens > KV_TOKENS_MAX)
		return kvc_fail(KVC_ERANGE, "%llu tokens, the limit is %u",
				(unsigned long long)n_tokens, KV_TOKENS_MAX);
	if (__builtin_mul_overflow(kv_layout_token_bytes(layout), n_tokens + layout->block_tokens,
				   &bytes) ||
	    bytes > INT64_MAX)
		return kvc_fail(KVC_ETOOBIG, "%llu tokens of %llu bytes are more than 2^63 bytes",
				(unsigned long long)n_tokens,
				(unsigned long long)kv_layout_token_bytes(layout));
	return 0;
}

int kvc_layout_size(const struct kvc_layout_options *options, uint64_t n_tokens,
		    struct kvc_size *size)
{
	struct kv_layout *layout = layout_from_options(options);
	int rc = -1;

	if (!layout)
		return -1;
	if (check_length(layout, n_tokens))
		goto out;
	*size = (struct kvc_size){0};
	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		add_group(layout, g, n_tokens, size);
	add_other(layout, size);
	size->total_bytes = size->k_bytes + size->v_bytes + size->scale_bytes + size->plane_bytes +
			    size->state_bytes + size->padding_bytes + size->table_bytes;
	rc = 0;
out:
	kv_layout_free(layout);
	return rc;
}
