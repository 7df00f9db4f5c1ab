/* kvcachectl: sets up where output goes and hands over to the command line. */
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl.h"

#define WIDTH_MIN 60
#define WIDTH_MAX 120

/* 80 columns where nobody says otherwise, so that output in a file always looks the same. */
static unsigned terminal_width(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || !size.ws_col)
		return 80;
	return size.ws_col < WIDTH_MIN ? WIDTH_MIN :
	       size.ws_col > WIDTH_MAX ? WIDTH_MAX :
					 size.ws_col;
}

static void out_init(struct out *out)
{
	const char *no_colour = getenv("NO_COLOR");
	const char *term = getenv("TERM");

	out->stream = stdout;
	out->errors = stderr;
	out->width = terminal_width();
	out->colour = isatty(STDOUT_FILENO) && !(no_colour && *no_colour) &&
		      !(term && strcmp(term, "dumb") == 0);
	out->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	out->progress = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
}

int main(int argc, char **argv)
{
	struct ctl ctl = {.call = ctl_library_call};
	struct timespec now;
	int code;

	setlocale(LC_CTYPE, "");
	out_init(&ctl.out);
	clock_gettime(CLOCK_REALTIME, &now);
	ctl.now_unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	ctl.program = argc > 0 ? argv[0] : "kvcachectl";
	code = ctl_main(&ctl, argc, argv);
	ctl_library_close(&ctl);
	if (fflush(stdout) != 0 && code == CTL_OK) {
		perror("kvcachectl: standard output");
		code = CTL_FAILED;
	}
	return code;
}
