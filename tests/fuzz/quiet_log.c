/*
 * Stands in for daemon/log.c where the core is given nonsense: that it finds some is no news.
 */
#include "daemon/log.h"

void log_init(enum log_level level)
{
	(void)level;
}

void log_line(enum log_level level, const char *subsystem, const char *format, ...)
{
	(void)level;
	(void)subsystem;
	(void)format;
}
