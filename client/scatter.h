/* Rows of kvc_scatter that do not say everything, for the commit. Writer's thread. */
#ifndef KV_CLIENT_SCATTER_H
#define KV_CLIENT_SCATTER_H

#include "client/seq.h"

/* Fills in what a replay row was not given, and which row it displaces. Rows before it in the
 * update are in the index. */
void scatter_complete_replay(struct kvc_seq *seq, uint64_t row);

/* The bytes of a slot plane in its block; zeros where the slot is in none. */
void scatter_base_plane(const struct kvc_seq *seq, const struct kv_row *header, uint32_t number,
			char *bytes);

#endif
