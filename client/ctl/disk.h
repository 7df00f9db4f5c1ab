/* The disk pool as status and store stats show it. One thread. */
#ifndef KV_CTL_DISK_H
#define KV_CTL_DISK_H

#include "client/ctl/ctl.h"

/* Folder, gauges, how it transfers; with `all` what it has transferred too. info NULL: there is no
 * disk pool. */
void disk_print(const struct ctl *ctl, const Kv__Wire__DiskInfo *info, bool all);

/* null if there is none. */
json_t *disk_json(const Kv__Wire__DiskInfo *info);

#endif
