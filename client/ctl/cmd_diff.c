/*
 * kvcachectl diff: where two snapshots or waiting sequences of one layout differ. Exit code 1 if
 * they do, as diff(1) has it.
 */
#include <inttypes.h>
#include <string.h>

#include "client/ctl/held.h"
#include "client/seq.h"

#define LINES_DEFAULT 40

struct diff {
	const struct kv_layout *layout;
	struct table *table;
	json_t *rows;
	uint64_t n_places, max_lines;
	uint64_t lengths[2], positions[2];
};

/* Whether a part belongs to slots, or to the sequence as a whole. */
static bool has_slots(const struct kv_layout *layout, const char *part)
{
	if (strcmp(part, "length") == 0 || strcmp(part, "position") == 0)
		return false;
	for (uint32_t i = 0; i < layout->n_planes; i++)
		if (strcmp(layout->planes[i].name, part) == 0)
			return layout->planes[i].scope == KV_PLANE_SLOT;
	return true;
}

static void add_whole(struct diff *d, const char *part)
{
	const uint64_t *two = strcmp(part, "length") == 0   ? d->lengths :
			      strcmp(part, "position") == 0 ? d->positions :
							      NULL;

	table_cell(d->table, DIM, "-");
	table_cell(d->table, DIM, "-");
	table_cell(d->table, BOLD, "%s", units_clean(part).s);
	if (two)
		table_cell(d->table, PLAIN, "%s and %s", units_count(two[0]).s,
			   units_count(two[1]).s);
	else
		table_cell(d->table, DIM, "-");
	json_array_append_new(d->rows, json_pack("{s:s}", "part", units_clean(part).s));
}

static void add_slots(struct diff *d, const struct kvc_difference *at)
{
	table_cell(d->table, PLAIN, "%" PRIu32, at->layer);
	table_cell(d->table, PLAIN, "%" PRIu32, at->head);
	table_cell(d->table, BOLD, "%s", units_clean(at->part).s);
	if (at->n_slots == 1)
		table_cell(d->table, PLAIN, "%s", units_count(at->first_slot).s);
	else
		table_cell(d->table, PLAIN, "%s-%s", units_count(at->first_slot).s,
			   units_count(at->first_slot + at->n_slots - 1).s);
	json_array_append_new(
		d->rows,
		json_pack("{s:s, s:I, s:I, s:I, s:I}", "part", units_clean(at->part).s, "layer",
			  (json_int_t)at->layer, "head", (json_int_t)at->head, "first_slot",
			  (json_int_t)at->first_slot, "n_slots", (json_int_t)at->n_slots));
}

static int add(void *arg, const struct kvc_difference *at)
{
	struct diff *d = arg;

	if (d->n_places++ >= d->max_lines)
		return 0;
	if (has_slots(d->layout, at->part))
		add_slots(d, at);
	else
		add_whole(d, at->part);
	return 0;
}

static void print_text(struct ctl *ctl, const struct held *held, struct diff *d, uint64_t n)
{
	FILE *stream = ctl->out.stream;

	if (n == 0) {
		table_free(d->table);
		fprintf(stream, "%s and %s are equal: %s\n", held[0].name, held[1].name,
			units_of(d->lengths[0], "token").s);
		return;
	}
	table_print(d->table, &ctl->out, 0);
	if (d->n_places > d->max_lines)
		fprintf(stream, "and %s more places\n", units_count(d->n_places - d->max_lines).s);
	fprintf(stream, "%s and %s: %s\n", held[0].name, held[1].name, units_of(n, "difference").s);
}

static int compare(struct ctl *ctl, const struct held *held, uint64_t max_lines)
{
	struct diff d = {
		.layout = held[0].seq->layout->fields,
		.table = table_new(),
		.rows = json_array(),
		.max_lines = max_lines,
		.lengths = {kvc_length(held[0].seq), kvc_length(held[1].seq)},
		.positions = {kvc_position(held[0].seq), kvc_position(held[1].seq)},
	};
	int64_t n;

	table_column(d.table, "LAYER", TABLE_RIGHT);
	table_column(d.table, "HEAD", TABLE_RIGHT);
	table_column(d.table, "PART", TABLE_LEFT);
	table_column(d.table, "SLOTS", TABLE_LEFT);
	n = kvc_diff(held[0].seq, held[1].seq, add, &d);
	if (n < 0 || ctl->json)
		table_free(d.table);
	else
		print_text(ctl, held, &d, (uint64_t)n);
	if (n >= 0 && ctl->json)
		ctl_print_json(ctl, json_pack("{s:b, s:I, s:I, s:O}", "equal", n == 0,
					      "n_differences", (json_int_t)n, "n_places",
					      (json_int_t)d.n_places, "places", d.rows));
	json_decref(d.rows);
	if (n < 0)
		return held_fail(ctl, held[0].name);
	return n ? CTL_DIFFER : CTL_OK;
}

int cmd_diff(struct ctl *ctl, const struct ctl_args *args)
{
	struct held held[2] = {{0}};
	uint64_t max_lines;
	int code;

	if (ctl_option_number(ctl, args, "lines", 0, INT32_MAX, LINES_DEFAULT, &max_lines))
		return CTL_USAGE;
	if (held_open(ctl, args->words[0], HELD_READ, &held[0], &code) == 0 &&
	    held_open(ctl, args->words[1], HELD_READ, &held[1], &code) == 0)
		code = compare(ctl, held, max_lines);
	held_close(&held[1]);
	held_close(&held[0]);
	return code;
}
