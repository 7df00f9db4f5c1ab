/*
 * Block digests: what wider instructions give is what libxxhash gives, for blocks of one piece and
 * of several, of every length.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/digest.h"
#include "tests/support/runner.h"

#define PIECE_BYTES 5000u
#define N_PIECES 3u

/* libxxhash's own words for it, bit by bit. */
static void expected(const char *const *pieces, uint32_t n_pieces, size_t n_bytes, uint8_t out[16])
{
	XXH3_state_t *state = XXH3_createState();
	XXH128_canonical_t canonical;

	assert_non_null(state);
	XXH3_128bits_reset(state);
	for (uint32_t i = 0; i < n_pieces; i++)
		for (size_t off = 0; off < n_bytes; off += 100)
			XXH3_128bits_update(state, pieces[i] + off,
					    n_bytes - off < 100 ? n_bytes - off : 100);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
	memcpy(out, canonical.digest, 16);
	XXH3_freeState(state);
}

static void test_same(void **state)
{
	struct kv_region regions[N_PIECES] = {{0}};
	struct kv_layout layout = {.regions = regions};
	const char *pieces[N_PIECES];
	char *bytes = malloc(N_PIECES * PIECE_BYTES);
	XXH3_state_t *own = XXH3_createState();
	struct kv_block_digest digest;
	uint8_t want[16];

	(void)state;
	assert_true(bytes && own);
	for (size_t i = 0; i < N_PIECES * PIECE_BYTES; i++)
		bytes[i] = (char)(i * i >> 3 ^ i);
	for (uint32_t n = 1; n <= N_PIECES; n++) {
		layout.groups[0].n_regions = n;
		for (size_t bytes_each = 1; bytes_each <= PIECE_BYTES;
		     bytes_each += bytes_each < 300 ? 1 : 173) {
			for (uint32_t i = 0; i < n; i++) {
				regions[i].row_bytes = (uint32_t)bytes_each;
				pieces[i] = bytes + i * PIECE_BYTES + n;
			}
			pieces[n - 1] -= n;
			expected(pieces, n, bytes_each, want);
			kv_block_digest(own, &layout, 0, (const void *const *)pieces, 1, &digest);
			assert_memory_equal(digest.bytes, want, 16);
		}
	}
	XXH3_freeState(own);
	free(bytes);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a block's digest is libxxhash's, whatever its pieces", test_same),
};

KT_MAIN(tests)
