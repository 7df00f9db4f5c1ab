/* SPDX-License-Identifier: MIT */
/*
 * The codecs of the storage formats: every set of kernels against the scalar one, what is refused
 * and left alone, the error bounds, and the written rules for odd vectors.
 */
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/compute/arithmetic.h"
#include "proto/limits.h"
#include "tests/support/runner.h"
#include "tests/unit/codec-rows.h"

#define PATTERN 0xa5
#define GAP 24u /* bytes between stored parts */

static const uint32_t widths[] = {1,  2,  7,  15, 16, 17, 18,  31,  32,  33,  34,
				  47, 48, 64, 80, 96, 98, 128, 130, 256, 577, 1024};
#define N_WIDTHS (sizeof(widths) / sizeof(widths[0]))

/* ---- room ---------------------------------------------------------------------------------- */

/* n vectors as they lie stored, with gaps that nobody may touch, and as read back. */
struct room {
	struct kv_codec_at at;
	char *bytes, *back;
	size_t n, n_bytes, back_bytes;
};

/* shift: by how many bytes it all lies off alignment. */
static struct room room_new(const struct kv_codec *codec, size_t n, size_t shift)
{
	struct room r = {.n = n};
	char *at;

	r.at.codes_stride = codec->bytes.codes + GAP;
	r.at.scale_stride = codec->bytes.scale + GAP;
	r.at.zero_stride = codec->bytes.zero + GAP;
	r.n_bytes = n * (r.at.codes_stride + r.at.scale_stride + r.at.zero_stride) + GAP + shift;
	r.back_bytes = n * codec->width * codec->element_bytes + GAP + shift;
	r.bytes = test_malloc(r.n_bytes);
	r.back = test_malloc(r.back_bytes);
	memset(r.bytes, PATTERN, r.n_bytes);
	memset(r.back, PATTERN, r.back_bytes);
	at = r.bytes + GAP + shift;
	r.at.codes = at;
	r.at.scale = at + n * r.at.codes_stride;
	r.at.zero = at + n * (r.at.codes_stride + r.at.scale_stride);
	return r;
}

static void room_free(struct room *r)
{
	test_free(r->bytes);
	test_free(r->back);
}

static bool is_pattern(const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((const uint8_t *)bytes)[i] != PATTERN)
			return false;
	return true;
}

/* Nothing of vectors from `first` on, and no gap, has been written. */
static void assert_untouched(const struct kv_codec *codec, const struct room *r, size_t first)
{
	assert_true(is_pattern(r->bytes, GAP));
	for (size_t i = 0; i < r->n; i++) {
		struct kv_codec_at at = kv_codec_at(&r->at, i);
		struct kv_format_bytes n = codec->bytes;

		if (i >= first)
			n = (struct kv_format_bytes){0, 0, 0};
		assert_true(is_pattern((char *)at.codes + n.codes, r->at.codes_stride - n.codes));
		assert_true(is_pattern((char *)at.scale + n.scale, r->at.scale_stride - n.scale));
		assert_true(is_pattern((char *)at.zero + n.zero, r->at.zero_stride - n.zero));
	}
}

/* ---- all codecs ---------------------------------------------------------------------------- */

typedef void codec_test(struct kv_codec *codec);

/* The format and dtype; false where the format cannot hold the width. */
static bool codec_make(struct kv_codec *codec, uint32_t format, uint32_t dtype, uint32_t width)
{
	struct errbuf err = {0};

	if (kv_codec_init(codec, format, dtype, width, &err) == 0)
		return true;
	assert_int_equal(err.status, KV_EINVAL);
	return false;
}

static void each_codec(uint32_t width, codec_test *test)
{
	struct kv_codec codec;

	for (uint32_t f = KV_FORMAT_RAW; f <= KV_FORMAT_MAX; f++)
		for (uint32_t d = KV_DTYPE_F32; d <= KV_DTYPE_MAX; d++)
			if (codec_make(&codec, f, d, width))
				test(&codec);
}

/* Each with each set of kernels that this machine has. */
static void each_codec_and_kernels(uint32_t width, codec_test *test)
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

/* ---- the choice ---------------------------------------------------------------------------- */

/* In a process of its own, for the choice is made once. 0: the kernels are `name`; 1: others; 2:
 * refused, naming the variable. */
static int chosen_with(const char *value, const char *name)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct kv_codec codec;
		struct errbuf err = {0};

		setenv("KVCACHE_KERNELS", value, 1);
		if (kv_codec_init(&codec, KV_FORMAT_U8, KV_DTYPE_F32, 64, &err))
			_exit(err.status == KV_EINVAL && strstr(err.text, "KVCACHE_KERNELS") ? 2 :
											       3);
		_exit(strcmp(kv_codec_kernel_name(), name) == 0 ? 0 : 1);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* First of all, before this process has chosen. */
static void test_that_the_environment_names_the_kernels(void **state)
{
	(void)state;
	for (size_t i = 0; i < kv_codec_n_kernels; i++) {
		const char *name = kv_codec_kernels[i].name;

		assert_int_equal(chosen_with(name, name),
				 kv_codec_kernels[i].is_supported() ? 0 : 2);
	}
	assert_int_equal(chosen_with("no-such", "no-such"), 2);
	assert_int_equal(chosen_with("", "scalar"), 2);
}

static void test_that_the_best_kernels_are_chosen(void **state)
{
	const struct kv_codec_kernels *best = kv_codec_kernels_find(NULL, NULL);

	(void)state;
	unsetenv("KVCACHE_KERNELS");
	assert_string_equal(kv_codec_kernel_name(), best->name);
	for (size_t i = 0; i < kv_codec_n_kernels; i++)
		if (&kv_codec_kernels[i] > best)
			assert_false(kv_codec_kernels[i].is_supported());
}

static void test_that_unknown_formats_and_widths_are_refused(void **state)
{
	struct kv_codec codec;
	struct errbuf err = {0};

	(void)state;
	assert_int_equal(kv_codec_init(&codec, KV_FORMAT_MAX + 1, KV_DTYPE_F32, 64, &err), -1);
	assert_int_equal(err.status, KV_EUNSUPPORTED);
	assert_int_equal(kv_codec_init(&codec, KV_FORMAT_U8, 0, 64, &err), -1);
	assert_int_equal(kv_codec_init(&codec, KV_FORMAT_RAW, KV_DTYPE_F32, KV_WIDTH_MAX, &err), 0);
	assert_int_equal(kv_codec_init(&codec, KV_FORMAT_RAW, KV_DTYPE_F32, KV_WIDTH_MAX + 1, &err),
			 -1);
	assert_int_equal(err.status, KV_EINVAL);
	assert_int_equal(kv_codec_init(&codec, KV_FORMAT_Q4, KV_DTYPE_F32, 80, &err), -1);
	assert_non_null(strstr(err.text, "width 80 with format q4"));
}

/* ---- kernels against the scalar ones ------------------------------------------------------- */

#define ROWS_PER_KIND 6u

/* All kinds of rows, dense. */
static char *rows_new(const struct kv_codec *codec, size_t *n)
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

static void assert_same_rows(const struct kv_codec *codec, const struct room *got,
			     const struct room *want)
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

static const struct kv_codec_kernels *kernels_under_test;

static void compare_kernels(struct kv_codec *codec)
{
	size_t n, vector_bytes = codec->width * codec->element_bytes;
	char *rows = rows_new(codec, &n);
	struct room want = room_new(codec, n, 0), got = room_new(codec, n, 0);

	kv_codec_use(codec, &kv_codec_kernels[0]);
	assert_int_equal(kv_quantise(codec, n, rows, vector_bytes, &want.at), n);
	kv_dequantise(codec, n, &want.at, want.back, vector_bytes);
	kv_codec_use(codec, kernels_under_test);
	assert_int_equal(kv_quantise(codec, n, rows, vector_bytes, &got.at), n);
	kv_dequantise(codec, n, &got.at, got.back, vector_bytes);
	assert_same_rows(codec, &got, &want);
	assert_untouched(codec, &got, n);
	assert_true(is_pattern(got.back + n * vector_bytes, GAP));
	room_free(&want);
	room_free(&got);
	test_free(rows);
}

static void test_that_kernels_give_the_bytes_of_the_scalar_ones(void **state)
{
	for (size_t i = 0; i < kv_codec_n_kernels; i++)
		if (strcmp(kv_codec_kernels[i].name, *state) == 0)
			kernels_under_test = &kv_codec_kernels[i];
	if (!kernels_under_test || strcmp(kernels_under_test->name, *state) != 0)
		kt_skip("this build has no such kernels");
	if (!kernels_under_test->is_supported())
		kt_skip("this machine cannot run them");
	for (size_t i = 0; i < N_WIDTHS; i++)
		each_codec(widths[i], compare_kernels);
}

/* ---- where vectors lie --------------------------------------------------------------------- */

static void check_addresses(struct kv_codec *codec)
{
	size_t n, vector_bytes = codec->width * codec->element_bytes;
	char *rows = rows_new(codec, &n), *moved = test_malloc(n * (vector_bytes + 5) + 1);
	struct room want = room_new(codec, n, 0), got = room_new(codec, n, 1);

	for (size_t i = 0; i < n; i++)
		memcpy(moved + 1 + i * (vector_bytes + 5), rows + i * vector_bytes, vector_bytes);
	kv_quantise(codec, n, rows, vector_bytes, &want.at);
	kv_dequantise(codec, n, &want.at, want.back, vector_bytes);
	assert_int_equal(kv_quantise(codec, n, moved + 1, vector_bytes + 5, &got.at), n);
	kv_dequantise(codec, n, &got.at, got.back + 1, vector_bytes);
	memmove(got.back, got.back + 1, n * vector_bytes);
	assert_same_rows(codec, &got, &want);
	room_free(&want);
	room_free(&got);
	test_free(moved);
	test_free(rows);
}

static void test_that_any_address_will_do(void **state)
{
	(void)state;
	each_codec_and_kernels(64, check_addresses);
	each_codec_and_kernels(96, check_addresses);
	each_codec_and_kernels(19, check_addresses);
}

static void check_one_by_one(struct kv_codec *codec)
{
	size_t n, vector_bytes = codec->width * codec->element_bytes;
	char *rows = rows_new(codec, &n);
	struct room want = room_new(codec, n, 0), got = room_new(codec, n, 0);

	kv_quantise(codec, n, rows, vector_bytes, &want.at);
	kv_dequantise(codec, n, &want.at, want.back, vector_bytes);
	for (size_t i = n; i-- > 0;) {
		struct kv_codec_at at = kv_codec_at(&got.at, i);

		assert_int_equal(kv_quantise(codec, 1, rows + i * vector_bytes, 0, &at), 1);
		kv_dequantise(codec, 1, &at, got.back + i * vector_bytes, 0);
	}
	assert_same_rows(codec, &got, &want);
	assert_untouched(codec, &got, n);
	assert_int_equal(kv_quantise(codec, 0, NULL, 0, &got.at), 0);
	room_free(&want);
	room_free(&got);
	test_free(rows);
}

static void test_that_vectors_one_by_one_are_the_same(void **state)
{
	(void)state;
	each_codec_and_kernels(96, check_one_by_one);
	each_codec_and_kernels(34, check_one_by_one);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static const float not_finite[] = {NAN, -NAN, INFINITY, -INFINITY};

/* Vector `bad` of n is, at element `at`, not finite. */
static void check_refusal(struct kv_codec *codec, size_t n, size_t bad, size_t at, float value)
{
	size_t vector_bytes = codec->width * codec->element_bytes;
	char *rows = test_malloc(n * vector_bytes);
	struct room room = room_new(codec, n, 0), want = room_new(codec, n, 0);

	for (size_t i = 0; i < n; i++)
		row_make(codec, ROW_NORMAL, i, rows + i * vector_bytes);
	kv_quantise(codec, bad, rows, vector_bytes, &want.at);
	kv_element_set(codec->dtype, rows + bad * vector_bytes, at, value);
	assert_int_equal(kv_quantise(codec, n, rows, vector_bytes, &room.at), bad);
	assert_memory_equal(room.bytes, want.bytes, room.n_bytes);
	assert_untouched(codec, &room, bad);
	room_free(&room);
	room_free(&want);
	test_free(rows);
}

static void check_refusals(struct kv_codec *codec)
{
	if (codec->format == KV_FORMAT_RAW)
		return;
	for (size_t i = 0; i < codec->width; i++)
		check_refusal(codec, 9, i % 9, i, not_finite[i % 4]);
	for (size_t i = 0; i < 4; i++)
		check_refusal(codec, 1, 0, codec->width - 1, not_finite[i]);
}

static void test_that_nan_and_infinity_are_refused_and_nothing_behind_is_touched(void **state)
{
	(void)state;
	each_codec_and_kernels(64, check_refusals);
	each_codec_and_kernels(50, check_refusals);
	each_codec_and_kernels(288, check_refusals);
}

static void test_that_raw_keeps_every_bit(void **state)
{
	uint16_t vector[20], back[20], stored[20];
	struct kv_codec_at at = {.codes = stored, .codes_stride = sizeof(stored)};
	struct kv_codec codec;
	uint64_t random = 1;

	(void)state;
	assert_true(codec_make(&codec, KV_FORMAT_RAW, KV_DTYPE_F16, 20));
	for (size_t i = 0; i < 20; i++)
		vector[i] = (uint16_t)row_random(&random);
	vector[3] = 0x7c01; /* a signalling NaN */
	assert_int_equal(kv_quantise(&codec, 1, vector, 0, &at), 1);
	kv_dequantise(&codec, 1, &at, back, 0);
	assert_memory_equal(back, vector, sizeof(vector));
	assert_true(kv_codec_error_bound(&codec, -1, 1) == 0);
}

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

/* ---- the thread's settings ----------------------------------------------------------------- */

#if defined(__x86_64__)
#include <xmmintrin.h>

/* As programs do that are built with -ffast-math. */
static void flush_denormals(bool on)
{
	_mm_setcsr((_mm_getcsr() & ~0x8040u) | (on ? 0x8040u : 0));
}
#else
static void flush_denormals(bool on)
{
	(void)on;
}
#endif

static void check_settings(struct kv_codec *codec)
{
	size_t n, vector_bytes = codec->width * codec->element_bytes;
	char *rows = rows_new(codec, &n);
	struct room want = room_new(codec, n, 0), got = room_new(codec, n, 0);
	int rounding;

	kv_quantise(codec, n, rows, vector_bytes, &want.at);
	kv_dequantise(codec, n, &want.at, want.back, vector_bytes);
	fesetround(FE_UPWARD);
	flush_denormals(true);
	kv_quantise(codec, n, rows, vector_bytes, &got.at);
	kv_dequantise(codec, n, &got.at, got.back, vector_bytes);
	rounding = fegetround();
	fesetround(FE_TONEAREST);
	flush_denormals(false);
	assert_int_equal(rounding, FE_UPWARD);
	assert_same_rows(codec, &got, &want);
	room_free(&want);
	room_free(&got);
	test_free(rows);
}

static void test_that_the_settings_of_the_thread_change_no_byte(void **state)
{
	(void)state;
	each_codec_and_kernels(96, check_settings);
}

/* Any bytes may lie in a cache that others can write. */
static void check_damage(struct kv_codec *codec)
{
	struct room room = room_new(codec, 1, 0);
	uint64_t random = 3;

	for (unsigned i = 0; i < 2000; i++) {
		for (size_t k = 0; k < room.n_bytes; k++)
			room.bytes[k] = (char)row_random(&random);
		kv_dequantise(codec, 1, &room.at, room.back, 0);
	}
	assert_true(is_pattern(room.back + codec->width * codec->element_bytes, GAP));
	room_free(&room);
}

static void test_that_damaged_bytes_are_read_without_harm(void **state)
{
	(void)state;
	each_codec_and_kernels(32, check_damage);
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

static char avx2_name[] = "avx2", avx512_name[] = "avx512";

static const struct CMUnitTest tests[] = {
	KT_TEST("the environment names the kernels, and wrong names are refused",
		test_that_the_environment_names_the_kernels),
	KT_TEST("the best kernels that the machine has are chosen",
		test_that_the_best_kernels_are_chosen),
	KT_TEST("unknown formats and widths out of bounds are refused",
		test_that_unknown_formats_and_widths_are_refused),
	KT_TEST_PARAM("avx2 kernels give the bytes of the scalar ones",
		      test_that_kernels_give_the_bytes_of_the_scalar_ones, avx2_name),
	KT_TEST_PARAM("avx512 kernels give the bytes of the scalar ones",
		      test_that_kernels_give_the_bytes_of_the_scalar_ones, avx512_name),
	KT_TEST("stored vectors may lie at any address", test_that_any_address_will_do),
	KT_TEST("vectors one by one are the same as many at once",
		test_that_vectors_one_by_one_are_the_same),
	KT_TEST("NaN and infinity are refused and nothing behind is touched",
		test_that_nan_and_infinity_are_refused_and_nothing_behind_is_touched),
	KT_TEST("raw keeps every bit, NaN too", test_that_raw_keeps_every_bit),
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
	KT_TEST("rounding and flushing that a thread has set change no byte",
		test_that_the_settings_of_the_thread_change_no_byte),
	KT_TEST("damaged bytes are read without harm",
		test_that_damaged_bytes_are_read_without_harm),
	KT_TEST("the bytes of version 1 stay", test_that_the_bytes_of_version_1_stay),
};

KT_MAIN(tests)
