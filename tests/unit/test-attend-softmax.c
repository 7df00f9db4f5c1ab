/*
 * The softmax of a tile and the merging of sums: the exponential is as near as attend.h says, and all
 * kernels give the scalar ones' bits.
 */
#include <math.h>
#include <string.h>

#include "client/compute/convert.h"
#include "tests/unit/attend-rows.h"

static const struct kv_codec_kernels *kernels_under_test;

static double ulp_of(double x)
{
	int exponent;

	frexp(x, &exponent);
	return ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}

/* Steps of some thousand floats from -0 to -104. */
static void test_that_the_exponential_is_within_two_ulp(void **state)
{
	double worst = 0;

	(void)state;
	for (uint32_t bits = kv_f32_bits(-0x1p-30f); bits < kv_f32_bits(-105.0f); bits += 997) {
		float x = kv_f32_of_bits(bits);
		double want = exp((double)x), off = fabs((double)kv_attend_exp(x) - want);

		worst = fmax(worst, off / ulp_of(want));
	}
	assert_true(worst <= 2);
	assert_true(kv_attend_exp(0) == 1);
	assert_true(kv_attend_exp(-104) == 0);
	assert_true(kv_attend_exp(-INFINITY) == 0);
	assert_true(kv_attend_exp(-FLT_MAX) == 0);
	assert_true(isnan(kv_attend_exp(NAN)));
}

static void check_softmax(const struct kv_attend_ops *ops, const float *scores, uint32_t n, float m)
{
	float want[MOST_ROWS], got[MOST_ROWS + 1], want_sum, got_sum, want_most, got_most;

	memcpy(want, scores, n * sizeof(*want));
	memcpy(got, scores, n * sizeof(*got));
	got[n] = UNTOUCHED;
	want_most = kv_attend_scalar.softmax(want, n, m, &want_sum);
	got_most = ops->softmax(got, n, m, &got_sum);
	assert_true(is_same(got_most, want_most));
	assert_true(is_same(got_sum, want_sum));
	for (uint32_t i = 0; i < n; i++)
		assert_true(is_same(got[i], want[i]));
	assert_true(got[n] == UNTOUCHED);
}

static void test_that_kernels_give_the_softmax_of_the_scalar_ones(void **state)
{
	static const float before[] = {-INFINITY, 0, -0.0f, 3, -200, INFINITY};
	static const float odd[] = {-INFINITY, INFINITY, NAN, -0.0f, 0, 1e30f};
	float s[MOST_ROWS];
	uint64_t random = 1;

	kernels_under_test = kernels_named(*state);
	for (uint32_t round = 0; round < 2000; round++) {
		float spread = ldexpf(1, (int)(round % 12) - 3);

		for (uint32_t i = 0; i < MOST_ROWS; i++) {
			s[i] = (float)(int32_t)row_random(&random) * 0x1p-31f * spread;
			if (round % 3 == 1 && row_random(&random) % 4 == 0)
				s[i] = odd[row_random(&random) % (round % 2 ? 6 : 1)];
		}
		check_softmax(kernels_under_test->attend(), s, round % (MOST_ROWS + 1),
			      before[round / 3 % 6]);
	}
}

static void test_that_a_softmax_of_nothing_is_nothing(void **state)
{
	float s[10], sum = -1;

	(void)state;
	assert_true(kv_attend_softmax(s, 0, -INFINITY, &sum) == -INFINITY && sum == 0);
	assert_true(kv_attend_softmax(s, 0, 2, &sum) == 2 && sum == 0);
	for (size_t i = 0; i < 10; i++)
		s[i] = -INFINITY;
	assert_true(kv_attend_softmax(s, 10, -INFINITY, &sum) == -INFINITY && sum == 0);
	for (size_t i = 0; i < 10; i++)
		assert_true(s[i] == 0);
	s[3] = 5;
	s[4] = -INFINITY;
	assert_true(kv_attend_softmax(s, 5, 4, &sum) == 5);
	assert_true(s[3] == 1 && s[4] == 0);
	assert_true(fabs((double)sum - 1 - 3 * exp(-5)) < 1e-6);
}

static void test_that_kernels_scale_and_merge_as_the_scalar_ones(void **state)
{
	float a[2][70], x[70];
	uint64_t random = 5;

	kernels_under_test = kernels_named(*state);
	for (uint32_t n = 0; n < 70; n++) {
		for (uint32_t i = 0; i < 70; i++) {
			a[0][i] = a[1][i] = (float)(int32_t)row_random(&random);
			x[i] = (float)(int32_t)row_random(&random);
		}
		kv_attend_scalar.scale(a[0], n, 0.7f);
		kv_attend_scalar.merge(a[0], n, 0.3f, x, 0.6f);
		kernels_under_test->attend()->scale(a[1], n, 0.7f);
		kernels_under_test->attend()->merge(a[1], n, 0.3f, x, 0.6f);
		assert_memory_equal(a[0], a[1], sizeof(a[0]));
	}
}

static char avx2_name[] = "avx2";

static const struct CMUnitTest tests[] = {
	KT_TEST("the exponential is within two ulp", test_that_the_exponential_is_within_two_ulp),
	KT_TEST_PARAM("avx2 kernels give the scalar ones' softmax",
		      test_that_kernels_give_the_softmax_of_the_scalar_ones, avx2_name),
	KT_TEST("a softmax of nothing is nothing", test_that_a_softmax_of_nothing_is_nothing),
	KT_TEST_PARAM("avx2 kernels scale and merge as the scalar ones",
		      test_that_kernels_scale_and_merge_as_the_scalar_ones, avx2_name),
};

KT_MAIN(tests)
