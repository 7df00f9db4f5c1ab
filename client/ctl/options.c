/*
 * The command line: common options, a command of one or two words, its options and operands.
 *
 * Options may stand anywhere behind the command, common ones before it too; "--" ends them.
 * Long options may be given as --name VALUE or --name=VALUE; names are not abbreviated, so a
 * script goes on to mean the same when options are added. Every fault is a usage error (exit
 * code 2) that names the word that is wrong; nothing was asked of the daemon then.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "proto/limits.h"

const struct ctl_option ctl_common_options[] = {
	{"json", NULL, "print one JSON value", CTL_NOTHING},
	{"runtime-dir", "DIR", "runtime directory of the daemon", CTL_DIRS},
	{"deadline", "MS", "longest wait for an answer, in milliseconds (5000)", CTL_NOTHING},
	{"help", NULL, "say what the command does", CTL_NOTHING},
	{"version", NULL, "print the version", CTL_NOTHING},
	{NULL, NULL, NULL, CTL_NOTHING}};
enum { COMMON_JSON, COMMON_RUNTIME_DIR, COMMON_DEADLINE, COMMON_HELP, COMMON_VERSION, N_COMMON };

struct parse {
	struct ctl *ctl;
	const char *common[N_COMMON];
	struct ctl_args args;
};

int ctl_usage(struct ctl *ctl, const struct ctl_command *command, const char *format, ...)
{
	va_list args;

	fputs("kvcachectl: ", ctl->out.errors);
	va_start(args, format);
	vfprintf(ctl->out.errors, format, args);
	va_end(args);
	fprintf(ctl->out.errors, "\nTry: kvcachectl%s%s --help\n", command ? " " : "",
		command ? command->name : "");
	return CTL_USAGE;
}

static int option_find(const struct ctl_option *options, const char *name, size_t n)
{
	for (int i = 0; options && options[i].name; i++)
		if (strlen(options[i].name) == n && strncmp(options[i].name, name, n) == 0)
			return i;
	return -1;
}

const char *ctl_option(const struct ctl_args *args, const char *name)
{
	int i = option_find(args->command->options, name, strlen(name));

	assert(i >= 0);
	return args->values[i];
}

static int number_parse(const char *text, uint64_t min, uint64_t max, uint64_t *number)
{
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	*number = strtoull(text, &end, 10);
	return errno || *end || *number < min || *number > max ? -EINVAL : 0;
}

int ctl_option_number(struct ctl *ctl, const struct ctl_args *args, const char *name, uint64_t min,
		      uint64_t max, uint64_t fallback, uint64_t *number)
{
	const char *text = ctl_option(args, name);

	*number = fallback;
	if (!text || number_parse(text, min, max, number) == 0)
		return 0;
	ctl_usage(ctl, args->command, "--%s is %s, not a number from %" PRIu64 " to %" PRIu64, name,
		  text, min, max);
	return -1;
}

/* The option in *word, with its value from behind '=' or from the next word. Moves *i behind it. */
static int option_parse(struct parse *parse, int argc, char **argv, int *i)
{
	const struct ctl_command *command = parse->args.command;
	const char *word = argv[(*i)++] + 2;
	size_t n = strcspn(word, "=");
	int own = command ? option_find(command->options, word, n) : -1;
	int common = option_find(ctl_common_options, word, n);
	const struct ctl_option *option;
	const char *value = "";

	if (own < 0 && common < 0)
		return ctl_usage(parse->ctl, command, "unknown option --%.*s", (int)n, word);
	option = own >= 0 ? &command->options[own] : &ctl_common_options[common];
	if (!option->value && word[n])
		return ctl_usage(parse->ctl, command, "--%s takes no value", option->name);
	if (option->value && word[n])
		value = word + n + 1;
	else if (option->value && *i < argc)
		value = argv[(*i)++];
	else if (option->value)
		return ctl_usage(parse->ctl, command, "--%s needs a value: %s", option->name,
				 option->value);
	if (own >= 0)
		parse->args.values[own] = value;
	else
		parse->common[common] = value;
	return 0;
}

/* The command that argv[i] (and argv[i + 1]) name, rather one of two words; *n_words of them. NULL if
 * there is none. */
static const struct ctl_command *command_find(int argc, char **argv, int i, int *n_words)
{
	const struct ctl_command *found = NULL;

	for (const struct ctl_command *command = ctl_commands; command->name; command++) {
		size_t n = strcspn(command->name, " ");
		const char *second = command->name[n] ? command->name + n + 1 : NULL;

		if (strlen(argv[i]) != n || strncmp(argv[i], command->name, n) != 0)
			continue;
		if (second && (i + 1 == argc || strcmp(argv[i + 1], second) != 0))
			continue;
		found = command;
		*n_words = second ? 2 : 1;
		if (second)
			break;
	}
	return found;
}

static int words_parse(struct parse *parse, int argc, char **argv, int i)
{
	bool options = true;

	while (i < argc) {
		int code;

		if (options && strcmp(argv[i], "--") == 0) {
			options = false;
			i++;
		} else if (options && strncmp(argv[i], "--", 2) == 0) {
			code = option_parse(parse, argc, argv, &i);
			if (code)
				return code;
		} else if (options && argv[i][0] == '-' && argv[i][1]) {
			return ctl_usage(parse->ctl, parse->args.command, "unknown option %s",
					 argv[i]);
		} else {
			parse->args.words[parse->args.n_words++] = argv[i++];
		}
	}
	return 0;
}

static int common_apply(struct parse *parse)
{
	struct ctl *ctl = parse->ctl;
	uint64_t deadline_ms;

	if (parse->common[COMMON_DEADLINE]) {
		if (number_parse(parse->common[COMMON_DEADLINE], 1, KV_DEADLINE_MS_MAX,
				 &deadline_ms))
			return ctl_usage(ctl, parse->args.command,
					 "--deadline is %s, not a number from 1 to %u",
					 parse->common[COMMON_DEADLINE], KV_DEADLINE_MS_MAX);
		ctl->deadline_ms = (uint32_t)deadline_ms;
	}
	if (parse->common[COMMON_RUNTIME_DIR])
		ctl->runtime_dir = parse->common[COMMON_RUNTIME_DIR];
	ctl->json = parse->common[COMMON_JSON] != NULL;
	return 0;
}

static int command_run(struct parse *parse)
{
	const struct ctl_command *command = parse->args.command;
	struct ctl *ctl = parse->ctl;
	int n = parse->args.n_words;

	if (parse->common[COMMON_HELP]) {
		ctl_help_command(ctl, command);
		return CTL_OK;
	}
	if (n < command->min_words)
		return ctl_usage(ctl, command, "%s needs %s", command->name, command->operands);
	if (n > command->max_words)
		return ctl_usage(ctl, command, "%s: one word too many: %s", command->name,
				 parse->args.words[command->max_words]);
	return command->run(ctl, &parse->args);
}

int ctl_main(struct ctl *ctl, int argc, char **argv)
{
	struct parse parse = {.ctl = ctl};
	int i = 1, n_words = 0, code = 0;

	parse.args.words = ctl_alloc((size_t)argc + 1, sizeof(char *));
	while (i < argc && strncmp(argv[i], "--", 2) == 0 && !code)
		code = option_parse(&parse, argc, argv, &i);
	if (code)
		goto out;
	if (i == argc) {
		if (parse.common[COMMON_VERSION])
			fprintf(ctl->out.stream, "kvcachectl %s\n", PACKAGE_VERSION);
		else if (parse.common[COMMON_HELP])
			ctl_help(ctl);
		else
			code = ctl_usage(ctl, NULL, "no command given");
		goto out;
	}
	parse.args.command = command_find(argc, argv, i, &n_words);
	if (!parse.args.command) {
		code = ctl_usage(ctl, NULL, "unknown command: %s%s%s", argv[i],
				 strcmp(argv[i], "session") == 0 && i + 1 < argc ? " " : "",
				 strcmp(argv[i], "session") == 0 && i + 1 < argc ? argv[i + 1] :
										   "");
		goto out;
	}
	code = words_parse(&parse, argc, argv, i + n_words);
	if (!code)
		code = common_apply(&parse);
	if (!code)
		code = command_run(&parse);
out:
	free(parse.args.words);
	return code;
}
