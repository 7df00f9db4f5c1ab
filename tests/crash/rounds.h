/* The options of the programs here that kill: --rounds N, --seed S. */
#ifndef KVCACHED_TESTS_CRASH_ROUNDS_H
#define KVCACHED_TESTS_CRASH_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

/* Changes what is given; false: the command line has something else. */
bool rounds_parse(int argc, char **argv, uint64_t *n_rounds, uint64_t *seed);

#endif
