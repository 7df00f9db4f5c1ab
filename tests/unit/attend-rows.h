/*
 * What the tests of attention's kernels share: stored rows, queries and weights to work on.
 */
#ifndef KVCACHED_TESTS_UNIT_ATTEND_ROWS_H
#define KVCACHED_TESTS_UNIT_ATTEND_ROWS_H

#include "client/compute/kernels.h"
#include "tests/unit/codec-room.h"

#define MOST_QUERIES 18u
#define MOST_ROWS KV_ATTEND_TILE

/* MOST_ROWS rows of all kinds as a codec stores them, some of them damaged at will. */
struct room stored_rows(const struct kv_codec *codec, size_t shift);

/* An element as it is stored: exact, without the rounding to the dtype that kv_dequantise does. */
double stored_value(const struct kv_codec *codec, const struct kv_codec_at *at, uint32_t i);

/* MOST_QUERIES vectors of unlike kinds, dense; for test_free(). */
float *queries_new(uint32_t width);
struct kv_attend_query query_new(const float *q, uint32_t width, uint32_t n, void **memory);

/* Ends the test as skipped if this build has none of that name, or this machine cannot run them. */
const struct kv_codec_kernels *kernels_named(const char *name);

#define UNTOUCHED -7.5f

/* The same bits, or both no number. */
bool is_same(float a, float b);

/* All formats and dtypes of widths up to KV_ATTEND_WIDTH_MAX, odd ones too. */
void each_width_and_codec(codec_test *test);

#endif
