#include "daemon/notify.h"

void notify_ready(void)
{
}

void notify_status(const char *text)
{
	(void)text;
}

void notify_extend(uint32_t extend_ms)
{
	(void)extend_ms;
}

void notify_stopping(void)
{
}
