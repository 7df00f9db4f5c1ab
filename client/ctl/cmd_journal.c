/*
 * kvcachectl journal: what a sequence's journal holds, and which mode it has. Looking needs nobody
 * to let go: the daemon sees the header of a live one too; only the steps of a journal are counted
 * in its rows, which a snapshot or a waiting sequence shows.
 */
#include <string.h>

#include "client/ctl/held.h"
#include "client/ctl/object.h"

static const char *const modes[] = {"none", "undo", "replay"};

/* ---- what there is -------------------------------------------------------------------------- */

#define LABEL "  %-10s"

static void print_text(const struct ctl *ctl, const Kv__Wire__Object *o)
{
	FILE *stream = ctl->out.stream;

	fprintf(stream, "%s%s%s\n", out_colour(&ctl->out, BOLD), object_label(o).s,
		out_plain(&ctl->out, BOLD));
	fprintf(stream, LABEL "%s\n", "mode", object_journal_mode(o));
	fprintf(stream, LABEL "%s in %s\n", "rows", units_count(o->n_journal_rows).s,
		units_bytes(o->n_journal_bytes).s);
	fprintf(stream, LABEL "%s, %s in blocks, next position %s\n", "tokens",
		units_count(o->length_tokens).s, units_count(o->base_tokens).s,
		units_count(o->position).s);
	fprintf(stream, LABEL "%s\n", "marks", units_count(o->n_marks).s);
}

static json_t *journal_json(const Kv__Wire__Object *o)
{
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "name", object_label(o).s,
			 "mode", object_journal_mode(o), "n_rows", (json_int_t)o->n_journal_rows,
			 "n_bytes", (json_int_t)o->n_journal_bytes, "length_tokens",
			 (json_int_t)o->length_tokens, "base_tokens", (json_int_t)o->base_tokens,
			 "position", (json_int_t)o->position, "n_marks", (json_int_t)o->n_marks);
}

/* A snapshot's rows are there for everybody: the steps in them. */
static int steps(struct ctl *ctl, const char *word, json_t *json)
{
	struct kvc_journal_info info;
	struct held held;
	int code;

	if (held_open(ctl, word, HELD_READ, &held, &code))
		return code;
	code = kvc_journal_info(held.seq, &info) ? held_fail(ctl, held.name) : CTL_OK;
	held_close(&held);
	if (code)
		return code;
	json_object_set_new(json, "n_steps", json_integer((json_int_t)info.n_steps));
	json_object_set_new(json, "first_tokens", json_integer((json_int_t)info.first_tokens));
	if (!ctl->json)
		fprintf(ctl->out.stream, LABEL "%s, back to %s\n", "steps",
			units_count(info.n_steps).s, units_of(info.first_tokens, "token").s);
	return CTL_OK;
}

static int look(struct ctl *ctl, const char *word)
{
	Kv__Wire__Target target;
	Kv__Wire__Reply *reply;
	const Kv__Wire__Object *o;
	json_t *json;
	int code = CTL_OK;

	if (ctl_target(ctl, word, &target))
		return CTL_USAGE;
	o = object_ask(ctl, &target, &reply, &code);
	if (!o)
		return code;
	json = journal_json(o);
	if (!ctl->json)
		print_text(ctl, o);
	if (object_is_snapshot(o) && o->n_journal_rows && o->name && o->name[0])
		code = steps(ctl, word, json);
	ctl_free_reply(reply);
	if (code == CTL_OK && ctl->json)
		ctl_print_json(ctl, json_incref(json));
	json_decref(json);
	return code;
}

/* ---- another mode --------------------------------------------------------------------------- */

static int set_mode(struct ctl *ctl, const char *word, uint32_t mode)
{
	struct kvc_journal_options options = {.size = sizeof(options), .mode = mode};
	struct held held;
	int code = CTL_OK;

	if (held_open(ctl, word, HELD_WRITE, &held, &code))
		return code;
	if (kvc_journal_set(held.seq, &options))
		code = held_fail(ctl, held.name);
	else if (ctl->json)
		ctl_print_json(ctl,
			       json_pack("{s:s, s:s}", "name", held.name, "mode", modes[mode]));
	else
		fprintf(ctl->out.stream, "%s: journal mode %s\n", held.name, modes[mode]);
	held_close(&held);
	return code;
}

int cmd_journal(struct ctl *ctl, const struct ctl_args *args)
{
	const char *mode = ctl_option(args, "mode");

	if (!mode)
		return look(ctl, args->words[0]);
	for (uint32_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(mode, modes[i]) == 0)
			return set_mode(ctl, args->words[0], i);
	return ctl_usage(ctl, args->command, "--mode is %s; modes are none, undo and replay", mode);
}
