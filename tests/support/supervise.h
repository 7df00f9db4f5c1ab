/*
 * The parent half of the runner, and the records that the child sends it.
 * Only runner.c includes this.
 */
#ifndef KVCACHED_TESTS_SUPPORT_SUPERVISE_H
#define KVCACHED_TESTS_SUPPORT_SUPERVISE_H

#include <stddef.h>

enum kt_verdict {
	KT_STARTED, /* the test of this index begins */
	KT_PASSED,
	KT_FAILED,
	KT_SKIPPED,  /* text: the reason */
	KT_FINISHED, /* no test follows */
};

struct kt_record {
	enum kt_verdict verdict;
	size_t index;
	char text[512];
};

/* Prints one TAP line: "ok 3 - name", with the reason if it was skipped. */
void kt_tap_line(unsigned int number, const char *name, const struct kt_record *record);

/*
 * Runs child(from, arg) in a process of its own, again from the test behind one
 * that died, until all n_tests have a verdict. names[i] belongs to the caller.
 * Returns the number of failed tests.
 */
unsigned int kt_supervise(const char *const *names, size_t n_tests,
			  void (*child)(size_t from, int record_fd, void *arg), void *arg);

#endif
