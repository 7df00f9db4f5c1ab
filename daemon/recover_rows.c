#include "daemon/recover_rows.h"

#include <stdlib.h>

#include "daemon/hold.h"
#include "daemon/live.h"
#include "daemon/objects.h"
#include "daemon/session.h"

/* One place whose writer died while its word was open. */
struct undo {
	struct session *session;
	struct place *place;
	const struct kv_layout *layout;
	const struct kv_journal_shape *shape;
	const struct kv_shm_place *shm;
	struct kv_head before, after; /* at the committed update, and at the one that counts */
	uint64_t committed, update;   /* these two */
	uint64_t freeze_count;
	void *payload; /* new_off bytes; owned */
	struct errbuf err;
};

static bool read_head(const struct undo *undo, uint64_t update, struct kv_head *head)
{
	int c = kv_head_current(undo->shm, update);

	if (c < 0)
		return false;
	kv_head_load(&undo->shm->copy[c], head);
	return !kv_head_wrong(undo->layout, head, undo->place->seg.max_tokens);
}

/* Fills undo. False: this place has nothing that could have to be put back. */
static bool look(struct session *session, struct place *place, struct undo *undo)
{
	struct kv_shm_writer *w;
	bool is_open;

	if (!place || place->kind != PLACE_SEQUENCE || !place->object->name)
		return false;
	w = segment_writer(&session->segment, place->seg.writer);
	*undo = (struct undo){.session = session,
			      .place = place,
			      .layout = place->layout->layout,
			      .shm = segment_place(&session->segment, place->seg.index)};
	undo->update = hold_outcome(w, &is_open);
	undo->committed = hold_update(w);
	if (!is_open || !read_head(undo, undo->committed, &undo->before) ||
	    !read_head(undo, undo->update, &undo->after) ||
	    kv_head_mode(undo->after.state) != KV_JOURNAL_UNDO)
		return false;
	undo->shape = &undo->layout->journal[KV_JOURNAL_UNDO];
	undo->freeze_count = atomic_load_explicit(&undo->shm->freeze_count, memory_order_relaxed);
	return true;
}

bool recover_rows_open_in(const struct session *session, const struct place *place)
{
	struct undo undo;

	return look((struct session *)(uintptr_t)session, (struct place *)(uintptr_t)place, &undo);
}

bool recover_rows_open(const struct session *session)
{
	for (uint32_t i = 0; i < KV_PLACES_MAX; i++)
		if (recover_rows_open_in(session, session->places[i]))
			return true;
	return false;
}

/* ---- one row ------------------------------------------------------------------------------ */

/* What the table says of a block number at an update; false: nothing. */
static bool entry_of(const struct undo *undo, uint32_t g, uint64_t number, uint64_t update,
		     uint64_t *ref)
{
	const struct seg_place *seg = &undo->place->seg;
	uint32_t i = (uint32_t)(number % seg->n_entries[g]);
	const struct kv_shm_entry *e0 = kv_shm_entry(undo->session->segment.base, seg->table_off[g],
						     seg->n_entries[g], 0, i);
	const struct kv_shm_entry *e1 = kv_shm_entry(undo->session->segment.base, seg->table_off[g],
						     seg->n_entries[g], 1, i);
	int c = kv_stamps_current(&e0->stamp, &e1->stamp, update);

	if (c < 0)
		return false;
	*ref = atomic_load_explicit(c ? &e1->ref : &e0->ref, memory_order_relaxed);
	return true;
}

/* The arena of a reference, if the session owns the block. */
static struct arena *own_arena(const struct undo *undo, uint32_t g, uint64_t ref)
{
	struct arena *arena = session_arena(undo->session, kv_ref_arena(ref));

	if (!live_owns_arena(undo->session, undo->place, g, arena) ||
	    !session_owns(undo->session, arena, kv_ref_block(ref)))
		return NULL;
	return arena;
}

/*
 * The journal block of a row: the session's own, or one that came with the sequence. Blocks that
 * the update took for its rows are in the table with its stamp.
 */
static struct arena *journal_arena(const struct undo *undo, uint64_t row, uint32_t *block)
{
	uint32_t g = undo->layout->journal_group;
	uint64_t number = row >> undo->shape->rows_log2, ref;
	const uint64_t *base = NULL;
	struct arena *arena;

	if (!entry_of(undo, g, number, undo->committed + 1, &ref))
		return NULL;
	*block = kv_ref_block(ref);
	arena = own_arena(undo, g, ref);
	if (arena)
		return arena;
	arena = session_arena(undo->session, kv_ref_arena(ref));
	if (undo->place->base && undo->place->base->state->layout == undo->place->layout)
		base = state_block(undo->place->base->state, g, number);
	return arena && base && *base == gref_make(arena->id, *block) ? arena : NULL;
}

/* Where the row's slot is, if it was written in place. 1; 0: it was not; -1: there is no such
 * slot. */
static int target_of(const struct undo *undo, const struct kv_row *row, struct arena **arena,
		     uint32_t *block)
{
	const struct kv_layout *layout = undo->layout;
	uint64_t ref;
	uint32_t g;

	if (!kv_row_names_head(layout, row))
		return -1;
	g = layout->layer_maps[row->layer].group;
	if (row->slot >= kv_layout_slots(layout, g, undo->before.base_tokens))
		return -1;
	if (!entry_of(undo, g, row->slot / layout->block_tokens, undo->update, &ref))
		return -1;
	if (kv_ref_freeze(ref) != undo->freeze_count)
		return 0;
	*block = kv_ref_block(ref);
	*arena = own_arena(undo, g, ref);
	return *arena ? 1 : -1;
}

/* The old bytes of one head of one slot, region by region. */
static int put_back(struct undo *undo, const struct kv_row *row, const struct arena *arena,
		    uint32_t block)
{
	const struct kv_layout *layout = undo->layout;
	const struct kv_layer_map *map = &layout->layer_maps[row->layer];
	const struct kv_group *group = &layout->groups[map->group];
	const char *bytes = undo->payload;

	for (uint32_t i = 0; i < map->n_regions; i++) {
		const struct kv_region *region = &layout->regions[map->first_region + i];
		uint64_t off = (uint64_t)(row->slot % layout->block_tokens) * region->row_bytes +
			       (uint64_t)row->head * region->vector_bytes;

		KV_FAULT_POINT();
		if (arena_write(arena, block, map->first_region + i - group->first_region, off,
				region->vector_bytes, bytes, &undo->err))
			return -1;
		bytes += region->vector_bytes;
	}
	return 0;
}

/* 1: put back, or not to be; 0: it makes no sense; -1: it cannot be read or written. */
static int undo_row(struct undo *undo, uint64_t number)
{
	struct arena *journal, *arena;
	uint32_t journal_block, block;
	struct kv_row row;
	int rc;

	journal = journal_arena(undo, number, &journal_block);
	if (!journal)
		return 0;
	if (arena_read(journal, journal_block, 0, kv_row_off(undo->shape, number), sizeof(row),
		       &row, &undo->err))
		return -1;
	if (row.kind != KV_ROW_VECTOR)
		return row.kind == KV_ROW_VOID || row.kind == KV_ROW_RECORD;
	rc = target_of(undo, &row, &arena, &block);
	if (rc <= 0)
		return rc == 0;
	if (arena_read(journal, journal_block, 0, kv_row_payload_off(undo->shape, number),
		       undo->layout->layer_maps[row.layer].stored_bytes, undo->payload, &undo->err))
		return -1;
	return put_back(undo, &row, arena, block) ? -1 : 1;
}

/* ---- all rows ----------------------------------------------------------------------------- */

static void say_torn(struct undo *undo)
{
	undo->place->is_torn = true;
	log_warn("session",
		 "%s was being overwritten when its writer died, and its journal is no "
		 "use: %s",
		 undo->place->object->name, undo->err.text);
}

/* Which rows of the place, noted once: who can write there still must not keep the core here. */
static void begin(struct undo *undo, struct row_recovery *rows)
{
	uint64_t first = undo->after.journal_end;
	uint64_t end = atomic_load_explicit(&undo->shm->rows_end, memory_order_acquire);
	uint32_t log2 = undo->shape->rows_log2;

	rows->is_begun = true;
	rows->has_complained = false;
	rows->first = rows->next = first;
	if (end <= first)
		return;
	if (end > UINT64_MAX / 2 ||
	    ((end - 1) >> log2) - (first >> log2) >= KV_JOURNAL_BLOCKS_MAX) {
		errbuf_set(&undo->err, KV_EINVAL, "rows %llu to %llu", (unsigned long long)first,
			   (unsigned long long)end);
		say_torn(undo);
		return;
	}
	rows->next = end;
}

/* Returns how many rows it did; all if that is less than max_rows. */
static uint64_t recover_place(struct undo *undo, struct row_recovery *rows, uint64_t max_rows)
{
	uint64_t n = 0;

	if (!rows->is_begun)
		begin(undo, rows);
	undo->payload = state_alloc(1, undo->shape->new_off);
	for (; rows->next > rows->first && n < max_rows; n++) {
		int rc = undo_row(undo, rows->next - 1);

		if (rc < 0) {
			say_torn(undo);
			rows->next = rows->first;
			break;
		}
		if (rc == 0 && !rows->has_complained)
			log_warn("session",
				 "%s: row %llu of its journal makes no sense and is passed over",
				 undo->place->object->name, (unsigned long long)rows->next - 1);
		rows->has_complained |= rc == 0;
		rows->next--;
	}
	free(undo->payload);
	return n;
}

bool recover_rows(struct session *session, uint64_t max_rows)
{
	struct row_recovery *rows = &session->rows;

	for (; rows->place < KV_PLACES_MAX; rows->place++) {
		struct undo undo;

		if (look(session, session->places[rows->place], &undo)) {
			max_rows -= recover_place(&undo, rows, max_rows);
			if (rows->next > rows->first)
				return false;
		}
		rows->is_begun = false;
	}
	return true;
}
