/*
 * kvc-generate on a private kvcached: text and digest of the logits are those of --private, also
 * when the core dies meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/daemon.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

static struct kt_daemon *daemon_of_test;

static int start(void **state)
{
	(void)state;
	daemon_of_test = kt_daemon_start(NULL);
	return daemon_of_test ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	return kt_daemon_stop(daemon_of_test);
}

/* Starts kvc-generate; $M is the folder of the model files. */
static FILE *run_start(const char *options, const char *cache)
{
	const char *top = getenv("top_srcdir"), *builddir = getenv("top_builddir");
	char command[4096];
	FILE *pipe;

	snprintf(command, sizeof(command),
		 "M='%s/client/examples/model' && '%s/kvc-generate' %s %s 2>/dev/null",
		 top ? top : ".", builddir ? builddir : ".", options, cache);
	pipe = popen(command, "re");
	assert_non_null(pipe);
	return pipe;
}

/* Its standard output, when it has ended; its exit status is returned. */
static int run_end(FILE *pipe, char *out, size_t n_room)
{
	size_t n = fread(out, 1, n_room - 1, pipe);
	int status = pclose(pipe);

	out[n] = '\0';
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int run(const char *options, const char *cache, char *out, size_t n_room)
{
	return run_end(run_start(options, cache), out, n_room);
}

static void assert_same(const char *options)
{
	char cache[1024], shared[8192], private[8192];

	snprintf(cache, sizeof(cache), "--runtime-dir '%s'", kt_daemon_dir(daemon_of_test));
	assert_int_equal(run(options, "--private", private, sizeof(private)), 0);
	assert_int_equal(run(options, cache, shared, sizeof(shared)), 0);
	assert_true(strlen(private) > 50);
	assert_string_equal(shared, private);
}

#define FILES(model) "--model $M/" model ".safetensors --tokenizer $M/tokenizer.txt "

static void test_main(void **state)
{
	(void)state;
	assert_same(FILES("kjv-3m") "--prompt $M/prompt.txt --tokens 200 --seed 3");
}

static void test_draft(void **state)
{
	(void)state;
	assert_same(FILES("kjv-draft") "--prompt $M/prompt.txt --tokens 448 --seed 4");
}

static void test_score(void **state)
{
	(void)state;
	assert_same(FILES("kjv-draft") "--score $M/prompt.txt");
}

static void test_formats(void **state)
{
	static const char *const formats[] = {"raw", "int8", "int8-model", "u8",
					      "u4",  "q4",   "fp8",        "int8:u4"};

	(void)state;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		for (int replay = 0; replay < 2; replay++) {
			char options[256];

			snprintf(options, sizeof(options),
				 FILES("kjv-draft") "--prompt $M/prompt.txt --tokens 100 "
						    "--format %s %s",
				 formats[i], replay ? "--replay" : "");
			assert_same(options);
		}
	}
}

static void test_format_score(void **state)
{
	(void)state;
	assert_same(FILES("kjv-draft") "--score $M/prompt.txt --format u4");
	assert_same(FILES("kjv-draft") "--score $M/prompt.txt --format int8:u4 --replay");
}

static char *standard_output(const char *options, const char *cache)
{
	char *out = malloc(16384);

	assert_non_null(out);
	assert_int_equal(run(options, cache, out, 16384), 0);
	assert_true(strlen(out) > 50);
	return out;
}

/* Drafts change nothing: one row on kvcached is the plain run, several are those on private
 * buffers. On plain int8 the text may be another one, but the same on both. */
static void test_drafts(void **state)
{
#define RUN FILES("kjv-3m") "--prompt $M/prompt.txt --tokens 60 "
#define DRAFTS "--draft $M/kjv-draft.safetensors "
	static const struct {
		const char *options, *draft;
		const char *plain; /* NULL: drafts on private buffers */
	} list[] = {
		{RUN "--temperature 0 ", DRAFTS, ""},
		{RUN "--seed 7 ", DRAFTS "--draft-tokens 2 ", ""},
		{RUN "--seed 7 --format int8:u4 --replay ", DRAFTS, ""},
		{RUN "--seed 7 ", DRAFTS "--rows 3 ", NULL},
		{RUN "--seed 7 --format fp8 --replay ", DRAFTS "--rows 3 ", NULL},
		{RUN "--seed 7 --format int8 ", DRAFTS "--rows 2 ", NULL},
	};
	char shared[1024], options[1024];

	(void)state;
	snprintf(shared, sizeof(shared), "--runtime-dir '%s'", kt_daemon_dir(daemon_of_test));
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		const char *plain = list[i].plain ? list[i].plain : list[i].draft;
		char *want, *got;

		snprintf(options, sizeof(options), "%s%s", list[i].options, plain);
		want = standard_output(options, "--private");
		snprintf(options, sizeof(options), "%s%s", list[i].options, list[i].draft);
		got = standard_output(options, shared);
		assert_string_equal(got, want);
		free(want);
		free(got);
	}
}

/* As long as nothing is evicted a policy changes nothing; with fewer slots it does, and in the same
 * way each time. */
static void test_policies(void **state)
{
	static const char *const policies[] = {"ring", "lastrec",  "smart-lastrec",
					       "h2o",  "h2o-orig", "h2o-vlen",
					       "qh2o", "qh2o-vlen"};
	static const char *const formats[] = {"raw", "int8", "u8",  "u4",
					      "q4",  "fp8",  "raw", "int8:u4"};
	char shared[1024], options[1024];

	(void)state;
	snprintf(shared, sizeof(shared), "--runtime-dir '%s'", kt_daemon_dir(daemon_of_test));
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		char *plain, *roomy, *tight, *again;
		const char *run = FILES("kjv-draft") "--prompt $M/prompt.txt --tokens 60 --format";

		snprintf(options, sizeof(options), "%s %s", run, formats[i]);
		plain = standard_output(options, shared);
		snprintf(options, sizeof(options), "%s %s --policy %s --slots 1700", run,
			 formats[i], policies[i]);
		roomy = standard_output(options, shared);
		snprintf(options, sizeof(options), "%s %s --policy %s --slots 200", run, formats[i],
			 policies[i]);
		tight = standard_output(options, shared);
		again = standard_output(options, shared);
		assert_string_equal(roomy, plain);
		assert_string_not_equal(tight, plain);
		assert_string_equal(tight, again);
		free(plain);
		free(roomy);
		free(tight);
		free(again);
	}
}

/* A score goes back to the beginning after each window; dense takes what there is room for. */
static void test_policy_score(void **state)
{
	char cache[1024], out[1024];
	double plain, tight;

	(void)state;
	snprintf(cache, sizeof(cache), "--runtime-dir '%s'", kt_daemon_dir(daemon_of_test));
	assert_int_equal(run(FILES("kjv-draft") "--score $M/prompt.txt", cache, out, sizeof(out)),
			 0);
	assert_int_equal(sscanf(out, "bits per byte %lf", &plain), 1);
	assert_int_equal(run(FILES("kjv-draft") "--score $M/prompt.txt --policy h2o --slots 256",
			     cache, out, sizeof(out)),
			 0);
	assert_int_equal(sscanf(out, "bits per byte %lf", &tight), 1);
	assert_true(tight > plain && tight < plain + 0.05);
	assert_int_equal(run(FILES("kjv-draft") "--score $M/prompt.txt --policy dense --slots 256",
			     cache, out, sizeof(out)),
			 1);
	assert_int_equal(run(FILES("kjv-draft") "--score $M/prompt.txt --policy dense --slots 1600",
			     cache, out, sizeof(out)),
			 0);
	assert_int_equal(sscanf(out, "bits per byte %lf", &tight), 1);
	assert_true(tight == plain);
}

static bool file_is_there(void *path)
{
	return access(path, F_OK) == 0;
}

/* kvc-generate makes the file of logits when it has its sequence, before it begins with the prompt;
 * reserves follow all along. */
static void test_core_killed(void **state)
{
	char *folder = kt_tmpdir_new(), path[512], cache[1024], shared[8192], private[8192];
	const char *options = FILES("kjv-3m") "--prompt $M/prompt.txt --tokens 300 --seed 5";
	FILE *pipe;

	(void)state;
	snprintf(path, sizeof(path), "%s/logits", folder);
	snprintf(cache, sizeof(cache), "--runtime-dir '%s' --logits '%s'",
		 kt_daemon_dir(daemon_of_test), path);
	pipe = run_start(options, cache);
	assert_true(kt_wait_until(file_is_there, path, 10000));
	assert_int_equal(kt_daemon_kill_core(daemon_of_test), 0);
	assert_int_equal(run_end(pipe, shared, sizeof(shared)), 0);
	assert_int_equal(run(options, "--private", private, sizeof(private)), 0);
	assert_string_equal(shared, private);
	kt_tmpdir_free(folder);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("the main model on kvcached gives text and logits of private buffers", test_main),
	KT_TEST("the draft model up to the end of its context, too", test_draft),
	KT_TEST("a text has the same score", test_score),
	KT_TEST("every format, plain and with a replay journal, gives what private buffers in that "
		"format give",
		test_formats),
	KT_TEST("and the same score", test_format_score),
	KT_TEST("drafts change neither text nor logits, in one row and in several", test_drafts),
	KT_TEST("every policy changes nothing while there are slots, and evicts the same each time",
		test_policies),
	KT_TEST("a score with a quarter of the slots is little worse; dense refuses when it is full",
		test_policy_score),
	KT_TEST("the core is killed during a run, and the run is none the wiser", test_core_killed),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), start, stop};

	return kt_run(argc, argv, &group, 1);
}
