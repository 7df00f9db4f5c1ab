#include "client/inplace.h"

#include <string.h>

#include "client/journal.h"
#include "client/slots.h"

/* ---- frozen blocks ------------------------------------------------------------------------ */

/* Blocks that the open update has taken are in no table: no freeze covers them. */
static void own_open_blocks(struct kvc_seq *seq)
{
	seq->open_freeze = seq->inplace_freeze;
	for (uint32_t i = 0; i < seq->layout->fields->n_layer_groups; i++) {
		struct seq_group *g = &seq->groups[i];

		for (uint32_t c = 0; c < g->n_copied; c++)
			group_set_freeze(g, g->copied[c].index, seq->open_freeze);
		for (uint64_t b = g->end_block; b < g->pending_end; b++)
			group_set_freeze(g, b, seq->open_freeze);
	}
}

/* A row whose slot counts. */
static bool counts(const struct kvc_seq *seq, const struct kv_row *row, uint64_t n_tokens)
{
	const struct kv_layout *layout = seq->layout->fields;

	return row->kind == KV_ROW_VECTOR &&
	       row->slot < kv_layout_slots(layout, layout->layer_maps[row->layer].group, n_tokens);
}

static int copy_frozen(struct kvc_seq *seq, const struct kv_row *row)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint32_t group = layout->layer_maps[row->layer].group;
	uint32_t block = row->slot / layout->block_tokens;
	uint64_t n_tokens = seq->head.base_tokens + (seq->is_open ? seq->open_tokens : 0);

	if (seq_meta_freeze(seq->groups[group].meta[block]) == seq->inplace_freeze)
		return 0;
	if (begin_check_spares(seq, group, 1))
		return -1;
	begin_copy(seq, group, block,
		   slots_of_block(layout, block, kv_layout_slots(layout, group, n_tokens)));
	return 0;
}

int inplace_copy_frozen(struct kvc_seq *seq, uint64_t first, uint64_t end, uint64_t n_tokens)
{
	seq->inplace_freeze = atomic_load_explicit(&seq->shm->freeze_count, memory_order_acquire);
	own_open_blocks(seq);
	for (struct journal_rows rows; first < end; first += rows.n) {
		rows = journal_rows(seq, first, end);
		for (uint64_t i = 0; i < rows.n; i++)
			if (counts(seq, &rows.headers[i], n_tokens) &&
			    copy_frozen(seq, &rows.headers[i]))
				return -1;
	}
	return 0;
}

bool inplace_is_frozen_since(const struct kvc_seq *seq)
{
	return atomic_load_explicit(&seq->shm->freeze_count, memory_order_acquire) !=
	       seq->inplace_freeze;
}

/* ---- bytes -------------------------------------------------------------------------------- */

void inplace_save_old(struct kvc_seq *seq, uint64_t first, uint64_t end)
{
	size_t payload_bytes = journal_shape(seq)->payload_bytes;

	for (struct journal_rows rows; first < end; first += rows.n) {
		rows = journal_rows(seq, first, end);
		for (uint64_t i = 0; i < rows.n; i++) {
			const struct kv_row *row = &rows.headers[i];

			if (row->kind == KV_ROW_VECTOR)
				journal_save_slot(seq, row->layer, row->head, row->slot,
						  journal_all_parts(seq, row->layer),
						  rows.payloads + i * payload_bytes);
		}
	}
}

void inplace_count_rows(struct kvc_seq *seq, uint64_t end)
{
	KV_FAULT_POINT();
	atomic_store_explicit(&seq->shm->rows_end, end, memory_order_release);
	/* The count is there before any slot is overwritten. */
	atomic_thread_fence(memory_order_seq_cst);
	KV_FAULT_POINT();
}

/* What a row was not given stays as it is, and is kept as new: so it can be applied again. A row
 * that was committed is not written: its block may be another's. */
static void complete(const struct kvc_seq *seq, struct kv_row *header, char *stored)
{
	uint32_t all = journal_all_parts(seq, header->layer), given = (uint32_t)header->prev;

	if (given && given != all)
		journal_save_slot(seq, header->layer, header->head, header->slot, all & ~given,
				  stored);
	if (given)
		header->prev = 0;
}

static void apply(const struct kvc_seq *seq, struct kv_row *header, char *stored)
{
	if (header->kind != KV_ROW_VECTOR)
		return;
	complete(seq, header, stored);
	KV_FAULT_POINT();
	journal_restore_slot(seq, header->layer, header->head, header->slot,
			     journal_all_parts(seq, header->layer), stored);
}

void inplace_apply(struct kvc_seq *seq, uint64_t first, uint64_t end)
{
	const struct kv_journal_shape *shape = journal_shape(seq);

	inplace_count_rows(seq, end);
	for (struct journal_rows rows; first < end; first += rows.n) {
		rows = journal_rows(seq, first, end);
		for (uint64_t i = 0; i < rows.n; i++)
			apply(seq, &rows.headers[i],
			      rows.payloads + i * shape->payload_bytes + shape->new_off);
	}
	KV_FAULT_POINT();
}

void inplace_put_back(struct kvc_seq *seq, uint64_t first, uint64_t end, uint64_t n_tokens)
{
	size_t payload_bytes = journal_shape(seq)->payload_bytes;

	while (end > first) {
		uint64_t begin = journal_last_rows(seq, first, end);
		struct journal_rows rows = journal_rows(seq, begin, end);

		for (uint64_t i = rows.n; i-- > 0;) {
			const struct kv_row *row = &rows.headers[i];

			if (!counts(seq, row, n_tokens))
				continue;
			KV_FAULT_POINT();
			journal_restore_slot(seq, row->layer, row->head, row->slot,
					     journal_all_parts(seq, row->layer),
					     rows.payloads + i * payload_bytes);
		}
		end = begin;
	}
}
