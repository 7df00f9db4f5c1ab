/*
 * Where the keys of a call lie. A key is in a block, as it is stored; in a row of a replay journal;
 * in a row that the open update has staged (kvc_move); or among the caller's current tokens. Rows of
 * a tile that lie at equal distances are one piece: most tiles are one or two.
 */
#include <string.h>

#include "client/attend.h"
#include "client/journal.h"
#include "client/slots.h"

/* What a layer was never given: elements of any dtype. */
static const float zeros[KV_ATTEND_WIDTH_MAX];

#define ALL_BITS(n) ((n) == 64 ? ~UINT64_C(0) : (UINT64_C(1) << (n)) - 1)

static bool by_slot(const struct attend *a)
{
	return a->args.slots != NULL;
}

/* ---- pieces -------------------------------------------------------------------------------- */

static bool is_at(const struct kv_codec_at *a, const struct kv_codec_at *b)
{
	return a->codes == b->codes && a->scale == b->scale && a->zero == b->zero;
}

static bool has_strides(const struct kv_codec_at *a, const struct kv_codec_at *b)
{
	return a->codes_stride == b->codes_stride && a->scale_stride == b->scale_stride &&
	       a->zero_stride == b->zero_stride;
}

/* Two single vectors in the dtype are as far apart as they are. */
static void set_distance(struct attend_piece *piece, const struct attend_piece *next)
{
	size_t distance = (uintptr_t)next->k.codes - (uintptr_t)piece->k.codes;

	if (piece->n != 1 || next->n != 1 || !piece->is_exact || !next->is_exact ||
	    distance > UINT32_MAX || !piece->v.codes ||
	    (uintptr_t)next->v.codes - (uintptr_t)piece->v.codes != distance)
		return;
	piece->k.codes_stride = piece->v.codes_stride = distance;
}

static void add_piece(struct attend_tile *tile, const struct attend_piece *next)
{
	struct attend_piece *piece = &tile->pieces[tile->n_pieces];
	struct kv_codec_at k, v;

	if (tile->n_pieces > 0) {
		piece--;
		set_distance(piece, next);
		k = kv_codec_at(&piece->k, piece->n);
		v = kv_codec_at(&piece->v, piece->n);
		if (piece->is_exact == next->is_exact && is_at(&k, &next->k) &&
		    is_at(&v, &next->v) &&
		    (next->n == 1 ||
		     (has_strides(&piece->k, &next->k) && has_strides(&piece->v, &next->v)))) {
			piece->n += next->n;
			return;
		}
		piece++;
	}
	*piece = *next;
	tile->n_pieces++;
}

/* A vector in the dtype: K, and V behind it or elsewhere. */
static struct attend_piece exact_at(uint32_t row, const void *k, const void *v)
{
	return (struct attend_piece){
		.first = row,
		.n = 1,
		.is_exact = true,
		.k.codes = (void *)(uintptr_t)k,
		.v.codes = (void *)(uintptr_t)v,
	};
}

/* ---- cached keys --------------------------------------------------------------------------- */

/* The memory of the block that holds a row: as a rule that of the row before. */
static char *journal_memory(const struct attend *a, struct attend_tile *tile, uint64_t row)
{
	uint64_t block = row >> journal_shape(a->seq)->rows_log2;

	if (tile->journal_block != block) {
		tile->journal_block = block;
		tile->journal_memory = journal_block(a->seq, row);
	}
	return tile->journal_memory;
}

/* K and V of the row of a replay journal that counts for a slot; NULL: none does. */
static const char *overlay_of(const struct attend *a, struct attend_tile *tile, uint64_t slot)
{
	const struct kvc_seq *seq = a->seq;
	const struct kv_row *header;
	const char *memory;
	uint64_t row;

	if (slot < a->overlay_low)
		return NULL;
	row = journal_entry(seq, journal_index_at(seq, a->layer, tile->head, slot),
			    seq->head.journal_end);
	if (row == UINT64_MAX)
		return NULL;
	memory = journal_memory(a, tile, row);
	header = (const void *)(memory + kv_row_off(journal_shape(seq), row));
	if (header->kind != KV_ROW_VECTOR || header->slot != slot || header->layer != a->layer ||
	    header->head != tile->head || header->flags & KV_ROW_BASE)
		return NULL;
	return memory + kv_row_payload_off(journal_shape(seq), row);
}

/* Bits of those of n slots that a row may count for: those whose entry in the index is a row in
 * force. (The first row never is one's: it is a record.) Most tiles have none. */
static uint64_t overlay_bits(const struct attend *a, uint32_t head, uint64_t slot, uint64_t n)
{
	const struct kv_head *journal = &a->seq->head;
	uint32_t first = (uint32_t)journal->journal_first + 1;
	uint32_t n_rows = (uint32_t)(journal->journal_end - journal->journal_first) - 1;
	size_t stride = a->layout->groups[a->group].n_heads;
	const uint32_t *at;
	uint64_t bits = 0;

	if (slot + n <= a->overlay_low)
		return 0;
	at = journal_index_at(a->seq, a->layer, head, slot);
	for (uint32_t i = 0; i < n; i++, at += stride)
		bits |= (uint64_t)(*at - first < n_rows) << i;
	return bits;
}

static void add_payload(const struct attend *a, struct attend_tile *tile, uint32_t row,
			const char *payload)
{
	struct attend_piece piece = exact_at(row, payload, payload + a->parts.k_bytes);

	add_piece(tile, &piece);
	tile->same_everywhere = false;
}

/* Slots of one block, as they are stored. */
static struct kv_codec_at rows_of(const struct attend *a, bool is_value, uint32_t head,
				  uint64_t slot)
{
	struct kv_codec_at at = slot_vectors(a->seq, a->layer, is_value, slot);

	at = kv_codec_at(&at, head);
	at.codes_stride *= a->n_heads;
	at.scale_stride *= a->n_heads;
	at.zero_stride *= a->n_heads;
	return at;
}

static void add_block_rows(const struct attend *a, struct attend_tile *tile, uint32_t row,
			   uint64_t slot, uint32_t n)
{
	struct attend_piece all = {
		.first = row,
		.n = n,
		.k = rows_of(a, false, tile->head, slot),
		.v = rows_of(a, true, tile->head, slot),
	};
	struct attend_piece part = all;
	uint64_t bits = overlay_bits(a, tile->head, slot, n);
	uint32_t done = 0;

	for (; bits; bits &= bits - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(bits);
		const char *payload = overlay_of(a, tile, slot + i);

		if (!payload)
			continue;
		part.n = i - done;
		if (part.n)
			add_piece(tile, &part);
		add_payload(a, tile, row + i, payload);
		done = i + 1;
		part.first = row + done;
		part.k = kv_codec_at(&all.k, done);
		part.v = kv_codec_at(&all.v, done);
	}
	part.n = n - done;
	if (part.n)
		add_piece(tile, &part);
}

/* A slot behind those that blocks hold. */
static void add_row_only(const struct attend *a, struct attend_tile *tile, uint32_t row,
			 uint64_t slot)
{
	const char *payload = overlay_of(a, tile, slot);
	struct attend_piece piece = exact_at(row, zeros, zeros);

	if (payload) {
		add_payload(a, tile, row, payload);
		return;
	}
	add_piece(tile, &piece);
	tile->same_everywhere = false;
}

/* Rows [row, end) of the tile are slots that follow one another. */
static void add_slots(const struct attend *a, struct attend_tile *tile, uint32_t row, uint32_t end,
		      uint64_t slot)
{
	while (row < end) {
		uint64_t last = slot + (end - row), n = 1;

		if (last > a->base_slots)
			last = a->base_slots;
		if (slot < last) {
			n = slots_in_block(a->seq, slot, last);
			add_block_rows(a, tile, row, slot, (uint32_t)n);
		} else {
			add_row_only(a, tile, row, slot);
		}
		row += (uint32_t)n;
		slot += n;
	}
}

/* ---- current keys -------------------------------------------------------------------------- */

static void add_current(const struct attend *a, struct attend_tile *tile, uint32_t row,
			uint64_t token, uint64_t n)
{
	size_t k_stride = (size_t)a->parts.k_bytes * a->n_heads;
	size_t v_stride = (size_t)a->parts.v_bytes * a->n_heads;
	struct attend_piece piece = exact_at(
		row, (const char *)a->args.k + token * k_stride + tile->head * a->parts.k_bytes,
		(const char *)a->args.v + token * v_stride + tile->head * a->parts.v_bytes);

	piece.n = (uint32_t)n;
	piece.k.codes_stride = k_stride;
	piece.v.codes_stride = v_stride;
	add_piece(tile, &piece);
}

/* A row that the open update has staged: the new stored bytes, or, of a replay journal, vectors. */
static void add_staged(const struct attend *a, struct attend_tile *tile, uint32_t row,
		       uint64_t journal)
{
	char *payload = journal_payload(a->seq, journal);
	struct attend_piece piece = {.first = row, .n = 1};

	if (seq_mode(a->seq) == KV_JOURNAL_REPLAY) {
		add_payload(a, tile, row, payload);
		return;
	}
	payload += journal_shape(a->seq)->new_off;
	piece.k = journal_stored_at(a->seq, a->layer, false, payload);
	piece.v = journal_stored_at(a->seq, a->layer, true, payload);
	add_piece(tile, &piece);
}

/* ---- tiles --------------------------------------------------------------------------------- */

/* Keys [key, end) by position. */
static void add_positions(const struct attend *a, struct attend_tile *tile, uint64_t key,
			  uint64_t end)
{
	uint64_t bound = a->layout->groups[a->group].bound_slots, n;

	for (; key < end && key < a->length; key += n) {
		uint64_t slot = bound ? key % bound : key;

		n = (end < a->length ? end : a->length) - key;
		if (bound && n > bound - slot)
			n = bound - slot;
		add_slots(a, tile, (uint32_t)(key - tile->first), (uint32_t)(key + n - tile->first),
			  slot);
	}
	if (key < end)
		add_current(a, tile, (uint32_t)(key - tile->first), key - a->length, end - key);
}

/* Slots [slot, end). */
static void add_by_slot(const struct attend *a, struct attend_tile *tile, uint64_t slot,
			uint64_t end)
{
	uint64_t i = puts_from(a, tile->head, slot);

	for (; i < a->put_first[tile->head + 1]; i++) {
		const struct attend_put *put = &a->put[i];
		uint64_t there = put->order >> 32;
		uint32_t row = (uint32_t)(there - tile->first);

		if (there >= end)
			break;
		add_slots(a, tile, (uint32_t)(slot - tile->first), row, slot);
		tile->same_everywhere = false;
		slot = there + 1;
		if (put->row != UINT64_MAX) {
			add_staged(a, tile, row, put->row);
			continue;
		}
		add_current(a, tile, row, put->token, 1);
		tile->late[tile->n_late].row_bit = UINT64_C(1) << row;
		tile->late[tile->n_late++].token = put->token;
	}
	add_slots(a, tile, (uint32_t)(slot - tile->first), (uint32_t)(end - tile->first), slot);
}

static void move_by_head(const struct kv_codec *codec, bool is_exact, struct kv_codec_at *at)
{
	at->codes = (char *)at->codes +
		    (is_exact ? (size_t)codec->width * codec->element_bytes : codec->bytes.codes);
	if (is_exact)
		return;
	at->scale = (void *)((uintptr_t)at->scale + codec->bytes.scale);
	at->zero = (void *)((uintptr_t)at->zero + codec->bytes.zero);
}

static bool has_put(const struct attend *a, uint32_t head, uint64_t slot, uint64_t end)
{
	uint64_t i = puts_from(a, head, slot);

	return i < a->put_first[head + 1] && a->put[i].order >> 32 < end;
}

/* May rows of a journal count for a head among keys [key, end)? In a ring: maybe. */
static bool has_overlay(const struct attend *a, uint32_t head, uint64_t key, uint64_t end)
{
	if (a->overlay_low == UINT64_MAX)
		return false;
	if (a->layout->groups[a->group].bound_slots)
		return true;
	if (end > a->base_slots)
		end = a->base_slots;
	return key < end && overlay_bits(a, head, key, end - key) != 0;
}

void keys_tile(const struct attend *a, uint64_t first, uint32_t head, struct attend_tile *tile)
{
	uint64_t from = first < a->first_key ? a->first_key : first, end = first + ATTEND_TILE;

	if (end > a->end_key)
		end = a->end_key;
	if (tile->first == first && tile->same_everywhere && tile->head + 1 == head &&
	    !has_put(a, head, first, end) && !has_overlay(a, head, from, end)) {
		for (uint32_t i = 0; i < tile->n_pieces; i++) {
			struct attend_piece *piece = &tile->pieces[i];

			move_by_head(a->k_codec, piece->is_exact, &piece->k);
			move_by_head(a->v_codec, piece->is_exact, &piece->v);
		}
		tile->head = head;
		return;
	}
	tile->first = first;
	tile->head = head;
	tile->n_pieces = tile->n_late = 0;
	tile->same_everywhere = true;
	tile->rows = ALL_BITS(end - first) & ~ALL_BITS(from - first);
	if (by_slot(a))
		add_by_slot(a, tile, from, end);
	else
		add_positions(a, tile, from, end);
}

/* ---- what comes next ----------------------------------------------------------------------- */

static struct kv_attend_ahead part_ahead(const struct attend *a, uint32_t part, uint64_t slot,
					 uint32_t head, bool whole)
{
	uint64_t before = (uint64_t)head * ATTEND_TILE; /* vectors, of the tile's */
	uint64_t row = whole ? before / a->n_heads : 0;
	size_t bytes, in_row = whole ? before % a->n_heads : head;
	const char *at = slot_part(a->seq, a->layer, part, slot + row, &bytes);

	return (struct kv_attend_ahead){
		.at = at + in_row * bytes,
		.stride = whole ? bytes : bytes * a->n_heads,
		.bytes = (uint32_t)bytes,
	};
}

struct attend_ahead keys_ahead(const struct attend *a, uint64_t next, uint32_t head, bool whole)
{
	uint64_t bound = by_slot(a) ? 0 : a->layout->groups[a->group].bound_slots;
	uint64_t slot = bound ? next % bound : next, end = next + ATTEND_TILE;
	struct attend_ahead ahead = {0};

	if (end > a->end_key || (!by_slot(a) && end > a->length) ||
	    slot + ATTEND_TILE > a->base_slots)
		return ahead;
	ahead.k = part_ahead(a, KV_PART_K_CODES, slot, head, whole);
	ahead.v = part_ahead(a, KV_PART_V_CODES, slot, head, whole);
	return ahead;
}

/* ---- who sees what -------------------------------------------------------------------------- */

void keys_range(const struct attend *a, uint64_t token, uint64_t *first, uint64_t *end)
{
	*first = a->first_key;
	*end = a->end_key;
	if (by_slot(a))
		return;
	*end = a->length + token + 1 - (a->n_current ? 0 : a->args.n_tokens);
	if (*end > a->window)
		*first = *end - a->window;
	else
		*first = 0;
}

/* Is something that came `age` positions ago out of the window? */
static uint64_t is_old(const struct attend *a, int64_t age)
{
	return age >= 0 && (uint64_t)age >= a->args.window_tokens;
}

/* Rows of cached and current tokens that are out of the window of a token. */
static uint64_t too_old(const struct attend *a, const struct attend_tile *tile, uint64_t token)
{
	const int32_t *positions = a->args.positions + tile->head * a->n_slots + tile->first;
	int64_t now = a->args.first_position + (int64_t)token;
	uint64_t old = 0;

	for (uint64_t i = 0; i < ATTEND_TILE && tile->first + i < a->n_slots; i++)
		old |= is_old(a, now - positions[i]) << i;
	for (uint32_t i = 0; i < tile->n_late; i++) /* those in no slot have no position there */
		if (tile->first + (uint64_t)__builtin_ctzll(tile->late[i].row_bit) >= a->n_slots &&
		    is_old(a, (int64_t)token - (int64_t)tile->late[i].token))
			old |= tile->late[i].row_bit;
	return old;
}

uint64_t keys_seen(const struct attend *a, const struct attend_tile *tile, uint64_t token)
{
	uint64_t first, end, seen = tile->rows;

	if (!by_slot(a)) {
		keys_range(a, token, &first, &end);
		if (end <= tile->first || first >= tile->first + ATTEND_TILE)
			return 0;
		if (end < tile->first + ATTEND_TILE)
			seen &= ALL_BITS(end - tile->first);
		if (first > tile->first)
			seen &= ~ALL_BITS(first - tile->first);
		return seen;
	}
	for (uint32_t i = 0; i < tile->n_late; i++)
		if (tile->late[i].token > token)
			seen &= ~tile->late[i].row_bit;
	if (a->args.window_tokens)
		seen &= ~too_old(a, tile, token);
	return seen;
}

uint64_t keys_slot(const struct attend *a, uint64_t key)
{
	uint64_t bound = a->layout->groups[a->group].bound_slots;

	if (by_slot(a))
		return key < a->n_slots ? key : UINT64_MAX;
	if (!bound)
		return key;
	return key + bound < a->length + a->n_current ? UINT64_MAX : key % bound;
}
