/* One Reserve command, for sequences and batches. */
#ifndef KV_CLIENT_RESERVE_H
#define KV_CLIENT_RESERVE_H

#include "client/seq.h"

struct reserve_need {
	uint32_t n_blocks[KV_GROUPS_MAX];
	struct kvc_block after[KV_GROUPS_MAX]; /* where a run would go on; arena 0: anywhere */
	bool contiguous;                       /* each group one run, or refused */
};

/*
 * Asks for all needs or none; arenas of the granted runs are mapped. A reply whose runs were
 * checked to be enough, freed by rpc_reply_free; NULL with the error set, then nothing is kept.
 */
Kv__Wire__Reply *reserve_ask(struct kvc_session *session, const struct kvc_layout *layout,
			     const struct reserve_need *needs);

/* As kvc_reserve, for blocks of each group that are to be there as spares. */
int reserve_blocks(struct kvc_seq *seq, const uint32_t n_blocks[KV_GROUPS_MAX]);

#endif
