/*
 * The index of a slot file. The first byte of the input says what the rest is:
 *	0   the file, with zeros behind it up to a page
 *	1   records, each with a right checksum, behind a right head
 * Whatever it says: the store opens, gives out no slot that is not there and none twice, and the
 * next start finds nothing to put right. Thread: one.
 */
#include <string.h>

#include <xxhash.h>

#include "offload/whole_file.h"
#include "tests/fuzz/store_folder.h"
#include "tests/fuzz/target.h"

#define RECORDS_MAX 16u

static void write_records(const uint8_t *data, size_t size)
{
	struct {
		struct store_index index;
		struct store_record records[RECORDS_MAX];
	} file = {.index = {.slot_bytes = FOLDER_SLOT_BYTES, .record_bytes = 64}};
	struct store_about about;
	struct store_head head;
	size_t n = size / sizeof(file.records[0]);

	if (n > RECORDS_MAX)
		n = RECORDS_MAX;
	folder_about(&about);
	memcpy(file.index.id, about.id, sizeof(about.id));
	file.index.life = about.life;
	store_head_seal(&head, STORE_INDEX_MAGIC, &file.index, sizeof(file.index));
	if (n)
		memcpy(file.records, data, n * sizeof(file.records[0]));
	for (size_t i = 0; i < n; i++)
		file.records[i].checksum = XXH64(&file.records[i],
						 offsetof(struct store_record, checksum), i);
	folder_write("blocks-4096.index", &head, &file,
		     sizeof(file.index) + n * sizeof(file.records[0]));
}

static void write_file(const uint8_t *data, size_t size)
{
	uint8_t page[STORE_INDEX_OFF] = {0};

	if (size && size < sizeof(page))
		memcpy(page, data, size);
	if (size < sizeof(page))
		folder_write("blocks-4096.index", NULL, page, size ? sizeof(page) : 0);
	else
		folder_write("blocks-4096.index", NULL, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	folder_make();
	if (data[0] == 0)
		write_file(data + 1, size - 1);
	else
		write_records(data + 1, size - 1);
	folder_use();
	folder_remove();
	return 0;
}
