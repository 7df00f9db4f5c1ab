#include "tests/model/mc_options.h"

#include <getopt.h>
#include <stdlib.h>

#include "proto/format.h"

int mc_options_read(int argc, char **argv, struct mc_options *o)
{
	static const struct option options[] = {{"steps", required_argument, NULL, 'n'},
						{"seed", required_argument, NULL, 's'},
						{"format", required_argument, NULL, 'f'},
						{"verbose", no_argument, NULL, 'v'},
						{NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'n')
			o->steps = strtoull(optarg, NULL, 10);
		else if (c == 's')
			o->seed = strtoull(optarg, NULL, 10);
		else if (c == 'f' && (o->format = kv_format_find(optarg)) == 0)
			return -1;
		else if (c == 'v')
			o->verbose = true;
		else if (c == '?')
			return -1;
	}
	return 0;
}
