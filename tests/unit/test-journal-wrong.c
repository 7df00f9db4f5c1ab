/*
 * Journals that make no sense, and calls that do not: another process's rows lead nowhere but into
 * their sequence, before and after they were looked at; what is too much is refused before anything
 * has changed. Over bare memory.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/journal.h"
#include "tests/support/bare.h"
#include "tests/support/runner.h"

#define HEADS 2u
#define WIDTH 4u
#define BLOCK_TOKENS 4u
#define MAX_TOKENS 64u

static void ok(int64_t rc)
{
	if (rc < 0)
		fail_msg("%s: %s", kvc_status_name(kvc_error()), kvc_error_text());
}

static void fails(int64_t rc, int status)
{
	if (rc >= 0)
		fail_msg("succeeded, not %s", kvc_status_name(status));
	if (kvc_error() != status)
		fail_msg("%s (%s), not %s", kvc_status_name(kvc_error()), kvc_error_text(),
			 kvc_status_name(status));
}

struct world {
	struct bare *bare;
	struct kvc_writer *writer;
	const struct kv_layout *layout;
};

/* A global layer and a ring, with a slot plane and a sequence plane. */
static struct world world_new(uint32_t block_tokens)
{
	static struct kv_layer layers[2] = {{HEADS, WIDTH, WIDTH, 0}, {1, WIDTH, 0, 8}};
	static struct kv_plane planes[2] = {{"position", KV_PLANE_SLOT, 4},
					    {"counter", KV_PLANE_SEQUENCE, 8}};
	struct kv_layout fields = {.fingerprint = {1},
				   .n_layers = 2,
				   .layers = layers,
				   .dtype = KV_DTYPE_F32,
				   .k_format = KV_FORMAT_RAW,
				   .v_format = KV_FORMAT_RAW,
				   .block_tokens = block_tokens,
				   .n_planes = 2,
				   .planes = planes};
	struct world w = {.bare = bare_new(kv_layout_copy(&fields))};

	w.writer = bare_writer(w.bare, 0);
	w.layout = w.bare->layout.fields;
	return w;
}

static void world_free(struct world *w)
{
	while (w->writer->seqs)
		seq_end(w->writer->seqs, w->writer->seqs->seq_id ? SEQ_END_DROPPED : SEQ_END_LOCAL);
	writer_free(w->writer);
	bare_free(w->bare);
}

static void set_mode(struct kvc_seq *seq, uint32_t mode)
{
	struct kvc_journal_options options = {.size = sizeof(options), .mode = mode};

	ok(kvc_journal_set(seq, &options));
}

/* One update of one token in all layers. */
static void append(struct world *w, struct kvc_seq *seq, float value)
{
	float k[HEADS * WIDTH], v[HEADS * WIDTH];
	uint64_t counter = (uint64_t)value;

	for (uint32_t i = 0; i < HEADS * WIDTH; i++)
		k[i] = v[i] = value + (float)i / 16;
	ok(bare_reserve(w->bare, seq, 1));
	ok(kvc_append_begin(seq, 1));
	ok(kvc_write(seq, 0, k, v));
	ok(kvc_write(seq, 1, k, NULL));
	ok(kvc_plane_set(seq, "counter", &counter, sizeof(counter)));
	ok(kvc_commit(w->writer, &seq, 1));
}

/* Slots of layer 0: other ones for each head. */
static void scatter(struct world *w, struct kvc_seq *seq, uint32_t slot0, uint32_t slot1)
{
	const uint32_t index[HEADS] = {slot0, slot1};
	float k[HEADS * WIDTH] = {7}, v[HEADS * WIDTH] = {9};

	ok(bare_reserve_scatter(w->bare, seq, 1, HEADS, 2));
	ok(kvc_update_begin(seq, 0, 0));
	ok(kvc_scatter(seq, 0, 1, index, 0, k, v, NULL));
	ok(kvc_commit(w->writer, &seq, 1));
}

/* ---- rows of others ----------------------------------------------------------------------- */

#define BASE 10u
#define ALL 16u

/* A sequence with a journal: ten tokens below it, six steps of a token, two of a scatter. */
static struct kvc_seq *seq_with_rows(struct world *w, uint32_t mode)
{
	struct kvc_seq *seq = bare_seq(w->bare, w->writer, MAX_TOKENS, NULL);
	uint64_t i = 0;

	set_mode(seq, KVC_JOURNAL_UNDO); /* of the ring */
	for (; i < BASE; i++)
		append(w, seq, (float)i);
	if (mode == KVC_JOURNAL_REPLAY) {
		/* what came so far is forgotten by a fork */
		struct seg_state state;
		struct kvc_seq *fork;

		ok(bare_snapshot(w->bare, seq->place, &state));
		fork = bare_seq(w->bare, w->writer, MAX_TOKENS, &state);
		seg_state_fini(&state);
		seq = fork;
		set_mode(seq, mode);
	}
	for (; i < ALL; i++)
		append(w, seq, (float)i);
	scatter(w, seq, 3, 5);
	scatter(w, seq, 15, 3);
	return seq;
}

/* What whoever takes the sequence over, or forks it, gets. */
static void read_state(struct world *w, const struct kvc_seq *seq, struct seg_state *state)
{
	struct errbuf err;

	assert_int_equal(segment_read(&w->bare->segment, &w->bare->places[seq->place], w->layout,
				      w->writer->update, state, &err),
			 0);
}

static void attach_fails(struct world *w, const struct seg_state *state, const char *what)
{
	struct kvc_seq *seq = bare_seq_try(w->bare, w->writer, MAX_TOKENS, state);

	if (seq)
		fail_msg("a journal with a wrong %s was taken", what);
	if (kvc_error() != KVC_ECORRUPT)
		fail_msg("%s: %s", what, kvc_error_text());
}

struct row_edit {
	const char *what;
	bool record;
	uint32_t slot;
	uint16_t layer, head, kind, flags;
};

static const struct row_edit row_edits[] = {
	{"slot that was never there", false, ALL, 0, 0, KV_ROW_VECTOR, 0},
	{"slot far away", false, UINT32_MAX, 0, 0, KV_ROW_VECTOR, 0},
	{"slot behind a ring", false, 8, 1, 0, KV_ROW_VECTOR, 0},
	{"layer", false, 0, 2, 0, KV_ROW_VECTOR, 0},
	{"layer far away", false, 0, UINT16_MAX, 0, KV_ROW_VECTOR, 0},
	{"head", false, 0, 0, HEADS, KV_ROW_VECTOR, 0},
	{"head of a layer with fewer", false, 0, 1, 1, KV_ROW_VECTOR, 0},
	{"head far away", false, 0, 0, UINT16_MAX, KV_ROW_VECTOR, 0},
	{"kind", false, 0, 0, 0, 3, 0},
	{"flags", false, 0, 0, 0, KV_ROW_VECTOR, 8},
	{"record where none belongs", false, 0, 0, 0, KV_ROW_RECORD, 0},
	{"record that is none", true, 0, 0, 0, KV_ROW_VECTOR, 0},
	{"flags of a record", true, 0, 0, 0, KV_ROW_RECORD, KV_ROW_BASE},
	{"record that cannot be the last", true, 0, 0, 0, KV_ROW_RECORD, KV_ROW_INNER},
};

static void test_wrong_rows(void **arg)
{
	uint32_t mode = *(const uint32_t *)*arg;
	struct world w = world_new(BLOCK_TOKENS);
	struct kvc_seq *seq = seq_with_rows(&w, mode);
	struct seg_state state;

	read_state(&w, seq, &state);
	for (size_t i = 0; i < sizeof(row_edits) / sizeof(row_edits[0]); i++) {
		const struct row_edit *e = &row_edits[i];
		struct kv_row *row = journal_row(seq, journal_last(seq) - !e->record);
		struct kv_row before = *row;

		row->slot = e->slot;
		row->layer = e->layer;
		row->head = e->head;
		row->kind = e->kind;
		row->flags = e->flags;
		attach_fails(&w, &state, e->what);
		*row = before;
	}
	seq_end(bare_seq(w.bare, w.writer, MAX_TOKENS, &state), SEQ_END_DROPPED);
	seg_state_fini(&state);
	world_free(&w);
}

struct record_edit {
	const char *what;
	uint64_t length_tokens, position;
	uint32_t planes, n_rows;
};

static const struct record_edit record_edits[] = {
	{"length", 1, 0, 0, 0},
	{"length far away", UINT64_MAX / 2, 0, 0, 0},
	{"position", 0, 1, 0, 0},
	{"version", 0, 0, 1, 0},
	{"version far away", 0, 0, UINT32_MAX / 2, 0},
	{"number of rows", 0, 0, 0, 1},
	{"number of rows far away", 0, 0, 0, UINT32_MAX},
};

static void test_wrong_records(void **arg)
{
	uint32_t mode = *(const uint32_t *)*arg;
	struct world w = world_new(BLOCK_TOKENS);
	struct kvc_seq *seq = seq_with_rows(&w, mode);
	struct seg_state state;

	read_state(&w, seq, &state);
	for (size_t i = 0; i < 2 * sizeof(record_edits) / sizeof(record_edits[0]); i++) {
		const struct record_edit *e = &record_edits[i / 2];
		uint64_t last = journal_last(seq);
		uint64_t number = i % 2 ? last : journal_previous(seq, last);
		struct kv_record *record = (void *)journal_payload(seq, number), before = *record;

		if (i % 2 == 0 && e->position)
			continue; /* nobody can know it */
		record->length_tokens += e->length_tokens;
		record->position += e->position;
		record->planes += e->planes;
		record->n_rows += e->n_rows;
		attach_fails(&w, &state, e->what);
		*record = before;
	}
	seg_state_fini(&state);
	world_free(&w);
}

/* A process that shares rows and is still there changes them later. */
static void test_rows_change_later(void **state)
{
	struct world w = world_new(BLOCK_TOKENS);
	struct kvc_seq *seq = seq_with_rows(&w, KVC_JOURNAL_REPLAY), *fork;
	uint64_t last = journal_last(seq), before = journal_previous(seq, last);
	struct seg_state shared;
	uint8_t digest[16];

	(void)state;
	ok(bare_snapshot(w.bare, seq->place, &shared));
	fork = bare_seq(w.bare, w.writer, MAX_TOKENS, &shared);
	for (uint64_t row = journal_previous(seq, before) + 1; row < last; row++) {
		struct kv_row *header = journal_row(seq, row);

		if (header->kind != KV_ROW_VECTOR)
			continue;
		header->layer = header->head = UINT16_MAX;
		header->slot = UINT32_MAX;
		header->prev = UINT64_MAX;
	}
	ok(kvc_digest(fork, digest));
	ok(kvc_rollback_steps(fork, 1));
	assert_int_equal(kvc_replay(fork, 1), 1);
	((struct kv_record *)(void *)journal_payload(seq, before))->length_tokens = MAX_TOKENS + 1;
	fails(kvc_rollback_steps(fork, 1), KVC_ECORRUPT);
	((struct kv_record *)(void *)journal_payload(seq, before))->length_tokens = ALL;
	((struct kv_record *)(void *)journal_payload(seq, before))->planes = 900;
	fails(kvc_rollback_steps(fork, 1), KVC_ECORRUPT);
	journal_row(seq, before)->kind = KV_ROW_VOID;
	fails(kvc_rollback_steps(fork, 1), KVC_ECORRUPT);
	seg_state_fini(&shared);
	world_free(&w);
}

/* Marks lie in the segment that the process before could write. */
static void test_wrong_mark(void **state)
{
	struct world w = world_new(BLOCK_TOKENS);
	struct kvc_seq *seq = seq_with_rows(&w, KVC_JOURNAL_UNDO);
	struct kvc_mark mark;

	(void)state;
	ok(bare_reserve_scatter(w.bare, seq, 1, 1, 0));
	ok(kvc_mark_set(seq, &mark));
	atomic_store(&seq->shm->marks[0].journal_end, journal_last(seq));
	fails(kvc_rollback_mark(seq, &mark), KVC_ECORRUPT);
	world_free(&w);
}

/* ---- calls that are too much --------------------------------------------------------------- */

/* Rows that were committed may lie in a block that is mapped for reading only. */
static void test_replay_reads_only(void **state)
{
	struct world w = world_new(BLOCK_TOKENS);
	struct kvc_seq *seq = seq_with_rows(&w, KVC_JOURNAL_UNDO);
	struct bare_arena *arena = &w.bare->arenas[w.layout->journal_group];
	uint8_t before[16], after[16];

	(void)state;
	ok(kvc_digest(seq, before));
	ok(kvc_rollback_steps(seq, 1));
	assert_int_equal(mprotect(arena->map.base, arena->map.n_bytes, PROT_READ), 0);
	assert_int_equal(kvc_replay(seq, 1), 1);
	assert_int_equal(mprotect(arena->map.base, arena->map.n_bytes, PROT_READ | PROT_WRITE), 0);
	ok(kvc_digest(seq, after));
	assert_memory_equal(before, after, sizeof(before));
	world_free(&w);
}

/* A fold of a full table clears its bitmap and nothing behind it. */
static void test_fold_full_table(void **arg)
{
	const struct kv_layer layer = {1, WIDTH, WIDTH, 0};
	struct bare *bare = bare_new(bare_layout(1, &layer, 1));
	struct kvc_writer *writer = bare_writer(bare, 0);
	const uint64_t n = 8 * (uint64_t)sysconf(_SC_PAGESIZE);
	struct seg_state *state = calloc(1, sizeof(*state));
	const uint32_t slot = 5;
	const float k[WIDTH] = {1}, v[WIDTH] = {2};
	struct kvc_seq *seq;
	char *guarded;

	(void)arg;
	state->head = (struct kv_head){.length_tokens = n, .base_tokens = n, .position = n};
	state->n_blocks[0] = n;
	state->refs[0] = malloc(n * sizeof(uint64_t));
	for (uint64_t i = 0; i < n; i++)
		state->refs[0][i] = kv_ref(0, 1, 0); /* one block will do for all */
	bare->arenas[0].pins[0] = 1;
	seq = bare_seq(bare, writer, n, state);
	set_mode(seq, KVC_JOURNAL_REPLAY);
	ok(bare_reserve_scatter(bare, seq, 1, 1, 1));
	ok(kvc_update_begin(seq, 0, 0));
	ok(kvc_scatter(seq, 0, 1, &slot, 0, k, v, NULL));
	ok(kvc_commit(writer, &seq, 1));
	munmap(seq->journal.seen, seq->journal.seen_bytes);
	guarded = mmap(NULL, 2 * n / 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(guarded, MAP_FAILED);
	mprotect(guarded + n / 8, n / 8, PROT_NONE);
	seq->journal.seen = (void *)guarded;
	seq->journal.seen_bytes = 2 * n / 8;
	assert_true(kvc_fold(seq, 0) > 0);
	seq_end(seq, SEQ_END_DROPPED);
	writer_free(writer);
	seg_state_fini(state);
	free(state);
	bare_free(bare);
}

/* A place that is set aside for a short sequence has no room for the reserve of a long one. */
static void test_fork_into_small_place(void **state)
{
	struct world w = world_new(BLOCK_TOKENS);
	struct kvc_seq *seq = bare_seq(w.bare, w.writer, 4096, NULL), *fork;

	(void)state;
	set_mode(seq, KVC_JOURNAL_UNDO);
	append(&w, seq, 1);
	ok(bare_reserve(w.bare, seq, 1200));
	bare_spare_places(w.bare, w.writer, 8, 1);
	assert_null(kvc_fork_local(seq, 1000));
	assert_int_equal(kvc_error(), KVC_ERESERVE);
	fork = kvc_fork_local(seq, 4);
	assert_non_null(fork);
	append(&w, fork, 2);
	world_free(&w);
}

/* A fork freezes its parent, whose ring then needs more blocks: that is no longer the fork's. */
static void test_fork_of_ring(void **state)
{
	struct world w = world_new(BLOCK_TOKENS);
	struct kvc_seq *seq = bare_seq(w.bare, w.writer, MAX_TOKENS, NULL), *fork;

	(void)state;
	set_mode(seq, KVC_JOURNAL_UNDO);
	for (unsigned i = 0; i < BASE; i++)
		append(&w, seq, (float)i);
	ok(bare_reserve(w.bare, seq, 4));
	bare_spare_places(w.bare, w.writer, MAX_TOKENS, 1);
	fork = kvc_fork_local(seq, 4);
	assert_non_null(fork);
	for (uint32_t g = 0; g < w.layout->n_groups; g++) {
		assert_true(seq->groups[g].spares.n <= seq->groups[g].spares.cap);
		assert_true(fork->groups[g].spares.n <= 8);
	}
	append(&w, fork, BASE);
	append(&w, seq, BASE);
	world_free(&w);
}

/* If there is no address space for its index, there is no journal. */
static void test_no_index_no_journal(void **state)
{
	struct kv_layer layers[128];
	struct kvc_journal_options replay = {.size = sizeof(replay), .mode = KVC_JOURNAL_REPLAY};
	struct kvc_journal_info info;
	struct kvc_writer *writer;
	struct kvc_seq *seq;
	struct bare *bare;

	(void)state;
	for (unsigned i = 0; i < 128; i++)
		layers[i] = (struct kv_layer){1024, 1, 0, 0};
	bare = bare_new(bare_layout(128, layers, 1024));
	writer = bare_writer(bare, 0);
	seq = bare_seq(bare, writer, KV_TOKENS_MAX, NULL);
	fails(kvc_journal_set(seq, &replay), KVC_ENOMEM);
	ok(kvc_journal_info(seq, &info));
	assert_int_equal(info.mode, KVC_JOURNAL_NONE);
	seq_end(seq, SEQ_END_DROPPED);
	writer_free(writer);
	bare_free(bare);
}

static void test_replay_from_longer(void **state)
{
	struct world w = world_new(BLOCK_TOKENS);
	struct kvc_seq *seq = bare_seq(w.bare, w.writer, MAX_TOKENS, NULL), *fork;
	struct seg_state base;

	(void)state;
	append(&w, seq, 1);
	ok(bare_snapshot(w.bare, seq->place, &base));
	fork = bare_seq(w.bare, w.writer, 8, &base);
	set_mode(seq, KVC_JOURNAL_REPLAY);
	for (unsigned i = 1; i <= 8; i++)
		append(&w, seq, (float)i);
	set_mode(fork, KVC_JOURNAL_REPLAY);
	ok(bare_reserve(w.bare, fork, 7));
	fails(kvc_replay_from(fork, seq), KVC_ERANGE);
	ok(kvc_rollback_steps(seq, 1));
	assert_int_equal(kvc_replay_from(fork, seq), 7);
	assert_int_equal(kvc_length(fork), 8);
	seg_state_fini(&base);
	world_free(&w);
}

static void test_null(void **state)
{
	struct world w = world_new(BLOCK_TOKENS);
	struct kvc_seq *seq = bare_seq(w.bare, w.writer, MAX_TOKENS, NULL);

	(void)state;
	ok(bare_reserve(w.bare, seq, 1));
	ok(kvc_append_begin(seq, 1));
	fails(kvc_write_planes(seq, 0, 0, 1, NULL), KVC_EINVAL);
	fails(kvc_plane_set(seq, "counter", NULL, 8), KVC_EINVAL);
	fails(kvc_plane_set(seq, NULL, "12345678", 8), KVC_ENOTFOUND);
	fails(kvc_commit(w.writer, NULL, 1), KVC_EINVAL);
	ok(kvc_abort(seq));
	world_free(&w);
}

/* A piece of a slot plane has a limit too: it would not fit into 32 bits. */
static void test_piece_of_plane(void **state)
{
	struct kv_layer layer = {KV_HEADS_MAX, 1, 0, 0};
	struct kv_plane plane = {"p", KV_PLANE_SLOT, KV_SLOT_PLANE_BYTES_MAX};
	struct kv_layout fields = {.fingerprint = {1},
				   .n_layers = 1,
				   .layers = &layer,
				   .dtype = KV_DTYPE_F32,
				   .k_format = KV_FORMAT_RAW,
				   .v_format = KV_FORMAT_RAW,
				   .block_tokens = KV_BLOCK_TOKENS_MAX,
				   .n_planes = 1,
				   .planes = &plane};
	struct errbuf err;

	(void)state;
	assert_int_equal(kv_layout_check(&fields, &err), -1);
	assert_int_equal(err.status, KV_ETOOBIG);
	fields.block_tokens = KV_PIECE_BYTES_MAX / KV_SLOT_PLANE_BYTES_MAX / KV_HEADS_MAX;
	assert_int_equal(kv_layout_check(&fields, &err), 0);
}

static const uint32_t undo = KVC_JOURNAL_UNDO, replay = KVC_JOURNAL_REPLAY;

static const struct CMUnitTest tests[] = {
	KT_TEST_PARAM("rows of others that make no sense are refused: undo", test_wrong_rows,
		      (void *)&undo),
	KT_TEST_PARAM("rows of others that make no sense are refused: replay", test_wrong_rows,
		      (void *)&replay),
	KT_TEST_PARAM("records of others that make no sense are refused: undo", test_wrong_records,
		      (void *)&undo),
	KT_TEST_PARAM("records of others that make no sense are refused: replay",
		      test_wrong_records, (void *)&replay),
	KT_TEST("rows that change behind one's back lead nowhere", test_rows_change_later),
	KT_TEST("a mark that names no record is refused", test_wrong_mark),
	KT_TEST("replaying forward writes no row", test_replay_reads_only),
	KT_TEST("a fold of a full table clears no more than its bitmap", test_fold_full_table),
	KT_TEST("a place that is too small is not forked into", test_fork_into_small_place),
	KT_TEST("the fork of a ring takes what its parent had for it", test_fork_of_ring),
	KT_TEST("a journal without memory for its index is not begun", test_no_index_no_journal),
	KT_TEST("steps beyond max_tokens are not replayed", test_replay_from_longer),
	KT_TEST("NULL where bytes belong is refused", test_null),
	KT_TEST("a slot plane's piece has a limit", test_piece_of_plane),
};

KT_MAIN(tests)
