/*
 * The keeper's table of kept descriptors, and their copies in the descriptor store of the service
 * manager (daemon/notify.h). The table owns them. Keeper only; a forked core reads
 * its copy of the table and owns its copies of the descriptors.
 */
#ifndef KV_DAEMON_KEPT_H
#define KV_DAEMON_KEPT_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/keeper_link.h"

struct kept_table {
	struct kept *items;
	size_t n_items;
	size_t n_items_max;
};

/* Takes fd over in any case; replaces, and closes, what (kind, id) named. 0 or -ENOMEM. */
int kept_put(struct kept_table *table, enum kept_kind kind, uint64_t id, int fd);

/* One that comes from the descriptor store: of two of one name the one with the higher number
 * stays. Takes it over in any case. */
void kept_adopt(struct kept_table *table, const struct kept *kept);

/* Closes and forgets it, if it is there. */
void kept_drop(struct kept_table *table, enum kept_kind kind, uint64_t id);

void kept_fini(struct kept_table *table);

#endif
