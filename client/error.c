#include "client/error.h"

#include <stdarg.h>

#include "client/kvcache.h"

static _Thread_local struct errbuf last_error;

struct errbuf *kvc_err(void)
{
	return &last_error;
}

int kvc_fail(int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	errbuf_setv(&last_error, status, format, args);
	va_end(args);
	return -1;
}

int kvc_error(void)
{
	return last_error.status;
}

const char *kvc_error_text(void)
{
	return last_error.text;
}

const char *kvc_status_name(int status)
{
	return kv_status_name(status);
}

const char *kvc_version(void)
{
	return VERSION;
}
