/*
 * Commands: blocks for a session, and back.
 *
 * Reserve marks its blocks in the books at once, so that nobody else gets them, puts memory
 * behind them a slice a round, and only then logs and answers. Fails it on the way, or ends the
 * session, they are given back as if they had been granted.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/arena_store.h"
#include "daemon/command.h"
#include "daemon/locker.h"
#include "daemon/session.h"
#include "daemon/state_log.h"

#define SLICE_BYTES (UINT64_C(8) << 20)

struct reserve_work {
	struct grant_list list;
	uint32_t groups_of[KV_RUNS_MAX];
	uint32_t at; /* grant that is being prefaulted */
	struct arena_prefault prefault;
	bool tentative; /* counted in core->n_tentative */
};

static int check_need(struct command *cmd, const struct layout_entry *layout,
		      const Kv__Wire__Need *need)
{
	if (need->group >= layout->layout->n_groups)
		return errbuf_set(&cmd->err, KV_EINVAL, "group %u: the layout has %u", need->group,
				  layout->layout->n_groups);
	if (need->n_blocks == 0 || need->n_blocks > GREF_BLOCK_MAX)
		return errbuf_set(&cmd->err, KV_ERANGE, "%u blocks; 1 to %llu can be reserved",
				  need->n_blocks, (unsigned long long)GREF_BLOCK_MAX);
	return 0;
}

static int check_needs(struct command *cmd, const struct layout_entry *layout,
		       const Kv__Wire__Reserve *reserve)
{
	uint64_t bytes = 0, more;

	if (cmd_check_count(cmd, reserve->n_needs, "needs"))
		return -1;
	for (size_t i = 0; i < reserve->n_needs; i++) {
		const Kv__Wire__Need *need = reserve->needs[i];

		if (check_need(cmd, layout, need))
			return -1;
		if (__builtin_mul_overflow(need->n_blocks,
					   layout->layout->groups[need->group].block_bytes,
					   &more) ||
		    __builtin_add_overflow(bytes, more, &bytes))
			bytes = UINT64_MAX; /* more than any pool, whatever follows */
	}
	return pool_check(&cmd->core->pool, cmd->session->user, bytes, &cmd->err);
}

static int grant(struct command *cmd, const struct layout_entry *layout,
		 const Kv__Wire__Reserve *reserve, struct reserve_work *work)
{
	for (size_t i = 0; i < reserve->n_needs; i++) {
		const Kv__Wire__Need *wire = reserve->needs[i];
		struct grant_need need = {.layout = layout,
					  .group = wire->group,
					  .n_blocks = wire->n_blocks,
					  .after_arena = session_arena(cmd->session,
								       wire->after_arena),
					  .after_block = wire->after_block,
					  .contiguous = wire->contiguous};
		uint32_t before = work->list.n;

		if (need.after_arena && need.after_arena->session_id != cmd->session->id)
			need.after_arena = NULL;
		if (grants_add(cmd->session, &need, &work->list, &cmd->err)) {
			grants_undo(cmd->core, &work->list);
			return -1;
		}
		for (uint32_t k = before; k < work->list.n; k++)
			work->groups_of[k] = wire->group;
	}
	return 0;
}

/* One slice of memory. CMD_DONE when all is there. */
static enum cmd_step prefault(struct command *cmd, struct reserve_work *work)
{
	uint64_t left = SLICE_BYTES;

	while (work->at < work->list.n) {
		struct grant *grant = &work->list.grants[work->at];
		uint64_t bytes = grant->n_blocks * grant->arena->block_bytes;
		int rc;

		if (grant->is_warm) {
			work->at++;
			continue;
		}
		if (left == 0)
			return CMD_WAIT;
		if (!work->prefault.arena)
			work->prefault = (struct arena_prefault){.arena = grant->arena,
								 .first = grant->first,
								 .n_blocks = grant->n_blocks};
		rc = arena_prefault_step(&work->prefault, left, &cmd->err);
		if (rc < 0)
			return CMD_FAIL;
		if (rc == 0)
			return CMD_WAIT;
		locker_lock(cmd->core, grant->arena, grant->first, grant->n_blocks);
		left -= bytes < left ? bytes : left;
		work->prefault.arena = NULL;
		work->at++;
	}
	return CMD_DONE;
}

static void reply_runs(struct command *cmd, const struct reserve_work *work)
{
	Kv__Wire__RunsResult *result = reply_alloc(1, sizeof(*result));

	kv__wire__runs_result__init(result);
	result->runs = reply_alloc(work->list.n, sizeof(result->runs[0]));
	for (uint32_t i = 0; i < work->list.n; i++) {
		const struct grant *grant = &work->list.grants[i];
		Kv__Wire__Run *run = reply_alloc(1, sizeof(*run));

		kv__wire__run__init(run);
		run->group = work->groups_of[i];
		run->arena = session_number_of(cmd->session, grant->arena);
		run->first_block = grant->first;
		run->n_blocks = grant->n_blocks;
		result->runs[result->n_runs++] = run;
	}
	cmd->reply->result_case = KV__WIRE__REPLY__RESULT_RUNS;
	cmd->reply->runs = result;
}

/* Blocks that are being zeroed are free soon: worth waiting for. */
static enum cmd_step refused(struct command *cmd)
{
	if (cmd->err.status != KV_EPOOL || !cmd->core->dirty)
		return CMD_FAIL;
	cmd->wake = WAKE_ROUND;
	return CMD_WAIT;
}

static enum cmd_step begin_reserve(struct command *cmd)
{
	const Kv__Wire__Reserve *reserve = cmd->request->reserve;
	const struct layout_entry *layout = cmd_layout(cmd, reserve->layout_id);
	struct reserve_work *work;

	if (!layout)
		return CMD_FAIL;
	if (check_needs(cmd, layout, reserve))
		return refused(cmd);
	work = state_alloc(1, sizeof(*work));
	if (grant(cmd, layout, reserve, work)) {
		free(work);
		return refused(cmd);
	}
	work->tentative = true;
	cmd->core->n_tentative++;
	cmd->work = work;
	arenas_make_room(cmd->core);
	return CMD_DONE;
}

static void drop_reserve(struct command *cmd)
{
	struct reserve_work *work = cmd->work;

	if (!work || !work->tentative)
		return;
	work->tentative = false;
	cmd->core->n_tentative--;
	grants_undo(cmd->core, &work->list);
}

static enum cmd_step run_reserve(struct command *cmd)
{
	struct reserve_work *work;
	enum cmd_step step = CMD_DONE;

	if (!cmd->work)
		step = begin_reserve(cmd);
	if (step != CMD_DONE)
		return step;
	work = cmd->work;
	step = prefault(cmd, work);
	if (step == CMD_FAIL) {
		drop_reserve(cmd);
		return CMD_FAIL;
	}
	if (step == CMD_WAIT) {
		cmd->wake = WAKE_ROUND;
		errbuf_set(
			&cmd->err, KV_ETIMEOUT,
			"the memory could not be put in place within the deadline; reserve less at "
			"a time or allow more time");
		return CMD_WAIT;
	}
	work->tentative = false;
	cmd->core->n_tentative--;
	grants_log(cmd->core, &work->list);
	reply_runs(cmd, work);
	return CMD_DONE;
}

const struct command_entry cmd_reserve = {
	.run = run_reserve, .drop = drop_reserve, .changes = true};

/* ---- release ------------------------------------------------------------------------------ */

/* Blocks that a waiting Reserve has marked are not the session's yet. */
static bool is_tentative(const struct core *core, const struct arena *arena, uint64_t first,
			 uint64_t end)
{
	for (const struct command *cmd = core->pending; cmd; cmd = cmd->next) {
		const struct reserve_work *work = cmd->work;

		if (cmd->entry != &cmd_reserve || !work)
			continue;
		for (uint32_t i = 0; i < work->list.n; i++) {
			const struct grant *grant = &work->list.grants[i];

			if (grant->arena == arena && grant->first < end &&
			    first < (uint64_t)grant->first + grant->n_blocks)
				return true;
		}
	}
	return false;
}

static struct arena *check_run(struct command *cmd, const Kv__Wire__Release *release, size_t i)
{
	const Kv__Wire__Run *run = release->runs[i];
	struct arena *arena = session_arena(cmd->session, run->arena);

	if (!arena || arena->session_id != cmd->session->id ||
	    arena->layout_id != release->layout_id || arena->group != run->group ||
	    run->n_blocks == 0 || !arena_is_granted(arena, run->first_block, run->n_blocks) ||
	    is_tentative(cmd->core, arena, run->first_block,
			 (uint64_t)run->first_block + run->n_blocks)) {
		errbuf_set(&cmd->err, KV_EINVAL,
			   "run %zu: blocks %u to %llu of arena %u are not all granted to this "
			   "session",
			   i, run->first_block,
			   (unsigned long long)run->first_block + run->n_blocks - 1, run->arena);
		return NULL;
	}
	return arena;
}

/* Takes grants [from, to) of the command back into the books: it fails as a whole. */
static void grant_again(struct command *cmd, const Kv__Wire__Release *release, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const Kv__Wire__Run *run = release->runs[i];

		arena_grant(session_arena(cmd->session, run->arena), run->first_block,
			    run->n_blocks);
	}
}

static enum cmd_step run_release(struct command *cmd)
{
	const Kv__Wire__Release *release = cmd->request->release;

	if (release->n_runs == 0 || release->n_runs > KV_RUNS_MAX)
		return cmd_fail(cmd, KV_ELIMIT, "%zu runs; 1 to %u can be released at a time",
				release->n_runs, KV_RUNS_MAX);
	/* one by one, so that a block that is named twice is found */
	for (size_t i = 0; i < release->n_runs; i++) {
		struct arena *arena = check_run(cmd, release, i);

		if (!arena) {
			grant_again(cmd, release, i);
			return CMD_FAIL;
		}
		arena_ungrant(arena, release->runs[i]->first_block, release->runs[i]->n_blocks);
	}
	for (size_t i = 0; i < release->n_runs; i++) {
		const Kv__Wire__Run *run = release->runs[i];
		struct arena *arena = session_arena(cmd->session, run->arena);

		log_blocks(cmd->core, arena, run->first_block, run->n_blocks, LOG_BLOCKS_FREE);
		arenas_touch(cmd->core, arena);
	}
	return CMD_DONE;
}

const struct command_entry cmd_release = {.run = run_release, .changes = true};
