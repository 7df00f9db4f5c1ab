/*
 * Help and bash completion, both made from the command table.
 */
#include <string.h>

#include "client/ctl/ctl.h"

#define OPTION_COLUMN 26

static void print_option(struct ctl *ctl, const struct ctl_option *option)
{
	int n = fprintf(ctl->out.stream, "  --%s%s%s", option->name, option->value ? " " : "",
			option->value ? option->value : "");

	if (n >= OPTION_COLUMN)
		fprintf(ctl->out.stream, "\n%*s", OPTION_COLUMN, "");
	else
		fprintf(ctl->out.stream, "%*s", OPTION_COLUMN - n, "");
	fprintf(ctl->out.stream, "%s\n", option->help);
}

static void print_options(struct ctl *ctl, const char *title, const struct ctl_option *options)
{
	if (!options || !options->name)
		return;
	fprintf(ctl->out.stream, "\n%s\n", title);
	for (; options->name; options++)
		print_option(ctl, options);
}

void ctl_help(struct ctl *ctl)
{
	FILE *stream = ctl->out.stream;

	fputs("usage: kvcachectl [OPTION]... COMMAND [OPTION]... [WORD]...\n"
	      "Looks at and works on the KV caches of a kvcached.\n"
	      "\nCommands\n",
	      stream);
	for (const struct ctl_command *command = ctl_commands; command->name; command++)
		fprintf(stream, "  %-*s%s\n", OPTION_COLUMN - 2, command->name, command->summary);
	print_options(ctl, "Options of every command", ctl_common_options);
	fputs("\nExit codes: 0 done, 1 refused or failed, 2 usage, 3 no daemon, 4 corrupt bytes.\n"
	      "More: kvcachectl COMMAND --help, kvcachectl(1).\n",
	      stream);
}

void ctl_help_command(struct ctl *ctl, const struct ctl_command *command)
{
	FILE *stream = ctl->out.stream;

	fprintf(stream, "usage: kvcachectl %s [OPTION]...%s%s\n%s.\n", command->name,
		command->operands[0] ? " " : "", command->operands, command->summary);
	if (command->details[0])
		fprintf(stream, "\n%s\n", command->details);
	print_options(ctl, "Options", command->options);
	print_options(ctl, "Options of every command", ctl_common_options);
}

/* ---- completion --------------------------------------------------------------------------- */

static void print_words(FILE *stream, const struct ctl_option *options)
{
	for (; options && options->name; options++)
		fprintf(stream, " --%s", options->name);
}

/* Adds "--name" of the options that take a value of one kind. Returns how many there were. */
static int print_names(FILE *stream, const struct ctl_option *options, enum ctl_complete complete,
		       int n)
{
	for (; options && options->name; options++)
		if (options->value && options->complete == complete)
			fprintf(stream, "%s--%s", n++ ? "|" : "\t", options->name);
	return n;
}

/* A case branch for the options of all commands that take a value of one kind. */
static void print_values(FILE *stream, enum ctl_complete complete, const char *action)
{
	int n = print_names(stream, ctl_common_options, complete, 0);

	for (const struct ctl_command *c = ctl_commands; c->name; c++)
		n = print_names(stream, c->options, complete, n);
	if (n)
		fprintf(stream, ")\n\t\t%s\n\t\treturn ;;\n", action);
}

static size_t first_word(const struct ctl_command *c)
{
	return strcspn(c->name, " ");
}

/* Has the command before it in the table another first word? */
static bool begins_family(const struct ctl_command *c)
{
	size_t n = first_word(c);

	return c == ctl_commands || first_word(c - 1) != n || strncmp(c[-1].name, c->name, n) != 0;
}

/* Second words of the commands of a family, with spaces before them; how many. */
static int print_seconds(FILE *stream, const struct ctl_command *family)
{
	int n = 0;

	for (const struct ctl_command *c = family; c->name; c++) {
		if (c != family && begins_family(c))
			break;
		if (c->name[first_word(c)] == ' ')
			n++;
		if (stream)
			fputs(c->name + first_word(c), stream);
	}
	return n;
}

static void print_commands(FILE *stream)
{
	for (const struct ctl_command *c = ctl_commands; c->name; c++)
		if (begins_family(c))
			fprintf(stream, " %.*s", (int)first_word(c), c->name);
}

/* How the words of a line become a command, where there may be two. */
static void print_families(FILE *stream)
{
	for (const struct ctl_command *c = ctl_commands; c->name; c++) {
		if (!begins_family(c) || print_seconds(NULL, c) == 0)
			continue;
		fprintf(stream,
			"\t\t%.*s)\n"
			"\t\t\tcommand=%.*s\n"
			"\t\t\tif ((i + 1 < COMP_CWORD)); then\n"
			"\t\t\t\tcase ${COMP_WORDS[i+1]} in\n",
			(int)first_word(c), c->name, (int)first_word(c), c->name);
		for (const struct ctl_command *d = c; d->name && (d == c || !begins_family(d)); d++)
			if (d->name[first_word(d)])
				fprintf(stream, "\t\t\t\t%s) command=\"%s\" ;;\n",
					d->name + first_word(d) + 1, d->name);
		fputs("\t\t\t\tesac\n"
		      "\t\t\tfi\n"
		      "\t\t\tbreak ;;\n",
		      stream);
	}
}

static void print_cases(FILE *stream)
{
	for (const struct ctl_command *c = ctl_commands; c->name; c++) {
		if (begins_family(c) && c->name[first_word(c)] == ' ') {
			fprintf(stream, "\t%.*s)\n\t\twords=\"", (int)first_word(c), c->name);
			print_seconds(stream, c);
			fputs("\" ;;\n", stream);
		}
		fprintf(stream, "\t\"%s\")\n\t\twords=\"", c->name);
		if (begins_family(c) && c->name[first_word(c)] == '\0')
			print_seconds(stream, c);
		print_words(stream, c->options);
		fprintf(stream, "\"\n\t\toperands=%s ;;\n",
			c->complete == CTL_NAMES ? "names" :
			c->complete == CTL_SAVED ? "saved" :
			c->complete == CTL_FILES ? "files" :
						   "");
	}
}

int cmd_completion(struct ctl *ctl, const struct ctl_args *args)
{
	FILE *stream = ctl->out.stream;

	(void)args;
	fputs("# bash completion of kvcachectl; made by: kvcachectl completion\n"
	      "_kvcachectl()\n{\n"
	      "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	      "\tlocal command= words= operands= i dir=()\n"
	      "\tlocal common=\"",
	      stream);
	print_words(stream, ctl_common_options);
	fputs("\"\n\tCOMPREPLY=()\n"
	      "\tcase $prev in\n",
	      stream);
	print_values(stream, CTL_DIRS, "COMPREPLY=($(compgen -d -- \"$cur\"))");
	print_values(stream, CTL_FILES, "COMPREPLY=($(compgen -f -- \"$cur\"))");
	print_values(stream, CTL_NOTHING, ":");
	fputs("\tesac\n"
	      "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	      "\t\tcase ${COMP_WORDS[i]} in\n"
	      "\t\t--runtime-dir) dir=(--runtime-dir \"${COMP_WORDS[++i]}\") ;;\n"
	      "\t\t--deadline) ((++i)) ;;\n"
	      "\t\t-*) ;;\n",
	      stream);
	print_families(stream);
	fputs("\t\t*) command=${COMP_WORDS[i]}; break ;;\n"
	      "\t\tesac\n"
	      "\tdone\n"
	      "\tcase $command in\n"
	      "\t\"\")\n\t\twords=\"",
	      stream);
	print_commands(stream);
	fputs("\" ;;\n", stream);
	print_cases(stream);
	fputs("\tesac\n"
	      "\tif [[ $operands == names && $cur != -* ]]; then\n"
	      "\t\twords=$(kvcachectl \"${dir[@]}\" ls --names 2>/dev/null)\n"
	      "\telif [[ $operands == saved && $cur != -* ]]; then\n"
	      "\t\twords=$(kvcachectl \"${dir[@]}\" saved ls --names 2>/dev/null)\n"
	      "\telif [[ $operands == files && $cur != -* ]]; then\n"
	      "\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n"
	      "\t\treturn\n"
	      "\tfi\n"
	      "\t[[ $cur == -* ]] && words+=$common\n"
	      "\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
	      "}\n"
	      "complete -F _kvcachectl kvcachectl\n",
	      stream);
	return CTL_OK;
}
