/*
 * Vectors for the tests of the codecs: random ones and such as have tripped codecs before. The same
 * number gives the same vector on every machine.
 */
#ifndef KVCACHED_TESTS_UNIT_CODEC_ROWS_H
#define KVCACHED_TESTS_UNIT_CODEC_ROWS_H

#include <stdbool.h>

#include "client/compute/kernels.h"

/* What a vector is like. All are finite. */
enum row_kind {
	ROW_NORMAL,
	ROW_SHIFTED,      /* far from zero, by up to 1000 */
	ROW_TINY,         /* below the floors of the scales */
	ROW_HUGE,         /* up to the largest value */
	ROW_FULL,         /* with both -largest and largest */
	ROW_CONSTANT,     /* any magnitude */
	ROW_FAR_CONSTANT, /* 256 and more */
	ROW_NEIGHBOURS,   /* two neighbouring f32 values of 128 and more, rounded to the dtype */
	ROW_FEW_ULP,      /* some neighbouring values */
	ROW_ZERO,         /* both signs */
	ROW_OUTLIER,
	ROW_DENORMAL,
	ROW_TIES, /* halves of a power of two */
	ROW_LOG,  /* magnitudes of all sizes */
	ROW_BITS, /* any finite bit patterns */
	ROW_N_KINDS
};

/* Fills a dense vector of the codec's dtype and width. */
void row_make(const struct kv_codec *codec, enum row_kind kind, uint64_t number, char *vector);

const char *row_kind_name(enum row_kind kind);

/* A random number; the state goes on. */
uint64_t row_random(uint64_t *state);

#endif
