/*
 * Settings and command line: every key, every fault with file and line, flags over file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/options.h"
#include "daemon/settings.h"
#include "offload/io.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"

static char *dir;
static char path[300];

static int make_dir(void **state)
{
	(void)state;
	dir = kt_tmpdir_new();
	snprintf(path, sizeof(path), "%s/conf", dir);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	kt_tmpdir_free(dir);
	return 0;
}

static int read_text(struct settings *settings, const char *text, struct errbuf *err)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	settings_default(settings);
	return settings_read(settings, path, err);
}

static void test_every_key_is_read(void **state)
{
	struct settings s;
	struct errbuf err = {0};

	(void)state;
	assert_int_equal(read_text(&s,
				   "; a comment\n"
				   "[service]\n"
				   "runtime_dir = /tmp/x\n"
				   "socket_mode = 0660\n"
				   "socket_group = kvc\n"
				   "  log_level = debug ; indented\n"
				   "\n"
				   "[pool host]\n"
				   "bytes = 64M\n"
				   "huge = no\n"
				   "mlock = no\n"
				   "arena_bytes = 16M\n"
				   "[pool disk]\n"
				   "dir = /tmp/x/store\n"
				   "bytes = 48M\n"
				   "preallocate = no\n"
				   "io = threads\n"
				   "[limits]\n"
				   "sessions = 3\n"
				   "sequences = 4\n"
				   "bytes_per_user = 32M\n"
				   "jobs = 5", /* no newline at the end */
				   &err),
			 0);
	assert_string_equal(s.runtime_dir, "/tmp/x");
	assert_int_equal(s.socket_mode, 0660);
	assert_string_equal(s.socket_group, "kvc");
	assert_int_equal(s.log_level, LOG_LEVEL_DEBUG);
	assert_int_equal(s.pool_bytes, 64 << 20);
	assert_int_equal(s.huge, SETTINGS_NO);
	assert_int_equal(s.mlock, SETTINGS_NO);
	assert_int_equal(s.arena_bytes, 16 << 20);
	assert_string_equal(s.disk_dir, "/tmp/x/store");
	assert_int_equal(s.disk_bytes, 48 << 20);
	assert_int_equal(s.preallocate, SETTINGS_OFF);
	assert_int_equal(s.io, IO_THREADS);
	assert_int_equal(s.n_sessions_max, 3);
	assert_int_equal(s.n_sequences_max, 4);
	assert_int_equal(s.user_bytes_max, 32 << 20);
	assert_int_equal(s.n_jobs_max, 5);
	assert_int_equal(settings_check(&s, &err), 0);
}

static void test_an_empty_file_leaves_the_defaults(void **state)
{
	struct settings s;
	struct settings plain;

	(void)state;
	settings_default(&plain);
	assert_int_equal(read_text(&s, "", NULL), 0);
	assert_memory_equal(&s, &plain, sizeof(s));
	assert_int_equal(s.arena_bytes, UINT64_C(64) << 30);
	assert_string_equal(s.disk_dir, "");
	assert_int_equal(s.disk_bytes, UINT64_C(16) << 30);
	assert_int_equal(s.preallocate, SETTINGS_ON);
	assert_int_equal(s.io, IO_AUTO);
}

static const struct fault {
	const char *text;
	const char *line; /* ":N: " and the start of the reason */
} faults[] = {
	{"[service]\nlog_lvl = info\n", ":2: unknown key log_lvl in section [service]"},
	{"\n\n[servce]\nlog_level = info\n", ":4: unknown section [servce]"},
	{"bytes = 1M\n", ":1: unknown section []"},
	{"[pool host]\nbytes = 64Q\n", ":2: bytes = 64Q is not a size"},
	{"[pool host]\nbytes = 64MB\n", ":2: bytes = 64MB is not a size"},
	{"[pool host]\nbytes = -1\n", ":2: bytes = -1 is not a size"},
	{"[pool host]\nbytes = 99999999999999999999\n",
	 ":2: bytes = 99999999999999999999 is not a size"},
	{"[pool host]\nbytes = 99999999999T\n", ":2: bytes = 99999999999T is not a size"},
	{"[pool host]\nbytes = 1048575\n", ":2: bytes = 1048575 is out of range"},
	{"[pool host]\nhuge = yes\n", ":2: huge = yes is not one of: no, try"},
	{"[pool disk]\nbytes = 1\n", ":2: bytes = 1 is out of range"},
	{"[pool disk]\npreallocate = try\n", ":2: preallocate = try is not one of: no, yes"},
	{"[pool disk]\nio = aio\n", ":2: io = aio is not one of: auto, uring, threads"},
	{"[service]\nlog_level = loud\n",
	 ":2: log_level = loud is not one of: error, warn, info, debug"},
	{"[service]\nsocket_mode = 0999\n", ":2: socket_mode = 0999 is not a mode"},
	{"[service]\nsocket_mode = 0400\n", ":2: socket_mode = 0400 is not a mode"},
	{"[limits]\nsessions = 0\n", ":2: sessions = 0 is out of range: 1 to 1000000"},
	{"[limits]\nsessions = many\n", ":2: sessions = many is not a number"},
	{"[limits]\njobs = 1\n\nnonsense\n", ":4: neither [section], key = value nor ; comment"},
	{"[limits]\njobs = 1\n  sessions = x\n", ":3: sessions = x is not a number"},
};

static void test_a_fault_is_named_with_file_and_line(void **state)
{
	char want[512];
	struct settings s;
	struct errbuf err;

	(void)state;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		assert_int_equal(read_text(&s, faults[i].text, &err), -1);
		snprintf(want, sizeof(want), "%s%s", path, faults[i].line);
		if (strncmp(err.text, want, strlen(want)) != 0)
			fail_msg("\"%s\" does not begin with \"%s\"", err.text, want);
		assert_int_equal(read_text(&s, faults[i].text, NULL), -1);
	}
}

static void test_a_long_line_is_refused_and_not_cut_in_two(void **state)
{
	char text[600] = "[service]\nruntime_dir = /";
	struct settings s;
	struct errbuf err;

	(void)state;
	memset(text + strlen(text), 'a', 400);
	assert_int_equal(read_text(&s, text, &err), -1);
	assert_non_null(strstr(err.text, "conf:2: a line has at most "));
}

static void test_a_missing_file_is_named(void **state)
{
	struct settings s;
	struct errbuf err;

	(void)state;
	settings_default(&s);
	assert_int_equal(settings_read(&s, "/nonexistent/conf", &err), -1);
	assert_string_equal(err.text, "cannot read /nonexistent/conf: No such file or directory");
}

static void test_sizes(void **state)
{
	uint64_t bytes;

	(void)state;
	assert_int_equal(settings_bytes("0", &bytes), 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(settings_bytes("3K", &bytes), 0);
	assert_int_equal(bytes, 3072);
	assert_int_equal(settings_bytes("16777215T", &bytes), 0);
	assert_int_equal(bytes, UINT64_C(16777215) << 40);
	assert_int_equal(settings_bytes("16777216T", &bytes), -1);
	assert_int_equal(settings_bytes("", &bytes), -1);
	assert_int_equal(settings_bytes("K", &bytes), -1);
	assert_int_equal(settings_bytes("1KK", &bytes), -1);
	assert_int_equal(settings_bytes(" 1", &bytes), -1);
}

/* Every line of the sample is understood, and what it shows as default is the default. */
static void test_the_sample_file_shows_the_defaults(void **state)
{
	const char *top = getenv("top_srcdir");
	struct settings plain;
	struct settings s;
	struct errbuf err = {0};
	char sample[512];
	char line[256];
	char all[4096] = "";
	FILE *file;

	(void)state;
	snprintf(sample, sizeof(sample), "%s/daemon/kvcached.conf", top ? top : "..");
	settings_default(&s);
	if (settings_read(&s, sample, &err) != 0)
		fail_msg("%s", err.text);
	assert_string_equal(s.runtime_dir, "/run/kvcached");
	assert_int_equal(s.socket_mode, 0666);
	file = fopen(sample, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) /* with every default written out */
		strcat(all, line[0] == ';' && line[1] != ' ' ? line + 1 : line);
	fclose(file);
	if (read_text(&s, all, &err) != 0)
		fail_msg("%s", err.text);
	settings_default(&plain);
	strcpy(plain.runtime_dir, "/run/kvcached");
	plain.socket_mode = 0666;
	assert_memory_equal(&s, &plain, sizeof(s));
}

static void test_a_quota_above_the_pool_is_refused(void **state)
{
	struct settings s;
	struct errbuf err;

	(void)state;
	settings_default(&s);
	strcpy(s.runtime_dir, "/tmp/x");
	s.user_bytes_max = s.pool_bytes;
	assert_int_equal(settings_check(&s, &err), 0);
	s.user_bytes_max++;
	assert_int_equal(settings_check(&s, &err), -1);
	assert_int_equal(err.status, KV_ERANGE);
}

/* ---- command line ------------------------------------------------------------------------ */

static enum options_next parse(struct options *options, const char *const *words)
{
	static char name[] = "kvcached";
	char *argv[16] = {name};
	int argc = 1;

	while (words[argc - 1]) {
		argv[argc] = (char *)words[argc - 1];
		argc++;
	}
	return options_parse(options, argc, argv);
}

#define PARSE(options, ...) parse(options, (const char *const[]){__VA_ARGS__, NULL})

static void test_flags_win_over_the_file(void **state)
{
	struct options options;
	struct settings s;

	(void)state;
	assert_int_equal(read_text(&s, "[pool host]\nbytes = 8M\nmlock = no\n", NULL), 0);
	assert_int_equal(PARSE(&options, "--pool-bytes", "64M", "--config", path,
			       "--runtime-dir=/tmp/y", "--foreground"),
			 OPTIONS_RUN);
	assert_int_equal(options.settings.pool_bytes, 64 << 20);
	assert_int_equal(options.settings.mlock, SETTINGS_NO);
	assert_string_equal(options.settings.runtime_dir, "/tmp/y");
	assert_int_equal(options.ready_fd, -1);
}

static void test_wrong_command_lines_are_refused(void **state)
{
	struct options options;

	(void)state;
	assert_int_equal(PARSE(&options, "--no-such-flag"), OPTIONS_WRONG);
	assert_int_equal(PARSE(&options, "word"), OPTIONS_WRONG);
	assert_int_equal(PARSE(&options, "--runtime-dir", "relative"), OPTIONS_WRONG);
	assert_int_equal(PARSE(&options, "--runtime-dir", "/x", "--pool-bytes", "64X"),
			 OPTIONS_WRONG);
	assert_int_equal(PARSE(&options, "--runtime-dir", "/x", "--ready-fd", "999"),
			 OPTIONS_WRONG);
	assert_int_equal(PARSE(&options, "--config", "/nonexistent"), OPTIONS_WRONG);
}

static void test_check_config_and_ready_fd(void **state)
{
	struct options options;

	(void)state;
	assert_int_equal(PARSE(&options, "--runtime-dir", "/x", "--ready-fd", "2"), OPTIONS_RUN);
	assert_int_equal(options.ready_fd, 2);
	assert_int_equal(PARSE(&options, "--check-config", "--runtime-dir", "/x", "--jobs", "0"),
			 OPTIONS_WRONG);
}

/* Standard output of a call that prints goes to the file at path. */
static enum options_next check_config(struct options *options, const char *config)
{
	enum options_next next;
	int before;

	fflush(stdout);
	before = dup(STDOUT_FILENO);
	assert_non_null(freopen(path, "we", stdout));
	next = PARSE(options, "--check-config", "--runtime-dir", "/x", "--disk-dir", "/x/store",
		     "--io", "uring", "--preallocate", "no", "--config", config);
	fflush(stdout);
	assert_true(dup2(before, STDOUT_FILENO) >= 0);
	close(before);
	return next;
}

static void test_check_config_prints_what_is_in_force(void **state)
{
	char config[sizeof(path) + 8];
	struct options options;
	struct settings s;

	(void)state;
	assert_int_equal(read_text(&s, "[pool disk]\nbytes = 8M\n[limits]\njobs = 7\n", NULL), 0);
	snprintf(config, sizeof(config), "%s.given", path);
	assert_int_equal(rename(path, config), 0);
	assert_int_equal(check_config(&options, config), OPTIONS_DONE);
	settings_default(&s);
	assert_int_equal(settings_read(&s, path, NULL), 0);
	assert_int_equal(s.disk_bytes, 8 << 20);
	assert_string_equal(s.disk_dir, "/x/store");
	assert_memory_equal(&s, &options.settings, sizeof(s));
	unlink(config);
}

static void test_a_disk_pool_needs_an_absolute_path(void **state)
{
	struct settings s;
	struct errbuf err;

	(void)state;
	settings_default(&s);
	strcpy(s.runtime_dir, "/x");
	strcpy(s.disk_dir, "store");
	assert_int_equal(settings_check(&s, &err), -1);
	assert_non_null(strstr(err.text, "not an absolute path"));
	strcpy(s.disk_dir, "/store");
	assert_int_equal(settings_check(&s, &err), 0);
}

static void test_the_runtime_directory_has_defaults(void **state)
{
	struct options options;

	(void)state;
	setenv("KVCACHED_RUNTIME_DIR", "/tmp/named", 1);
	assert_int_equal(PARSE(&options, "--foreground"), OPTIONS_RUN);
	assert_string_equal(options.settings.runtime_dir, "/tmp/named");
	unsetenv("KVCACHED_RUNTIME_DIR");
	setenv("XDG_RUNTIME_DIR", "/tmp/xdg", 1);
	assert_int_equal(PARSE(&options, "--foreground"), OPTIONS_RUN);
	assert_string_equal(options.settings.runtime_dir,
			    geteuid() == 0 ? "/run/kvcached" : "/tmp/xdg/kvcached");
}

static const struct CMUnitTest tests[] = {
	KT_TEST("every key is read", test_every_key_is_read),
	KT_TEST("an empty file leaves the defaults", test_an_empty_file_leaves_the_defaults),
	KT_TEST("a fault is named with file and line", test_a_fault_is_named_with_file_and_line),
	KT_TEST("a long line is refused and not cut in two",
		test_a_long_line_is_refused_and_not_cut_in_two),
	KT_TEST("a missing file is named", test_a_missing_file_is_named),
	KT_TEST("sizes are bytes with K, M, G or T", test_sizes),
	KT_TEST("the sample file shows the defaults", test_the_sample_file_shows_the_defaults),
	KT_TEST("a quota above the pool is refused", test_a_quota_above_the_pool_is_refused),
	KT_TEST("flags win over the file", test_flags_win_over_the_file),
	KT_TEST("wrong command lines are refused", test_wrong_command_lines_are_refused),
	KT_TEST("check-config prints settings that give the same when they are read",
		test_check_config_prints_what_is_in_force),
	KT_TEST("a disk pool needs an absolute path", test_a_disk_pool_needs_an_absolute_path),
	KT_TEST("check-config checks, ready-fd takes an open descriptor",
		test_check_config_and_ready_fd),
	KT_TEST("the runtime directory has defaults", test_the_runtime_directory_has_defaults),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), make_dir,
				       remove_dir};

	return kt_run(argc, argv, &group, 1);
}
