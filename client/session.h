/*
 * A session inside the library: attachment, calls to the daemon, mapped memory.
 *
 * Locks are those of the link (client/link.h). The hot path takes none: it reads `segment`, and
 * arenas that were published in `arenas` (release/acquire).
 */
#ifndef KV_CLIENT_SESSION_H
#define KV_CLIENT_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "client/kvcache.h"
#include "proto/kvcache.pb-c.h"
#include "proto/layout.h"
#include "proto/runtime.h"
#include "proto/shm.h"

/* A mapped arena. Immutable once published, except `owned`. Lives as long as the session. */
struct arena_map {
	uint32_t number; /* in the session */
	uint64_t id;
	uint64_t layout_id;
	uint32_t group;
	uint32_t n_blocks;
	int writable; /* an arena of this session */
	char *base;
	uint64_t n_bytes;
	const struct kv_layout *layout; /* borrowed from the session's layouts */
	uint64_t *region_off;           /* [n_regions of the group] */
	_Atomic uint32_t *owned;        /* [n_blocks], see client/seq.h; zeroed when mapped; NULL
					unless writable */
};

/* A layout as the library keeps it: one a layout_id and session, freed with the session. */
struct kvc_layout {
	struct kvc_session *session;
	uint64_t id;
	struct kv_layout *fields; /* derived */
	struct kv_codec *codecs;  /* [n_layers][2]: of K and of V; NULL for an opaque layout */
};

struct kvc_session {
	/* A word in a private page with MADV_WIPEONFORK: 1 in the process that opened the session,
	 * 0 in a child. (getpid() is a system call, which the hot path must not make.) */
	_Atomic uint32_t *own;
	struct kv_shm_head *segment; /* mapped control segment */
	uint64_t segment_bytes;
	_Atomic(struct arena_map *) arenas[KV_ARENAS_MAX];
	struct session_link *link; /* attachment and calls: client/rpc.c */
};

/* Sets KVC_EFORKED; returns -1. */
int session_forked(void);

/* -1 with KVC_EFORKED in a child of the process that opened the session. No system call. */
static inline int session_check(const struct kvc_session *session)
{
	if (__builtin_expect(atomic_load_explicit(session->own, memory_order_relaxed) != 0, 1))
		return 0;
	return session_forked();
}

/* The mapping of an arena number; asks the daemon for its descriptor when it is new here.
 * NULL with the error set. Once found it is found without a call, until the number is given to
 * another arena (the daemon does so only when nothing of this session uses it any more). */
struct arena_map *session_arena(struct kvc_session *session, uint32_t arena);

/* Already mapped, or NULL: for the hot path. */
static inline struct arena_map *session_arena_mapped(struct kvc_session *session, uint32_t arena)
{
	return atomic_load_explicit(&session->arenas[arena], memory_order_acquire);
}

/* Pins of base snapshots, counted per session: +1 for each handle; at 0 the daemon is told, not
 * here but by the public call that freed the handle (pins_flush). Neither asks the daemon. */
void session_base_ref(struct kvc_session *session, uint64_t base_id);
void session_base_unref(struct kvc_session *session, uint64_t base_id);

/*
 * One command: fills version, session, token, boot, id, acked and deadline, sends, waits for the
 * reply (deadline_ms 0: the session's), attaches again after a restart of the core. 0 and *reply
 * (freed by kv__wire__reply__free_unpacked(reply, NULL)) when the status is KV_OK; -1 with this
 * thread's error set to status and detail otherwise.
 */
int session_call(struct kvc_session *session, Kv__Wire__Request *request, Kv__Wire__Reply **reply,
		 uint32_t deadline_ms);

#endif
