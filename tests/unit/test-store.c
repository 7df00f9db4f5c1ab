/*
 * The disk store as one process sees it that does everything right: images are found, kept while
 * they are used, and go when room is needed; saved snapshots are there after the next start.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/unit/store-world.h"

#define MIB (UINT64_C(1) << 20)

static store_place find(struct world *w, uint32_t group, uint32_t key)
{
	const struct store_identity identity = world_identity(group);
	const struct store_check check = world_check(group, key);

	return store_find(w->store, &identity, &check);
}

static void test_found_after_commit(void **state)
{
	const struct store_identity identity = world_identity(0);
	const struct store_check check = world_check(0, 7);
	struct world w;
	store_place a, b;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	a = store_alloc(w.store, &identity, &check, &w.err);
	assert_true(a != 0);
	assert_int_equal(find(&w, 0, 7), 0); /* invisible while it is written */
	assert_false(store_use(w.store, a));
	assert_int_equal(store_room_bytes(a), WORLD_SLOT_BYTES(0));
	assert_int_equal(store_commit(w.store, a, &w.err), 0);
	assert_int_equal(find(&w, 0, 7), a);
	assert_int_equal(find(&w, 0, 8), 0);
	assert_int_equal(world_stats(&w).used_bytes, WORLD_SLOT_BYTES(0));
	store_unuse(w.store, a);
	store_unuse(w.store, a);
	assert_int_equal(world_stats(&w).used_bytes, 0);
	assert_int_equal(world_stats(&w).cached_bytes, WORLD_SLOT_BYTES(0));
	b = find(&w, 0, 7); /* cached, and used again */
	assert_int_equal(b, a);
	assert_int_equal(world_stats(&w).cached_bytes, 0);
	store_unuse(w.store, b);
	assert_int_equal(w.n_reports, 0);
	world_end(&w);
}

/* KV-28, KV-01, KV-02: what an image belongs to is part of what is asked for. */
static void test_identity(void **state)
{
	uint8_t other_layout[32];
	struct store_identity own = world_identity(0), other;
	const struct store_check check = world_check(0, 1);
	struct world w;
	store_place place;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	store_unuse(w.store, world_write(&w, 0, 1));
	memcpy(other_layout, own.layout_hash, sizeof(other_layout));
	other_layout[15] ^= 1;
	for (int i = 0; i < 4; i++) {
		other = own;
		if (i == 0)
			other.layout_hash = other_layout;
		else if (i == 1)
			other.uid++;
		else if (i == 2)
			other.group++;
		else
			other.n_bytes++;
		assert_true(store_seed(&own) != store_seed(&other));
		assert_int_equal(store_find(w.store, &other, &check), 0);
	}
	place = store_find(w.store, &own, &check);
	assert_true(place != 0);
	store_unuse(w.store, place);
	world_end(&w);
}

static void test_abort(void **state)
{
	const struct store_identity identity = world_identity(0);
	const struct store_check check = world_check(0, 1);
	struct world w;
	store_place a;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	a = store_alloc(w.store, &identity, &check, &w.err);
	store_abort(w.store, a);
	assert_int_equal(find(&w, 0, 1), 0);
	assert_int_equal(world_stats(&w).used_bytes, 0);
	assert_int_equal(world_stats(&w).n_images, 0);
	assert_int_equal(store_alloc(w.store, &identity, &check, &w.err), a);
	store_abort(w.store, a);
	world_end(&w);
}

/* Two that write the same image at once (KV-09): one is found, both are whole, the other one goes
 * with its last use. */
static void test_two_writers(void **state)
{
	const struct store_identity identity = world_identity(1);
	const struct store_check check = world_check(1, 5);
	struct world w;
	store_place a, b;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	for (int round = 0; round < 1000; round++) {
		a = store_alloc(w.store, &identity, &check, &w.err);
		b = store_alloc(w.store, &identity, &check, &w.err);
		assert_true(a && b && a != b);
		assert_int_equal(store_commit(w.store, b, &w.err), 0);
		assert_int_equal(store_commit(w.store, a, &w.err), 0);
		assert_int_equal(find(&w, 1, 5), b);
		store_unuse(w.store, b);
		store_unuse(w.store, b);
		store_unuse(w.store, a);
		assert_int_equal(world_stats(&w).n_images, 1);
		assert_int_equal(world_stats(&w).cached_bytes, WORLD_SLOT_BYTES(1));
		store_drop(w.store, b);
		assert_int_equal(world_stats(&w).n_images, 0);
	}
	world_end(&w);
}

static void test_misuse(void **state)
{
	const struct store_identity identity = world_identity(0);
	const struct store_check check = world_check(0, 1);
	static const store_place wrong[] = {
		0, 1, UINT64_MAX, UINT64_C(2) << 40, UINT64_C(1) << 40, (UINT64_C(2) << 40) + 9999};
	struct world w;
	store_place a;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_false(store_use(w.store, wrong[i]));
		store_unuse(w.store, wrong[i]);
		store_drop(w.store, wrong[i]);
		store_abort(w.store, wrong[i]);
		assert_int_equal(store_commit(w.store, wrong[i], &w.err), -1);
		assert_int_equal(w.err.status, KV_EINTERNAL);
		assert_int_equal(store_fd(w.store, wrong[i]), -1);
	}
	a = world_write(&w, 0, 1);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_true(wrong[i] == a || !store_use(w.store, wrong[i]));
	store_unuse(w.store, a);
	w.n_reports = 0;
	store_unuse(w.store, a); /* once too often */
	assert_int_equal(w.n_reports, 1);
	assert_int_equal(world_stats(&w).used_bytes, 0);
	assert_int_equal(world_stats(&w).cached_bytes, WORLD_SLOT_BYTES(0));
	assert_int_equal(store_commit(w.store, a, &w.err), -1); /* is no more being written */
	store_abort(w.store, a);
	assert_int_equal(world_stats(&w).cached_bytes, WORLD_SLOT_BYTES(0));
	a = store_alloc(w.store, &identity, &check, &w.err);
	w.n_reports = 0;
	store_unuse(w.store, a); /* is being written */
	assert_int_equal(w.n_reports, 1);
	assert_int_equal(world_stats(&w).used_bytes, WORLD_SLOT_BYTES(0));
	store_abort(w.store, a);
	world_end(&w);
}

static void test_limits(void **state)
{
	struct store_identity identity = world_identity(0);
	const struct store_check check = world_check(0, 1);
	struct world w;
	store_place place;

	(void)state;
	world_begin(&w, 512 * MIB);
	world_open(&w);
	identity.n_bytes = STORE_IMAGE_BYTES_MAX;
	place = store_alloc(w.store, &identity, &check, &w.err);
	assert_true(place != 0);
	assert_int_equal(store_room_bytes(place), STORE_IMAGE_BYTES_MAX);
	store_abort(w.store, place);
	identity.n_bytes++;
	assert_int_equal(store_alloc(w.store, &identity, &check, &w.err), 0);
	assert_int_equal(w.err.status, KV_ETOOBIG);
	identity.n_bytes = 0;
	assert_int_equal(store_alloc(w.store, &identity, &check, &w.err), 0);
	assert_int_equal(w.err.status, KV_EINVAL);
	for (uint32_t n = 1; n < 64; n++) {
		identity.n_bytes = n * STORE_PAGE;
		place = store_alloc(w.store, &identity, &check, &w.err);
		assert_true(place != 0);
		store_abort(w.store, place);
	}
	identity.n_bytes = 64 * STORE_PAGE; /* the 65th size */
	assert_int_equal(store_alloc(w.store, &identity, &check, &w.err), 0);
	assert_int_equal(w.err.status, KV_ELIMIT);
	world_end(&w);
}

/* ---- room --------------------------------------------------------------------------------- */

static void test_oldest_goes_first(void **state)
{
	struct world w;

	(void)state;
	world_begin(&w, 4 * WORLD_SLOT_BYTES(1));
	world_open(&w);
	for (uint32_t key = 0; key < 4; key++)
		store_unuse(w.store, world_write(&w, 1, key));
	store_unuse(w.store, find(&w, 1, 0)); /* used again: the youngest now */
	for (uint32_t key = 4; key < 6; key++)
		store_unuse(w.store, world_write(&w, 1, key));
	assert_int_equal(find(&w, 1, 1), 0);
	assert_int_equal(find(&w, 1, 2), 0);
	for (uint32_t i = 0; i < 4; i++) {
		static const uint32_t there[] = {0, 3, 4, 5};
		store_place place = find(&w, 1, there[i]);

		assert_true(place != 0);
		store_unuse(w.store, place);
	}
	world_end(&w);
}

static void test_full(void **state)
{
	struct world w;
	store_place places[4];

	(void)state;
	world_begin(&w, 4 * WORLD_SLOT_BYTES(1) + 100);
	world_open(&w);
	for (uint32_t key = 0; key < 4; key++)
		assert_true((places[key] = world_write(&w, 1, key)) != 0);
	assert_int_equal(world_write(&w, 1, 9), 0);
	assert_int_equal(w.err.status, KV_EPOOL);
	assert_non_null(strstr(w.err.text, "raise the limit"));
	assert_false(world_stats(&w).is_full); /* the limit is, not the disk */
	for (uint32_t key = 0; key < 4; key++) {
		const struct store_identity identity = world_identity(1);
		const struct store_check check = world_check(1, key);

		assert_true(world_verify(&w, places[key], &identity, &check));
	}
	store_unuse(w.store, places[2]);
	assert_int_equal(world_write(&w, 1, 9), places[2]);
	world_end(&w);
}

/* Room that one size has and nobody uses is given to another. */
static void test_other_size(void **state)
{
	struct world w;
	uint64_t blocks_before;
	struct stat st;

	(void)state;
	world_begin(&w, 8 * WORLD_SLOT_BYTES(0));
	world_open(&w);
	for (uint32_t key = 0; key < 8; key++)
		store_unuse(w.store, world_write(&w, 0, key));
	assert_int_equal(world_stats(&w).file_bytes, 8 * WORLD_SLOT_BYTES(0));
	assert_int_equal(stat(world_path(&w, "blocks-8192.data"), &st), 0);
	blocks_before = (uint64_t)st.st_blocks;
	for (uint32_t key = 0; key < 5; key++)
		store_unuse(w.store, world_write(&w, 1, key));
	assert_int_equal(world_stats(&w).file_bytes, 8 * WORLD_SLOT_BYTES(0));
	assert_int_equal(stat(world_path(&w, "blocks-8192.data"), &st), 0);
	assert_int_equal(blocks_before - (uint64_t)st.st_blocks, 3 * WORLD_SLOT_BYTES(0) / 512);
	for (uint32_t key = 0; key < 8; key++) {
		store_place place = find(&w, 0, key);

		assert_int_equal(place != 0, key >= 3);
		if (place)
			store_unuse(w.store, place);
	}
	world_reopen(&w);
	assert_int_equal(world_stats(&w).file_bytes, 8 * WORLD_SLOT_BYTES(0));
	assert_int_equal(world_stats(&w).n_images, 10);
	for (uint32_t key = 0; key < 8; key++) /* and back */
		store_unuse(w.store, world_put(&w, 0, key));
	assert_int_equal(world_stats(&w).n_images, 8);
	world_end(&w);
}

static void test_lower_limit(void **state)
{
	const struct content content = world_content(0, 3, 0);
	struct world w;

	(void)state;
	world_begin(&w, 16 * WORLD_SLOT_BYTES(0));
	world_open(&w);
	assert_true(world_save(&w, "a", &content));
	for (uint32_t key = 3; key < 16; key++)
		store_unuse(w.store, world_write(&w, 0, key));
	world_close(&w);
	w.options.max_bytes = 4 * WORLD_SLOT_BYTES(0);
	world_open(&w);
	assert_int_equal(world_stats(&w).file_bytes, 4 * WORLD_SLOT_BYTES(0));
	assert_true(world_saved_is(&w, "a", &content));
	assert_int_equal(w.n_reports, 0);
	world_close(&w);
	w.options.max_bytes = WORLD_SLOT_BYTES(0); /* less than what is saved: that stays */
	world_open(&w);
	assert_int_equal(world_stats(&w).file_bytes, 3 * WORLD_SLOT_BYTES(0));
	assert_int_equal(w.n_reports, 1);
	assert_true(world_saved_is(&w, "a", &content));
	world_end(&w);
}

static void test_preallocation(void **state)
{
	struct world w;
	struct stat st;

	(void)state;
	world_begin(&w, 2 * MIB);
	w.options.preallocate = true;
	world_open(&w);
	store_unuse(w.store, world_write(&w, 0, 1));
	assert_int_equal(stat(world_path(&w, "blocks-8192.data"), &st), 0);
	assert_int_equal(st.st_size, 2 * MIB);
	assert_true((uint64_t)st.st_blocks * 512 >= 2 * MIB);
	assert_int_equal(world_stats(&w).file_bytes, 2 * MIB);
	world_end(&w);
}

/* ---- damage found by a reader --------------------------------------------------------------- */

static void test_drop(void **state)
{
	struct world w;
	store_place a;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	a = world_write(&w, 0, 1);
	assert_int_equal(find(&w, 0, 1), a);
	store_drop(w.store, a);
	store_drop(w.store, a); /* two may find out at the same time */
	assert_int_equal(w.n_reports, 0);
	assert_int_equal(find(&w, 0, 1), 0);
	assert_int_equal(world_stats(&w).n_images, 0);
	assert_int_equal(world_stats(&w).used_bytes, WORLD_SLOT_BYTES(0)); /* its users have it */
	assert_true(store_use(w.store, a));
	store_unuse(w.store, a);
	store_unuse(w.store, a);
	store_unuse(w.store, a);
	assert_int_equal(world_stats(&w).used_bytes, 0);
	assert_int_equal(world_stats(&w).cached_bytes, 0);
	assert_false(store_use(w.store, a));
	world_reopen(&w);
	assert_int_equal(find(&w, 0, 1), 0);
	world_end(&w);
}

static void test_walk(void **state)
{
	const struct store_identity identities[2] = {world_identity(0), world_identity(1)};
	struct store_check check;
	struct world w;
	uint32_t n_bytes, n[2] = {0};
	uint64_t seed;
	store_place gone;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	assert_int_equal(store_next(w.store, 0, &seed, &check, &n_bytes), 0);
	for (uint32_t key = 0; key < 5; key++) {
		store_unuse(w.store, world_write(&w, 0, key));
		store_unuse(w.store, world_write(&w, 1, key));
	}
	gone = find(&w, 1, 2);
	store_drop(w.store, gone);
	store_unuse(w.store, gone);
	for (store_place at = 0; (at = store_next(w.store, at, &seed, &check, &n_bytes));) {
		uint32_t group = n_bytes == WORLD_IMAGE_BYTES(1);

		n[group]++;
		assert_int_equal(seed, store_seed(&identities[group]));
		assert_true(world_verify(&w, at, &identities[group], &check));
	}
	assert_int_equal(n[0], 5);
	assert_int_equal(n[1], 4);
	world_end(&w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("an image is found from its commit on, and cached when nobody uses it",
		test_found_after_commit),
	KT_TEST("the same checksum of another layout, user, group or size is another image",
		test_identity),
	KT_TEST("a slot that is given up is free again", test_abort),
	KT_TEST("of two that write the same image one is found and nothing is lost",
		test_two_writers),
	KT_TEST("places from nowhere and steps out of order are refused and change no count",
		test_misuse),
	KT_TEST("size and number of sizes of images are limited", test_limits),
	KT_TEST("the image that nobody has used for longest goes first", test_oldest_goes_first),
	KT_TEST("a full store says so and never gives out a slot in use", test_full),
	KT_TEST("room of another size that nobody uses is given back to the disk", test_other_size),
	KT_TEST("a lower limit takes what nobody uses, and never what is saved", test_lower_limit),
	KT_TEST("room is taken ahead when asked for", test_preallocation),
	KT_TEST("an image that is dropped is not found and goes with its last use", test_drop),
	KT_TEST("all images can be walked, with what is needed to check them", test_walk),
};

KT_MAIN(tests)
