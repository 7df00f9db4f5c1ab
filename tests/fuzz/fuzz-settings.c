/*
 * A configuration file.
 *
 * Whatever is in it: it is refused with file, line and reason, or all values are within their
 * bounds and texts end within their fields. Thread: one.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/settings.h"
#include "tests/fuzz/target.h"

static void check(const struct settings *s)
{
	must(strnlen(s->runtime_dir, sizeof(s->runtime_dir)) < sizeof(s->runtime_dir));
	must(strnlen(s->socket_group, sizeof(s->socket_group)) < sizeof(s->socket_group));
	must((s->socket_mode & ~0666u) == 0 && (s->socket_mode & 0600) == 0600);
	must(s->log_level >= LOG_LEVEL_ERROR && s->log_level <= LOG_LEVEL_DEBUG);
	must(s->pool_bytes >= 1 << 20 && s->arena_bytes >= 1 << 20);
	must(s->n_sessions_max >= 1 && s->n_sequences_max >= 1 && s->n_jobs_max >= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("kvcached-test-settings", MFD_CLOEXEC);
	struct errbuf err = {0};
	struct settings settings;
	char path[48];

	must(fd >= 0);
	must(write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	settings_default(&settings);
	if (settings_read(&settings, path, &err) == 0)
		check(&settings);
	else
		must(strncmp(err.text, path, strlen(path)) == 0 && err.status != KV_OK);
	close(fd);
	return 0;
}
