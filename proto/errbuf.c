#include "proto/errbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What a peer or a file said may be in it: it stays one line, and does nothing to a terminal. */
static void make_one_line(struct errbuf *err)
{
	for (char *c = err->text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = ' ';
}

int errbuf_setv(struct errbuf *err, int status, const char *format, va_list args)
{
	if (!err)
		return -1;
	err->status = status;
	vsnprintf(err->text, sizeof(err->text), format, args);
	make_one_line(err);
	return -1;
}

int errbuf_set(struct errbuf *err, int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	errbuf_setv(err, status, format, args);
	va_end(args);
	return -1;
}

int errbuf_errno(struct errbuf *err, int status, int errno_value, const char *format, ...)
{
	va_list args;
	size_t used;

	if (!err)
		return -1;
	va_start(args, format);
	errbuf_setv(err, status, format, args);
	va_end(args);
	used = strlen(err->text);
	snprintf(err->text + used, sizeof(err->text) - used, ": %s", strerror(errno_value));
	return -1;
}

void errbuf_wrap(struct errbuf *err, const char *format, ...)
{
	char inner[KV_ERRBUF_BYTES];
	va_list args;
	size_t used;

	if (!err)
		return;
	memcpy(inner, err->text, sizeof(inner));
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	make_one_line(err);
	used = strlen(err->text);
	snprintf(err->text + used, sizeof(err->text) - used, ": %.*s", (int)sizeof(inner) - 1,
		 inner);
}
