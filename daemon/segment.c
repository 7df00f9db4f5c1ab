#include "daemon/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/sealed.h"

/* What is written of a freed table stays in memory, zeroed, if it is not much: making its pages
 * anew is what costs most of a fork. */
#define WARM_TABLE_BYTES (UINT64_C(64) << 10)
#define WARM_BYTES (UINT64_C(1) << 20) /* of a segment */

/* Table space that was given back, to be found again by its size. */
struct seg_table_free {
	struct seg_table_free *next;
	uint64_t off, bytes;
	uint64_t warm_bytes; /* of its pages that are there */
};

static uint64_t round_page(uint64_t bytes)
{
	return (bytes + KV_SHM_PAGE - 1) & ~(uint64_t)(KV_SHM_PAGE - 1);
}

static const uint64_t writers_off = sizeof(struct kv_shm_head);
static const uint64_t arenas_off = sizeof(struct kv_shm_head) +
				   KV_WRITERS_MAX * sizeof(struct kv_shm_writer);

static uint64_t places_off(void)
{
	return round_page(arenas_off + KV_ARENAS_MAX * sizeof(uint64_t));
}

static uint64_t tables_off(void)
{
	return places_off() + KV_PLACES_MAX * sizeof(struct kv_shm_place);
}

static uint64_t table_bytes(uint32_t n_entries)
{
	return round_page(2 * (uint64_t)n_entries * sizeof(struct kv_shm_entry));
}

static int map(struct segment *segment, struct errbuf *err)
{
	segment->base = mmap(NULL, KV_SHM_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			     segment->fd, 0);
	if (segment->base == MAP_FAILED) {
		segment->base = NULL;
		return errbuf_errno(err, KV_ENOMEM, errno, "cannot map a control segment");
	}
	madvise(segment->base, KV_SHM_BYTES, MADV_DONTDUMP);
	segment->tables_end_off = tables_off();
	segment->free_tables = NULL;
	segment->warm_bytes = 0;
	return 0;
}

static void fill_head(struct segment *segment, uint64_t session_id)
{
	struct kv_shm_head *head = segment_head(segment);

	head->magic = KV_SHM_MAGIC;
	head->version = KV_SHM_VERSION;
	head->head_bytes = sizeof(*head);
	head->segment_bytes = KV_SHM_BYTES;
	head->session_id = session_id;
	head->n_writers = KV_WRITERS_MAX;
	head->n_places = KV_PLACES_MAX;
	head->n_arenas = KV_ARENAS_MAX;
	head->place_bytes = sizeof(struct kv_shm_place);
	head->writers_off = writers_off;
	head->arenas_off = arenas_off;
	head->places_off = places_off();
	head->tables_off = tables_off();
}

int segment_make(struct segment *segment, uint64_t session_id, struct errbuf *err)
{
	char name[64];

	snprintf(name, sizeof(name), "kvc-control-%llu", (unsigned long long)session_id);
	segment->fd = sealed_make(name, KV_SHM_BYTES, "a control segment", KV_ENOMEM, err);
	if (segment->fd < 0)
		return -1;
	if (map(segment, err)) {
		close(segment->fd);
		segment->fd = -1;
		return -1;
	}
	fill_head(segment, session_id);
	return 0;
}

int segment_adopt(struct segment *segment, int fd, struct errbuf *err)
{
	segment->fd = fd;
	if (sealed_check(fd, KV_SHM_BYTES, "a control segment", err))
		return -1;
	return map(segment, err);
}

void segment_fini(struct segment *segment)
{
	while (segment->free_tables) {
		struct seg_table_free *next = segment->free_tables->next;

		free(segment->free_tables);
		segment->free_tables = next;
	}
	if (segment->base)
		munmap(segment->base, KV_SHM_BYTES);
	segment->base = NULL;
	if (segment->fd >= 0)
		close(segment->fd);
	segment->fd = -1;
}

uint64_t segment_resident_bytes(const struct segment *segment)
{
	struct stat st;

	return fstat(segment->fd, &st) ? 0 : (uint64_t)st.st_blocks * 512;
}

struct kv_shm_writer *segment_writer(const struct segment *segment, uint32_t writer)
{
	assert(writer < KV_WRITERS_MAX);
	return (struct kv_shm_writer *)((char *)segment->base + writers_off) + writer;
}

struct kv_shm_place *segment_place(const struct segment *segment, uint32_t index)
{
	assert(index < KV_PLACES_MAX);
	return (struct kv_shm_place *)((char *)segment->base + places_off()) + index;
}

void segment_set_arena(struct segment *segment, uint32_t arena, uint64_t arena_id)
{
	_Atomic uint64_t *ids = (void *)((char *)segment->base + arenas_off);

	assert(arena < KV_ARENAS_MAX);
	atomic_store_explicit(&ids[arena], arena_id, memory_order_release);
}

void segment_writer_init(struct segment *segment, uint32_t writer)
{
	struct kv_shm_writer *w = segment_writer(segment, writer);

	/* of the writer before: its numbers begin anew with the word's */
	atomic_store_explicit(&w->decided, 0, memory_order_relaxed);
	atomic_store_explicit(&w->word, kv_word(KV_IDLE, 0, 1), memory_order_release);
	atomic_store_explicit(&w->in_use, 1, memory_order_release);
}

/* ---- table space -------------------------------------------------------------------------- */

static uint64_t take_free(struct segment *segment, uint64_t bytes)
{
	for (struct seg_table_free **at = &segment->free_tables; *at; at = &(*at)->next) {
		struct seg_table_free *found = *at;
		uint64_t off = found->off;

		if (found->bytes != bytes)
			continue;
		*at = found->next;
		segment->warm_bytes -= found->warm_bytes;
		free(found);
		return off;
	}
	return 0;
}

static uint64_t take_space(struct segment *segment, uint64_t bytes)
{
	uint64_t off = take_free(segment, bytes);

	if (off)
		return off;
	if (bytes > KV_SHM_BYTES - segment->tables_end_off)
		return 0;
	off = segment->tables_end_off;
	segment->tables_end_off += bytes;
	return off;
}

/* Zeroes the pages of a table that are there, unless they are more than max_bytes (false). */
static bool zero_pages(const struct segment *segment, uint64_t off, uint64_t end,
		       uint64_t max_bytes, uint64_t *n_bytes)
{
	*n_bytes = 0;
	for (;;) {
		off_t data = lseek(segment->fd, (off_t)off, SEEK_DATA);
		off_t hole;

		if (data < 0 || (uint64_t)data >= end)
			return data >= 0 || errno == ENXIO;
		hole = lseek(segment->fd, data, SEEK_HOLE);
		if (hole < 0)
			return false;
		off = (uint64_t)hole < end ? (uint64_t)hole : end;
		*n_bytes += off - (uint64_t)data;
		if (*n_bytes > max_bytes)
			return false;
		memset((char *)segment->base + data, 0, off - (uint64_t)data);
	}
}

/* Zero again for the next user, and little memory held meanwhile. */
static uint64_t zero_table(const struct segment *segment, uint64_t off, uint64_t bytes)
{
	uint64_t left = WARM_BYTES - segment->warm_bytes, n_warm;

	if (left > WARM_TABLE_BYTES)
		left = WARM_TABLE_BYTES;
	if (zero_pages(segment, off, off + bytes, left, &n_warm))
		return n_warm;
	if (fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
		      (off_t)bytes))
		memset((char *)segment->base + off, 0, bytes);
	return 0;
}

static void give_space(struct segment *segment, uint64_t off, uint64_t bytes)
{
	struct seg_table_free *space = malloc(sizeof(*space));
	uint64_t n_warm = zero_table(segment, off, bytes);

	if (!space)
		return; /* the room is lost until the session ends */
	*space = (struct seg_table_free){segment->free_tables, off, bytes, n_warm};
	segment->free_tables = space;
	segment->warm_bytes += n_warm;
}

uint32_t segment_n_entries(const struct kv_layout *layout, uint32_t group, uint64_t max_tokens)
{
	switch (layout->groups[group].kind) {
	case KV_GROUP_JOURNAL: return KV_JOURNAL_BLOCKS_MAX;
	case KV_GROUP_STATES: return KV_STATES_MAX;
	default:
		return (uint32_t)kv_layout_blocks(layout,
						  kv_layout_slots(layout, group, max_tokens));
	}
}

/* The tables of a place lie in one piece: a fork finds, and gives back, one room and not ten. */
static uint64_t tables_bytes(const struct seg_place *place)
{
	uint64_t bytes = 0;

	for (uint32_t g = 0; g < place->n_groups; g++)
		bytes += table_bytes(place->n_entries[g]);
	return bytes;
}

int segment_table_alloc(struct segment *segment, struct seg_place *place,
			const struct kv_layout *layout, struct errbuf *err)
{
	uint64_t off;

	place->n_groups = layout->n_groups;
	for (uint32_t g = 0; g < layout->n_groups; g++)
		place->n_entries[g] = segment_n_entries(layout, g, place->max_tokens);
	off = take_space(segment, tables_bytes(place));
	if (!off)
		return errbuf_set(
			err, KV_ELIMIT,
			"the control segment has no room for a block table of %llu tokens; "
			"use a smaller max_tokens or free sequences",
			(unsigned long long)place->max_tokens);
	for (uint32_t g = 0; g < layout->n_groups; g++) {
		place->table_off[g] = off;
		off += table_bytes(place->n_entries[g]);
	}
	return 0;
}

void segment_table_free(struct segment *segment, const struct seg_place *place)
{
	give_space(segment, place->table_off[0], tables_bytes(place));
}

int segment_table_take(struct segment *segment, const struct seg_place *place, struct errbuf *err)
{
	uint64_t off = place->table_off[0], bytes = tables_bytes(place);

	if (off < tables_off() || off % KV_SHM_PAGE || off > KV_SHM_BYTES ||
	    bytes > KV_SHM_BYTES - off)
		return errbuf_set(err, KV_EINVAL, "table outside of the control segment");
	if (off + bytes > segment->tables_end_off)
		segment->tables_end_off = off + bytes;
	for (uint32_t g = 0; g < place->n_groups; g++) {
		if (place->table_off[g] != off)
			return errbuf_set(err, KV_EINVAL, "tables that are not in one piece");
		off += table_bytes(place->n_entries[g]);
	}
	return 0;
}

int segment_tables_taken(struct segment *segment, struct errbuf *err)
{
	uint64_t off = segment->tables_end_off;

	if (fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
		      (off_t)(KV_SHM_BYTES - off)))
		return errbuf_errno(err, KV_EINTERNAL, errno,
				    "cannot zero what is free of a control segment");
	return 0;
}
