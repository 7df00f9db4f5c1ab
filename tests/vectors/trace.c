#include "tests/vectors/trace.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 65536
#define FILE_BYTES_MAX (16u << 20)
#define EVENTS_MAX 10000u

static size_t type_bytes(const char *type)
{
	if (strcmp(type, "f32") == 0 || strcmp(type, "i32") == 0)
		return 4;
	if (strcmp(type, "bf16") == 0 || strcmp(type, "f16") == 0)
		return 2;
	return strcmp(type, "u8") == 0;
}

static long next_number(char **at, bool *good)
{
	char *word = strtok_r(NULL, " \n", at), *end = word;
	long n = word ? strtol(word, &end, 10) : 0;

	*good &= word && *end == '\0';
	return n;
}

static bool read_dims(char **at, struct trace_item *item)
{
	bool good = true;
	long n_dims = next_number(at, &good);

	if (!good || n_dims < 1 || n_dims > TRACE_DIMS)
		return false;
	item->n_dims = (uint32_t)n_dims;
	item->n = 1;
	for (uint32_t i = 0; i < item->n_dims; i++) {
		long dim = next_number(at, &good);

		if (!good || dim < 0 || dim > 100000)
			return false;
		item->dims[i] = (uint32_t)dim;
		item->n *= item->dims[i];
	}
	return item->n <= FILE_BYTES_MAX;
}

static bool read_ints(char **at, struct trace_item *item)
{
	bool good = true;

	if (!read_dims(at, item))
		return false;
	item->ints = calloc(item->n + 1, sizeof(item->ints[0]));
	for (size_t i = 0; item->ints && good && i < item->n; i++)
		item->ints[i] = next_number(at, &good);
	return good && item->ints;
}

static bool read_array(struct trace *trace, char **at, struct trace_item *item)
{
	char *type = strtok_r(NULL, " \n", at);
	bool good = true;
	long off;

	if (!type || type_bytes(type) == 0)
		return false;
	snprintf(item->type, sizeof(item->type), "%s", type);
	if (!read_dims(at, item))
		return false;
	off = next_number(at, &good);
	item->n_bytes = item->n * type_bytes(type);
	if (!good || off < 0 || (size_t)off > trace->blob_bytes ||
	    item->n_bytes > trace->blob_bytes - (size_t)off)
		return false;
	item->bytes = trace->blob + off;
	return true;
}

static bool read_item(struct trace *trace, struct trace_event *event, char kind, char **at)
{
	struct trace_item *item = &event->items[event->n_items];
	char *name = strtok_r(NULL, " \n", at), *text;

	if (!name || event->n_items == TRACE_ITEMS)
		return false;
	event->n_items++;
	snprintf(item->name, sizeof(item->name), "%s", name);
	snprintf(item->type, sizeof(item->type), "%c", kind);
	if (kind == 'i')
		return read_ints(at, item);
	if (kind == 'x')
		return read_array(trace, at, item);
	text = strtok_r(NULL, " \n", at);
	snprintf(item->text, sizeof(item->text), "%s", text ? text : "");
	return kind == 's';
}

static void put_word(struct trace_event *event, int i, const char *word)
{
	event->words[i] = strtol(word, NULL, 10);
	snprintf(event->names[i], sizeof(event->names[i]), "%s", word);
}

static bool new_event(struct trace *trace, char **at)
{
	struct trace_event *events;
	char *word = at ? strtok_r(NULL, " \n", at) : NULL;

	if (trace->n_events == EVENTS_MAX || (at && !word))
		return false;
	events = realloc(trace->events, (trace->n_events + 1) * sizeof(events[0]));
	if (!events)
		return false;
	trace->events = events;
	events += trace->n_events++;
	memset(events, 0, sizeof(*events));
	snprintf(events->kind, sizeof(events->kind), "%s", word ? word : "");
	for (int i = 0; at && i < TRACE_WORDS && (word = strtok_r(NULL, " \n", at)); i++)
		put_word(events, i, word);
	return true;
}

static bool read_line(struct trace *trace, char *line)
{
	char *at, *kind = strtok_r(line, " \n", &at);

	if (!kind)
		return true;
	if (*kind == 'e')
		return new_event(trace, &at);
	return read_item(trace, &trace->events[trace->n_events - 1], *kind, &at);
}

static bool read_blob(const char *path, struct trace *trace)
{
	FILE *file = fopen(path, "re");

	if (!file)
		return true; /* not every trace has arrays */
	trace->blob = malloc(FILE_BYTES_MAX);
	if (trace->blob)
		trace->blob_bytes = fread(trace->blob, 1, FILE_BYTES_MAX, file);
	fclose(file);
	return trace->blob != NULL;
}

static bool read_text(FILE *file, struct trace *trace, char reason[160])
{
	char *line = malloc(LINE_BYTES);
	bool good = line && fgets(trace->form, sizeof(trace->form), file) && new_event(trace, NULL);

	for (unsigned n = 2; good && fgets(line, LINE_BYTES, file); n++) {
		good = read_line(trace, line);
		if (!good)
			snprintf(reason, 160, "line %u makes no sense", n);
	}
	free(line);
	if (good && strcmp(trace->events[trace->n_events - 1].kind, "end") != 0) {
		snprintf(reason, 160, "it does not end");
		good = false;
	}
	return good;
}

bool trace_read(const char *folder, const char *name, struct trace *trace, char reason[160])
{
	char path[PATH_MAX];
	FILE *file;
	bool good;

	memset(trace, 0, sizeof(*trace));
	snprintf(reason, 160, "it cannot be read");
	snprintf(path, sizeof(path), "%s/%s.bin", folder, name);
	if (!read_blob(path, trace))
		return false;
	snprintf(path, sizeof(path), "%s/%s.txt", folder, name);
	file = fopen(path, "re");
	if (!file)
		return false;
	good = read_text(file, trace, reason);
	fclose(file);
	return good;
}

void trace_free(struct trace *trace)
{
	for (uint32_t i = 0; i < trace->n_events; i++)
		for (uint32_t k = 0; k < trace->events[i].n_items; k++)
			free(trace->events[i].items[k].ints);
	free(trace->events);
	free(trace->blob);
}

static int is_trace(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return entry->d_name[0] != '.' && length > 4 &&
	       strcmp(entry->d_name + length - 4, ".txt") == 0;
}

static int compare_entries(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

size_t trace_each(const char *folder, bool (*is_wanted)(const char *name),
		  void (*run)(const char *folder, const char *name))
{
	struct dirent **entries = NULL;
	int n_entries = scandir(folder, &entries, is_trace, compare_entries);
	size_t n = 0;

	for (int i = 0; i < n_entries; i++) {
		char *name = entries[i]->d_name;

		name[strlen(name) - 4] = '\0';
		if (!is_wanted || is_wanted(name)) {
			run(folder, name);
			n++;
		}
		free(entries[i]);
	}
	free(entries);
	return n;
}

const struct trace_item *trace_item(const struct trace_event *event, const char *name)
{
	for (uint32_t i = 0; i < event->n_items; i++)
		if (strcmp(event->items[i].name, name) == 0)
			return &event->items[i];
	return NULL;
}

const char *trace_text(const struct trace_event *event, const char *name)
{
	const struct trace_item *item = trace_item(event, name);

	return item && item->type[0] == 's' ? item->text : NULL;
}

long trace_number(const struct trace_event *event, const char *name, long otherwise)
{
	const char *text = trace_text(event, name);

	return text ? strtol(text, NULL, 10) : otherwise;
}

const unsigned char *trace_bytes(const struct trace_event *event, const char *name,
				 const char *type, size_t n)
{
	const struct trace_item *item = trace_item(event, name);

	return item && strcmp(item->type, type) == 0 && item->n == n ? item->bytes : NULL;
}
