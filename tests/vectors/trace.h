/*
 * Traces: what a cache or a policy of another program did, event by event. NAME.txt is lines of
 * words, NAME.bin holds its arrays:
 *
 *	s NAME VALUE		a scalar; before the first event it belongs to the whole trace
 *	e KIND ...		an event; the lines up to the next one belong to it. `e end` is the last
 *	i NAME NDIM DIM... VALUE...	integers
 *	x NAME TYPE NDIM DIM... OFFSET	an array in the .bin, raw, little-endian, in C order
 *
 * Nothing is read outside of the file, whatever it says. Owned by the caller until trace_free.
 */
#ifndef KVCACHED_TESTS_VECTORS_TRACE_H
#define KVCACHED_TESTS_VECTORS_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_DIMS 4
#define TRACE_ITEMS 40 /* of an event */
#define TRACE_WORDS 3  /* behind an event's kind */

struct trace_item {
	char name[32];
	char type[8]; /* "s": text; "i": ints; else the type of bytes */
	uint32_t n_dims, dims[TRACE_DIMS];
	size_t n; /* elements */
	char text[48];
	long *ints;
	const unsigned char *bytes;
	size_t n_bytes;
};

struct trace_event {
	char kind[16];
	long words[TRACE_WORDS]; /* as numbers; 0 where they are none */
	char names[TRACE_WORDS][16];
	struct trace_item items[TRACE_ITEMS];
	uint32_t n_items;
};

struct trace {
	char form[32];              /* the first line */
	struct trace_event *events; /* the first is the head: no kind */
	uint32_t n_events;
	unsigned char *blob;
	size_t blob_bytes;
};

/* false with a reason if the file is not there or makes no sense. */
bool trace_read(const char *folder, const char *name, struct trace *trace, char reason[160]);
void trace_free(struct trace *trace);

/* Calls run() for the folder's traces (.txt), sorted by name, without those that are not wanted
 * (is_wanted NULL: all are). Returns how many there were. */
size_t trace_each(const char *folder, bool (*is_wanted)(const char *name),
		  void (*run)(const char *folder, const char *name));

/* NULL: there is none. */
const struct trace_item *trace_item(const struct trace_event *event, const char *name);
const char *trace_text(const struct trace_event *event, const char *name);
long trace_number(const struct trace_event *event, const char *name, long otherwise);

/* Bytes of an array that must have so many elements of that type; NULL if it has not. */
const unsigned char *trace_bytes(const struct trace_event *event, const char *name,
				 const char *type, size_t n);

#endif
