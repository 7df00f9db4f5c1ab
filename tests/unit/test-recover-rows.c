/*
 * Writers that die while they overwrite slots in place: whatever had been stored by then, the core
 * brings each sequence to one update or the other, bit for bit; and rows that no library would
 * write do no harm to anybody else.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/arena_store.h"
#include "daemon/names.h"
#include "daemon/objects.h"
#include "daemon/session.h"
#include "tests/support/craft.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define UID 1000u
#define LENGTH 10u
#define BLOCK_TOKENS 4u
#define BOUND 8u /* of layer 1 */
#define STORED_MAX 64u
#define N_SEQS 2
#define N_SLOTS 6 /* that an update overwrites, of each sequence */

static const char *const names[N_SEQS] = {"one", "two"};

/* Layer, head, slot; the same slot twice: the older row has the oldest bytes. */
static const struct kv_row written[N_SLOTS] = {
	{.layer = 0, .head = 0, .slot = 9, .kind = KV_ROW_VECTOR},
	{.layer = 0, .head = 1, .slot = 0, .kind = KV_ROW_VECTOR},
	{.layer = 1, .head = 0, .slot = 7, .kind = KV_ROW_VECTOR},
	{.layer = 0, .head = 0, .slot = 9, .kind = KV_ROW_VECTOR},
	{.layer = 1, .head = 0, .slot = 1, .kind = KV_ROW_VECTOR},
	{.layer = 0, .head = 0, .slot = 5, .kind = KV_ROW_VECTOR},
};

struct sequence {
	uint32_t place;
	uint64_t refs[2][4]; /* blocks of the layer groups */
	uint64_t journal[2];
};

struct world {
	struct fake_core *f;
	struct craft a;
	struct sequence seqs[N_SEQS];
};

/* ---- a writer ----------------------------------------------------------------------------- */

/* What a slot holds at a version of it. */
static void bytes_of(int seq, const struct kv_row *slot, int version, uint8_t out[STORED_MAX])
{
	for (unsigned i = 0; i < STORED_MAX; i++)
		out[i] = (uint8_t)(i + 3 * slot->slot + 50u * slot->layer + 100u * slot->head +
				   (unsigned)(7 * seq + 20 * version));
}

static uint64_t slot_ref(const struct world *w, int seq, const struct kv_row *slot)
{
	return w->seqs[seq].refs[slot->layer][slot->slot / BLOCK_TOKENS];
}

static void put_slot(const struct world *w, int seq, const struct kv_row *slot, int version)
{
	uint8_t bytes[STORED_MAX];

	bytes_of(seq, slot, version, bytes);
	craft_slot_write(&w->a, slot_ref(w, seq, slot), slot->layer, slot->head, slot->slot, bytes);
}

static void put_all_slots(const struct world *w, int seq)
{
	for (uint16_t l = 0; l < 2; l++)
		for (uint16_t h = 0; h < (l ? 1 : 2); h++)
			for (uint32_t s = 0; s < (l ? BOUND : LENGTH); s++) {
				struct kv_row slot = {.layer = l, .head = h, .slot = s};

				put_slot(w, seq, &slot, 0);
			}
}

static uint64_t rows_per_block(const struct world *w)
{
	return UINT64_C(1) << w->a.layout->journal[KV_JOURNAL_UNDO].rows_log2;
}

/* A sequence of LENGTH tokens with an undo journal whose only row is a record, in the middle of
 * its first block. */
static void make_sequence(struct world *w, int seq)
{
	struct sequence *s = &w->seqs[seq];
	uint64_t first = rows_per_block(w) / 2;
	struct kv_head head = {.length_tokens = LENGTH,
			       .base_tokens = LENGTH,
			       .position = LENGTH,
			       .journal_first = first,
			       .journal_end = first + 1,
			       .state = kv_head_word(KV_HEAD_LIVE, KV_JOURNAL_UNDO)};
	struct kv_row record = {.kind = KV_ROW_RECORD};

	s->place = craft_seq(&w->a, 0, names[seq], 64);
	craft_reserve(&w->a, 0, 4, s->refs[0]);
	craft_reserve(&w->a, 1, 2, s->refs[1]);
	craft_reserve(&w->a, w->a.layout->journal_group, 2, s->journal);
	put_all_slots(w, seq);
	craft_row(&w->a, s->journal[0], KV_JOURNAL_UNDO, first, &record, NULL, 0);
	craft_open(&w->a, 0);
	for (uint32_t b = 0; b < 3; b++)
		craft_entry(&w->a, s->place, 0, b, s->refs[0][b]);
	for (uint32_t b = 0; b < 2; b++)
		craft_entry(&w->a, s->place, 1, b, s->refs[1][b]);
	craft_entry(&w->a, s->place, w->a.layout->journal_group, 0, s->journal[0]);
	craft_head_put(&w->a, s->place, &head);
	atomic_store(&craft_place(&w->a, s->place)->rows_end, head.journal_end);
	craft_close(&w->a, 0);
}

static void begin(struct world *w)
{
	struct kv_layout layout = craft_undo_fields(BLOCK_TOKENS, BOUND);
	struct settings settings;

	log_init(LOG_LEVEL_ERROR);
	settings_default(&settings);
	settings.pool_bytes = 8u << 20;
	settings.arena_bytes = 1u << 20;
	settings.huge = settings.mlock = SETTINGS_NO;
	*w = (struct world){.f = fake_core_new(&settings)};
	craft_begin(&w->a, w->f, UID, &layout);
	for (int i = 0; i < N_SEQS; i++)
		make_sequence(w, i);
}

static void end(struct world *w)
{
	craft_end(&w->a);
	fake_core_free(w->f);
}

static void put_row(struct world *w, int seq, uint64_t number, const struct kv_row *row,
		    const void *payload)
{
	uint64_t ref = w->seqs[seq].journal[number / rows_per_block(w)];

	craft_row(&w->a, ref, KV_JOURNAL_UNDO, number, row, payload, STORED_MAX);
}

/* Rows of an update that writes version 1 (a slot that is there twice: version 2 in the end).
 * Returns where the rows end. */
static uint64_t write_rows(struct world *w, int seq)
{
	uint64_t number = craft_head(&w->a, w->seqs[seq].place).journal_end;
	uint8_t old[STORED_MAX];

	for (int i = 0; i < N_SLOTS; i++) {
		bytes_of(seq, &written[i], i == 3, old);
		put_row(w, seq, number++, &written[i], old);
	}
	return number;
}

static void set_rows_end(struct world *w, int seq, uint64_t end_row)
{
	atomic_store(&craft_place(&w->a, w->seqs[seq].place)->rows_end, end_row);
}

/* The first n slots of the update are overwritten. */
static void overwrite(struct world *w, int seq, int n)
{
	for (int i = 0; i < n; i++)
		put_slot(w, seq, &written[i], i == 3 ? 2 : 1);
}

/* An update of both, up to before its headers; n_slots of each are overwritten. */
static void scatter_begin(struct world *w, int n_slots)
{
	uint64_t ends[N_SEQS];

	for (int i = 0; i < N_SEQS; i++)
		ends[i] = write_rows(w, i);
	craft_open(&w->a, 0);
	for (int i = 0; i < N_SEQS; i++)
		set_rows_end(w, i, ends[i]);
	for (int i = 0; i < N_SEQS; i++)
		overwrite(w, i, n_slots);
}

static void scatter_heads(struct world *w)
{
	for (int i = 0; i < N_SEQS; i++) {
		struct kv_head head = craft_head(&w->a, w->seqs[i].place);

		head.journal_end += N_SLOTS;
		craft_head_put(&w->a, w->seqs[i].place, &head);
	}
}

static void scatter(struct world *w)
{
	scatter_begin(w, N_SLOTS);
	scatter_heads(w);
	craft_close(&w->a, 0);
}

/* A rollback of both to their records, up to where it is decided; n_rows of each are put back. */
static void rollback_begin(struct world *w, bool decides, int n_rows)
{
	uint64_t update = craft_update(&w->a, 0);

	craft_open(&w->a, 0);
	for (int i = 0; i < N_SEQS; i++) {
		struct kv_head head = craft_head(&w->a, w->seqs[i].place);

		head.journal_end = head.journal_first + 1;
		craft_head_put(&w->a, w->seqs[i].place, &head);
	}
	if (!decides)
		return;
	atomic_store(&craft_word(&w->a, 0)->decided, update + 1);
	for (int i = 0; i < N_SEQS; i++)
		for (int r = N_SLOTS - 1; r >= N_SLOTS - n_rows; r--)
			put_slot(w, i, &written[r], r == 3);
}

/* ---- afterwards --------------------------------------------------------------------------- */

static struct object *find(const struct world *w, const char *name)
{
	return names_find(w->f->core, UID, name);
}

static void read_stored(const struct world *w, const struct state *state, const struct kv_row *slot,
			uint8_t *out)
{
	const struct kv_layout *layout = state->layout->layout;
	const struct kv_layer_map *map = &layout->layer_maps[slot->layer];
	uint64_t ref = *state_block(state, map->group, slot->slot / BLOCK_TOKENS);
	const struct arena *arena = arenas_find(w->f->core, gref_arena(ref));

	for (uint32_t i = 0; i < map->n_regions; i++) {
		const struct kv_region *r = &layout->regions[map->first_region + i];

		assert_int_equal(
			arena_read(arena, gref_block(ref),
				   map->first_region + i - layout->groups[map->group].first_region,
				   (uint64_t)(slot->slot % BLOCK_TOKENS) * r->row_bytes +
					   (uint64_t)slot->head * r->vector_bytes,
				   r->vector_bytes, out, NULL),
			0);
		out += r->vector_bytes;
	}
}

/* Version of a slot after the update: how often it was written. */
static int version_after(const struct kv_row *slot)
{
	int version = 0;

	for (int i = 0; i < N_SLOTS; i++)
		version += written[i].layer == slot->layer && written[i].head == slot->head &&
			   written[i].slot == slot->slot;
	return version;
}

/* All slots of a parked sequence, before the update or after it. */
static void assert_slots(const struct world *w, int seq, bool after)
{
	const struct object *object = find(w, names[seq]);

	assert_non_null(object);
	assert_non_null(object->state);
	for (uint16_t l = 0; l < 2; l++)
		for (uint16_t h = 0; h < (l ? 1 : 2); h++)
			for (uint32_t s = 0; s < (l ? BOUND : LENGTH); s++) {
				struct kv_row slot = {.layer = l, .head = h, .slot = s};
				uint8_t expected[STORED_MAX], got[STORED_MAX];

				bytes_of(seq, &slot, after ? version_after(&slot) : 0, expected);
				read_stored(w, object->state, &slot, got);
				if (memcmp(expected, got,
					   w->a.layout->layer_maps[l].stored_bytes) != 0)
					fail_msg(
						"%s: layer %u, head %u, slot %u is not what it was",
						names[seq], l, h, s);
			}
}

static void assert_all(const struct world *w, bool after, uint64_t update)
{
	for (int i = 0; i < N_SEQS; i++) {
		const struct object *object = find(w, names[i]);

		assert_slots(w, i, after);
		assert_int_equal(object->state->update, update);
		assert_int_equal(object->state->head.journal_end -
					 object->state->head.journal_first,
				 after ? N_SLOTS + 1 : 1);
	}
}

static void die(struct world *w)
{
	fake_client_kill(w->a.c);
}

/* ---- undone, or finished ------------------------------------------------------------------ */

static void test_undecided(void **state)
{
	struct world w;

	(void)state;
	for (int n = 0; n <= N_SLOTS; n++) {
		begin(&w);
		scatter_begin(&w, n);
		die(&w);
		assert_all(&w, false, 3);
		end(&w);
	}
	/* with one header or both, but without the swap */
	begin(&w);
	scatter_begin(&w, N_SLOTS);
	scatter_heads(&w);
	die(&w);
	assert_all(&w, false, 3);
	end(&w);
}

static void test_committed(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	scatter(&w);
	die(&w);
	assert_all(&w, true, 4);
	end(&w);
}

static void test_half_a_slot(void **state)
{
	struct world w;
	uint8_t junk[8];

	(void)state;
	begin(&w);
	scatter_begin(&w, 3);
	memset(junk, 0xee, sizeof(junk));
	craft_write(&w.a, w.seqs[1].refs[0][2], 0, 32 + 5, junk, 3); /* codes of slot 9 */
	die(&w);
	assert_all(&w, false, 3);
	end(&w);
}

static void test_decided(void **state)
{
	struct world w;

	(void)state;
	for (int n = 0; n <= N_SLOTS; n++) {
		begin(&w);
		scatter(&w);
		rollback_begin(&w, true, n);
		die(&w);
		assert_all(&w, false, 5);
		end(&w);
	}
	begin(&w);
	scatter(&w);
	rollback_begin(&w, false, 0);
	die(&w);
	assert_all(&w, true, 4);
	end(&w);
}

/* The swap was made, rows_end was not lowered yet. */
static void test_rollback_just_done(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	scatter(&w);
	rollback_begin(&w, true, N_SLOTS);
	craft_close(&w.a, 0);
	die(&w);
	assert_all(&w, false, 5);
	end(&w);
}

static void test_while_core_was_down(void **state)
{
	struct world w;
	int status;

	(void)state;
	begin(&w);
	scatter_begin(&w, 4);
	kill(w.a.c->pid, SIGKILL);
	kt_wait_child(w.a.c->pid, 5000, &status);
	w.a.c->pid = 0;
	assert_int_equal(fake_core_restart(w.f), 0);
	fake_settle(w.f);
	assert_all(&w, false, 3);
	end(&w);
}

/* ---- blocks of others --------------------------------------------------------------------- */

static void test_frozen(void **state)
{
	uint8_t junk[STORED_MAX];
	uint64_t number, copy;
	struct world w;

	(void)state;
	begin(&w);
	craft_snapshot(&w.a, "one", "snap");
	/* an update of slots 9 and 0 of layer 0: copied, not overwritten; slot 1 of layer 1 too */
	memset(junk, 0xee, sizeof(junk));
	number = craft_head(&w.a, w.seqs[0].place).journal_end;
	put_row(&w, 0, number, &written[0], junk);
	put_row(&w, 0, number + 1, &written[1], junk);
	craft_reserve(&w.a, 0, 1, &copy);
	craft_open(&w.a, 0);
	set_rows_end(&w, 0, number + 2);
	craft_entry(&w.a, w.seqs[0].place, 0, 2, copy);
	die(&w);
	assert_slots(&w, 0, false);
	assert_int_equal(gref_block(*state_block(find(&w, "one")->state, 0, 2)),
			 kv_ref_block(w.seqs[0].refs[0][2]));
	end(&w);
}

/* A rollback that had to copy a block: the rows are put back in the copy. */
static void test_decided_in_copies(void **state)
{
	uint64_t copy, number;
	struct kv_head head;
	uint8_t old[STORED_MAX], got[STORED_MAX];
	struct world w;

	(void)state;
	begin(&w);
	scatter(&w);
	craft_snapshot(&w.a, "one", "snap");
	craft_reserve(&w.a, 0, 1, &copy);
	craft_open(&w.a, 0);
	craft_entry(&w.a, w.seqs[0].place, 0, 2, copy);
	head = craft_head(&w.a, w.seqs[0].place);
	number = head.journal_end -= N_SLOTS;
	craft_head_put(&w.a, w.seqs[0].place, &head);
	atomic_store(&craft_word(&w.a, 0)->decided, craft_update(&w.a, 0) + 1);
	die(&w);
	assert_int_equal(find(&w, "one")->state->update, 5);
	assert_int_equal(find(&w, "one")->state->head.journal_end, number);
	bytes_of(0, &written[0], 0, old);
	read_stored(&w, find(&w, "one")->state, &written[0], got);
	assert_memory_equal(got, old, w.a.layout->layer_maps[0].stored_bytes);
	/* the snapshot has what was there */
	bytes_of(0, &written[0], 2, old);
	read_stored(&w, find(&w, "snap")->state, &written[0], got);
	assert_memory_equal(got, old, w.a.layout->layer_maps[0].stored_bytes);
	/* and the other sequence is at its last update */
	assert_slots(&w, 1, true);
	end(&w);
}

/* A successor goes back over rows that it has from its predecessor. */
static void test_inherited_journal(void **state)
{
	struct kv_layout layout = craft_undo_fields(BLOCK_TOKENS, BOUND);
	uint8_t old[STORED_MAX], got[STORED_MAX];
	struct craft b;
	struct kv_head head;
	struct world w;
	uint64_t copy;
	uint32_t place;

	(void)state;
	begin(&w);
	scatter(&w);
	die(&w);
	craft_begin(&b, w.f, UID, &layout);
	place = craft_takeover(&b, 0, "one", 64);
	head = craft_head(&b, place);
	assert_int_equal(head.journal_end - head.journal_first, N_SLOTS + 1);
	assert_int_equal(craft_place(&b, place)->rows_end, head.journal_end);
	craft_reserve(&b, 0, 1, &copy);
	craft_open(&b, 0);
	craft_entry(&b, place, 0, 2, copy);
	head.journal_end -= N_SLOTS;
	craft_head_put(&b, place, &head);
	atomic_store(&craft_word(&b, 0)->decided, craft_update(&b, 0) + 1);
	fake_client_kill(b.c);
	bytes_of(0, &written[0], 0, old);
	read_stored(&w, find(&w, "one")->state, &written[0], got);
	assert_memory_equal(got, old, w.a.layout->layer_maps[0].stored_bytes);
	craft_end(&b);
	end(&w);
}

/* Rows in a block that the update itself put into the journal's table. */
static void test_new_journal_block(void **state)
{
	struct world w;
	struct kv_head head;
	static const uint8_t no_bytes[STORED_MAX];
	struct kv_row nothing = {.kind = KV_ROW_VOID};
	uint32_t g;

	(void)state;
	begin(&w);
	g = w.a.layout->journal_group;
	head = craft_head(&w.a, w.seqs[0].place);
	for (; head.journal_end < rows_per_block(&w) - 2; head.journal_end++)
		put_row(&w, 0, head.journal_end, &nothing, no_bytes);
	craft_open(&w.a, 0);
	craft_head_put(&w.a, w.seqs[0].place, &head);
	craft_close(&w.a, 0);
	scatter_begin(&w, 0);
	set_rows_end(&w, 0, head.journal_end);
	craft_entry(&w.a, w.seqs[0].place, g, 1, w.seqs[0].journal[1]);
	set_rows_end(&w, 0, head.journal_end + N_SLOTS);
	overwrite(&w, 0, N_SLOTS);
	die(&w);
	assert_slots(&w, 0, false);
	assert_int_equal(find(&w, "one")->state->head.journal_end, head.journal_end);
	assert_int_equal(find(&w, "one")->state->n_blocks[g], 1);
	end(&w);
}

/* ---- lies --------------------------------------------------------------------------------- */

static void test_rows_that_lie(void **state)
{
	static const struct kv_row lies[] = {
		{.kind = KV_ROW_VECTOR, .layer = 2},
		{.kind = KV_ROW_VECTOR, .layer = UINT16_MAX},
		{.kind = KV_ROW_VECTOR, .layer = 0, .head = 2},
		{.kind = KV_ROW_VECTOR, .layer = 1, .head = UINT16_MAX},
		{.kind = KV_ROW_VECTOR, .layer = 0, .slot = LENGTH},
		{.kind = KV_ROW_VECTOR, .layer = 1, .slot = BOUND},
		{.kind = KV_ROW_VECTOR, .layer = 0, .slot = UINT32_MAX},
		{.kind = 3, .layer = 0, .slot = 1},
		{.kind = UINT16_MAX},
		{.kind = KV_ROW_VOID, .slot = 1},
		{.kind = KV_ROW_RECORD, .slot = 1},
	};
	uint8_t junk[STORED_MAX];
	struct world w;
	uint64_t number;

	(void)state;
	begin(&w);
	memset(junk, 0xee, sizeof(junk));
	number = craft_head(&w.a, w.seqs[0].place).journal_end;
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
		put_row(&w, 0, number++, &lies[i], junk);
	craft_open(&w.a, 0);
	set_rows_end(&w, 0, number);
	die(&w);
	assert_all(&w, false, 3);
	end(&w);
}

static void assert_block_is_zero(const struct arena *arena, uint32_t block)
{
	uint8_t bytes[2 * 16 * BLOCK_TOKENS], zeros[sizeof(bytes)] = {0};

	assert_non_null(arena);
	assert_true(block < arena->n_blocks && !arena_has_granted(arena, block));
	assert_int_equal(arena_read(arena, block, 0, 0, sizeof(bytes), bytes, NULL), 0);
	assert_memory_equal(bytes, zeros, sizeof(bytes));
}

/* The entry of a row's slot, or of its journal block, names what is not the session's. */
static void test_blocks_that_lie(void **state)
{
	struct kv_layout layout = craft_undo_fields(BLOCK_TOKENS, BOUND);
	struct kv_shm_entry *entry;
	uint64_t theirs, arena, refs[8];
	struct craft b;
	struct world w;
	uint8_t before[STORED_MAX], after[STORED_MAX];
	struct kv_shm_place *shm;

	(void)state;
	for (int lie = 0; lie < 6; lie++) {
		begin(&w);
		craft_begin(&b, w.f, UID, &layout);
		craft_reserve(&b, 0, 1, &theirs);
		memset(before, 0x5a, sizeof(before));
		craft_slot_write(&b, theirs, 0, 0, 9, before);
		scatter_begin(&w, N_SLOTS);
		shm = craft_place(&w.a, w.seqs[0].place);
		refs[0] = kv_ref(1, 9, 0); /* no such arena */
		refs[1] = kv_ref(1, KV_ARENAS_MAX - 1, 1);
		refs[2] = w.seqs[0].journal[0] | kv_ref(1, 0, 0); /* of another group */
		refs[3] = kv_ref(1, kv_ref_arena(w.seqs[0].refs[0][0]), KV_REF_BLOCK_MAX);
		refs[4] = kv_ref(1, kv_ref_arena(w.seqs[0].refs[0][0]), 100); /* not granted */
		refs[5] = kv_ref(1, 0, 0);
		entry = kv_shm_entry(w.a.c->segment, shm->table_off[0], shm->n_entries[0], 0, 2);
		entry->ref = refs[lie];
		arena = craft_arena(&w.a, w.seqs[0].refs[0][0])->id;
		entry = kv_shm_entry(w.a.c->segment, shm->table_off[2], shm->n_entries[2], 0, 0);
		if (lie % 2)
			entry->ref = refs[lie];
		die(&w);
		/* its own sequence is lost, and nothing else */
		assert_null(find(&w, "one"));
		assert_slots(&w, 1, false);
		assert_block_is_zero(arenas_find(w.f->core, arena), 100);
		craft_slot_read(&b, theirs, 0, 0, 9, after);
		assert_memory_equal(before, after, w.a.layout->layer_maps[0].stored_bytes);
		craft_end(&b);
		end(&w);
	}
}

static void test_bounds_that_lie(void **state)
{
	const uint64_t ends[] = {UINT64_MAX, UINT64_MAX / 2, UINT64_MAX / 2 + 1,
				 (UINT64_C(1) << 32), 0};
	struct world w;

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		begin(&w);
		scatter_begin(&w, 0);
		set_rows_end(&w, 0, ends[i]);
		die(&w);
		if (ends[i]) /* else nothing was overwritten */
			assert_null(find(&w, "one"));
		else
			assert_slots(&w, 0, false);
		assert_slots(&w, 1, false);
		end(&w);
	}
}

/* As far as a table can name: most of it is not there. */
static void test_longest(void **state)
{
	struct craft b;
	struct kv_layout layout = craft_undo_fields(BLOCK_TOKENS, BOUND);
	uint64_t first;
	struct world w;

	(void)state;
	begin(&w);
	scatter_begin(&w, N_SLOTS);
	first = craft_head(&w.a, w.seqs[0].place).journal_end;
	set_rows_end(&w, 0, KV_JOURNAL_BLOCKS_MAX * rows_per_block(&w));
	assert_true(first < rows_per_block(&w));
	kill(w.a.c->pid, SIGKILL);
	craft_begin(&b, w.f, UID, &layout); /* others are served meanwhile */
	die(&w);
	assert_slots(&w, 0, false);
	assert_slots(&w, 1, false);
	craft_end(&b);
	end(&w);
}

/* ---- a process that lives ----------------------------------------------------------------- */

static void test_hang_up_then_death(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	scatter_begin(&w, 4);
	fake_client_hang_up(w.a.c);
	fake_settle(w.f);
	assert_non_null(find(&w, "one")->session); /* not yet */
	assert_int_equal(fake_client_again(w.a.c), KV_ESESSION);
	die(&w);
	assert_all(&w, false, 3);
	end(&w);
}

static void test_hang_up_then_commit(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	scatter_begin(&w, N_SLOTS);
	fake_client_hang_up(w.a.c);
	scatter_heads(&w);
	craft_close(&w.a, 0);
	w.f->offset_ns += 3 * LOOP_NS_PER_S;
	fake_settle(w.f);
	assert_all(&w, true, 4);
	end(&w);
}

static void test_hang_up_and_no_end(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	craft_seq(&w.a, 0, "three", 64);
	scatter_begin(&w, 4);
	fake_client_hang_up(w.a.c);
	w.f->offset_ns += 3 * LOOP_NS_PER_S;
	fake_settle(w.f);
	assert_null(find(&w, "one"));
	assert_null(find(&w, "two"));
	assert_non_null(find(&w, "three")->state); /* has no journal: its last update */
	end(&w);
}

/* ---- the core dies as well ---------------------------------------------------------------- */

#ifdef KV_FAULT_INJECTION
/* A life of the core that dies at its nth store; false: it got through. */
static bool core_dies_at(struct world *w, uint64_t n)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		kv_fault_at = kv_fault_passed + n;
		if (fake_core_restart_child(w->f) == 0)
			fake_settle(w->f);
		_exit(w->f->core == NULL);
	}
	assert_int_equal(kt_wait_child(pid, 10000, &status), 0);
	if (WIFSIGNALED(status))
		assert_int_equal(WTERMSIG(status), SIGKILL);
	else
		assert_int_equal(WEXITSTATUS(status), 0);
	return WIFSIGNALED(status);
}

static uint64_t die_everywhere(bool decided)
{
	struct world w;
	bool dies = true;
	uint64_t n;
	int status;

	for (n = 1; dies; n++) {
		begin(&w);
		if (decided) {
			scatter(&w);
			rollback_begin(&w, true, 2);
		} else {
			scatter_begin(&w, 5);
		}
		kill(w.a.c->pid, SIGKILL);
		kt_wait_child(w.a.c->pid, 5000, &status);
		w.a.c->pid = 0;
		dies = core_dies_at(&w, n);
		assert_int_equal(fake_core_restart(w.f), 0);
		fake_settle(w.f);
		assert_all(&w, false, decided ? 5 : 3);
		end(&w);
	}
	return n;
}
#endif

static void test_core_dies(void **state)
{
	(void)state;
#ifdef KV_FAULT_INJECTION
	/* each region of each row is a store */
	assert_true(die_everywhere(false) > 2 * N_SLOTS * 5);
	assert_true(die_everywhere(true) > 2 * N_SLOTS * 5);
#else
	kt_skip("needs --enable-fault-injection");
#endif
}

static const struct CMUnitTest tests[] = {
	KT_TEST("an update that was not committed is undone, wherever its writer died",
		test_undecided),
	KT_TEST("an update that was committed stays", test_committed),
	KT_TEST("half a slot is put back", test_half_a_slot),
	KT_TEST("a rollback that was decided is finished, one that was not has not happened",
		test_decided),
	KT_TEST("a rollback that was just done is not done again", test_rollback_just_done),
	KT_TEST("a writer that died while the core was down leaves the last update",
		test_while_core_was_down),
	KT_TEST("blocks that a snapshot holds are not touched", test_frozen),
	KT_TEST("a decided rollback is finished in the copies that it made",
		test_decided_in_copies),
	KT_TEST("rows of a predecessor are read from its blocks", test_inherited_journal),
	KT_TEST("rows in a block that the update itself added are found", test_new_journal_block),
	KT_TEST("rows that make no sense are passed over", test_rows_that_lie),
	KT_TEST("blocks that are not the session's are neither read nor written",
		test_blocks_that_lie),
	KT_TEST("a sequence whose rows end nowhere is dropped, the other is not",
		test_bounds_that_lie),
	KT_TEST("the longest journal keeps nobody waiting", test_longest),
	KT_TEST("a process that hangs up in the middle of an update and dies loses nothing",
		test_hang_up_then_death),
	KT_TEST("a process that hangs up and commits is parked with that",
		test_hang_up_then_commit),
	KT_TEST("a process that hangs up and never commits loses what it was overwriting",
		test_hang_up_and_no_end),
	KT_TEST("a core that dies at any store of that is followed by one that does it",
		test_core_dies),
};

KT_MAIN(tests)
