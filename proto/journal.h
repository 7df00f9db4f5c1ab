/*
 * Journals: the rows in which a sequence's updates can be taken back or laid over its blocks.
 *
 * A journal is a sequence of rows, numbered from 0 and never again, in blocks of the layout's
 * journal group: row r is in block r >> rows_log2, table entry (r >> rows_log2) % n_entries. A
 * block is first all its row headers, then all its payloads (struct kv_journal_shape). The header
 * of the sequence says which rows are there: [journal_first, journal_end).
 *
 * Rows come in *steps*. A step is the rows of one token, or of a whole update that overwrites slots
 * or sets a sequence plane, and ends with a record row, which says what the sequence is after it.
 * The first row of a journal is the record of the state below it, the *floor*; so the last row in
 * force always tells the state that counts, and going back to a step means: the bound behind its
 * record. Where tokens of an update are no steps of their own, the record behind each has
 * KV_ROW_INNER: no place to stop at, more of the same step follows.
 *
 * Undo (writes go in place): payload is the old stored bytes of one head of one slot (layer's
 * regions in written order, vector_bytes each), and at new_off the new ones. Replay (blocks are
 * untouched): payload is K, V in the layout's dtype, then the slot planes; what counts for a
 * (layer, head, slot) is the last row in force that names it, else its block.
 */
#ifndef KV_PROTO_JOURNAL_H
#define KV_PROTO_JOURNAL_H

#include "proto/commit.h"
#include "proto/layout.h"

enum kv_row_kind {
	KV_ROW_VOID = 0,   /* set aside and not written: means nothing */
	KV_ROW_VECTOR = 1, /* one head of one slot */
	KV_ROW_RECORD = 2  /* the sequence after the rows before it */
};
#define KV_ROW_BASE 1u  /* vector, replay: K and V are the block's, only the planes are new */
#define KV_ROW_INNER 2u /* record: the step goes on behind it */

struct kv_row {
	uint64_t prev;  /* replay: row that it displaces, + 1, if that row names the same (layer,
			  head, slot); else, and if 0, none */
	uint32_t slot;  /* of the layer's group */
	uint32_t token; /* of the update */
	uint16_t layer;
	uint16_t head;
	uint16_t kind; /* enum kv_row_kind */
	uint16_t flags;
};
static_assert(sizeof(struct kv_row) == 24, "row");

/* A vector's row of a layer and a head that the layout has. Whether it has the slot depends on how
 * long the sequence is: the caller's question. */
static inline bool kv_row_names_head(const struct kv_layout *layout, const struct kv_row *row)
{
	return row->kind == KV_ROW_VECTOR && row->layer < layout->n_layers &&
	       row->head < layout->layers[row->layer].n_query_groups;
}

/* Payload of a record: the sequence after the step. */
struct kv_record {
	uint64_t update;
	uint64_t length_tokens;
	uint64_t position;
	uint32_t planes;  /* version of the sequence planes */
	uint32_t n_rows;  /* between the record before and this one */
	uint64_t n_steps; /* since the journal began, this one included */
	uint8_t unused[24];
};
static_assert(sizeof(struct kv_record) == 64, "record");

/* Where the header and the payload of a row lie in its block. */
static inline uint64_t kv_row_off(const struct kv_journal_shape *shape, uint64_t row)
{
	return (row & ((UINT64_C(1) << shape->rows_log2) - 1)) * sizeof(struct kv_row);
}

static inline uint64_t kv_row_payload_off(const struct kv_journal_shape *shape, uint64_t row)
{
	return shape->payload_off +
	       (row & ((UINT64_C(1) << shape->rows_log2) - 1)) * shape->payload_bytes;
}

/* What a replay payload holds of a layer, one behind the other. */
struct kv_row_parts {
	uint32_t k_bytes, v_bytes, planes_bytes;
};
struct kv_row_parts kv_row_parts(const struct kv_layout *layout, uint32_t layer);

/* Which block numbers of a group a header names: [first, first + n). */
struct kv_window {
	uint64_t first, n;
};
struct kv_window kv_head_window(const struct kv_layout *layout, const struct kv_head *head,
				uint32_t group);

/* Versions of the sequence planes, in kv_head.planes: version v is block number v - 1. */
static inline uint32_t kv_planes_now(uint64_t planes)
{
	return (uint32_t)planes;
}

static inline uint32_t kv_planes_first(uint64_t planes)
{
	return (uint32_t)(planes >> 32);
}

static inline uint64_t kv_planes(uint32_t first, uint32_t now)
{
	return (uint64_t)first << 32 | now;
}

/* Do rows of a replay journal lie over the blocks? */
static inline bool kv_head_has_overlay(const struct kv_head *head)
{
	return kv_head_mode(head->state) == KV_JOURNAL_REPLAY &&
	       head->journal_first != head->journal_end;
}

/*
 * What a snapshot or a fork keeps of a header: no marks; of an undo journal nothing, of a replay
 * journal all; of the sequence planes the version that counts, and with a replay journal those
 * that its records name.
 */
void kv_head_share(struct kv_head *head);

/*
 * Freezes what a header names, whoever does it (the core under a hold, or the writer while its word
 * is open): raises the frozen slots of each layer group to what base_tokens fill, with a replay
 * journal the frozen rows, then counts the freeze. Marks never go back.
 */
void kv_place_freeze(struct kv_shm_place *place, const struct kv_layout *layout,
		     const struct kv_head *head);

/* A header that no layout could have: 0 if it makes sense, else what is wrong with it. */
const char *kv_head_wrong(const struct kv_layout *layout, const struct kv_head *head,
			  uint64_t max_tokens);

#endif
