/*
 * Saved snapshots in the core: what is saved in one life of the machine has the same digest, head
 * and bytes when it is loaded in another; what is damaged, full, late or cancelled leaves nothing
 * behind, and the gauges add up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/arena_store.h"
#include "daemon/disk.h"
#include "daemon/image.h"
#include "daemon/names.h"
#include "daemon/objects.h"
#include "tests/support/runner.h"
#include "tests/unit/saved-world.h"

/* ---- there and back ----------------------------------------------------------------------- */

static void assert_same_head(const struct kv_head *a, const struct kv_head *b)
{
	assert_int_equal(a->length_tokens, b->length_tokens);
	assert_int_equal(a->position, b->position);
	assert_int_equal(a->journal_first, b->journal_first);
	assert_int_equal(a->journal_end, b->journal_end);
	assert_int_equal(a->planes, b->planes);
	assert_int_equal(a->base_tokens, b->base_tokens);
	assert_int_equal(a->n_marks, b->n_marks);
	assert_int_equal(a->state, b->state);
}

static void test_there_and_back(void **state)
{
	static const char *const names[] = {"none", "undo", "replay"};
	struct kv_head heads[3];
	uint8_t digests[3][KV_DIGEST_BYTES];
	struct world_result result;
	struct world w;

	(void)state;
	world_begin(&w, &world_fields);
	for (int mode = 0; mode < 3; mode++) {
		struct kv_head head = world_head(&w, (enum kv_journal_mode)mode, 0);
		char live_name[32];

		snprintf(live_name, sizeof(live_name), "%s-live", names[mode]);
		world_make(&w, live_name, &head);
		craft_snapshot(&w.a, live_name, names[mode]);
		result = world_verify(&w, names[mode]);
		world_assert_ok(&result);
		memcpy(digests[mode], result.digest, sizeof(result.digest));
		heads[mode] = world_find(&w, names[mode])->state->head;
		result = world_save(&w, names[mode], "", false);
		world_assert_ok(&result);
		assert_memory_equal(result.digest, digests[mode], KV_DIGEST_BYTES);
		assert_true(result.n_blocks >= 5);
	}
	world_reboot(&w, &world_fields);
	for (int mode = 0; mode < 3; mode++) {
		assert_null(world_find(&w, names[mode]));
		result = world_load(&w, names[mode], "", 0);
		world_assert_ok(&result);
		assert_memory_equal(result.digest, digests[mode], KV_DIGEST_BYTES);
		assert_same_head(&world_find(&w, names[mode])->state->head, &heads[mode]);
		assert_memory_equal(world_find(&w, names[mode])->digest, digests[mode],
				    KV_DIGEST_BYTES);
		result = world_verify(&w, names[mode]);
		world_assert_ok(&result);
		assert_memory_equal(result.digest, digests[mode], KV_DIGEST_BYTES);
	}
	/* and over a restart of the core, whose catalogue has them */
	assert_int_equal(fake_core_restart(w.f), 0);
	fake_client_again(w.a.c);
	for (int mode = 0; mode < 3; mode++) {
		result = world_verify(&w, names[mode]);
		world_assert_ok(&result);
		assert_memory_equal(result.digest, digests[mode], KV_DIGEST_BYTES);
	}
	world_end(&w);
}

/* A sequence that waits for takeover comes back as one, with journal and marks. */
static void test_parked(void **state)
{
	struct kv_head head, after;
	struct world_result result;
	struct world w;
	struct craft b;

	(void)state;
	world_begin(&w, &world_fields);
	head = world_head(&w, KV_JOURNAL_UNDO, 2);
	world_make(&w, "seq", &head);
	fake_client_kill(w.a.c);
	craft_end(&w.a);
	craft_begin(&b, w.f, WORLD_UID, &world_fields);
	w.a = b;
	w.layout = b.layout;
	head = world_find(&w, "seq")->state->head;
	assert_int_equal(head.n_marks, 2);
	result = world_save(&w, "seq", "kept/seq", false);
	world_assert_ok(&result);
	world_reboot(&w, &world_fields);
	result = world_load(&w, "kept/seq", "again", 0);
	world_assert_ok(&result);
	assert_int_equal(world_find(&w, "again")->kind, OBJECT_SEQUENCE);
	after = world_find(&w, "again")->state->head;
	assert_same_head(&after, &head);
	craft_takeover(&w.a, 0, "again", 64);
	world_end(&w);
}

/* ---- what the store does with it ------------------------------------------------------------ */

static void test_same_bytes_once(void **state)
{
	struct kv_head head;
	struct store_stats before, after;
	struct world_result result;
	struct world w;

	(void)state;
	world_begin(&w, &world_fields);
	head = world_head(&w, KV_JOURNAL_NONE, 0);
	world_make(&w, "live", &head);
	craft_snapshot(&w.a, "live", "one");
	craft_snapshot(&w.a, "live", "two");
	result = world_save(&w, "one", "", false);
	world_assert_ok(&result);
	assert_int_equal(result.n_known, 0);
	before = world_stats(&w);
	result = world_save(&w, "two", "", false);
	world_assert_ok(&result);
	assert_int_equal(result.n_known, result.n_blocks);
	after = world_stats(&w);
	assert_int_equal(before.used_bytes, after.used_bytes);
	assert_int_equal(after.n_saved, 2);
	result = world_save(&w, "two", "", false);
	assert_int_equal(result.status, KV_EEXIST);
	result = world_save(&w, "two", "", true);
	world_assert_ok(&result);
	assert_int_equal(world_stats(&w).n_saved, 2);
	world_end(&w);
}

static void test_first_tokens(void **state)
{
	static struct kv_layer plain[1] = {{2, 8, 8, 0}};
	struct kv_layout layout = world_fields;
	struct world_result result, whole;
	struct world w;

	(void)state;
	layout.n_layers = 1;
	layout.layers = plain;
	layout.n_planes = 1;
	world_begin(&w, &layout);
	world_snap(&w, KV_JOURNAL_NONE);
	whole = world_save(&w, "snap", "", false);
	world_assert_ok(&whole);
	result = world_load(&w, "snap", "cut", 7);
	world_assert_ok(&result);
	assert_int_equal(world_find(&w, "cut")->state->head.length_tokens, 7);
	assert_int_equal(world_find(&w, "cut")->state->n_blocks[0], 2);
	assert_true(memcmp(result.digest, whole.digest, sizeof(whole.digest)) != 0);
	result = world_load(&w, "snap", "all", WORLD_LENGTH);
	world_assert_ok(&result);
	assert_memory_equal(result.digest, whole.digest, sizeof(whole.digest));
	result = world_load(&w, "snap", "more", WORLD_LENGTH + 1);
	assert_int_equal(result.status, KV_ERANGE);
	world_end(&w);
}

/* ---- faults ------------------------------------------------------------------------------- */

static void test_damaged(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t used;

	(void)state;
	world_begin(&w, &world_fields);
	srand(1);
	world_snap(&w, KV_JOURNAL_NONE);
	result = world_save(&w, "snap", "", false);
	world_assert_ok(&result);
	world_damage(&w);
	world_reboot(&w, &world_fields);
	used = world_used_bytes(&w);
	result = world_load(&w, "snap", "", 0);
	assert_int_equal(result.status, KV_ECORRUPT);
	assert_non_null(strstr(result.detail, "block 0 of group 0"));
	assert_null(world_find(&w, "snap"));
	assert_int_equal(world_used_bytes(&w), used);
	assert_int_equal(world_stats(&w).n_set_aside, 1);
	result = world_check(&w, false);
	assert_int_equal(result.status, KV_EPERM);
	/* the same bytes, saved again, do not rest on the damaged block */
	srand(1);
	world_snap(&w, KV_JOURNAL_NONE);
	result = world_save(&w, "snap", "", false);
	world_assert_ok(&result);
	assert_int_equal(result.n_known, result.n_blocks - 1);
	result = world_load(&w, "snap", "again", 0);
	world_assert_ok(&result);
	world_end(&w);
}

/* What is read wrong once, and right the second time, is loaded, and nothing is set aside. */
static void test_read_twice(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t id;

	(void)state;
	setenv("KV_IO_FAULTS", "read:8:late=400", 1); /* the second read of block 0 */
	world_begin(&w, &world_fields);
	unsetenv("KV_IO_FAULTS");
	world_snap(&w, KV_JOURNAL_NONE);
	result = world_save(&w, "snap", "", false);
	world_assert_ok(&result);
	assert_int_equal(result.n_blocks, 7);
	world_damage(&w);
	id = world_start_load(&w, "snap", "again");
	for (int i = 0; i < 20; i++)
		loop_once(w.f->env.loop, 5);
	world_damage(&w); /* the bit is right again */
	while (world_runs(&w, id))
		loop_once(w.f->env.loop, 10);
	assert_non_null(world_find(&w, "again"));
	assert_int_equal(world_stats(&w).n_set_aside, 0);
	world_end(&w);
}

static void test_no_room(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t used;

	(void)state;
	world_begin(&w, &world_fields);
	world_snap(&w, KV_JOURNAL_REPLAY);
	result = world_save(&w, "snap", "", false);
	world_assert_ok(&result);
	w.f->core->pool.user_bytes_max = world_used_bytes(&w) + 1;
	used = world_used_bytes(&w);
	result = world_load(&w, "snap", "again", 0);
	assert_int_equal(result.status, KV_EQUOTA);
	assert_int_equal(world_used_bytes(&w), used);
	w.f->core->pool.user_bytes_max = 0;
	result = world_load(&w, "snap", "again", 0);
	world_assert_ok(&result);
	result = world_load(&w, "snap", "again", 0);
	assert_int_equal(result.status, KV_EEXIST);
	result = world_load(&w, "nothing", "", 0);
	assert_int_equal(result.status, KV_ENOTFOUND);
	world_end(&w);
}

/* The session goes while images are written: nothing is saved, nothing is lost count of. */
static void test_session_goes(void **state)
{
	struct world w;
	struct craft b;

	(void)state;
	world_begin(&w, &world_fields);
	world_snap(&w, KV_JOURNAL_REPLAY);
	world_start_save(&w, "snap", "", false);
	loop_once(w.f->env.loop, 0);
	fake_client_kill(w.a.c);
	for (int i = 0; i < 100; i++)
		loop_once(w.f->env.loop, 1);
	craft_begin(&b, w.f, WORLD_UID, &world_fields);
	craft_end(&w.a);
	w.a = b;
	w.layout = b.layout;
	assert_int_equal(w.f->core->jobs.n, 0);
	if (world_stats(&w).n_saved == 0)
		assert_int_equal(world_stats(&w).used_bytes, 0);
	world_end(&w);
}

/* ---- an orderly end ----------------------------------------------------------------------- */

static void set_true(void *arg)
{
	*(bool *)arg = true;
}

static void test_leave(void **state)
{
	struct kv_head head;
	struct world_result result;
	uint8_t digest[KV_DIGEST_BYTES];
	struct world w;
	bool done = false;

	(void)state;
	world_begin(&w, &world_fields);
	head = world_head(&w, KV_JOURNAL_REPLAY, 0);
	world_make(&w, "live", &head);
	craft_snapshot(&w.a, "live", "old");
	result = world_save(&w, "old", "snap",
			    false); /* other contents, in a moment, under that name */
	world_assert_ok(&result);
	memcpy(digest, result.digest, sizeof(digest));
	craft_snapshot(&w.a, "live", "one");
	craft_snapshot(&w.a, "live", "two");
	head = world_head(&w, KV_JOURNAL_NONE, 0);
	world_make(&w, "other", &head);
	craft_snapshot(&w.a, "other", "snap");
	core_leave(w.f->core, set_true, &done);
	while (!done)
		loop_once(w.f->env.loop, 10);
	assert_null(w.f->core->leave);
	assert_int_equal(world_stats(&w).n_saved, 4); /* snap, and: old, one, two */
	world_reboot(&w, &world_fields);
	result = world_load(&w, "two", "", 0);
	world_assert_ok(&result);
	result = world_load(&w, "snap", "", 0);
	world_assert_ok(&result);
	assert_memory_equal(result.digest, digest, sizeof(digest));
	result = world_load(&w, "live", "", 0);
	assert_int_equal(result.status, KV_ENOTFOUND);
	world_end(&w);
}

/* ---- a disk that does not do as it should ---------------------------------------------------- */

/* What fails once leaves nothing, and the next try succeeds. */
static void fails_once(const char *rules, const char *text)
{
	struct world_result result;
	struct world w;
	uint64_t used;

	world_begin_faulty(&w, rules);
	used = world_used_bytes(&w);
	result = world_save(&w, "snap", "", false);
	assert_int_equal(result.status, KV_EIO);
	assert_non_null(strstr(result.detail, text));
	world_wait_transfers(&w);
	assert_int_equal(world_stats(&w).used_bytes, 0);
	assert_int_equal(world_stats(&w).n_saved, 0);
	assert_int_equal(world_used_bytes(&w), used);
	result = world_save(&w, "snap", "", false);
	world_assert_ok(&result);
	result = world_load(&w, "snap", "again", 0);
	world_assert_ok(&result);
	world_end(&w);
}

static void test_write_fails(void **state)
{
	(void)state;
	fails_once("write:3:eio", "Input/output error");
	fails_once("write:1:enospc", "is full; make room");
}

static void test_read_fails(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t used;

	(void)state;
	world_begin_faulty(&w, "read:3:eio");
	result = world_save(&w, "snap", "", false);
	world_assert_ok(&result);
	used = world_used_bytes(&w);
	result = world_load(&w, "snap", "again", 0);
	assert_int_equal(result.status, KV_EIO);
	assert_null(world_find(&w, "again"));
	world_wait_transfers(&w);
	assert_int_equal(world_used_bytes(&w), used);
	result = world_load(&w, "snap", "again", 0);
	world_assert_ok(&result);
	world_end(&w);
}

static void test_short_transfers(void **state)
{
	struct world_result saved, result;
	struct world w;

	(void)state;
	world_begin_faulty(&w, "any:1+1:short=2");
	saved = world_save(&w, "snap", "", false);
	world_assert_ok(&saved);
	result = world_load(&w, "snap", "again", 0);
	world_assert_ok(&result);
	assert_memory_equal(result.digest, saved.digest, sizeof(saved.digest));
	world_end(&w);
}

/* A read that never comes back: the load fails at its deadline, its memory is nobody else's. */
static void test_lost_read(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t used, id;
	Kv__Wire__Reply *reply;

	(void)state;
	world_begin_faulty(&w, "read:2:lost");
	result = world_save(&w, "snap", "", false);
	world_assert_ok(&result);
	used = world_used_bytes(&w);
	id = world_start_load(&w, "snap", "again");
	for (int i = 0; i < 20; i++)
		loop_once(w.f->env.loop, 1);
	assert_true(world_runs(&w, id));
	w.f->offset_ns += DISK_DEADLINE_NS;
	world_wait(&w, id);
	reply = world_job(&w, id);
	assert_int_equal(reply->job->status, KV_EIO);
	assert_non_null(strstr(reply->job->detail, "has not answered for 30 s"));
	kv__wire__reply__free_unpacked(reply, NULL);
	assert_true(world_quarantined(&w) > 0);
	assert_true(world_used_bytes(&w) > used);
	result = world_load(&w, "snap", "again", 0);
	world_assert_ok(&result);
	world_end(&w);
}

/* A save is cancelled while a write does not come back: the slot is nobody else's. */
static void test_lost_write(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t id;

	(void)state;
	world_begin_faulty(&w, "write:2:lost");
	id = world_start_save(&w, "snap", "", false);
	for (int i = 0; i < 20; i++)
		loop_once(w.f->env.loop, 1);
	assert_int_equal(world_cancel(&w, id), 4);
	assert_int_equal(world_finish(&w, id).status, KV_ECANCELLED);
	result = world_save(&w, "snap", "", false);
	world_assert_ok(&result);
	result = world_load(&w, "snap", "again", 0);
	world_assert_ok(&result);
	world_end(&w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a snapshot is loaded in another life as it was saved", test_there_and_back),
	KT_TEST("a sequence that waits is loaded with its journal and marks", test_parked),
	KT_TEST("the same bytes are on the disk once", test_same_bytes_once),
	KT_TEST("the first tokens of what was saved can be loaded alone", test_first_tokens),
	KT_TEST("a damaged block is named and nothing is loaded", test_damaged),
	KT_TEST("a block that is wrong once is read again before it counts as damaged",
		test_read_twice),
	KT_TEST("a load that finds no room changes nothing", test_no_room),
	KT_TEST("a write that fails saves nothing, and the next one does", test_write_fails),
	KT_TEST("a read that fails loads nothing, and the next one does", test_read_fails),
	KT_TEST("short transfers are carried on with", test_short_transfers),
	KT_TEST("a read that is lost ends at its deadline and keeps its memory", test_lost_read),
	KT_TEST("a cancelled save leaves a lost write its slot", test_lost_write),
	KT_TEST("an orderly end saves what has a name and no writer, and replaces nothing",
		test_leave),
	KT_TEST("a session that goes takes its save with it", test_session_goes),
};

KT_MAIN(tests)
