/*
 * Random operations on a store, beside a shadow that only remembers what must be there: which
 * images somebody uses, and what each name stands for. After each operation the figures must be
 * those of the shadow; every now and then, and after each start, each byte is read.
 */
#include <string.h>

#include "tests/support/random.h"
#include "tests/support/runner.h"
#include "tests/unit/store-world.h"

#define N_NAMES 6u
#define N_KEYS 12u /* of each group */
#define N_HELD 5u
#define SLOTS_0 8u /* what the limit is made of */
#define SLOTS_1 9u

struct held {
	store_place place; /* 0: none */
	uint32_t group, key;
	bool is_writing;
};

struct model {
	struct world w;
	uint64_t random;
	struct content saved[N_NAMES];
	bool is_there[N_NAMES];
	struct held held[N_HELD];
	unsigned n_full, n_saves, n_evicted;
};

static uint32_t draw(struct model *m, uint32_t n)
{
	return (uint32_t)kt_draw(&m->random, n);
}

static const char *name_of(uint32_t i)
{
	static const char *const names[N_NAMES] = {"a", "b", "c/d", "e.f", "g-h", "i_j"};

	return names[i];
}

/* ---- what the figures must be ------------------------------------------------------------- */

static uint64_t shadow_used(const struct model *m)
{
	bool used[WORLD_GROUPS][N_KEYS] = {{false}};
	uint64_t sum = 0;

	for (uint32_t i = 0; i < N_NAMES; i++)
		for (uint32_t g = 0; m->is_there[i] && g < WORLD_GROUPS; g++)
			for (uint32_t k = 0; k < m->saved[i].n[g]; k++)
				used[g][m->saved[i].keys[g][k]] = true;
	for (uint32_t i = 0; i < N_HELD; i++) {
		if (m->held[i].place && m->held[i].is_writing)
			sum += WORLD_SLOT_BYTES(m->held[i].group);
		else if (m->held[i].place)
			used[m->held[i].group][m->held[i].key] = true;
	}
	for (uint32_t g = 0; g < WORLD_GROUPS; g++)
		for (uint32_t k = 0; k < N_KEYS; k++)
			sum += used[g][k] * WORLD_SLOT_BYTES(g);
	return sum;
}

static void check_figures(struct model *m)
{
	const struct store_stats stats = world_stats(&m->w);
	uint64_t n_saved = 0;

	for (uint32_t i = 0; i < N_NAMES; i++)
		n_saved += m->is_there[i];
	assert_int_equal(stats.n_saved, n_saved);
	assert_int_equal(stats.used_bytes, shadow_used(m));
	assert_true(stats.file_bytes <= stats.max_bytes);
	assert_int_equal(stats.n_set_aside, 0);
	assert_int_equal(m->w.n_reports, 0);
}

static void check_bytes(struct model *m)
{
	for (uint32_t i = 0; i < N_NAMES; i++) {
		if (m->is_there[i])
			assert_true(world_saved_is(&m->w, name_of(i), &m->saved[i]));
		else
			assert_null(store_saved_find(m->w.store, WORLD_UID, name_of(i)));
	}
	for (uint32_t i = 0; i < N_HELD; i++) {
		const struct held *held = &m->held[i];
		const struct store_identity identity = world_identity(held->group);
		const struct store_check check = world_check(held->group, held->key);

		if (held->place && !held->is_writing)
			assert_true(world_verify(&m->w, held->place, &identity, &check));
	}
}

/* ---- operations --------------------------------------------------------------------------- */

/* Images of a saved state, each at most once a group. */
static struct content draw_content(struct model *m)
{
	struct content content = {.n = {draw(m, 5), draw(m, 5)}};

	for (uint32_t g = 0; g < WORLD_GROUPS; g++) {
		uint32_t first = draw(m, N_KEYS);

		for (uint32_t i = 0; i < content.n[g]; i++)
			content.keys[g][i] = (first + i * 5) % N_KEYS;
	}
	return content;
}

/* Refused only when what is asked for really does not fit beside what is used. */
static void expect_full(struct model *m)
{
	assert_int_equal(m->w.err.status, KV_EPOOL);
	m->n_full++;
}

static void op_save(struct model *m)
{
	uint32_t i = draw(m, N_NAMES);
	struct content content = draw_content(m);

	if (!world_save(&m->w, name_of(i), &content)) {
		expect_full(m);
		return;
	}
	m->saved[i] = content;
	m->is_there[i] = true;
	m->n_saves++;
}

static void op_remove(struct model *m)
{
	uint32_t i = draw(m, N_NAMES);
	struct saved *saved = store_saved_find(m->w.store, WORLD_UID, name_of(i));

	assert_int_equal(saved != NULL, m->is_there[i]);
	if (saved)
		assert_int_equal(store_saved_remove(m->w.store, saved, &m->w.err), 0);
	m->is_there[i] = false;
}

static void release(struct model *m, struct held *held)
{
	if (held->is_writing)
		store_abort(m->w.store, held->place);
	else
		store_unuse(m->w.store, held->place);
	held->place = 0;
}

static void op_hold(struct model *m)
{
	struct held *held = &m->held[draw(m, N_HELD)];
	uint64_t used;

	if (held->place)
		release(m, held);
	*held = (struct held){.group = draw(m, 2), .key = draw(m, N_KEYS)};
	used = shadow_used(m);
	held->place = world_put(&m->w, held->group, held->key);
	if (!held->place) {
		expect_full(m);
		assert_true(used + WORLD_SLOT_BYTES(held->group) > m->w.options.max_bytes);
	}
}

static void op_begin_write(struct model *m)
{
	struct held *held = &m->held[draw(m, N_HELD)];
	const uint32_t group = draw(m, 2), key = N_KEYS + draw(m, 100);
	const struct store_identity identity = world_identity(group);
	const struct store_check check = world_check(group, key);
	uint8_t junk[100] = {1, 2, 3};

	if (held->place)
		release(m, held);
	held->place = store_alloc(m->w.store, &identity, &check, &m->w.err);
	held->group = group;
	held->is_writing = true;
	if (!held->place)
		expect_full(m);
	else
		world_write_bytes(&m->w, held->place, junk, sizeof(junk));
}

static void op_use(struct model *m)
{
	const struct held *held = &m->held[draw(m, N_HELD)];

	if (!held->place)
		return;
	assert_int_equal(store_use(m->w.store, held->place), !held->is_writing);
	if (!held->is_writing)
		store_unuse(m->w.store, held->place);
}

/* What was cached must be findable still, with its bytes, after an orderly stop. */
static void op_reopen(struct model *m)
{
	uint64_t n_images;

	for (uint32_t i = 0; i < N_HELD; i++)
		if (m->held[i].place)
			release(m, &m->held[i]);
	n_images = world_stats(&m->w).n_images;
	world_reopen(&m->w);
	assert_int_equal(world_stats(&m->w).n_images, n_images);
	check_bytes(m);
}

/* All that can be found has its bytes. */
static void op_find_all(struct model *m)
{
	for (uint32_t g = 0; g < WORLD_GROUPS; g++) {
		for (uint32_t k = 0; k < N_KEYS; k++) {
			const struct store_identity identity = world_identity(g);
			const struct store_check check = world_check(g, k);
			store_place place = store_find(m->w.store, &identity, &check);

			m->n_evicted += !place;
			if (!place)
				continue;
			assert_true(world_verify(&m->w, place, &identity, &check));
			store_unuse(m->w.store, place);
		}
	}
}

static void step(struct model *m)
{
	switch (draw(m, 16)) {
	case 0:
	case 1:
	case 2: op_save(m); break;
	case 3:
	case 4: op_remove(m); break;
	case 5:
	case 6:
	case 7:
	case 8: op_hold(m); break;
	case 9:
	case 10: op_begin_write(m); break;
	case 11:
	case 12: op_use(m); break;
	case 13: op_find_all(m); break;
	case 14: check_bytes(m); break;
	default:
		if (draw(m, 4) == 0)
			op_reopen(m);
	}
	check_figures(m);
}

static void run(uint64_t seed, bool preallocate)
{
	struct model m = {.random = seed};

	world_begin(&m.w, SLOTS_0 * WORLD_SLOT_BYTES(0) + SLOTS_1 * WORLD_SLOT_BYTES(1));
	m.w.options.preallocate = preallocate;
	world_open(&m.w);
	for (int i = 0; i < 1500; i++)
		step(&m);
	op_reopen(&m);
	assert_true(m.n_full > 20);
	assert_true(m.n_saves > 100);
	assert_true(m.n_evicted > 20);
	world_end(&m.w);
}

static void test_sparse(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++)
		run(seed, false);
}

static void test_preallocated(void **state)
{
	(void)state;
	for (uint64_t seed = 11; seed <= 13; seed++)
		run(seed, true);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("thousands of random operations leave what a simple shadow says", test_sparse),
	KT_TEST("as many more with room taken ahead", test_preallocated),
};

KT_MAIN(tests)
