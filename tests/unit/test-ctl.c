/*
 * kvcachectl on hand-made answers: whole commands, from the words of the command line to every
 * byte that a person or a program reads. The expected text of each case is a file in
 * tests/data/ctl; KV_GOLDEN_WRITE=1 writes them anew (then read the difference).
 */
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/units.h"
#include "tests/support/runner.h"
#include "tests/unit/ctl-answers.h"

#define WORDS_MAX 20

struct golden {
	const char *file;
	const char *words[WORDS_MAX];
	int code;
	bool colour, ascii, empty, no_daemon;
	unsigned width;
	enum answers_disk disk;
};

struct result {
	char *text, *errors;
	size_t n_text, n_errors;
	int code;
	unsigned n_calls;
};

static void run(const struct golden *golden, struct result *result)
{
	struct answers answers = {
		.empty = golden->empty, .no_daemon = golden->no_daemon, .disk = golden->disk};
	struct ctl ctl = {.call = answers_call, .call_arg = &answers, .program = "kvcachectl"};
	char *argv[WORDS_MAX + 2] = {strdup("kvcachectl")};
	int argc = 1;

	setenv("TZ", "UTC", 1);
	for (int i = 0; i < WORDS_MAX && golden->words[i]; i++)
		argv[argc++] = strdup(golden->words[i]);
	ctl.out.stream = open_memstream(&result->text, &result->n_text);
	ctl.out.errors = open_memstream(&result->errors, &result->n_errors);
	ctl.out.width = golden->width ? golden->width : 80;
	ctl.out.colour = golden->colour;
	ctl.out.utf8 = !golden->ascii;
	ctl.now_unix_ns = ANSWERS_NOW_NS;
	result->code = ctl_main(&ctl, argc, argv);
	result->n_calls = answers.n_calls;
	fclose(ctl.out.stream);
	fclose(ctl.out.errors);
	for (int i = 0; i < argc; i++)
		free(argv[i]);
}

static void result_fini(struct result *result)
{
	free(result->text);
	free(result->errors);
}

static char *golden_path(const char *file)
{
	const char *top = getenv("top_srcdir");

	return ctl_format("%s/tests/data/ctl/%s.txt", top ? top : ".", file);
}

static char *file_read(const char *path)
{
	FILE *file = fopen(path, "r");
	char *text = calloc(1, 65536);

	if (file) {
		assert_true(fread(text, 1, 65535, file) < 65535);
		fclose(file);
	}
	return text;
}

static void test_golden(void **state)
{
	const struct golden *golden = *state;
	char *path = golden_path(golden->file), *expected, *text;
	struct result result;

	run(golden, &result);
	text = ctl_format("%s%s%s", result.text, result.n_errors ? "--- errors\n" : "",
			  result.errors);
	if (getenv("KV_GOLDEN_WRITE")) {
		FILE *file = fopen(path, "w");

		assert_non_null(file);
		fputs(text, file);
		fclose(file);
	}
	expected = file_read(path);
	assert_string_equal(text, expected);
	assert_int_equal(result.code, golden->code);
	free(expected);
	free(text);
	free(path);
	result_fini(&result);
}

/* Every line of what people read fits, unless it is a hash or a name given on the command line. */
static void test_width(void **state)
{
	const struct golden *golden = *state;
	struct result result;
	char *line, *rest;

	run(golden, &result);
	for (line = strtok_r(result.text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		size_t columns = 0;

		for (const char *p = line; *p; p++)
			columns += ((unsigned char)*p & 0xc0) != 0x80;
		assert_in_range(columns, 0, 80);
	}
	result_fini(&result);
}

/* The JSON value of a command has the codes and fields that scripts rely on. */
static void test_json(void **state)
{
	const struct golden *golden = *state;
	struct result result;
	json_t *value;

	run(golden, &result);
	value = json_loadb(result.text, result.n_text, 0, NULL);
	assert_non_null(value);
	assert_true(json_is_object(value));
	json_decref(value);
	result_fini(&result);
}

static void test_no_call(void **state)
{
	const struct golden *golden = *state;
	struct result result;

	run(golden, &result);
	assert_int_equal(result.code, golden->code);
	assert_int_equal(result.n_calls, 0);
	result_fini(&result);
}

static void test_units(void **state)
{
	static const struct {
		uint64_t n;
		const char *text;
	} bytes[] = {{0, "0 B"},
		     {1023, "1023 B"},
		     {1024, "1.0 KiB"},
		     {1535, "1.5 KiB"},
		     {102348, "99.9 KiB"},
		     {102400, "100 KiB"},
		     {1048063, "1023 KiB"},
		     {1048064, "1.0 MiB"},
		     {1048576, "1.0 MiB"},
		     {UINT64_MAX, "16.0 EiB"}},
	  counts[] = {{0, "0"},
		      {999, "999"},
		      {1000, "1,000"},
		      {1048576, "1,048,576"},
		      {UINT64_MAX, "18,446,744,073,709,551,615"}},
	  ages[] = {{0, "0 s"},           {59999, "59 s"},        {60000, "1 min"},
		    {3599999, "59 min"},  {3600000, "1 h 0 min"}, {86399999, "23 h 59 min"},
		    {86400000, "1 d 0 h"}};
	static const struct {
		double s;
		const char *text;
	} times[] = {{0, "0.00 ns"},        {999e-9, "999 ns"}, {12.34e-6, "12.3 us"},
		     {4.561e-3, "4.56 ms"}, {1.5, "1.50 s"},    {75, "75.0 s"}};

	(void)state;
	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
		assert_string_equal(units_bytes(bytes[i].n).s, bytes[i].text);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		assert_string_equal(units_count(counts[i].n).s, counts[i].text);
	for (size_t i = 0; i < sizeof(ages) / sizeof(ages[0]); i++)
		assert_string_equal(units_age(ages[i].n).s, ages[i].text);
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		assert_string_equal(units_time(times[i].s).s, times[i].text);
	assert_string_equal(units_percent(1, 3).s, "33.3 %");
	assert_string_equal(units_percent(1, 0).s, "-");
	assert_string_equal(units_clean("a\033[2J\x9b\tb").s, "a?[2J??b");
}

#define GOLDEN(file, code, ...) \
	{ \
		file, {__VA_ARGS__}, code, false, false, false, false, 0, ANSWERS_DISK \
	}

#define GOLDEN_DISK(file, disk, colour, ...) \
	{ \
		file, {__VA_ARGS__}, 0, colour, false, false, false, 0, disk \
	}

static struct golden goldens[] = {
	GOLDEN("status", 0, "status"),
	GOLDEN("status-json", 0, "status", "--json"),
	{"status-colour", {"status"}, 0, true, false, false, false, 0, ANSWERS_DISK},
	GOLDEN("ls", 0, "ls"),
	GOLDEN("ls-json", 0, "ls", "--json", "chat/b"),
	GOLDEN("ls-names", 0, "ls", "--names"),
	GOLDEN("ls-prefix", 0, "ls", "old/"),
	{"ls-colour", {"ls"}, 0, true, false, false, false, 0, ANSWERS_DISK},
	{"ls-empty", {"ls"}, 0, false, false, true, false, 0, ANSWERS_DISK},
	{"ls-wide", {"ls"}, 0, false, false, false, false, 120, ANSWERS_DISK},
	GOLDEN("show", 0, "show", "demo/prompt", "@3"),
	GOLDEN("show-json", 0, "show", "--json", "demo/prompt"),
	GOLDEN("show-nobody", 1, "show", "nobody"),
	GOLDEN("show-nobody-json", 1, "show", "nobody", "--json"),
	GOLDEN("tree", 0, "tree"),
	{"tree-ascii", {"tree"}, 0, false, true, false, false, 0, ANSWERS_DISK},
	GOLDEN("tree-part", 0, "tree", "chat/alice"),
	GOLDEN("tree-json", 0, "tree", "--json", "demo/prompt"),
	{"tree-empty", {"tree"}, 0, false, false, true, false, 0, ANSWERS_DISK},
	GOLDEN("snapshot", 0, "snapshot", "chat/alice", "a.1", "@4", "b.1"),
	GOLDEN("snapshot-json", 0, "snapshot", "--json", "chat/alice", "a.1"),
	GOLDEN("snapshot-taken", 1, "snapshot", "chat/alice", "taken"),
	GOLDEN("snapshot-replace", 0, "snapshot", "chat/alice", "taken", "--replace"),
	GOLDEN("fork", 0, "fork", "demo/prompt", "chat/carol", "--max-tokens=4096"),
	GOLDEN("fork-json", 0, "fork", "--json", "demo/prompt", "chat/carol"),
	GOLDEN("rollback-keep", 0, "rollback", "chat/alice", "chat/bob", "--keep", "1600"),
	GOLDEN("rollback-remove", 0, "rollback", "chat/alice", "--remove", "12"),
	GOLDEN("rollback-json", 0, "rollback", "chat/alice", "--remove", "12", "--json"),
	GOLDEN("rollback-too-many", 1, "rollback", "chat/bob", "--remove", "9999"),
	GOLDEN("journal", 0, "journal", "chat/alice"),
	GOLDEN("journal-json", 0, "journal", "chat/alice", "--json"),
	GOLDEN("journal-none", 0, "journal", "@2"),
	GOLDEN("journal-live", 1, "journal", "chat/alice", "--mode", "undo"),
	GOLDEN("mark-live", 1, "mark", "chat/alice"),
	GOLDEN("mark-live-json", 1, "mark", "chat/alice", "--list", "--json"),
	GOLDEN("mark-no-name", 1, "mark", "@11"),
	GOLDEN("fold-snapshot", 1, "fold", "demo/prompt", "--keep-rows", "17"),
	GOLDEN("fold-nobody", 1, "fold", "nobody"),
	GOLDEN("convert-taken", 1, "convert", "demo/prompt", "chat/bob", "--format", "u8:u4"),
	GOLDEN("diff-live", 1, "diff", "chat/alice", "demo/prompt"),
	GOLDEN("size", 0, "size", "--layers", "32", "--heads", "8", "--width", "128", "--tokens",
	       "4096", "--format", "int8"),
	GOLDEN("size-all", 0, "size", "--layers", "4", "--heads=2", "--width=48", "--v-width=32",
	       "--dtype", "f16", "--bound", "1000", "--block-tokens=16", "--format", "u8:u4",
	       "--tokens", "999", "--planes", "norm:slot:4,counters:sequence:4096"),
	GOLDEN("size-json", 0, "size", "--json", "--layers", "1", "--heads", "1", "--width", "64",
	       "--tokens", "0"),
	GOLDEN("size-object", 0, "size", "demo/prompt"),
	GOLDEN("size-object-json", 0, "size", "demo/prompt", "--tokens", "100", "--json"),
	GOLDEN("size-width", 1, "size", "--layers", "1", "--heads", "1", "--width", "33",
	       "--tokens", "1", "--format", "q4"),
	GOLDEN("rm", 1, "rm", "old/left", "chat/alice", "nobody", "old/right"),
	GOLDEN("rm-json", 1, "rm", "--json", "old/left", "chat/alice"),
	GOLDEN("verify", 0, "verify", "demo/prompt"),
	GOLDEN("verify-corrupt", 4, "verify", "demo/prompt", "old/right", "old/left"),
	GOLDEN("verify-json", 4, "verify", "--json", "old/right"),
	GOLDEN("verify-all", 4, "verify", "--all"),
	GOLDEN_DISK("status-no-disk", ANSWERS_DISK_NONE, false, "status"),
	GOLDEN_DISK("status-no-disk-json", ANSWERS_DISK_NONE, false, "status", "--json"),
	GOLDEN_DISK("status-disk-fault", ANSWERS_DISK_FAULT, true, "status"),
	GOLDEN_DISK("status-disk-fault-json", ANSWERS_DISK_FAULT, false, "status", "--json"),
	GOLDEN("save", 0, "save", "demo/prompt", "@4"),
	GOLDEN("save-as", 0, "save", "demo/prompt", "--as", "taken", "--replace"),
	GOLDEN("save-taken", 1, "save", "demo/prompt", "--as", "taken"),
	GOLDEN("save-nobody", 1, "save", "nobody", "chat/bob"),
	GOLDEN("save-json", 1, "save", "--json", "nobody", "chat/bob"),
	GOLDEN("load", 0, "load", "demo/prompt", "--as", "again", "--tokens", "1600"),
	GOLDEN("load-short", 1, "load", "demo/prompt", "--tokens", "1601"),
	GOLDEN("load-corrupt", 4, "load", "old/right", "nobody", "demo/prompt"),
	GOLDEN("load-json", 4, "load", "--json", "old/right", "demo/prompt"),
	GOLDEN("saved-ls", 0, "saved", "ls"),
	GOLDEN("saved-ls-names", 0, "saved", "ls", "--names"),
	GOLDEN("saved-ls-json", 0, "saved", "ls", "--json"),
	{"saved-ls-empty", {"saved", "ls"}, 0, false, false, true, false, 0, ANSWERS_DISK},
	GOLDEN("saved-rm", 1, "saved", "rm", "a", "nobody", "b"),
	GOLDEN("saved-rm-json", 1, "saved", "rm", "--json", "a", "nobody"),
	GOLDEN("store-check", 0, "store", "check"),
	GOLDEN("store-check-json", 0, "store", "check", "--json"),
	GOLDEN("store-repair", 4, "store", "repair"),
	GOLDEN("store-repair-json", 4, "store", "repair", "--json"),
	GOLDEN("store-stats", 0, "store", "stats"),
	GOLDEN_DISK("store-stats-trouble", ANSWERS_DISK_TROUBLE, true, "store", "stats"),
	GOLDEN("store-stats-json", 0, "store", "stats", "--json"),
	GOLDEN_DISK("store-stats-none", ANSWERS_DISK_NONE, false, "store", "stats"),
	GOLDEN("session-ls", 0, "session", "ls"),
	GOLDEN("session-ls-json", 0, "session", "ls", "--json"),
	{"session-ls-empty", {"session", "ls"}, 0, false, false, true, false, 0, ANSWERS_DISK},
	GOLDEN("session-end", 0, "session", "end", "7"),
	GOLDEN("session-end-json", 0, "session", "end", "7", "--json"),
	GOLDEN("session-end-unknown", 1, "session", "end", "8"),
	{"no-daemon", {"status"}, 3, false, false, false, true, 0, ANSWERS_DISK},
	{"no-daemon-json", {"status", "--json"}, 3, false, false, false, true, 0, ANSWERS_DISK},
	{"no-daemon-save", {"save", "a", "b"}, 3, false, false, false, true, 0, ANSWERS_DISK},
	{"no-daemon-store", {"store", "check"}, 3, false, false, false, true, 0, ANSWERS_DISK},
	{"no-daemon-rm", {"rm", "a", "b"}, 3, false, false, false, true, 0, ANSWERS_DISK},
	GOLDEN("help", 0, "--help"),
	GOLDEN("help-ls", 0, "ls", "--help"),
	GOLDEN("help-snapshot", 0, "snapshot", "--help"),
	GOLDEN("help-rollback", 0, "rollback", "--help"),
	GOLDEN("help-convert", 0, "convert", "--help"),
	GOLDEN("help-size", 0, "size", "--help"),
	GOLDEN("help-bench", 0, "bench", "--help"),
	GOLDEN("help-bench-attend", 0, "bench", "attend", "--help"),
	GOLDEN("help-save", 0, "save", "--help"),
	GOLDEN("help-load", 0, "load", "--help"),
	GOLDEN("help-session-end", 0, "--json", "session", "end", "--help"),
	GOLDEN("usage-none", 2, NULL),
	GOLDEN("usage-command", 2, "dance"),
	GOLDEN("usage-session", 2, "session", "dance"),
	GOLDEN("usage-option", 2, "ls", "--dance"),
	GOLDEN("usage-value", 2, "rollback", "a", "--keep"),
	GOLDEN("usage-switch", 2, "ls", "--names=yes"),
	GOLDEN("usage-number", 2, "rollback", "a", "--keep=-1"),
	GOLDEN("usage-deadline", 2, "status", "--deadline", "86400001"),
	GOLDEN("usage-words", 2, "status", "now"),
	GOLDEN("usage-few", 2, "show"),
	GOLDEN("usage-odd", 2, "snapshot", "a", "b", "c"),
	GOLDEN("usage-both", 2, "rollback", "a", "--keep", "1", "--remove", "1"),
	GOLDEN("usage-steps", 2, "rollback", "a", "b", "--steps", "1"),
	GOLDEN("usage-journal", 2, "journal", "a", "--mode", "redo"),
	GOLDEN("usage-mark", 2, "mark", "a", "--list", "--release", "1"),
	GOLDEN("usage-replay", 2, "replay", "a"),
	GOLDEN("usage-fold", 2, "fold", "a", "--keep-rows", "all"),
	GOLDEN("usage-convert", 2, "convert", "a", "b"),
	GOLDEN("usage-convert-format", 2, "convert", "a", "b", "--format", "int8:int9"),
	GOLDEN("usage-convert-name", 2, "convert", "a", "b c", "--format", "int8"),
	GOLDEN("usage-bench-word", 2, "bench", "dance"),
	GOLDEN("usage-bench-format", 2, "bench", "attend", "--format", "raw,int9"),
	GOLDEN("usage-bench-width", 2, "bench", "attend", "--width", "80", "--format", "q4"),
	GOLDEN("usage-diff", 2, "diff", "a"),
	GOLDEN("usage-size", 2, "size", "--tokens", "1"),
	GOLDEN("usage-size-tokens", 2, "size", "--layers", "1"),
	GOLDEN("usage-size-object", 2, "size", "a", "--heads", "1"),
	GOLDEN("usage-size-planes", 2, "size", "--tokens", "1", "--layers", "1", "--heads", "1",
	       "--width", "1", "--planes", "norm:slot:4,norm:4"),
	GOLDEN("usage-size-dtype", 2, "size", "--tokens", "1", "--layers", "1", "--heads", "1",
	       "--width", "1", "--dtype", "int8"),
	GOLDEN("usage-name", 2, "show", "a b"),
	GOLDEN("usage-at", 2, "show", "@x"),
	GOLDEN("usage-new-name", 2, "snapshot", "chat/alice", "@5"),
	GOLDEN("usage-verify", 2, "verify"),
	GOLDEN("usage-save", 2, "save"),
	GOLDEN("usage-save-as", 2, "save", "a", "b", "--as", "c"),
	GOLDEN("usage-save-name", 2, "save", "a", "--as", "@5"),
	GOLDEN("usage-load", 2, "load", "@5"),
	GOLDEN("usage-load-tokens", 2, "load", "a", "--tokens", "0"),
	GOLDEN("usage-saved", 2, "saved", "dance"),
	GOLDEN("usage-saved-rm", 2, "saved", "rm"),
	GOLDEN("usage-store", 2, "store"),
	GOLDEN("usage-session-number", 2, "session", "end", "seven"),
};

/* Which of the goldens ask nothing (usage, help), are JSON, or are for people. */
static bool is_quiet(const struct golden *g)
{
	return g->code == 2 || strncmp(g->file, "help", 4) == 0;
}

static bool is_json(const struct golden *g)
{
	return strstr(g->file, "-json") != NULL;
}

#define N_GOLDENS (sizeof(goldens) / sizeof(goldens[0]))

int main(int argc, char **argv)
{
	struct CMUnitTest *tests = ctl_alloc(2 * N_GOLDENS + 1, sizeof(*tests));
	char **names = ctl_alloc(2 * N_GOLDENS, sizeof(*names));
	struct kt_group group = {.tests = tests};
	int code;

	for (size_t i = 0; i < N_GOLDENS; i++) {
		struct golden *g = &goldens[i];
		CMUnitTestFunction second = is_quiet(g) ? test_no_call :
					    is_json(g)  ? test_json :
							  test_width;
		const char *what = is_quiet(g) ? "asks the daemon nothing" :
				   is_json(g)  ? "is one JSON object" :
						 "fits in 80 columns";

		names[2 * i] = ctl_format("kvcachectl prints tests/data/ctl/%s.txt", g->file);
		names[2 * i + 1] = ctl_format("kvcachectl case %s %s", g->file, what);
		tests[group.n_tests++] = (struct CMUnitTest)KT_TEST_PARAM(names[2 * i], test_golden,
									  g);
		if (!g->colour && g->width == 0)
			tests[group.n_tests++] = (struct CMUnitTest)KT_TEST_PARAM(names[2 * i + 1],
										  second, g);
	}
	tests[group.n_tests++] = (struct CMUnitTest)KT_TEST(
		"numbers are printed with the unit that a person would choose", test_units);
	code = kt_run(argc, argv, &group, 1);
	for (size_t i = 0; i < 2 * N_GOLDENS; i++)
		free(names[i]);
	free(names);
	free(tests);
	return code;
}
