/* Commands: snapshot, fork, open, unpin, takeover, remove. None of them touches bulk bytes. */
#include <stdlib.h>
#include <string.h>

#include "daemon/command.h"
#include "daemon/events.h"
#include "daemon/names.h"
#include "daemon/objects.h"
#include "daemon/place_reply.h"
#include "daemon/session.h"
#include "daemon/source.h"
#include "daemon/state_log.h"

/* ---- snapshot ----------------------------------------------------------------------------- */

static int check_snapshot_names(struct command *cmd, const Kv__Wire__Snapshot *snapshot)
{
	struct object *old;

	for (size_t i = 0; i < snapshot->n_ones; i++) {
		const Kv__Wire__SnapshotOne *one = snapshot->ones[i];

		if (names_check(cmd->core, cmd->session->uid, one->name, one->replace, &old,
				&cmd->err))
			return -1;
		for (size_t k = 0; one->name[0] && k < i; k++)
			if (strcmp(snapshot->ones[k]->name, one->name) == 0)
				return errbuf_set(&cmd->err, KV_EEXIST,
						  "name %s is there twice in one command",
						  one->name);
	}
	return 0;
}

static struct object *make_snapshot(struct command *cmd, const struct source *source,
				    const char *name)
{
	struct core *core = cmd->core;
	struct object *old = name[0] ? names_find(core, cmd->session->uid, name) : NULL;
	struct object *object = object_new(core, OBJECT_SNAPSHOT, cmd->session->uid,
					   source->state->layout, true);

	object->state = state_ref(source->state);
	object->parent_id = source->origin_id;
	object->parent_update = source->update;
	if (old)
		object_unlist(core, old);
	if (name[0])
		names_add(core, object, name);
	else
		object->session = cmd->session;
	log_object(core, object);
	event_note(core, EVENT_SNAPSHOT_MADE, object->id, cmd->session->id, object->uid,
		   object->state->head.length_tokens);
	return object;
}

static void reply_snapshot(struct command *cmd, Kv__Wire__SnapshotResult *result,
			   const struct object *object)
{
	Kv__Wire__SnapshotDone *done = reply_alloc(1, sizeof(*done));

	(void)cmd;
	kv__wire__snapshot_done__init(done);
	done->id = object->id;
	done->length_tokens = object->state->head.length_tokens;
	done->update = object->state->update;
	result->ones[result->n_ones++] = done;
}

/* Objects may go by being replaced: lineage is by number. */
static enum cmd_step make_snapshots(struct command *cmd, struct sources *sources)
{
	const Kv__Wire__Snapshot *snapshot = cmd->request->snapshot;
	Kv__Wire__SnapshotResult *result;

	if (sources_freeze(cmd, sources))
		return CMD_FAIL;
	result = reply_alloc(1, sizeof(*result));
	kv__wire__snapshot_result__init(result);
	result->ones = reply_alloc(sources->n, sizeof(result->ones[0]));
	cmd->reply->result_case = KV__WIRE__REPLY__RESULT_SNAPSHOT;
	cmd->reply->snapshot = result;
	for (uint32_t i = 0; i < sources->n; i++)
		reply_snapshot(cmd, result,
			       make_snapshot(cmd, &sources->ones[i], snapshot->ones[i]->name));
	return CMD_DONE;
}

static enum cmd_step run_snapshot(struct command *cmd)
{
	const Kv__Wire__Snapshot *snapshot = cmd->request->snapshot;
	struct sources *sources;
	enum cmd_step step = CMD_FAIL;

	if (cmd_check_count(cmd, snapshot->n_ones, "snapshots") ||
	    check_snapshot_names(cmd, snapshot) ||
	    objects_check_quota(cmd->core, cmd->session->user, (uint32_t)snapshot->n_ones,
				&cmd->err))
		return CMD_FAIL;
	sources = state_alloc(1, sizeof(*sources));
	for (size_t i = 0; i < snapshot->n_ones; i++)
		if (sources_add(cmd, sources, snapshot->ones[i]->source))
			goto out;
	step = sources_read(cmd, sources, SOURCE_SHARED);
	if (step == CMD_DONE)
		step = make_snapshots(cmd, sources);
out:
	sources_fini(cmd, sources);
	free(sources);
	return step;
}

const struct command_entry cmd_snapshot = {.run = run_snapshot, .changes = true};

/* ---- places that share a state's blocks ---------------------------------------------------- */

/* The state as the control segment of the session has it: arena numbers instead of arenas. */
static void fill_seg_state(const struct session *session, const struct state *state,
			   struct seg_state *seg)
{
	seg->head = state->head;
	seg->update = state->update;
	if (state->head.n_marks)
		memcpy(seg->marks, state->marks, state->head.n_marks * sizeof(seg->marks[0]));
	for (uint32_t g = 0; g < state->layout->layout->n_groups; g++) {
		uint64_t n = state->n_blocks[g];
		uint64_t last_arena = 0;
		uint32_t number = 0;

		seg->n_slots[g] = state->n_slots[g];
		seg->first_block[g] = state->first_block[g];
		seg->n_blocks[g] = n;
		seg->refs[g] = state_alloc(n, sizeof(uint64_t));
		for (uint64_t i = 0; i < n; i++) {
			uint64_t ref = state->refs[g][i];

			if (gref_arena(ref) != last_arena) {
				last_arena = gref_arena(ref);
				number = session_number_of(
					session, idlist_find(&session->core->arenas, last_arena));
			}
			seg->refs[g][i] = kv_ref(0, number, gref_block(ref));
		}
	}
}

static int check_fits(struct command *cmd, const struct state *state, uint64_t max_tokens)
{
	if (state->head.length_tokens <= max_tokens)
		return 0;
	return errbuf_set(&cmd->err, KV_ERANGE,
			  "max_tokens is %llu, but the source has %llu tokens already",
			  (unsigned long long)max_tokens,
			  (unsigned long long)state->head.length_tokens);
}

/* What becomes of a source in the caller's segment. */
struct landing {
	enum place_kind kind;
	uint32_t writer;
	uint64_t max_tokens;
};

/*
 * A place over `base` (an object with a state), which it pins; not logged yet. NULL with err:
 * nothing has changed, but base may have lost its only reason to be.
 */
static struct place *land(struct command *cmd, struct object *base, const struct landing *landing)
{
	struct session *session = cmd->session;
	struct place *place = session_place_new(session, landing->kind, landing->writer,
						base->layout, landing->max_tokens, &cmd->err);

	if (!place)
		return NULL;
	if (session_place_prepare(session, place, base->state, &cmd->err) ||
	    session_pin(session, base, false, &cmd->err)) {
		session_place_free(session, place);
		return NULL;
	}
	place->base = base;
	return place;
}

/* Writes the place in the segment, pins its base for the client and logs it; its object is known
 * by now. */
static void settle(struct command *cmd, struct place *place, const struct landing *landing)
{
	struct session *session = cmd->session;
	const struct state *state = place->base->state;
	struct seg_state *seg = state_alloc(1, sizeof(*seg));

	fill_seg_state(session, state, seg);
	place->seg.seq_id = place->object->id;
	segment_place_init(&session->segment, &place->seg, seg,
			   landing->kind == PLACE_OPEN ? KV_HEAD_SNAPSHOT : KV_HEAD_LIVE,
			   place->base->id);
	seg_state_fini(seg);
	free(seg);
	session_pin(session, place->base, true, NULL); /* the place has it pinned already */
	log_place(cmd->core, session, place);
}

/* The immutable object whose blocks a fork uses: the source itself, or one made for it. */
static struct object *base_for(struct command *cmd, const struct source *source)
{
	if (source->target.object && source->target.object->kind == OBJECT_SNAPSHOT)
		return source->target.object;
	return object_internal(cmd->core, cmd->session->uid, source->state, source->origin_id);
}

/* ---- fork --------------------------------------------------------------------------------- */

static int check_fork_one(struct command *cmd, const Kv__Wire__Fork *fork, size_t i)
{
	Kv__Wire__ForkOne *one = fork->ones[i];
	struct object *old;

	if (one->parked && !one->name[0])
		return errbuf_set(&cmd->err, KV_EINVAL, "a parked fork needs a name");
	if (!one->parked && session_check_writer(cmd->session, one->writer, &cmd->err))
		return -1;
	if (cmd_max_tokens(cmd, &one->max_tokens) ||
	    names_check(cmd->core, cmd->session->uid, one->name, false, &old, &cmd->err))
		return -1;
	for (size_t k = 0; one->name[0] && k < i; k++)
		if (strcmp(fork->ones[k]->name, one->name) == 0)
			return errbuf_set(&cmd->err, KV_EEXIST,
					  "name %s is there twice in one command", one->name);
	return 0;
}

static struct object *make_sequence(struct command *cmd, const struct source *source,
				    const Kv__Wire__ForkOne *one)
{
	struct object *object = object_new(cmd->core, OBJECT_SEQUENCE, cmd->session->uid,
					   source->state->layout, true);

	object->parent_id = source->origin_id;
	object->parent_update = source->update;
	if (one->name[0])
		names_add(cmd->core, object, one->name);
	return object;
}

static void fork_parked(struct command *cmd, const struct source *source,
			const Kv__Wire__ForkOne *one)
{
	struct object *object = make_sequence(cmd, source, one);

	object->state = state_ref(source->state);
	log_object(cmd->core, object);
	reply_places_add_parked(cmd, object, source->update);
}

static void fork_live(struct command *cmd, const struct source *source,
		      const Kv__Wire__ForkOne *one, struct place *place)
{
	struct landing landing = {.kind = PLACE_SEQUENCE};
	struct object *object = make_sequence(cmd, source, one);

	object->session = cmd->session;
	object->place = place->seg.index;
	place->object = object;
	log_object(cmd->core, object);
	settle(cmd, place, &landing);
	reply_places_add(cmd, place, source->state->head.length_tokens, place->base->id,
			 source->update);
}

/* Takes back what a fork of several had begun. */
static void unland(struct command *cmd, struct place **places, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (places[i])
			session_place_free(cmd->session, places[i]);
}

static enum cmd_step make_forks(struct command *cmd, struct sources *sources)
{
	const Kv__Wire__Fork *fork = cmd->request->fork;
	struct place *places[KV_TARGETS_MAX] = {0};

	if (sources_freeze(cmd, sources))
		return CMD_FAIL;
	for (size_t i = 0; i < fork->n_ones; i++) {
		const Kv__Wire__ForkOne *one = fork->ones[i];
		struct landing landing = {.kind = PLACE_SEQUENCE,
					  .writer = one->writer,
					  .max_tokens = one->max_tokens};
		struct object *base;

		if (one->parked)
			continue;
		base = base_for(cmd, &sources->ones[i]);
		places[i] = land(cmd, base, &landing);
		if (places[i])
			continue;
		object_collect(cmd->core, base);
		unland(cmd, places, i);
		return CMD_FAIL;
	}
	for (size_t i = 0; i < fork->n_ones; i++) {
		if (fork->ones[i]->parked)
			fork_parked(cmd, &sources->ones[i], fork->ones[i]);
		else
			fork_live(cmd, &sources->ones[i], fork->ones[i], places[i]);
	}
	return CMD_DONE;
}

static enum cmd_step run_fork(struct command *cmd)
{
	const Kv__Wire__Fork *fork = cmd->request->fork;
	struct sources *sources;
	enum cmd_step step = CMD_FAIL;

	if (cmd_check_count(cmd, fork->n_ones, "forks") ||
	    objects_check_quota(cmd->core, cmd->session->user, (uint32_t)fork->n_ones, &cmd->err))
		return CMD_FAIL;
	for (size_t i = 0; i < fork->n_ones; i++)
		if (check_fork_one(cmd, fork, i))
			return CMD_FAIL;
	sources = state_alloc(1, sizeof(*sources));
	for (size_t i = 0; i < fork->n_ones; i++)
		if (sources_add(cmd, sources, fork->ones[i]->source))
			goto out;
	step = sources_read(cmd, sources, SOURCE_SHARED);
	for (size_t i = 0; step == CMD_DONE && i < fork->n_ones; i++)
		if (!fork->ones[i]->parked &&
		    check_fits(cmd, sources->ones[i].state, fork->ones[i]->max_tokens))
			step = CMD_FAIL;
	if (step == CMD_DONE)
		step = make_forks(cmd, sources);
out:
	sources_fini(cmd, sources);
	free(sources);
	return step;
}

const struct command_entry cmd_fork = {.run = run_fork, .changes = true};

/* ---- open, unpin -------------------------------------------------------------------------- */

static enum cmd_step run_open(struct command *cmd)
{
	const Kv__Wire__Open *open = cmd->request->open;
	struct landing landing = {.kind = PLACE_OPEN, .writer = open->writer};
	struct target target;
	struct place *place;
	const struct state *state;

	if (cmd_target(cmd, open->source, &target))
		return CMD_FAIL;
	if (!target.object || target.object->kind != OBJECT_SNAPSHOT)
		return cmd_fail(cmd, KV_EINVAL,
				"only a snapshot can be opened for reading; snapshot or fork the "
				"sequence");
	state = target.object->state;
	/* the table needs room for what is there, not for what might come */
	landing.max_tokens = state->head.length_tokens ? state->head.length_tokens : 1;
	place = land(cmd, target.object, &landing);
	if (!place)
		return CMD_FAIL;
	place->object = target.object;
	settle(cmd, place, &landing);
	reply_places_add(cmd, place, state->head.length_tokens, target.object->id, state->update);
	return CMD_DONE;
}

const struct command_entry cmd_open = {.run = run_open, .changes = true};

static enum cmd_step run_unpin(struct command *cmd)
{
	const Kv__Wire__Unpin *unpin = cmd->request->unpin;
	struct session *session = cmd->session;

	if (cmd_check_count(cmd, unpin->n_base_ids, "pins"))
		return CMD_FAIL;
	for (size_t i = 0; i < unpin->n_base_ids; i++) {
		struct object *object = idlist_find(&cmd->core->objects, unpin->base_ids[i]);
		const struct session_pin *pin = object ? session_pin_find(session, object) : NULL;

		if (!pin || !pin->by_client)
			return cmd_fail(cmd, KV_ENOTFOUND, "the session has not pinned %llu",
					(unsigned long long)unpin->base_ids[i]);
	}
	for (size_t i = 0; i < unpin->n_base_ids; i++) {
		struct object *object = idlist_find(&cmd->core->objects, unpin->base_ids[i]);

		if (object) /* else it was named twice */
			session_unpin(session, object, true);
	}
	return CMD_DONE;
}

const struct command_entry cmd_unpin = {.run = run_unpin, .changes = true};

/* ---- takeover ----------------------------------------------------------------------------- */

static enum cmd_step run_takeover(struct command *cmd)
{
	Kv__Wire__Takeover *takeover = cmd->request->takeover;
	struct landing landing = {.kind = PLACE_SEQUENCE, .writer = takeover->writer};
	struct object *object = NULL, *base;
	struct place *place;
	uint64_t update;

	if (cmd_max_tokens(cmd, &takeover->max_tokens))
		return CMD_FAIL;
	landing.max_tokens = takeover->max_tokens;
	if (strlen(takeover->name) <= KV_NAME_BYTES_MAX)
		object = names_find(cmd->core, cmd->session->uid, takeover->name);
	if (!object)
		return cmd_fail(cmd, KV_ENOTFOUND, "no sequence is named %.*s",
				(int)KV_NAME_BYTES_MAX, takeover->name);
	if (object->kind != OBJECT_SEQUENCE)
		return cmd_fail(cmd, KV_EREADONLY, "%s is a snapshot; fork it", object->name);
	if (!object->state)
		return cmd_fail(cmd, KV_EBUSY, "session %llu (pid %u) still writes %s; fork it",
				(unsigned long long)object->session->id, object->session->pid,
				object->name);
	if (check_fits(cmd, object->state, landing.max_tokens))
		return CMD_FAIL;
	update = object->state->update;
	base = object_internal(cmd->core, object->uid, object->state, object->id);
	place = land(cmd, base, &landing);
	if (!place) {
		object_collect(cmd->core, base);
		return CMD_FAIL;
	}
	place->object = object;
	object->session = cmd->session;
	object->place = place->seg.index;
	object_set_state(cmd->core, object, NULL);
	settle(cmd, place, &landing);
	reply_places_add(cmd, place, base->state->head.length_tokens, base->id, update);
	return CMD_DONE;
}

const struct command_entry cmd_takeover = {.run = run_takeover, .changes = true};

/* ---- remove ------------------------------------------------------------------------------- */

static enum cmd_step run_remove(struct command *cmd)
{
	struct target target;
	char text[KV_NAME_BYTES_MAX + 1];

	if (cmd_target(cmd, cmd->request->remove->source, &target))
		return CMD_FAIL;
	if (!target.object || !target.object->state)
		return cmd_fail(
			cmd, KV_EBUSY,
			"%s has a writer (session %llu, pid %u); it can be removed when that has "
			"gone",
			target_text(&target, text, sizeof(text)),
			(unsigned long long)target.session->id, target.session->pid);
	object_unlist(cmd->core, target.object);
	return CMD_DONE;
}

const struct command_entry cmd_remove = {.run = run_remove, .changes = true};
