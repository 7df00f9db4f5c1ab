/*
 * Command: an operator's rollback of several sequences, live ones by the commit protocol, parked
 * ones by exchanging their state. Only what was appended can be taken back here; a journal is its
 * writer's. All or none: every length is checked before anything changes;
 * then decision and result are logged in one batch, and a core that dies behind it is followed by
 * one that finishes (daemon/recover.c).
 */
#include <stdlib.h>

#include "daemon/command.h"
#include "daemon/hold.h"
#include "daemon/objects.h"
#include "daemon/session.h"
#include "daemon/source.h"
#include "daemon/state_log.h"

enum { MODE_KEEP = 1, MODE_REMOVE = 2 };

/* What after() needs of each live sequence. */
struct rollback_work {
	struct {
		struct session *session;
		struct place *place;
		struct seg_state *seg;
		uint64_t length_tokens;
	} ones[KV_TARGETS_MAX];
	uint32_t n;
};

static int check_target(struct command *cmd, const struct source *source)
{
	char text[KV_NAME_BYTES_MAX + 1];
	const struct object *object = source->target.object;

	if (object && object->kind == OBJECT_SEQUENCE)
		return 0;
	target_text(&source->target, text, sizeof(text));
	if (!object)
		return errbuf_set(&cmd->err, KV_EUNSUPPORTED,
				  "%s is rolled back by its own thread only", text);
	return errbuf_set(&cmd->err, KV_EREADONLY, "%s is a snapshot and does not change; fork it",
			  text);
}

/* The length that is asked for. */
static int wanted_length(struct command *cmd, const struct source *source,
			 const Kv__Wire__RollbackOne *one, uint64_t *length)
{
	uint64_t now = source->state->head.length_tokens;
	char text[KV_NAME_BYTES_MAX + 1];

	target_text(&source->target, text, sizeof(text));
	if (one->mode != MODE_KEEP && one->mode != MODE_REMOVE)
		return errbuf_set(&cmd->err, KV_EINVAL, "rollback mode is %u; 1 keeps, 2 removes",
				  one->mode);
	if (one->n_tokens > now)
		return errbuf_set(&cmd->err, KV_ERANGE, "%s has %llu tokens; %llu cannot be %s",
				  text, (unsigned long long)now, (unsigned long long)one->n_tokens,
				  one->mode == MODE_KEEP ? "kept" : "removed");
	*length = one->mode == MODE_KEEP ? one->n_tokens : now - one->n_tokens;
	return state_may_cut(source->state->layout->layout, &source->state->head, *length, text,
			     &cmd->err);
}

static int check_twice(struct command *cmd, const struct sources *sources)
{
	for (uint32_t i = 0; i < sources->n; i++)
		for (uint32_t k = 0; k < i; k++)
			if (sources->ones[i].target.object == sources->ones[k].target.object)
				return errbuf_set(&cmd->err, KV_EINVAL,
						  "a sequence is there twice in one command");
	return 0;
}

static void cut_parked(struct command *cmd, const struct source *source, uint64_t length)
{
	struct state *cut = state_cut(source->state, length);

	if (state_count_arenas(cmd->core, cut, &cmd->err))
		state_die("a state names an arena that is not known");
	state_publish(cmd->core, cut);
	object_set_state(cmd->core, source->target.object, cut);
}

static void decide_live(struct command *cmd, struct source *source, uint64_t length)
{
	struct decided *decided = &cmd->core->decided;
	struct rollback_work *work = cmd->work;
	struct session *session = source->target.session;
	struct place *place = source->target.place;

	decided->ones[decided->n++] = (struct cat_decided_one){.session = session->id,
							       .place = place->seg.index,
							       .update = source->update,
							       .length_tokens = length};
	work->ones[work->n].session = session;
	work->ones[work->n].place = place;
	work->ones[work->n].seg = source->seg;
	work->ones[work->n++].length_tokens = length;
	source->seg = NULL;
	holds_find(cmd, session, place->seg.writer)->advanced = true;
}

static enum cmd_step decide(struct command *cmd, struct sources *sources)
{
	const Kv__Wire__Rollback *rollback = cmd->request->rollback;
	Kv__Wire__RollbackResult *result = reply_alloc(1, sizeof(*result));
	uint64_t lengths[KV_TARGETS_MAX];

	kv__wire__rollback_result__init(result);
	result->ones = reply_alloc(sources->n, sizeof(result->ones[0]));
	cmd->reply->result_case = KV__WIRE__REPLY__RESULT_ROLLBACK;
	cmd->reply->rollback = result;
	for (uint32_t i = 0; i < sources->n; i++)
		if (check_target(cmd, &sources->ones[i]) ||
		    wanted_length(cmd, &sources->ones[i], rollback->ones[i], &lengths[i]))
			return CMD_FAIL;
	cmd->work = state_alloc(1, sizeof(struct rollback_work));
	for (uint32_t i = 0; i < sources->n; i++) {
		struct source *source = &sources->ones[i];
		Kv__Wire__RollbackDone *done = reply_alloc(1, sizeof(*done));

		kv__wire__rollback_done__init(done);
		done->length_tokens = lengths[i];
		result->ones[result->n_ones++] = done;
		if (lengths[i] == source->state->head.length_tokens)
			continue;
		if (source->seg)
			decide_live(cmd, source, lengths[i]);
		else
			cut_parked(cmd, source, lengths[i]);
	}
	if (cmd->core->decided.n)
		log_decided(cmd->core);
	return CMD_DONE;
}

static enum cmd_step run_rollback(struct command *cmd)
{
	const Kv__Wire__Rollback *rollback = cmd->request->rollback;
	struct sources *sources;
	enum cmd_step step = CMD_FAIL;

	if (cmd_check_count(cmd, rollback->n_ones, "sequences"))
		return CMD_FAIL;
	sources = state_alloc(1, sizeof(*sources));
	for (size_t i = 0; i < rollback->n_ones; i++)
		if (sources_add(cmd, sources, rollback->ones[i]->source) ||
		    check_target(cmd, &sources->ones[i]))
			goto out;
	if (check_twice(cmd, sources))
		goto out;
	step = sources_read(cmd, sources, SOURCE_ALL);
	if (step == CMD_DONE)
		step = decide(cmd, sources);
out:
	sources_fini(cmd, sources);
	free(sources);
	return step;
}

/* It is decided: write it and let go. That it is done goes into the next batch. */
static void after_rollback(struct command *cmd)
{
	struct rollback_work *work = cmd->work;

	for (uint32_t i = 0; i < work->n; i++)
		hold_rollback(&work->ones[i].session->segment, &work->ones[i].place->seg,
			      work->ones[i].seg, work->ones[i].length_tokens);
	holds_release(cmd);
	if (cmd->core->decided.n == 0)
		return;
	cmd->core->decided.n = 0;
	log_decided(cmd->core);
}

static void drop_rollback(struct command *cmd)
{
	struct rollback_work *work = cmd->work;

	for (uint32_t i = 0; work && i < work->n; i++)
		free(work->ones[i].seg);
}

const struct command_entry cmd_rollback = {
	.run = run_rollback, .after = after_rollback, .drop = drop_rollback, .changes = true};
