/*
 * Saved snapshots in the core against what nobody should ask for or store: files whose checksums
 * are right and whose contents lie, and the end of anything at any moment. Whatever happens, the
 * core lives, the gauges add up, and the next try succeeds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/disk.h"
#include "daemon/image.h"
#include "daemon/leave.h"
#include "daemon/objects.h"
#include "tests/support/runner.h"
#include "tests/unit/saved-world.h"

/* ---- helpers ------------------------------------------------------------------------------ */

static void snapshot(struct world *w, enum kv_journal_mode mode)
{
	struct kv_head head = world_head(w, mode, 0);

	world_make(w, "live", &head);
	craft_snapshot(&w->a, "live", "snap");
}

static void begin_saved(struct world *w, enum kv_journal_mode mode)
{
	struct world_result result;

	world_begin(w, &world_fields);
	snapshot(w, mode);
	result = world_save(w, "snap", "", false);
	world_assert_ok(&result);
}

static void rounds(struct world *w, int n)
{
	for (int i = 0; i < n; i++)
		loop_once(w->f->env.loop, 1);
}

/* ---- files that lie ------------------------------------------------------------------------ */

static void lie_kind(Kv__Saved__Saved *head, void *arg)
{
	(void)arg;
	head->kind = 3;
}

static void lie_mode(Kv__Saved__Saved *head, void *arg)
{
	(void)arg;
	head->head_state = kv_head_word(KV_HEAD_LIVE, 3);
}

static void lie_length(Kv__Saved__Saved *head, void *arg)
{
	(void)arg;
	head->length_tokens = UINT64_MAX;
}

static void lie_base(Kv__Saved__Saved *head, void *arg)
{
	(void)arg;
	head->base_tokens = head->length_tokens + 1;
}

static void lie_blocks(Kv__Saved__Saved *head, void *arg)
{
	(void)arg;
	head->length_tokens = head->base_tokens = KV_TOKENS_MAX;
}

static void lie_first_block(Kv__Saved__Saved *head, void *arg)
{
	(void)arg;
	head->groups[0]->first_block = 1;
}

static void lie_slots(Kv__Saved__Saved *head, void *arg)
{
	(void)arg;
	head->groups[0]->n_slots++;
}

static void lie_journal(Kv__Saved__Saved *head, void *arg)
{
	(void)arg;
	head->journal_end = UINT64_MAX;
}

static void lie_planes(Kv__Saved__Saved *head, void *arg)
{
	(void)arg;
	head->planes = kv_planes(7, UINT32_MAX);
}

static void lie_digest(Kv__Saved__Saved *head, void *arg)
{
	(void)arg;
	head->digest.data[3] ^= 1;
}

static void lie_check(Kv__Saved__Saved *head, void *arg)
{
	(void)arg;
	head->groups[0]->image_bytes--; /* of the same size of slots */
}

static void lie_digest_bytes(Kv__Saved__Saved *head, void *arg)
{
	const size_t *n = arg;

	free(head->digest.data);
	head->digest = (ProtobufCBinaryData){*n, calloc(*n + 1, 1)};
}

static void lie_parent(Kv__Saved__Saved *head, void *arg)
{
	const size_t *n = arg;
	char *name = malloc(*n + 1);

	assert_non_null(name);
	memset(name, 'x', *n);
	name[*n] = '\0';
	if (head->parent_name != protobuf_c_empty_string)
		free(head->parent_name);
	head->parent_name = name;
}

static void lie_marks(Kv__Saved__Saved *head, void *arg)
{
	Kv__Saved__Mark *mark = malloc(sizeof(*mark));

	(void)arg;
	assert_int_equal(head->n_marks, 0);
	assert_non_null(mark);
	kv__saved__mark__init(mark);
	mark->id = 1;
	mark->length_tokens = UINT64_MAX;
	mark->journal_end = head->journal_end + 1;
	head->marks = malloc(sizeof(head->marks[0]));
	assert_non_null(head->marks);
	head->marks[0] = mark;
	head->n_marks = 1;
}

/* What a list of saved snapshots says of how many. */
static size_t count_listed(struct world *w)
{
	Kv__Wire__Reply *reply;
	size_t n;
	COMMAND(SAVED_LIST, saved_list, SavedList);

	kv__wire__saved_list__init(&command);
	reply = craft_call(&w->a, &request, 0);
	n = reply->saved->n_saved;
	kv__wire__reply__free_unpacked(reply, NULL);
	return n;
}

/* Set aside when the store is opened, or refused when it is loaded; nothing is left of it. */
static void is_refused(void (*lie)(Kv__Saved__Saved *head, void *arg), void *arg)
{
	struct world_result result;
	struct world w;
	uint64_t used;

	begin_saved(&w, KV_JOURNAL_REPLAY);
	log_init(LOG_LEVEL_ERROR);
	world_forge(&w, &world_fields, "snap", lie, arg);
	used = world_used_bytes(&w);
	assert_true(count_listed(&w) <= 1);
	result = world_load(&w, "snap", "", 0);
	if (result.status != KV_ENOTFOUND || world_stats(&w).n_set_aside != 1)
		assert_int_equal(result.status, KV_ECORRUPT);
	assert_null(world_find(&w, "snap"));
	assert_int_equal(world_used_bytes(&w), used);
	snapshot(&w, KV_JOURNAL_REPLAY);
	result = world_save(&w, "snap", "", true);
	world_assert_ok(&result);
	result = world_load(&w, "snap", "again", 0);
	world_assert_ok(&result);
	world_end(&w);
}

static void test_lies(void **state)
{
	static void (*const lies[])(Kv__Saved__Saved *, void *) = {
		lie_kind,  lie_mode,    lie_length, lie_base,   lie_blocks, lie_first_block,
		lie_slots, lie_journal, lie_planes, lie_digest, lie_check,  lie_marks};

	(void)state;
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
		is_refused(lies[i], NULL);
}

static void test_long_lies(void **state)
{
	static size_t sizes[] = {0, 15, 17, 200000};

	(void)state;
	for (size_t i = 0; i < 4; i++)
		is_refused(lie_digest_bytes, &sizes[i]);
	is_refused(lie_parent, &sizes[3]);
}

/* ---- images of another size ---------------------------------------------------------------- */

/* All of group 0 in slots that nobody has, of the size that a layout with large blocks made. */
static void lie_size(Kv__Saved__Saved *head, void *arg)
{
	const uint64_t *n_bytes = arg;

	head->groups[0]->image_bytes = (uint32_t)*n_bytes;
	for (size_t i = 0; i < head->groups[0]->n_places; i++)
		head->groups[0]->places[i] = *n_bytes / STORE_PAGE << 40 | (6 - i);
}

static struct kv_layer big_layers[1] = {{1, 8192, 8192, 0}};
static const struct kv_layout big_fields = {.fingerprint = {2},
					    .n_layers = 1,
					    .layers = big_layers,
					    .dtype = KV_DTYPE_F32,
					    .k_format = KV_FORMAT_RAW,
					    .v_format = KV_FORMAT_RAW,
					    .block_tokens = 4};

/* A load whose buffers are for small images must not read large ones into them. */
static void test_size(void **state)
{
	struct kv_head head = {.length_tokens = 4, .base_tokens = 4, .state = KV_HEAD_LIVE};
	struct world_result result;
	struct world w;
	uint64_t n_bytes, used;

	(void)state;
	world_begin(&w, &big_fields);
	n_bytes = image_bytes(w.layout, 0);
	assert_int_equal(n_bytes, 256u << 10);
	world_make(&w, "live", &head);
	craft_snapshot(&w.a, "live", "big");
	result = world_save(&w, "big", "", false);
	world_assert_ok(&result);
	world_reboot(&w, &world_fields);
	snapshot(&w, KV_JOURNAL_NONE);
	result = world_save(&w, "snap", "", false);
	world_assert_ok(&result);
	world_forge(&w, &world_fields, "snap", lie_size, &n_bytes);
	assert_int_equal(world_stats(&w).n_saved, 2); /* its places are there */
	used = world_used_bytes(&w);
	result = world_load(&w, "snap", "", 0);
	assert_int_equal(result.status, KV_ECORRUPT);
	assert_non_null(strstr(result.detail, "makes no sense"));
	assert_int_equal(world_used_bytes(&w), used);
	world_end(&w);
}

/* ---- the end, at any moment ----------------------------------------------------------------- */

#define MOMENTS 12

/* The core ends in the middle of a save and of a load, and its keeper starts another. */
static void test_core_ends(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t used;

	(void)state;
	for (int i = 0; i < MOMENTS; i++) {
		world_begin_as(&w, &world_fields, WORLD_UID, true);
		snapshot(&w, KV_JOURNAL_REPLAY);
		used = world_used_bytes(&w);
		world_start_save(&w, "snap", "one", false);
		rounds(&w, i);
		assert_int_equal(fake_core_restart(w.f), 0);
		fake_client_again(w.a.c);
		assert_int_equal(world_used_bytes(&w), used);
		result = world_save(&w, "snap", "one", true);
		world_assert_ok(&result);
		world_start_load(&w, "one", "loaded");
		rounds(&w, i);
		assert_int_equal(fake_core_restart(w.f), 0);
		fake_client_again(w.a.c);
		if (!world_find(&w, "loaded"))
			assert_int_equal(world_used_bytes(&w), used);
		result = world_load(&w, "one", "again", 0);
		world_assert_ok(&result);
		result = world_verify(&w, "again");
		world_assert_ok(&result);
		world_end(&w);
	}
}

/* The session goes in the middle of a load. */
static void test_session_goes_in_load(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t used;

	(void)state;
	for (int i = 0; i < MOMENTS; i++) {
		begin_saved(&w, KV_JOURNAL_REPLAY);
		world_reboot(&w, &world_fields);
		used = world_used_bytes(&w);
		world_start_load(&w, "snap", "loaded");
		rounds(&w, i);
		craft_end(&w.a);
		craft_begin(&w.a, w.f, WORLD_UID, &world_fields);
		w.layout = w.a.layout;
		world_wait_transfers(&w);
		if (!world_find(&w, "loaded"))
			assert_int_equal(world_used_bytes(&w), used);
		result = world_load(&w, "snap", "again", 0);
		world_assert_ok(&result);
		world_end(&w);
	}
}

static void remove_saved(struct world *w, const char *name, uint32_t status)
{
	COMMAND(SAVED_REMOVE, saved_remove, SavedRemove);

	kv__wire__saved_remove__init(&command);
	command.name = (char *)(uintptr_t)name;
	kv__wire__reply__free_unpacked(craft_call(&w->a, &request, status), NULL);
}

static void remove_object(struct world *w, const char *name)
{
	Kv__Wire__Target target = craft_named(name);
	COMMAND(REMOVE, remove, Remove);

	kv__wire__remove__init(&command);
	command.source = &target;
	kv__wire__reply__free_unpacked(craft_call(&w->a, &request, 0), NULL);
}

/* What is saved goes while it is loaded; its slots are used again only afterwards. */
static void test_saved_goes(void **state)
{
	struct world_result result, saved;
	struct world w;
	uint64_t id;

	(void)state;
	for (int i = 0; i < MOMENTS; i++) {
		world_begin_faulty(&w, "read:2:late=5");
		saved = world_save(&w, "snap", "", false);
		world_assert_ok(&saved);
		id = world_start_load(&w, "snap", "loaded");
		rounds(&w, i);
		if (i % 2) {
			remove_saved(&w, "snap", 0);
			remove_saved(&w, "snap", KV_ENOTFOUND);
		} else {
			struct kv_head head = world_head(&w, KV_JOURNAL_NONE, 0);

			world_make(&w, "other", &head);
			result = world_save(&w, "snap", "snap", true);
			world_assert_ok(&result);
		}
		result = world_finish(&w, id);
		world_assert_ok(&result);
		assert_memory_equal(result.digest, saved.digest, sizeof(saved.digest));
		if (i % 2)
			assert_int_equal(world_stats(&w).used_bytes, 0);
		world_end(&w);
	}
}

/* The snapshot goes while it is saved, and the job is cancelled at any moment. */
static void test_source_goes(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t id, empty;

	(void)state;
	for (int i = 0; i < 2 * MOMENTS; i++) {
		world_begin_faulty(&w, "write:2:late=5");
		empty = world_used_bytes(&w);
		id = world_start_save(&w, "snap", "", false);
		rounds(&w, i / 2);
		remove_object(&w, "snap");
		if (i % 2)
			world_cancel(&w, id);
		result = world_finish(&w, id);
		world_wait_transfers(&w);
		if (result.status) {
			assert_int_equal(result.status, KV_ECANCELLED);
			assert_int_equal(world_stats(&w).n_saved, 0);
			assert_int_equal(world_stats(&w).used_bytes, 0);
		} else {
			assert_int_equal(world_stats(&w).n_saved, 1);
			result = world_load(&w, "snap", "", 0);
			world_assert_ok(&result);
			remove_object(&w, "snap");
		}
		assert_true(world_used_bytes(&w) <= empty);
		world_end(&w);
	}
}

static void test_load_cancelled(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t id, used;

	(void)state;
	for (int i = 0; i < MOMENTS; i++) {
		world_begin_faulty(&w, "read:2:late=5");
		result = world_save(&w, "snap", "", false);
		world_assert_ok(&result);
		used = world_used_bytes(&w);
		id = world_start_load(&w, "snap", "loaded");
		rounds(&w, i);
		world_cancel(&w, id);
		world_wait_transfers(&w);
		result = world_finish(&w, id);
		if (result.status) {
			assert_int_equal(result.status, KV_ECANCELLED);
			assert_null(world_find(&w, "loaded"));
			assert_int_equal(world_used_bytes(&w), used);
		}
		world_end(&w);
	}
}

/* The core ends while reads and writes do not come back. */
static void test_core_ends_lost(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t used;

	(void)state;
	setenv("KV_IO_FAULTS", "write:3+5:lost,read:2+3:lost", 1);
	world_begin_as(&w, &world_fields, WORLD_UID, true);
	snapshot(&w, KV_JOURNAL_REPLAY);
	used = world_used_bytes(&w);
	world_start_save(&w, "snap", "one", false);
	rounds(&w, 5);
	unsetenv("KV_IO_FAULTS");
	assert_int_equal(fake_core_restart(w.f), 0);
	fake_client_again(w.a.c);
	assert_int_equal(world_used_bytes(&w), used);
	assert_int_equal(world_stats(&w).n_saved, 0);
	setenv("KV_IO_FAULTS", "read:2+3:lost", 1);
	assert_int_equal(fake_core_restart(w.f), 0);
	fake_client_again(w.a.c);
	unsetenv("KV_IO_FAULTS");
	result = world_save(&w, "snap", "one", false);
	world_assert_ok(&result);
	world_start_load(&w, "one", "loaded");
	rounds(&w, 5);
	assert_true(world_used_bytes(&w) > used);
	assert_int_equal(fake_core_restart(w.f), 0);
	fake_client_again(w.a.c);
	assert_null(world_find(&w, "loaded"));
	assert_int_equal(world_used_bytes(&w), used);
	result = world_load(&w, "one", "loaded", 0);
	world_assert_ok(&result);
	world_end(&w);
}

/* ---- slot files and room ---------------------------------------------------------------------- */

/* A slot file that has been cut: named as damage, and repaired by saving again. */
static void test_cut_slot_file(void **state)
{
	struct world_result result;
	struct world w;
	char path[600];
	uint64_t used;

	(void)state;
	begin_saved(&w, KV_JOURNAL_NONE);
	used = world_used_bytes(&w);
	snprintf(path, sizeof(path), "%s/blocks-4096.data", w.settings.disk_dir);
	assert_int_equal(truncate(path, 4096 + 512), 0);
	result = world_load(&w, "snap", "again", 0);
	assert_int_equal(result.status, KV_ECORRUPT);
	assert_null(world_find(&w, "again"));
	world_wait_transfers(&w);
	assert_int_equal(world_used_bytes(&w), used);
	world_reboot(&w, &world_fields);
	result = world_load(&w, "snap", "", 0);
	assert_int_not_equal(result.status, KV_OK);
	snapshot(&w, KV_JOURNAL_NONE);
	result = world_save(&w, "snap", "", true);
	world_assert_ok(&result);
	result = world_load(&w, "snap", "again", 0);
	world_assert_ok(&result);
	world_end(&w);
}

/* The pool has room for so many bytes of a snapshot, never for all: whatever group it is that does
 * not fit, nothing is held. */
static void test_quota_in_each_group(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t used, all;

	(void)state;
	begin_saved(&w, KV_JOURNAL_REPLAY);
	used = world_used_bytes(&w);
	result = world_load(&w, "snap", "again", 0);
	world_assert_ok(&result);
	all = world_used_bytes(&w) - used;
	remove_object(&w, "again");
	assert_int_equal(world_used_bytes(&w), used);
	for (uint64_t room = 1; room < all; room += all / 37) {
		w.f->core->pool.user_bytes_max = used + room;
		result = world_load(&w, "snap", "again", 0);
		assert_int_equal(result.status, KV_EQUOTA);
		assert_int_equal(world_used_bytes(&w), used);
	}
	w.f->core->pool.user_bytes_max = used + all;
	result = world_load(&w, "snap", "again", 0);
	world_assert_ok(&result);
	world_end(&w);
}

/* A store that has room for some images of a snapshot only. */
static void test_store_is_full(void **state)
{
	struct world_result result;
	struct world w;

	(void)state;
	world_begin(&w, &world_fields);
	snapshot(&w, KV_JOURNAL_REPLAY);
	for (uint64_t n = 0; n < 3; n++) {
		w.settings.disk_bytes = n * 20480;
		world_reboot(&w, &world_fields);
		snapshot(&w, KV_JOURNAL_REPLAY);
		result = world_save(&w, "snap", "", false);
		assert_int_equal(result.status, KV_EPOOL);
		world_wait_transfers(&w);
		assert_int_equal(world_stats(&w).used_bytes, 0);
		assert_int_equal(world_stats(&w).n_saved, 0);
	}
	w.settings.disk_bytes = 32u << 20;
	world_reboot(&w, &world_fields);
	snapshot(&w, KV_JOURNAL_REPLAY);
	result = world_save(&w, "snap", "", false);
	world_assert_ok(&result);
	world_end(&w);
}

/* ---- part of it --------------------------------------------------------------------------------- */

/* Each length of what was only appended, in a layout with a window that is not full. */
static void test_each_length(void **state)
{
	static struct kv_layer layers[2] = {{2, 8, 8, 0}, {1, 8, 8, 24}};
	struct kv_layout layout = world_fields;
	struct world_result result;
	struct world w;

	(void)state;
	layout.layers = layers;
	layout.n_planes = 1;
	world_begin(&w, &layout);
	world_snap(&w, KV_JOURNAL_NONE);
	result = world_save(&w, "snap", "", false);
	world_assert_ok(&result);
	world_reboot(&w, &layout);
	for (uint64_t n = 1; n <= WORLD_LENGTH; n++) {
		struct world_result verified;

		result = world_load(&w, "snap", "cut", n);
		world_assert_ok(&result);
		assert_int_equal(world_find(&w, "cut")->state->head.length_tokens, n);
		verified = world_verify(&w, "cut");
		world_assert_ok(&verified);
		assert_memory_equal(verified.digest, result.digest, sizeof(result.digest));
		remove_object(&w, "cut");
		assert_int_equal(world_used_bytes(&w), 0);
	}
	world_end(&w);
}

/* A window that is full, a journal or sequence planes: no part of it is known. */
static void test_no_part(void **state)
{
	struct world_result result;
	struct world w;
	uint64_t used;

	(void)state;
	for (int mode = 0; mode < 3; mode++) {
		begin_saved(&w, (enum kv_journal_mode)mode);
		used = world_used_bytes(&w);
		for (uint64_t n = 1; n < WORLD_LENGTH; n++) {
			result = world_load(&w, "snap", "cut", n);
			assert_int_equal(result.status, KV_EUNSUPPORTED);
			assert_int_equal(world_used_bytes(&w), used);
		}
		world_end(&w);
	}
}

/* ---- whose session has ended ------------------------------------------------------------------- */

static void test_session_of_arena_ended(void **state)
{
	struct world_result result, verified;
	struct world w;

	(void)state;
	world_begin(&w, &world_fields);
	snapshot(&w, KV_JOURNAL_REPLAY);
	craft_end(&w.a);
	craft_begin(&w.a, w.f, WORLD_UID, &world_fields);
	w.layout = w.a.layout;
	verified = world_verify(&w, "snap");
	world_assert_ok(&verified);
	result = world_save(&w, "snap", "", false);
	world_assert_ok(&result);
	result = world_save(&w, "live", "parked", false);
	world_assert_ok(&result);
	world_reboot(&w, &world_fields);
	result = world_load(&w, "snap", "", 0);
	world_assert_ok(&result);
	assert_memory_equal(result.digest, verified.digest, sizeof(result.digest));
	result = world_load(&w, "parked", "live", 0);
	world_assert_ok(&result);
	craft_takeover(&w.a, 0, "live", 64);
	world_end(&w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a saved file that lies is refused", test_lies),
	KT_TEST("a saved file with fields of any length cannot end the core", test_long_lies),
	KT_TEST("images of another size than the layout's are not read", test_size),
	KT_TEST("a core that ends while it saves or loads leaves nothing", test_core_ends),
	KT_TEST("a session that goes takes its load with it", test_session_goes_in_load),
	KT_TEST("what is removed or replaced while it is loaded stays until then", test_saved_goes),
	KT_TEST("a snapshot that is removed while it is saved is saved", test_source_goes),
	KT_TEST("a load can be cancelled at any moment", test_load_cancelled),
	KT_TEST("a core that ends while transfers are lost leaves nothing", test_core_ends_lost),
	KT_TEST("a slot file that was cut is damage", test_cut_slot_file),
	KT_TEST("a load over the quota in any group holds nothing", test_quota_in_each_group),
	KT_TEST("a store that is full in the middle of a save holds nothing", test_store_is_full),
	KT_TEST("any length of what was only appended is loaded", test_each_length),
	KT_TEST("no length of what has windows, journals or planes is", test_no_part),
	KT_TEST("what an ended session left is saved and comes back", test_session_of_arena_ended),
};

KT_MAIN(tests)
