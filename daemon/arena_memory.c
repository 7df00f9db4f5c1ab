/* The memory of arenas: making, sealing, prefaulting, reading. Books are in daemon/arena.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/arena.h"
#include "daemon/sealed.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

uint32_t arena_capacity(const struct kv_layout *layout, uint32_t group, uint64_t most_bytes)
{
	uint64_t n = most_bytes / layout->groups[group].block_bytes;

	if (n > GREF_BLOCK_MAX)
		n = GREF_BLOCK_MAX;
	return n ? (uint32_t)n : 1;
}

/* The kernel's word on huge pages in shared memory, the one in brackets. */
static void read_shmem_enabled(char *out, size_t n_out)
{
	char text[128] = "";
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
	char *begin, *end;

	snprintf(out, n_out, "unknown");
	if (!file)
		return;
	if (fgets(text, sizeof(text), file) && (begin = strchr(text, '[')) &&
	    (end = strchr(begin, ']'))) {
		*end = '\0';
		snprintf(out, n_out, "%s", begin + 1);
	}
	fclose(file);
}

static void advise_huge(struct arena *arena, struct arena_memory *memory)
{
	char enabled[32];

	if (!memory->want_huge) {
		snprintf(memory->huge_text, sizeof(memory->huge_text), "no");
		return;
	}
	read_shmem_enabled(enabled, sizeof(enabled));
	memory->got_huge = madvise(arena->base, arena->n_bytes, MADV_HUGEPAGE) == 0 &&
			   strcmp(enabled, "never") != 0 && strcmp(enabled, "deny") != 0 &&
			   strcmp(enabled, "unknown") != 0;
	snprintf(memory->huge_text, sizeof(memory->huge_text),
		 memory->got_huge ? "try: got them (shmem_enabled is %s)" :
				    "try: not here (shmem_enabled is %s)",
		 enabled);
}

static int make_fd(struct arena *arena, struct errbuf *err)
{
	char name[64];

	snprintf(name, sizeof(name), "kvc-arena-%llu", (unsigned long long)arena->id);
	arena->fd = sealed_make(name, arena->n_bytes, "an arena", KV_EPOOL, err);
	return arena->fd < 0 ? -1 : 0;
}

static int check_fd(const struct arena *arena, struct errbuf *err)
{
	char what[64];

	snprintf(what, sizeof(what), "arena %llu", (unsigned long long)arena->id);
	return sealed_check(arena->fd, arena->n_bytes, what, err);
}

static int map(struct arena *arena, struct errbuf *err)
{
	void *base = mmap(NULL, arena->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			  arena->fd, 0);

	if (base == MAP_FAILED)
		return errbuf_errno(err, KV_EPOOL, errno, "cannot map an arena of %llu bytes",
				    (unsigned long long)arena->n_bytes);
	madvise(base, arena->n_bytes, MADV_DONTDUMP);
	madvise(base, arena->n_bytes, MADV_DONTFORK);
	arena->base = base;
	return 0;
}

static int make_books(struct arena *arena, struct errbuf *err)
{
	size_t words = arena->n_blocks / 64 + 1;

	arena->used = calloc(words, sizeof(uint64_t));
	arena->granted = calloc(words, sizeof(uint64_t));
	arena->dirty = calloc(words, sizeof(uint64_t));
	arena->warm = calloc(words, sizeof(uint64_t));
	arena->pins = calloc(arena->n_blocks, sizeof(arena->pins[0]));
	if (!arena->used || !arena->granted || !arena->dirty || !arena->warm || !arena->pins)
		return errbuf_set(err, KV_ENOMEM, "no memory for the books of %u blocks",
				  arena->n_blocks);
	return 0;
}

static struct arena *take_spec(const struct arena_spec *spec, int fd, struct errbuf *err)
{
	const struct kv_group *group = &spec->layout->groups[spec->group];
	struct arena *arena = calloc(1, sizeof(*arena));

	if (!arena) {
		errbuf_set(err, KV_ENOMEM, "no memory for an arena");
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	arena->id = spec->id;
	arena->session_id = spec->session_id;
	arena->layout_id = spec->layout_id;
	arena->layout = spec->layout;
	arena->group = spec->group;
	arena->n_blocks = spec->n_blocks;
	arena->block_bytes = group->block_bytes;
	arena->fd = fd;
	arena->readonly_fd = -1;
	arena->region_off = calloc(group->n_regions, sizeof(uint64_t));
	if (arena->region_off)
		arena->n_bytes = kv_layout_arena(spec->layout, spec->group, spec->n_blocks,
						 arena->region_off);
	if (arena->n_bytes)
		return arena;
	errbuf_set(err, KV_ETOOBIG, "an arena of %u blocks of %llu bytes is too big",
		   spec->n_blocks, (unsigned long long)group->block_bytes);
	arena_free(arena);
	return NULL;
}

struct arena *arena_new(const struct arena_spec *spec, int fd, struct pool *pool,
			struct pool_user *user, struct arena_memory *memory, struct errbuf *err)
{
	struct arena *arena = take_spec(spec, fd, err);

	if (!arena)
		return NULL;
	arena->pool = pool;
	arena->user = user;
	if ((fd < 0 ? make_fd(arena, err) : check_fd(arena, err)) || map(arena, err) ||
	    make_books(arena, err)) {
		arena_free(arena);
		return NULL;
	}
	advise_huge(arena, memory);
	arena->is_huge = memory->got_huge;
	return arena;
}

void arena_free(struct arena *arena)
{
	if (!arena)
		return;
	if (arena->pool)
		arena->pool->warm_bytes -= arena->n_warm * arena->block_bytes;
	if (arena->base)
		munmap(arena->base, arena->n_bytes);
	if (arena->fd >= 0)
		close(arena->fd);
	if (arena->readonly_fd >= 0)
		close(arena->readonly_fd);
	free(arena->region_off);
	free(arena->used);
	free(arena->granted);
	free(arena->dirty);
	free(arena->warm);
	free(arena->pins);
	free(arena->digests);
	free(arena->digest_known);
	free(arena);
}

int arena_readonly(struct arena *arena, struct errbuf *err)
{
	char path[64];

	if (arena->readonly_fd >= 0)
		return arena->readonly_fd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", arena->fd);
	arena->readonly_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (arena->readonly_fd < 0)
		return errbuf_errno(err, KV_EUNSUPPORTED, errno,
				    "cannot open %s for reading only, so memory cannot be shared "
				    "with other sessions; mount /proc for kvcached",
				    path);
	return arena->readonly_fd;
}

/* Zeros where zeros are: pages that hold something, and so are seen by SEEK_DATA, are made without
 * being mapped. (fallocate makes pages that a look for data passes over until they are written.) */
static int write_zeros(const struct arena *arena, uint64_t off, uint64_t n)
{
	static const char zeros[64u << 10];

	while (n) {
		ssize_t put = pwrite(arena->fd, zeros, n < sizeof(zeros) ? n : sizeof(zeros),
				     (off_t)off);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return -1;
		off += (uint64_t)put;
		n -= (uint64_t)put;
	}
	return 0;
}

/* Memory behind [off, off + n) of the arena, whose blocks nobody has written yet. */
static int populate(const struct arena *arena, uint64_t off, uint64_t n, struct errbuf *err)
{
	uint64_t from = off & ~(uint64_t)(KV_ARENA_PAGE - 1);
	uint64_t to = (off + n + KV_ARENA_PAGE - 1) & ~(uint64_t)(KV_ARENA_PAGE - 1);

	if (to > arena->n_bytes)
		to = arena->n_bytes;
	if (arena->is_huge && madvise(arena->base + from, to - from, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (write_zeros(arena, off, n) == 0)
		return 0;
	return errbuf_errno(
		err, KV_EPOOL, errno,
		"the machine has no memory for %llu more bytes of the pool; free memory "
		"or make the pool smaller",
		(unsigned long long)n);
}

int arena_prefault_step(struct arena_prefault *p, uint64_t max_bytes, struct errbuf *err)
{
	const struct arena *arena = p->arena;
	const struct kv_group *group = &arena->layout->groups[arena->group];
	uint64_t chunk = max_bytes / arena->block_bytes;
	uint64_t left = max_bytes;

	while (left && p->done_blocks < p->n_blocks) {
		uint32_t piece =
			arena->layout->regions[group->first_region + p->region].piece_bytes;
		uint64_t n_blocks = p->n_blocks - p->done_blocks;
		uint64_t n_bytes, step;

		if (n_blocks > (chunk ? chunk : 1))
			n_blocks = chunk ? chunk : 1;
		n_bytes = n_blocks * piece - p->off;
		step = n_bytes < left ? n_bytes : left;
		if (populate(arena,
			     arena->region_off[p->region] +
				     (uint64_t)(p->first + p->done_blocks) * piece + p->off,
			     step, err))
			return -1;
		left -= step;
		p->off += step;
		if (step < n_bytes)
			return 0;
		p->off = 0;
		if (++p->region < group->n_regions)
			continue;
		p->region = 0;
		p->done_blocks += (uint32_t)n_blocks;
	}
	return p->done_blocks == p->n_blocks;
}

static uint64_t piece_off(const struct arena *arena, uint32_t block, uint32_t region)
{
	const struct kv_group *group = &arena->layout->groups[arena->group];
	const struct kv_region *r = &arena->layout->regions[group->first_region + region];

	return arena->region_off[region] + (uint64_t)block * r->piece_bytes;
}

int arena_read(const struct arena *arena, uint32_t block, uint32_t region, uint64_t off,
	       size_t n_bytes, void *out, struct errbuf *err)
{
	char *at = out;

	off += piece_off(arena, block, region);
	while (n_bytes) {
		ssize_t got = pread(arena->fd, at, n_bytes, (off_t)off);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return errbuf_errno(err, KV_ECORRUPT, got ? errno : EIO,
					    "reading block %u of arena %llu", block,
					    (unsigned long long)arena->id);
		at += got;
		off += (uint64_t)got;
		n_bytes -= (size_t)got;
	}
	return 0;
}

int arena_write(const struct arena *arena, uint32_t block, uint32_t region, uint64_t off,
		size_t n_bytes, const void *bytes, struct errbuf *err)
{
	const char *at = bytes;

	off += piece_off(arena, block, region);
	while (n_bytes) {
		ssize_t put = pwrite(arena->fd, at, n_bytes, (off_t)off);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return errbuf_errno(err, KV_EPOOL, put ? errno : EIO,
					    "writing block %u of arena %llu", block,
					    (unsigned long long)arena->id);
		at += put;
		off += (uint64_t)put;
		n_bytes -= (size_t)put;
	}
	return 0;
}

void arena_unmap_pages(const struct arena *arena)
{
	madvise(arena->base, arena->n_bytes, MADV_DONTNEED);
}

uint64_t arena_resident_bytes(const struct arena *arena)
{
	struct stat st;

	return fstat(arena->fd, &st) ? 0 : (uint64_t)st.st_blocks * 512;
}
