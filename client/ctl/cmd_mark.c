/* kvcachectl mark: points of a waiting sequence to go back to: set, listed, released. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/ctl/held.h"
#include "client/seq.h"

static json_t *mark_json(const kvc_mark *mark)
{
	return json_pack("{s:I, s:I, s:I}", "id", (json_int_t)mark->id, "update",
			 (json_int_t)mark->update, "length_tokens",
			 (json_int_t)mark->length_tokens);
}

static int set(struct ctl *ctl, struct held *held)
{
	uint32_t n = 0;
	kvc_mark mark;

	while (kvc_mark_set(held->seq, &mark))
		if (held_reserve(held, &n))
			return held_fail(ctl, held->name);
	if (ctl->json)
		ctl_print_json(ctl, json_pack("{s:s, s:o}", "name", held->name, "mark",
					      mark_json(&mark)));
	else
		fprintf(ctl->out.stream, "%s: mark %" PRIu64 " at %s\n", held->name, mark.id,
			units_of(mark.length_tokens, "token").s);
	return CTL_OK;
}

static int release(struct ctl *ctl, struct held *held, uint64_t id)
{
	kvc_mark mark, marks[KV_MARKS_MAX];
	uint32_t n;

	if (held_mark(held, id, &mark) || kvc_mark_release(held->seq, &mark))
		return held_fail(ctl, held->name);
	n = seq_marks(held->seq, marks);
	if (ctl->json)
		ctl_print_json(ctl, json_pack("{s:s, s:I, s:I}", "name", held->name, "released",
					      (json_int_t)id, "n_marks", (json_int_t)n));
	else
		fprintf(ctl->out.stream, "%s: released mark %" PRIu64 ", %s left\n", held->name, id,
			units_of(n, "mark").s);
	return CTL_OK;
}

static void list_text(struct ctl *ctl, const kvc_mark *marks, uint32_t n)
{
	struct table *table = table_new();

	table_column(table, "MARK", TABLE_RIGHT);
	table_column(table, "TOKENS", TABLE_RIGHT);
	table_column(table, "UPDATE", TABLE_RIGHT);
	for (uint32_t i = 0; i < n; i++) {
		table_cell(table, BOLD, "%" PRIu64, marks[i].id);
		table_cell(table, PLAIN, "%s", units_count(marks[i].length_tokens).s);
		table_cell(table, PLAIN, "%s", units_count(marks[i].update).s);
	}
	table_print(table, &ctl->out, 0);
}

static int list(struct ctl *ctl, const struct held *held)
{
	kvc_mark marks[KV_MARKS_MAX];
	uint32_t n = seq_marks(held->seq, marks);
	json_t *rows;

	if (!ctl->json) {
		if (n)
			list_text(ctl, marks, n);
		else
			fprintf(ctl->out.stream, "%s: no marks\n", held->name);
		return CTL_OK;
	}
	rows = json_array();
	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(rows, mark_json(&marks[i]));
	ctl_print_json(ctl, json_pack("{s:s, s:o}", "name", held->name, "marks", rows));
	return CTL_OK;
}

int cmd_mark(struct ctl *ctl, const struct ctl_args *args)
{
	bool lists = ctl_option(args, "list") != NULL;
	struct held held;
	uint64_t id;
	int code;

	if (lists && ctl_option(args, "release"))
		return ctl_usage(ctl, args->command, "mark takes one of --list and --release MARK");
	if (ctl_option_number(ctl, args, "release", 1, UINT64_MAX, 0, &id))
		return CTL_USAGE;
	if (held_open(ctl, args->words[0], HELD_WRITE, &held, &code))
		return code;
	if (lists)
		code = list(ctl, &held);
	else
		code = id ? release(ctl, &held, id) : set(ctl, &held);
	held_close(&held);
	return code;
}
