/*
 * Snapshots and operators' rollbacks by a core thread while a writer thread appends and rolls back
 * as fast as it can: every snapshot is whole (each token's number is the same in all layers, and
 * in both sequences of one update) and stays what it was. Clean under ThreadSanitizer, which also
 * checks the order of the shared words.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "tests/support/bare.h"
#include "tests/support/runner.h"

#define MAX_TOKENS 256u
#define N_KEPT 16

static const struct kv_layer layers[] = {{1, 4, 4, 0}, {2, 2, 2, 0}};
#define ROW_WORDS 4 /* both layers: 16 bytes a row, filled with the token's number twice */

struct stress {
	struct bare *bare;
	struct kvc_writer *writer;
	struct kvc_seq *seqs[2];
	_Atomic int stop;
	_Atomic uint64_t n_updates, n_moved;
};

static uint64_t step(uint64_t *random)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *random >> 33;
}

/* The same tokens in both sequences, in one update. */
static void append_both(struct stress *s, uint64_t n, uint64_t *token)
{
	uint64_t rows[16 * 2];

	for (uint64_t i = 0; i < n; i++)
		rows[2 * i] = rows[2 * i + 1] = ++*token;
	for (int q = 0; q < 2; q++) {
		while (kvc_append_begin(s->seqs[q], n)) {
			assert_int_equal(kvc_error(), KVC_ERESERVE);
			assert_int_equal(bare_reserve(s->bare, s->seqs[q], n), 0);
		}
		for (uint32_t l = 0; l < 2; l++)
			assert_int_equal(kvc_write(s->seqs[q], l, rows, rows), 0);
	}
	if (kvc_commit(s->writer, s->seqs, 2)) {
		assert_int_equal(kvc_error(), KVC_EMOVED);
		atomic_fetch_add(&s->n_moved, 1);
	}
}

static void back_both(struct stress *s, uint64_t n)
{
	uint64_t remove[2] = {n, n};

	if (n > kvc_length(s->seqs[0]))
		remove[0] = remove[1] = kvc_length(s->seqs[0]);
	if (kvc_rollback_many(s->writer, s->seqs, remove, 2)) {
		assert_int_equal(kvc_error(), KVC_EMOVED);
		atomic_fetch_add(&s->n_moved, 1);
	}
}

static void *write_on(void *arg)
{
	struct stress *s = arg;
	uint64_t random = 5, token = 0;

	while (!atomic_load(&s->stop)) {
		uint64_t draw = step(&random);

		/* An operator rolls one of them back alone: both go to the shorter length. */
		if (kvc_length(s->seqs[0]) != kvc_length(s->seqs[1])) {
			uint64_t a = kvc_length(s->seqs[0]), b = kvc_length(s->seqs[1]);
			struct kvc_seq *longer = s->seqs[b > a];

			if (kvc_rollback_keep(longer, a < b ? a : b))
				assert_int_equal(kvc_error(), KVC_EMOVED);
		} else if (draw % 4 == 0 || kvc_length(s->seqs[0]) + 16 > MAX_TOKENS) {
			back_both(s, 1 + draw / 4 % 40);
		} else {
			append_both(s, 1 + draw / 4 % 16, &token);
		}
		atomic_fetch_add(&s->n_updates, 1);
	}
	return NULL;
}

static XXH64_hash_t digest(struct stress *s, const struct seg_state *state)
{
	XXH64_hash_t hash = 0;

	for (uint64_t t = 0; t < state->head.length_tokens; t++) {
		uint64_t first;

		memcpy(&first, bare_row(s->bare, state, 0, 0, t), sizeof(first));
		for (uint32_t r = 0; r < 4; r++) {
			uint64_t row[2];

			memcpy(row, bare_row(s->bare, state, 0, r, t), sizeof(row));
			if (row[0] != first || row[1] != first)
				fail_msg("token %llu is torn over its layers",
					 (unsigned long long)t);
			hash = XXH64(row, sizeof(row), hash);
		}
	}
	return hash;
}

struct kept {
	struct seg_state state;
	XXH64_hash_t digest;
	bool used;
};

static void drop(struct stress *s, struct kept *k)
{
	if (!k->used)
		return;
	assert_true(digest(s, &k->state) == k->digest);
	bare_pin(s->bare, &k->state, -1);
	seg_state_fini(&k->state);
	k->used = false;
}

static void run_core(struct stress *s, int n_acts)
{
	struct kept kept[N_KEPT] = {0};
	uint64_t random = 11;

	/* On a busy machine the writer may get its turn late. */
	for (int i = 0;
	     i < n_acts || atomic_load(&s->n_updates) < 1000 || !atomic_load(&s->n_moved); i++) {
		struct kept *k = &kept[i % N_KEPT];
		uint32_t place = s->seqs[step(&random) % 2]->place;

		drop(s, k);
		if (step(&random) % 16 == 0)
			bare_operator_rollback(s->bare, place, step(&random) % MAX_TOKENS);
		if (bare_snapshot(s->bare, place, &k->state))
			continue;
		k->used = true;
		k->digest = digest(s, &k->state);
	}
	for (int i = 0; i < N_KEPT; i++)
		drop(s, &kept[i]);
}

static void test_snapshots_stay(void **state)
{
	struct stress s = {0};
	pthread_t thread;

	(void)state;
	s.bare = bare_new(bare_layout(2, layers, 8));
	s.writer = bare_writer(s.bare, 0);
	for (int q = 0; q < 2; q++)
		s.seqs[q] = bare_seq(s.bare, s.writer, MAX_TOKENS, NULL);
	assert_int_equal(pthread_create(&thread, NULL, write_on, &s), 0);
	run_core(&s, 20000);
	atomic_store(&s.stop, 1);
	pthread_join(thread, NULL);
	for (int q = 0; q < 2; q++)
		seq_end(s.seqs[q], SEQ_END_DROPPED);
	bare_take_back(s.bare, s.writer, true);
	assert_int_equal(bare_n_used(s.bare), 0);
	writer_free(s.writer);
	bare_free(s.bare);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("snapshots taken at full speed are whole and stay what they were",
		test_snapshots_stay),
};

KT_MAIN(tests)
