/*
 * Arenas and pool: books against a shadow, seals, memory that is zero again, accounts that add up.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/arena.h"
#include "tests/support/runner.h"

#define N_BLOCKS 200u

struct fixture {
	struct kv_layout *layout;
	struct pool pool;
	struct pool_user *user;
	struct arena_memory memory;
	struct arena *arena;
};

/* Two layers of one head, K 8 and V 4 elements of f32, 4 tokens a block: pieces of 128 and 64
 * bytes, so that pages are shared by many blocks. `wide`: pieces of whole pages. */
static struct kv_layout *make_layout(bool wide)
{
	struct kv_layout *layout = calloc(1, sizeof(*layout));

	assert_non_null(layout);
	layout->fingerprint[0] = 1;
	layout->dtype = KV_DTYPE_F32;
	layout->k_format = layout->v_format = KV_FORMAT_RAW;
	layout->block_tokens = 4;
	layout->n_layers = 2;
	layout->layers = calloc(2, sizeof(layout->layers[0]));
	for (int i = 0; i < 2; i++)
		layout->layers[i] = (struct kv_layer){1, wide ? 512 : 8, wide ? 256 : 4, 0};
	assert_int_equal(kv_layout_check(layout, NULL), 0);
	assert_int_equal(kv_layout_derive(layout, NULL), 0);
	return layout;
}

static void begin(struct fixture *f, bool wide)
{
	struct arena_spec spec = {.id = 7, .session_id = 3, .layout_id = 1, .n_blocks = N_BLOCKS};

	memset(f, 0, sizeof(*f));
	f->layout = make_layout(wide);
	spec.layout = f->layout;
	pool_init(&f->pool, N_BLOCKS * f->layout->groups[0].block_bytes, 0);
	f->user = pool_user(&f->pool, 1000);
	f->arena = arena_new(&spec, -1, &f->pool, f->user, &f->memory, NULL);
	assert_non_null(f->arena);
}

static void end(struct fixture *f)
{
	arena_free(f->arena);
	pool_fini(&f->pool);
	kv_layout_free(f->layout);
}

static void prefault(struct fixture *f, uint32_t first, uint32_t n)
{
	struct arena_prefault p = {.arena = f->arena, .first = first, .n_blocks = n};
	int rc;

	do
		rc = arena_prefault_step(&p, 5000, NULL);
	while (rc == 0);
	assert_int_equal(rc, 1);
}

/* Fills or checks all bytes of a block through the mapping that a client would have. */
static char *piece(struct fixture *f, uint32_t block, uint32_t r)
{
	return f->arena->base + f->arena->region_off[r] +
	       (uint64_t)block * f->layout->regions[r].piece_bytes;
}

static void fill(struct fixture *f, uint32_t block, int value)
{
	for (uint32_t r = 0; r < f->layout->groups[0].n_regions; r++)
		memset(piece(f, block, r), value, f->layout->regions[r].piece_bytes);
}

static void assert_filled(struct fixture *f, uint32_t block, int value)
{
	for (uint32_t r = 0; r < f->layout->groups[0].n_regions; r++)
		for (uint32_t i = 0; i < f->layout->regions[r].piece_bytes; i++)
			assert_int_equal((unsigned char)piece(f, block, r)[i], value);
}

static void test_sealed(void **state)
{
	struct fixture f;
	struct stat st;
	int fd, seals;

	(void)state;
	begin(&f, false);
	fd = f.arena->fd;
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, (off_t)f.arena->n_bytes * 2), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	seals = fcntl(fd, F_GET_SEALS);
	assert_int_equal(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	end(&f);
}

static void test_readonly(void **state)
{
	struct fixture f;
	int fd;
	void *map;

	(void)state;
	begin(&f, false);
	fd = arena_readonly(f.arena, NULL);
	assert_true(fd >= 0);
	assert_int_equal(arena_readonly(f.arena, NULL), fd);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(mprotect(map, 4096, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	munmap(map, 4096);
	end(&f);
}

static void zero_again(bool wide)
{
	struct fixture f;

	begin(&f, wide);
	arena_grant(f.arena, 0, 30);
	prefault(&f, 0, 30);
	for (uint32_t b = 0; b < 30; b++)
		fill(&f, b, 0xa5);
	arena_ungrant(f.arena, 10, 7);
	assert_int_equal(f.pool.class_bytes[BLOCK_QUARANTINED], 7 * f.arena->block_bytes);
	while (arena_scrub(f.arena, f.arena->block_bytes))
		;
	assert_int_equal(f.pool.class_bytes[BLOCK_QUARANTINED], 0);
	for (uint32_t b = 0; b < 30; b++)
		assert_filled(&f, b, b >= 10 && b < 17 ? 0 : 0xa5);
	assert_int_equal(arena_find(f.arena, 7), 10);
	assert_int_equal(arena_find(f.arena, 8), 30);
	end(&f);
}

static void test_zero_again(void **state)
{
	(void)state;
	zero_again(false);
	zero_again(true);
}

static void test_pages_go_back(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, false);
	assert_int_equal(arena_resident_bytes(f.arena), 0);
	arena_grant(f.arena, 0, N_BLOCKS);
	prefault(&f, 0, N_BLOCKS);
	assert_true(arena_resident_bytes(f.arena) >= N_BLOCKS * f.arena->block_bytes);
	for (uint32_t b = 0; b < N_BLOCKS; b += 2)
		arena_ungrant(f.arena, b, 1);
	arena_scrub(f.arena, UINT64_MAX);
	for (uint32_t b = 1; b < N_BLOCKS; b += 2)
		arena_ungrant(f.arena, b, 1);
	arena_scrub(f.arena, UINT64_MAX);
	assert_int_equal(arena_resident_bytes(f.arena), 0);
	assert_true(arena_is_empty(f.arena));
	end(&f);
}

static void test_prefault_puts_pages_there(void **state)
{
	struct fixture f;
	unsigned char *present;
	size_t n;

	(void)state;
	begin(&f, true);
	n = f.arena->n_bytes / 4096;
	present = calloc(n, 1);
	arena_grant(f.arena, 20, 3);
	prefault(&f, 20, 3);
	assert_int_equal(arena_resident_bytes(f.arena), 3 * f.arena->block_bytes);
	assert_int_equal(mincore(f.arena->base, f.arena->n_bytes, present), 0);
	for (uint32_t r = 0; r < f.layout->groups[0].n_regions; r++)
		assert_int_equal(present[(size_t)(piece(&f, 22, r) - f.arena->base) / 4096] & 1, 1);
	free(present);
	end(&f);
}

static void test_quarantine(void **state)
{
	struct fixture f;
	uint64_t block = 0;

	(void)state;
	begin(&f, false);
	block = f.arena->block_bytes;
	arena_grant(f.arena, 0, 10);
	arena_pin(f.arena, 3, 1);
	arena_end(f.arena);
	assert_int_equal(f.pool.class_bytes[BLOCK_CACHED], block);
	assert_int_equal(f.pool.class_bytes[BLOCK_QUARANTINED], 9 * block);
	assert_int_equal(arena_scrub(f.arena, UINT64_MAX), 0);
	assert_int_equal(f.pool.class_bytes[BLOCK_QUARANTINED], 9 * block);
	arena_unpin(f.arena, 3, 1);
	assert_int_equal(f.pool.class_bytes[BLOCK_QUARANTINED], 10 * block);
	f.arena->writer = ARENA_GONE;
	arena_scrub(f.arena, UINT64_MAX);
	assert_int_equal(f.pool.class_bytes[BLOCK_FREE], f.pool.total_bytes);
	assert_int_equal(f.user->used_bytes, 0);
	end(&f);
}

static void test_read(void **state)
{
	struct fixture f;
	char row[64];

	(void)state;
	begin(&f, false);
	arena_grant(f.arena, 5, 1);
	prefault(&f, 5, 1);
	for (uint32_t i = 0; i < 64; i++)
		piece(&f, 5, 1)[i] = (char)i;
	assert_int_equal(arena_read(f.arena, 5, 1, 0, 48, row, NULL), 0);
	for (uint32_t i = 0; i < 48; i++)
		assert_int_equal(row[i], i);
	/* a hole in it reads as zeros */
	assert_int_equal(fallocate(f.arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   (off_t)f.arena->n_bytes),
			 0);
	assert_int_equal(arena_read(f.arena, 5, 1, 16, 48, row, NULL), 0);
	assert_int_equal(row[47], 0);
	end(&f);
}

static void test_digests_go_with_the_last_pin(void **state)
{
	struct fixture f;
	struct kv_block_digest digest = {{1, 2, 3}};

	(void)state;
	begin(&f, false);
	arena_grant(f.arena, 0, 2);
	arena_pin(f.arena, 1, 1);
	arena_pin(f.arena, 1, 1);
	assert_null(arena_digest(f.arena, 1));
	assert_int_equal(arena_digest_set(f.arena, 1, &digest), 0);
	assert_memory_equal(arena_digest(f.arena, 1), &digest, sizeof(digest));
	arena_unpin(f.arena, 1, 1);
	assert_non_null(arena_digest(f.arena, 1));
	arena_unpin(f.arena, 1, 1);
	assert_null(arena_digest(f.arena, 1));
	end(&f);
}

/* ---- the shadow --------------------------------------------------------------------------- */

struct shadow {
	bool granted[N_BLOCKS];
	unsigned pins[N_BLOCKS];
	bool dirty[N_BLOCKS];
};

static void compare(const struct fixture *f, const struct shadow *s)
{
	uint64_t n[BLOCK_CLASSES] = {0};
	uint64_t sum = 0;

	for (uint32_t b = 0; b < N_BLOCKS; b++) {
		enum block_class c = s->granted[b] ? BLOCK_GRANTED :
				     s->pins[b]    ? BLOCK_CACHED :
				     s->dirty[b]   ? BLOCK_QUARANTINED :
						     BLOCK_FREE;

		n[c]++;
		assert_int_equal(arena_has_granted(f->arena, b), s->granted[b]);
		assert_int_equal(arena_free_at(f->arena, b, 1), c == BLOCK_FREE);
	}
	for (int c = 0; c < BLOCK_CLASSES; c++) {
		assert_int_equal(f->pool.class_bytes[c], n[c] * f->arena->block_bytes);
		sum += f->pool.class_bytes[c];
	}
	assert_int_equal(sum, f->pool.total_bytes);
	assert_int_equal(f->user->used_bytes, sum - f->pool.class_bytes[BLOCK_FREE]);
}

static void step(struct fixture *f, struct shadow *s, unsigned *seed)
{
	uint32_t b = (uint32_t)rand_r(seed) % N_BLOCKS;
	uint32_t n = (uint32_t)rand_r(seed) % 9 + 1;
	int64_t first;

	switch (rand_r(seed) % 5) {
	case 0:
		first = arena_find(f->arena, n);
		if (first < 0)
			break;
		arena_grant(f->arena, (uint32_t)first, n);
		for (uint32_t i = (uint32_t)first; i < first + n; i++) {
			assert_true(!s->granted[i] && !s->pins[i] && !s->dirty[i]);
			s->granted[i] = true;
		}
		break;
	case 1:
		if (!arena_is_granted(f->arena, b, n))
			break;
		arena_ungrant(f->arena, b, n);
		for (uint32_t i = b; i < b + n; i++) {
			assert_true(s->granted[i]);
			s->granted[i] = false;
			s->dirty[i] = s->pins[i] == 0;
		}
		break;
	case 2:
		if (!s->granted[b] && !s->pins[b])
			break;
		arena_pin(f->arena, b, 1);
		s->pins[b]++;
		break;
	case 3:
		if (!s->pins[b])
			break;
		arena_unpin(f->arena, b, 1);
		if (--s->pins[b] == 0 && !s->granted[b])
			s->dirty[b] = true;
		break;
	default:
		if (rand_r(seed) % 4)
			break;
		arena_scrub(f->arena, UINT64_MAX);
		memset(s->dirty, 0, sizeof(s->dirty));
	}
}

static void test_random(void **state)
{
	struct fixture f;
	struct shadow s = {0};
	unsigned seed = 20;

	(void)state;
	begin(&f, false);
	for (int i = 0; i < 20000; i++) {
		step(&f, &s, &seed);
		compare(&f, &s);
	}
	end(&f);
}

/* ---- pool --------------------------------------------------------------------------------- */

static void test_limits(void **state)
{
	struct pool pool;
	struct pool_user *a, *b;
	struct errbuf err = {0};

	(void)state;
	pool_init(&pool, 1000, 600);
	a = pool_user(&pool, 1);
	b = pool_user(&pool, 2);
	assert_ptr_equal(pool_user(&pool, 1), a);
	assert_int_equal(pool_check(&pool, a, 600, &err), 0);
	assert_int_equal(pool_check(&pool, a, 601, &err), -1);
	assert_int_equal(err.status, KV_EQUOTA);
	pool_move(&pool, a, BLOCK_FREE, BLOCK_GRANTED, 600);
	assert_int_equal(pool_check(&pool, a, 1, &err), -1);
	assert_int_equal(pool_check(&pool, b, 400, &err), 0);
	assert_int_equal(pool_check(&pool, b, 401, &err), -1);
	assert_int_equal(err.status, KV_EPOOL);
	assert_non_null(strstr(err.text, "400 of 1000 free"));
	pool_move(&pool, a, BLOCK_GRANTED, BLOCK_FREE, 600);
	assert_int_equal(a->used_bytes, 0);
	pool_fini(&pool);
}

static void test_gauges(void **state)
{
	struct pool pool;
	struct pool_gauges g;

	(void)state;
	pool_init(&pool, 1000, 0);
	pool_move(&pool, pool_user(&pool, 1), BLOCK_FREE, BLOCK_GRANTED, 300);
	pool_gauges(&pool, 100, &g);
	assert_int_equal(g.live_bytes, 200);
	assert_int_equal(g.reserved_bytes, 100);
	pool_gauges(&pool, UINT64_MAX, &g);
	assert_int_equal(g.live_bytes, 0);
	assert_int_equal(g.live_bytes + g.reserved_bytes + g.cached_bytes + g.quarantined_bytes +
				 g.free_bytes,
			 g.total_bytes);
	pool_fini(&pool);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("an arena is sealed and private from birth", test_sealed),
	KT_TEST("a reader's descriptor cannot be made to write", test_readonly),
	KT_TEST("a block that was given back is zero, its neighbours are untouched",
		test_zero_again),
	KT_TEST("pages that blocks share go back with the last block", test_pages_go_back),
	KT_TEST("prefaulting puts pages behind the blocks and no others",
		test_prefault_puts_pages_there),
	KT_TEST("blocks of an ended session wait until its process has gone", test_quarantine),
	KT_TEST("reading gives rows, and zeros for a hole", test_read),
	KT_TEST("a block's digest is forgotten with its last pin",
		test_digests_go_with_the_last_pin),
	KT_TEST("books and accounts equal a shadow over 20,000 random steps", test_random),
	KT_TEST("quota and pool are refused one byte over, with the numbers", test_limits),
	KT_TEST("gauges add up whatever a session claims", test_gauges),
};

KT_MAIN(tests)
