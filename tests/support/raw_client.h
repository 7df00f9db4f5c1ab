/*
 * A client made by hand: attach socket and nanomsg REQ without libkvcache, so that a test can
 * say what no library would.
 *
 *	struct raw_client *c = raw_attach(dir);
 *	reply = raw_call(c, &request);           a well-formed request
 *	status = raw_say(dir, bytes, n);         any bytes, from a socket of their own
 *
 * Fails the test where the daemon does not do its part. Thread: one.
 */
#ifndef KVCACHED_TESTS_SUPPORT_RAW_CLIENT_H
#define KVCACHED_TESTS_SUPPORT_RAW_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "proto/kvcache.pb-c.h"
#include "proto/limits.h"
#include "proto/status.h"

#define RAW_SILENT (-1) /* no answer, or the end of the connection */

struct raw_client {
	char dir[KV_ATTACH_BYTES_MAX];
	int attach; /* -1: hung up */
	int socket; /* nanomsg REQ */
	uint64_t session;
	uint8_t token[16], boot[16];
	uint64_t next_id;
	uint64_t acked;
};

/* ---- attach socket ------------------------------------------------------------------------ */

/* A connection that has said nothing. */
int raw_connect(const char *dir);

/* One packet with descriptors beside it. 0 or -errno. */
int raw_send(int fd, const void *bytes, size_t n_bytes, const int *fds, size_t n_fds);

/* The next reply, freed by the caller; its descriptors are closed. NULL: the connection ended. */
Kv__Wire__AttachReply *raw_receive(int fd);

/* Its status alone, or RAW_SILENT. */
int raw_receive_status(int fd);

/* Versions are filled in; the packed message. */
size_t raw_pack_attach(Kv__Wire__AttachRequest *request, uint8_t bytes[KV_ATTACH_BYTES_MAX]);

/* Says Hello for a new session (0) or an old one. The status. */
int raw_hello(int fd, uint64_t session, const uint8_t *token);

/* ---- a session ---------------------------------------------------------------------------- */

struct raw_client *raw_attach(const char *dir);
int raw_attach_again(struct raw_client *c); /* on a new connection. The status */
void raw_bye(struct raw_client *c);         /* ends the session, keeps what it was */
void raw_free(struct raw_client *c);        /* hangs up */

/* ---- requests ----------------------------------------------------------------------------- */

/* Fills what is not set (version, session, token, boot, id, acked) and packs it. */
size_t raw_pack(struct raw_client *c, Kv__Wire__Request *request,
		uint8_t bytes[KV_REQUEST_BYTES_MAX]);

/* Sends a body and waits for its reply, freed by the caller. NULL: none within 5 s. */
Kv__Wire__Reply *raw_exchange(int socket, const void *bytes, size_t n_bytes);

/* Opens a REQ socket to the daemon that sends again every resend_ms (0: nanomsg's default). */
int raw_socket(const char *dir, int resend_ms);

Kv__Wire__Reply *raw_call(struct raw_client *c, Kv__Wire__Request *request);

/* Status alone. */
int raw_call_status(struct raw_client *c, Kv__Wire__Request *request);
int raw_say(int socket, const void *bytes, size_t n_bytes);
int raw_noop(struct raw_client *c);

#endif
