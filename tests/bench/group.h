/* Groups of rows, and running one in a process of its own. */
#ifndef KVCACHED_TESTS_BENCH_GROUP_H
#define KVCACHED_TESTS_BENCH_GROUP_H

#define BENCH_GROUP_ROWS 8

struct bench_group {
	void (*fn)(void);
	const char *rows[BENCH_GROUP_ROWS]; /* up to the first NULL */
};

/* Runs it and waits for its end. */
void bench_group_run(const struct bench_group *group);

#endif
