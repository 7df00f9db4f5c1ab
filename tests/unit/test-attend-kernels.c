/*
 * The inside of attention: the scalar kernels are as near to exact sums as attend.h says, all others
 * give their bits, and what else is computed in a call changes none of them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/compute/convert.h"
#include "client/compute/kernels.h"
#include "tests/unit/attend-rows.h"

/* ---- near to exact sums -------------------------------------------------------------------- */

/* Between what no step of f32 arithmetic can take out of its range? */
static bool is_moderate(double x)
{
	return x == 0 || (fabs(x) > 0x1p-60 && fabs(x) < 0x1p60);
}

/* The score, and how far from it attend.h allows to be. False if it promises nothing. */
static bool exact_score(const struct kv_codec *codec, const float *q, const struct kv_codec_at *at,
			double scale, double *score, double *bound)
{
	double magnitude = 0, sum = 0, sum_abs = 0, sum_k = 0;

	for (uint32_t i = 0; i < codec->width; i++) {
		double k = stored_value(codec, at, i), x = (double)q[i];

		if (!is_moderate(k) || !is_moderate(x))
			return false;
		sum += k * x;
		sum_abs += fabs(k * x);
		sum_k += fabs(k);
		magnitude = fmax(magnitude, fabs(x));
	}
	*score = sum * scale;
	*bound = sum_abs * (codec->width / 8 + 8) * 0x1p-24;
	if (codec->format != KV_FORMAT_RAW && codec->format != KV_FORMAT_FP8)
		*bound = sum_k * magnitude * exp2(-15.9) + sum_abs * 0x1p-20;
	*bound *= scale;
	return true;
}

static void check_scores_are_near(struct kv_codec *codec)
{
	float *q = queries_new(codec->width), scale = 0.125f, s[MOST_QUERIES][MOST_ROWS];
	struct room room = stored_rows(codec, 0);
	struct kv_attend_query query;
	void *memory;

	query = query_new(q, codec->width, MOST_QUERIES, &memory);
	kv_codec_use(codec, &kv_codec_kernels[0]);
	kv_attend_scores(codec, &query, MOST_ROWS, &room.at, NULL, scale, s[0], MOST_ROWS);
	for (uint32_t j = 0; j < MOST_QUERIES; j++)
		for (uint32_t i = 0; i < MOST_ROWS; i++) {
			struct kv_codec_at at = kv_codec_at(&room.at, i);
			double want, bound;

			if (!exact_score(codec, q + (size_t)j * codec->width, &at, (double)scale,
					 &want, &bound))
				continue;
			if (fabs((double)s[j][i] - want) > bound)
				fail_msg("%s width %u, row '%s': %g, not %g +- %g",
					 kv_format_name(codec->format), codec->width,
					 row_kind_name((enum row_kind)(i % ROW_N_KINDS)),
					 (double)s[j][i], want, bound);
		}
	test_free(memory);
	room_free(&room);
	test_free(q);
}

static void test_that_scores_are_near_exact_products(void **state)
{
	(void)state;
	each_width_and_codec(check_scores_are_near);
}

/* Element d of a sum over all rows, one far too large left out by a weight of 0. */
static void check_element(const struct kv_codec *codec, const struct kv_codec_at *rows,
			  const float *w, uint32_t d, double got)
{
	double sum = 0, sum_abs = 0;

	for (uint32_t i = 0; i < MOST_ROWS; i++) {
		struct kv_codec_at at = kv_codec_at(rows, i);
		double product = (double)w[i] * stored_value(codec, &at, d);

		sum += product;
		sum_abs += fabs(product);
	}
	if (fabs(got - sum) > sum_abs * (MOST_ROWS + 3) * 0x1p-24)
		fail_msg("%s width %u: %g, not %g", kv_format_name(codec->format), codec->width,
			 got, sum);
}

static void check_sums_are_near(struct kv_codec *codec)
{
	float w[MOST_ROWS], o[KV_ATTEND_WIDTH_MAX] = {0};
	struct room room = stored_rows(codec, 0);

	for (uint32_t i = 0; i < MOST_ROWS; i++) {
		struct kv_codec_at at = kv_codec_at(&room.at, i);

		w[i] = 1.0f / (float)(i + 3);
		for (uint32_t d = 0; d < codec->width; d++)
			if (!is_moderate(stored_value(codec, &at, d)))
				w[i] = 0;
	}
	kv_codec_use(codec, &kv_codec_kernels[0]);
	kv_attend_mix(codec, 1, w, 0, MOST_ROWS, &room.at, NULL, o, 0);
	for (uint32_t d = 0; d < codec->width; d++)
		check_element(codec, &room.at, w, d, (double)o[d]);
	room_free(&room);
}

static void test_that_sums_of_values_are_near_exact_ones(void **state)
{
	(void)state;
	each_width_and_codec(check_sums_are_near);
}

/* ---- the same bits ------------------------------------------------------------------------- */

static const struct kv_codec_kernels *kernels_under_test;

/* Scores and sums of all rows and queries, by the codec's kernels. */
struct results {
	float s[MOST_QUERIES][MOST_ROWS + 1], o[MOST_QUERIES][KV_ATTEND_WIDTH_MAX + 3];
};

static struct results *results_new(void)
{
	struct results *r = test_malloc(sizeof(*r));

	for (uint32_t j = 0; j < MOST_QUERIES; j++) {
		for (uint32_t i = 0; i <= MOST_ROWS; i++)
			r->s[j][i] = UNTOUCHED;
		for (uint32_t d = 0; d < KV_ATTEND_WIDTH_MAX + 3; d++)
			r->o[j][d] = UNTOUCHED;
	}
	return r;
}

#define S_STRIDE (MOST_ROWS + 1)
#define O_STRIDE (KV_ATTEND_WIDTH_MAX + 3)

static float weight(uint32_t j, uint32_t i)
{
	return ldexpf((float)(i * 7 % 11) / 10, -(int)(j * i % 40));
}

/* n_queries queries with n_rows rows. */
static void compute(const struct kv_codec *codec, const struct kv_attend_query *query,
		    const struct room *room, uint32_t n_queries, uint32_t n_rows, struct results *r)
{
	struct kv_attend_query part = kv_attend_query_part(query, 0, n_queries);
	float w[MOST_QUERIES][MOST_ROWS];

	for (uint32_t j = 0; j < n_queries; j++)
		for (uint32_t i = 0; i < n_rows; i++)
			w[j][i] = weight(j, i);
	kv_attend_scores(codec, &part, n_rows, &room->at, NULL, 0.3f, r->s[0], S_STRIDE);
	kv_attend_mix(codec, n_queries, w[0], MOST_ROWS, n_rows, &room->at, NULL, r->o[0],
		      O_STRIDE);
}

static void assert_same_results(const struct kv_codec *codec, const struct results *got,
				const struct results *want)
{
	for (uint32_t j = 0; j < MOST_QUERIES; j++) {
		for (uint32_t i = 0; i < S_STRIDE; i++)
			if (!is_same(got->s[j][i], want->s[j][i]))
				fail_msg("%s %s width %u, query %u, row %u '%s': score %a, not %a",
					 kv_format_name(codec->format), kv_dtype_name(codec->dtype),
					 codec->width, j, i,
					 row_kind_name((enum row_kind)(i % ROW_N_KINDS)),
					 (double)got->s[j][i], (double)want->s[j][i]);
		for (uint32_t d = 0; d < O_STRIDE; d++)
			if (!is_same(got->o[j][d], want->o[j][d]))
				fail_msg("%s %s width %u, query %u, element %u: sum %a, not %a",
					 kv_format_name(codec->format), kv_dtype_name(codec->dtype),
					 codec->width, j, d, (double)got->o[j][d],
					 (double)want->o[j][d]);
	}
}

/* All that kernels make of rows, against the scalar ones. */
static void compare_on(struct kv_codec *codec, const struct kv_attend_query *query,
		       const struct room *room)
{
	static const struct {
		uint32_t queries, rows;
	} sizes[] = {
		{1, 64}, {2, 63}, {3, 62}, {4, 64}, {5, 31}, {7, 13}, {9, 8},   {16, 64}, {18, 35},
		{1, 0},  {4, 0},  {1, 1},  {4, 1},  {2, 2},  {1, 7},  {17, 16}, {16, 1},  {4, 33},
	};

	for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++) {
		struct results *got = results_new(), *want = results_new();

		kv_codec_use(codec, &kv_codec_kernels[0]);
		compute(codec, query, room, sizes[n].queries, sizes[n].rows, want);
		kv_codec_use(codec, kernels_under_test);
		compute(codec, query, room, sizes[n].queries, sizes[n].rows, got);
		assert_same_results(codec, got, want);
		test_free(got);
		test_free(want);
	}
}

static void compare_kernels(struct kv_codec *codec)
{
	float *q = queries_new(codec->width);
	struct room room = stored_rows(codec, codec->width % 5);
	struct kv_attend_query query;
	uint64_t random = 1;
	void *memory;

	query = query_new(q, codec->width, MOST_QUERIES, &memory);
	compare_on(codec, &query, &room);
	/* damaged rows: any codes, scales and zero points */
	for (size_t k = 0; k < room.n_bytes; k++)
		room.bytes[k] = (char)row_random(&random);
	compare_on(codec, &query, &room);
	test_free(memory);
	room_free(&room);
	test_free(q);
}

static void test_that_kernels_give_the_bits_of_the_scalar_ones(void **state)
{
	kernels_under_test = kernels_named(*state);
	each_width_and_codec(compare_kernels);
}

/* Row by row, query by query, from other addresses: as all at once. */
static void check_batches(struct kv_codec *codec, const struct kv_codec_kernels *kernels)
{
	float *q = queries_new(codec->width), zeros[MOST_ROWS] = {0};
	struct results *want = results_new(), *got = results_new();
	struct room room = stored_rows(codec, 0), moved = stored_rows(codec, 1);
	struct kv_attend_query query;
	void *memory;

	kv_codec_use(codec, kernels);
	query = query_new(q, codec->width, MOST_QUERIES, &memory);
	compute(codec, &query, &room, MOST_QUERIES, MOST_ROWS, want);
	for (uint32_t i = 0; i < MOST_ROWS; i++)
		for (uint32_t j = MOST_QUERIES; j-- > 0;) {
			struct kv_attend_query one = kv_attend_query_part(&query, j, 1);
			struct kv_codec_at at = kv_codec_at(&moved.at, i);

			zeros[0] = weight(j, i);
			kv_attend_scores(codec, &one, 1, &at, NULL, 0.3f, &got->s[j][i], 0);
			kv_attend_mix(codec, 1, zeros, 0, 1, &at, NULL, got->o[j], 0);
		}
	assert_same_results(codec, got, want);
	test_free(memory);
	room_free(&room);
	room_free(&moved);
	test_free(want);
	test_free(got);
	test_free(q);
}

static void check_batches_of_all_kernels(struct kv_codec *codec)
{
	for (size_t k = 0; k < kv_codec_n_kernels; k++)
		if (kv_codec_kernels[k].is_supported())
			check_batches(codec, &kv_codec_kernels[k]);
}

static void test_that_what_is_computed_together_changes_nothing(void **state)
{
	(void)state;
	each_codec(96, check_batches_of_all_kernels);
	each_codec(50, check_batches_of_all_kernels);
}

/* A page with another behind it that must not be read. */
static char *guarded_new(size_t page_bytes)
{
	char *page = mmap(NULL, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	assert_true(page != MAP_FAILED);
	assert_int_equal(mprotect(page + page_bytes, page_bytes, PROT_NONE), 0);
	return page;
}

/* Rows that end where memory does; what comes next need not be there. */
static void check_ends(struct kv_codec *codec)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), used;
	char *pages[3] = {guarded_new(page_bytes), guarded_new(page_bytes),
			  guarded_new(page_bytes)};
	float *q = queries_new(codec->width), o[KV_ATTEND_WIDTH_MAX], s[3], w[3] = {1, 1, 1};
	struct kv_attend_ahead ahead = {pages[0] + page_bytes, 64, 200};
	struct kv_attend_query query;
	struct kv_codec_at at;
	void *memory;

	query = query_new(q, codec->width, 1, &memory);
	used = 3 * (size_t)codec->bytes.codes;
	at = (struct kv_codec_at){pages[0] + page_bytes - used,
				  pages[1] + page_bytes - 3 * (size_t)codec->bytes.scale,
				  pages[2] + page_bytes - 3 * (size_t)codec->bytes.zero,
				  codec->bytes.codes,
				  codec->bytes.scale,
				  codec->bytes.zero};
	memset(o, 0, sizeof(o));
	for (size_t k = 0; used <= page_bytes && k < kv_codec_n_kernels; k++) {
		if (!kv_codec_kernels[k].is_supported())
			continue;
		kv_codec_use(codec, &kv_codec_kernels[k]);
		kv_attend_scores(codec, &query, 3, &at, &ahead, 1, s, 0);
		kv_attend_mix(codec, 1, w, 0, 3, &at, &ahead, o, 0);
		assert_true(isfinite(s[0]) && isfinite(s[2]) && isfinite(o[0]));
	}
	test_free(memory);
	test_free(q);
	for (size_t i = 0; i < 3; i++)
		munmap(pages[i], 2 * page_bytes);
}

static void test_that_nothing_behind_a_row_is_read(void **state)
{
	(void)state;
	each_width_and_codec(check_ends);
}

/* ---- queries ------------------------------------------------------------------------------- */

static void check_odd_queries(struct kv_codec *codec)
{
	static const float odd[] = {NAN, INFINITY, -INFINITY, 0, 0x1p-140f, FLT_MAX};
	float q[6][64], s[6][MOST_ROWS];
	struct room room = stored_rows(codec, 0);
	struct kv_attend_query query;
	void *memory;

	for (uint32_t j = 0; j < 6; j++)
		for (uint32_t i = 0; i < 64; i++)
			q[j][i] = j < 3 && i != 9 ? 1.0f : odd[j];
	query = query_new(q[0], 64, 6, &memory);
	for (size_t k = 0; k < kv_codec_n_kernels; k++) {
		if (!kv_codec_kernels[k].is_supported())
			continue;
		kv_codec_use(codec, &kv_codec_kernels[k]);
		kv_attend_scores(codec, &query, MOST_ROWS, &room.at, NULL, 1.0f, s[0], MOST_ROWS);
		for (uint32_t i = 0; i < MOST_ROWS; i++) {
			assert_true(isnan(s[0][i]));
			assert_false(isfinite(s[1][i]) || isfinite(s[2][i]));
			assert_true(s[3][i] == 0);
		}
	}
	test_free(memory);
	room_free(&room);
}

static void test_that_queries_without_numbers_give_none_and_zeros_give_zero(void **state)
{
	(void)state;
	each_codec(64, check_odd_queries);
}

static void test_that_kernels_make_the_integers_of_the_scalar_ones(void **state)
{
	static const float odd[] = {0,         -0.0f,     NAN,       INFINITY,
				    -INFINITY, 0x1p-101f, 0x1p-100f, FLT_MAX};
	float q[MOST_QUERIES * 256], unit[2], *made = queries_new(256);
	int16_t q16[2][256];

	kernels_under_test = kernels_named(*state);
	memcpy(q, made, sizeof(q));
	for (uint32_t round = 0; round < 9 * 8; round++) {
		float *x = q + (size_t)(round % 9) * 256;
		uint32_t n = (round % 16 + 1) * 16;
		int32_t sum = kv_attend_scalar.integers(x, n, q16[0], &unit[0]);

		assert_int_equal(kernels_under_test->attend()->integers(x, n, q16[1], &unit[1]),
				 sum);
		assert_memory_equal(q16[0], q16[1], n * sizeof(q16[0][0]));
		assert_true(is_same(unit[0], unit[1]));
		for (uint32_t i = 0; i < n; i++)
			assert_in_range(q16[0][i] + 32767, 0, 65534);
		x[round % 256] = odd[round / 9];
	}
	test_free(made);
}

/* Sums of the largest codes with the largest queries stay exact: 256 times 255 times 32767. */
static void test_that_the_widest_sums_of_codes_do_not_overflow(void **state)
{
	uint8_t codes[256];
	float q[256], one = 1, s;
	int32_t zero = 0;
	struct kv_codec_at at = {codes, &one, &zero, 0, 0, 0};
	struct kv_attend_query query;
	struct kv_codec codec;
	void *memory;

	(void)state;
	memset(codes, 255, sizeof(codes));
	for (size_t i = 0; i < 256; i++)
		q[i] = 32767;
	query = query_new(q, 256, 1, &memory);
	assert_true(codec_make(&codec, KV_FORMAT_U8, KV_DTYPE_F32, 256));
	for (size_t k = 0; k < kv_codec_n_kernels; k++) {
		if (!kv_codec_kernels[k].is_supported())
			continue;
		kv_codec_use(&codec, &kv_codec_kernels[k]);
		kv_attend_scores(&codec, &query, 1, &at, NULL, 1, &s, 0);
		assert_true(s == 256.0f * 255 * 32767);
		zero = INT32_MIN;
		kv_attend_scores(&codec, &query, 1, &at, NULL, 1, &s, 0);
		assert_true(s == (float)((255 + 0x1p31) * 256 * 32767));
		zero = 0;
	}
	test_free(memory);
}

static char avx2_name[] = "avx2", avx512_name[] = "avx512";

static const struct CMUnitTest tests[] = {
	KT_TEST("scores are near exact products", test_that_scores_are_near_exact_products),
	KT_TEST("sums of values are near exact ones", test_that_sums_of_values_are_near_exact_ones),
	KT_TEST_PARAM("avx2 kernels give the scalar ones' bits",
		      test_that_kernels_give_the_bits_of_the_scalar_ones, avx2_name),
	KT_TEST_PARAM("avx512 kernels give the scalar ones' bits",
		      test_that_kernels_give_the_bits_of_the_scalar_ones, avx512_name),
	KT_TEST("what is computed together changes nothing",
		test_that_what_is_computed_together_changes_nothing),
	KT_TEST("nothing behind a row is read", test_that_nothing_behind_a_row_is_read),
	KT_TEST("queries without numbers give none, and zeros give zero",
		test_that_queries_without_numbers_give_none_and_zeros_give_zero),
	KT_TEST_PARAM("avx2 kernels make the scalar ones' integers of queries",
		      test_that_kernels_make_the_integers_of_the_scalar_ones, avx2_name),
	KT_TEST("the widest sums of codes do not overflow",
		test_that_the_widest_sums_of_codes_do_not_overflow),
};

KT_MAIN(tests)
