/*
 * The version of the sequence planes that an open update makes. It is filled from its beginning:
 * bytes that nobody wrote are copied from the version that counts when somebody writes behind them,
 * or by the commit. Who writes all of it, in order, copies nothing. Writer's thread, hot path.
 */
#ifndef KV_CLIENT_PLANES_H
#define KV_CLIENT_PLANES_H

#include "client/seq.h"

/* Bytes of the version that counts, from `off` of a plane on; NULL: none was ever made, all are
 * zero. `plane` is its number in the layout. */
const char *planes_now(const struct kvc_seq *seq, uint32_t plane, size_t off);

/* Where the update has bytes [off, off + n_bytes) of a plane; the caller writes all of them. NULL
 * with KVC_ERESERVE or KVC_EJOURNAL. */
char *planes_write(struct kvc_seq *seq, uint32_t plane, size_t off, size_t n_bytes);

/* Copies what is left, of a version that is there. The update is about to be committed. */
void planes_complete(struct kvc_seq *seq);

#endif
