/*
 * Tables for people: columns as wide as their widest cell, aligned, within the width of the
 * output; a column that may shrink is cut with ".." when the rest would not fit. Colours only
 * where the output says so.
 *
 * Cells are copied. Memory that runs out ends the program (a command has nothing to save).
 * One thread.
 */
#ifndef KV_CTL_TABLE_H
#define KV_CTL_TABLE_H

#include <stdbool.h>
#include <stdio.h>

/* Where output goes and what it can show. */
struct out {
	FILE *stream;
	FILE *errors;
	unsigned width; /* columns of a line */
	bool colour;    /* stream is a terminal and NO_COLOR is not set */
	bool utf8;      /* line drawing may be used */
	bool progress;  /* errors is a terminal: a progress bar may be drawn there */
};

enum colour { PLAIN, BOLD, DIM, RED, GREEN, YELLOW, CYAN };

/* Begins a colour (nothing for PLAIN or where colours are off) / ends it. */
const char *out_colour(const struct out *out, enum colour colour);
const char *out_plain(const struct out *out, enum colour colour);

enum table_column { TABLE_LEFT = 0, TABLE_RIGHT = 1, TABLE_SHRINKS = 2 };

struct table;

/* An empty table, ended by table_print() or table_free(). Never NULL. */
struct table *table_new(void);

/* Adds a column before any cell is. flags: enum table_column, added up. */
void table_column(struct table *table, const char *title, int flags);

/* Adds the next cell, row by row. */
void table_cell(struct table *table, enum colour colour, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Prints titles (unless all are empty) and rows, each indented by `indent`, and frees the table. */
void table_print(struct table *table, const struct out *out, unsigned indent);
void table_free(struct table *table);

/* Memory or the end of the program. */
void *ctl_alloc(size_t n, size_t size);
char *ctl_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
