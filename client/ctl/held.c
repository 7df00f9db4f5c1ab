#include "client/ctl/held.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/object.h"
#include "client/error.h"
#include "client/seq.h"

/* ---- who is it ------------------------------------------------------------------------------ */

static Kv__Wire__Reply *ask_sessions(struct ctl *ctl)
{
	Kv__Wire__SessionList message = KV__WIRE__SESSION_LIST__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Reply *reply = NULL;

	request.command_case = KV__WIRE__REQUEST__COMMAND_SESSION_LIST;
	request.session_list = &message;
	if (ctl->call(ctl, &request, &reply, NULL))
		return NULL;
	if (reply->result_case == KV__WIRE__REPLY__RESULT_SESSIONS)
		return reply;
	ctl_free_reply(reply);
	return NULL;
}

/* "its writer is NAME, pid N (session M)". */
static int fail_live(struct ctl *ctl, const Kv__Wire__Object *o)
{
	Kv__Wire__Reply *reply = ask_sessions(ctl);
	const Kv__Wire__SessionInfo *writer = NULL;
	struct errbuf err = {KV_OK, ""};

	for (size_t i = 0; reply && i < reply->sessions->n_sessions; i++)
		if (reply->sessions->sessions[i]->id == o->session)
			writer = reply->sessions->sessions[i];
	if (writer)
		errbuf_set(&err, KV_EBUSY,
			   "%s: its writer is %s, pid %" PRIu32 " (session %" PRIu64
			   "); wait until that has ended, or fork it",
			   object_label(o).s, units_clean(writer->comm).s, writer->pid, o->session);
	else
		errbuf_set(&err, KV_EBUSY,
			   "%s: session %" PRIu64 " writes it; wait until that has ended, or fork "
			   "it",
			   object_label(o).s, o->session);
	ctl_free_reply(reply);
	return ctl_fail(ctl, &err);
}

/* 0 and the name that the library wants; -1 with *code. */
static int check_object(struct ctl *ctl, const Kv__Wire__Object *o, const char *word,
			enum held_how how, int *code)
{
	bool is_snapshot = object_is_snapshot(o);
	struct errbuf err = {KV_OK, ""};

	if (!o->name || !o->name[0]) {
		errbuf_set(&err, KV_EINVAL, "%s has no name, without which nobody can hold it",
			   units_clean(word).s);
		*code = ctl_fail(ctl, &err);
	} else if (is_snapshot && how == HELD_WRITE) {
		errbuf_set(&err, KV_EREADONLY, "%s is a snapshot, which does not change; fork it",
			   o->name);
		*code = ctl_fail(ctl, &err);
	} else if (!is_snapshot && o->session) {
		*code = fail_live(ctl, o);
	} else {
		return 0;
	}
	return -1;
}

/* ---- the session ---------------------------------------------------------------------------- */

static kvc_writer *writer_of(struct ctl *ctl)
{
	if (!ctl->writer && ctl_session(ctl))
		ctl->writer = kvc_writer_new(ctl->session);
	return ctl->writer;
}

kvc_session *ctl_session(struct ctl *ctl)
{
	struct kvc_session_options options = {.size = sizeof(options)};

	options.runtime_dir = ctl->runtime_dir;
	options.deadline_ms = ctl->deadline_ms;
	if (!ctl->session)
		ctl->session = kvc_open(&options);
	return ctl->session;
}

int held_fail(struct ctl *ctl, const char *name)
{
	struct errbuf err;

	errbuf_set(&err, kvc_error(), "%s: %s", name, kvc_error_text());
	return ctl_fail(ctl, &err);
}

int held_open(struct ctl *ctl, const char *word, enum held_how how, struct held *held, int *code)
{
	Kv__Wire__Target target;
	Kv__Wire__Reply *reply;
	const Kv__Wire__Object *o;
	kvc_writer *writer;
	bool is_snapshot;

	*held = (struct held){0};
	if (ctl_target(ctl, word, &target)) {
		*code = CTL_USAGE;
		return -1;
	}
	o = object_ask(ctl, &target, &reply, code);
	if (!o)
		return -1;
	is_snapshot = object_is_snapshot(o);
	if (check_object(ctl, o, word, how, code) == 0)
		held->name = ctl_format("%s", o->name);
	ctl_free_reply(reply);
	if (!held->name)
		return -1;
	writer = writer_of(ctl);
	if (writer)
		held->seq = is_snapshot ? kvc_open_snapshot(writer, held->name) :
					  kvc_takeover(writer, held->name);
	if (held->seq)
		return 0;
	*code = held_fail(ctl, held->name);
	held_close(held);
	return -1;
}

void held_close(struct held *held)
{
	kvc_seq_free(held->seq);
	free(held->name);
	*held = (struct held){0};
}

/* ---- what it needs, what it has ------------------------------------------------------------- */

#define BLOCKS_FIRST 16u
#define BLOCKS_MOST (UINT32_C(1) << 20)

int held_reserve(struct held *held, uint32_t *n)
{
	if (kvc_error() != KVC_ERESERVE || *n >= BLOCKS_MOST)
		return -1;
	*n = *n ? 2 * *n : BLOCKS_FIRST;
	return kvc_reserve_scatter(held->seq, 1, *n, *n);
}

bool held_may_reserve(const struct held *held)
{
	return seq_mode(held->seq) != KV_JOURNAL_NONE;
}

int held_mark(const struct held *held, uint64_t id, kvc_mark *mark)
{
	kvc_mark marks[KV_MARKS_MAX];
	uint32_t n = seq_marks(held->seq, marks);

	for (uint32_t i = 0; i < n; i++) {
		if (marks[i].id != id)
			continue;
		*mark = marks[i];
		return 0;
	}
	return kvc_fail(KVC_ENOTFOUND, "it has %u marks, none of them is number %" PRIu64, n, id);
}
