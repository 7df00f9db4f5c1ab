#include "daemon/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 1024

static enum log_level shown = LOG_LEVEL_INFO;
static bool journal;

void log_init(enum log_level level)
{
	const char *stream = getenv("JOURNAL_STREAM");

	shown = level;
	journal = stream && *stream;
}

static const char *level_word(enum log_level level)
{
	static const char *const words[] = {"error", "warning", "info", "debug"};

	return words[level];
}

/* Priorities of sd-daemon(3), in the order of enum log_level. */
static const char *level_prefix(enum log_level level)
{
	static const char *const prefixes[] = {"<3>", "<4>", "<6>", "<7>"};

	return prefixes[level];
}

void log_line(enum log_level level, const char *subsystem, const char *format, ...)
{
	int saved_errno = errno;
	char line[LINE_BYTES];
	va_list args;
	size_t used;
	ssize_t done;

	if (level > shown)
		return;
	if (journal)
		snprintf(line, sizeof(line) - 1, "%s%s: ", level_prefix(level), subsystem);
	else
		snprintf(line, sizeof(line) - 1, "kvcached: %s: %s%s", subsystem,
			 level <= LOG_LEVEL_WARN ? level_word(level) : "",
			 level <= LOG_LEVEL_WARN ? ": " : "");
	used = strlen(line);
	va_start(args, format);
	vsnprintf(line + used, sizeof(line) - 1 - used, format, args);
	va_end(args);
	for (char *c = line; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	used = strlen(line);
	line[used++] = '\n';
	done = write(STDERR_FILENO, line, used); /* nowhere to complain if stderr is gone */
	(void)done;
	errno = saved_errno;
}
