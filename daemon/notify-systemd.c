#include "daemon/notify.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/log.h"

/* Names in the store: "kv-KIND-ID-NUMBER". */
#define NAME_FORMAT "kv-%u-%" PRIx64 "-%" PRIx64

/* Of the last descriptor that was stored, in this or an earlier life of the service. */
static uint64_t last_number;

bool notify_is_there(void)
{
	const char *path = getenv("NOTIFY_SOCKET");

	return path && *path;
}

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

void notify_store(struct kept *kept)
{
	char text[128];

	kept->number = ++last_number;
	snprintf(text, sizeof(text), "FDSTORE=1\nFDPOLL=0\nFDNAME=" NAME_FORMAT, kept->kind,
		 kept->id, kept->number);
	sd_pid_notify_with_fds(0, 0, text, &kept->fd, 1);
}

void notify_unstore(const struct kept *kept)
{
	sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=" NAME_FORMAT, kept->kind, kept->id, kept->number);
}

static int parse(const char *name, int fd, struct kept *kept)
{
	unsigned kind;

	*kept = (struct kept){.fd = fd};
	if (sscanf(name, "kv-%u-%" SCNx64 "-%" SCNx64, &kind, &kept->id, &kept->number) != 3 ||
	    kind == 0 || kind >= KEPT_KINDS)
		return -1;
	kept->kind = (enum kept_kind)kind;
	return 0;
}

/* Another version's, or a mistake in the unit: the store must not hold its memory for ever. */
static void refuse(const char *name, int fd)
{
	log_warn("keeper", "the service manager handed over a descriptor %s, which is none of ours",
		 name);
	sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
	close(fd);
}

size_t notify_take_stored(void (*take)(void *arg, const struct kept *kept), void *arg)
{
	char **names = NULL;
	int n = sd_listen_fds_with_names(1, &names);
	struct kept kept;
	size_t n_taken = 0;

	for (int i = 0; i < n; i++) {
		int fd = SD_LISTEN_FDS_START + i;

		if (parse(names[i], fd, &kept) == 0) {
			fcntl(fd, F_SETFD, FD_CLOEXEC);
			if (kept.number > last_number)
				last_number = kept.number;
			take(arg, &kept);
			n_taken++;
		} else {
			refuse(names[i], fd);
		}
		free(names[i]);
	}
	free(names);
	return n_taken;
}
