/*
 * A layout: everything that shapes the bytes of one model's cache, and what follows from it.
 *
 * Fields come from a caller or off the wire into struct kv_layout, kv_layout_check() refuses what
 * no service could hold or this version does not store, naming the field; kv_layout_derive() then
 * forms layer groups and plane regions; kv_layout_hash() gives the 256-bit identity. A derived
 * layout is immutable and may be read from any thread.
 *
 * Layer group: the layers with the same bound on slots, in order of their first layer. A block of
 * a group is one piece in every plane region of it; a piece is block_tokens rows, a row is
 * `[head][bytes of one vector]` of one slot. Regions of a group, and so the pieces of a block in
 * digests, on disk and on the wire, come in one written order: for each layer of the group K codes,
 * K scale, K zero point, V codes, V scale, V zero point (those that its format has; V not where the
 * width is 0), then the slot planes in the order of the layout; an opaque layout has one region.
 *
 * Behind the layer groups come two groups that hold no slots, so that their blocks are granted,
 * shared, counted and freed as others are: the journal (one region; a block is rows_per_block rows,
 * proto/journal.h), and, where there are sequence planes, their versions (one region; a block is
 * one version of all of them, one behind the other, each at a multiple of 64). An opaque layout
 * has neither.
 */
#ifndef KV_PROTO_LAYOUT_H
#define KV_PROTO_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/errbuf.h"
#include "proto/format.h"
#include "proto/limits.h"

#define KV_HASH_BYTES 32
#define KV_FINGERPRINT_BYTES 32

/* Numbers are on the wire and in the hash: never changed. */
enum kv_plane_scope { KV_PLANE_SLOT = 1, KV_PLANE_SEQUENCE = 2 };

struct kv_layer {
	uint32_t n_query_groups; /* key/value heads, never the query heads */
	uint32_t k_width;        /* elements of one key vector */
	uint32_t v_width;        /* of one value vector; may differ, may be 0 */
	uint32_t bound_slots;    /* slots if bounded (window, fixed length); 0: unbounded */
};

struct kv_plane {
	char name[KV_TAG_BYTES_MAX + 1];
	uint32_t scope; /* enum kv_plane_scope */
	uint32_t bytes; /* per slot and head, or per sequence */
};

struct kv_tag {
	char key[KV_TAG_BYTES_MAX + 1];
	char value[KV_TAG_BYTES_MAX + 1];
};

enum kv_part {
	KV_PART_K_CODES = 0, /* raw elements, or the bytes of an opaque slot */
	KV_PART_K_SCALE = 1,
	KV_PART_K_ZERO = 2,
	KV_PART_V_CODES = 3,
	KV_PART_V_SCALE = 4,
	KV_PART_V_ZERO = 5,
	KV_PART_PLANE = 6, /* a slot plane: part is 6 + its number among the slot planes */
	KV_PARTS_MAX = KV_PART_PLANE + KV_PLANES_MAX
};

/* One plane region of a group: where the pieces of one part of one layer lie. */
struct kv_region {
	uint32_t layer;
	uint32_t part;         /* enum kv_part */
	uint32_t vector_bytes; /* of one head of one slot */
	uint32_t row_bytes;    /* one slot: n_query_groups * vector_bytes */
	uint32_t piece_bytes;  /* block_tokens rows */
};

enum kv_group_kind { KV_GROUP_LAYERS = 0, KV_GROUP_JOURNAL = 1, KV_GROUP_STATES = 2 };

struct kv_group {
	uint32_t kind; /* enum kv_group_kind */
	uint32_t n_layers;
	uint32_t bound_slots; /* 0: unbounded */
	uint32_t n_regions;
	uint32_t first_region; /* into kv_layout.regions */
	uint32_t n_heads;      /* of all its layers: rows of the journal that one token takes */
	uint64_t block_bytes;  /* all pieces of one block */
};

/* What is derived of one layer. */
struct kv_layer_map {
	uint32_t group;
	uint32_t first_region; /* its regions follow one another */
	uint32_t n_regions;
	uint32_t first_head;         /* of its group's heads, counted through the layers */
	uint32_t stored_bytes;       /* one head of one slot: vector_bytes of all its regions */
	int8_t region[KV_PARTS_MAX]; /* first_region + this; -1: it has no such part */
};

/* Shape of the journal's rows in one mode (proto/journal.h). */
struct kv_journal_shape {
	uint32_t rows_log2;     /* rows of a block: 1 << rows_log2 */
	uint32_t payload_off;   /* in a block, behind the row headers */
	uint32_t payload_bytes; /* from one row to the next; a multiple of 16 */
	uint32_t new_off;       /* undo: in a payload, where the new bytes are */
};

struct kv_layout {
	/* fields, in the order of the hash */
	uint8_t fingerprint[KV_FINGERPRINT_BYTES];
	uint32_t n_layers; /* 0 for an opaque layout */
	struct kv_layer *layers;
	uint32_t dtype;    /* enum kv_dtype */
	uint32_t k_format; /* enum kv_format */
	uint32_t v_format;
	uint32_t block_tokens;
	uint32_t opaque_bytes; /* bytes a slot; 0 unless opaque */
	uint32_t n_planes;
	struct kv_plane *planes;
	uint32_t n_tags;
	struct kv_tag *tags; /* sorted by key; no key twice */
	uint32_t n_salt_bytes;
	uint8_t salt[KV_SALT_BYTES_MAX];

	/* derived */
	uint8_t hash[KV_HASH_BYTES];
	uint32_t n_groups;       /* tables of a sequence */
	uint32_t n_layer_groups; /* the first of them */
	uint32_t journal_group;  /* n_groups: none (opaque) */
	uint32_t states_group;   /* n_groups: none (no sequence planes) */
	struct kv_group groups[KV_GROUPS_MAX];
	uint32_t n_regions;
	struct kv_region *regions;
	struct kv_layer_map *layer_maps; /* [n_layers]; one for an opaque layout */
	uint64_t max_slots;              /* smallest bound of all groups; UINT64_MAX if none */
	uint32_t n_heads;                /* of all layers */
	uint32_t n_slot_planes; /* each layer has them; the other planes are the sequence's */
	struct kv_journal_shape journal[3]; /* by enum kv_journal_mode; [0] is not used */
	/* of a sequence plane: offset in a version; of a slot plane: its number among these */
	uint32_t plane_off[KV_PLANES_MAX];
};

/*
 * Checks fields for sense and limits, and that formats can hold the widths. Sorts tags.
 * 0, or -1 with err naming the field, its value and the limit.
 */
int kv_layout_check(struct kv_layout *layout, struct errbuf *err);

/* Fills the derived part of a checked layout and its hash. 0, or -1 (memory, too many groups). */
int kv_layout_derive(struct kv_layout *layout, struct errbuf *err);

/* The canonical hash over typed, length-framed fields (BLAKE2b-256; kvcache-protocol(7)). */
void kv_layout_hash(const struct kv_layout *layout, uint8_t hash[KV_HASH_BYTES]);

/*
 * Names the first field that differs, with both values, into err (status KV_ELAYOUT); -1 then,
 * 0 when all fields are equal.
 */
int kv_layout_differs(const struct kv_layout *a, const struct kv_layout *b, struct errbuf *err);

/* Deep copy of the fields, derived anew; NULL when memory is out. */
struct kv_layout *kv_layout_copy(const struct kv_layout *layout);

/* Frees the arrays and the layout itself (heap); NULL is allowed. */
void kv_layout_free(struct kv_layout *layout);

/*
 * Where the regions of an arena of `n_blocks` blocks lie: region_off[n_regions of the group],
 * each a multiple of KV_SHM_PAGE (of 2 MiB for arenas of that size and more, so that huge pages
 * fit). Returns the size of the arena in bytes, 0 if it overflows 2^46.
 */
uint64_t kv_layout_arena(const struct kv_layout *layout, uint32_t group, uint32_t n_blocks,
			 uint64_t *region_off);

/* Blocks that hold n_tokens slots. */
static inline uint64_t kv_layout_blocks(const struct kv_layout *layout, uint64_t n_tokens)
{
	return n_tokens / layout->block_tokens + (n_tokens % layout->block_tokens != 0);
}

/* Slots of a layer group that hold something at a length. */
static inline uint64_t kv_layout_slots(const struct kv_layout *layout, uint32_t group,
				       uint64_t n_tokens)
{
	uint64_t bound = layout->groups[group].bound_slots;

	return bound && n_tokens > bound ? bound : n_tokens;
}

/* Layers that have slots: those of the layout, of an opaque one a single one with one head. */
static inline uint32_t kv_layout_layers(const struct kv_layout *layout)
{
	return layout->n_layers ? layout->n_layers : 1;
}

static inline uint32_t kv_layout_heads(const struct kv_layout *layout, uint32_t layer)
{
	return layout->n_layers ? layout->layers[layer].n_query_groups : 1;
}

/* Number of the region of a part of a layer; UINT32_MAX: it has no such part. */
static inline uint32_t kv_layout_region(const struct kv_layout *layout, uint32_t layer,
					uint32_t part)
{
	const struct kv_layer_map *map = &layout->layer_maps[layer];

	return map->region[part] < 0 ? UINT32_MAX : map->first_region + (uint8_t)map->region[part];
}

/* Number of a plane among all of the layout; -1: none of that scope has the name (or it is NULL). */
int kv_layout_find_plane(const struct kv_layout *layout, enum kv_plane_scope scope,
			 const char *name);

/* Bytes of one token over all layers as they are stored: codes, scales, zero points, planes. */
uint64_t kv_layout_token_bytes(const struct kv_layout *layout);

#endif
