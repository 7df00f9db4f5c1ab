/*
 * kvcached(8): reads the command line and becomes the keeper.
 */
#include <fcntl.h>
#include <unistd.h>

#include "daemon/keeper.h"
#include "daemon/log.h"
#include "daemon/options.h"

/* A socket must never get the number of a closed stderr: log lines would go to a peer. */
static void open_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd < 3);
	if (fd >= 3)
		close(fd);
}

int main(int argc, char **argv)
{
	struct keeper_options keeper = {.core = core_main, .front = front_main};
	struct options options;

	open_standard_fds();
	switch (options_parse(&options, argc, argv)) {
	case OPTIONS_DONE: return 0;
	case OPTIONS_WRONG: return 2;
	case OPTIONS_RUN: break;
	}
	log_init((enum log_level)options.settings.log_level);
	keeper.settings = &options.settings;
	keeper.ready_fd = options.ready_fd;
	return keeper_run(&keeper);
}
