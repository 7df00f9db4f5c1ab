/*
 * Rows of a sequence's journal in this process: where they are, which belong to which token of the
 * open update, and the index of a replay journal. The format is proto/journal.h. Writer's thread;
 * nothing here allocates but journal_index_map, which no hot-path call makes.
 */
#ifndef KV_CLIENT_JOURNAL_H
#define KV_CLIENT_JOURNAL_H

#include "client/seq.h"

/* A row's header and payload, in the block that the handle holds for it. */
struct kv_row *journal_row(const struct kvc_seq *seq, uint64_t row);
char *journal_payload(const struct kvc_seq *seq, uint64_t row);
const struct kv_record *journal_record(const struct kvc_seq *seq, uint64_t row);

static inline const struct kv_journal_shape *journal_shape(const struct kvc_seq *seq)
{
	return &seq->layout->fields->journal[seq_mode(seq)];
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
int journal_trim(struct kvc_seq *seq, uint64_t n_rows);

/* ---- index of a replay journal ------------------------------------------------------------- */

/* Maps the index, if it is needed and not there. -1 with KVC_ENOMEM. */
int journal_index_map(struct kvc_seq *seq);
void journal_unmap(struct kvc_seq *seq);

/* Makes the index from the rows in force. */
void journal_index_build(struct kvc_seq *seq);

static inline uint32_t *journal_index_at(const struct kvc_seq *seq, uint32_t group,
					 uint32_t group_head, uint64_t slot)
{
	const struct seq_journal *j = &seq->journal;

	return &j->index[j->index_off[group] + (uint64_t)group_head * j->index_slots[group] + slot];
}

/* The newest row in force below `end` that names (layer, head, slot); UINT64_MAX: none. */
uint64_t journal_find(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot,
		      uint64_t end);

/* Rows [first, end) come into force, oldest first, or go, newest first. */
void journal_index_add(struct kvc_seq *seq, uint64_t first, uint64_t end);
void journal_index_remove(struct kvc_seq *seq, uint64_t first, uint64_t end);

/* ---- stored vectors ------------------------------------------------------------------------ */

/* Copies all parts of one head of one slot out of its block into `stored` (regions in written
 * order), or back; `block` holds the slot. Which parts: bit i is region first_region + i. */
void journal_save_slot(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot,
		       uint32_t parts, char *stored);
void journal_restore_slot(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot,
			  uint32_t parts, const char *stored);

/* Where the parts of K or V of a layer lie in `stored`. */
struct kv_codec_at;
struct kv_codec_at journal_stored_at(const struct kvc_seq *seq, uint32_t layer, bool is_value,
				     char *stored);

#endif
