#include "daemon/notify.h"

#include <inttypes.h>
#include <systemd/sd-daemon.h>

void notify_ready(void)
{
	sd_notify(0, "READY=1\nSTATUS=serving");
}

void notify_status(const char *text)
{
	sd_notifyf(0, "STATUS=%s", text);
}

void notify_extend(uint32_t extend_ms)
{
	sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%" PRIu64, (uint64_t)extend_ms * 1000);
}

void notify_stopping(void)
{
	sd_notify(0, "STOPPING=1\nSTATUS=stopping");
}
