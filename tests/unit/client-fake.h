/*
 * A daemon that says what a test tells it to: attach socket and nanomsg REP in a thread of the
 * test's process, over a private runtime directory.
 *
 * Without a script it welcomes everybody to session 7, answers Noop, Unpin, Release, SeqDrop and
 * WriterFree with success, WriterNew with writer 0, and the rest with EUNSUPPORTED. What it has
 * heard is kept for the test to look at. fake_* functions are for the test's thread; a script
 * runs on the fake's thread, with the lock held.
 */
#ifndef KVCACHED_TESTS_UNIT_CLIENT_FAKE_H
#define KVCACHED_TESTS_UNIT_CLIENT_FAKE_H

#include <pthread.h>
#include <stdbool.h>

#include "client/open.h"
#include "daemon/segment.h"
#include "proto/kvcache.pb-c.h"

#define FAKE_SESSION 7u
#define FAKE_HEARD 4096

struct fake;

/* One request, as the fake heard it. */
struct fake_heard {
	Kv__Wire__Request__CommandCase command;
	uint64_t session, id, acked;
	uint32_t deadline_ms;
	uint8_t token[16], boot[16];
};

/* What to do with a request. */
enum fake_answer {
	FAKE_DEFAULT, /* as without a script */
	FAKE_REPLY,   /* send `reply` */
	FAKE_BYTES,   /* send `bytes` */
	FAKE_SILENT
};

struct fake_reply {
	Kv__Wire__Reply reply; /* filled in as a good one; the script changes it */
	uint8_t bytes[512];
	size_t n_bytes;
};

typedef enum fake_answer fake_script(struct fake *fake, const Kv__Wire__Request *request,
				     struct fake_reply *answer);

/* What to do with an attach message; false: nothing is answered. The reply is filled in as a good
 * one; fds are sent and closed. */
typedef bool fake_attach_script(struct fake *fake, const Kv__Wire__AttachRequest *request,
				Kv__Wire__AttachReply *reply, int fds[4], unsigned *n_fds);

struct fake *fake_new(void);
void fake_free(struct fake *fake);
const char *fake_dir(const struct fake *fake);

/* arg is for the scripts (fake_arg). */
void fake_set_script(struct fake *fake, fake_script *script, fake_attach_script *attach, void *arg);
void *fake_arg(const struct fake *fake);

/* The core dies and is back: attach connections break, a new boot id. */
void fake_restart(struct fake *fake);
/* The daemon ends: nobody listens any more. */
void fake_die(struct fake *fake);

/* From an attach script: sends a reply of its own before the one that it fills in. */
void fake_attach_send(struct fake *fake, const Kv__Wire__AttachReply *reply);

/* How many requests were heard, and one of them. Not from a script. */
size_t fake_n_heard(struct fake *fake);
struct fake_heard fake_heard(struct fake *fake, size_t i);
/* Waits until n were heard; fails the test after 5 s. */
void fake_wait_heard(struct fake *fake, size_t n);
unsigned fake_n_hellos(struct fake *fake);

/* The boot id of now (16 bytes); segment that sessions are given. */
const uint8_t *fake_boot(const struct fake *fake);
struct segment *fake_segment(struct fake *fake);

/* ---- shorthands of the tests ------------------------------------------------------------- */

#define FAKE_DEADLINE_MS 5000u

/* A session; with a deadline and a time for sending again. Fail the test on any error. */
struct kvc_session *fake_open(struct fake *fake);
struct kvc_session *fake_open_with(struct fake *fake, uint32_t deadline_ms, uint32_t resend_ms);

/* The last call gave -1 (or NULL as -1) with that status; a ping succeeds. */
void assert_status(int rc, int status);
void assert_ping(struct kvc_session *session);

#endif
