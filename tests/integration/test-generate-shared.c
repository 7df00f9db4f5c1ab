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
	KT_TEST("the core is killed during a run, and the run is none the wiser", test_core_killed),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), start, stop};

	return kt_run(argc, argv, &group, 1);
}
