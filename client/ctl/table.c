#include "client/ctl/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 12
#define GAP 2         /* between columns */
#define SHRUNK_MIN 10 /* a column is not cut below this */

struct cell {
	char *text;
	enum colour colour;
};

struct table {
	const char *titles[COLUMNS_MAX];
	int flags[COLUMNS_MAX];
	unsigned widths[COLUMNS_MAX];
	size_t n_columns;
	struct cell *cells;
	size_t n_cells, cap;
};

void *ctl_alloc(size_t n, size_t size)
{
	void *memory = calloc(n ? n : 1, size ? size : 1);

	if (!memory) {
		fputs("kvcachectl: out of memory\n", stderr);
		exit(1);
	}
	return memory;
}

static char *__attribute__((format(printf, 1, 0))) format_text(const char *format, va_list args)
{
	char *text;

	if (vasprintf(&text, format, args) < 0) {
		fputs("kvcachectl: out of memory\n", stderr);
		exit(1);
	}
	return text;
}

char *ctl_format(const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = format_text(format, args);
	va_end(args);
	return text;
}

const char *out_colour(const struct out *out, enum colour colour)
{
	static const char *const codes[] = {
		[PLAIN] = "",         [BOLD] = "\033[1m",    [DIM] = "\033[2m",  [RED] = "\033[31m",
		[GREEN] = "\033[32m", [YELLOW] = "\033[33m", [CYAN] = "\033[36m"};

	return out->colour ? codes[colour] : "";
}

const char *out_plain(const struct out *out, enum colour colour)
{
	return out->colour && colour != PLAIN ? "\033[0m" : "";
}

struct table *table_new(void)
{
	return ctl_alloc(1, sizeof(struct table));
}

/* Columns on the screen: bytes that begin a character. All text here is one column a character. */
static unsigned text_width(const char *text)
{
	unsigned n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

void table_column(struct table *table, const char *title, int flags)
{
	assert(table->n_columns < COLUMNS_MAX && table->n_cells == 0);
	table->titles[table->n_columns] = title;
	table->flags[table->n_columns] = flags;
	table->widths[table->n_columns++] = text_width(title);
}

void table_cell(struct table *table, enum colour colour, const char *format, ...)
{
	size_t column = table->n_cells % table->n_columns;
	va_list args;
	unsigned width;

	if (table->n_cells == table->cap) {
		struct cell *cells = ctl_alloc(table->cap * 2 + 64, sizeof(*cells));

		if (table->n_cells > 0)
			memcpy(cells, table->cells, table->n_cells * sizeof(*cells));
		free(table->cells);
		table->cells = cells;
		table->cap = table->cap * 2 + 64;
	}
	va_start(args, format);
	table->cells[table->n_cells].text = format_text(format, args);
	va_end(args);
	table->cells[table->n_cells].colour = colour;
	width = text_width(table->cells[table->n_cells++].text);
	if (width > table->widths[column])
		table->widths[column] = width;
}

/* Takes from the columns that may shrink, first from the first. */
static void fit(struct table *table, unsigned indent, unsigned width)
{
	unsigned total = indent;

	for (size_t c = 0; c < table->n_columns; c++)
		total += table->widths[c] + (c ? GAP : 0);
	for (size_t c = 0; c < table->n_columns && total > width; c++) {
		unsigned spare = table->widths[c] > SHRUNK_MIN ? table->widths[c] - SHRUNK_MIN : 0;
		unsigned take = total - width < spare ? total - width : spare;

		if (!(table->flags[c] & TABLE_SHRINKS))
			continue;
		table->widths[c] -= take;
		total -= take;
	}
}

/* Bytes of the first n characters. */
static size_t prefix_bytes(const char *text, unsigned n)
{
	size_t i = 0;

	for (; text[i]; i++)
		if (((unsigned char)text[i] & 0xc0) != 0x80 && n-- == 0)
			break;
	return i;
}

static void print_cell(const struct table *table, const struct out *out, size_t c, const char *text,
		       enum colour colour)
{
	unsigned width = table->widths[c], have = text_width(text);
	bool cut = have > width;
	int shown = (int)prefix_bytes(text, cut ? width - 2 : have);
	int pad = cut ? 0 : (int)(width - have);
	bool right = table->flags[c] & TABLE_RIGHT;
	bool last = c + 1 == table->n_columns;

	fprintf(out->stream, "%*s%s%.*s%s%s%*s", right ? pad : 0, "", out_colour(out, colour),
		shown, text, cut ? ".." : "", out_plain(out, colour), right || last ? 0 : pad, "");
}

static void print_titles(const struct table *table, const struct out *out, unsigned indent)
{
	size_t n_titled = 0;

	for (size_t c = 0; c < table->n_columns; c++)
		if (table->titles[c][0])
			n_titled = c + 1;
	if (n_titled == 0)
		return;
	fprintf(out->stream, "%*s", (int)indent, "");
	for (size_t c = 0; c < n_titled; c++) {
		if (c > 0)
			fprintf(out->stream, "%*s", GAP, "");
		print_cell(table, out, c, table->titles[c], DIM);
	}
	fputc('\n', out->stream);
}

void table_print(struct table *table, const struct out *out, unsigned indent)
{
	assert(table->n_cells % table->n_columns == 0);
	fit(table, indent, out->width);
	print_titles(table, out, indent);
	for (size_t i = 0; i < table->n_cells; i++) {
		size_t c = i % table->n_columns;

		fprintf(out->stream, "%*s", c ? GAP : (int)indent, "");
		print_cell(table, out, c, table->cells[i].text, table->cells[i].colour);
		if (c + 1 == table->n_columns)
			fputc('\n', out->stream);
	}
	table_free(table);
}

void table_free(struct table *table)
{
	if (!table)
		return;
	for (size_t i = 0; i < table->n_cells; i++)
		free(table->cells[i].text);
	free(table->cells);
	free(table);
}
