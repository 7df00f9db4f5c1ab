#include "proto/errbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int errbuf_set(struct errbuf *err, int status, const char *format, ...)
{
	va_list args;

	if (!err)
		return -1;
	err->status = status;
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	return -1;
}

int errbuf_errno(struct errbuf *err, int status, int errno_value, const char *format, ...)
{
	va_list args;
	size_t used;

	if (!err)
		return -1;
	err->status = status;
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
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
	used = strlen(err->text);
	snprintf(err->text + used, sizeof(err->text) - used, ": %.*s", (int)sizeof(inner) - 1,
		 inner);
}
