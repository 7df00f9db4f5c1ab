/*
 * The codecs of the storage formats as code: which kernels are used, that all give the bytes of the
 * scalar ones, what is refused and left alone, and that nothing around a call changes its bytes.
 */
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/compute/convert.h"
#include "proto/limits.h"
#include "tests/unit/codec-room.h"

static const uint32_t widths[] = {1,  2,  7,  15, 16, 17, 18,  31,  32,  33,  34,
				  47, 48, 64, 80, 96, 98, 128, 130, 256, 577, 1024};
#define N_WIDTHS (sizeof(widths) / sizeof(widths[0]))

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
	assert_true(room_is_untouched(got.back + n * vector_bytes, ROOM_GAP));
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
	assert_true(room_is_untouched(room.back + codec->width * codec->element_bytes, ROOM_GAP));
	room_free(&room);
}

static void test_that_damaged_bytes_are_read_without_harm(void **state)
{
	(void)state;
	each_codec_and_kernels(32, check_damage);
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
	KT_TEST("rounding and flushing that a thread has set change no byte",
		test_that_the_settings_of_the_thread_change_no_byte),
	KT_TEST("damaged bytes are read without harm",
		test_that_damaged_bytes_are_read_without_harm),
};

KT_MAIN(tests)
