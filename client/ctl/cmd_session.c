/* kvcachectl session ls, session end: attached processes. */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>

#include "client/ctl/ctl.h"

static const struct {
	const char *name;
	enum colour colour;
} states[] = {{"?", RED}, {"attached", GREEN}, {"away", YELLOW}, {"ended", DIM}};

static size_t state_index(uint32_t state)
{
	return state < sizeof(states) / sizeof(states[0]) ? state : 0;
}

static void table_begin(struct table *table)
{
	table_column(table, "SESSION", TABLE_RIGHT);
	table_column(table, "PID", TABLE_RIGHT);
	table_column(table, "COMMAND", TABLE_SHRINKS);
	table_column(table, "USER", TABLE_SHRINKS);
	table_column(table, "STATE", TABLE_LEFT);
	table_column(table, "SEQS", TABLE_RIGHT);
	table_column(table, "MEMORY", TABLE_RIGHT);
	table_column(table, "TOKENS", TABLE_RIGHT);
	table_column(table, "AGE", TABLE_RIGHT);
}

static void table_row(struct table *table, const Kv__Wire__SessionInfo *s)
{
	const struct passwd *user = getpwuid(s->uid);

	table_cell(table, BOLD, "%" PRIu64, s->id);
	table_cell(table, PLAIN, "%" PRIu32, s->pid);
	table_cell(table, PLAIN, "%s", units_clean(s->comm).s);
	if (user)
		table_cell(table, PLAIN, "%s", units_clean(user->pw_name).s);
	else
		table_cell(table, PLAIN, "%" PRIu32, s->uid);
	table_cell(table, states[state_index(s->state)].colour, "%s",
		   states[state_index(s->state)].name);
	table_cell(table, PLAIN, "%s", units_count(s->n_sequences).s);
	table_cell(table, PLAIN, "%s", units_bytes(s->n_bytes).s);
	table_cell(table, PLAIN, "%s", units_count(s->n_appended_tokens).s);
	table_cell(table, PLAIN, "%s", units_age(s->age_ms).s);
}

static json_t *session_json(const Kv__Wire__SessionInfo *s)
{
	return json_pack("{s:I, s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "id",
			 (json_int_t)s->id, "pid", (json_int_t)s->pid, "uid", (json_int_t)s->uid,
			 "command", units_clean(s->comm).s, "state",
			 states[state_index(s->state)].name, "n_sequences",
			 (json_int_t)s->n_sequences, "n_bytes", (json_int_t)s->n_bytes, "age_ms",
			 (json_int_t)s->age_ms, "n_commits", (json_int_t)s->n_commits,
			 "n_appended_tokens", (json_int_t)s->n_appended_tokens, "n_copied_bytes",
			 (json_int_t)s->n_copied_bytes, "n_rollbacks", (json_int_t)s->n_rollbacks,
			 "n_local_forks", (json_int_t)s->n_local_forks);
}

int cmd_session_ls(struct ctl *ctl, const struct ctl_args *args)
{
	Kv__Wire__SessionList message = KV__WIRE__SESSION_LIST__INIT;
	json_t *sessions = json_array();
	struct table *table = table_new();
	bool more = true;
	int code = CTL_OK;

	(void)args;
	table_begin(table);
	while (more && !code) {
		Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
		Kv__Wire__Reply *reply;
		uint64_t after = message.after_id;

		request.command_case = KV__WIRE__REQUEST__COMMAND_SESSION_LIST;
		request.session_list = &message;
		if (ctl_ask_for(ctl, &request, KV__WIRE__REPLY__RESULT_SESSIONS, &reply, &code))
			break;
		for (size_t i = 0; i < reply->sessions->n_sessions; i++) {
			const Kv__Wire__SessionInfo *s = reply->sessions->sessions[i];

			table_row(table, s);
			json_array_append_new(sessions, session_json(s));
			if (s->id > message.after_id)
				message.after_id = s->id;
		}
		more = reply->sessions->more && message.after_id > after;
		ctl_free_reply(reply);
	}
	if (ctl->json && !code)
		ctl_print_json(ctl, json_pack("{s:O}", "sessions", sessions));
	if (ctl->json || code)
		table_free(table);
	else
		table_print(table, &ctl->out, 0);
	json_decref(sessions);
	return code;
}

static int end_one(struct ctl *ctl, const char *word, const struct ctl_args *args)
{
	Kv__Wire__SessionEnd message = KV__WIRE__SESSION_END__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Reply *reply;
	int code = CTL_OK;
	char *end;

	errno = 0;
	message.session = strtoull(word, &end, 10);
	if (word[0] < '1' || word[0] > '9' || *end || errno)
		return ctl_usage(ctl, args->command, "%s is not the number of a session", word);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SESSION_END;
	request.session_end = &message;
	if (ctl_ask(ctl, &request, &reply, &code))
		return code;
	if (!ctl->json)
		fprintf(ctl->out.stream, "session %" PRIu64 ": ended\n", message.session);
	ctl_free_reply(reply);
	return CTL_OK;
}

int cmd_session_end(struct ctl *ctl, const struct ctl_args *args)
{
	json_t *ended = json_array();
	int code = CTL_OK;

	for (int i = 0; i < args->n_words && !code; i++) {
		code = end_one(ctl, args->words[i], args);
		if (!code)
			json_array_append_new(ended, json_integer((json_int_t)strtoull(
							     args->words[i], NULL, 10)));
	}
	if (ctl->json && !code)
		ctl_print_json(ctl, json_pack("{s:o}", "ended", ended));
	else
		json_decref(ended);
	return code;
}
