/*
 * The child half of the runner: runs tests through cmocka, one at a time.
 *
 * Promise: each test that runs to its end has exactly one verdict. Happy path:
 * kt_run() flattens the groups, hands over to kt_supervise(), which calls
 * run_from() in a child; each test is given to cmocka as a group of one, since
 * cmocka's assertions work only inside of its own loop. A process that a test
 * forked and that comes back here by a failed assertion leaves at once.
 * Thread: the only one, but for those that tests start.
 */
#include "tests/support/runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/supervise.h"
#include "tests/support/tmpdir.h"

struct entry {
	const struct kt_group *group;
	struct CMUnitTest test;
};

struct program {
	struct entry *entries;
	const char **names;
	size_t n_entries;
};

static char skip_reason[sizeof(((struct kt_record *)NULL)->text)];
static bool came_back;

void kt_skip(const char *reason, ...)
{
	va_list ap;

	va_start(ap, reason);
	vsnprintf(skip_reason, sizeof(skip_reason), reason, ap);
	va_end(ap);
	skip();
	abort();
}

/* What cmocka runs in place of the test: notes whether the test came to its end. */
static const struct CMUnitTest *current;

static void run_current(void **state)
{
	current->test_func(state);
	came_back = true;
}

static struct kt_record run_one(const struct entry *entry, void *group_state)
{
	struct kt_record record = {.verdict = KT_PASSED};
	struct CMUnitTest test = entry->test;
	int n_failed;

	current = &entry->test;
	test.test_func = run_current;
	if (!test.initial_state)
		test.initial_state = group_state;
	skip_reason[0] = '\0';
	came_back = false;
	n_failed = _cmocka_run_group_tests("kt", &test, 1, NULL, NULL);
	if (skip_reason[0]) {
		record.verdict = KT_SKIPPED;
		snprintf(record.text, sizeof(record.text), "%s", skip_reason);
	} else if (n_failed != 0 || !came_back) {
		record.verdict = KT_FAILED;
	}
	return record;
}

static void report(int fd, struct kt_record *record, size_t index)
{
	record->index = index;
	fflush(stdout);
	fflush(stderr);
	if (fd >= 0 && send(fd, record, sizeof(*record), MSG_NOSIGNAL) < 0)
		_exit(1);
}

/* Group set-up; a group that cannot be set up fails each of its tests. */
static int group_enter(const struct kt_group *group, void **state)
{
	*state = NULL;
	return group->setup ? group->setup(state) : 0;
}

static void group_leave(const struct kt_group *group, void **state)
{
	if (group->teardown && group->teardown(state) != 0)
		fprintf(stderr, "the group's teardown failed\n");
}

static void run_from(size_t from, int record_fd, void *arg)
{
	const struct program *program = arg;
	const struct kt_group *group = NULL;
	struct kt_record record;
	const pid_t self = getpid();
	void *state = NULL;
	int setup_rc = 0;

	for (size_t i = from; i < program->n_entries; i++) {
		const struct entry *entry = &program->entries[i];

		record = (struct kt_record){.verdict = KT_STARTED};
		report(record_fd, &record, i);
		if (entry->group != group) {
			if (group && setup_rc == 0)
				group_leave(group, &state);
			group = entry->group;
			setup_rc = group_enter(group, &state);
		}
		if (setup_rc == 0) {
			record = run_one(entry, state);
		} else {
			fprintf(stderr, "the group's set-up failed: %d\n", setup_rc);
			record = (struct kt_record){.verdict = KT_FAILED};
		}
		if (getpid() != self)
			_exit(1);
		if (record_fd < 0)
			kt_tap_line((unsigned int)i + 1, program->names[i], &record);
		report(record_fd, &record, i);
	}
	if (group && setup_rc == 0)
		group_leave(group, &state);
	record = (struct kt_record){.verdict = KT_FINISHED};
	report(record_fd, &record, program->n_entries);
}

/* cmocka_unit_test(fn) names a test after its function: read it as a sentence. */
static char *sentence_from(const char *name)
{
	char *text = strdup(name);

	if (!text)
		abort();
	for (char *c = text; *c; c++)
		if (*c == '_')
			*c = ' ';
	return text;
}

static void program_fill(struct program *program, const struct kt_group *groups, size_t n_groups,
			 const char *only)
{
	size_t n_all = 0;

	for (size_t g = 0; g < n_groups; g++)
		n_all += groups[g].n_tests;
	program->entries = calloc(n_all + 1, sizeof(*program->entries));
	program->names = calloc(n_all + 1, sizeof(*program->names));
	if (!program->entries || !program->names)
		abort();
	for (size_t g = 0; g < n_groups; g++) {
		for (size_t t = 0; t < groups[g].n_tests; t++) {
			const struct CMUnitTest *test = &groups[g].tests[t];
			char *name = sentence_from(test->name);

			if (only && !strstr(name, only)) {
				free(name);
				continue;
			}
			program->entries[program->n_entries] = (struct entry){&groups[g], *test};
			program->names[program->n_entries++] = name;
		}
	}
}

static void program_free(struct program *program)
{
	for (size_t i = 0; i < program->n_entries; i++)
		free((void *)(uintptr_t)program->names[i]);
	free(program->names);
	free(program->entries);
}

int kt_run(int argc, char **argv, const struct kt_group *groups, size_t n_groups)
{
	struct program program = {0};
	const char *only = NULL;
	unsigned int n_failed = 0;
	bool list = false;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--list") == 0)
			list = true;
		else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
			only = argv[++i];
		else {
			fprintf(stderr, "usage: %s [--list] [--only TEXT]\n", argv[0]);
			return 2;
		}
	}
	cmocka_set_message_output(CM_OUTPUT_STDOUT);
	program_fill(&program, groups, n_groups, only);
	if (list) {
		for (size_t i = 0; i < program.n_entries; i++)
			puts(program.names[i]);
	} else if (getenv("KT_DIRECT")) {
		kt_tmproot_make();
		run_from(0, -1, &program);
		printf("1..%zu\n", program.n_entries);
		kt_tmproot_remove();
	} else {
		kt_tmproot_make();
		n_failed = kt_supervise(program.names, program.n_entries, run_from, &program);
		kt_tmproot_remove();
	}
	program_free(&program);
	return n_failed ? 1 : 0;
}
