#include "proto/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/limits.h"

static int join(char out[KV_SOCKET_PATH_MAX + 1], const char *dir, const char *file,
		struct errbuf *err)
{
	size_t need = strlen(dir) + 1 + strlen(file);

	if (need > KV_SOCKET_PATH_MAX)
		return errbuf_set(err, KV_ETOOBIG,
				  "runtime directory %.200s is too long: its socket path has %zu "
				  "bytes, the limit is %d; choose a shorter directory",
				  dir, need, KV_SOCKET_PATH_MAX);
	snprintf(out, KV_SOCKET_PATH_MAX + 1, "%s/%s", dir, file);
	return 0;
}

/* The user's own daemon if one was started there, else the system's. */
static const char *default_dir(char *buffer, size_t size)
{
	const char *named = getenv("KVCACHED_RUNTIME_DIR");
	const char *xdg = getenv("XDG_RUNTIME_DIR");
	char probe[512];

	if (named && *named)
		return named;
	if (xdg && *xdg) {
		snprintf(buffer, size, "%s/kvcached", xdg);
		snprintf(probe, sizeof(probe), "%s/attach.sock", buffer);
		if (access(probe, F_OK) == 0)
			return buffer;
	}
	return "/run/kvcached";
}

int kv_runtime_paths(struct kv_runtime *runtime, const char *dir, struct errbuf *err)
{
	char buffer[400];
	size_t n;

	if (!dir)
		dir = default_dir(buffer, sizeof(buffer));
	n = strlen(dir);
	if (n == 0 || n > KV_SOCKET_PATH_MAX)
		return errbuf_set(
			err, KV_ETOOBIG,
			"runtime directory has %zu bytes; it needs 1 to %d less the name of "
			"a socket",
			n, KV_SOCKET_PATH_MAX);
	memcpy(runtime->dir, dir, n + 1);
	if (join(runtime->attach, dir, "attach.sock", err) ||
	    join(runtime->command, dir, "command.sock", err) ||
	    join(runtime->event, dir, "event.sock", err) || join(runtime->lock, dir, "lock", err))
		return -1;
	return 0;
}

int kv_name_check(const char *name, struct errbuf *err)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789._/-";
	size_t n = strlen(name);

	if (n < 1 || n > KV_NAME_BYTES_MAX)
		return errbuf_set(err, KV_ENAME, "a name has 1 to %u bytes, not %zu",
				  KV_NAME_BYTES_MAX, n);
	if (strspn(name, allowed) != n)
		return errbuf_set(err, KV_ENAME,
				  "byte %zu of the name is not one of A-Z a-z 0-9 . _ / -",
				  strspn(name, allowed));
	return 0;
}
