/*
 * The index of a slot file as a whole: read when the store is opened, written anew where it does
 * not say what is so.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "offload/slots.h"
#include "offload/whole_file.h"
#include "proto/fault.h"

#define CHUNK_RECORDS 16384u /* 1 MiB at a time */

struct index_page {
	struct store_head head;
	struct store_index index;
};
static_assert(sizeof(struct index_page) == STORE_INDEX_OFF, "one page");

/* ---- records ------------------------------------------------------------------------------ */

static uint64_t record_checksum(const struct store_record *record, uint64_t i)
{
	return XXH64(record, offsetof(struct store_record, checksum), i);
}

static bool is_image_of(const struct slots *slots, const struct store_record *record)
{
	return record->n_bytes && store_round_up(record->n_bytes) == slots->slot_bytes &&
	       record->number && record->number <= STORE_IMAGE_NUMBER_MAX;
}

/* Into a slot of memory. False: it is no record of that slot. */
static bool take_record(struct slots *slots, uint64_t i, const struct store_record *record)
{
	static const struct store_record never;
	struct slot *slot = &slots->all[i];

	if (memcmp(record, &never, sizeof(never)) == 0)
		return true;
	if (record->checksum != record_checksum(record, i))
		return false;
	switch (record->kind) {
	case STORE_NOTHING: return true;
	case STORE_HOLE: slot->state = SLOT_HOLE; return true;
	case STORE_IMAGE: break;
	default: return false;
	}
	if (!is_image_of(slots, record))
		return false;
	slot->state = SLOT_READY;
	memcpy(slot->check.bytes, record->check, sizeof(record->check));
	memcpy(slot->layout, record->layout, sizeof(record->layout));
	slot->number = record->number;
	slot->uid = record->uid;
	slot->group = record->group;
	slot->n_bytes = record->n_bytes;
	return true;
}

void slots_make_record(const struct slots *slots, uint64_t i, struct store_record *record)
{
	const struct slot *slot = &slots->all[i];

	*record = (struct store_record){.kind = STORE_NOTHING};
	if (slot->state == SLOT_HOLE)
		record->kind = STORE_HOLE;
	if (slot->state == SLOT_READY) {
		record->kind = STORE_IMAGE;
		memcpy(record->check, slot->check.bytes, sizeof(record->check));
		memcpy(record->layout, slot->layout, sizeof(record->layout));
		record->number = slot->number;
		record->uid = slot->uid;
		record->group = slot->group;
		record->n_bytes = slot->n_bytes;
	}
	record->checksum = record_checksum(record, i);
}

/* ---- reading ------------------------------------------------------------------------------ */

static int check_page(const struct slots *slots, const struct index_page *page,
		      const struct store_about *about, struct errbuf *err)
{
	if (store_head_check(page, sizeof(*page), STORE_INDEX_MAGIC, err))
		return -1;
	if (page->head.n_bytes != sizeof(page->index) ||
	    page->index.slot_bytes != slots->slot_bytes ||
	    page->index.record_bytes != sizeof(struct store_record))
		return errbuf_set(err, KV_ECORRUPT, "it is of slots of %u bytes, not of %u",
				  page->index.slot_bytes, slots->slot_bytes);
	if (memcmp(page->index.id, about->id, sizeof(about->id)) != 0)
		return errbuf_set(err, KV_ECORRUPT, "it belongs to another store");
	return 0;
}

static int read_records(struct slots *slots, uint64_t n_slots, struct errbuf *err)
{
	struct store_record *chunk = malloc(CHUNK_RECORDS * sizeof(*chunk));
	uint64_t i = 0;

	if (!chunk || slots_reach(slots, n_slots)) {
		free(chunk);
		return errbuf_set(err, KV_ENOMEM, "no memory for an index of %llu slots",
				  (unsigned long long)n_slots);
	}
	while (i < n_slots) {
		uint64_t n = n_slots - i < CHUNK_RECORDS ? n_slots - i : CHUNK_RECORDS;
		ssize_t got = whole_file_pread(slots->index_fd, chunk, n * sizeof(*chunk),
					       slots_record_off(i));

		if (got < (ssize_t)(n * sizeof(*chunk))) {
			free(chunk);
			return errbuf_errno(err, KV_EIO, got < 0 ? (int)-got : EIO,
					    "cannot read the index");
		}
		for (uint64_t k = 0; k < n; k++, i++)
			slots->is_stale |= !take_record(slots, i, &chunk[k]);
	}
	free(chunk);
	return 0;
}

int slots_read_index(struct slots *slots, const struct store_about *about, struct errbuf *err)
{
	uint64_t n_records;
	struct index_page page;
	struct stat st;
	ssize_t n;

	slots->is_trusted = false;
	n = whole_file_pread(slots->index_fd, &page, sizeof(page), 0);
	if (n < 0 || fstat(slots->index_fd, &st))
		return errbuf_errno(err, KV_EIO, n < 0 ? (int)-n : errno, "cannot read the index");
	if (n == 0) {
		slots->is_stale = true;
		return 0;
	}
	if (check_page(slots, &page, about, err))
		return -1;
	n_records = ((uint64_t)st.st_size - STORE_INDEX_OFF) / sizeof(struct store_record);
	slots->is_trusted = page.index.life == about->life;
	return read_records(slots, n_records < slots->n_in_file ? n_records : slots->n_in_file,
			    err);
}

/* ---- writing ------------------------------------------------------------------------------ */

int slots_replace_index(struct slots *slots, int dir_fd, struct errbuf *err)
{
	char name[64];
	int rc;

	snprintf(name, sizeof(name), "blocks-%u.index", slots->slot_bytes);
	close(slots->index_fd);
	rc = whole_file_set_aside(dir_fd, name);
	slots->index_fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	KV_FAULT_POINT();
	if (rc || slots->index_fd < 0)
		return errbuf_errno(err, KV_EIO, rc ? -rc : errno, "cannot make %s anew", name);
	slots->is_stale = true;
	return 0;
}

static int write_records(struct slots *slots)
{
	struct store_record *chunk = malloc(CHUNK_RECORDS * sizeof(*chunk));
	uint64_t i = 0;
	int rc = chunk ? 0 : -ENOMEM;

	while (!rc && i < slots->n_slots) {
		uint64_t first = i, n;

		for (n = 0; n < CHUNK_RECORDS && i < slots->n_slots; n++, i++)
			slots_make_record(slots, i, &chunk[n]);
		rc = whole_file_pwrite(slots->index_fd, chunk, n * sizeof(*chunk),
				       slots_record_off(first));
		KV_FAULT_POINT();
	}
	free(chunk);
	return rc;
}

int slots_write_index(struct slots *slots)
{
	int rc = 0;

	if (ftruncate(slots->data_fd, (off_t)(slots->n_slots * slots->slot_bytes)))
		return -errno;
	KV_FAULT_POINT();
	if (ftruncate(slots->index_fd, (off_t)slots_record_off(slots->n_slots)))
		return -errno;
	KV_FAULT_POINT();
	if (slots->is_stale)
		rc = write_records(slots);
	if (!rc)
		slots->is_stale = false;
	slots->data_is_dirty = slots->index_is_dirty = true;
	return rc;
}

int slots_seal_index(struct slots *slots, const struct store_about *about)
{
	struct index_page page = {.index = {.life = about->life,
					    .slot_bytes = slots->slot_bytes,
					    .record_bytes = sizeof(struct store_record)}};
	int rc;

	memcpy(page.index.id, about->id, sizeof(about->id));
	store_head_seal(&page.head, STORE_INDEX_MAGIC, &page.index, sizeof(page.index));
	KV_FAULT_POINT();
	rc = whole_file_pwrite(slots->index_fd, &page, sizeof(page), 0);
	KV_FAULT_POINT();
	slots->index_is_dirty = true;
	return rc;
}
