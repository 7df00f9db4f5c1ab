/*
 * One nanomsg REQ socket to the daemon's command socket: a request out, its reply in. It connects
 * in the background, connects again when the daemon's front was started anew, and then sends its
 * request again by itself; a request that has no reply is sent again every resend_ms too (the
 * daemon runs it once). Thread: any, one at a time.
 */
#ifndef KV_CLIENT_WIRE_H
#define KV_CLIENT_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/errbuf.h"
#include "proto/kvcache.pb-c.h"

struct wire {
	int socket;
	int timeout_ms; /* that the socket is set to */
};

/*
 * nanomsg starts one thread a process, with all signals blocked in it, and does not survive
 * fork(): in a child of a process that used it this is KV_EFORKED until exec. 0 or -1.
 */
int wire_open(struct wire *wire, const char *address, uint32_t resend_ms, struct errbuf *err);
void wire_close(struct wire *wire);

/* Sends a request; one that has no reply yet is given up. -1: KV_ETOOBIG, KV_ENOMEM, KV_EINTERNAL. */
int wire_send(struct wire *wire, const Kv__Wire__Request *request, struct errbuf *err);

/* Waits at most timeout_ms for the reply. Its length and *body (for wire_free), or -EAGAIN, or
 * -errno of a socket that is of no use any more. */
int wire_receive(struct wire *wire, int timeout_ms, uint8_t **body);
void wire_free(uint8_t *body);

#endif
