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

/* First words; `session` only once. */
static void print_commands(FILE *stream)
{
	const struct ctl_command *before = NULL;

	for (const struct ctl_command *c = ctl_commands; c->name; before = c++) {
		size_t n = strcspn(c->name, " ");

		if (!before || strncmp(before->name, c->name, n + 1) != 0)
			fprintf(stream, " %.*s", (int)n, c->name);
	}
}

static void print_cases(FILE *stream)
{
	for (const struct ctl_command *c = ctl_commands; c->name; c++) {
		fprintf(stream, "\t\"%s\")\n\t\twords=\"", c->name);
		print_words(stream, c->options);
		fprintf(stream, "\"\n\t\toperands=%s ;;\n",
			c->complete == CTL_NAMES ? "names" :
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
	      "\t\t-*) ;;\n"
	      "\t\tsession)\n"
	      "\t\t\tcommand=session\n"
	      "\t\t\t((i + 1 < COMP_CWORD)) && command=\"session ${COMP_WORDS[i+1]}\"\n"
	      "\t\t\tbreak ;;\n"
	      "\t\t*) command=${COMP_WORDS[i]}; break ;;\n"
	      "\t\tesac\n"
	      "\tdone\n"
	      "\tcase $command in\n"
	      "\t\"\")\n\t\twords=\"",
	      stream);
	print_commands(stream);
	fputs("\" ;;\n\tsession)\n\t\twords=\"ls end\" ;;\n", stream);
	print_cases(stream);
	fputs("\tesac\n"
	      "\tif [[ $operands == names && $cur != -* ]]; then\n"
	      "\t\twords=$(kvcachectl \"${dir[@]}\" ls --names 2>/dev/null)\n"
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
