#include "daemon/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PEEK_TRIES 64

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
	if (segment->base == MAP_FAILED)
		return errbuf_errno(err, KV_ENOMEM, errno, "cannot map a control segment");
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
	segment->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (segment->fd < 0)
		return errbuf_errno(err, KV_ENOMEM, errno,
				    "memfd_create refused a control segment (is it blocked by a "
				    "sandbox?)");
	if (fchmod(segment->fd, 0600) || ftruncate(segment->fd, KV_SHM_BYTES) ||
	    fcntl(segment->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		errbuf_errno(err, KV_ENOMEM, errno, "cannot size and seal a control segment");
		goto fail;
	}
	if (map(segment, err))
		goto fail;
	fill_head(segment, session_id);
	return 0;
fail:
	close(segment->fd);
	segment->fd = -1;
	return -1;
}

int segment_adopt(struct segment *segment, int fd, struct errbuf *err)
{
	struct stat st;

	if (fstat(fd, &st) || (uint64_t)st.st_size != KV_SHM_BYTES)
		return errbuf_set(err, KV_EVERSION, "a kept control segment has another size");
	segment->fd = fd;
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

int segment_table_alloc(struct segment *segment, struct seg_place *place,
			const struct kv_layout *layout, struct errbuf *err)
{
	uint64_t most = place->max_tokens;

	if (layout->max_slots < most)
		most = layout->max_slots;
	place->n_groups = layout->n_groups;
	for (uint32_t g = 0; g < layout->n_groups; g++) {
		place->n_entries[g] = (uint32_t)kv_layout_blocks(layout, most);
		place->table_off[g] = take_space(segment, table_bytes(place->n_entries[g]));
		if (place->table_off[g])
			continue;
		place->n_groups = g;
		segment_table_free(segment, place);
		return errbuf_set(
			err, KV_ELIMIT,
			"the control segment has no room for a block table of %llu tokens; "
			"use a smaller max_tokens or free sequences",
			(unsigned long long)place->max_tokens);
	}
	return 0;
}

void segment_table_free(struct segment *segment, const struct seg_place *place)
{
	for (uint32_t g = 0; g < place->n_groups; g++)
		give_space(segment, place->table_off[g], table_bytes(place->n_entries[g]));
}

int segment_table_take(struct segment *segment, const struct seg_place *place, struct errbuf *err)
{
	for (uint32_t g = 0; g < place->n_groups; g++) {
		uint64_t off = place->table_off[g], bytes = table_bytes(place->n_entries[g]);
		uint64_t end = off + bytes;

		if (off < tables_off() || off % KV_SHM_PAGE || off > KV_SHM_BYTES ||
		    bytes > KV_SHM_BYTES - off)
			return errbuf_set(err, KV_EINVAL, "table outside of the control segment");
		if (end > segment->tables_end_off)
			segment->tables_end_off = end;
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

/* ---- places ------------------------------------------------------------------------------- */

static struct kv_shm_entry *entries(const struct segment *segment, const struct seg_place *place,
				    uint32_t g, unsigned copy)
{
	return kv_shm_entry(segment->base, place->table_off[g], place->n_entries[g], copy, 0);
}

void segment_place_spare(struct segment *segment, const struct seg_place *place)
{
	struct kv_shm_place *shm = segment_place(segment, place->index);

	memset((void *)shm, 0, offsetof(struct kv_shm_place, marks));
	shm->writer = place->writer;
	shm->n_groups = place->n_groups;
	shm->layout_id = place->layout_id;
	shm->seq_id = place->seq_id;
	shm->max_tokens = place->max_tokens;
	memcpy(shm->table_off, place->table_off, sizeof(shm->table_off));
	memcpy(shm->n_entries, place->n_entries, sizeof(shm->n_entries));
	atomic_store_explicit(&shm->freeze_count, 1, memory_order_release);
}

static void fill_tables(struct segment *segment, const struct seg_place *place,
			const struct seg_state *state, uint64_t stamp)
{
	for (uint32_t g = 0; g < place->n_groups; g++) {
		struct kv_shm_entry *table = entries(segment, place, g, 0);

		for (uint64_t i = 0; i < state->n_blocks[g]; i++) {
			uint64_t ref = state->refs[g][i];

			ref = kv_ref(0, kv_ref_arena(ref), kv_ref_block(ref));
			atomic_store_explicit(&table[i].ref, ref, memory_order_relaxed);
			atomic_store_explicit(&table[i].stamp, stamp, memory_order_relaxed);
		}
	}
}

static void fill_marks(struct kv_shm_place *shm, const struct seg_state *state)
{
	for (uint32_t i = 0; i < state->head.n_marks; i++) {
		struct kv_shm_mark *mark = &shm->marks[i];

		atomic_store_explicit(&mark->id, state->marks[i].id, memory_order_relaxed);
		atomic_store_explicit(&mark->update, state->marks[i].update, memory_order_relaxed);
		atomic_store_explicit(&mark->length_tokens, state->marks[i].length_tokens,
				      memory_order_relaxed);
		atomic_store_explicit(&mark->journal_end, state->marks[i].journal_end,
				      memory_order_relaxed);
	}
}

void segment_place_init(struct segment *segment, const struct seg_place *place,
			const struct kv_layout *layout, const struct seg_state *state,
			enum kv_head_state head_state, uint64_t base_id)
{
	struct kv_shm_place *shm = segment_place(segment, place->index);
	struct kv_head head = {.state = head_state};
	uint64_t stamp = kv_word_update(kv_word_load(segment_writer(segment, place->writer)));

	(void)layout;
	segment_place_spare(segment, place);
	atomic_store_explicit(&shm->base_id, base_id, memory_order_relaxed);
	if (state) {
		head = state->head;
		head.state = head_state;
		fill_tables(segment, place, state, stamp);
		fill_marks(shm, state);
	}
	kv_head_store(&shm->copy[0], &head, stamp);
}

/* ---- reading ------------------------------------------------------------------------------ */

static int read_head(const struct kv_shm_place *shm, const struct seg_place *place,
		     const struct kv_layout *layout, struct seg_state *state, struct errbuf *err)
{
	int c = kv_head_current(shm, state->update);
	uint64_t most = place->max_tokens;

	if (layout->max_slots < most)
		most = layout->max_slots;
	if (c < 0)
		return errbuf_set(err, KV_EINVAL, "sequence in place %u was never committed",
				  place->index);
	kv_head_load(&shm->copy[c], &state->head);
	state->stamp = atomic_load_explicit(&shm->copy[c].stamp, memory_order_relaxed);
	if (state->head.length_tokens > most || state->head.n_marks > KV_MARKS_MAX ||
	    state->head.state > KV_HEAD_SNAPSHOT)
		return errbuf_set(
			err, KV_EINVAL,
			"header in place %u makes no sense: length %llu of at most %llu, %u "
			"marks",
			place->index, (unsigned long long)state->head.length_tokens,
			(unsigned long long)most, state->head.n_marks);
	return 0;
}

static int read_marks(const struct kv_shm_place *shm, struct seg_state *state, struct errbuf *err)
{
	uint64_t before = 0;

	for (uint32_t i = 0; i < state->head.n_marks; i++) {
		const struct kv_shm_mark *mark = &shm->marks[i];
		struct seg_mark *out = &state->marks[i];

		out->id = atomic_load_explicit(&mark->id, memory_order_relaxed);
		out->update = atomic_load_explicit(&mark->update, memory_order_relaxed);
		out->length_tokens = atomic_load_explicit(&mark->length_tokens,
							  memory_order_relaxed);
		out->journal_end = atomic_load_explicit(&mark->journal_end, memory_order_relaxed);
		if (out->length_tokens < before || out->length_tokens > state->head.length_tokens)
			return errbuf_set(err, KV_EINVAL, "mark %u makes no sense", i);
		before = out->length_tokens;
	}
	return 0;
}

static int read_table(const struct segment *segment, const struct seg_place *place, uint32_t g,
		      struct seg_state *state, struct errbuf *err)
{
	const struct kv_shm_entry *t0 = entries(segment, place, g, 0);
	const struct kv_shm_entry *t1 = entries(segment, place, g, 1);
	uint64_t n = state->n_blocks[g];

	state->refs[g] = malloc((n ? n : 1) * sizeof(uint64_t));
	if (!state->refs[g])
		return errbuf_set(err, KV_ENOMEM, "no memory for a block table of %llu blocks",
				  (unsigned long long)n);
	for (uint64_t i = 0; i < n; i++) {
		int c = kv_stamps_current(&t0[i].stamp, &t1[i].stamp, state->update);

		if (c < 0)
			return errbuf_set(err, KV_EINVAL,
					  "block %llu of group %u in place %u was never committed",
					  (unsigned long long)i, g, place->index);
		state->refs[g][i] = atomic_load_explicit(c ? &t1[i].ref : &t0[i].ref,
							 memory_order_relaxed);
	}
	return 0;
}

int segment_read(const struct segment *segment, const struct seg_place *place,
		 const struct kv_layout *layout, uint64_t update, struct seg_state *state,
		 struct errbuf *err)
{
	const struct kv_shm_place *shm = segment_place(segment, place->index);

	memset(state, 0, sizeof(*state));
	state->update = update;
	if (read_head(shm, place, layout, state, err) || read_marks(shm, state, err))
		return -1;
	for (uint32_t g = 0; g < place->n_groups; g++) {
		state->n_slots[g] = state->head.length_tokens;
		state->n_blocks[g] = kv_layout_blocks(layout, state->n_slots[g]);
		if (read_table(segment, place, g, state, err)) {
			seg_state_fini(state);
			return -1;
		}
	}
	return 0;
}

void seg_state_fini(struct seg_state *state)
{
	for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) {
		free(state->refs[g]);
		state->refs[g] = NULL;
	}
}

int segment_peek(const struct segment *segment, uint32_t index, uint32_t writer,
		 struct kv_head *head, uint64_t *update)
{
	struct kv_shm_writer *w = segment_writer(segment, writer);
	const struct kv_shm_place *shm = segment_place(segment, index);

	for (int i = 0; i < PEEK_TRIES; i++) {
		uint64_t word = kv_word_load(w);
		int c = kv_head_current(shm, kv_word_update(word));

		if (c < 0) {
			*head = (struct kv_head){.state = KV_HEAD_NONE};
		} else {
			kv_head_load(&shm->copy[c], head);
		}
		/* An acquire fence keeps the loads above the second look at the word. */
		atomic_thread_fence(memory_order_acquire);
		*update = kv_word_update(word);
		if (kv_word_update(kv_word_load(w)) == *update)
			return 0;
	}
	return -EAGAIN;
}
