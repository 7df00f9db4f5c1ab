/*
 * The client's side of the attach socket: one connection a session, request and reply in turn,
 * descriptors beside them. Documented in kvcache-protocol(7).
 *
 * A reply has no number. One that did not come by its deadline is still owed: it is taken off
 * the connection and dropped before the next reply is believed.
 */
#ifndef KV_CLIENT_ATTACH_H
#define KV_CLIENT_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/errbuf.h"
#include "proto/kvcache.pb-c.h"

struct attach {
	int fd;          /* -1: not connected */
	unsigned n_owed; /* replies that come late */
};

/* What came back. */
struct attach_answer {
	Kv__Wire__AttachReply *reply; /* of our versions, status OK, boot of 16 bytes */
	int fd;                       /* beside it, close-on-exec; -1: none */
};

/*
 * Connects. Waits while a core is being started; where nobody listens it fails at once with
 * KV_EDAEMON. The text names the path.
 */
int attach_open(struct attach *attach, const char *path, int64_t deadline_ns, struct errbuf *err);
void attach_close(struct attach *attach);

/* The daemon has let go of the connection (its core died), or there is none. No waiting. */
bool attach_hung_up(const struct attach *attach);

/*
 * One exchange; versions are filled in here; pass_fd goes along unless -1 (stays the caller's).
 * -1 with KV_ETIMEOUT; KV_EDAEMON (the connection broke and is closed); KV_EVERSION with both
 * numbers; KV_EPROTO; or what the daemon answered.
 */
int attach_exchange(struct attach *attach, Kv__Wire__AttachRequest *request, int pass_fd,
		    int64_t deadline_ns, struct attach_answer *answer, struct errbuf *err);
void attach_answer_free(struct attach_answer *answer);

#endif
