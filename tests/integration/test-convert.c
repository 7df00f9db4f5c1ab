/*
 * kvc_convert, kvc_diff, kvc_layout_size and kvc_layout_variant on a real daemon. What a converted
 * sequence must be is made the other way: the same vectors written into a new sequence of the
 * target layout; the digests are equal then, or kvc_diff names the slot.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/integration/shadow.h"
#include "tests/support/client.h"

#define N_LAYERS 3u /* the last has a bound */
#define HEADS 2u
#define WIDTH 32u
#define BOUND 24u
#define ROW (HEADS * WIDTH)
#define STATE_BYTES 40u
#define SLOTS_MAX 256u

enum shape { PLAIN_SHAPE = 0, WITH_PLANES = 1, WITH_RING = 2 };

static kvc_layout *make_layout(kvc_session *session, int shape, uint32_t k, uint32_t v,
			       uint32_t block_tokens)
{
	const struct kvc_layer layers[N_LAYERS] = {
		{HEADS, WIDTH, WIDTH, 0},
		{HEADS, WIDTH, WIDTH, 0},
		{HEADS, WIDTH, WIDTH, shape & WITH_RING ? BOUND : 0},
	};
	const struct kvc_plane planes[2] = {
		{"norm", KVC_PLANE_SLOT, 4},
		{"counters", KVC_PLANE_SEQUENCE, STATE_BYTES},
	};
	struct kvc_layout_options options = {.size = sizeof(options),
					     .fingerprint = {9},
					     .n_layers = N_LAYERS,
					     .layers = layers,
					     .dtype = KVC_F32,
					     .k_format = k,
					     .v_format = v,
					     .block_tokens = block_tokens,
					     .n_planes = shape & WITH_PLANES ? 2 : 0,
					     .planes = planes};
	kvc_layout *layout = kvc_layout_register(session, &options);

	there(layout);
	return layout;
}

static void set_journal(kvc_seq *seq, uint32_t mode)
{
	struct kvc_journal_options options = {.size = sizeof(options), .mode = mode};

	ok(kvc_journal_set(seq, &options));
}

/* n rows; `seed` says which. */
static void make_rows(float *rows, uint64_t n, uint32_t seed)
{
	for (uint64_t i = 0; i < n * ROW; i++) {
		seed = seed * 1664525u + 1013904223u;
		rows[i] = (float)(int32_t)seed / (float)(1 << 27) + (i % 7 == 3 ? 900.0f : 0.0f);
	}
}

static void append_rows(kvc_writer *writer, kvc_seq *seq, uint64_t n, uint32_t seed, int shape)
{
	static float k[SLOTS_MAX * ROW], v[SLOTS_MAX * ROW];
	uint32_t norms[SLOTS_MAX * HEADS];
	const void *planes[1] = {norms};

	ok(kvc_reserve(seq, n));
	ok(kvc_append_begin(seq, n));
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		make_rows(k, n, seed + layer);
		make_rows(v, n, seed + layer + 100);
		for (uint32_t i = 0; i < n * HEADS; i++)
			norms[i] = seed * 1000 + layer * 100 + i;
		ok(kvc_write(seq, layer, k, v));
		if (shape & WITH_PLANES)
			ok(kvc_write_planes(seq, layer, 0, n, planes));
	}
	ok(kvc_commit(writer, &seq, 1));
}

/* Overwrites slots of one layer, other ones for each head. */
static void scatter_rows(kvc_writer *writer, kvc_seq *seq, uint32_t layer, uint32_t seed)
{
	const uint32_t index[HEADS * 2] = {3, 8, 11, 0};
	float k[2 * ROW], v[2 * ROW];

	make_rows(k, 2, seed);
	make_rows(v, 2, seed + 1);
	ok(kvc_reserve_scatter(seq, 1, 2 * HEADS, 4));
	ok(kvc_update_begin(seq, 0, 0));
	ok(kvc_scatter(seq, layer, 2, index, 0, k, v, NULL));
	ok(kvc_commit(writer, &seq, 1));
}

static void set_state(kvc_writer *writer, kvc_seq *seq, uint8_t value)
{
	uint8_t bytes[STATE_BYTES];

	memset(bytes, value, sizeof(bytes));
	ok(kvc_reserve(seq, 1));
	ok(kvc_append_begin(seq, 1));
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		float k[ROW], v[ROW];

		make_rows(k, 1, value);
		make_rows(v, 1, value + 50u);
		ok(kvc_write(seq, layer, k, v));
	}
	ok(kvc_plane_set(seq, "counters", bytes, sizeof(bytes)));
	ok(kvc_commit(writer, &seq, 1));
}

/* The slots of a sequence without ring, as they are read, written into a new one. */
static kvc_seq *write_anew(kvc_writer *writer, kvc_seq *from, const kvc_layout *layout)
{
	static float k[SLOTS_MAX * ROW], v[SLOTS_MAX * ROW];
	uint32_t norms[SLOTS_MAX * HEADS];
	const void *planes[1] = {norms};
	uint64_t n = kvc_length(from);
	kvc_seq *to = kvc_seq_new(writer, layout, NULL);

	there(to);
	ok(kvc_reserve(to, n));
	ok(kvc_append_begin(to, n));
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		ok(kvc_read(from, layer, 0, n, k, v));
		ok(kvc_write(to, layer, k, v));
		if (kvc_read_plane(from, "norm", layer, 0, n, norms) == 0)
			ok(kvc_write_planes(to, layer, 0, n, planes));
	}
	if (kvc_plane_get(from, "counters"))
		ok(kvc_plane_set(to, "counters", kvc_plane_get(from, "counters"), STATE_BYTES));
	ok(kvc_commit(writer, &to, 1));
	return to;
}

static int name_difference(void *arg, const struct kvc_difference *d)
{
	(void)arg;
	fail_msg("layer %u head %u %s slots %llu+%llu", d->layer, d->head, d->part,
		 (unsigned long long)d->first_slot, (unsigned long long)d->n_slots);
	return 1;
}

static void assert_same(kvc_seq *a, kvc_seq *b)
{
	uint8_t digests[2][16];

	assert_int_equal(kvc_diff(a, b, name_difference, NULL), 0);
	ok(kvc_digest(a, digests[0]));
	ok(kvc_digest(b, digests[1]));
	assert_memory_equal(digests[0], digests[1], 16);
}

/* ---- convert ------------------------------------------------------------------------------ */

struct last {
	uint64_t n_done, n_tokens, calls, cancel_at;
};

static int note_progress(void *arg, uint64_t n_done, uint64_t n_tokens)
{
	struct last *last = arg;

	assert_true(n_done > last->n_done);
	*last = (struct last){n_done, n_tokens, last->calls + 1, last->cancel_at};
	return last->calls == last->cancel_at;
}

static void test_each_format(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *raw = make_layout(session, WITH_PLANES, KVC_RAW, KVC_RAW, 8);
	kvc_seq *seq = kvc_seq_new(writer, raw, NULL);

	(void)state;
	there(seq);
	append_rows(writer, seq, 53, 1, WITH_PLANES);
	set_state(writer, seq, 7);
	for (uint32_t format = KVC_RAW; format <= KVC_INT8_MODEL; format++) {
		kvc_layout *layout = make_layout(session, WITH_PLANES, format, KVC_RAW, 16);
		struct last last = {0};
		kvc_seq *made, *expected;

		if (format != KVC_RAW)
			assert_ptr_equal(kvc_layout_variant(session, raw, format, 0),
					 make_layout(session, WITH_PLANES, format, KVC_RAW, 8));
		there(made = kvc_convert(seq, layout, NULL, note_progress, &last));
		assert_int_equal(last.n_done, 54);
		assert_int_equal(last.n_tokens, 54);
		assert_int_equal(last.calls, 4);
		expected = write_anew(writer, seq, layout);
		assert_same(made, expected);
		ok(kvc_seq_drop(made));
		ok(kvc_seq_drop(expected));
	}
	kvc_close(session);
}

/* What is stored in a format stays as it is; what is not goes through the dtype. */
static void test_quantised_source(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *layout = make_layout(session, 0, KVC_U8, KVC_U4, 8);
	kvc_seq *seq = kvc_seq_new(writer, layout, NULL), *made, *back, *expected;

	(void)state;
	there(seq);
	append_rows(writer, seq, 45, 3, 0);
	there(made = kvc_convert(seq, make_layout(session, 0, KVC_U8, KVC_INT8, 4), NULL, NULL,
				 NULL));
	expected = write_anew(writer, seq, make_layout(session, 0, KVC_RAW, KVC_INT8, 4));
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		float a[45 * ROW], b[45 * ROW];

		ok(kvc_read(seq, layer, 0, 45, a, NULL));
		ok(kvc_read(made, layer, 0, 45, b, NULL));
		assert_memory_equal(a, b, sizeof(a));
		ok(kvc_read(expected, layer, 0, 45, NULL, a));
		ok(kvc_read(made, layer, 0, 45, NULL, b));
		assert_memory_equal(a, b, sizeof(a));
	}
	/* the same formats in other blocks, and again in the first ones: bit for bit */
	there(made = kvc_convert(seq, make_layout(session, 0, KVC_U8, KVC_U4, 64), NULL, NULL,
				 NULL));
	there(back = kvc_convert(made, layout, NULL, NULL, NULL));
	assert_same(seq, back);
	kvc_close(session);
}

static void test_replay(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *raw = make_layout(session, WITH_PLANES, KVC_RAW, KVC_RAW, 8);
	kvc_layout *layout = make_layout(session, WITH_PLANES, KVC_INT8, KVC_FP8, 8);
	kvc_seq *seq = kvc_seq_new(writer, raw, NULL), *made, *expected, *snapshot_seq;
	struct kvc_journal_info info;

	(void)state;
	there(seq);
	append_rows(writer, seq, 21, 1, WITH_PLANES);
	set_journal(seq, KVC_JOURNAL_REPLAY);
	append_rows(writer, seq, 9, 2, WITH_PLANES);
	scatter_rows(writer, seq, 1, 5);
	scatter_rows(writer, seq, 1, 6);
	set_state(writer, seq, 3);
	snapshot(seq, "convert/replay");
	there(made = kvc_convert(seq, layout, NULL, NULL, NULL));
	ok(kvc_journal_info(made, &info));
	assert_int_equal(info.mode, KVC_JOURNAL_REPLAY);
	assert_int_equal(info.n_rows, 0);
	assert_int_equal(info.base_tokens, 31);
	refused(kvc_rollback_keep(made, 20), KVC_EJOURNAL);
	expected = write_anew(writer, seq, layout);
	assert_same(made, expected);
	there(snapshot_seq = kvc_open_snapshot(writer, "convert/replay"));
	there(made = kvc_convert(snapshot_seq, layout, NULL, NULL, NULL));
	assert_same(made, expected);
	append_rows(writer, made, 3, 8, WITH_PLANES);
	assert_int_equal(kvc_length(made), 34);
	ok(kvc_remove(session, "convert/replay"));
	kvc_close(session);
}

static void test_ring(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *raw = make_layout(session, WITH_RING, KVC_RAW, KVC_RAW, 8);
	kvc_seq *seq = kvc_seq_new(writer, raw, NULL), *made;
	struct kvc_journal_info info;

	(void)state;
	there(seq);
	set_journal(seq, KVC_JOURNAL_UNDO);
	append_rows(writer, seq, 20, 1, 0);
	append_rows(writer, seq, 15, 2, 0);
	scatter_rows(writer, seq, 2, 4);
	there(made = kvc_convert(seq, make_layout(session, WITH_RING, KVC_RAW, KVC_RAW, 4), NULL,
				 NULL, NULL));
	assert_int_equal(kvc_length(made), 35);
	assert_int_equal(kvc_position(made), 35);
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		float a[2][35 * ROW], b[2][35 * ROW];
		uint64_t n = kvc_slots(seq, layer);

		assert_int_equal(n, layer == 2 ? BOUND : 35);
		assert_int_equal(kvc_slots(made, layer), n);
		ok(kvc_read(seq, layer, 0, n, a[0], a[1]));
		ok(kvc_read(made, layer, 0, n, b[0], b[1]));
		assert_memory_equal(a[0], b[0], n * ROW * sizeof(float));
		assert_memory_equal(a[1], b[1], n * ROW * sizeof(float));
	}
	refused(kvc_rollback_keep(made, 34), KVC_EJOURNAL);
	ok(kvc_journal_info(made, &info));
	assert_int_equal(info.mode, KVC_JOURNAL_UNDO);
	/* both go on in the same way */
	append_rows(writer, seq, 5, 3, 0);
	append_rows(writer, made, 5, 3, 0);
	there(made = kvc_convert(made, raw, NULL, NULL, NULL));
	assert_same(seq, made);
	kvc_close(session);
}

static void test_failures(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *raw = make_layout(session, 0, KVC_RAW, KVC_RAW, 8);
	kvc_layout *int8 = make_layout(session, 0, KVC_INT8, KVC_INT8, 8);
	struct kvc_seq_options options = {.size = sizeof(options), .max_tokens = 10};
	kvc_seq *seq = kvc_seq_new(writer, raw, NULL), *named;
	struct last last = {.cancel_at = 2};
	struct kt_gauges before;
	float k[ROW] = {0}, v[ROW] = {0};

	(void)state;
	there(seq);
	append_rows(writer, seq, 20, 1, 0);
	before = kt_gauges(session);
	refused_null(kvc_convert(seq, make_layout(session, WITH_PLANES, KVC_INT8, 0, 8), NULL, NULL,
				 NULL),
		     KVC_ELAYOUT);
	refused_null(kvc_convert(seq, int8, &options, NULL, NULL), KVC_ERANGE);
	options = (struct kvc_seq_options){.size = sizeof(options), .name = "a b"};
	refused_null(kvc_convert(seq, int8, &options, NULL, NULL), KVC_ENAME);
	refused_null(kvc_convert(seq, int8, NULL, note_progress, &last), KVC_ECANCELLED);
	assert_int_equal(last.n_done, 16);
	refused_null(kvc_layout_variant(session, raw, 99, 0), KVC_ETOOBIG);
	kt_wait_gauges(session, &before);
	options.name = "convert/taken";
	there(named = kvc_convert(seq, int8, &options, NULL, NULL));
	refused_null(kvc_convert(seq, int8, &options, NULL, NULL), KVC_EEXIST);
	ok(kvc_seq_drop(named));
	kt_wait_gauges(session, &before);
	/* one vector that cannot be stored */
	v[WIDTH + 3] = __builtin_nanf("");
	ok(kvc_reserve(seq, 1));
	ok(kvc_append_begin(seq, 1));
	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		ok(kvc_write(seq, layer, k, layer == 1 ? v : k));
	ok(kvc_commit(writer, &seq, 1));
	refused_null(kvc_convert(seq, int8, NULL, NULL, NULL), KVC_EVALUE);
	assert_non_null(strstr(kvc_error_text(), "V of layer 1, slot 20, head 1"));
	kvc_close(session);
}

/* ---- diff --------------------------------------------------------------------------------- */

struct found {
	struct kvc_difference at[64];
	char parts[64][16];
	size_t n, most;
};

static int note_difference(void *arg, const struct kvc_difference *difference)
{
	struct found *found = arg;

	assert_true(found->n < 64);
	strncpy(found->parts[found->n], difference->part, 15);
	found->at[found->n++] = *difference;
	return found->n == found->most;
}

static void assert_found(const struct found *found, size_t i, const char *part, uint32_t layer,
			 uint32_t head, uint64_t first_slot, uint64_t n_slots)
{
	assert_true(i < found->n);
	assert_string_equal(found->parts[i], part);
	assert_int_equal(found->at[i].layer, layer);
	assert_int_equal(found->at[i].head, head);
	assert_int_equal(found->at[i].first_slot, first_slot);
	assert_int_equal(found->at[i].n_slots, n_slots);
}

/* Writes one vector of one head of slots 6 to 9. */
static void change_head(kvc_writer *writer, kvc_seq *seq, uint32_t layer)
{
	const uint32_t index[HEADS * 4] = {6, 7, 8, 9, 6, 7, 8, 9};
	float k[4 * ROW], v[4 * ROW];

	ok(kvc_read(seq, layer, 6, 4, k, v));
	for (uint32_t t = 0; t < 4; t++)
		v[t * ROW + WIDTH] = -v[t * ROW + WIDTH] - 1;
	ok(kvc_reserve_scatter(seq, 1, 4 * HEADS, 4));
	ok(kvc_update_begin(seq, 0, 0));
	ok(kvc_scatter(seq, layer, 4, index, 0, k, v, NULL));
	ok(kvc_commit(writer, &seq, 1));
}

static void diff_in_mode(uint32_t mode)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *layout = make_layout(session, WITH_PLANES, KVC_RAW, KVC_RAW, 8);
	kvc_seq *a = kvc_seq_new(writer, layout, NULL), *b;
	struct found found = {0};
	const uint32_t index[1] = {2};
	uint32_t norms[HEADS] = {0, 1};
	const void *planes[1] = {norms};

	there(a);
	append_rows(writer, a, 20, 1, WITH_PLANES);
	set_journal(a, mode);
	snapshot(a, "diff/base");
	there(b = kvc_fork(writer, "diff/base", NULL));
	assert_int_equal(kvc_diff(a, b, note_difference, &found), 0);
	change_head(writer, b, 1);
	assert_int_equal(kvc_diff(a, b, note_difference, &found), 4);
	assert_int_equal(found.n, 1);
	assert_found(&found, 0, "v", 1, 1, 6, 4);
	set_state(writer, b, 9);
	ok(kvc_reserve_scatter(b, 1, HEADS, 4));
	ok(kvc_update_begin(b, 0, 0));
	ok(kvc_scatter(b, 0, 1, index, 1, NULL, NULL, planes));
	ok(kvc_commit(writer, &b, 1));
	found = (struct found){.most = 99};
	assert_int_equal(kvc_diff(a, b, note_difference, &found), 9);
	assert_int_equal(found.n, 6);
	assert_found(&found, 0, "length", 0, 0, 0, 1);
	assert_found(&found, 1, "position", 0, 0, 0, 1);
	assert_found(&found, 2, "norm", 0, 0, 2, 1);
	assert_found(&found, 3, "norm", 0, 1, 2, 1);
	assert_found(&found, 4, "v", 1, 1, 6, 4);
	assert_found(&found, 5, "counters", 0, 0, 0, 1);
	found = (struct found){.most = 3};
	assert_int_equal(kvc_diff(a, b, note_difference, &found), 3);
	assert_int_equal(found.n, 3);
	refused(kvc_diff(a, kvc_seq_new(writer, make_layout(session, 0, KVC_RAW, KVC_RAW, 8), NULL),
			 NULL, NULL),
		KVC_ELAYOUT);
	ok(kvc_remove(session, "diff/base"));
	kvc_close(session);
}

static void test_diff_stored(void **state)
{
	(void)state;
	diff_in_mode(KVC_JOURNAL_UNDO);
}

static void test_diff_counted(void **state)
{
	(void)state;
	diff_in_mode(KVC_JOURNAL_REPLAY);
}

static void test_diff_quantised(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *layout = make_layout(session, 0, KVC_U8, KVC_U8, 8);
	kvc_seq *a = kvc_seq_new(writer, layout, NULL), *b;
	struct found found = {0};
	bool codes = false, scales = false;

	(void)state;
	there(a);
	append_rows(writer, a, 12, 1, 0);
	set_journal(a, KVC_JOURNAL_UNDO);
	snapshot(a, "diff/base");
	there(b = kvc_fork(writer, "diff/base", NULL));
	change_head(writer, b, 0);
	/* storing what was read again may move a scale a little: of the written slots only */
	assert_true(kvc_diff(a, b, note_difference, &found) > 0);
	for (size_t i = 0; i < found.n; i++) {
		const struct kvc_difference *at = &found.at[i];

		assert_int_equal(at->layer, 0);
		assert_in_range(at->first_slot, 6, 9);
		assert_in_range(at->first_slot + at->n_slots, 7, 10);
		codes |= strcmp(found.parts[i], "v") == 0 && at->head == 1;
		scales |= strcmp(found.parts[i], "v_scale") == 0 && at->head == 1;
	}
	assert_true(codes && scales);
	ok(kvc_remove(session, "diff/base"));
	kvc_close(session);
}

/* ---- size --------------------------------------------------------------------------------- */

static void test_size(void **state)
{
	const struct kvc_layer layers[2] = {{HEADS, WIDTH, WIDTH, 0}, {HEADS, WIDTH, WIDTH, BOUND}};
	const struct kvc_plane planes[2] = {
		{"norm", KVC_PLANE_SLOT, 4},
		{"counters", KVC_PLANE_SEQUENCE, STATE_BYTES},
	};
	struct kvc_layout_options options = {.size = sizeof(options),
					     .fingerprint = {9},
					     .n_layers = 2,
					     .layers = layers,
					     .dtype = KVC_F16,
					     .k_format = KVC_U8,
					     .v_format = KVC_INT8,
					     .block_tokens = 16,
					     .n_planes = 2,
					     .planes = planes};
	struct kvc_size size;

	(void)state;
	ok(kvc_layout_size(&options, 50, &size));
	assert_int_equal(size.k_bytes, (50 + BOUND) * HEADS * WIDTH);
	assert_int_equal(size.v_bytes, (50 + BOUND) * HEADS * WIDTH);
	assert_int_equal(size.scale_bytes, (50 + BOUND) * HEADS * (4 + 4 + 2));
	assert_int_equal(size.plane_bytes, (50 + BOUND) * HEADS * 4);
	assert_int_equal(size.state_bytes, 64);
	assert_int_equal(size.padding_bytes, (64 - 50 + 32 - BOUND) * HEADS * (WIDTH * 2 + 10 + 4));
	assert_int_equal(size.table_bytes, (4 + 2 + 1) * 32);
	assert_int_equal(size.total_bytes, size.k_bytes + size.v_bytes + size.scale_bytes +
						   size.plane_bytes + size.state_bytes +
						   size.padding_bytes + size.table_bytes);
	assert_int_equal(size.rows_per_token, 2 * HEADS + 1);
	assert_int_equal(size.replay_row_bytes, 24 + WIDTH * 2 * 2 + 4 + 12);
	ok(kvc_layout_size(&options, 0, &size));
	assert_int_equal(size.k_bytes + size.padding_bytes, 0);
	refused(kvc_layout_size(&options, (uint64_t)1 << 40, &size), KVC_ERANGE);
	options.k_format = KVC_Q4;
	options.layers = &(struct kvc_layer){1, 33, 33, 0};
	options.n_layers = 1;
	refused(kvc_layout_size(&options, 1, &size), KVC_EINVAL);
	assert_non_null(strstr(kvc_error_text(), "33"));
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a raw sequence converts to each format as if written there", test_each_format),
	KT_TEST("what stays in its format is copied bit for bit", test_quantised_source),
	KT_TEST("rows of a replay journal are folded into the conversion", test_replay),
	KT_TEST("a ring past its bound reads the same in every slot and goes on", test_ring),
	KT_TEST("a conversion that fails or is cancelled leaves nothing", test_failures),
	KT_TEST("diff names part, layer, head and slots", test_diff_stored),
	KT_TEST("diff compares as it counts where a replay journal is in force", test_diff_counted),
	KT_TEST("diff of quantised vectors names codes and scales", test_diff_quantised),
	KT_TEST("the size of a sequence is known by part before there is one", test_size),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), start_daemon,
				       stop_daemon};

	return kt_run(argc, argv, &group, 1);
}
