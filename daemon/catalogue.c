#include "daemon/catalogue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "daemon/sealed.h"
#include "proto/shm.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define GROW_BYTES (UINT64_C(64) << 10)
#define STALE_BYTES (UINT64_C(4) << 20) /* below this, rewriting is not worth it */

static struct cat_head *head_of(const struct catalogue *catalogue)
{
	return (struct cat_head *)catalogue->base;
}

static uint64_t padded(uint64_t n_bytes)
{
	return (n_bytes + 7) & ~UINT64_C(7);
}

static uint64_t checksum_of(const struct cat_record *record)
{
	return XXH64(&record->magic, sizeof(*record) - sizeof(record->checksum) + record->n_bytes,
		     0);
}

static int map(struct catalogue *catalogue, struct errbuf *err)
{
	void *base = mmap(NULL, CATALOGUE_BYTES_MAX, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_NORESERVE, catalogue->fd, 0);

	if (base == MAP_FAILED)
		return errbuf_errno(err, KV_ENOMEM, errno, "cannot map the catalogue");
	madvise(base, CATALOGUE_BYTES_MAX, MADV_DONTDUMP);
	madvise(base, CATALOGUE_BYTES_MAX, MADV_DONTFORK);
	catalogue->base = base;
	return 0;
}

int catalogue_make(struct catalogue *catalogue, struct errbuf *err)
{
	memset(catalogue, 0, sizeof(*catalogue));
	catalogue->fd = sealed_make("kvc-catalogue", CATALOGUE_BYTES_MAX, "the catalogue",
				    KV_ENOMEM, err);
	if (catalogue->fd < 0)
		return -1;
	if (map(catalogue, err) || catalogue_room(catalogue, CAT_HEAD_BYTES, err))
		goto fail;
	head_of(catalogue)->magic = CAT_MAGIC;
	head_of(catalogue)->version = CAT_VERSION;
	head_of(catalogue)->head_bytes = CAT_HEAD_BYTES;
	head_of(catalogue)->shm_version = KV_SHM_VERSION;
	catalogue->end_off = catalogue->write_off = CAT_HEAD_BYTES;
	catalogue->rewritten_end_off = CAT_HEAD_BYTES;
	atomic_store_explicit(&head_of(catalogue)->end_off, CAT_HEAD_BYTES, memory_order_release);
	return 0;
fail:
	catalogue_fini(catalogue);
	return -1;
}

static int damaged(struct errbuf *err, uint64_t off, const char *what)
{
	return errbuf_set(err, KV_ECORRUPT, "catalogue is damaged at offset %llu: %s",
			  (unsigned long long)off, what);
}

static int check_record(const struct catalogue *catalogue, uint64_t off, struct errbuf *err)
{
	const struct cat_record *record = (const void *)(catalogue->base + off);
	uint64_t left = catalogue->end_off - off;

	if (left < sizeof(*record))
		return damaged(err, off, "a record is cut off");
	if (record->magic != CAT_RECORD_MAGIC)
		return damaged(err, off, "no record begins here");
	if (record->n_bytes > CAT_PAYLOAD_MAX || sizeof(*record) + padded(record->n_bytes) > left)
		return damaged(err, off, "a record is longer than the catalogue");
	if (record->checksum != checksum_of(record))
		return damaged(err, off, "checksum differs");
	if (record->type == 0 || record->type > CAT_TYPE_MAX || record->version != 1)
		return errbuf_set(err, KV_EVERSION,
				  "catalogue has a record of type %u version %u at offset %llu, "
				  "which this version does not know",
				  record->type, record->version, (unsigned long long)off);
	return 0;
}

static uint64_t next_record(const struct catalogue *catalogue, uint64_t off)
{
	const struct cat_record *record = (const void *)(catalogue->base + off);

	return off + sizeof(*record) + padded(record->n_bytes);
}

static int check_head(struct catalogue *catalogue, struct errbuf *err)
{
	const struct cat_head *head = head_of(catalogue);
	uint64_t end = atomic_load_explicit(&head->end_off, memory_order_acquire);

	if (head->magic != CAT_MAGIC)
		return damaged(err, 0, "wrong magic");
	if (head->version != CAT_VERSION || head->head_bytes != CAT_HEAD_BYTES)
		return errbuf_set(err, KV_EVERSION, "catalogue has version %u, this is %u",
				  head->version, CAT_VERSION);
	if (head->shm_version != KV_SHM_VERSION)
		return errbuf_set(err, KV_EVERSION,
				  "catalogue is of control segments of version %u, this is %u",
				  head->shm_version, KV_SHM_VERSION);
	if (end < CAT_HEAD_BYTES || end > CATALOGUE_BYTES_MAX || end % 8)
		return damaged(err, offsetof(struct cat_head, end_off),
			       "end offset makes no sense");
	catalogue->end_off = catalogue->write_off = catalogue->rewritten_end_off = end;
	return 0;
}

int catalogue_adopt(struct catalogue *catalogue, int fd, struct errbuf *err)
{
	memset(catalogue, 0, sizeof(*catalogue));
	catalogue->fd = fd;
	if (sealed_check(fd, CATALOGUE_BYTES_MAX, "a catalogue", err) || map(catalogue, err) ||
	    check_head(catalogue, err))
		goto fail;
	for (uint64_t off = CAT_HEAD_BYTES; off < catalogue->end_off;
	     off = next_record(catalogue, off))
		if (check_record(catalogue, off, err))
			goto fail;
	catalogue->ready_off = catalogue->end_off & ~UINT64_C(4095); /* its page is there */
	return 0;
fail:
	catalogue_fini(catalogue);
	return -1;
}

void catalogue_fini(struct catalogue *catalogue)
{
	if (catalogue->base)
		munmap(catalogue->base, CATALOGUE_BYTES_MAX);
	catalogue->base = NULL;
	if (catalogue->fd >= 0)
		close(catalogue->fd);
	catalogue->fd = -1;
}

int catalogue_each(const struct catalogue *catalogue, catalogue_each_fn *each, void *arg,
		   struct errbuf *err)
{
	for (uint64_t off = CAT_HEAD_BYTES; off < catalogue->end_off;
	     off = next_record(catalogue, off)) {
		const struct cat_record *record = (const void *)(catalogue->base + off);

		if (each(arg, record->type, record + 1, record->n_bytes, err)) {
			errbuf_wrap(err, "record at offset %llu", (unsigned long long)off);
			return -1;
		}
	}
	return 0;
}

int catalogue_room(struct catalogue *catalogue, uint64_t n_bytes, struct errbuf *err)
{
	uint64_t need = catalogue->write_off + n_bytes;
	uint64_t grow;

	if (need <= catalogue->ready_off)
		return 0;
	if (n_bytes > CATALOGUE_BYTES_MAX || need > CATALOGUE_BYTES_MAX)
		return errbuf_set(err, KV_ENOMEM, "the catalogue is full (%llu bytes)",
				  (unsigned long long)catalogue->write_off);
	grow = (need - catalogue->ready_off + GROW_BYTES - 1) / GROW_BYTES * GROW_BYTES;
	if (grow > CATALOGUE_BYTES_MAX - catalogue->ready_off)
		grow = CATALOGUE_BYTES_MAX - catalogue->ready_off;
	/* pages and their mapping at once; a kernel older than that makes only the pages */
	if (madvise(catalogue->base + catalogue->ready_off, grow, MADV_POPULATE_WRITE) &&
	    fallocate(catalogue->fd, 0, (off_t)catalogue->ready_off, (off_t)grow))
		return errbuf_errno(err, KV_ENOMEM, errno,
				    "the catalogue cannot grow by %llu bytes; free memory or raise "
				    "the limit of the service",
				    (unsigned long long)grow);
	catalogue->ready_off += grow;
	return 0;
}

void *catalogue_add(struct catalogue *catalogue, enum cat_type type, size_t n_bytes)
{
	uint64_t whole = sizeof(struct cat_record) + padded(n_bytes);
	struct cat_record *record;

	if (catalogue->spoiled || n_bytes > CAT_PAYLOAD_MAX ||
	    catalogue_room(catalogue, whole, NULL)) {
		catalogue->spoiled = true;
		return NULL;
	}
	record = (void *)(catalogue->base + catalogue->write_off);
	memset((void *)record, 0, whole);
	record->magic = CAT_RECORD_MAGIC;
	record->n_bytes = (uint32_t)n_bytes;
	record->type = (uint16_t)type;
	record->version = 1;
	catalogue->write_off += whole;
	return record + 1;
}

int catalogue_commit(struct catalogue *catalogue)
{
	if (catalogue->spoiled) {
		catalogue_discard(catalogue);
		return -1;
	}
	for (uint64_t off = catalogue->end_off; off < catalogue->write_off;
	     off = next_record(catalogue, off)) {
		struct cat_record *record = (void *)(catalogue->base + off);

		record->checksum = checksum_of(record);
	}
	catalogue->end_off = catalogue->write_off;
	atomic_store_explicit(&head_of(catalogue)->end_off, catalogue->end_off,
			      memory_order_release);
	return 0;
}

void catalogue_discard(struct catalogue *catalogue)
{
	catalogue->write_off = catalogue->end_off;
	catalogue->spoiled = false;
}

bool catalogue_is_stale(const struct catalogue *catalogue)
{
	return catalogue->end_off > STALE_BYTES &&
	       catalogue->end_off / 2 > catalogue->rewritten_end_off;
}
