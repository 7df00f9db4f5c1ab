#include "daemon/image.h"

#include <assert.h>
#include <string.h>

#include "daemon/arena_store.h"

static_assert(STORE_CHECK_BYTES == KV_DIGEST_BYTES, "both are XXH3-128");

uint64_t image_bytes(const struct kv_layout *layout, uint32_t group)
{
	return layout->groups[group].block_bytes;
}

uint64_t image_room_bytes(const struct kv_layout *layout)
{
	uint64_t most = 0;

	for (uint32_t g = 0; g < layout->n_groups; g++)
		if (image_bytes(layout, g) > most)
			most = image_bytes(layout, g);
	return (most + STORE_PAGE - 1) / STORE_PAGE * STORE_PAGE;
}

struct store_identity image_identity(const struct kv_layout *layout, uint32_t group, uint32_t uid)
{
	return (struct store_identity){.layout_hash = layout->hash,
				       .uid = uid,
				       .group = group,
				       .n_bytes = (uint32_t)image_bytes(layout, group)};
}

/* Journal and states have one region, which is the whole block. */
uint64_t image_piece_bytes(const struct kv_layout *layout, uint32_t group, uint32_t region)
{
	const struct kv_group *g = &layout->groups[group];

	if (g->kind != KV_GROUP_LAYERS)
		return g->block_bytes;
	return layout->regions[g->first_region + region].piece_bytes;
}

uint32_t image_slots(const struct image *image)
{
	const struct state *state = image->state;
	uint32_t block_tokens = state->layout->layout->block_tokens;
	uint64_t left = state->n_slots[image->group] - image->index * block_tokens;

	return left < block_tokens ? (uint32_t)left : block_tokens;
}

bool image_is_full(const struct image *image)
{
	return image_has_digest(image) &&
	       image_slots(image) == image->state->layout->layout->block_tokens;
}

const struct kv_block_digest *image_known_digest(const struct image *image,
						 const struct arena *arena)
{
	const struct state *state = image->state;

	if (image_is_full(image))
		return arena_digest(arena, gref_block(state->refs[image->group][image->index]));
	return state->partial_known[image->group] ? &state->partial[image->group] : NULL;
}

/* Headers, and payloads, of the rows that are in the window of the journal. */
static uint32_t journal_ranges(const struct image *image, struct image_range ranges[2])
{
	const struct state *state = image->state;
	const struct kv_layout *layout = state->layout->layout;
	const struct kv_journal_shape *shape =
		&layout->journal[kv_head_mode(state->head.state) == KV_JOURNAL_UNDO ?
					 KV_JOURNAL_UNDO :
					 KV_JOURNAL_REPLAY];
	uint64_t number = state->first_block[image->group] + image->index;
	uint64_t first = number << shape->rows_log2, end = (number + 1) << shape->rows_log2;
	uint64_t from = state->head.journal_first > first ? state->head.journal_first - first : 0;
	uint64_t to = (state->head.journal_end < end ? state->head.journal_end : end) - first;

	ranges[0] = (struct image_range){from * sizeof(struct kv_row), to * sizeof(struct kv_row)};
	ranges[1] = (struct image_range){shape->payload_off + from * shape->payload_bytes,
					 shape->payload_off + to * shape->payload_bytes};
	return 2;
}

uint32_t image_ranges(const struct image *image, uint32_t region, struct image_range ranges[2])
{
	const struct kv_layout *layout = image->state->layout->layout;
	const struct kv_group *group = &layout->groups[image->group];

	if (image->group == layout->journal_group)
		return journal_ranges(image, ranges);
	ranges[0] = (struct image_range){0, group->block_bytes};
	if (group->kind == KV_GROUP_LAYERS)
		ranges[0].to = (uint64_t)image_slots(image) *
			       layout->regions[group->first_region + region].row_bytes;
	return 1;
}

int image_read_piece(struct core *core, const struct image *image, uint32_t region, char *out,
		     struct errbuf *err)
{
	uint64_t ref = image->state->refs[image->group][image->index];
	uint64_t end = image_piece_bytes(image->state->layout->layout, image->group, region);
	const struct arena *arena = arenas_find(core, gref_arena(ref));
	struct image_range ranges[2];
	uint32_t n = image_ranges(image, region, ranges);
	uint64_t off = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t from = ranges[i].from, to = ranges[i].to;

		memset(out + off, 0, from - off);
		if (arena_read(arena, gref_block(ref), region, from, to - from, out + from, err))
			return -1;
		off = to;
	}
	memset(out + off, 0, end - off);
	return 0;
}

void image_sums_make(struct image_sums *sums)
{
	sums->check = XXH3_createState();
	sums->digest = XXH3_createState();
	if (!sums->check || !sums->digest)
		state_die("no memory for sums");
}

void image_sums_free(struct image_sums *sums)
{
	XXH3_freeState(sums->check);
	XXH3_freeState(sums->digest);
}

void image_sums_begin(struct image_sums *sums, const struct image *image, uint32_t uid)
{
	struct store_identity identity = image_identity(image->state->layout->layout, image->group,
							uid);

	XXH3_128bits_reset_withSeed(sums->check, store_seed(&identity));
	XXH3_128bits_reset(sums->digest);
}

void image_sums_piece(struct image_sums *sums, const struct image *image, uint32_t region,
		      const char *piece)
{
	struct image_range ranges[2];

	XXH3_128bits_update(sums->check, piece,
			    image_piece_bytes(image->state->layout->layout, image->group, region));
	if (!image_has_digest(image))
		return;
	image_ranges(image, region, ranges);
	XXH3_128bits_update(sums->digest, piece, ranges[0].to);
}

void image_sums_end(const struct image_sums *sums, struct store_check *check,
		    struct kv_block_digest *digest)
{
	kv_hash_store(XXH3_128bits_digest(sums->check), check->bytes);
	kv_hash_store(XXH3_128bits_digest(sums->digest), digest->bytes);
}

int image_check_layout(const struct kv_layout *layout, struct errbuf *err)
{
	for (uint32_t g = 0; g < layout->n_groups; g++)
		if (image_bytes(layout, g) > STORE_IMAGE_BYTES_MAX)
			return errbuf_set(
				err, KV_ETOOBIG,
				"a block has %llu bytes, the disk takes blocks of at most "
				"%llu; fewer block_tokens make smaller blocks",
				(unsigned long long)image_bytes(layout, g),
				(unsigned long long)STORE_IMAGE_BYTES_MAX);
	return 0;
}
