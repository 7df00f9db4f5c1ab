/*
 * The image of a block, as it lies on the disk and in exported files: its pieces one behind the
 * other in the written order, block_bytes in all. Slots and journal rows that the state does not
 * have are zeros: a block that is written on behind a snapshot has one image for the snapshot.
 * Core thread.
 */
#ifndef KV_DAEMON_IMAGE_H
#define KV_DAEMON_IMAGE_H

#include "daemon/state.h"
#include "offload/store.h"

struct image {
	const struct state *state;
	uint32_t group;
	uint64_t index; /* in the table of the group */
};

/* What a piece of the block holds: at most two ranges, [from, to) in bytes of the piece. */
struct image_range {
	uint64_t from, to;
};
uint32_t image_ranges(const struct image *image, uint32_t region, struct image_range ranges[2]);

uint64_t image_bytes(const struct kv_layout *layout, uint32_t group);
/* Room on the disk for one of any group. */
uint64_t image_room_bytes(const struct kv_layout *layout);
uint64_t image_piece_bytes(const struct kv_layout *layout, uint32_t group, uint32_t region);

/* What the store knows images of a group by, together with their checksum. */
struct store_identity image_identity(const struct kv_layout *layout, uint32_t group, uint32_t uid);

/* Is it a block of a layer group? */
static inline bool image_has_digest(const struct image *image)
{
	return image->group < image->state->layout->layout->n_layer_groups;
}

/* Slots of a layer group that hold something in this block. */
uint32_t image_slots(const struct image *image);

/* Is it a full block of a layer group? Then its digest is kept (arena_digest). */
bool image_is_full(const struct image *image);

/* The digest that its block, of a layer group, is known to have; NULL: none is. Its arena. */
const struct kv_block_digest *image_known_digest(const struct image *image,
						 const struct arena *arena);

/* Reads one piece into `out`, zeros included. 0, or -1 with err. */
int image_read_piece(struct core *core, const struct image *image, uint32_t region, char *out,
		     struct errbuf *err);

/*
 * The checksum of an image, and the digest of its block, taken piece by piece in the written order.
 * Into the digest goes what the block holds, not the zeros behind it. Only blocks of layer groups
 * have one: of others it means nothing.
 */
struct image_sums {
	XXH3_state_t *check, *digest;
};

void image_sums_make(struct image_sums *sums); /* no memory ends the core */
void image_sums_free(struct image_sums *sums);
void image_sums_begin(struct image_sums *sums, const struct image *image, uint32_t uid);
void image_sums_piece(struct image_sums *sums, const struct image *image, uint32_t region,
		      const char *piece);
void image_sums_end(const struct image_sums *sums, struct store_check *check,
		    struct kv_block_digest *digest);

/* KV_ETOOBIG unless blocks of the layout are small enough for the disk. */
int image_check_layout(const struct kv_layout *layout, struct errbuf *err);

#endif
