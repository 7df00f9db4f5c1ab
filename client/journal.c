#include "client/journal.h"

#include <string.h>

#include "client/error.h"
#include "client/slots.h"
#include "client/stream.h"

/* ---- rows --------------------------------------------------------------------------------- */

void journal_put_record(const struct kvc_seq *seq, uint64_t row, const struct kv_record *record,
			uint16_t flags)
{
	*journal_row(seq, row) = (struct kv_row){.kind = KV_ROW_RECORD, .flags = flags};
	memcpy(journal_payload(seq, row), record, sizeof(*record));
}

struct kv_record journal_record_now(const struct kvc_seq *seq)
{
	return (struct kv_record){
		.update = seq->writer->update,
		.length_tokens = seq->head.length_tokens,
		.position = seq->head.position,
		.planes = kv_planes_now(seq->head.planes),
	};
}

/* ---- rows of the open update -------------------------------------------------------------- */

/* Tokens among the first t of the open update that overwrite a slot of a group. */
static uint64_t n_wrapped(const struct kvc_seq *seq, uint32_t group, uint64_t t)
{
	uint64_t bound = seq->layout->fields->groups[group].bound_slots;
	uint64_t room = bound > seq->head.length_tokens ? bound - seq->head.length_tokens : 0;

	return bound && t > room ? t - room : 0;
}

bool journal_has_rows(const struct kvc_seq *seq, uint32_t group, uint64_t t)
{
	bool wrapped = n_wrapped(seq, group, t + 1) != 0;

	if (wrapped && seq->open_flags & KVC_UPDATE_SCATTER)
		return false;
	return wrapped || seq_mode(seq) == KV_JOURNAL_REPLAY;
}

uint64_t journal_rows_before(const struct kvc_seq *seq, uint64_t t)
{
	const struct kv_layout *layout = seq->layout->fields;
	bool scatter = seq->open_flags & KVC_UPDATE_SCATTER;
	uint64_t rows = t;

	for (uint32_t g = 0; g < layout->n_layer_groups; g++) {
		uint64_t wrapped = n_wrapped(seq, g, t);
		uint64_t n = scatter ? 0 : wrapped;

		if (seq_mode(seq) == KV_JOURNAL_REPLAY)
			n += t - wrapped;
		rows += n * layout->groups[g].n_heads;
	}
	return rows;
}

uint64_t journal_token_row(const struct kvc_seq *seq, uint32_t layer, uint64_t t)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map = &layout->layer_maps[layer];
	uint64_t row = seq->open_row + journal_rows_before(seq, t) + map->first_head;

	for (uint32_t g = 0; g < map->group; g++)
		if (journal_has_rows(seq, g, t))
			row += layout->groups[g].n_heads;
	return row;
}

/* ---- blocks of rows ----------------------------------------------------------------------- */

uint64_t journal_begin(struct kvc_seq *seq)
{
	const uint32_t group = seq->layout->fields->journal_group;
	uint64_t end = seq->head.journal_end;
	bool is_new = seq->head.journal_first == end;

	update_drop_future(seq, group);
	seq->journal.future_end = end;
	seq->open_first = seq->head.journal_first;
	if (is_new)
		group_restart(&seq->groups[group], end >> journal_shape(seq)->rows_log2);
	return end + is_new;
}

void journal_put_floor(const struct kvc_seq *seq)
{
	struct kv_record floor = journal_record_now(seq);

	if (seq->head.journal_first == seq->head.journal_end)
		journal_put_record(seq, seq->head.journal_end, &floor, 0);
}

/* What helps where the journal is full. */
static const char *way_out(const struct kvc_seq *seq)
{
	if (seq_mode(seq) == KV_JOURNAL_REPLAY)
		return "fold it, or raise max_rows";
	if (seq->journal.when_full == KVC_FULL_FORGET)
		return "make smaller updates, or raise max_rows";
	return "release marks, keep fewer steps, raise max_rows, or let it forget";
}

int journal_extend(struct kvc_seq *seq, uint64_t end)
{
	const uint32_t group = seq->layout->fields->journal_group;
	struct seq_group *g = &seq->groups[group];
	const uint32_t log2 = journal_shape(seq)->rows_log2;
	const uint64_t row = seq->head.journal_end, in_block = row & ((UINT64_C(1) << log2) - 1);
	uint64_t want_end = ((end - 1) >> log2) + 1;
	bool copy = g->n_copied == 0 && g->pending_end == g->end_block && in_block &&
		    row >> log2 < g->end_block &&
		    begin_is_closed(seq, group, group_index(g, row >> log2), row);
	uint64_t n_new = want_end > g->pending_end ? want_end - g->pending_end : 0;

	if (end - seq->open_first > seq->journal.max_rows ||
	    want_end - g->first_block > g->n_entries)
		return kvc_fail(KVC_EJOURNAL,
				"the journal would have %llu rows, it may have %llu; %s",
				(unsigned long long)(end - seq->open_first),
				(unsigned long long)seq->journal.max_rows, way_out(seq));
	if (begin_check_spares(seq, group, n_new + copy))
		return -1;
	if (copy)
		begin_copy(seq, group, group_index(g, row >> log2), in_block);
	begin_take(seq, group, want_end);
	return 0;
}

/* ---- steps -------------------------------------------------------------------------------- */

uint64_t journal_previous(const struct kvc_seq *seq, uint64_t record)
{
	uint64_t n = journal_record(seq, record)->n_rows;

	if (record <= seq->head.journal_first || n >= record - seq->head.journal_first)
		return UINT64_MAX;
	return record - n - 1;
}

uint64_t journal_next(const struct kvc_seq *seq, uint64_t row, uint64_t end)
{
	while (row < end && journal_row(seq, row)->kind != KV_ROW_RECORD)
		row++;
	return row;
}

/* The oldest row that a mark needs. */
static uint64_t marked_row(const struct kvc_seq *seq)
{
	uint64_t row = UINT64_MAX;

	for (uint32_t i = seq->head.n_marks; i-- > 0;) {
		uint64_t end = atomic_load_explicit(&seq->shm->marks[i].journal_end,
						    memory_order_relaxed);

		if (end > seq->head.journal_first)
			row = end - 1;
	}
	return row;
}

static uint64_t n_steps_from(const struct kvc_seq *seq, uint64_t record)
{
	return journal_record(seq, journal_last(seq))->n_steps -
	       journal_record(seq, record)->n_steps;
}

/* The record of the step behind one, which is the journal's first from now on: one that can be
 * stopped at. */
static uint64_t forget_step(struct kvc_seq *seq, uint64_t record, uint64_t end)
{
	bool is_inner;

	do {
		record = journal_next(seq, record + 1, end);
		is_inner = journal_row(seq, record)->flags & KV_ROW_INNER;
		seq->open_scattered |= is_inner || journal_record(seq, record)->n_rows != 0;
	} while (is_inner);
	return record;
}

void journal_trim(struct kvc_seq *seq, uint64_t n_rows)
{
	const uint64_t end = seq->head.journal_end;
	uint64_t most = seq->journal.max_rows < journal_half(seq) ? seq->journal.max_rows :
								    journal_half(seq);
	uint64_t first = seq->open_first, marked = marked_row(seq);
	bool is_full = end - first + n_rows > most;

	if (seq_mode(seq) != KV_JOURNAL_UNDO || first == end)
		return;
	if (!is_full && n_steps_from(seq, first) < 2 * (uint64_t)seq->journal.keep_steps)
		return;
	/* What neither the last steps nor a mark need, then what must go. */
	while (first < end - 1) {
		bool spare = first < marked && n_steps_from(seq, first) > seq->journal.keep_steps;

		is_full = end - first + n_rows > most;
		if (!spare && !(is_full && seq->journal.when_full == KVC_FULL_FORGET))
			break;
		first = forget_step(seq, first, end);
	}
	seq->open_first = first;
}

/* ---- index -------------------------------------------------------------------------------- */

uint64_t journal_entry(const struct kvc_seq *seq, const uint32_t *at, uint64_t end)
{
	uint64_t first = seq->head.journal_first;
	uint64_t row = first + (uint32_t)(*at - (uint32_t)first);

	return row < end ? row : UINT64_MAX;
}

uint64_t journal_find_at(const struct kvc_seq *seq, const uint32_t *at, const struct kv_row *key,
			 uint64_t end)
{
	uint64_t row = journal_entry(seq, at, end);
	const struct kv_row *header;

	if (row == UINT64_MAX)
		return UINT64_MAX;
	header = journal_row(seq, row);
	if (header->kind != KV_ROW_VECTOR || header->slot != key->slot ||
	    header->layer != key->layer || header->head != key->head)
		return UINT64_MAX;
	return row;
}

void journal_prefetch_payload(const struct kvc_seq *seq, const uint32_t *at, uint64_t end,
			      size_t off, size_t n_bytes)
{
	uint64_t row = journal_entry(seq, at, end);
	const char *payload;

	if (row == UINT64_MAX)
		return;
	__builtin_prefetch(journal_row(seq, row));
	payload = journal_payload(seq, row) + off;
	for (size_t i = 0; i < n_bytes; i += 64)
		__builtin_prefetch(payload + i);
}

uint64_t journal_find(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot,
		      uint64_t end)
{
	struct kv_row key = {
		.slot = (uint32_t)slot,
		.layer = (uint16_t)layer,
		.head = (uint16_t)head,
	};

	if (seq->head.journal_first == end)
		return UINT64_MAX;
	return journal_find_at(seq, journal_index_at(seq, layer, head, slot), &key, end);
}

bool journal_is_newest(const struct kvc_seq *seq, const struct kv_row *header, uint64_t row)
{
	return journal_find(seq, header->layer, header->head, header->slot,
			    seq->head.journal_end) == row;
}

static uint32_t *index_of(const struct kvc_seq *seq, const struct kv_row *header)
{
	return journal_index_at(seq, header->layer, header->head, header->slot);
}

void journal_index_add(struct kvc_seq *seq, uint64_t first, uint64_t end)
{
	for (struct journal_rows rows; first < end; first += rows.n) {
		rows = journal_rows(seq, first, end);
		for (uint64_t i = 0; i < rows.n; i++)
			if (rows.headers[i].kind == KV_ROW_VECTOR)
				journal_index_put(seq, index_of(seq, &rows.headers[i]),
						  &rows.headers[i], first + i);
	}
}

static bool row_is_sane(const struct kvc_seq *seq, const struct kv_row *row)
{
	const struct kv_layout *layout = seq->layout->fields;

	return kv_row_names_head(layout, row) &&
	       row->slot < seq->journal.index_slots[layout->layer_maps[row->layer].group];
}

/* Read once: a look at it and its use are of the same bytes. */
static struct kv_row copy_of(const struct kv_row *header)
{
	const volatile struct kv_row *now = header;

	return *now;
}

bool journal_vector(const struct kvc_seq *seq, uint64_t row, struct kv_row *copy)
{
	*copy = copy_of(journal_row(seq, row));
	return row_is_sane(seq, copy);
}

void journal_index_remove(struct kvc_seq *seq, uint64_t first, uint64_t end)
{
	while (end > first) {
		uint64_t begin = journal_last_rows(seq, first, end);
		struct journal_rows rows = journal_rows(seq, begin, end);

		for (uint64_t i = rows.n; i-- > 0;) {
			struct kv_row row = copy_of(&rows.headers[i]);

			if (row.prev && row_is_sane(seq, &row))
				*index_of(seq, &row) = (uint32_t)(row.prev - 1);
		}
		end = begin;
	}
}

void journal_index_again(struct kvc_seq *seq, uint64_t first, uint64_t end)
{
	for (struct journal_rows rows; first < end; first += rows.n) {
		rows = journal_rows(seq, first, end);
		for (uint64_t i = 0; i < rows.n; i++) {
			struct kv_row row = copy_of(&rows.headers[i]);

			if (row_is_sane(seq, &row))
				journal_index_put(seq, index_of(seq, &row), &row, first + i);
		}
	}
}

void journal_index_build(struct kvc_seq *seq)
{
	if (seq_mode(seq) == KV_JOURNAL_REPLAY)
		journal_index_again(seq, seq->head.journal_first, seq->head.journal_end);
}

/* ---- stored vectors ----------------------------------------------------------------------- */

/* Common sizes without a call. */
static inline void copy_part(char *to, const char *from, uint32_t n_bytes)
{
	switch (n_bytes) {
	case 2: memcpy(to, from, 2); break;
	case 4: memcpy(to, from, 4); break;
	case 64: memcpy(to, from, 64); break;
	case 128: memcpy(to, from, 128); break;
	case 256: memcpy(to, from, 256); break;
	default: memcpy(to, from, n_bytes);
	}
}

void journal_save_slot(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot,
		       uint32_t parts, char *stored)
{
	struct slot_head at = slot_head(seq, layer, head, slot);

	for (uint32_t i = 0; i < at.n_regions; stored += at.regions[i++].vector_bytes)
		if (parts & UINT32_C(1) << i)
			copy_part(stored, slot_head_region(&at, i), at.regions[i].vector_bytes);
}

void journal_restore_slot(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot,
			  uint32_t parts, const char *stored)
{
	struct slot_head at = slot_head(seq, layer, head, slot);

	for (uint32_t i = 0; i < at.n_regions; stored += at.regions[i++].vector_bytes)
		if (parts & UINT32_C(1) << i) {
			copy_part(slot_head_region(&at, i), stored, at.regions[i].vector_bytes);
			KV_FAULT_POINT();
		}
}

void journal_prefetch_slot(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot)
{
	struct slot_head at = slot_head(seq, layer, head, slot);

	for (uint32_t i = 0; i < at.n_regions; i++)
		for (uint32_t off = 0; off < at.regions[i].vector_bytes; off += CACHE_LINE_BYTES)
			__builtin_prefetch(slot_head_region(&at, i) + off, 1);
}

uint32_t journal_plane_off(const struct kvc_seq *seq, uint32_t layer, uint32_t number)
{
	const struct kv_layout *layout = seq->layout->fields;
	struct kv_row_parts parts = kv_row_parts(layout, layer);
	uint32_t off = parts.k_bytes + parts.v_bytes;

	if (seq_mode(seq) == KV_JOURNAL_UNDO)
		off = journal_shape(seq)->new_off + layout->layer_maps[layer].stored_bytes -
		      parts.planes_bytes;
	for (uint32_t p = 0; p < number; p++)
		off += layout->regions[kv_layout_region(layout, layer, KV_PART_PLANE + p)]
			       .vector_bytes;
	return off;
}

/* Where a part lies in `stored`; NULL: the layer has none. */
static char *part_of(const struct kv_layout *layout, const struct kv_layer_map *map, uint32_t part,
		     char *stored)
{
	if (map->region[part] < 0)
		return NULL;
	for (int8_t i = 0; i < map->region[part]; i++)
		stored += layout->regions[map->first_region + (uint8_t)i].vector_bytes;
	return stored;
}

struct kv_codec_at journal_stored_at(const struct kvc_seq *seq, uint32_t layer, bool is_value,
				     char *stored)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_layer_map *map = &layout->layer_maps[layer];
	uint32_t codes = is_value ? KV_PART_V_CODES : KV_PART_K_CODES;

	return (struct kv_codec_at){
		.codes = part_of(layout, map, codes, stored),
		.scale = part_of(layout, map, codes + 1, stored),
		.zero = part_of(layout, map, codes + 2, stored),
	};
}
