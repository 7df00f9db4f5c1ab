/* Held words of a command (daemon/command.h). */
#include "daemon/command.h"
#include "daemon/hold.h"

/* Publishing takes well under a microsecond: the first tries are one a round. */
#define SPIN_NS (200 * UINT64_C(1000))
/* With several writers: those that are held are let go in between, so that one that is stopped
 * does not stop the others for the whole deadline. */
#define PATIENCE_NS (2 * LOOP_NS_PER_MS)

static struct kv_shm_writer *word_of(const struct held *held)
{
	return segment_writer(&held->session->segment, held->writer);
}

static struct writer *writer_of(const struct held *held)
{
	return &held->session->writers[held->writer];
}

struct held *holds_find(struct command *cmd, const struct session *session, uint32_t writer)
{
	for (uint32_t i = 0; i < cmd->n_held; i++)
		if (cmd->held[i].session == session && cmd->held[i].writer == writer)
			return &cmd->held[i];
	return NULL;
}

int holds_add(struct command *cmd, struct session *session, uint32_t writer)
{
	if (holds_find(cmd, session, writer))
		return 0;
	if (cmd->n_held == KV_TARGETS_MAX)
		return errbuf_set(&cmd->err, KV_ELIMIT,
				  "the command concerns more than %u writers, the limit",
				  KV_TARGETS_MAX);
	cmd->held[cmd->n_held++] = (struct held){.session = session, .writer = writer};
	return 0;
}

/* Another command may have it. */
static bool try_one(struct command *cmd, struct held *held)
{
	struct writer *writer = writer_of(held);

	if (writer->holder && writer->holder != cmd)
		return false;
	writer->holder = cmd;
	held->is_held = hold_try(word_of(held)) == 0;
	return held->is_held;
}

static void let_held_go(struct command *cmd)
{
	for (uint32_t i = 0; i < cmd->n_held; i++) {
		struct held *held = &cmd->held[i];

		if (!held->is_held)
			continue;
		hold_cancel(word_of(held));
		held->is_held = false;
		writer_of(held)->holder = NULL;
	}
}

enum cmd_step holds_try(struct command *cmd)
{
	const struct held *missing = NULL;
	uint64_t waited_ns = core_now_ns(cmd->core) - cmd->began_ns;

	for (uint32_t i = 0; i < cmd->n_held; i++)
		if (!try_one(cmd, &cmd->held[i]))
			missing = &cmd->held[i];
	if (!missing)
		return CMD_DONE;
	if (waited_ns > PATIENCE_NS && cmd->n_held > 1)
		let_held_go(cmd);
	cmd->wake = waited_ns < SPIN_NS ? WAKE_ROUND : WAKE_SOON;
	errbuf_set(
		&cmd->err, KV_EBUSY,
		"writer %u of session %llu (pid %u) did not let the daemon act within %llu ms; is "
		"it stopped?",
		missing->writer, (unsigned long long)missing->session->id, missing->session->pid,
		(unsigned long long)((cmd->deadline_ns - cmd->began_ns) / LOOP_NS_PER_MS));
	return CMD_WAIT;
}

void holds_release(struct command *cmd)
{
	for (uint32_t i = 0; i < cmd->n_held; i++) {
		struct held *held = &cmd->held[i];
		struct writer *writer = writer_of(held);

		if (writer->holder != cmd)
			continue;
		if (held->is_held && (held->bumped || held->advanced))
			hold_release(word_of(held), held->advanced);
		else
			hold_cancel(word_of(held));
		writer->holder = NULL;
	}
	cmd->n_held = 0;
}
