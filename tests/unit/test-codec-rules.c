/*
 * The storage formats by what kvcache-formats(7) promises: error bounds, the written rules for odd
 * vectors, bytes by hand, rounding, and the bytes of version 1.
 */
#include <math.h>
#include <string.h>

#include "client/compute/convert.h"
#include "tests/unit/codec-room.h"

/* ---- bounds -------------------------------------------------------------------------------- */

#define BOUND_ROWS 40u

static void check_bound_of(const struct kv_codec *codec, enum row_kind kind, const char *row,
			   const char *back)
{
	float least = FLT_MAX, greatest = -FLT_MAX;
	double worst = 0, bound;

	for (size_t i = 0; i < codec->width; i++) {
		float x = kv_element(codec->dtype, row, i);
		float y = kv_element(codec->dtype, back, i);

		least = fminf(least, x);
		greatest = fmaxf(greatest, x);
		worst = isfinite(y) ? fmax(worst, fabs((double)x - (double)y)) : INFINITY;
	}
	bound = (double)kv_codec_error_bound(codec, least, greatest);
	if (worst > bound)
		fail_msg("%s %s width %u, row of kind '%s': off by %g, bound %g",
			 kv_format_name(codec->format), kv_dtype_name(codec->dtype), codec->width,
			 row_kind_name(kind), worst, bound);
}

static void check_bounds(struct kv_codec *codec)
{
	char row[1024 * 4], back[1024 * 4];
	struct room room = room_new(codec, 1, 0);

	for (uint64_t i = 0; i < BOUND_ROWS * ROW_N_KINDS; i++) {
		enum row_kind kind = (enum row_kind)(i % ROW_N_KINDS);

		row_make(codec, kind, 1000 + i, row);
		assert_int_equal(kv_quantise(codec, 1, row, 0, &room.at), 1);
		kv_dequantise(codec, 1, &room.at, back, 0);
		check_bound_of(codec, kind, row, back);
	}
	room_free(&room);
}

static void test_that_every_element_comes_back_within_the_bound(void **state)
{
	(void)state;
	each_codec(16, check_bounds);
	each_codec(32, check_bounds);
	each_codec(128, check_bounds);
}

static void check_error(struct kv_codec *codec)
{
	size_t n, vector_bytes = codec->width * codec->element_bytes;
	char *rows = rows_new(codec, &n);
	struct room room = room_new(codec, n, 0);

	kv_quantise(codec, n, rows, vector_bytes, &room.at);
	kv_dequantise(codec, n, &room.at, room.back, vector_bytes);
	for (size_t i = 0; i < n; i++) {
		struct kv_codec_at at = kv_codec_at(&room.at, i);
		double sum = 0;
		float error[2] = {-1, -1};

		kv_quantise_error(codec, 1, rows + i * vector_bytes, 0, &at, error, 0);
		for (size_t k = 0; k < codec->width; k++) {
			size_t e = i * codec->width + k;
			float d = kv_element(codec->dtype, rows, e) -
				  kv_element(codec->dtype, room.back, e);

			d = kv_narrow(codec->dtype, d);
			sum += (double)d * (double)d;
		}
		if (sum > 1e-30 && sum < 1e36)
			assert_true(fabs((double)error[0] - sqrt(sum)) <= 1e-6 * sqrt(sum));
		assert_true(error[0] >= 0 && error[1] == -1);
		assert_true(codec->format != KV_FORMAT_RAW || error[0] == 0);
	}
	room_free(&room);
	test_free(rows);
}

static void test_that_the_error_is_the_norm_of_the_differences(void **state)
{
	(void)state;
	each_codec(34, check_error);
	each_codec(64, check_error);
}

/* ---- rules --------------------------------------------------------------------------------- */

/* Stores n elements given as f32 and gives back what is read; width 16 and more. */
static void round_trip(struct kv_codec *codec, const float *x, float *y)
{
	char row[64 * 4], back[64 * 4];
	struct room room = room_new(codec, 1, 0);

	for (size_t i = 0; i < codec->width; i++)
		kv_element_set(codec->dtype, row, i, x[i]);
	assert_int_equal(kv_quantise(codec, 1, row, 0, &room.at), 1);
	kv_dequantise(codec, 1, &room.at, back, 0);
	for (size_t i = 0; i < codec->width; i++)
		y[i] = kv_element(codec->dtype, back, i);
	room_free(&room);
}

static void fill(float x[64], float value)
{
	for (size_t i = 0; i < 64; i++)
		x[i] = value;
}

/* The value is rounded to the dtype on the way in. */
static void check_constant(struct kv_codec *codec, float value)
{
	float x[64], y[64];

	value = kv_narrow(codec->dtype, kv_saturate(value, kv_dtype_largest(codec->dtype)));
	fill(x, value);
	round_trip(codec, x, y);
	for (size_t i = 0; i < codec->width; i++)
		if (y[i] != value)
			fail_msg("%s %s: %.9g came back as %.9g", kv_format_name(codec->format),
				 kv_dtype_name(codec->dtype), (double)value, (double)y[i]);
}

static void check_far_constants(struct kv_codec *codec)
{
	static const float values[] = {1.5f,   3.1f,    100,     250.7f, 256,    300,
				       511,    512,     1000,    60000,  65504,  1e6f,
				       1.5e7f, 0x1p24f, 0x1p31f, 1e20f,  FLT_MAX};

	if (codec->format != KV_FORMAT_U8 && codec->format != KV_FORMAT_U4)
		return;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		check_constant(codec, values[i]);
		check_constant(codec, -values[i]);
		check_constant(codec, nextafterf(values[i], 0));
		check_constant(codec, -nextafterf(values[i], 0));
	}
}

static void test_that_constants_of_1_and_more_are_stored_exactly(void **state)
{
	(void)state;
	each_codec_and_kernels(64, check_far_constants);
}

/* Two neighbours of f32, in u8, for every binade and both its ends. */
static void check_neighbours(struct kv_codec *codec)
{
	float x[64], y[64];

	if (codec->format != KV_FORMAT_U8 || codec->dtype != KV_DTYPE_F32)
		return;
	for (int exponent = 7; exponent < 128; exponent++)
		for (int n = -3; n < 3; n++)
			for (int negative = 0; negative < 2; negative++) {
				uint32_t bits = (uint32_t)(exponent + 127) << 23;
				float base = kv_f32_of_bits(bits + (uint32_t)n);

				fill(x, negative ? -base : base);
				x[5] = kv_f32_of_bits(bits + (uint32_t)n + 1);
				x[5] = negative ? -x[5] : x[5];
				round_trip(codec, x, y);
				/* from just below 256 on, where a zero point is 2^31 - 128 */
				if (exponent > 8 || (exponent == 8 && n >= -1))
					assert_memory_equal(x, y, 64 * sizeof(float));
			}
}

static void test_that_two_neighbours_are_stored_exactly(void **state)
{
	(void)state;
	each_codec_and_kernels(64, check_neighbours);
}

static void check_extremes(struct kv_codec *codec)
{
	float x[64], y[64], largest = kv_dtype_largest(codec->dtype);

	if (codec->format == KV_FORMAT_RAW)
		return;
	for (size_t i = 0; i < 64; i++)
		x[i] = i % 2 ? largest : -largest;
	round_trip(codec, x, y);
	for (size_t i = 0; i < 64; i++) {
		assert_true(isfinite(y[i]) && signbit(x[i]) == signbit(y[i]));
		assert_true(fabsf(x[i] - y[i]) <= kv_codec_error_bound(codec, -largest, largest));
	}
}

static void test_that_the_largest_values_come_back_finite(void **state)
{
	(void)state;
	each_codec_and_kernels(64, check_extremes);
}

/* What is found far from zero is as near as what is found near it: within half a step. */
static void check_far_rows(struct kv_codec *codec)
{
	float x[64], y[64], least = INFINITY, greatest = -INFINITY;
	uint64_t random = 7;

	if (codec->format != KV_FORMAT_U8 && codec->format != KV_FORMAT_U4)
		return;
	for (size_t i = 0; i < 64; i++) {
		x[i] = 6.0f + (float)(row_random(&random) % 1000) * 1e-3f;
		x[i] = kv_narrow(codec->dtype, x[i]);
		least = fminf(least, x[i]);
		greatest = fmaxf(greatest, x[i]);
	}
	round_trip(codec, x, y);
	for (size_t i = 0; i < 64; i++)
		assert_true(fabsf(x[i] - y[i]) <= kv_codec_error_bound(codec, least, greatest));
	assert_true(kv_codec_error_bound(codec, least, greatest) < 0.07f);
}

static void test_that_zero_points_outside_of_the_codes_lose_nothing(void **state)
{
	(void)state;
	each_codec_and_kernels(64, check_far_rows);
}

/* KV-27: a scale that is zero, at its floor, or out of range */
static void check_scales(struct kv_codec *codec)
{
	static const float constants[] = {0.0f, -0.0f, 100.0f, 1e-4f, 6e4f, 0x1p-140f};
	float x[64], y[64];

	for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
		float value = kv_narrow(codec->dtype, constants[i]);
		struct room room = room_new(codec, 1, 0);
		char row[64 * 4];

		fill(x, value);
		round_trip(codec, x, y);
		for (size_t k = 0; k < 64; k++) {
			assert_true(value != 0 || y[k] == 0);
			assert_true(fabsf(x[k] - y[k]) <=
				    kv_codec_error_bound(codec, value, value));
			kv_element_set(codec->dtype, row, k, value);
		}
		kv_quantise(codec, 1, row, 0, &room.at);
		for (size_t k = 0; k < codec->bytes.scale / 2; k++) {
			uint32_t d = codec->format == KV_FORMAT_Q4 ? KV_DTYPE_BF16 : codec->dtype;
			bool is_f32 = codec->bytes.scale == 4 && codec->format != KV_FORMAT_Q4;
			float scale = kv_element(is_f32 ? KV_DTYPE_F32 : d, room.at.scale,
						 is_f32 ? 0 : k);

			assert_true(isfinite(scale) && scale > 0 && isfinite(1 / scale));
		}
		room_free(&room);
	}
}

static void test_that_scales_are_never_zero_or_infinite(void **state)
{
	(void)state;
	each_codec_and_kernels(64, check_scales);
}

/* ---- bytes by hand ------------------------------------------------------------------------- */

static void test_that_q4_puts_halves_of_a_group_in_the_nibbles(void **state)
{
	uint8_t codes[16];
	uint16_t scale, row[32];
	struct kv_codec_at at = {.codes = codes, .scale = &scale};
	struct kv_codec codec;

	(void)state;
	assert_true(codec_make(&codec, KV_FORMAT_Q4, KV_DTYPE_BF16, 32));
	for (size_t i = 0; i < 32; i++)
		row[i] = kv_bf16_of_f32(0.5f * (float)((int)(i % 15) - 7)); /* steps -7 .. 7 */
	assert_int_equal(kv_quantise(&codec, 1, row, 0, &at), 1);
	assert_int_equal(scale, 0x3f00); /* 0.5 */
	for (size_t i = 0; i < 16; i++)
		assert_int_equal(codes[i], (i % 15 + 1) << 4 | ((i + 16) % 15 + 1));
}

static void test_that_fp8_codes_are_e4m3(void **state)
{
	/* scale 1: the largest is 448; then ties, denormals, both zeros */
	static const float row[16] = {448,      1,        -1,       1.0625f,  1.1875f, 0x1p-6f,
				      0x1p-9f,  0x1p-10f, 0x3p-10f, -0.0f,    0.0f,    17,
				      -0x1p-7f, 240,      247.9f,   0x1p-130f};
	static const uint8_t want[16] = {0x7e, 0x38, 0xb8, 0x38, 0x3a, 0x08, 0x01, 0x00,
					 0x02, 0x80, 0x00, 0x58, 0x84, 0x77, 0x77, 0x00};
	uint8_t codes[16];
	float scale;
	struct kv_codec_at at = {.codes = codes, .scale = &scale};
	struct kv_codec codec;

	(void)state;
	assert_true(codec_make(&codec, KV_FORMAT_FP8, KV_DTYPE_F32, 16));
	assert_int_equal(kv_quantise(&codec, 1, row, 0, &at), 1);
	assert_true(scale == 1);
	assert_memory_equal(codes, want, sizeof(want));
}

static void check_fp8_scale(struct kv_codec *codec)
{
	char row[32 * 4];
	uint8_t codes[32];
	float scale;
	struct kv_codec_at at = {.codes = codes, .scale = &scale};

	if (codec->format != KV_FORMAT_FP8)
		return;
	for (uint64_t i = 0; i < 100 * ROW_N_KINDS; i++) {
		float magnitude = 0;
		int exponent;

		row_make(codec, (enum row_kind)(i % ROW_N_KINDS), i, row);
		assert_int_equal(kv_quantise(codec, 1, row, 0, &at), 1);
		for (size_t k = 0; k < 32; k++) {
			magnitude = fmaxf(magnitude, fabsf(kv_element(codec->dtype, row, k)));
			assert_true((codes[k] & 0x7f) != 0x7f);
		}
		assert_true(frexpf(scale, &exponent) == 0.5f && scale >= 0x1p-126f);
		assert_true((double)magnitude <= 448 * (double)scale);
		if (magnitude == 0)
			assert_true(scale == 1);
		else
			assert_true((double)magnitude > 224 * (double)scale || scale == 0x1p-126f);
	}
}

static void test_that_an_fp8_scale_is_the_smallest_power_of_two_that_will_do(void **state)
{
	(void)state;
	each_codec_and_kernels(32, check_fp8_scale);
}

/* ---- conversions --------------------------------------------------------------------------- */

/* All f16 and their midpoints: exact, and ties go to the even one. */
static void test_that_f16_rounds_to_nearest_even(void **state)
{
	(void)state;
	for (uint16_t h = 0; h < 0x7bff; h++) {
		float low = kv_f16_to_f32(h), high = kv_f16_to_f32((uint16_t)(h + 1));
		float middle = (low + high) / 2;

		assert_true(low < high && (double)middle == ((double)low + (double)high) / 2);
		assert_int_equal(kv_f16_of_f32(low), h);
		assert_int_equal(kv_f16_of_f32(-low), h | 0x8000);
		assert_int_equal(kv_f16_of_f32(middle), h + (h & 1));
		assert_int_equal(kv_f16_of_f32(nextafterf(middle, 0)), h);
		assert_int_equal(kv_f16_of_f32(nextafterf(middle, 1e9f)), h + 1);
	}
	assert_int_equal(kv_f16_of_f32(65504), 0x7bff);
	assert_int_equal(kv_f16_of_f32(nextafterf(65520, 0)), 0x7bff);
	assert_int_equal(kv_f16_of_f32(65520), 0x7c00);
	assert_int_equal(kv_f16_of_f32(-INFINITY), 0xfc00);
}

static void test_that_e4m3_rounds_to_nearest_even(void **state)
{
	(void)state;
	for (uint8_t c = 0; c < 0x7e; c++) {
		float low = kv_e4m3_to_f32(c), high = kv_e4m3_to_f32((uint8_t)(c + 1));
		float middle = (low + high) / 2;

		assert_true(low < high);
		assert_int_equal(kv_e4m3_of_f32(low), c);
		assert_int_equal(kv_e4m3_of_f32(-low), c | 0x80);
		assert_int_equal(kv_e4m3_of_f32(middle), c + (c & 1));
		assert_int_equal(kv_e4m3_of_f32(nextafterf(middle, 0)), c);
		assert_int_equal(kv_e4m3_of_f32(nextafterf(middle, 1e9f)), c + 1);
	}
	assert_true(kv_e4m3_to_f32(0x7e) == 448);
}

/* ---- version 1 ----------------------------------------------------------------------------- */

/* FNV-1a of all that is stored of all kinds of rows. */
static uint64_t hash_of(struct kv_codec *codec)
{
	size_t n, vector_bytes = codec->width * codec->element_bytes;
	char *rows = rows_new(codec, &n);
	struct room room = room_new(codec, n, 0);
	uint64_t hash = 0xcbf29ce484222325u;

	kv_quantise(codec, n, rows, vector_bytes, &room.at);
	for (size_t i = 0; i < room.n_bytes; i++)
		hash = (hash ^ (uint8_t)room.bytes[i]) * 0x100000001b3u;
	kv_dequantise(codec, n, &room.at, room.back, vector_bytes);
	for (size_t i = 0; i < room.back_bytes; i++)
		hash = (hash ^ (uint8_t)room.back[i]) * 0x100000001b3u;
	room_free(&room);
	test_free(rows);
	return hash;
}

/* Of width 96. */
static const uint64_t version_1[KV_FORMAT_MAX + 1][KV_DTYPE_MAX + 1] = {
	[KV_FORMAT_RAW] = {0, 0x7ea6925e92b69105u, 0xa1bf65393dc3ba75u, 0xb4b4c5258133d6c5u},
	[KV_FORMAT_INT8] = {0, 0xb3cf20f0e4261409u, 0xf7f3df7134afd906u, 0xaaeaa27a431b7bc2u},
	[KV_FORMAT_U8] = {0, 0x3019733ebf0a4d90u, 0x0ad83ccc121b4ab2u, 0xf5a0d25e44125b18u},
	[KV_FORMAT_U4] = {0, 0x6d6fdd606ecc2bfdu, 0xd5fc1abded415018u, 0x2f1021c7f3028a88u},
	[KV_FORMAT_Q4] = {0, 0x3a0e7d6882088a6fu, 0x1339afba131dbbd5u, 0x547ab6be6cc899b7u},
	[KV_FORMAT_FP8] = {0, 0x45d21ffe01cd0a70u, 0xcd7d2bdecf6db49fu, 0x2d2039a6636f25dcu},
	[KV_FORMAT_INT8_MODEL] = {0, 0xb3cf20f0e4261409u, 0xf7f3df7134afd906u, 0xaabf60de0175a5b9u},
};

static void test_that_the_bytes_of_version_1_stay(void **state)
{
	struct kv_codec codec;

	(void)state;
	for (uint32_t f = KV_FORMAT_RAW; f <= KV_FORMAT_MAX; f++)
		for (uint32_t d = KV_DTYPE_F32; d <= KV_DTYPE_MAX; d++) {
			assert_true(codec_make(&codec, f, d, 96));
			if (hash_of(&codec) != version_1[f][d])
				fail_msg("%s %s: 0x%016llx", kv_format_name(f), kv_dtype_name(d),
					 (unsigned long long)hash_of(&codec));
		}
}

static const struct CMUnitTest tests[] = {
	KT_TEST("every element comes back within the published bound",
		test_that_every_element_comes_back_within_the_bound),
	KT_TEST("the error is the norm of the differences",
		test_that_the_error_is_the_norm_of_the_differences),
	KT_TEST("constants of 1 and more are stored exactly",
		test_that_constants_of_1_and_more_are_stored_exactly),
	KT_TEST("two neighbours are stored exactly", test_that_two_neighbours_are_stored_exactly),
	KT_TEST("the largest values come back finite",
		test_that_the_largest_values_come_back_finite),
	KT_TEST("zero points outside of the codes lose nothing",
		test_that_zero_points_outside_of_the_codes_lose_nothing),
	KT_TEST("KV-27: scales are never zero or infinite, and zeros stay zeros",
		test_that_scales_are_never_zero_or_infinite),
	KT_TEST("q4 puts the halves of a group in the nibbles",
		test_that_q4_puts_halves_of_a_group_in_the_nibbles),
	KT_TEST("fp8 codes are e4m3", test_that_fp8_codes_are_e4m3),
	KT_TEST("an fp8 scale is the smallest power of two that will do",
		test_that_an_fp8_scale_is_the_smallest_power_of_two_that_will_do),
	KT_TEST("f16 rounds to nearest even, all of it", test_that_f16_rounds_to_nearest_even),
	KT_TEST("e4m3 rounds to nearest even, all of it", test_that_e4m3_rounds_to_nearest_even),
	KT_TEST("the bytes of version 1 stay", test_that_the_bytes_of_version_1_stay),
};

KT_MAIN(tests)
