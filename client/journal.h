/*
 * Rows of a sequence's journal in this process: where they are, which belong to which token of the
 * open update, and the index of a replay journal. The format is proto/journal.h. Writer's thread;
 * nothing here allocates but journal_index_map, which no hot-path call makes.
 */
#ifndef KV_CLIENT_JOURNAL_H
#define KV_CLIENT_JOURNAL_H

#include "client/seq.h"

static inline const struct kv_journal_shape *journal_shape(const struct kvc_seq *seq)
{
	return &seq->layout->fields->journal[seq_mode(seq)];
}

static inline char *journal_block(const struct kvc_seq *seq, uint64_t row)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct seq_group *g = &seq->groups[layout->journal_group];

	return seq_piece(seq, layout->groups[layout->journal_group].first_region,
			 g->mirror[group_index(g, row >> journal_shape(seq)->rows_log2)]);
}

/* A row's header and payload, in the block that the handle holds for it. */
static inline struct kv_row *journal_row(const struct kvc_seq *seq, uint64_t row)
{
	return (void *)(journal_block(seq, row) + kv_row_off(journal_shape(seq), row));
}

static inline char *journal_payload(const struct kvc_seq *seq, uint64_t row)
{
	return journal_block(seq, row) + kv_row_payload_off(journal_shape(seq), row);
}

static inline const struct kv_record *journal_record(const struct kvc_seq *seq, uint64_t row)
{
	return (const void *)journal_payload(seq, row);
}

/* Of the rows [row, end) those that lie side by side, in one block; payloads are payload_bytes of
 * the shape apart. */
struct journal_rows {
	struct kv_row *headers;
	char *payloads;
	uint64_t n;
};

static inline struct journal_rows journal_rows(const struct kvc_seq *seq, uint64_t row,
					       uint64_t end)
{
	const struct kv_journal_shape *shape = journal_shape(seq);
	uint64_t n = UINT64_C(1) << shape->rows_log2, in_block = row & (n - 1);
	char *block = journal_block(seq, row);
	struct journal_rows rows = {
		.headers = (void *)(block + kv_row_off(shape, row)),
		.payloads = block + kv_row_payload_off(shape, row),
		.n = n - in_block,
	};

	if (rows.n > end - row)
		rows.n = end - row;
	return rows;
}

/* Where the last of the rows [first, end) begin that lie in one block. */
static inline uint64_t journal_last_rows(const struct kvc_seq *seq, uint64_t first, uint64_t end)
{
	uint32_t log2 = journal_shape(seq)->rows_log2;
	uint64_t begin = (end - 1) >> log2 << log2;

	return begin > first ? begin : first;
}

/*
 * Stores K and V (NULL: not given) of n vectors of a layer, dense, in the payloads of rows [row,
 * row + n) as the mode has it; headers are the caller's. Returns n, or which vector cannot be
 * stored, and *is_value says whether its K or its V.
 */
uint64_t journal_store(const struct kvc_seq *seq, uint32_t layer, uint64_t row, uint64_t n,
		       const char *k, const char *v, bool *is_value);

/* Rows of half a table. A journal that forgets has no more: the other half is for the rows of an
 * update that comes while the old ones still count. */
static inline uint64_t journal_half(const struct kvc_seq *seq)
{
	return (uint64_t)(seq->groups[seq->layout->fields->journal_group].n_entries / 2)
	       << journal_shape(seq)->rows_log2;
}

/* ---- rows of the open update --------------------------------------------------------------- */

/* Does token t of the open update have rows of a group? (All do in replay mode; in undo mode those
 * that overwrite a slot of a ring.) */
bool journal_has_rows(const struct kvc_seq *seq, uint32_t group, uint64_t t);

/* Rows of the first t tokens of the open update, records included. */
uint64_t journal_rows_before(const struct kvc_seq *seq, uint64_t t);

/* Row of head 0 of a layer of token t; the other heads follow. The token has rows of its group. */
uint64_t journal_token_row(const struct kvc_seq *seq, uint32_t layer, uint64_t t);

/* Slot that token t of the open update takes in a group: a ring where the group is bounded. */
static inline uint64_t journal_token_slot(const struct kvc_seq *seq, uint32_t group, uint64_t t)
{
	uint64_t bound = seq->layout->fields->groups[group].bound_slots;
	uint64_t n = seq->head.length_tokens + t;

	return bound ? n % bound : n;
}

/*
 * Rows are to come behind the journal's end: what was rolled back there is forgotten, and a journal
 * without rows begins with the record of what is below it, its floor. Returns the first row behind
 * that. (Blocks for the floor are journal_extend's, its bytes journal_put_floor's.)
 */
uint64_t journal_begin(struct kvc_seq *seq);

/* Writes the floor, if journal_begin began a journal. */
void journal_put_floor(const struct kvc_seq *seq);

/* Blocks for rows [.., end): taken from the spares, the partly filled one copied if it is frozen.
 * -1 with KVC_ERESERVE or KVC_EJOURNAL; nothing has changed then. */
int journal_extend(struct kvc_seq *seq, uint64_t end);

/* Writes a record behind the rows of a step. */
void journal_put_record(const struct kvc_seq *seq, uint64_t row, const struct kv_record *record,
			uint16_t flags);

/* What the committed header says, as a record. */
struct kv_record journal_record_now(const struct kvc_seq *seq);

/* ---- steps --------------------------------------------------------------------------------- */

/* The last record in force; the journal has rows. */
static inline uint64_t journal_last(const struct kvc_seq *seq)
{
	return seq->head.journal_end - 1;
}

/* The record before one; UINT64_MAX if the journal does not reach further. */
uint64_t journal_previous(const struct kvc_seq *seq, uint64_t record);

/* The first record at or behind `row`, below `end`; `end` if there is none. */
uint64_t journal_next(const struct kvc_seq *seq, uint64_t row, uint64_t end);

/* Forgets the oldest steps of an undo journal that nothing needs, in the open update. */
void journal_trim(struct kvc_seq *seq, uint64_t n_rows);

/* ---- index of a replay journal ------------------------------------------------------------- */

/* A journal that came with the place, checked before it is used. -1 with KVC_ECORRUPT. */
int journal_check(const struct kvc_seq *seq);

/* Maps what a journal of this mode needs and is not there yet. -1 with KVC_ENOMEM. */
int journal_index_map(struct kvc_seq *seq, enum kv_journal_mode mode);
void journal_unmap(struct kvc_seq *seq);

/* Makes the index from the rows in force. */
void journal_index_build(struct kvc_seq *seq);

/* A copy of a row's header, if it is a vector's that leads nowhere but into this sequence: the row
 * may lie in a block that another process can write. */
bool journal_vector(const struct kvc_seq *seq, uint64_t row, struct kv_row *copy);

/* Heads of a slot lie side by side: an appended token has its entries in one place. */
static inline uint32_t *journal_index_at(const struct kvc_seq *seq, uint32_t layer, uint32_t head,
					 uint64_t slot)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map = &layout->layer_maps[layer];
	const struct seq_journal *j = &seq->journal;

	return &j->index[j->index_off[map->group] + slot * layout->groups[map->group].n_heads +
			 map->first_head + head];
}

/* The row of a header, whose entry is given, comes into force. */
static inline void journal_index_put(struct kvc_seq *seq, uint32_t *at, const struct kv_row *header,
				     uint64_t row)
{
	uint64_t *low =
		&seq->journal.index_low[seq->layout->fields->layer_maps[header->layer].group];

	*at = (uint32_t)row;
	if (header->slot < *low)
		*low = header->slot;
}

/* The newest row in force below `end` that names (layer, head, slot); UINT64_MAX: none. */
uint64_t journal_find(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot,
		      uint64_t end);

/* The same for the key that a header has, whose entry is given. */
uint64_t journal_find_at(const struct kvc_seq *seq, const uint32_t *at, const struct kv_row *key,
			 uint64_t end);

/* Does no later row in force name what this vector row names? header: a sane copy of its own. */
bool journal_is_newest(const struct kvc_seq *seq, const struct kv_row *header, uint64_t row);

/* The row that an entry names, in force below `end`, whether it is one of the entry's key or not;
 * UINT64_MAX: none. */
uint64_t journal_entry(const struct kvc_seq *seq, const uint32_t *at, uint64_t end);

/* Fetches the header and bytes [off, off + n_bytes) of the payload of the row that an entry names;
 * nothing where it names none. */
void journal_prefetch_payload(const struct kvc_seq *seq, const uint32_t *at, uint64_t end,
			      size_t off, size_t n_bytes);

/* Rows [first, end) come into force, oldest first: those of the open update, or such as another
 * process may write. Or they go, newest first. */
void journal_index_add(struct kvc_seq *seq, uint64_t first, uint64_t end);
void journal_index_again(struct kvc_seq *seq, uint64_t first, uint64_t end);
void journal_index_remove(struct kvc_seq *seq, uint64_t first, uint64_t end);

/* ---- stored vectors ------------------------------------------------------------------------ */

/* Which parts of a layer: bit i is its region i, in written order. All of them, and those of K and
 * V: the slot planes come behind. */
static inline uint32_t journal_all_parts(const struct kvc_seq *seq, uint32_t layer)
{
	return (UINT32_C(1) << seq->layout->fields->layer_maps[layer].n_regions) - 1;
}

static inline uint32_t journal_vector_parts(const struct kvc_seq *seq, uint32_t layer)
{
	int8_t first_plane = seq->layout->fields->layer_maps[layer].region[KV_PART_PLANE];

	return first_plane < 0 ? journal_all_parts(seq, layer) : (UINT32_C(1) << first_plane) - 1;
}

/* Copies those parts of one head of one slot out of its block into `stored`, where all parts of
 * the layer follow one another, or back. */
void journal_save_slot(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot,
		       uint32_t parts, char *stored);
void journal_restore_slot(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot,
			  uint32_t parts, const char *stored);

/* Fetches the lines of all parts, to be written. */
void journal_prefetch_slot(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot);

/* Where a slot plane begins in the payload of a row: `number` among the slot planes; in an undo
 * row that of the new bytes. */
uint32_t journal_plane_off(const struct kvc_seq *seq, uint32_t layer, uint32_t number);

/* Where the parts of K or V of a layer lie in `stored`. */
struct kv_codec_at;
struct kv_codec_at journal_stored_at(const struct kvc_seq *seq, uint32_t layer, bool is_value,
				     char *stored);

#endif
