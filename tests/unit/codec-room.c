#include "tests/unit/codec-room.h"

#include <string.h>

#define PATTERN 0xa5

/* ---- room ---------------------------------------------------------------------------------- */

struct room room_new(const struct kv_codec *codec, size_t n, size_t shift)
{
	struct room r = {.n = n};
	char *at;

	r.at.codes_stride = codec->bytes.codes + ROOM_GAP;
	r.at.scale_stride = codec->bytes.scale + ROOM_GAP;
	r.at.zero_stride = codec->bytes.zero + ROOM_GAP;
	r.n_bytes = n * (r.at.codes_stride + r.at.scale_stride + r.at.zero_stride) + ROOM_GAP +
		    shift;
	r.back_bytes = n * codec->width * codec->element_bytes + ROOM_GAP + shift;
	r.bytes = test_malloc(r.n_bytes);
	r.back = test_malloc(r.back_bytes);
	memset(r.bytes, PATTERN, r.n_bytes);
	memset(r.back, PATTERN, r.back_bytes);
	at = r.bytes + ROOM_GAP + shift;
	r.at.codes = at;
	r.at.scale = at + n * r.at.codes_stride;
	r.at.zero = at + n * (r.at.codes_stride + r.at.scale_stride);
	return r;
}

void room_free(struct room *r)
{
	test_free(r->bytes);
	test_free(r->back);
}

bool room_is_untouched(const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((const uint8_t *)bytes)[i] != PATTERN)
			return false;
	return true;
}

void assert_untouched(const struct kv_codec *codec, const struct room *r, size_t first)
{
	assert_true(room_is_untouched(r->bytes, ROOM_GAP));
	for (size_t i = 0; i < r->n; i++) {
		struct kv_codec_at at = kv_codec_at(&r->at, i);
		struct kv_format_bytes n = codec->bytes;

		if (i >= first)
			n = (struct kv_format_bytes){0, 0, 0};
		assert_true(room_is_untouched((char *)at.codes + n.codes,
					      r->at.codes_stride - n.codes));
		assert_true(room_is_untouched((char *)at.scale + n.scale,
					      r->at.scale_stride - n.scale));
		assert_true(
			room_is_untouched((char *)at.zero + n.zero, r->at.zero_stride - n.zero));
	}
}

/* ---- all codecs ---------------------------------------------------------------------------- */

bool codec_make(struct kv_codec *codec, uint32_t format, uint32_t dtype, uint32_t width)
{
	struct errbuf err = {0};

	if (kv_codec_init(codec, format, dtype, width, &err) == 0)
		return true;
	assert_int_equal(err.status, KV_EINVAL);
	return false;
}

void each_codec(uint32_t width, codec_test *test)
{
	struct kv_codec codec;

	for (uint32_t f = KV_FORMAT_RAW; f <= KV_FORMAT_MAX; f++)
		for (uint32_t d = KV_DTYPE_F32; d <= KV_DTYPE_MAX; d++)
			if (codec_make(&codec, f, d, width))
				test(&codec);
}

void each_codec_and_kernels(uint32_t width, codec_test *test)
{
	struct kv_codec codec;

	for (uint32_t f = KV_FORMAT_RAW; f <= KV_FORMAT_MAX; f++)
		for (uint32_t d = KV_DTYPE_F32; d <= KV_DTYPE_MAX; d++)
			for (size_t k = 0; k < kv_codec_n_kernels; k++) {
				if (!kv_codec_kernels[k].is_supported() ||
				    !codec_make(&codec, f, d, width))
					continue;
				kv_codec_use(&codec, &kv_codec_kernels[k]);
				test(&codec);
			}
}

/* ---- rows ---------------------------------------------------------------------------------- */

#define ROWS_PER_KIND 6u

char *rows_new(const struct kv_codec *codec, size_t *n)
{
	size_t vector_bytes = codec->width * codec->element_bytes;
	char *rows;

	*n = ROW_N_KINDS * ROWS_PER_KIND;
	rows = test_malloc(*n * vector_bytes);
	for (size_t i = 0; i < *n; i++)
		row_make(codec, (enum row_kind)(i % ROW_N_KINDS), i / ROW_N_KINDS,
			 rows + i * vector_bytes);
	return rows;
}

void assert_same_rows(const struct kv_codec *codec, const struct room *got, const struct room *want)
{
	size_t vector_bytes = codec->width * codec->element_bytes;

	for (size_t i = 0; i < got->n; i++) {
		struct kv_codec_at a = kv_codec_at(&got->at, i), b = kv_codec_at(&want->at, i);
		const char *x = got->back + i * vector_bytes, *y = want->back + i * vector_bytes;

		if (memcmp(a.codes, b.codes, codec->bytes.codes) == 0 &&
		    memcmp(a.scale, b.scale, codec->bytes.scale) == 0 &&
		    memcmp(a.zero, b.zero, codec->bytes.zero) == 0 &&
		    memcmp(x, y, vector_bytes) == 0)
			continue;
		fail_msg("%s %s width %u, row of kind '%s': other bytes",
			 kv_format_name(codec->format), kv_dtype_name(codec->dtype), codec->width,
			 row_kind_name((enum row_kind)(i % ROW_N_KINDS)));
	}
}
