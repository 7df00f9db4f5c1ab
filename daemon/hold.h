/*
 * Acting on a live writer: the core's moves of a commit word (proto/commit.h).
 *
 *   hold_try() until it says 0; then segment_read() at hold_update(); hold_freeze() or
 *   hold_rollback(); then hold_release() once for the word. With several writers: hold all, act
 *   on all, release all; on a deadline hold_cancel() those that were tried.
 *
 * A client can write anything into its word at any time. Then only its own sequences suffer:
 * whatever state is found, these functions end, and never wait.
 */
#ifndef KV_DAEMON_HOLD_H
#define KV_DAEMON_HOLD_H

#include <stdbool.h>

#include "daemon/segment.h"

/* 0: held (by this or an earlier try); -EAGAIN: the writer is publishing, try again. */
int hold_try(struct kv_shm_writer *writer);

/* Takes a try back: wanted becomes open again, held becomes idle, generation untouched. */
void hold_cancel(struct kv_shm_writer *writer);

/* Committed update of a held word. */
uint64_t hold_update(struct kv_shm_writer *writer);

/*
 * Freeze of one place under a hold, for a state that was read from it: kv_place_freeze() in
 * proto/journal.h. -1 KV_ELIMIT when the count is used up (fork the
 * sequence instead). Skips the bump if nothing was committed in this sequence since its last freeze:
 * *bumped says.
 */
int hold_freeze(const struct segment *segment, struct seg_place *place,
		const struct kv_layout *layout, const struct seg_state *state, bool *bumped,
		struct errbuf *err);

/*
 * Operator's rollback under a hold, first part: clears stamps above the committed update and
 * fills the older copy with `length_tokens` (<= the committed length), stamped update + 1; marks
 * beyond it are dropped. Only for what was appended alone (state_may_cut() in daemon/objects.h).
 * hold_release(writer, true) makes it true.
 */
void hold_rollback(const struct segment *segment, const struct seg_place *place,
		   const struct seg_state *state, uint64_t length_tokens);

/* Lets go: idle with generation + 1, and update + 1 if `advanced` (a rollback was written). */
void hold_release(struct kv_shm_writer *writer, bool advanced);

/* Clears stamps above the committed update in header and tables of a place: after a core's death
 * under a hold, or a writer's death at any point. */
void hold_clear(const struct segment *segment, const struct seg_place *place);

/*
 * The writer is gone (its pidfd fired): the update that its sequences are at. The committed one, or
 * the one behind it, if the writer was publishing that and had decided it (kv_shm_writer.decided).
 * *is_open: it was publishing.
 */
uint64_t hold_outcome(const struct kv_shm_writer *writer, bool *is_open);

/*
 * Makes the word of a writer that is gone idle, whatever it says, at hold_outcome(), which it
 * returns: rows of undo journals have been put back by then (daemon/recover_rows.h).
 * hold_clear() every place of the writer before reading it.
 */
uint64_t hold_bury(struct kv_shm_writer *writer);

/* After a restart of the core: held -> *was_held = true, caller clears and releases (or completes
 * what its log says); wanted -> open. */
void hold_recover(struct kv_shm_writer *writer, bool *was_held);

#endif
