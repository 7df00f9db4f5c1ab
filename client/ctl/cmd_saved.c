/* kvcachectl saved ls: what is in the disk pool, by name. */
#include <string.h>

#include "client/ctl/object.h"

#define DIGEST_DIGITS 16 /* of those that a line has room for */

/* A page at a time: what the daemon's replies hold is used and given up. */
static int each_saved(struct ctl *ctl, const char *prefix,
		      void (*fn)(void *arg, const Kv__Wire__SavedInfo *info), void *arg, int *code)
{
	Kv__Wire__SavedList message = KV__WIRE__SAVED_LIST__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Reply *reply;
	bool more = true;

	message.prefix = (char *)(uintptr_t)prefix;
	request.command_case = KV__WIRE__REQUEST__COMMAND_SAVED_LIST;
	request.saved_list = &message;
	while (more) {
		uint64_t after = message.after_number;

		if (ctl_ask_for(ctl, &request, KV__WIRE__REPLY__RESULT_SAVED, &reply, code))
			return -1;
		for (size_t i = 0; i < reply->saved->n_saved; i++) {
			fn(arg, reply->saved->saved[i]);
			message.after_number = reply->saved->saved[i]->number;
		}
		more = reply->saved->more && message.after_number > after;
		ctl_free_reply(reply);
	}
	return 0;
}

static const char *kind_of(const Kv__Wire__SavedInfo *info)
{
	return info->kind == 1 ? "sequence" : "snapshot";
}

/* ---- for people --------------------------------------------------------------------------- */

struct list {
	const struct ctl *ctl;
	struct table *table;
	size_t n_rows;
	json_t *json;
};

static void add_row(void *arg, const Kv__Wire__SavedInfo *info)
{
	struct list *list = arg;
	uint64_t now_ns = list->ctl->now_unix_ns, then_ns = info->saved_unix_ns;
	char hex[DIGEST_DIGITS + 1] = "-";

	if (info->digest.len >= DIGEST_DIGITS / 2)
		units_hex(hex, info->digest.data, DIGEST_DIGITS / 2);
	table_cell(list->table, BOLD, "%s", units_clean(info->name).s);
	table_cell(list->table, info->kind == 1 ? YELLOW : CYAN, "%s", kind_of(info));
	table_cell(list->table, PLAIN, "%s", units_count(info->length_tokens).s);
	table_cell(list->table, PLAIN, "%s", units_bytes(info->n_bytes).s);
	table_cell(list->table, PLAIN, "%s",
		   units_age(now_ns > then_ns ? (now_ns - then_ns) / 1000000 : 0).s);
	table_cell(list->table, DIM, "%s", hex);
	list->n_rows++;
}

static int print_text(struct ctl *ctl, const char *prefix)
{
	struct list list = {.ctl = ctl, .table = table_new()};
	int code = CTL_OK;

	table_column(list.table, "NAME", TABLE_SHRINKS);
	table_column(list.table, "WHAT", TABLE_LEFT);
	table_column(list.table, "TOKENS", TABLE_RIGHT);
	table_column(list.table, "SIZE", TABLE_RIGHT);
	table_column(list.table, "AGE", TABLE_RIGHT);
	table_column(list.table, "DIGEST", TABLE_LEFT);
	if (each_saved(ctl, prefix, add_row, &list, &code) == 0 && list.n_rows > 0) {
		table_print(list.table, &ctl->out, 0);
		return code;
	}
	table_free(list.table);
	if (code == CTL_OK)
		fputs("nothing saved\n", ctl->out.stream);
	return code;
}

static void print_name(void *arg, const Kv__Wire__SavedInfo *info)
{
	fprintf(arg, "%s\n", units_clean(info->name).s);
}

/* ---- for programs ------------------------------------------------------------------------- */

static void add_json(void *arg, const Kv__Wire__SavedInfo *info)
{
	struct list *list = arg;

	json_array_append_new(
		list->json,
		json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:s, s:I}", "name",
			  units_clean(info->name).s, "kind", kind_of(info), "length_tokens",
			  (json_int_t)info->length_tokens, "update", (json_int_t)info->update,
			  "n_bytes", (json_int_t)info->n_bytes, "n_blocks",
			  (json_int_t)info->n_blocks, "saved_unix_ns",
			  (json_int_t)info->saved_unix_ns, "digest", object_hex(&info->digest),
			  "layout", object_hex(&info->layout_hash), "parent",
			  units_clean(info->parent_name).s, "parent_update",
			  (json_int_t)info->parent_update));
}

static int print_json(struct ctl *ctl, const char *prefix)
{
	struct list list = {.ctl = ctl, .json = json_array()};
	int code = CTL_OK;

	if (each_saved(ctl, prefix, add_json, &list, &code) == 0)
		ctl_print_json(ctl, json_pack("{s:O}", "saved", list.json));
	json_decref(list.json);
	return code;
}

int cmd_saved_ls(struct ctl *ctl, const struct ctl_args *args)
{
	const char *prefix = args->n_words ? args->words[0] : "";
	int code = CTL_OK;

	if (ctl->json)
		return print_json(ctl, prefix);
	if (!ctl_option(args, "names"))
		return print_text(ctl, prefix);
	each_saved(ctl, prefix, print_name, ctl->out.stream, &code);
	return code;
}
