/* Going back to a header: what marks, steps and lengths share. Writer's thread, hot path. */
#ifndef KV_CLIENT_ROLLBACK_H
#define KV_CLIENT_ROLLBACK_H

#include "client/seq.h"

struct rollback {
	struct kvc_seq *seq;
	struct kv_head head; /* that is to count */
};

/* Live, and no update is open; else -1 with the error set. */
int rollback_check(const struct kvc_seq *seq);

/* The header that a record of the journal describes. -1 with KVC_ECORRUPT if there is none, or none
 * that this sequence can have: it may lie in a block that another process can write. */
int rollback_head(const struct kvc_seq *seq, uint64_t record, struct kv_head *head);

/* Makes of a header the one below the journal, or without one: tokens were appended there, so a
 * length says it all. -1 with KVC_EJOURNAL if it does not. */
int rollback_cut(const struct kvc_seq *seq, uint64_t n_tokens, struct kv_head *head);

/* All headers in one update; -1 with the error set: nothing has changed. */
int rollback_commit(struct kvc_writer *writer, struct rollback *r, size_t n);

#endif
