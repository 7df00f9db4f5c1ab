#include "tests/crash/rounds.h"

#include <getopt.h>
#include <stdlib.h>

bool rounds_parse(int argc, char **argv, uint64_t *n_rounds, uint64_t *seed)
{
	static const struct option options[] = {{"rounds", required_argument, NULL, 'r'},
						{"seed", required_argument, NULL, 's'},
						{NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'r')
			*n_rounds = strtoull(optarg, NULL, 10);
		else if (c == 's')
			*seed = strtoull(optarg, NULL, 10);
		else
			return false;
	}
	return true;
}
