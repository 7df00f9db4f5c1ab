#include "tests/unit/attend-rows.h"

#include <math.h>
#include <string.h>

#include "client/compute/convert.h"

static const uint32_t widths[] = {1,  7,  16, 17, 18, 31,  32,  40,  48,  50,
				  64, 80, 96, 98, 99, 112, 128, 130, 255, 256};

void each_width_and_codec(codec_test *test)
{
	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
		each_codec(widths[i], test);
}

struct room stored_rows(const struct kv_codec *codec, size_t shift)
{
	size_t vector_bytes = codec->width * codec->element_bytes;
	struct room room = room_new(codec, MOST_ROWS, shift);
	char *row = test_malloc(vector_bytes);

	for (size_t i = 0; i < MOST_ROWS; i++) {
		struct kv_codec_at at = kv_codec_at(&room.at, i);

		row_make(codec, (enum row_kind)(i % ROW_N_KINDS), i, row);
		assert_int_equal(kv_quantise(codec, 1, row, vector_bytes, &at), 1);
	}
	test_free(row);
	return room;
}

static double nibble(const uint8_t *pairs, uint32_t i, uint32_t half)
{
	return i < half ? pairs[i] >> 4 : pairs[i - half] & 15;
}

double stored_value(const struct kv_codec *codec, const struct kv_codec_at *at, uint32_t i)
{
	const uint8_t *codes = at->codes;
	float scale = 1;
	int32_t zero = 0;

	if (codec->format == KV_FORMAT_RAW)
		return (double)kv_element(codec->dtype, at->codes, i);
	if (codec->format == KV_FORMAT_INT8 || codec->format == KV_FORMAT_INT8_MODEL)
		return (double)(int8_t)codes[i] * (double)kv_element(codec->dtype, at->scale, 0);
	if (codec->format == KV_FORMAT_Q4)
		return (nibble(codes + i / 32 * 16, i % 32, 16) - 8) *
		       (double)kv_element(KV_DTYPE_BF16, at->scale, i / 32);
	memcpy(&scale, at->scale, sizeof(scale));
	if (codec->format == KV_FORMAT_FP8)
		return (double)kv_e4m3_to_f32(codes[i]) * (double)scale;
	memcpy(&zero, at->zero, sizeof(zero));
	if (codec->format == KV_FORMAT_U8)
		return ((double)codes[i] - zero) * (double)scale;
	return (nibble(codes, i, codec->width / 2) - zero) * (double)scale;
}

/* Kinds of rows make good queries: in f32. */
float *queries_new(uint32_t width)
{
	static const enum row_kind kinds[] = {
		ROW_NORMAL, ROW_ZERO,     ROW_SHIFTED, ROW_OUTLIER,  ROW_LOG,
		ROW_TINY,   ROW_DENORMAL, ROW_TIES,    ROW_CONSTANT,
	};
	float *q = test_malloc(sizeof(*q) * width * MOST_QUERIES);
	struct kv_codec codec;

	assert_true(codec_make(&codec, KV_FORMAT_RAW, KV_DTYPE_F32, width));
	for (uint32_t j = 0; j < MOST_QUERIES; j++)
		row_make(&codec, kinds[j % (sizeof(kinds) / sizeof(kinds[0]))], j,
			 (char *)(q + (size_t)j * width));
	return q;
}

struct kv_attend_query query_new(const float *q, uint32_t width, uint32_t n, void **memory)
{
	size_t n_bytes = kv_attend_query_bytes(width, n);
	struct kv_attend_query query;

	*memory = test_malloc(n_bytes + 32);
	kv_attend_query_init(&query, width, n, q, width,
			     (void *)(((uintptr_t)*memory + 31) / 32 * 32));
	return query;
}

bool is_same(float a, float b)
{
	return (isnan(a) && isnan(b)) || kv_f32_bits(a) == kv_f32_bits(b);
}

const struct kv_codec_kernels *kernels_named(const char *name)
{
	const struct kv_codec_kernels *found = NULL;

	for (size_t i = 0; i < kv_codec_n_kernels; i++)
		if (strcmp(kv_codec_kernels[i].name, name) == 0)
			found = &kv_codec_kernels[i];
	if (!found)
		kt_skip("this build has no such kernels");
	if (!found->is_supported())
		kt_skip("this machine cannot run them");
	return found;
}
