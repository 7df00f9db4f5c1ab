/*
 * The programs that run sets of expected values (tests/vectors), on the sets in tests/data: all
 * passes, and a set that is damaged does not.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/compute/kernels.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"

/* Checks of the set in tests/data/quant: 36 widths refused, two of them for two formats; for each set of kernels 75 cases, those
 * of int8 in f32 and f16 for two formats, and 16 special rows of six formats and three dtypes. */
#define QUANT_REFUSED 38u
#define QUANT_EACH_KERNELS 381u
#define JOURNAL_CHECKS "1329"
#define POLICY_CHECKS "57674"

static const char *top(const char *variable)
{
	const char *folder = getenv(variable);

	return folder ? folder : ".";
}

/* Runs `PROGRAM FOLDER`; its exit status and last line. */
static int run(const char *program, const char *folder, char last[256])
{
	char command[PATH_MAX * 2], line[256];
	FILE *out;

	snprintf(command, sizeof(command), "%s/tests/vectors/%s '%s'", top("top_builddir"), program,
		 folder);
	out = popen(command, "r");
	assert_non_null(out);
	last[0] = '\0';
	while (fgets(line, sizeof(line), out)) {
		if (strstr(line, "FAILED"))
			print_message("%s", line);
		snprintf(last, 256, "%s", line);
	}
	return WEXITSTATUS(pclose(out));
}

static int run_quant(const char *folder, char last[256])
{
	return run("quant", folder, last);
}

static void test_that_the_quantised_vectors_pass(void **state)
{
	char folder[PATH_MAX], last[256], want[256];
	unsigned n_kernels = 0;

	(void)state;
	for (size_t i = 0; i < kv_codec_n_kernels; i++)
		n_kernels += kv_codec_kernels[i].is_supported();
	snprintf(folder, sizeof(folder), "%s/tests/data/quant", top("top_srcdir"));
	snprintf(want, sizeof(want), "%u passed, 0 failed\n",
		 QUANT_REFUSED + n_kernels * QUANT_EACH_KERNELS);
	assert_int_equal(run_quant(folder, last), 0);
	assert_string_equal(last, want);
}

/* Copies a file of a set, `n_cut` bytes shorter, with one byte changed. */
static void copy_of(const char *set, const char *to, const char *name, size_t n_cut, long flip_off)
{
	char path[PATH_MAX];
	char *bytes = test_malloc(4 << 20);
	size_t n;
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/data/%s/%s", top("top_srcdir"), set, name);
	assert_non_null(file = fopen(path, "re"));
	n = fread(bytes, 1, 4 << 20, file);
	fclose(file);
	assert_true(n > n_cut && n < 4 << 20);
	if (flip_off >= 0)
		bytes[flip_off] ^= 1;
	snprintf(path, sizeof(path), "%s/%s", to, name);
	assert_non_null(file = fopen(path, "we"));
	assert_int_equal(fwrite(bytes, 1, n - n_cut, file), n - n_cut);
	assert_int_equal(fclose(file), 0);
	test_free(bytes);
}

static void copy_damaged(const char *to, const char *name, size_t n_cut, long flip_off)
{
	copy_of("quant", to, name, n_cut, flip_off);
}

static void test_that_a_changed_byte_fails(void **state)
{
	char *folder = kt_tmpdir_new();
	char last[256];

	(void)state;
	copy_damaged(folder, "cases.tsv", 0, -1);
	copy_damaged(folder, "quant.safetensors", 0, 2508432 - 1); /* a code of the last tensor */
	assert_int_equal(run_quant(folder, last), 1);
	assert_non_null(strstr(last, " passed, "));
	assert_null(strstr(last, " 0 failed"));
	kt_tmpdir_free(folder);
}

static void test_that_a_file_cut_short_fails(void **state)
{
	char *folder = kt_tmpdir_new();
	char last[256];

	(void)state;
	copy_damaged(folder, "cases.tsv", 0, -1);
	copy_damaged(folder, "quant.safetensors", 1, -1);
	assert_int_equal(run_quant(folder, last), 1);
	assert_string_equal(last, "0 passed, 1 failed\n");
	kt_tmpdir_free(folder);
}

static void test_that_a_folder_without_a_set_fails(void **state)
{
	char *folder = kt_tmpdir_new();
	char last[256];

	(void)state;
	assert_int_equal(run_quant(folder, last), 1);
	assert_string_equal(last, "0 passed, 2 failed\n");
	kt_tmpdir_free(folder);
}

static void test_that_the_journal_traces_pass(void **state)
{
	char folder[PATH_MAX], last[256];

	(void)state;
	snprintf(folder, sizeof(folder), "%s/tests/data/journal", top("top_srcdir"));
	assert_int_equal(run("journal", folder, last), 0);
	assert_string_equal(last, JOURNAL_CHECKS " passed, 0 failed\n");
}

/* A byte of a vector that is written; one of those that were there before; a file cut short. */
static void test_that_a_damaged_trace_fails(void **state)
{
	static const struct {
		const char *name;
		size_t n_cut;
		long flip_off;
	} damages[] = {
		{"undo_raw_twice_b2h2l32", 0, 8224},     {"undo_raw_twice_b2h2l32", 0, 9472},
		{"undo_raw_twice_b2h2l32", 1, -1},       {"overlay_u8_part", 0, 10752},
		{"overlay_u8_part", 0, 26624 + 12 * 16},
	};
	char file[64], last[256];

	(void)state;
	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		char *folder = kt_tmpdir_new();

		snprintf(file, sizeof(file), "%s.txt", damages[i].name);
		copy_of("journal", folder, file, 0, -1);
		snprintf(file, sizeof(file), "%s.bin", damages[i].name);
		copy_of("journal", folder, file, damages[i].n_cut, damages[i].flip_off);
		assert_int_equal(run("journal", folder, last), 1);
		assert_null(strstr(last, " 0 failed"));
		kt_tmpdir_free(folder);
	}
}

static void test_that_the_policy_traces_pass(void **state)
{
	char folder[PATH_MAX], last[256];

	(void)state;
	snprintf(folder, sizeof(folder), "%s/tests/data/policy", top("top_srcdir"));
	assert_int_equal(run("policy", folder, last), 0);
	assert_string_equal(last, POLICY_CHECKS " passed, 0 failed\n");
}

/* A weight of an update; a position that was right; a file cut short. */
static void test_that_a_damaged_policy_trace_fails(void **state)
{
	static const struct {
		size_t n_cut;
		long flip_off;
	} damages[] = {{0, 3}, {0, 256}, {1, -1}};
	char last[256];

	(void)state;
	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		char *folder = kt_tmpdir_new();

		copy_of("policy", folder, "h2o_b1h2l32_full.txt", 0, -1);
		copy_of("policy", folder, "h2o_b1h2l32_full.bin", damages[i].n_cut,
			damages[i].flip_off);
		assert_int_equal(run("policy", folder, last), 1);
		assert_null(strstr(last, " 0 failed"));
		kt_tmpdir_free(folder);
	}
}

static void test_that_a_folder_without_traces_fails(void **state)
{
	char *folder = kt_tmpdir_new();
	char last[256];

	(void)state;
	assert_int_equal(run("journal", folder, last), 1);
	assert_string_equal(last, "0 passed, 0 failed\n");
	assert_int_equal(run("policy", folder, last), 1);
	assert_string_equal(last, "0 passed, 0 failed\n");
	kt_tmpdir_free(folder);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("the quantised vectors pass with all kernels",
		test_that_the_quantised_vectors_pass),
	KT_TEST("a changed byte in a set fails", test_that_a_changed_byte_fails),
	KT_TEST("a file of a set that is cut short fails", test_that_a_file_cut_short_fails),
	KT_TEST("a folder without a set fails", test_that_a_folder_without_a_set_fails),
	KT_TEST("the traces of undo and overlays pass", test_that_the_journal_traces_pass),
	KT_TEST("a damaged trace fails", test_that_a_damaged_trace_fails),
	KT_TEST("the traces of policies pass", test_that_the_policy_traces_pass),
	KT_TEST("a damaged trace of a policy fails", test_that_a_damaged_policy_trace_fails),
	KT_TEST("a folder without traces fails", test_that_a_folder_without_traces_fails),
};

KT_MAIN(tests)
