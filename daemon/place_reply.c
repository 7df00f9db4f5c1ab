#include "daemon/place_reply.h"

#include <stdlib.h>

static Kv__Wire__Place *add(struct command *cmd)
{
	Kv__Wire__PlacesResult *result = cmd->reply->places;
	Kv__Wire__Place *wire = reply_alloc(1, sizeof(*wire));

	if (cmd->reply->result_case != KV__WIRE__REPLY__RESULT_PLACES) {
		result = reply_alloc(1, sizeof(*result));
		kv__wire__places_result__init(result);
		result->places = reply_alloc(KV_TARGETS_MAX, sizeof(result->places[0]));
		cmd->reply->result_case = KV__WIRE__REPLY__RESULT_PLACES;
		cmd->reply->places = result;
	}
	kv__wire__place__init(wire);
	result->places[result->n_places++] = wire;
	return wire;
}

void reply_places_add(struct command *cmd, const struct place *place, uint64_t length_tokens,
		      uint64_t base_id, uint64_t base_update)
{
	Kv__Wire__Place *wire = add(cmd);

	wire->place = place->seg.index;
	wire->seq_id = place->seg.seq_id;
	wire->layout_id = place->layout->id;
	wire->length_tokens = length_tokens;
	wire->base_id = base_id;
	wire->base_update = base_update;
}

void reply_places_add_parked(struct command *cmd, const struct object *object, uint64_t base_update)
{
	Kv__Wire__Place *wire = add(cmd);

	wire->seq_id = object->id;
	wire->layout_id = object->layout->id;
	wire->length_tokens = object->state->head.length_tokens;
	wire->base_update = base_update;
}
