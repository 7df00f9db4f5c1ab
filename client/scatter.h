/* Rows of kvc_scatter that do not say everything, for the commit. Writer's thread. */
#ifndef KV_CLIENT_SCATTER_H
#define KV_CLIENT_SCATTER_H

#include "client/seq.h"

/* Replay rows [first, end) come into force in this process: what they were not given is filled in,
 * `prev` becomes the row that each displaces, the index names them. */
void scatter_complete_replay(struct kvc_seq *seq, uint64_t first, uint64_t end);

#endif
