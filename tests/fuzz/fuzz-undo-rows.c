/*
 * Undo rows of a writer that has gone, whatever it had written: rows, their blocks, bounds, tables.
 *
 * A sequence with an undo journal is in the middle of an update of two slots. The input is a list
 * of edits {kind 1 byte, offset 4, value 8}, little-endian:
 *	0   stores the value in writers and places (offset in units of 8, counted round)
 *	1   stores it in the first pages of a table: offset modulo 4 says which
 *	2   stores it in the journal's block: its row headers
 *	3   stores it where the rows end; 4: as what was decided
 * Then the rows are put back. Whatever they say: it comes to an end, another user's bytes are what
 * they were, and accounts add up. Thread: one.
 */
#include <string.h>

#include "daemon/recover_rows.h"
#include "daemon/session.h"
#include "tests/fuzz/target.h"
#include "tests/support/craft.h"

#define EDITS_MAX 256
#define EDIT_BYTES 13u
#define BLOCK_TOKENS 4u
#define ROUNDS_MAX 20000u /* the longest journal in rounds of as many rows */
#define ROWS_A_ROUND 1024u

struct world {
	struct fake_core *f;
	struct craft a, b;
	uint32_t place;
	uint64_t journal;
	uint64_t theirs; /* block of b's */
};

static void fill_sequence(struct world *w)
{
	struct craft *a = &w->a;
	struct kv_head head = {.length_tokens = 8,
			       .base_tokens = 8,
			       .position = 8,
			       .journal_end = 1,
			       .state = kv_head_word(KV_HEAD_LIVE, KV_JOURNAL_UNDO)};
	struct kv_row record = {.kind = KV_ROW_RECORD};
	uint64_t refs[2][2];

	w->place = craft_seq(a, 0, "seq", 64);
	craft_reserve(a, 0, 2, refs[0]);
	craft_reserve(a, 1, 2, refs[1]);
	craft_reserve(a, a->layout->journal_group, 1, &w->journal);
	craft_row(a, w->journal, KV_JOURNAL_UNDO, 0, &record, NULL, 0);
	craft_open(a, 0);
	for (uint32_t g = 0; g < 2; g++)
		for (uint32_t b = 0; b < 2; b++)
			craft_entry(a, w->place, g, b, refs[g][b]);
	craft_entry(a, w->place, a->layout->journal_group, 0, w->journal);
	craft_head_put(a, w->place, &head);
	atomic_store(&craft_place(a, w->place)->rows_end, 1);
	craft_close(a, 0);
}

static void begin_update(struct world *w)
{
	struct kv_row rows[2] = {{.kind = KV_ROW_VECTOR, .slot = 7},
				 {.kind = KV_ROW_VECTOR, .layer = 1, .slot = 3}};
	uint8_t old[64];

	memset(old, 0x11, sizeof(old));
	for (unsigned i = 0; i < 2; i++)
		craft_row(&w->a, w->journal, KV_JOURNAL_UNDO, 1 + i, &rows[i], old, sizeof(old));
	craft_open(&w->a, 0);
	atomic_store(&craft_place(&w->a, w->place)->rows_end, 3);
}

static void begin(struct world *w)
{
	struct kv_layout layout = craft_undo_fields(BLOCK_TOKENS, 8);
	struct settings settings;
	uint8_t bytes[64];

	settings_default(&settings);
	settings.pool_bytes = 2u << 20;
	settings.arena_bytes = 512u << 10;
	settings.huge = settings.mlock = SETTINGS_NO;
	w->f = fake_core_new(&settings);
	craft_begin_self(&w->a, w->f, 1000, &layout);
	craft_begin_self(&w->b, w->f, 1001, &layout);
	craft_reserve(&w->b, 0, 1, &w->theirs);
	memset(bytes, 0x5a, sizeof(bytes));
	craft_slot_write(&w->b, w->theirs, 0, 0, 3, bytes);
	fill_sequence(w);
	begin_update(w);
}

static void edit(struct world *w, const uint8_t *bytes)
{
	struct kv_shm_head *head = w->a.c->segment;
	const struct kv_shm_place *shm = craft_place(&w->a, w->place);
	uint64_t places_end =
		segment_head(&session_find(w->f->core, w->a.c->session)->segment)->places_off +
		2 * KV_SHM_PAGE;
	uint64_t table, value;
	uint32_t off;

	memcpy(&off, bytes + 1, sizeof(off));
	memcpy(&value, bytes + 5, sizeof(value));
	switch (bytes[0]) {
	case 0:
		table = head->writers_off + off % ((places_end - head->writers_off) / 8) * 8;
		memcpy((char *)head + table, &value, 8);
		return;
	case 1:
		table = shm->table_off[off % 4 % 3];
		if (table < places_end || table > KV_SHM_BYTES - 2 * KV_SHM_PAGE)
			return; /* it has stored nonsense there, which only the client reads */
		memcpy((char *)head + table + off / 4 % 1024 * 8, &value, 8);
		return;
	case 2:
		craft_write(&w->a, w->journal, 0, off % (64 * sizeof(struct kv_row) - 8), &value,
			    8);
		return;
	case 3: atomic_store(&craft_place(&w->a, w->place)->rows_end, value); return;
	case 4: atomic_store(&craft_word(&w->a, 0)->decided, value); return;
	default: return;
	}
}

static void check(struct world *w)
{
	const struct pool *pool = &w->f->core->pool;
	uint8_t bytes[64] = {0}, before[64];
	uint64_t sum = 0;
	uint32_t n = w->b.layout->layer_maps[0].stored_bytes;

	for (int c = 0; c < BLOCK_CLASSES; c++)
		sum += pool->class_bytes[c];
	must(sum == pool->total_bytes);
	memset(before, 0x5a, sizeof(before));
	craft_slot_read(&w->b, w->theirs, 0, 0, 3, bytes);
	must(memcmp(bytes, before, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct session *session;
	struct world w;
	unsigned rounds = 0;

	begin(&w);
	for (int i = 0; i < EDITS_MAX && size >= EDIT_BYTES; i++) {
		edit(&w, data);
		data += EDIT_BYTES;
		size -= EDIT_BYTES;
	}
	session = session_find(w.f->core, w.a.c->session);
	while (!recover_rows(session, ROWS_A_ROUND))
		must(++rounds < ROUNDS_MAX);
	check(&w);
	fake_client_hang_up(w.a.c);
	w.f->offset_ns += 3 * LOOP_NS_PER_S;
	fake_settle(w.f);
	must(session_find(w.f->core, w.a.c->session) == NULL ||
	     session_find(w.f->core, w.a.c->session)->phase == SESSION_ENDED);
	check(&w);
	fake_client_hang_up(w.b.c);
	craft_end(&w.a);
	craft_end(&w.b);
	fake_core_free(w.f);
	return 0;
}
