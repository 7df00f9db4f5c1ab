/*
 * A writer that died while it overwrote slots: the rows of its undo journal put the old bytes back.
 *
 * A sequence with an undo journal is written in place while the commit word is open. Each row was
 * complete, and counted in rows_end of the place, before its slot was overwritten; so rows
 * [journal_end of the header that counts, rows_end), newest first, lead back to what is committed,
 * or, where the writer had decided a rollback (hold_outcome), on to what that leads to. Every value
 * is absolute: to do it twice, or once more in the next life of the core, does no harm. Only then
 * does the word move (hold_bury).
 *
 * Only slots in blocks that are the sequence's own and that nothing has frozen since were written
 * in place (their entry has the freeze count of the place); the others were copied, and the copies
 * are in no table that counts. All of it was written by the client: rows and their blocks are
 * copied, checked and then used, and bytes moved with pread and pwrite. A row that makes no sense
 * is passed over. A sequence whose rows cannot be read is torn: it is dropped, not parked.
 *
 * Core thread; a round does a bounded number of rows, so that a long journal keeps nobody waiting.
 */
#ifndef KV_DAEMON_RECOVER_ROWS_H
#define KV_DAEMON_RECOVER_ROWS_H

#include "daemon/state.h"

/*
 * The process of the session is gone: puts about max_rows more back. False: call again. What was
 * done is kept in session->rows; sequences without a name are dropped anyhow and are left alone.
 */
bool recover_rows(struct session *session, uint64_t max_rows);

/* Is a named sequence being overwritten in place right now? While its process lives nobody else
 * may put rows back. */
bool recover_rows_open(const struct session *session);

/* The same of one place. */
bool recover_rows_open_in(const struct session *session, const struct place *place);

#endif
