/*
 * The data plane against a shadow model: random appends, rollbacks, marks, snapshots by a core,
 * operators' rollbacks and local forks over bare memory; after each step every byte of every
 * sequence and snapshot is what the shadow says. One parametrised set over layouts of all shapes.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/support/bare.h"
#include "tests/support/runner.h"

#define MAX_TOKENS 400u
#define MAX_SEQS 12
#define MAX_SNAPSHOTS 12

/* A token is known by a number; its bytes follow from number and region. */
struct shadow {
	uint64_t tokens[MAX_TOKENS];
	uint64_t length;
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= UINT64_C(0x7fb5d329728ea185);
	x ^= x >> 27;
	x *= UINT64_C(0x81dadef4bc2dd44d);
	return x ^ x >> 33;
}

static void fill_row(char *row, uint32_t bytes, uint64_t token, uint32_t region)
{
	uint64_t value = mix(token * 1000 + region);

	for (uint32_t i = 0; i < bytes; i++) {
		row[i] = (char)(value >> (i % 8 * 8));
		if (i % 8 == 7)
			value = mix(value);
	}
}

struct world {
	struct bare *bare;
	struct kvc_writer *writer;
	const struct kv_layout *layout;
	uint64_t random, next_token;
	char *rows; /* for one update */
	struct kvc_seq *seqs[MAX_SEQS];
	bool local[MAX_SEQS];
	struct shadow shadows[MAX_SEQS];
	kvc_mark marks[MAX_SEQS][4];
	int n_marks[MAX_SEQS];
	struct seg_state snapshots[MAX_SNAPSHOTS];
	struct shadow snapshot_shadows[MAX_SNAPSHOTS];
	bool has_snapshot[MAX_SNAPSHOTS];
};

static uint64_t draw(struct world *w, uint64_t n)
{
	w->random = mix(w->random + 0x9e3779b97f4a7c15);
	return w->random % n;
}

/* ---- checks ------------------------------------------------------------------------------- */

static void check_rows(struct world *w, uint32_t region, const char *rows, uint64_t first,
		       uint64_t n, const struct shadow *shadow)
{
	uint32_t bytes = w->layout->regions[region].row_bytes;
	char expected[4096];

	for (uint64_t t = 0; t < n; t++) {
		fill_row(expected, bytes, shadow->tokens[first + t], region);
		if (memcmp(rows + t * bytes, expected, bytes) != 0)
			fail_msg("region %u token %llu is not what was written", region,
				 (unsigned long long)(first + t));
	}
}

static void check_by_runs(struct world *w, int s, uint32_t layer)
{
	uint32_t region = w->layout->layer_maps[layer].first_region;
	struct kvc_run runs[MAX_TOKENS];
	int64_t n = kvc_view_runs(w->seqs[s], layer, runs, MAX_TOKENS);
	uint64_t seen = 0;

	assert_true(n >= 0 && n <= (int64_t)MAX_TOKENS);
	for (int64_t i = 0; i < n; i++) {
		assert_int_equal(runs[i].first_token, seen);
		check_rows(w, region, runs[i].k, seen, runs[i].n_tokens, &w->shadows[s]);
		if (runs[i].v)
			check_rows(w, region + 1, runs[i].v, seen, runs[i].n_tokens,
				   &w->shadows[s]);
		seen += runs[i].n_tokens;
	}
	assert_int_equal(seen, w->shadows[s].length);
}

static void check_by_table(struct world *w, int s, uint32_t layer)
{
	uint32_t region = w->layout->layer_maps[layer].first_region;
	struct kvc_layer_view view;

	assert_int_equal(kvc_view_table(w->seqs[s], layer, &view), 0);
	assert_int_equal(view.length_tokens, w->shadows[s].length);
	for (uint64_t b = 0; b < view.n_blocks; b++) {
		uint64_t first = b * view.block_tokens;
		uint64_t n = view.length_tokens - first;
		struct kvc_paged paged;

		if (n > view.block_tokens)
			n = view.block_tokens;
		assert_int_equal(kvc_view_arena(w->seqs[s], layer, view.blocks[b].arena, &paged),
				 0);
		assert_true(view.blocks[b].block < paged.n_blocks);
		check_rows(w, region,
			   (const char *)paged.k + (uint64_t)view.blocks[b].block *
							   view.block_tokens * view.k_row_bytes,
			   first, n, &w->shadows[s]);
		if (view.v_width)
			check_rows(w, region + 1,
				   (const char *)paged.v + (uint64_t)view.blocks[b].block *
								   view.block_tokens *
								   view.v_row_bytes,
				   first, n, &w->shadows[s]);
	}
}

static void check_snapshot(struct world *w, int i)
{
	const struct seg_state *state = &w->snapshots[i];

	for (uint32_t g = 0; g < w->layout->n_layer_groups; g++) {
		const struct kv_group *group = &w->layout->groups[g];

		for (uint32_t r = group->first_region; r < group->first_region + group->n_regions;
		     r++)
			for (uint64_t t = 0; t < state->head.length_tokens; t++)
				check_rows(w, r, bare_row(w->bare, state, g, r, t), t, 1,
					   &w->snapshot_shadows[i]);
	}
}

static void check_all(struct world *w)
{
	uint32_t n_layers = w->layout->n_layers ? w->layout->n_layers : 1;

	for (int s = 0; s < MAX_SEQS; s++) {
		if (!w->seqs[s])
			continue;
		assert_int_equal(kvc_length(w->seqs[s]), w->shadows[s].length);
		for (uint32_t l = 0; l < n_layers; l++) {
			check_by_runs(w, s, l);
			check_by_table(w, s, l);
		}
	}
	for (int i = 0; i < MAX_SNAPSHOTS; i++)
		if (w->has_snapshot[i])
			check_snapshot(w, i);
}

/* ---- operations --------------------------------------------------------------------------- */

static int pick(struct world *w)
{
	int s = (int)draw(w, MAX_SEQS);

	while (!w->seqs[s])
		s = (s + 1) % MAX_SEQS;
	return s;
}

static int free_seq(struct world *w)
{
	for (int s = 0; s < MAX_SEQS; s++)
		if (!w->seqs[s])
			return s;
	return -1;
}

static uint64_t most_tokens(const struct world *w)
{
	return w->layout->max_slots < MAX_TOKENS ? w->layout->max_slots : MAX_TOKENS;
}

/* Writes the open update, layer by layer, with new token numbers. */
static void write_tokens(struct world *w, int s, uint64_t n)
{
	struct shadow *shadow = &w->shadows[s];
	uint32_t n_layers = w->layout->n_layers ? w->layout->n_layers : 1;

	for (uint64_t t = 0; t < n; t++)
		shadow->tokens[shadow->length + t] = ++w->next_token;
	for (uint32_t l = 0; l < n_layers; l++) {
		uint32_t region = w->layout->layer_maps[l].first_region;
		bool has_v = w->layout->n_layers && w->layout->layers[l].v_width;
		char *rows[2] = {w->rows, w->rows + MAX_TOKENS * 2048};

		for (int side = 0; side < 1 + has_v; side++) {
			uint32_t bytes = w->layout->regions[region + (uint32_t)side].row_bytes;

			for (uint64_t t = 0; t < n; t++)
				fill_row(rows[side] + t * bytes, bytes,
					 shadow->tokens[shadow->length + t],
					 region + (uint32_t)side);
		}
		assert_int_equal(kvc_write(w->seqs[s], l, rows[0], has_v ? rows[1] : NULL), 0);
	}
}

static bool begin(struct world *w, int s, uint64_t n)
{
	if (w->shadows[s].length + n > most_tokens(w)) {
		assert_int_equal(kvc_append_begin(w->seqs[s], n), -1);
		assert_true(kvc_error() == KVC_EBOUND || kvc_error() == KVC_ERANGE);
		return false;
	}
	if (kvc_append_begin(w->seqs[s], n)) {
		assert_int_equal(kvc_error(), KVC_ERESERVE);
		assert_int_equal(bare_reserve(w->bare, w->seqs[s], n), 0);
		assert_int_equal(kvc_append_begin(w->seqs[s], n), 0);
	}
	write_tokens(w, s, n);
	return true;
}

static void op_append(struct world *w)
{
	int a = pick(w), b = pick(w);
	uint64_t n = 1 + draw(w, 40), m = 1 + draw(w, 5);
	bool first = begin(w, a, n);
	bool second = b != a && begin(w, b, m);

	if (draw(w, 5) == 0 && first) {
		assert_int_equal(kvc_abort(w->seqs[a]), 0);
		first = false;
	}
	assert_int_equal(kvc_commit(w->writer, NULL, 0), 0);
	if (first)
		w->shadows[a].length += n;
	if (second)
		w->shadows[b].length += m;
}

static void drop_marks(struct world *w, int s)
{
	while (w->n_marks[s] && w->marks[s][w->n_marks[s] - 1].length_tokens > w->shadows[s].length)
		w->n_marks[s]--;
}

static void op_rollback(struct world *w)
{
	int s = pick(w);
	uint64_t length = w->shadows[s].length;
	uint64_t n = draw(w, 4) ? draw(w, length < 20 ? length + 1 : 20) : draw(w, length + 1);

	if (draw(w, 2))
		assert_int_equal(kvc_rollback_keep(w->seqs[s], length - n), 0);
	else
		assert_int_equal(kvc_rollback_remove(w->seqs[s], n), 0);
	w->shadows[s].length -= n;
	drop_marks(w, s);
	assert_int_equal(kvc_rollback_remove(w->seqs[s], w->shadows[s].length + 1), -1);
	assert_int_equal(kvc_error(), KVC_ERANGE);
}

static void op_rollback_many(struct world *w)
{
	struct kvc_seq *seqs[MAX_SEQS];
	uint64_t remove[MAX_SEQS];
	size_t n = 0;

	for (int s = 0; s < MAX_SEQS; s++) {
		if (!w->seqs[s] || draw(w, 2))
			continue;
		seqs[n] = w->seqs[s];
		remove[n] = draw(w, w->shadows[s].length < 6 ? w->shadows[s].length + 1 : 6);
		w->shadows[s].length -= remove[n++];
		drop_marks(w, s);
	}
	assert_int_equal(kvc_rollback_many(w->writer, seqs, remove, n), 0);
}

static void op_mark(struct world *w)
{
	int s = pick(w);
	int n = w->n_marks[s];

	if (n < 4 && draw(w, 2)) {
		assert_int_equal(kvc_mark_set(w->seqs[s], &w->marks[s][w->n_marks[s]++]), 0);
	} else if (n && draw(w, 2)) {
		int i = (int)draw(w, (uint64_t)n);

		assert_int_equal(kvc_rollback_mark(w->seqs[s], &w->marks[s][i]), 0);
		w->shadows[s].length = w->marks[s][i].length_tokens;
		w->n_marks[s] = i + 1;
	} else if (n) {
		int i = (int)draw(w, (uint64_t)n);

		assert_int_equal(kvc_mark_release(w->seqs[s], &w->marks[s][i]), 0);
		w->n_marks[s] = i;
		assert_int_equal(kvc_mark_release(w->seqs[s], &w->marks[s][i]), -1);
		assert_int_equal(kvc_error(), KVC_ENOTFOUND);
	}
}

static void op_snapshot(struct world *w)
{
	int i = (int)draw(w, MAX_SNAPSHOTS), s = pick(w);

	if (w->has_snapshot[i]) {
		bare_pin(w->bare, &w->snapshots[i], -1);
		seg_state_fini(&w->snapshots[i]);
		w->has_snapshot[i] = false;
		return;
	}
	assert_int_equal(bare_snapshot(w->bare, w->seqs[s]->place, &w->snapshots[i]), 0);
	w->snapshot_shadows[i] = w->shadows[s];
	w->has_snapshot[i] = true;
	assert_int_equal(w->snapshots[i].head.length_tokens, w->shadows[s].length);
}

/* The writer hears of it at its next commit, and only then. */
static void op_operator(struct world *w)
{
	int s = pick(w);
	uint64_t keep = draw(w, w->shadows[s].length + 1);
	bool moves = keep < w->shadows[s].length;

	assert_int_equal(bare_operator_rollback(w->bare, w->seqs[s]->place, keep), 0);
	if (!moves)
		return;
	if (!begin(w, s, 1)) /* at its bound: any other update tells it */
		assert_int_equal(kvc_rollback_keep(w->seqs[s], 0), -1);
	else
		assert_int_equal(kvc_commit(w->writer, &w->seqs[s], 1), -1);
	assert_int_equal(kvc_error(), KVC_EMOVED);
	w->shadows[s].length = keep;
	drop_marks(w, s);
}

static void op_fork(struct world *w)
{
	int s = pick(w), f = free_seq(w);
	struct kvc_seq *fork;
	uint64_t reserve = draw(w, 30);

	if (f < 0)
		return;
	if (w->shadows[s].length + reserve > most_tokens(w))
		reserve = 0;
	fork = kvc_fork_local(w->seqs[s], reserve);
	if (!fork) {
		assert_int_equal(kvc_error(), KVC_ERESERVE);
		assert_int_equal(bare_reserve(w->bare, w->seqs[s], reserve), 0);
		fork = kvc_fork_local(w->seqs[s], reserve);
	}
	if (!fork) {
		bare_spare_places(w->bare, w->writer, MAX_TOKENS, 4);
		fork = kvc_fork_local(w->seqs[s], reserve);
	}
	assert_non_null(fork);
	w->seqs[f] = fork;
	w->local[f] = true;
	w->shadows[f] = w->shadows[s];
	w->n_marks[f] = 0;
}

static void op_drop(struct world *w)
{
	int s = pick(w), n = 0;

	for (int i = 0; i < MAX_SEQS; i++)
		n += w->seqs[i] != NULL;
	if (n < 3)
		return;
	if (!w->local[s])
		segment_place(&w->bare->segment, w->seqs[s]->place)->seq_id = 0;
	seq_end(w->seqs[s], w->local[s] ? SEQ_END_LOCAL : SEQ_END_DROPPED);
	w->seqs[s] = NULL;
}

static void op_new(struct world *w)
{
	int s = free_seq(w);

	if (s < 0 || w->bare->n_places > 200)
		return;
	w->seqs[s] = bare_seq(w->bare, w->writer, MAX_TOKENS, NULL);
	w->local[s] = false;
	w->shadows[s].length = 0;
	w->n_marks[s] = 0;
}

/* ---- tests -------------------------------------------------------------------------------- */

struct shape {
	const char *name;
	uint32_t n_layers, block_tokens;
	struct kv_layer layers[4];
};

static struct world *world_new(const struct shape *shape, uint64_t seed)
{
	struct world *w = calloc(1, sizeof(*w));

	w->bare = bare_new(bare_layout(shape->n_layers, shape->layers, shape->block_tokens));
	w->layout = w->bare->layout.fields;
	w->writer = bare_writer(w->bare, 3);
	w->random = seed;
	w->rows = malloc(2 * MAX_TOKENS * 2048);
	return w;
}

static void world_free(struct world *w)
{
	for (int s = 0; s < MAX_SEQS; s++)
		if (w->seqs[s])
			seq_end(w->seqs[s], w->local[s] ? SEQ_END_LOCAL : SEQ_END_DROPPED);
	for (int i = 0; i < MAX_SNAPSHOTS; i++)
		if (w->has_snapshot[i]) {
			bare_pin(w->bare, &w->snapshots[i], -1);
			seg_state_fini(&w->snapshots[i]);
		}
	bare_take_back(w->bare, w->writer, true);
	assert_int_equal(bare_n_used(w->bare), 0);
	assert_int_equal(atomic_load(&w->writer->shm->n_reserved_bytes), 0);
	writer_free(w->writer);
	bare_free(w->bare);
	free(w->rows);
	free(w);
}

static void run_random(const struct shape *shape, uint64_t seed, int n_steps)
{
	static void (*const ops[])(struct world *) = {
		op_append,   op_append,        op_append, op_append,   op_rollback,
		op_rollback, op_rollback_many, op_mark,   op_snapshot, op_snapshot,
		op_operator, op_fork,          op_fork,   op_drop,     op_new,
	};
	struct world *w = world_new(shape, seed);

	op_new(w);
	for (int i = 0; i < n_steps; i++) {
		ops[draw(w, sizeof(ops) / sizeof(ops[0]))](w);
		if (i % 8 == 0)
			check_all(w);
	}
	check_all(w);
	world_free(w);
}

static const struct shape shapes[] = {
	{"plain", 2, 16, {{2, 8, 8, 0}, {2, 8, 8, 0}}},
	{"K wider than V, other head counts", 3, 8, {{1, 24, 8, 0}, {5, 3, 7, 0}, {2, 16, 1, 0}}},
	{"V absent", 2, 4, {{3, 5, 0, 0}, {2, 4, 4, 0}}},
	{"two layer groups, one bounded", 3, 16, {{2, 4, 4, 0}, {1, 4, 4, 130}, {2, 4, 4, 0}}},
	{"blocks of one token", 1, 1, {{2, 3, 3, 0}}},
	{"opaque", 0, 1, {{0, 0, 0, 0}}},
};

static void test_random(void **state)
{
	const struct shape *shape = *state;

	for (uint64_t seed = 1; seed <= 20; seed++)
		run_random(shape, seed, 300);
}

static void test_hot_path_books(void **state)
{
	const struct shape *shape = &shapes[0];
	struct world *w = world_new(shape, 1);
	uint64_t used;

	(void)state;
	op_new(w);
	assert_int_equal(bare_reserve(w->bare, w->seqs[0], 100), 0);
	used = bare_n_used(w->bare);
	assert_int_equal(used, 8); /* 7 blocks of 16 slots and one to copy into */
	for (int i = 0; i < 1000; i++) {
		assert_true(begin(w, 0, 40));
		assert_int_equal(kvc_commit(w->writer, &w->seqs[0], 1), 0);
		w->shadows[0].length += 40;
		assert_int_equal(kvc_rollback_keep(w->seqs[0], 0), 0);
		w->shadows[0].length = 0;
	}
	assert_int_equal(bare_n_used(w->bare), used);
	world_free(w);
}

static void test_commit_list_checks(void **state)
{
	struct world *w = world_new(&shapes[0], 1);
	struct kvc_seq *twice[2];

	(void)state;
	op_new(w);
	assert_int_equal(kvc_commit(w->writer, &w->seqs[0], 1), -1);
	assert_int_equal(kvc_error(), KVC_EINVAL);
	assert_true(begin(w, 0, 3));
	twice[0] = twice[1] = w->seqs[0];
	assert_int_equal(kvc_commit(w->writer, twice, 2), -1);
	assert_int_equal(kvc_error(), KVC_EINVAL);
	assert_int_equal(kvc_length(w->seqs[0]), 0);
	assert_int_equal(kvc_append_begin(w->seqs[0], 1), -1);
	assert_int_equal(kvc_error(), KVC_EBUSY);
	assert_int_equal(kvc_commit(w->writer, twice, 1), 0);
	assert_int_equal(kvc_length(w->seqs[0]), 3);
	w->shadows[0].length = 3;
	check_all(w);
	world_free(w);
}

static void test_digest(void **state)
{
	struct world *w = world_new(&shapes[1], 1);
	uint8_t a[16], b[16], c[16];

	(void)state;
	op_new(w);
	op_new(w);
	assert_true(begin(w, 0, 37));
	w->next_token = 0;
	assert_true(begin(w, 1, 37));
	assert_int_equal(kvc_commit(w->writer, NULL, 0), 0);
	w->shadows[0].length = w->shadows[1].length = 37;
	assert_int_equal(kvc_digest(w->seqs[0], a), 0);
	assert_int_equal(kvc_digest(w->seqs[1], b), 0);
	assert_memory_equal(a, b, 16);
	assert_true(begin(w, 0, 9));
	assert_int_equal(kvc_commit(w->writer, NULL, 0), 0);
	assert_int_equal(kvc_digest(w->seqs[0], c), 0);
	assert_memory_not_equal(a, c, 16);
	assert_int_equal(kvc_rollback_remove(w->seqs[0], 9), 0);
	assert_int_equal(kvc_digest(w->seqs[0], c), 0);
	assert_memory_equal(a, c, 16);
	world_free(w);
}

static void test_listed_once(void **state)
{
	struct world *w = world_new(&shapes[0], 1);

	(void)state;
	op_new(w);
	assert_true(begin(w, 0, 40));
	assert_int_equal(kvc_commit(w->writer, &w->seqs[0], 1), 0);
	w->shadows[0].length = 40;
	assert_int_equal(bare_snapshot(w->bare, w->seqs[0]->place, &w->snapshots[0]), 0);
	w->snapshot_shadows[0] = w->shadows[0];
	w->has_snapshot[0] = true;
	assert_int_equal(kvc_rollback_keep(w->seqs[0], 0), 0);
	w->shadows[0].length = 0;
	assert_int_equal(writer_release_count(w->writer), 3);
	w->seqs[1] = bare_seq(w->bare, w->writer, MAX_TOKENS, &w->snapshots[0]);
	w->shadows[1] = w->snapshot_shadows[0];
	check_all(w);
	seq_end(w->seqs[1], SEQ_END_DROPPED);
	w->seqs[1] = NULL;
	assert_int_equal(writer_release_count(w->writer), 3);
	world_free(w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST_PARAM("random histories equal the shadow: plain", test_random, (void *)&shapes[0]),
	KT_TEST_PARAM("random histories equal the shadow: unequal widths and heads", test_random,
		      (void *)&shapes[1]),
	KT_TEST_PARAM("random histories equal the shadow: no V in one layer", test_random,
		      (void *)&shapes[2]),
	KT_TEST_PARAM("random histories equal the shadow: two layer groups, one bounded",
		      test_random, (void *)&shapes[3]),
	KT_TEST_PARAM("random histories equal the shadow: blocks of one token", test_random,
		      (void *)&shapes[4]),
	KT_TEST_PARAM("random histories equal the shadow: opaque slots", test_random,
		      (void *)&shapes[5]),
	KT_TEST("rolled back blocks are used again", test_hot_path_books),
	KT_TEST("a commit refuses a list that makes no sense", test_commit_list_checks),
	KT_TEST("a block that waits for its release is listed once, whatever forks come and go",
		test_listed_once),
	KT_TEST("equal history gives an equal digest, also after a rollback", test_digest),
};

KT_MAIN(tests)
