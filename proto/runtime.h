/*
 * Where a daemon and its clients meet: the runtime directory and the sockets in it.
 *
 *   attach.sock   AF_UNIX SOCK_SEQPACKET: credentials, descriptors, life of a session
 *   command.sock  nanomsg REP (ipc)
 *   event.sock    nanomsg PUB (ipc)
 *   lock          flock of the daemon that serves the directory
 */
#ifndef KV_PROTO_RUNTIME_H
#define KV_PROTO_RUNTIME_H

#include <stddef.h>

#include "proto/errbuf.h"

#define KV_SOCKET_PATH_MAX 107 /* sun_path without its end */

struct kv_runtime {
	char dir[KV_SOCKET_PATH_MAX + 1];
	char attach[KV_SOCKET_PATH_MAX + 1];
	char command[KV_SOCKET_PATH_MAX + 1]; /* path; the nanomsg address is "ipc://" + path */
	char event[KV_SOCKET_PATH_MAX + 1];
	char lock[KV_SOCKET_PATH_MAX + 1];
};

/*
 * Fills the paths for `dir` (NULL: the default of a client, see kvc_session_options). -1 with
 * the path, its length and the limit if a socket path would be too long.
 */
int kv_runtime_paths(struct kv_runtime *runtime, const char *dir, struct errbuf *err);

/* A valid object name: [A-Za-z0-9._/-], 1 to 255 bytes. 0, or -1 with the reason. */
int kv_name_check(const char *name, struct errbuf *err);

#endif
