/*
 * The plain read that attention is measured against: it sums every word of its plane once, by
 * however many threads.
 */
#include "client/ctl/plain_read.h"
#include "tests/support/runner.h"

#define STEP_BYTES 512u /* planes are multiples of it */
#define STEPS_MAX 77u

static _Alignas(64) uint64_t words[STEPS_MAX * STEP_BYTES / 8];

static void fill_words(void)
{
	for (size_t i = 0; i < STEPS_MAX * STEP_BYTES / 8; i++)
		words[i] = (i + 1) * 0x9e3779b97f4a7c15u;
}

static uint64_t sum_of(size_t n_steps)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n_steps * STEP_BYTES / 8; i++)
		sum += words[i];
	return sum;
}

static void check_all_lengths(kvc_workers *workers)
{
	fill_words();
	for (size_t n = 0; n <= STEPS_MAX; n++) {
		struct plain_plane plane = {words, n * STEP_BYTES, n * STEP_BYTES};

		assert_true(plain_read(&plane, workers) == sum_of(n));
	}
}

static void test_one_thread(void **state)
{
	(void)state;
	check_all_lengths(NULL);
}

static void test_threads(void **state)
{
	(void)state;
	for (uint32_t n = 1; n <= 5; n++) {
		kvc_workers *workers = kvc_workers_new(n);

		assert_non_null(workers);
		check_all_lengths(workers);
		kvc_workers_free(workers);
	}
}

static void test_nothing(void **state)
{
	struct plain_plane plane = {0};

	(void)state;
	plain_plane_fini(&plane);
	assert_null(plane.memory);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("one thread sums every word once", test_one_thread),
	KT_TEST("several threads sum every word once", test_threads),
	KT_TEST("a plane that was never made can be given up", test_nothing),
};

KT_MAIN(tests)
