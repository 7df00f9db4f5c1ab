#include "client/ctl/gauge.h"

#define BAR_COLUMNS 40
#define INDENT 12

static void print_bar(const struct ctl *ctl, const struct gauge *gauges, size_t n, uint64_t total)
{
	unsigned used = 0;

	fprintf(ctl->out.stream, "%*s[", INDENT, "");
	for (size_t i = 0; i < n && gauges[i].mark != ' '; i++) {
		unsigned width = total ? (unsigned)((double)gauges[i].n_bytes / (double)total *
							    BAR_COLUMNS +
						    0.5) :
					 0;

		if (width == 0 && gauges[i].n_bytes > 0)
			width = 1;
		if (width > BAR_COLUMNS - used)
			width = BAR_COLUMNS - used;
		fputs(out_colour(&ctl->out, gauges[i].colour), ctl->out.stream);
		for (unsigned k = 0; k < width; k++)
			fputc(gauges[i].mark, ctl->out.stream);
		fputs(out_plain(&ctl->out, gauges[i].colour), ctl->out.stream);
		used += width;
	}
	fprintf(ctl->out.stream, "%*s]\n", (int)(BAR_COLUMNS - used), "");
}

void gauges_print(const struct ctl *ctl, const struct gauge *gauges, size_t n, uint64_t total)
{
	struct table *table = table_new();

	print_bar(ctl, gauges, n, total);
	table_column(table, "", TABLE_LEFT);
	table_column(table, "", TABLE_LEFT);
	table_column(table, "", TABLE_RIGHT);
	table_column(table, "", TABLE_RIGHT);
	table_column(table, "", TABLE_LEFT);
	for (size_t i = 0; i < n; i++) {
		table_cell(table, gauges[i].colour, "%c", gauges[i].mark);
		table_cell(table, PLAIN, "%s", gauges[i].name);
		table_cell(table, PLAIN, "%s", units_bytes(gauges[i].n_bytes).s);
		table_cell(table, PLAIN, "%s", units_percent(gauges[i].n_bytes, total).s);
		table_cell(table, DIM, "%s", gauges[i].what);
	}
	table_print(table, &ctl->out, INDENT);
}
