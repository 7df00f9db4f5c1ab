/* Reading one head of one slot, for kvc_move. Writer's thread, hot path. */
#ifndef KV_CLIENT_READ_H
#define KV_CLIENT_READ_H

#include "client/seq.h"

/* What counts for (layer, head, slot), committed: K and V in the layout's dtype and the slot planes,
 * one behind the other, as the payload of a replay row. The sequence has a replay journal. */
void read_slot(const struct kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot, char *to);

#endif
