/*
 * The file of a saved snapshot. The first byte of the input says what the rest is:
 *	0   the file
 *	1   what follows a right head
 * Whatever it says: it is refused with a reason, or means the same when it is packed again; a store
 * that has such a file opens, and does not let go of what the file names. Thread: one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/saved_file.h"
#include "offload/whole_file.h"
#include "tests/fuzz/store_folder.h"
#include "tests/fuzz/target.h"

/* A message with unknown fields cannot always be packed again: their tags may make no sense, and
 * they are passed on as they are. What is written never has any. */
static void check_round_trip(const Kv__Saved__Saved *saved, const uint8_t *layout)
{
	uint8_t layout_again[KV_HASH_BYTES];
	void *bytes, *bytes_again;
	size_t n, n_again;
	Kv__Saved__Saved *again;

	must(saved_pack(saved, &bytes, &n, NULL) == 0);
	again = saved_parse(bytes, n, layout_again, NULL);
	if (!again) {
		must(saved->base.n_unknown_fields || saved->layout->base.n_unknown_fields);
		free(bytes);
		return;
	}
	must(memcmp(layout, layout_again, sizeof(layout_again)) == 0);
	must(strcmp(again->name, saved->name) == 0 && again->number == saved->number);
	must(saved_pack(again, &bytes_again, &n_again, NULL) == 0);
	must(n == n_again && memcmp(bytes, bytes_again, n) == 0);
	kv__saved__saved__free_unpacked(again, NULL);
	free(bytes_again);
	free(bytes);
}

static void run(const void *file, size_t n)
{
	char file_name[SAVED_FILE_NAME_BYTES] = "1000-", name[SAVED_FILE_NAME_BYTES + 8];
	uint8_t layout[KV_HASH_BYTES];
	struct errbuf err = {0};
	Kv__Saved__Saved *saved = saved_parse(file, n, layout, &err);

	must(saved || err.text[0]);
	memset(file_name + 5, '0', (size_t)2 * SAVED_HASH_BYTES);
	file_name[5 + 2 * SAVED_HASH_BYTES] = '\0';
	if (saved) {
		check_round_trip(saved, layout);
		saved_file_name(saved->uid, saved->name, file_name);
		kv__saved__saved__free_unpacked(saved, NULL);
	}
	folder_make();
	snprintf(name, sizeof(name), "saved/%s", file_name);
	folder_write(name, NULL, file, n);
	folder_use();
	folder_remove();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct store_head *head;

	if (size == 0)
		return 0;
	if (data[0] == 0) {
		run(data + 1, size - 1);
		return 0;
	}
	head = malloc(sizeof(*head) + size);
	must(head != NULL);
	memcpy(head + 1, data + 1, size - 1);
	store_head_seal(head, STORE_SAVED_MAGIC, head + 1, size - 1);
	run(head, sizeof(*head) + size - 1);
	free(head);
	return 0;
}
