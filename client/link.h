/*
 * What a session holds besides mapped memory: its attachment, its calls in flight, its layouts,
 * pins and handles. Inner header of the control part (rpc.c, link.c, pins.c, layout.c, arenas.c,
 * session.c); the data plane does not look in here.
 *
 * Locks, in order: pins_lock (shared by calls that may pin a base, exclusive while pins are given
 * back), the attach connection (attach_taken: a lock whose wait has a deadline), lock (all else,
 * attach_taken too). No message is sent or awaited under `lock`.
 */
#ifndef KV_CLIENT_LINK_H
#define KV_CLIENT_LINK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "client/attach.h"
#include "client/session.h"
#include "client/wire.h"

#define LINK_TOKEN_BYTES 16
#define LINK_BOOT_BYTES 16
#define LINK_PIN_BUCKETS 256

struct kvc_batch;
struct kvc_writer;

/* A base snapshot that this session has pinned, and how many handles use it. */
struct link_pin {
	struct link_pin *next;
	uint64_t base_id;
	uint64_t n_users;
};

struct session_link {
	/* never changes */
	struct kv_runtime runtime;
	char address[KV_SOCKET_PATH_MAX + 8]; /* nanomsg's, of the command socket */
	uint32_t deadline_ms;
	uint32_t resend_ms;

	struct attach attach; /* of the thread that set attach_taken */

	pthread_mutex_t lock;
	bool attach_taken;
	pthread_cond_t attach_free;
	pthread_cond_t window;           /* a call has ended */
	uint64_t session_id;             /* never changes once attached */
	uint8_t nonce[LINK_TOKEN_BYTES]; /* of the first Hello, which may have to be said again */
	uint8_t token[LINK_TOKEN_BYTES];
	uint8_t boot[LINK_BOOT_BYTES];
	_Atomic uint64_t n_attached; /* counts attachments; stored under lock, loaded by calls */
	_Atomic bool is_attached;    /* false: the last try to attach again failed */
	_Atomic bool has_ended;      /* the daemon does not know the session any more */
	uint64_t next_id;
	uint64_t in_flight[KV_IN_FLIGHT_MAX];
	unsigned n_in_flight;
	struct wire idle[KV_IN_FLIGHT_MAX];
	unsigned n_idle;
	struct kvc_layout **layouts;
	size_t n_layouts;
	struct kvc_writer *writers[KV_WRITERS_MAX];
	struct kvc_batch *batches;
	struct link_pin *pins[LINK_PIN_BUCKETS];
	size_t n_unused_pins; /* pins without users, not given back yet */
	bool pins_incomplete; /* memory was out: no pin is given back before the session's end */

	pthread_rwlock_t pins_lock;
};

/* ---- attachment (link.c) -------------------------------------------------------------------- */

/* An unattached link for a runtime directory. NULL with err. */
struct session_link *link_new(const char *runtime_dir, uint32_t deadline_ms, uint32_t resend_ms,
			      struct errbuf *err);
void link_free(struct session_link *link);

/* Opens the first command socket, so that it connects while we attach. 0 or -1. */
int link_open_wire(struct session_link *link, struct errbuf *err);

/* First attachment: *segment_fd is the control segment of segment_bytes. 0 or -1. */
int link_attach(struct session_link *link, int *segment_fd, uint64_t *segment_bytes,
		struct errbuf *err);

/*
 * Attaches again if the connection is broken; one try takes at most a second. 0: it stands (again);
 * -1: KV_EDAEMON, KV_ETIMEOUT, KV_ESESSION (for ever), KV_EVERSION.
 */
int link_reattach(struct session_link *link, int64_t deadline_ns, struct errbuf *err);

/* As attach_exchange; attaches again, as often as cores die meanwhile, until the deadline. */
int link_exchange(struct session_link *link, Kv__Wire__AttachRequest *request, int pass_fd,
		  struct attach_answer *answer, struct errbuf *err);

/* Says goodbye and waits a moment for the daemon to have heard it. Never fails. */
void link_bye(struct session_link *link);

/* ---- pins (pins.c) -------------------------------------------------------------------------- */

/* Around a call whose reply may pin a base: until session_base_ref was called for it, no pin is
 * given back. */
void pins_hold(struct kvc_session *session);
void pins_unhold(struct kvc_session *session);

/* Gives unused pins back now, if there are any and nobody holds. A failure is made good later. */
void pins_flush(struct kvc_session *session);
void pins_fini(struct session_link *link);

#endif
