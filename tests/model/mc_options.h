/* The command line of the model checks: [--steps N] [--seed S] [--format F] [--verbose]. */
#ifndef KVCACHED_TESTS_MODEL_MC_OPTIONS_H
#define KVCACHED_TESTS_MODEL_MC_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct mc_options {
	uint64_t steps, seed;
	uint32_t format; /* 0: any */
	bool verbose;
};

/* Changes what is given. -1: something makes no sense. */
int mc_options_read(int argc, char **argv, struct mc_options *o);

#endif
