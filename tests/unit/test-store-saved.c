/*
 * Saved snapshots: written, found again after the next start, replaced, removed, kept while they
 * are read, refused when they make no sense.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/unit/store-world.h"

#define MIB (UINT64_C(1) << 20)

static void test_saved_is_found_again(void **state)
{
	const struct content a = world_content(0, 5, 3), b = world_content(3, 5, 0);
	const struct content none = world_content(0, 0, 0);
	struct world w;
	struct store_stats before, after;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	assert_true(world_save(&w, "a", &a));
	assert_true(world_save(&w, "b/with-a.longer_name", &b));
	assert_true(world_save(&w, "empty", &none));
	before = world_stats(&w);
	/* five of a, three of b that a has not, three of the other size */
	assert_int_equal(before.used_bytes, 8 * WORLD_SLOT_BYTES(0) + 3 * WORLD_SLOT_BYTES(1));
	assert_int_equal(before.n_images, 11);
	assert_int_equal(store_saved_find(w.store, WORLD_UID, "a")->n_bytes,
			 5 * WORLD_IMAGE_BYTES(0) + 3 * WORLD_IMAGE_BYTES(1));
	for (int i = 0; i < 3; i++) {
		world_reopen(&w);
		after = world_stats(&w);
		assert_memory_equal(&before, &after, sizeof(before));
		assert_true(world_saved_is(&w, "a", &a));
		assert_true(world_saved_is(&w, "b/with-a.longer_name", &b));
		assert_true(world_saved_is(&w, "empty", &none));
		assert_null(store_saved_find(w.store, WORLD_UID + 1, "a"));
		assert_null(store_saved_find(w.store, WORLD_UID, "A"));
		assert_int_equal(w.n_reports, 0);
	}
	world_end(&w);
}

static void test_replace_and_remove(void **state)
{
	const struct content a = world_content(0, 5, 0), b = world_content(3, 5, 0);
	struct world w;
	struct saved *saved;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	assert_true(world_save(&w, "x", &a));
	assert_true(world_save(&w, "x", &b));
	assert_int_equal(world_stats(&w).n_saved, 1);
	assert_int_equal(world_stats(&w).used_bytes, 5 * WORLD_SLOT_BYTES(0));
	assert_int_equal(world_stats(&w).cached_bytes, 3 * WORLD_SLOT_BYTES(0));
	assert_true(world_saved_is(&w, "x", &b));
	world_reopen(&w);
	assert_true(world_saved_is(&w, "x", &b));
	saved = store_saved_find(w.store, WORLD_UID, "x");
	assert_int_equal(store_saved_remove(w.store, saved, &w.err), 0);
	assert_null(store_saved_find(w.store, WORLD_UID, "x"));
	assert_int_equal(world_stats(&w).used_bytes, 0);
	assert_int_equal(world_stats(&w).cached_bytes, 8 * WORLD_SLOT_BYTES(0));
	world_reopen(&w);
	assert_int_equal(world_stats(&w).n_saved, 0);
	assert_int_equal(world_stats(&w).n_images, 8);
	assert_true(world_save(&w, "x", &a)); /* finds what is cached */
	assert_int_equal(world_stats(&w).n_images, 8);
	world_end(&w);
}

static void test_readers(void **state)
{
	const struct content a = world_content(0, 3, 0), b = world_content(5, 2, 0);
	struct world w;
	struct saved *saved;

	(void)state;
	world_begin(&w, 5 * WORLD_SLOT_BYTES(0));
	world_open(&w);
	assert_true(world_save(&w, "x", &a));
	saved = store_saved_find(w.store, WORLD_UID, "x");
	saved_hold(saved);
	saved_hold(saved);
	assert_true(world_save(&w, "x", &b));
	assert_true(saved->is_replaced);
	assert_int_equal(world_stats(&w).used_bytes, 5 * WORLD_SLOT_BYTES(0));
	assert_int_equal(world_write(&w, 0, 99), 0); /* nothing that is read is given away */
	assert_true(world_saved_verifies(&w, saved));
	assert_int_equal(store_saved_remove(w.store, saved, &w.err), -1);
	assert_int_equal(w.err.status, KV_EINTERNAL);
	saved_release(w.store, saved);
	assert_int_equal(world_stats(&w).used_bytes, 5 * WORLD_SLOT_BYTES(0));
	saved_release(w.store, saved);
	assert_int_equal(world_stats(&w).used_bytes, 2 * WORLD_SLOT_BYTES(0));
	saved = store_saved_find(w.store, WORLD_UID, "x");
	saved_hold(saved);
	assert_int_equal(store_saved_remove(w.store, saved, &w.err), 0);
	assert_int_equal(world_stats(&w).used_bytes, 2 * WORLD_SLOT_BYTES(0));
	saved_release(w.store, saved);
	assert_int_equal(world_stats(&w).used_bytes, 0);
	world_end(&w);
}

static void test_order(void **state)
{
	const struct content none = world_content(0, 0, 0);
	struct world w;
	uint64_t last = 0;
	char name[16];
	unsigned n = 0;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "s%d", i * 7 % 40);
		assert_true(world_save(&w, name, &none));
	}
	world_reopen(&w);
	for (struct saved *s = NULL; (s = store_saved_next(w.store, WORLD_UID, last)); n++) {
		assert_true(s->head->number > last);
		snprintf(name, sizeof(name), "s%u", n * 7 % 40);
		assert_string_equal(s->head->name, name);
		last = s->head->number;
	}
	assert_int_equal(n, 40);
	assert_null(store_saved_next(w.store, WORLD_UID - 1, 0));
	world_end(&w);
}

/* A number is not given out again, not even that of a snapshot that has gone. */
static void test_numbers(void **state)
{
	const struct content none = world_content(0, 0, 0);
	struct world w;
	uint64_t last = 0;

	(void)state;
	world_begin(&w, MIB);
	for (int i = 0; i < 5; i++) {
		uint64_t number;

		world_open(&w);
		for (int k = 0; k < 3000; k++) {
			number = store_saved_number(w.store);
			assert_true(number > last);
			last = number;
		}
		assert_true(world_save(&w, "x", &none));
		last = store_saved_find(w.store, WORLD_UID, "x")->head->number;
		assert_int_equal(store_saved_remove(
					 w.store, store_saved_find(w.store, WORLD_UID, "x"), NULL),
				 0);
		world_close(&w);
	}
	assert_int_equal(last, 5 * 3001);
	world_end(&w);
}

/* ---- the two halves ----------------------------------------------------------------------- */

static void test_pending(void **state)
{
	const struct content a = world_content(0, 2, 0), b = world_content(5, 2, 0);
	struct world w;
	struct saved_file *file;
	struct saved *old;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	assert_true(world_save(&w, "x", &a));
	old = store_saved_find(w.store, WORLD_UID, "x");
	file = world_pack(&w, "x", &b);
	assert_non_null(file);
	/* the images are its own although those who wrote them have let go */
	assert_int_equal(world_stats(&w).used_bytes, 4 * WORLD_SLOT_BYTES(0));
	assert_null(world_pack(&w, "x", &b));
	assert_int_equal(w.err.status, KV_EBUSY);
	assert_int_equal(store_saved_remove(w.store, old, &w.err), -1);
	assert_int_equal(w.err.status, KV_EBUSY);
	assert_int_equal(store_saved_add(file, &w.err), -1); /* was not written */
	assert_int_equal(w.err.status, KV_EINTERNAL);
	saved_file_free(file); /* given up */
	assert_true(world_saved_is(&w, "x", &a));
	assert_int_equal(world_stats(&w).used_bytes, 2 * WORLD_SLOT_BYTES(0));
	file = world_pack(&w, "x", &b);
	assert_int_equal(store_flush(w.store), 0);
	assert_int_equal(store_saved_write(file), 0);
	assert_int_equal(store_saved_add(file, &w.err), 0);
	assert_int_equal(store_saved_add(file, &w.err), -1);
	saved_file_free(file);
	saved_file_free(NULL);
	assert_true(world_saved_is(&w, "x", &b));
	assert_int_equal(w.n_reports, 0);
	world_end(&w);
}

/* Its file has taken the place of the old one: memory follows, whatever became of the job. */
static void test_written_and_not_added(void **state)
{
	const struct content a = world_content(0, 2, 0), b = world_content(5, 2, 0);
	struct world w;
	struct saved_file *file;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	assert_true(world_save(&w, "x", &a));
	file = world_pack(&w, "x", &b);
	assert_int_equal(store_flush(w.store), 0);
	assert_int_equal(store_saved_write(file), 0);
	saved_file_free(file);
	assert_true(world_saved_is(&w, "x", &b));
	assert_int_equal(world_stats(&w).used_bytes, 2 * WORLD_SLOT_BYTES(0));
	world_reopen(&w);
	assert_true(world_saved_is(&w, "x", &b));
	world_end(&w);
}

static void test_set_aside(void **state)
{
	const struct content a = world_content(0, 2, 0);
	struct world w;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	assert_true(world_save(&w, "x", &a));
	store_saved_set_aside(w.store, store_saved_find(w.store, WORLD_UID, "x"), "just so");
	assert_non_null(strstr(w.reports, "just so"));
	assert_null(store_saved_find(w.store, WORLD_UID, "x"));
	assert_int_equal(world_stats(&w).n_set_aside, 1);
	assert_int_equal(world_stats(&w).used_bytes, 0);
	assert_int_equal(world_count(&w, "saved", ".damaged"), 1);
	world_reopen(&w);
	assert_int_equal(world_stats(&w).n_saved, 0);
	assert_int_equal(world_count(&w, "saved", ".damaged"), 1); /* left for people */
	world_end(&w);
}

/* ---- other threads ------------------------------------------------------------------------ */

struct flusher {
	struct store *store;
	_Atomic bool is_over;
	unsigned n_flushes;
};

static void *flush_on(void *arg)
{
	struct flusher *flusher = arg;

	while (!flusher->is_over) {
		if (store_flush(flusher->store) != 0)
			return flusher;
		flusher->n_flushes++;
	}
	return NULL;
}

struct writer {
	struct saved_file *file;
	struct store *store;
	int rc;
};

static void *write_file(void *arg)
{
	struct writer *writer = arg;

	writer->rc = store_flush(writer->store);
	if (!writer->rc)
		writer->rc = store_saved_write(writer->file);
	return NULL;
}

/* As a daemon does: the disk is waited for elsewhere, while the store is used. */
static void test_threads(void **state)
{
	struct world w;
	struct flusher flusher = {0};
	pthread_t flushing;
	void *failed;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	flusher.store = w.store;
	assert_int_equal(pthread_create(&flushing, NULL, flush_on, &flusher), 0);
	for (uint32_t i = 0; i < 100; i++) {
		const struct content content = world_content(3 * i, 3, i > 50 ? 2 : 0);
		struct writer writer = {world_pack(&w, i % 2 ? "x" : "y", &content), w.store, -1};
		pthread_t writing;

		assert_non_null(writer.file);
		assert_int_equal(pthread_create(&writing, NULL, write_file, &writer), 0);
		for (uint32_t key = 0; key < 5; key++)
			store_unuse(w.store, world_put(&w, i > 60, 1000 + 5 * i + key));
		assert_int_equal(pthread_join(writing, NULL), 0);
		assert_int_equal(writer.rc, 0);
		assert_int_equal(store_saved_add(writer.file, &w.err), 0);
		saved_file_free(writer.file);
		assert_true(world_saved_is(&w, i % 2 ? "x" : "y", &content));
		world_stats(&w);
	}
	flusher.is_over = true;
	assert_int_equal(pthread_join(flushing, &failed), 0);
	assert_null(failed);
	assert_true(flusher.n_flushes > 0);
	world_reopen(&w);
	assert_int_equal(world_stats(&w).n_saved, 2);
	assert_int_equal(w.n_reports, 0);
	world_end(&w);
}

/* ---- what makes no sense ------------------------------------------------------------------ */

static int pack_with(struct world *w, void (*spoil)(Kv__Saved__Saved *head))
{
	const struct content a = world_content(0, 2, 1);
	const struct saved *saved;
	Kv__Saved__Saved *head;
	struct saved_file *file;
	uint8_t *bytes;
	size_t n;

	assert_true(world_save(w, "good", &a));
	saved = store_saved_find(w->store, WORLD_UID, "good");
	n = kv__saved__saved__get_packed_size(saved->head);
	bytes = malloc(n);
	kv__saved__saved__pack(saved->head, bytes);
	head = kv__saved__saved__unpack(NULL, n, bytes);
	free(bytes);
	free(head->name);
	head->name = strdup("other");
	spoil(head);
	w->err = (struct errbuf){0};
	file = store_saved_pack(w->store, head, &w->err);
	kv__saved__saved__free_unpacked(head, NULL);
	saved_file_free(file);
	return file ? 0 : w->err.status;
}

static void spoil_nothing(Kv__Saved__Saved *head)
{
	(void)head;
}

static void spoil_name(Kv__Saved__Saved *head)
{
	head->name[0] = '\0';
}

static void spoil_long_name(Kv__Saved__Saved *head)
{
	head->name = realloc(head->name, 300);
	memset(head->name, 'a', 256);
	head->name[256] = '\0';
}

static void spoil_number(Kv__Saved__Saved *head)
{
	head->number = 0;
}

static void spoil_checks(Kv__Saved__Saved *head)
{
	head->groups[0]->checks.len -= 1;
}

static void spoil_n_places(Kv__Saved__Saved *head)
{
	head->groups[0]->n_places = 1;
}

static void spoil_check(Kv__Saved__Saved *head)
{
	head->groups[1]->checks.data[3] ^= 1;
}

static void spoil_place(Kv__Saved__Saved *head)
{
	head->groups[0]->places[1] += 100;
}

static void spoil_uid(Kv__Saved__Saved *head)
{
	head->uid++;
}

static void spoil_layout(Kv__Saved__Saved *head)
{
	head->layout->block_tokens = 0;
}

static void test_senseless(void **state)
{
	static const struct {
		void (*spoil)(Kv__Saved__Saved *head);
		int status;
	} cases[] = {
		{spoil_nothing, 0},
		{spoil_name, KV_ECORRUPT},
		{spoil_long_name, KV_ECORRUPT},
		{spoil_number, KV_ECORRUPT},
		{spoil_checks, KV_ECORRUPT},
		{spoil_n_places, KV_ECORRUPT},
		{spoil_check, KV_EIO},
		{spoil_place, KV_EIO},
		{spoil_uid, KV_EIO},
		{spoil_layout, KV_EINVAL},
	};
	struct world w;

	(void)state;
	world_begin(&w, MIB);
	world_open(&w);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (pack_with(&w, cases[i].spoil) != cases[i].status)
			fail_msg("case %zu: %d %s", i, w.err.status, w.err.text);
		assert_int_equal(world_stats(&w).used_bytes,
				 2 * WORLD_SLOT_BYTES(0) + WORLD_SLOT_BYTES(1));
	}
	assert_int_equal(w.n_reports, 0);
	world_end(&w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("what was saved is there after the next start, byte by byte",
		test_saved_is_found_again),
	KT_TEST("a second one of the same name replaces the first, and one that is removed is gone",
		test_replace_and_remove),
	KT_TEST("what is read stays until its last reader has let go", test_readers),
	KT_TEST("they are listed by rising number, each user's apart", test_order),
	KT_TEST("a number is never given out twice", test_numbers),
	KT_TEST("while one is being saved its name is busy and its images are kept", test_pending),
	KT_TEST("one that was written counts although nobody took it up",
		test_written_and_not_added),
	KT_TEST("one that cannot be loaded is set aside with the reason", test_set_aside),
	KT_TEST("others flush and write while the store is used", test_threads),
	KT_TEST("a saved state that makes no sense is not written", test_senseless),
};

KT_MAIN(tests)
