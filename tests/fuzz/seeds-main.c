/*
 * The seeds of a fuzz target as ordinary tests.
 *
 * Promise: feeds the target each seed whole, cut at each length, and with each
 * bit flipped; at most MAX_RUNS_PER_SEED runs a test and seed. Each input lies
 * in memory of exactly its size, so that the sanitizers see a read beyond it.
 * Which target: the program is called seeds-NAME, the seeds are the files of
 * tests/fuzz/seeds/NAME. Failure modes: no seeds is a failed test. Thread: one.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/target.h"
#include "tests/support/runner.h"

#define MAX_RUNS_PER_SEED 4096

static char seeds_folder[PATH_MAX];

struct seed {
	uint8_t *bytes;
	size_t size;
};

static void run(const uint8_t *bytes, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	assert_non_null(copy);
	if (size)
		memcpy(copy, bytes, size);
	assert_int_equal(LLVMFuzzerTestOneInput(copy, size), 0);
	free(copy);
}

static void run_whole(const struct seed *seed)
{
	run(seed->bytes, seed->size);
}

static void run_cut(const struct seed *seed)
{
	const size_t step = seed->size / MAX_RUNS_PER_SEED + 1;

	for (size_t size = 0; size < seed->size; size += step)
		run(seed->bytes, size);
}

static void run_flipped(const struct seed *seed)
{
	const size_t step = seed->size * 8 / MAX_RUNS_PER_SEED + 1;

	for (size_t bit = 0; bit < seed->size * 8; bit += step) {
		const uint8_t mask = (uint8_t)(1U << (bit % 8));

		seed->bytes[bit / 8] ^= mask;
		run(seed->bytes, seed->size);
		seed->bytes[bit / 8] ^= mask;
	}
}

static struct seed seed_read(const char *name)
{
	struct seed seed = {0};
	char path[2 * PATH_MAX];
	FILE *file;
	long size;

	snprintf(path, sizeof(path), "%s/%s", seeds_folder, name);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	size = ftell(file);
	assert_true(size >= 0);
	rewind(file);
	seed.size = (size_t)size;
	seed.bytes = malloc(seed.size + 1);
	assert_non_null(seed.bytes);
	assert_int_equal(fread(seed.bytes, 1, seed.size, file), seed.size);
	fclose(file);
	return seed;
}

static void for_each_seed(void (*fn)(const struct seed *seed))
{
	DIR *dir = opendir(seeds_folder);
	unsigned int n_seeds = 0;
	struct dirent *entry;

	if (!dir)
		fail_msg("cannot open %s: %s", seeds_folder, strerror(errno));
	while ((entry = readdir(dir))) {
		struct seed seed;

		if (entry->d_name[0] == '.')
			continue;
		seed = seed_read(entry->d_name);
		fn(&seed);
		free(seed.bytes);
		n_seeds++;
	}
	closedir(dir);
	assert_true(n_seeds > 0);
}

static void test_whole(void **state)
{
	(void)state;
	for_each_seed(run_whole);
}

static void test_cut(void **state)
{
	(void)state;
	for_each_seed(run_cut);
}

static void test_flipped(void **state)
{
	(void)state;
	for_each_seed(run_flipped);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("each seed is taken without harm", test_whole),
	KT_TEST("each seed cut short is taken without harm", test_cut),
	KT_TEST("each seed with a flipped bit is taken without harm", test_flipped),
};

int main(int argc, char **argv)
{
	const struct kt_group group = KT_GROUP(tests);
	const char *srcdir = getenv("top_srcdir");
	const char *name = strstr(argv[0], "seeds-");

	if (!name) {
		fprintf(stderr, "%s: the program must be called seeds-NAME\n", argv[0]);
		return 2;
	}
	snprintf(seeds_folder, sizeof(seeds_folder), "%s/tests/fuzz/seeds/%s",
		 srcdir ? srcdir : ".", name + strlen("seeds-"));
	return kt_run(argc, argv, &group, 1);
}
