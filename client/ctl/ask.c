/*
 * Between commands and the daemon: asking, errors for people and for programs, targets.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "proto/runtime.h"

void ctl_free_reply(Kv__Wire__Reply *reply)
{
	if (reply)
		kv__wire__reply__free_unpacked(reply, NULL);
}

void ctl_print_json(struct ctl *ctl, json_t *value)
{
	if (!value || json_dumpf(value, ctl->out.stream, JSON_INDENT(2)) < 0) {
		fputs("kvcachectl: out of memory\n", ctl->out.errors);
		exit(CTL_FAILED);
	}
	fputc('\n', ctl->out.stream);
	json_decref(value);
}

void ctl_print_rows(struct ctl *ctl, const char *title, json_t *rows)
{
	if (ctl->json)
		ctl_print_json(ctl, json_pack("{s:o}", title, rows));
	else
		json_decref(rows);
}

int ctl_exit_code(int status)
{
	switch (status) {
	case KV_OK: return CTL_OK;
	case KV_EDAEMON: return CTL_NO_DAEMON;
	case KV_ECORRUPT: return CTL_CORRUPT;
	default: return CTL_FAILED;
	}
}

int ctl_fail(struct ctl *ctl, const struct errbuf *err)
{
	struct units_line text = units_clean(err->text[0] ? err->text :
							    kv_status_text(err->status));

	if (ctl->json)
		ctl_print_json(ctl, json_pack("{s:{s:s, s:i, s:s}}", "error", "status",
					      kv_status_name(err->status), "number", err->status,
					      "text", text.s));
	fprintf(ctl->out.errors, "kvcachectl: %s\n", text.s);
	return ctl_exit_code(err->status);
}

int ctl_unexpected(struct ctl *ctl)
{
	struct errbuf err;

	errbuf_set(&err, KV_EPROTO, "the daemon's reply does not hold what was asked for");
	return ctl_fail(ctl, &err);
}

int ctl_ask(struct ctl *ctl, Kv__Wire__Request *request, Kv__Wire__Reply **reply, int *code)
{
	struct errbuf err = {KV_OK, ""};

	*reply = NULL;
	if (ctl->call(ctl, request, reply, &err) == 0)
		return 0;
	*code = ctl_fail(ctl, &err);
	return -1;
}

int ctl_ask_for(struct ctl *ctl, Kv__Wire__Request *request, Kv__Wire__Reply__ResultCase wanted,
		Kv__Wire__Reply **reply, int *code)
{
	if (ctl_ask(ctl, request, reply, code))
		return -1;
	if ((*reply)->result_case == wanted)
		return 0;
	ctl_free_reply(*reply);
	*reply = NULL;
	*code = ctl_unexpected(ctl);
	return -1;
}

int ctl_ask_status(struct ctl *ctl, Kv__Wire__Reply **reply, int *code)
{
	Kv__Wire__Status message = KV__WIRE__STATUS__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;

	request.command_case = KV__WIRE__REQUEST__COMMAND_STATUS;
	request.status = &message;
	return ctl_ask_for(ctl, &request, KV__WIRE__REPLY__RESULT_STATUS_RESULT, reply, code);
}

int ctl_new_name(struct ctl *ctl, const char *word, Kv__Wire__Target *target)
{
	struct errbuf err;

	kv__wire__target__init(target);
	if (kv_name_check(word, &err)) {
		fprintf(ctl->out.errors, "kvcachectl: %s: %s\n", units_clean(word).s, err.text);
		return -1;
	}
	target->which_case = KV__WIRE__TARGET__WHICH_NAME;
	target->name = (char *)(uintptr_t)word;
	return 0;
}

int ctl_target(struct ctl *ctl, const char *word, Kv__Wire__Target *target)
{
	kv__wire__target__init(target);
	if (word[0] == '@') {
		char *end;

		target->which_case = KV__WIRE__TARGET__WHICH_ID;
		target->id = strtoull(word + 1, &end, 10);
		if (word[1] >= '1' && word[1] <= '9' && *end == '\0')
			return 0;
		fprintf(ctl->out.errors, "kvcachectl: %s is not a number of an object, as @12\n",
			units_clean(word).s);
		return -1;
	}
	return ctl_new_name(ctl, word, target);
}

int ctl_pairs(struct ctl *ctl, const struct ctl_args *args, const char *made,
	      Kv__Wire__Target *sources)
{
	Kv__Wire__Target name;

	if (args->n_words % 2) {
		ctl_usage(ctl, args->command, "%s has no name for its %s",
			  args->words[args->n_words - 1], made);
		return -1;
	}
	for (int i = 0; i < args->n_words / 2; i++)
		if (ctl_target(ctl, args->words[2 * i], &sources[i]) ||
		    ctl_new_name(ctl, args->words[2 * i + 1], &name))
			return -1;
	return 0;
}
