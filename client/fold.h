/* What kvc_fold will need, for those who reserve without a daemon. Writer's thread. */
#ifndef KV_CLIENT_FOLD_H
#define KV_CLIENT_FOLD_H

#include "client/seq.h"

/* Spares of each group that kvc_fold(seq, keep_rows) takes. The journal is a replay journal. */
void fold_need(struct kvc_seq *seq, uint64_t keep_rows, uint32_t need[KV_GROUPS_MAX]);

#endif
