/*
 * Slots that are overwritten in place, under an undo journal: saved, written, put back. Rows are
 * [first, end) of the journal. n_tokens: slots that hold none of the first n_tokens tokens are left
 * alone, for they do not count afterwards. Writer's thread, hot path.
 */
#ifndef KV_CLIENT_INPLACE_H
#define KV_CLIENT_INPLACE_H

#include "client/seq.h"

/* Copies each block that the rows will write and that a freeze covers into a spare of the open
 * update. -1 with KVC_ERESERVE; what was copied stays copied. Notes the freeze count. */
int inplace_copy_frozen(struct kvc_seq *seq, uint64_t first, uint64_t end, uint64_t n_tokens);

/* A freeze has come since inplace_copy_frozen. The word is open. */
bool inplace_is_frozen_since(const struct kvc_seq *seq);

/* Saves what the slots hold in the rows. */
void inplace_save_old(struct kvc_seq *seq, uint64_t first, uint64_t end);

/* Counts the rows and writes their new bytes into the slots, oldest first. The word is open. */
void inplace_apply(struct kvc_seq *seq, uint64_t first, uint64_t end);

/* Puts the old bytes back, newest first. */
void inplace_put_back(struct kvc_seq *seq, uint64_t first, uint64_t end, uint64_t n_tokens);

/* Rows [.., end) are those to be put back if the writer dies. */
void inplace_count_rows(struct kvc_seq *seq, uint64_t end);

#endif
