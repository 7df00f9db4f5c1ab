/*
 * Documents that must agree with the program: kvcache-shm(7) and kvcache-store(5) with the structs,
 * kvcachectl(1) and the bash completion with the command table.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "offload/store_format.h"
#include "proto/journal.h"
#include "tests/support/runner.h"

#define PAGE_BYTES_MAX (1 << 20)

static char *read_source(const char *name)
{
	const char *top = getenv("top_srcdir");
	char *path = ctl_format("%s/%s", top ? top : ".", name);
	char *text = calloc(1, PAGE_BYTES_MAX);
	FILE *file = fopen(path, "r");

	if (!file)
		fail_msg("%s is not there", path);
	assert_true(fread(text, 1, PAGE_BYTES_MAX - 1, file) < PAGE_BYTES_MAX - 1);
	fclose(file);
	free(path);
	return text;
}

struct field {
	const char *section, *name;
	size_t off, bytes;
};

#define FIELD(section, type, name) \
	{ \
		section, #name, offsetof(struct type, name), sizeof(((struct type *)0)->name) \
	}

static const struct field fields[] = {
	FIELD("Head", kv_shm_head, magic),
	FIELD("Head", kv_shm_head, version),
	FIELD("Head", kv_shm_head, head_bytes),
	FIELD("Head", kv_shm_head, segment_bytes),
	FIELD("Head", kv_shm_head, session_id),
	FIELD("Head", kv_shm_head, n_writers),
	FIELD("Head", kv_shm_head, n_places),
	FIELD("Head", kv_shm_head, n_arenas),
	FIELD("Head", kv_shm_head, place_bytes),
	FIELD("Head", kv_shm_head, writers_off),
	FIELD("Head", kv_shm_head, arenas_off),
	FIELD("Head", kv_shm_head, places_off),
	FIELD("Head", kv_shm_head, tables_off),
	FIELD("Head", kv_shm_head, life),
	FIELD("Head", kv_shm_head, unused),
	FIELD("Writer", kv_shm_writer, word),
	FIELD("Writer", kv_shm_writer, in_use),
	FIELD("Writer", kv_shm_writer, unused_in_use),
	FIELD("Writer", kv_shm_writer, unused_line),
	FIELD("Writer", kv_shm_writer, n_reserved_bytes),
	FIELD("Writer", kv_shm_writer, n_commits),
	FIELD("Writer", kv_shm_writer, n_appended_tokens),
	FIELD("Writer", kv_shm_writer, n_copied_bytes),
	FIELD("Writer", kv_shm_writer, n_rollbacks),
	FIELD("Writer", kv_shm_writer, n_local_forks),
	FIELD("Writer", kv_shm_writer, decided),
	FIELD("Writer", kv_shm_writer, unused),
	FIELD("Place", kv_shm_place, writer),
	FIELD("Place", kv_shm_place, n_groups),
	FIELD("Place", kv_shm_place, layout_id),
	FIELD("Place", kv_shm_place, seq_id),
	FIELD("Place", kv_shm_place, base_id),
	FIELD("Place", kv_shm_place, parent_id),
	FIELD("Place", kv_shm_place, max_tokens),
	FIELD("Place", kv_shm_place, table_off),
	FIELD("Place", kv_shm_place, n_entries),
	FIELD("Place", kv_shm_place, freeze_count),
	FIELD("Place", kv_shm_place, frozen_slots),
	FIELD("Place", kv_shm_place, frozen_rows),
	FIELD("Place", kv_shm_place, rows_end),
	FIELD("Place", kv_shm_place, unused),
	FIELD("Place", kv_shm_place, copy[0]),
	FIELD("Place", kv_shm_place, copy[1]),
	FIELD("Place", kv_shm_place, marks),
	FIELD("Place", kv_shm_place, unused_end),
	FIELD("Header", kv_head_copy, stamp),
	FIELD("Header", kv_head_copy, length_tokens),
	FIELD("Header", kv_head_copy, position),
	FIELD("Header", kv_head_copy, journal_first),
	FIELD("Header", kv_head_copy, journal_end),
	FIELD("Header", kv_head_copy, n_marks),
	FIELD("Header", kv_head_copy, state),
	FIELD("Header", kv_head_copy, planes),
	FIELD("Header", kv_head_copy, base_tokens),
	FIELD("Mark", kv_shm_mark, id),
	FIELD("Mark", kv_shm_mark, update),
	FIELD("Mark", kv_shm_mark, length_tokens),
	FIELD("Mark", kv_shm_mark, journal_end),
	FIELD("Block table", kv_shm_entry, stamp),
	FIELD("Block table", kv_shm_entry, ref),
	FIELD("Journal", kv_row, prev),
	FIELD("Journal", kv_row, slot),
	FIELD("Journal", kv_row, token),
	FIELD("Journal", kv_row, layer),
	FIELD("Journal", kv_row, head),
	FIELD("Journal", kv_row, kind),
	FIELD("Journal", kv_row, flags),
	FIELD("Record", kv_record, update),
	FIELD("Record", kv_record, length_tokens),
	FIELD("Record", kv_record, position),
	FIELD("Record", kv_record, planes),
	FIELD("Record", kv_record, n_rows),
	FIELD("Record", kv_record, n_steps),
	FIELD("Record", kv_record, unused),
};

static const struct field store_fields[] = {
	FIELD("Head", store_head, magic),
	FIELD("Head", store_head, version),
	FIELD("Head", store_head, unused),
	FIELD("Head", store_head, n_bytes),
	FIELD("Head", store_head, checksum),
	FIELD("Store", store_about, id),
	FIELD("Store", store_about, created_unix_ns),
	FIELD("Store", store_about, life),
	FIELD("Store", store_about, next_number),
	FIELD("Store", store_about, boot_id),
	FIELD("Store", store_about, closed_in_order),
	FIELD("Store", store_about, unused),
	FIELD("Index", store_index, id),
	FIELD("Index", store_index, life),
	FIELD("Index", store_index, slot_bytes),
	FIELD("Index", store_index, record_bytes),
	FIELD("Index", store_index, unused),
	FIELD("Record", store_record, check),
	FIELD("Record", store_record, layout),
	FIELD("Record", store_record, number),
	FIELD("Record", store_record, uid),
	FIELD("Record", store_record, group),
	FIELD("Record", store_record, n_bytes),
	FIELD("Record", store_record, kind),
	FIELD("Record", store_record, checksum),
};

/* A number of the page, with its thousands separators. */
static size_t page_number(const char **at)
{
	size_t n = 0;

	for (; isdigit((unsigned char)**at) || **at == ','; ++*at)
		if (**at != ',')
			n = n * 10 + (size_t)(**at - '0');
	return n;
}

static const char *skip_blanks(const char *at)
{
	return at + strspn(at, " ");
}

/* Finds "OFF SIZE NAME" in a section of the page. */
static bool page_has(const char *page, const struct field *field)
{
	char *title = ctl_format("\n.Ss %s\n", field->section);
	const char *at = strstr(page, title), *end;
	size_t n = strlen(field->name);

	free(title);
	if (!at)
		return false;
	at += 5;
	end = strstr(at, "\n.S");
	for (; at && at < end; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
		const char *p = skip_blanks(at);
		size_t off, bytes;

		if (!isdigit((unsigned char)*p))
			continue;
		off = page_number(&p);
		p = skip_blanks(p);
		bytes = page_number(&p);
		p = skip_blanks(p);
		if (strncmp(p, field->name, n) == 0 && (p[n] == ' ' || p[n] == '\n'))
			return off == field->off && bytes == field->bytes;
	}
	return false;
}

static void check_page(const char *name, const struct field *f, size_t n)
{
	char *page = read_source(name);

	for (size_t i = 0; i < n; i++)
		if (!page_has(page, &f[i]))
			fail_msg("%s, %s: no line \"%zu %zu %s\"", name, f[i].section, f[i].off,
				 f[i].bytes, f[i].name);
	free(page);
}

static void test_shm_page(void **state)
{
	(void)state;
	check_page("man/kvcache-shm.7", fields, sizeof(fields) / sizeof(fields[0]));
}

static void test_store_page(void **state)
{
	char *page = read_source("man/kvcache-store.5"), *line;

	(void)state;
	check_page("man/kvcache-store.5", store_fields,
		   sizeof(store_fields) / sizeof(store_fields[0]));
	line = ctl_format("store: %#llx, index: %#llx,", (unsigned long long)STORE_MAGIC,
			  (unsigned long long)STORE_INDEX_MAGIC);
	assert_non_null(strstr(page, line));
	free(line);
	line = ctl_format("saved snapshot: %#llx\n", (unsigned long long)STORE_SAVED_MAGIC);
	assert_non_null(strstr(page, line));
	free(line);
	line = ctl_format(" version   %u\n", STORE_VERSION);
	assert_non_null(strstr(page, line));
	free(line);
	free(page);
}

static void run_ctl(const char *words, char **text)
{
	struct ctl ctl = {.program = "kvcachectl"};
	char *copy = ctl_format("kvcachectl %s", words), *argv[8], *rest;
	size_t n;
	int argc = 0;

	for (char *w = strtok_r(copy, " ", &rest); w && argc < 7; w = strtok_r(NULL, " ", &rest))
		argv[argc++] = w;
	argv[argc] = NULL;
	ctl.out.stream = open_memstream(text, &n);
	ctl.out.errors = stderr;
	assert_int_equal(ctl_main(&ctl, argc, argv), CTL_OK);
	fclose(ctl.out.stream);
	free(copy);
}

/* The part of the manual page that is about one command. */
static char *manual_of(const char *page, const char *command)
{
	char *item = ctl_format("\n.It Ic %s", command);
	const char *at = strstr(page, item), *end;
	char *part;

	while (at && at[strlen(item)] != ' ' && at[strlen(item)] != '\n')
		at = strstr(at + 1, item);
	free(item);
	if (!at)
		return NULL;
	end = strstr(at + 1, "\n.It Ic ");
	if (!end)
		end = strstr(at + 1, "\n.Sh ");
	part = ctl_format("%.*s", (int)(end - at), at);
	return part;
}

static void check_option(const char *part, const char *help, const char *completion,
			 const char *command, const struct ctl_option *option)
{
	char *manual = ctl_format("\n.It Fl -%s%s%s\n", option->name, option->value ? " Ar " : "",
				  option->value ? option->value : "");
	char *line = ctl_format("\n  --%s%s%s", option->name, option->value ? " " : "",
				option->value ? option->value : "");
	char *word = ctl_format(" --%s", option->name);

	if (!strstr(part, manual))
		fail_msg("kvcachectl(1), %s: no item%s", command, manual);
	if (!strstr(help, line))
		fail_msg("help of %s has no --%s", command, option->name);
	if (!strstr(completion, word))
		fail_msg("the completion of %s has no --%s", command, option->name);
	free(word);
	free(line);
	free(manual);
}

/* "case" branch of a command in the completion. */
static char *completion_of(const char *completion, const char *command)
{
	char *label = ctl_format("\t\"%s\")\n", command);
	const char *at = strstr(completion, label);
	char *part;

	if (!at)
		fail_msg("the completion does not know %s", command);
	part = ctl_format("%.*s", (int)(strstr(at, ";;") - at), at);
	free(label);
	return part;
}

static void test_options(void **state)
{
	char *page = read_source("man/kvcachectl.1"), *completion, *help;

	(void)state;
	run_ctl("completion", &completion);
	run_ctl("--help", &help);
	for (const struct ctl_option *o = ctl_common_options; o->name; o++)
		check_option(page, help, completion, "every command", o);
	for (const struct ctl_command *c = ctl_commands; c->name; c++) {
		char *part = manual_of(page, c->name), *own, *words, *branch;

		if (!part)
			fail_msg("kvcachectl(1) does not describe %s", c->name);
		if (!strstr(help, c->name) || !strstr(help, c->summary))
			fail_msg("kvcachectl --help does not name %s", c->name);
		words = ctl_format("%s --help", c->name);
		run_ctl(words, &own);
		branch = completion_of(completion, c->name);
		for (const struct ctl_option *o = c->options; o && o->name; o++)
			check_option(part, own, branch, c->name, o);
		free(branch);
		free(own);
		free(words);
		free(part);
	}
	free(help);
	free(completion);
	free(page);
}

/* What the manual has and the program does not. */
static void test_no_more_options(void **state)
{
	char *page = read_source("man/kvcachectl.1");

	(void)state;
	for (const char *at = page; (at = strstr(at, "\n.It Fl -")); at++) {
		const char *name = at + strlen("\n.It Fl -");
		size_t n = strcspn(name, " \n");
		bool known = false;

		for (const struct ctl_option *o = ctl_common_options; o->name; o++)
			known |= strlen(o->name) == n && strncmp(o->name, name, n) == 0;
		for (const struct ctl_command *c = ctl_commands; c->name; c++)
			for (const struct ctl_option *o = c->options; o && o->name; o++)
				known |= strlen(o->name) == n && strncmp(o->name, name, n) == 0;
		if (!known)
			fail_msg("kvcachectl(1) has an option that is not there: --%.*s", (int)n,
				 name);
	}
	for (const char *at = page; (at = strstr(at, "\n.It Ic ")); at++) {
		const char *name = at + strlen("\n.It Ic ");
		bool known = false;

		for (const struct ctl_command *c = ctl_commands; c->name; c++)
			known |= strncmp(c->name, name, strlen(c->name)) == 0;
		if (!known)
			fail_msg("kvcachectl(1) has a command that is not there: %.20s", name);
	}
	free(page);
}

static void test_completion_file(void **state)
{
	char *file = read_source("client/ctl/completion/kvcachectl"), *made;

	(void)state;
	run_ctl("completion", &made);
	assert_string_equal(file, made);
	free(made);
	free(file);
}

/* Lines that people read fit into 80 columns. */
static void test_help_width(void **state)
{
	char *text, *rest;

	(void)state;
	for (const struct ctl_command *c = ctl_commands; c->name; c++) {
		char *words = ctl_format("%s --help", c->name);

		run_ctl(words, &text);
		for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest))
			if (strlen(l) > 80)
				fail_msg("help of %s: %s", c->name, l);
		free(text);
		free(words);
	}
}

static const struct CMUnitTest tests[] = {
	KT_TEST("kvcache-shm(7) has each field of the control segment where it is", test_shm_page),
	KT_TEST("kvcache-store(5) has each field of the store's files where it is",
		test_store_page),
	KT_TEST("help, manual, parser and completion of kvcachectl have the same options",
		test_options),
	KT_TEST("kvcachectl(1) has no option or command that is not there", test_no_more_options),
	KT_TEST("the completion that is installed is the one that kvcachectl prints",
		test_completion_file),
	KT_TEST("the help of each command fits into 80 columns", test_help_width),
};

KT_MAIN(tests)
