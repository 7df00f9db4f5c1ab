/*
 * Shared memory as the core makes it: a memfd of mode 0600 whose size nobody can change any more,
 * so that no load from it is SIGBUS because a peer has cut it. Thread: any.
 */
#ifndef KV_DAEMON_SEALED_H
#define KV_DAEMON_SEALED_H

#include <stdint.h>

#include "proto/errbuf.h"

/* Makes one. name: as /proc shows it; what: as an error says it ("an arena"); status: of that
 * error. The descriptor, owned by the caller, or -1 with err. */
int sealed_make(const char *name, uint64_t n_bytes, const char *what, int status,
		struct errbuf *err);

/* Is this, which came from elsewhere (the keeper, the service manager), one of that size? 0, or -1
 * with KV_ECORRUPT. */
int sealed_check(int fd, uint64_t n_bytes, const char *what, struct errbuf *err);

#endif
