/* kvcachectl ls: what there is. */
#include "client/ctl/object.h"

static void print_names(const struct ctl *ctl, const struct object_list *list)
{
	for (size_t i = 0; i < list->n_objects; i++)
		if (list->objects[i]->name && list->objects[i]->name[0])
			fprintf(ctl->out.stream, "%s\n", units_clean(list->objects[i]->name).s);
}

static void print_text(const struct ctl *ctl, const struct object_list *list)
{
	struct table *table = table_new();

	table_column(table, "NUMBER", TABLE_LEFT);
	table_column(table, "NAME", TABLE_SHRINKS);
	table_column(table, "WHAT", TABLE_LEFT);
	table_column(table, "TOKENS", TABLE_RIGHT);
	table_column(table, "SIZE", TABLE_RIGHT);
	table_column(table, "SHARED", TABLE_RIGHT);
	table_column(table, "AGE", TABLE_RIGHT);
	for (size_t i = 0; i < list->n_objects; i++) {
		const Kv__Wire__Object *o = list->objects[i];

		table_cell(table, DIM, "%s", object_number(o).s);
		table_cell(table, BOLD, "%s", o->name && o->name[0] ? units_clean(o->name).s : "-");
		table_cell(table, object_colour(o), "%s", object_state(o));
		table_cell(table, PLAIN, "%s", units_count(o->length_tokens).s);
		table_cell(table, PLAIN, "%s", units_bytes(o->n_bytes).s);
		table_cell(table, PLAIN, "%s", units_bytes(o->n_shared_bytes).s);
		table_cell(table, PLAIN, "%s", object_age(ctl, o).s);
	}
	if (list->n_objects > 0)
		table_print(table, &ctl->out, 0);
	else {
		table_free(table);
		fputs("nothing there\n", ctl->out.stream);
	}
}

static json_t *list_json(const struct object_list *list)
{
	json_t *objects = json_array();

	for (size_t i = 0; i < list->n_objects; i++)
		json_array_append_new(objects, object_json(list->objects[i]));
	return json_pack("{s:o}", "objects", objects);
}

int cmd_ls(struct ctl *ctl, const struct ctl_args *args)
{
	struct object_list list;
	int code = CTL_OK;

	if (object_list_get(ctl, args->n_words ? args->words[0] : "", &list, &code))
		return code;
	if (ctl->json)
		ctl_print_json(ctl, list_json(&list));
	else if (ctl_option(args, "names"))
		print_names(ctl, &list);
	else
		print_text(ctl, &list);
	object_list_fini(&list);
	return CTL_OK;
}
