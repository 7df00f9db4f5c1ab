/* Layouts of a session: one struct kvc_layout for each id, kept until the session is closed. */
#ifndef KV_CLIENT_LAYOUT_H
#define KV_CLIENT_LAYOUT_H

#include "client/session.h"

/* Slots of a block when the caller leaves the choice to us: the largest power of two with which
 * a block of token_bytes each has at most 256 KiB, and 16 to 256. */
uint32_t layout_default_block_tokens(uint64_t token_bytes);

/*
 * The checked fields that options name, defaults filled in. NULL with the error set; the text
 * names the field. Freed by kv_layout_free. Needs no session.
 */
struct kv_layout *layout_from_options(const struct kvc_layout_options *options);

/* The layout of an id, asked of the daemon when it is new here. NULL with the error set. */
struct kvc_layout *session_layout(struct kvc_session *session, uint64_t layout_id);

/* Frees all; for session_close. */
void session_layouts_fini(struct kvc_session *session);

#endif
