/* Commands: sequences in the caller's segment: new, drop, name, spare places. */
#include <stdlib.h>
#include <string.h>

#include "daemon/command.h"
#include "daemon/hold.h"
#include "daemon/live.h"
#include "daemon/names.h"
#include "daemon/objects.h"
#include "daemon/place_reply.h"
#include "daemon/session.h"
#include "daemon/state_log.h"

static enum cmd_step run_seq_new(struct command *cmd)
{
	const Kv__Wire__SeqNew *new = cmd->request->seq_new;
	struct session *session = cmd->session;
	const struct layout_entry *layout = cmd_layout(cmd, new->layout_id);
	uint64_t max_tokens = new->max_tokens;
	struct object *object, *old;
	struct place *place;

	if (!layout || cmd_max_tokens(cmd, &max_tokens) ||
	    objects_check_quota(cmd->core, session->user, 1, &cmd->err) ||
	    names_check(cmd->core, session->uid, new->name, false, &old, &cmd->err))
		return CMD_FAIL;
	place = session_place_new(session, PLACE_SEQUENCE, new->writer, layout, max_tokens,
				  &cmd->err);
	if (!place)
		return CMD_FAIL;
	object = object_new(cmd->core, OBJECT_SEQUENCE, session->uid, layout, true);
	object->session = session;
	object->place = place->seg.index;
	place->object = object;
	place->seg.seq_id = object->id;
	if (new->name[0])
		names_add(cmd->core, object, new->name);
	segment_place_init(&session->segment, &place->seg, NULL, KV_HEAD_LIVE, 0);
	log_object(cmd->core, object);
	log_place(cmd->core, session, place);
	reply_places_add(cmd, place, 0, 0, 0);
	return CMD_DONE;
}

const struct command_entry cmd_seq_new = {.run = run_seq_new, .changes = true};

/* ---- drop --------------------------------------------------------------------------------- */

/* States of sequences that are to be parked, by index in the command. */
struct drop_work {
	struct state *states[KV_TARGETS_MAX];
	size_t n;
};

static void drop_states(struct command *cmd, struct drop_work *work)
{
	for (size_t i = 0; i < work->n; i++)
		state_unref(cmd->core, work->states[i]);
	memset(work, 0, sizeof(*work));
}

static bool is_parked(const Kv__Wire__SeqDrop *drop, const struct place *place)
{
	return drop->park && place->kind == PLACE_SEQUENCE && place->object->name;
}

static int check_places(struct command *cmd, const Kv__Wire__SeqDrop *drop)
{
	for (size_t i = 0; i < drop->n_places; i++) {
		struct place *place = session_place(cmd->session, drop->places[i], &cmd->err);

		if (!place)
			return -1;
		for (size_t k = 0; k < i; k++)
			if (drop->places[k] == drop->places[i])
				return errbuf_set(&cmd->err, KV_EINVAL, "place %u is named twice",
						  drop->places[i]);
		/* Also without a state to be read: another command may hold the word. */
		if (holds_add(cmd, cmd->session, place->seg.writer))
			return -1;
	}
	return 0;
}

static int read_parked(struct command *cmd, const Kv__Wire__SeqDrop *drop, struct drop_work *work)
{
	struct seg_state *seg = state_alloc(1, sizeof(*seg));
	int rc = 0;

	work->n = drop->n_places;
	for (size_t i = 0; rc == 0 && i < drop->n_places; i++) {
		struct place *place = cmd->session->places[drop->places[i]];
		uint64_t update = hold_update(
			segment_writer(&cmd->session->segment, place->seg.writer));

		if (is_parked(drop, place))
			rc = live_read(cmd->session, place, update, LIVE_ALL, seg, &work->states[i],
				       &cmd->err);
	}
	free(seg);
	return rc;
}

static enum cmd_step run_seq_drop(struct command *cmd)
{
	const Kv__Wire__SeqDrop *drop = cmd->request->seq_drop;
	struct drop_work work = {.n = 0};
	enum cmd_step step;

	if (cmd_check_count(cmd, drop->n_places, "places") || check_places(cmd, drop))
		return CMD_FAIL;
	step = holds_try(cmd);
	if (step != CMD_DONE)
		return step;
	if (read_parked(cmd, drop, &work)) {
		drop_states(cmd, &work);
		return CMD_FAIL;
	}
	for (size_t i = 0; i < drop->n_places; i++) {
		struct place *place = cmd->session->places[drop->places[i]];

		if (place->kind == PLACE_SEQUENCE)
			live_leave(cmd->session, place, work.states[i]);
		else
			session_place_free(cmd->session, place);
	}
	return CMD_DONE;
}

const struct command_entry cmd_seq_drop = {.run = run_seq_drop, .changes = true};

/* ---- name --------------------------------------------------------------------------------- */

static enum cmd_step run_seq_name(struct command *cmd)
{
	const Kv__Wire__SeqName *name = cmd->request->seq_name;
	struct place *place = session_place(cmd->session, name->place, &cmd->err);
	struct object *old;

	if (!place)
		return CMD_FAIL;
	if (place->kind != PLACE_SEQUENCE)
		return cmd_fail(
			cmd, KV_EUNSUPPORTED,
			"place %u holds no sequence that can have a name; snapshot or fork it",
			name->place);
	if (place->object->name && strcmp(place->object->name, name->name) == 0)
		return CMD_DONE;
	if (names_check(cmd->core, cmd->session->uid, name->name, false, &old, &cmd->err))
		return CMD_FAIL;
	names_remove(cmd->core, place->object);
	if (name->name[0])
		names_add(cmd->core, place->object, name->name);
	log_object(cmd->core, place->object);
	return CMD_DONE;
}

const struct command_entry cmd_seq_name = {.run = run_seq_name, .changes = true};

/* ---- spare places ------------------------------------------------------------------------- */

static enum cmd_step run_places_reserve(struct command *cmd)
{
	const Kv__Wire__PlacesReserve *reserve = cmd->request->places_reserve;
	const struct layout_entry *layout = cmd_layout(cmd, reserve->layout_id);
	struct session *session = cmd->session;
	struct place *places[KV_TARGETS_MAX];
	uint64_t max_tokens = reserve->max_tokens;
	uint32_t n = 0;

	if (!layout || cmd_max_tokens(cmd, &max_tokens) ||
	    cmd_check_count(cmd, reserve->n_places, "places"))
		return CMD_FAIL;
	while (n < reserve->n_places) {
		places[n] = session_place_new(session, PLACE_SPARE, reserve->writer, layout,
					      max_tokens, &cmd->err);
		if (!places[n])
			break;
		segment_place_spare(&session->segment, &places[n]->seg);
		n++;
	}
	if (n < reserve->n_places) {
		while (n-- > 0)
			session_place_free(session, places[n]);
		return CMD_FAIL;
	}
	for (uint32_t i = 0; i < n; i++) {
		log_place(cmd->core, session, places[i]);
		reply_places_add(cmd, places[i], 0, 0, 0);
	}
	return CMD_DONE;
}

const struct command_entry cmd_places_reserve = {.run = run_places_reserve, .changes = true};
