/* Places in a reply. Core thread. */
#ifndef KV_DAEMON_PLACE_REPLY_H
#define KV_DAEMON_PLACE_REPLY_H

#include "daemon/command.h"

/* Adds a place to the command's PlacesResult (place NULL: a parked fork, only its object). */
void reply_places_add(struct command *cmd, const struct place *place, uint64_t length_tokens,
		      uint64_t base_id, uint64_t base_update);
void reply_places_add_parked(struct command *cmd, const struct object *object,
			     uint64_t base_update);

#endif
