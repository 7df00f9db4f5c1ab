/*
 * What the tests of the codecs share: room for stored vectors, and going through all codecs.
 */
#ifndef KVCACHED_TESTS_UNIT_CODEC_ROOM_H
#define KVCACHED_TESTS_UNIT_CODEC_ROOM_H

#include "tests/support/runner.h"
#include "tests/unit/codec-rows.h"

#define ROOM_GAP 24u /* bytes between stored parts */

/* n vectors as they lie stored, with gaps that nobody may touch, and as read back (dense). */
struct room {
	struct kv_codec_at at;
	char *bytes, *back;
	size_t n, n_bytes, back_bytes;
};

/* shift: by how many bytes it all lies off alignment. */
struct room room_new(const struct kv_codec *codec, size_t n, size_t shift);
void room_free(struct room *room);

/* Has nobody written here since room_new()? */
bool room_is_untouched(const void *bytes, size_t n);

/* Nothing of vectors from `first` on, and no gap, has been written. */
void assert_untouched(const struct kv_codec *codec, const struct room *room, size_t first);

/* Both hold the same vectors, stored and read back. Rows are those of rows_new(). */
void assert_same_rows(const struct kv_codec *codec, const struct room *got,
		      const struct room *want);

/* Some of all kinds of rows, dense; for test_free(). */
char *rows_new(const struct kv_codec *codec, size_t *n);

/* False where the format cannot hold the width. */
bool codec_make(struct kv_codec *codec, uint32_t format, uint32_t dtype, uint32_t width);

typedef void codec_test(struct kv_codec *codec);

/* All formats and dtypes; each with each set of kernels that this machine has. */
void each_codec(uint32_t width, codec_test *test);
void each_codec_and_kernels(uint32_t width, codec_test *test);

#endif
