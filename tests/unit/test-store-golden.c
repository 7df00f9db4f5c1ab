/*
 * A store that version 1 made is read for ever: tests/data/store/v1, with images of two sizes, a
 * slot that was given back to the disk, a saved snapshot with every field, and one with few.
 *
 * `test-store-golden --write FOLDER` makes such a folder, where there is none. It is never made
 * anew: a change that needs that is another version.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "offload/whole_file.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/unit/store-world.h"

#define MAX_BYTES (3 * WORLD_SLOT_BYTES(0))

static const char digest[] = "sixteen bytes...";

static void set_bytes(ProtobufCBinaryData *bytes)
{
	free(bytes->data);
	bytes->data = (uint8_t *)strdup(digest);
	bytes->len = 16;
}

/* Every field that the basic one has not. */
static void set_fields(Kv__Saved__Saved *head)
{
	if (!head->n_marks) {
		head->marks = calloc(1, sizeof(*head->marks));
		head->marks[0] = malloc(sizeof(*head->marks[0]));
		head->n_marks = 1;
	}
	*head->marks[0] = (Kv__Saved__Mark)KV__SAVED__MARK__INIT;
	head->marks[0]->id = 1;
	head->marks[0]->update = 2;
	head->marks[0]->length_tokens = 3;
	head->marks[0]->journal_end = 4;
	free(head->name);
	head->name = strdup("every/field");
	head->number = 77;
	head->saved_unix_ns = 5;
	head->update = 6;
	head->length_tokens = 11;
	head->position = 12;
	head->journal_first = 13;
	head->journal_end = 14;
	head->planes = 15;
	head->base_tokens = 16;
	head->head_state = 17;
	head->groups[0]->n_slots = 18;
	head->groups[0]->first_block = 19;
	set_bytes(&head->digest);
	head->parent_name = strdup("parent");
	head->parent_update = 20;
	set_bytes(&head->parent_digest);
	head->created_unix_ns = 21;
	head->kind = 22;
}

static void save_every_field(struct world *w, const char *like)
{
	const Kv__Saved__Saved *from = store_saved_find(w->store, WORLD_UID, like)->head;
	size_t n = kv__saved__saved__get_packed_size(from);
	uint8_t *bytes = malloc(n);
	Kv__Saved__Saved *head;
	struct saved_file *file;

	kv__saved__saved__pack(from, bytes);
	head = kv__saved__saved__unpack(NULL, n, bytes);
	free(bytes);
	free(head->parent_name != protobuf_c_empty_string ? head->parent_name : NULL);
	set_fields(head);
	file = store_saved_pack(w->store, head, &w->err);
	world_must(file && store_saved_write(file) == 0 && store_saved_add(file, NULL) == 0);
	saved_file_free(file);
	kv__saved__saved__free_unpacked(head, NULL);
}

static int write_golden(const char *to)
{
	const struct content content = world_content(1, 2, 1);
	struct world w;
	struct stat st;

	if (stat(to, &st) == 0) {
		fprintf(stderr, "%s is there\n", to);
		return 1;
	}
	kt_tmproot_make();
	world_begin(&w, MAX_BYTES);
	world_open(&w);
	world_must(world_save(&w, "few-fields", &content));
	save_every_field(&w, "few-fields");
	store_unuse(w.store, world_write(&w, 1, 2)); /* cached */
	world_close(&w);
	world_copy_tree(w.dir, to);
	world_end(&w);
	kt_tmproot_remove();
	return 0;
}

/* ---- tests -------------------------------------------------------------------------------- */

static void begin(struct world *w)
{
	const char *top = getenv("top_srcdir");
	char from[4096];

	snprintf(from, sizeof(from), "%s/tests/data/store/v1", top ? top : ".");
	world_begin(w, MAX_BYTES);
	world_copy_tree(from, w->dir);
}

static void assert_bytes(const ProtobufCBinaryData *bytes)
{
	assert_int_equal(bytes->len, 16);
	assert_memory_equal(bytes->data, digest, 16);
}

static void check_every_field(const Kv__Saved__Saved *head)
{
	assert_int_equal(head->number, 77);
	assert_int_equal(head->uid, WORLD_UID);
	assert_int_equal(head->saved_unix_ns, 5);
	assert_int_equal(head->update, 6);
	assert_int_equal(head->length_tokens, 11);
	assert_int_equal(head->position, 12);
	assert_int_equal(head->journal_first, 13);
	assert_int_equal(head->journal_end, 14);
	assert_int_equal(head->planes, 15);
	assert_int_equal(head->base_tokens, 16);
	assert_int_equal(head->head_state, 17);
	assert_int_equal(head->n_marks, 1);
	assert_int_equal(head->marks[0]->id, 1);
	assert_int_equal(head->marks[0]->update, 2);
	assert_int_equal(head->marks[0]->length_tokens, 3);
	assert_int_equal(head->marks[0]->journal_end, 4);
	assert_int_equal(head->groups[0]->n_slots, 18);
	assert_int_equal(head->groups[0]->first_block, 19);
	assert_bytes(&head->digest);
	assert_string_equal(head->parent_name, "parent");
	assert_int_equal(head->parent_update, 20);
	assert_bytes(&head->parent_digest);
	assert_int_equal(head->created_unix_ns, 21);
	assert_int_equal(head->kind, 22);
}

static void test_read(void **state)
{
	const struct content content = world_content(1, 2, 1);
	struct world w;

	(void)state;
	begin(&w);
	world_open(&w);
	assert_int_equal(w.n_reports, 0);
	assert_true(world_saved_is(&w, "few-fields", &content));
	assert_true(world_saved_is(&w, "every/field", &content));
	check_every_field(store_saved_find(w.store, WORLD_UID, "every/field")->head);
	assert_int_equal(world_stats(&w).used_bytes, 2 * WORLD_SLOT_BYTES(0) + WORLD_SLOT_BYTES(1));
	assert_int_equal(world_stats(&w).cached_bytes, WORLD_SLOT_BYTES(1));
	assert_int_equal(world_stats(&w).free_bytes, 0);
	assert_int_equal(store_saved_number(w.store), 78);
	world_reopen(&w);
	assert_int_equal(w.n_reports, 0);
	world_end(&w);
}

/* What is written now is what was written then: a saved snapshot of the same number, byte by byte
 * but for where its images are. */
static void test_write(void **state)
{
	const char *top = getenv("top_srcdir");
	struct world w;
	char from[4096];
	void *then, *now;
	size_t n_then, n_now;
	const char *path;

	(void)state;
	begin(&w);
	world_open(&w);
	save_every_field(&w, "every/field"); /* replaces itself */
	path = world_saved_path(&w, "every/field");
	snprintf(from, sizeof(from), "%s/tests/data/store/v1%s", top ? top : ".",
		 path + strlen(w.dir));
	assert_int_equal(whole_file_read(AT_FDCWD, from, 1 << 20, &then, &n_then), 0);
	assert_int_equal(whole_file_read(AT_FDCWD, path, 1 << 20, &now, &n_now), 0);
	assert_int_equal(n_then, n_now);
	assert_memory_equal(then, now, n_now);
	free(then);
	free(now);
	world_end(&w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a store of version 1 opens, and its images verify", test_read),
	KT_TEST("a saved snapshot is written as in version 1", test_write),
};

int main(int argc, char **argv)
{
	const struct kt_group group = KT_GROUP(tests);

	if (argc == 3 && strcmp(argv[1], "--write") == 0)
		return write_golden(argv[2]);
	return kt_run(argc, argv, &group, 1);
}
