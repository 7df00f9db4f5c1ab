/*
 * A batch: new sequences of one writer whose blocks of each layer group are to lie in one run, at
 * equal distances. In group g row r is to have blocks first + r * n_row_blocks[g] and on, where
 * first is batch_first of row 0 (client/seq.h); so per layer the rows are one strided tensor. Why
 * a row has left its run is in its sequence (split_reason).
 */
#ifndef KV_CLIENT_BATCH_H
#define KV_CLIENT_BATCH_H

#include "client/seq.h"

struct kvc_batch {
	struct kvc_batch *next; /* of the session's list */
	struct kvc_writer *writer;
	struct kvc_layout *layout;
	uint64_t max_tokens;
	size_t n_row_blocks[KV_GROUPS_MAX];
	uint32_t n_rows;
	struct kvc_seq *seqs[]; /* [n_rows], owned */
};

#endif
