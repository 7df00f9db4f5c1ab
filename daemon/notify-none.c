#include "daemon/notify.h"

bool notify_is_there(void)
{
	return false;
}

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

void notify_store(struct kept *kept)
{
	(void)kept;
}

void notify_unstore(const struct kept *kept)
{
	(void)kept;
}

size_t notify_take_stored(void (*take)(void *arg, const struct kept *kept), void *arg)
{
	(void)take;
	(void)arg;
	return 0;
}
