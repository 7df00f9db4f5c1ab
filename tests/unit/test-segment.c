/*
 * Control segments without a core: tables of groups that are windows, headers that a damaged
 * client could write, freezes, and where a dead writer's sequences stand.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/hold.h"
#include "tests/support/runner.h"

#define MAX_TOKENS 256u
#define BOUND 24u
#define BLOCK_TOKENS 8u

enum { GROUP_ALL = 0, GROUP_RING = 1, GROUP_JOURNAL = 2, GROUP_STATES = 3 };

struct fixture {
	struct kv_layout *layout;
	struct segment segment;
	struct seg_place place;
};

static struct kv_layout *make_layout(void)
{
	static const struct kv_layer layers[2] = {{1, 16, 16, 0}, {2, 16, 16, BOUND}};
	struct kv_layout *layout = calloc(1, sizeof(*layout));

	assert_non_null(layout);
	layout->fingerprint[0] = 1;
	layout->dtype = KV_DTYPE_F32;
	layout->k_format = layout->v_format = KV_FORMAT_INT8;
	layout->block_tokens = BLOCK_TOKENS;
	layout->n_layers = 2;
	layout->layers = malloc(sizeof(layers));
	memcpy(layout->layers, layers, sizeof(layers));
	layout->n_planes = 1;
	layout->planes = calloc(1, sizeof(layout->planes[0]));
	layout->planes[0] = (struct kv_plane){"counters", KV_PLANE_SEQUENCE, 40};
	assert_int_equal(kv_layout_check(layout, NULL), 0);
	assert_int_equal(kv_layout_derive(layout, NULL), 0);
	return layout;
}

static void begin(struct fixture *x)
{
	*x = (struct fixture){.layout = make_layout()};
	x->place = (struct seg_place){
		.index = 3, .writer = 2, .seq_id = 9, .max_tokens = MAX_TOKENS};
	assert_int_equal(segment_make(&x->segment, 7, NULL), 0);
	assert_int_equal(segment_table_alloc(&x->segment, &x->place, x->layout, NULL), 0);
	segment_writer_init(&x->segment, 2);
}

static void end(struct fixture *x)
{
	segment_fini(&x->segment);
	kv_layout_free(x->layout);
}

/* A state with that header: block number b of group g is kv_ref(0, g + 1, 7 * b + g). */
static struct seg_state make_state(const struct fixture *x, struct kv_head head)
{
	struct seg_state state = {.head = head};

	assert_null(kv_head_wrong(x->layout, &head, MAX_TOKENS));
	for (uint32_t g = 0; g < x->layout->n_groups; g++) {
		struct kv_window window = kv_head_window(x->layout, &head, g);

		state.first_block[g] = window.first;
		state.n_blocks[g] = window.n;
		state.refs[g] = calloc(window.n + 1, sizeof(uint64_t));
		for (uint64_t i = 0; i < window.n; i++)
			state.refs[g][i] = kv_ref(
				0, g + 1, (uint32_t)(7 * (window.first + i) + g) & 0xffffff);
	}
	return state;
}

static struct kv_head replay_head(const struct fixture *x)
{
	uint64_t rows = UINT64_C(1) << x->layout->journal[KV_JOURNAL_REPLAY].rows_log2;

	return (struct kv_head){
		.state = kv_head_word(KV_HEAD_LIVE, KV_JOURNAL_REPLAY),
		.length_tokens = 130,
		.base_tokens = 101,
		.position = 200,
		.journal_first = (KV_JOURNAL_BLOCKS_MAX - 2) * rows + 1,
		.journal_end = (KV_JOURNAL_BLOCKS_MAX + 2) * rows + 3,
		.planes = kv_planes(KV_STATES_MAX - 3, KV_STATES_MAX + 6),
	};
}

static void put(struct fixture *x, const struct seg_state *state)
{
	segment_place_init(&x->segment, &x->place, state, KV_HEAD_LIVE, 0);
}

static int read_back(const struct fixture *x, struct seg_state *out, struct errbuf *err)
{
	return segment_read(&x->segment, &x->place, x->layout,
			    hold_update(segment_writer(&x->segment, 2)), out, err);
}

/* ---- tables ------------------------------------------------------------------------------- */

static void test_tables(void **state)
{
	struct fixture x;
	struct seg_place other;
	uint64_t off;

	(void)state;
	begin(&x);
	assert_int_equal(x.place.n_groups, 4);
	assert_int_equal(x.layout->n_layer_groups, 2);
	assert_int_equal(x.place.n_entries[GROUP_ALL], MAX_TOKENS / BLOCK_TOKENS);
	assert_int_equal(x.place.n_entries[GROUP_RING], BOUND / BLOCK_TOKENS);
	assert_int_equal(x.place.n_entries[GROUP_JOURNAL], KV_JOURNAL_BLOCKS_MAX);
	assert_int_equal(x.place.n_entries[GROUP_STATES], KV_STATES_MAX);
	/* one behind the other, each from a page on */
	off = x.place.table_off[0];
	for (uint32_t g = 0; g < 4; g++) {
		assert_int_equal(x.place.table_off[g], off);
		assert_int_equal(off % KV_SHM_PAGE, 0);
		off += (2 * x.place.n_entries[g] * sizeof(struct kv_shm_entry) + KV_SHM_PAGE - 1) /
		       KV_SHM_PAGE * KV_SHM_PAGE;
	}
	/* what is given back is found again, whole */
	segment_table_free(&x.segment, &x.place);
	other = x.place;
	memset(other.table_off, 0, sizeof(other.table_off));
	assert_int_equal(segment_table_alloc(&x.segment, &other, x.layout, NULL), 0);
	assert_memory_equal(other.table_off, x.place.table_off, sizeof(other.table_off));
	end(&x);
}

static void test_tables_short(void **state)
{
	struct fixture x;
	struct seg_place place = {.max_tokens = 10};

	(void)state;
	begin(&x);
	assert_int_equal(segment_table_alloc(&x.segment, &place, x.layout, NULL), 0);
	assert_int_equal(place.n_entries[GROUP_ALL], 2);
	assert_int_equal(place.n_entries[GROUP_RING], 2);
	end(&x);
}

static void test_taken_apart(void **state)
{
	struct fixture x;
	struct seg_place apart;

	(void)state;
	begin(&x);
	assert_int_equal(segment_table_take(&x.segment, &x.place, NULL), 0);
	for (uint32_t g = 0; g < 4; g++) {
		apart = x.place;
		apart.table_off[g] += KV_SHM_PAGE;
		assert_int_equal(segment_table_take(&x.segment, &apart, NULL), -1);
		apart.table_off[g] = UINT64_MAX - 4095;
		assert_int_equal(segment_table_take(&x.segment, &apart, NULL), -1);
	}
	end(&x);
}

/* ---- windows ------------------------------------------------------------------------------ */

static void assert_same_state(const struct fixture *x, const struct seg_state *a,
			      const struct seg_state *b)
{
	assert_memory_equal(&a->head, &b->head, sizeof(a->head));
	for (uint32_t g = 0; g < x->layout->n_groups; g++) {
		assert_int_equal(a->first_block[g], b->first_block[g]);
		assert_int_equal(a->n_blocks[g], b->n_blocks[g]);
		assert_memory_equal(a->refs[g], b->refs[g], a->n_blocks[g] * sizeof(uint64_t));
	}
}

static void test_windows(void **state)
{
	struct seg_state put_in, got;
	struct fixture x;

	(void)state;
	begin(&x);
	put_in = make_state(&x, replay_head(&x));
	assert_int_equal(put_in.n_blocks[GROUP_ALL], 13);
	assert_int_equal(put_in.n_blocks[GROUP_RING], 3);
	assert_int_equal(put_in.n_blocks[GROUP_JOURNAL], 5);
	assert_int_equal(put_in.n_blocks[GROUP_STATES], 10);
	put(&x, &put_in);
	assert_int_equal(read_back(&x, &got, NULL), 0);
	assert_same_state(&x, &put_in, &got);
	assert_int_equal(got.n_slots[GROUP_ALL], 101);
	assert_int_equal(got.n_slots[GROUP_RING], BOUND);
	assert_int_equal(got.n_slots[GROUP_JOURNAL], 0);
	assert_int_equal(segment_place(&x.segment, 3)->rows_end, put_in.head.journal_end);
	/* block number n is entry n % n_entries */
	for (uint64_t i = 0; i < got.n_blocks[GROUP_JOURNAL]; i++) {
		uint64_t number = got.first_block[GROUP_JOURNAL] + i;
		const struct kv_shm_entry *entry = kv_shm_entry(x.segment.base,
								x.place.table_off[GROUP_JOURNAL],
								KV_JOURNAL_BLOCKS_MAX, 0,
								number % KV_JOURNAL_BLOCKS_MAX);

		assert_int_equal(entry->ref, got.refs[GROUP_JOURNAL][i]);
	}
	seg_state_fini(&put_in);
	seg_state_fini(&got);
	end(&x);
}

static void test_hole_in_window(void **state)
{
	struct seg_state put_in, got;
	struct errbuf err;
	struct fixture x;

	(void)state;
	begin(&x);
	put_in = make_state(&x, replay_head(&x));
	put(&x, &put_in);
	for (uint32_t g = 0; g < 4; g++) {
		uint64_t number = put_in.first_block[g] + put_in.n_blocks[g] - 1;
		struct kv_shm_entry *entry = kv_shm_entry(x.segment.base, x.place.table_off[g],
							  x.place.n_entries[g], 0,
							  number % x.place.n_entries[g]);

		entry->stamp = 5; /* of an update that is not committed */
		assert_int_equal(read_back(&x, &got, &err), -1);
		assert_int_equal(err.status, KV_EINVAL);
		entry->stamp = 1;
	}
	assert_int_equal(read_back(&x, &got, &err), 0);
	seg_state_fini(&put_in);
	seg_state_fini(&got);
	end(&x);
}

static void test_share(void **state)
{
	struct seg_state put_in, got;
	struct kv_head head;
	struct fixture x;

	(void)state;
	begin(&x);
	head = replay_head(&x);
	head.n_marks = 1;
	put_in = make_state(&x, head);
	put_in.marks[0] = (struct seg_mark){1, 1, 120, head.journal_end};
	put(&x, &put_in);
	assert_int_equal(read_back(&x, &got, NULL), 0);
	seg_state_share(&got, x.layout);
	put_in.head.n_marks = 0; /* a replay journal goes with it */
	assert_same_state(&x, &put_in, &got);
	seg_state_fini(&put_in);
	seg_state_fini(&got);

	head.state = kv_head_word(KV_HEAD_LIVE, KV_JOURNAL_UNDO);
	head.base_tokens = head.length_tokens;
	head.n_marks = 0;
	put_in = make_state(&x, head);
	put(&x, &put_in);
	assert_int_equal(read_back(&x, &got, NULL), 0);
	seg_state_share(&got, x.layout);
	assert_int_equal(got.head.journal_first, head.journal_end);
	assert_int_equal(got.n_blocks[GROUP_JOURNAL], 0);
	assert_int_equal(got.n_blocks[GROUP_STATES], 1);
	assert_int_equal(got.first_block[GROUP_STATES], KV_STATES_MAX + 5);
	assert_int_equal(got.refs[GROUP_STATES][0], put_in.refs[GROUP_STATES][9]);
	seg_state_fini(&put_in);
	seg_state_fini(&got);
	end(&x);
}

/* ---- damage ------------------------------------------------------------------------------- */

static void test_bad_headers(void **state)
{
	const struct {
		const char *what;
		size_t off;
		uint64_t value;
		bool is_32;
	} damages[] = {
#define AT(field) #field, offsetof(struct kv_head_copy, field)
		{AT(length_tokens), MAX_TOKENS + 1, false},
		{AT(length_tokens), 100, false}, /* less than the base */
		{AT(length_tokens), UINT64_MAX, false},
		{AT(base_tokens), 131, false},
		{AT(base_tokens), UINT64_MAX, false},
		{AT(journal_first), UINT64_MAX, false},
		{AT(journal_first), 0, false}, /* more blocks than a table names */
		{AT(journal_end), 0, false},
		{AT(journal_end), UINT64_MAX, false},
		{AT(journal_end), UINT64_MAX / 2, false},
		{AT(planes), 0x500000004, false},
		{AT(planes), 5, false},
		{AT(planes), 0x500000000, false},
		{AT(planes), 0x1ffffffff, false},
		{AT(n_marks), KV_MARKS_MAX + 1, true},
		{AT(state), 3 | KV_JOURNAL_REPLAY << 8, true},
		{AT(state), 1 | 3 << 8, true},
		{AT(state), 1 | KV_JOURNAL_REPLAY << 8 | 1 << 17, true},
		{AT(state), 1, true},                        /* rows without journal */
		{AT(state), 1 | KV_JOURNAL_UNDO << 8, true}, /* base below the length */
	};
	struct seg_state put_in, got;
	struct fixture x;

	(void)state;
	begin(&x);
	put_in = make_state(&x, replay_head(&x));
	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		struct errbuf err = {0};
		char *copy;

		put(&x, &put_in);
		assert_int_equal(read_back(&x, &got, NULL), 0);
		seg_state_fini(&got);
		copy = (char *)&segment_place(&x.segment, 3)->copy[0];
		memcpy(copy + damages[i].off, &damages[i].value, damages[i].is_32 ? 4 : 8);
		if (read_back(&x, &got, &err) == 0)
			fail_msg("%s %llx is taken", damages[i].what,
				 (unsigned long long)damages[i].value);
		assert_int_equal(err.status, KV_EINVAL);
		assert_non_null(strstr(err.text, "makes no sense"));
	}
	seg_state_fini(&put_in);
	end(&x);
}

static void test_marks(void **state)
{
	struct seg_state put_in, got;
	struct errbuf err;
	struct kv_head head;
	struct fixture x;

	(void)state;
	begin(&x);
	head = replay_head(&x);
	head.n_marks = 3;
	put_in = make_state(&x, head);
	put_in.marks[0] = (struct seg_mark){1, 1, 150, head.journal_end - 9};
	put_in.marks[1] = (struct seg_mark){2, 1, 120, head.journal_end - 9}; /* scattered since */
	put_in.marks[2] = (struct seg_mark){3, 1, 130, head.journal_end};
	put(&x, &put_in);
	assert_int_equal(read_back(&x, &got, NULL), 0);
	assert_memory_equal(got.marks, put_in.marks, 3 * sizeof(got.marks[0]));
	seg_state_fini(&got);
	for (int i = 0; i < 3; i++) {
		struct seg_state bad = put_in;

		if (i == 0)
			bad.marks[1].journal_end--; /* fewer rows than the one before */
		else if (i == 1)
			bad.marks[2].journal_end++; /* more than there are */
		else
			bad.marks[0].length_tokens = MAX_TOKENS + 1;
		put(&x, &bad);
		assert_int_equal(read_back(&x, &got, &err), -1);
		assert_int_equal(err.status, KV_EINVAL);
		assert_non_null(strstr(err.text, "mark"));
	}
	seg_state_fini(&put_in);
	end(&x);
}

/* ---- freezes, ends ------------------------------------------------------------------------ */

static void freeze(enum kv_journal_mode mode, uint64_t *frozen_rows)
{
	const struct kv_shm_place *shm;
	struct seg_state put_in, got;
	struct kv_head head;
	struct fixture x;
	bool bumped;

	begin(&x);
	shm = segment_place(&x.segment, 3);
	head = replay_head(&x);
	head.state = kv_head_word(KV_HEAD_LIVE, mode);
	if (mode != KV_JOURNAL_REPLAY)
		head.base_tokens = head.length_tokens;
	put_in = make_state(&x, head);
	put(&x, &put_in);
	assert_int_equal(read_back(&x, &got, NULL), 0);
	assert_int_equal(hold_freeze(&x.segment, &x.place, x.layout, &got, &bumped, NULL), 0);
	assert_true(bumped);
	assert_int_equal(shm->freeze_count, 2);
	assert_int_equal(shm->frozen_slots[GROUP_ALL], head.base_tokens);
	assert_int_equal(shm->frozen_slots[GROUP_RING], BOUND);
	*frozen_rows = shm->frozen_rows;
	if (mode == KV_JOURNAL_REPLAY)
		assert_int_equal(*frozen_rows, head.journal_end);
	seg_state_fini(&put_in);
	seg_state_fini(&got);
	end(&x);
}

static void test_freeze(void **state)
{
	uint64_t frozen_rows;

	(void)state;
	freeze(KV_JOURNAL_REPLAY, &frozen_rows);
	freeze(KV_JOURNAL_UNDO, &frozen_rows);
	assert_int_equal(frozen_rows, 0);
}

static void test_outcome(void **state)
{
	struct kv_shm_writer *w;
	struct fixture x;
	bool is_open;

	(void)state;
	begin(&x);
	w = segment_writer(&x.segment, 2);
	for (int s = KV_IDLE; s <= KV_HELD; s++) {
		bool is_publishing = s == KV_OPEN || s == KV_WANTED;

		for (uint64_t decided = 6; decided <= 9; decided++) {
			uint64_t outcome = is_publishing && decided == 8 ? 8 : 7;

			atomic_store(&w->word, kv_word((enum kv_word_state)s, 4, 7));
			atomic_store(&w->decided, decided);
			assert_int_equal(hold_outcome(w, &is_open), outcome);
			assert_int_equal(is_open, is_publishing);
			assert_int_equal(hold_bury(w), outcome);
			assert_int_equal(atomic_load(&w->word), kv_word(KV_IDLE, 5, outcome));
			/* and again, by the next life of the core */
			assert_int_equal(hold_bury(w), outcome);
		}
	}
	/* whoever gets the word next begins with small numbers */
	atomic_store(&w->decided, 2);
	segment_writer_init(&x.segment, 2);
	atomic_store(&w->word, kv_word(KV_OPEN, 0, 1));
	assert_int_equal(hold_outcome(w, &is_open), 1);
	end(&x);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("tables of a place lie in one piece, a bounded group's as long as its bound",
		test_tables),
	KT_TEST("a short sequence has short tables", test_tables_short),
	KT_TEST("tables that are not in one piece, or outside, are not taken", test_taken_apart),
	KT_TEST("windows that go round the end of their tables are read as they were put",
		test_windows),
	KT_TEST("a block of a window that was never committed is found", test_hole_in_window),
	KT_TEST("a snapshot keeps a replay journal, and of an undo journal nothing", test_share),
	KT_TEST("each header that cannot be is refused", test_bad_headers),
	KT_TEST("marks may fall in length and not in rows", test_marks),
	KT_TEST("a freeze covers slots up to the base and bound, and rows of a replay journal",
		test_freeze),
	KT_TEST("a dead writer is at its committed update, or at the one that it had decided",
		test_outcome),
};

KT_MAIN(tests)
