#include "daemon/source.h"

#include <stdlib.h>

#include "daemon/hold.h"
#include "daemon/live.h"
#include "daemon/objects.h"
#include "daemon/session.h"

static bool is_live(const struct source *source)
{
	return source->target.place && source->target.place->kind != PLACE_OPEN;
}

int sources_add(struct command *cmd, struct sources *sources, const Kv__Wire__Target *wire)
{
	struct source *source = &sources->ones[sources->n];

	*source = (struct source){0};
	if (cmd_target(cmd, wire, &source->target))
		return -1;
	sources->n++;
	if (!is_live(source))
		return 0;
	return holds_add(cmd, source->target.session, source->target.place->seg.writer);
}

/* The parent that a local fork says it has, if its user can see it; else its base. */
static uint64_t local_origin(const struct source *source)
{
	const struct session *session = source->target.session;
	const struct kv_shm_place *shm = segment_place(&session->segment,
						       source->target.place->seg.index);
	uint64_t parent = atomic_load_explicit(&shm->parent_id, memory_order_relaxed);
	uint64_t base = atomic_load_explicit(&shm->base_id, memory_order_relaxed);
	struct object *origin = object_find(session->core, session->uid, parent);

	if (!origin)
		origin = object_find(session->core, session->uid, base);
	return origin ? origin->id : 0;
}

/* Was nothing committed since the last freeze? Then the state of that is this one's. */
static struct state *frozen_state(const struct session *session, const struct place *place,
				  uint64_t update)
{
	const struct kv_shm_place *shm = segment_place(&session->segment, place->seg.index);
	int c = kv_head_current(shm, update);

	if (!place->frozen_id || c < 0 ||
	    atomic_load_explicit(&shm->copy[c].stamp, memory_order_relaxed) !=
		    place->seg.frozen_stamp)
		return NULL;
	return idlist_find(&session->core->states, place->frozen_id);
}

static int read_live(struct command *cmd, struct source *source, enum source_part part)
{
	struct session *session = source->target.session;
	struct place *place = source->target.place;
	uint64_t update = hold_update(segment_writer(&session->segment, place->seg.writer));
	struct state *frozen = part == SOURCE_ALL ? NULL : frozen_state(session, place, update);

	if (frozen) {
		source->state = state_ref(frozen);
		return 0;
	}
	source->seg = state_alloc(1, sizeof(*source->seg));
	return live_read(session, place, update, part == SOURCE_ALL ? LIVE_ALL : LIVE_SHARED,
			 source->seg, &source->state, &cmd->err);
}

/* Of a sequence that waits for takeover, a snapshot or fork keeps less than all. */
static int read_stored(struct command *cmd, struct source *source, enum source_part part)
{
	struct state *state = source->target.object->state;

	if (part != SOURCE_SHARED || !state_has_private(state)) {
		source->state = state_ref(state);
		return 0;
	}
	source->state = state_share(state);
	return state_count_arenas(cmd->core, source->state, &cmd->err);
}

/* The records of what is about to be published must find room. */
static int check_room(struct command *cmd, const struct sources *sources)
{
	uint64_t n_bytes = 0;

	for (uint32_t i = 0; i < sources->n; i++) {
		const struct state *state = sources->ones[i].state;

		n_bytes += sizeof(struct cat_state) + KV_MARKS_MAX * sizeof(struct cat_mark) +
			   sizeof(struct cat_object) + KV_NAME_BYTES_MAX;
		for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
			n_bytes += state->n_blocks[g] * sizeof(struct cat_run);
	}
	return catalogue_room(&cmd->core->catalogue, n_bytes, &cmd->err);
}

enum cmd_step sources_read(struct command *cmd, struct sources *sources, enum source_part part)
{
	enum cmd_step step = holds_try(cmd);

	if (step != CMD_DONE)
		return step;
	for (uint32_t i = 0; i < sources->n; i++) {
		struct source *source = &sources->ones[i];

		if (is_live(source) ? read_live(cmd, source, part) : read_stored(cmd, source, part))
			return CMD_FAIL;
		source->update = source->state->update;
		source->origin_id = source->target.object ? source->target.object->id :
							    local_origin(source);
	}
	return check_room(cmd, sources) ? CMD_FAIL : CMD_DONE;
}

int sources_freeze(struct command *cmd, struct sources *sources)
{
	for (uint32_t i = 0; i < sources->n; i++) {
		struct source *source = &sources->ones[i];
		struct session *session = source->target.session;
		struct place *place = source->target.place;
		bool bumped;

		if (!source->seg) /* not live, or frozen already */
			continue;
		if (hold_freeze(&session->segment, &place->seg, place->layout->layout, source->seg,
				&bumped, &cmd->err))
			return -1;
		if (bumped)
			holds_find(cmd, session, place->seg.writer)->bumped = true;
	}
	for (uint32_t i = 0; i < sources->n; i++) {
		struct source *source = &sources->ones[i];

		if (!source->state->id)
			state_publish(cmd->core, source->state);
		if (source->seg)
			source->target.place->frozen_id = source->state->id;
	}
	return 0;
}

void sources_fini(struct command *cmd, struct sources *sources)
{
	for (uint32_t i = 0; i < sources->n; i++) {
		state_unref(cmd->core, sources->ones[i].state);
		free(sources->ones[i].seg);
	}
	sources->n = 0;
}
