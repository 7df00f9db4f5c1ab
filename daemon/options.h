/*
 * The command line of kvcached(8): flags over file over defaults.
 */
#ifndef KV_DAEMON_OPTIONS_H
#define KV_DAEMON_OPTIONS_H

#include <stdbool.h>

#include "daemon/settings.h"

enum options_next {
	OPTIONS_RUN,   /* run a daemon with these settings */
	OPTIONS_DONE,  /* help, version, --check-config: said, exit 0 */
	OPTIONS_WRONG, /* said on stderr, exit 2 */
};

struct options {
	struct settings settings;
	bool check_config;
	int ready_fd; /* -1: none */
};

enum options_next options_parse(struct options *options, int argc, char **argv);

#endif
