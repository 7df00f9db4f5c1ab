/*
 * kvcachectl: the operators' tool. One file a command; a table (commands.c) says what each is
 * called, takes and does, and parser, help and completion are made from that table.
 *
 * A command gets its parsed words and a struct ctl, asks the daemon with ctl_ask() and prints to
 * ctl->out: text for people, or one JSON value with --json. It returns an exit code. Where the
 * answers come from is a function pointer, so that tests give hand-made ones.
 *
 * One thread.
 */
#ifndef KV_CTL_CTL_H
#define KV_CTL_CTL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/ctl/table.h"
#include "client/ctl/units.h"
#include "proto/errbuf.h"
#include "proto/kvcache.pb-c.h"

/* Exit codes; kvcachectl(1). */
enum ctl_exit {
	CTL_OK = 0,
	CTL_FAILED = 1,    /* refused or failed */
	CTL_USAGE = 2,     /* the command line is wrong */
	CTL_NO_DAEMON = 3, /* nobody answers */
	CTL_CORRUPT = 4,   /* stored bytes are not what they were */
	CTL_DIFFER = 5     /* diff found a difference */
};

struct kvc_session;
struct kvc_writer;

struct ctl {
	struct out out;
	bool json;
	const char *runtime_dir; /* NULL: the default */
	uint32_t deadline_ms;    /* 0: the default */
	uint64_t now_unix_ns;    /* for ages */
	const char *program;     /* argv[0]: the demo finds its helpers beside it */
	/* One command; 0 and a reply that ctl_free_reply() frees, or -1 with err. */
	int (*call)(struct ctl *ctl, Kv__Wire__Request *request, Kv__Wire__Reply **reply,
		    struct errbuf *err);
	void *call_arg;              /* of a test */
	struct kvc_session *session; /* of the library, made by its first call */
	struct kvc_writer *writer;   /* of that session, for objects that are held */
};

/* What an argument is, for completion. */
enum ctl_complete { CTL_NOTHING, CTL_NAMES, CTL_SAVED, CTL_FILES, CTL_DIRS };

struct ctl_option {
	const char *name;  /* without dashes; NULL ends a list */
	const char *value; /* what it takes, for help; NULL: a switch */
	const char *help;
	enum ctl_complete complete;
};

struct ctl_args {
	const struct ctl_command *command;
	const char *values[24]; /* [option of the command]; NULL: not given */
	char **words;
	int n_words;
};

struct ctl_command {
	const char *name;     /* one or two words; those with one first word are neighbours */
	const char *operands; /* for help */
	const char *summary;  /* one line */
	const char *details;  /* a paragraph, lines of at most 76 columns; may be "" */
	const struct ctl_option *options;
	int min_words, max_words;
	enum ctl_complete complete;
	int (*run)(struct ctl *ctl, const struct ctl_args *args);
};

/* The table; ends with name NULL. Options that every command takes. */
extern const struct ctl_command ctl_commands[];
extern const struct ctl_option ctl_common_options[];

int cmd_status(struct ctl *ctl, const struct ctl_args *args);
int cmd_ls(struct ctl *ctl, const struct ctl_args *args);
int cmd_show(struct ctl *ctl, const struct ctl_args *args);
int cmd_tree(struct ctl *ctl, const struct ctl_args *args);
int cmd_snapshot(struct ctl *ctl, const struct ctl_args *args);
int cmd_fork(struct ctl *ctl, const struct ctl_args *args);
int cmd_rollback(struct ctl *ctl, const struct ctl_args *args);
int cmd_journal(struct ctl *ctl, const struct ctl_args *args);
int cmd_mark(struct ctl *ctl, const struct ctl_args *args);
int cmd_replay(struct ctl *ctl, const struct ctl_args *args);
int cmd_fold(struct ctl *ctl, const struct ctl_args *args);
int cmd_convert(struct ctl *ctl, const struct ctl_args *args);
int cmd_diff(struct ctl *ctl, const struct ctl_args *args);
int cmd_size(struct ctl *ctl, const struct ctl_args *args);
int cmd_rm(struct ctl *ctl, const struct ctl_args *args);
int cmd_verify(struct ctl *ctl, const struct ctl_args *args);
int cmd_save(struct ctl *ctl, const struct ctl_args *args);
int cmd_load(struct ctl *ctl, const struct ctl_args *args);
int cmd_saved_ls(struct ctl *ctl, const struct ctl_args *args);
int cmd_saved_rm(struct ctl *ctl, const struct ctl_args *args);
int cmd_store_check(struct ctl *ctl, const struct ctl_args *args);
int cmd_store_repair(struct ctl *ctl, const struct ctl_args *args);
int cmd_store_stats(struct ctl *ctl, const struct ctl_args *args);
int cmd_session_ls(struct ctl *ctl, const struct ctl_args *args);
int cmd_session_end(struct ctl *ctl, const struct ctl_args *args);
int cmd_demo(struct ctl *ctl, const struct ctl_args *args);
int cmd_bench(struct ctl *ctl, const struct ctl_args *args);
int cmd_bench_attend(struct ctl *ctl, const struct ctl_args *args);
int cmd_completion(struct ctl *ctl, const struct ctl_args *args);

/* ---- options.c ---------------------------------------------------------------------------- */

/* Parses a whole command line and runs it. argv[0] is the program. Returns an exit code. */
int ctl_main(struct ctl *ctl, int argc, char **argv);

/* Value of an option of the command, "" for a switch that is on, NULL if it was not given. */
const char *ctl_option(const struct ctl_args *args, const char *name);

/* The value as a number; `fallback` if not given. -1 with a message if it is none or beyond. */
int ctl_option_number(struct ctl *ctl, const struct ctl_args *args, const char *name, uint64_t min,
		      uint64_t max, uint64_t fallback, uint64_t *number);

/* A usage error: says what is wrong and where help is. Returns CTL_USAGE. */
int ctl_usage(struct ctl *ctl, const struct ctl_command *command, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- help.c ------------------------------------------------------------------------------- */

void ctl_help(struct ctl *ctl);
void ctl_help_command(struct ctl *ctl, const struct ctl_command *command);

/* ---- ask.c -------------------------------------------------------------------------------- */

/* One command. 0 and the reply, or -1 with the error printed and *code set. */
int ctl_ask(struct ctl *ctl, Kv__Wire__Request *request, Kv__Wire__Reply **reply, int *code);
void ctl_free_reply(Kv__Wire__Reply *reply);

/* The same; a reply that holds anything but the wanted result is an error too. */
int ctl_ask_for(struct ctl *ctl, Kv__Wire__Request *request, Kv__Wire__Reply__ResultCase wanted,
		Kv__Wire__Reply **reply, int *code);

/* The daemon's status; errors as ctl_ask_for(). */
int ctl_ask_status(struct ctl *ctl, Kv__Wire__Reply **reply, int *code);

/* Prints an error (as JSON too, with --json) and returns the exit code that belongs to it. */
int ctl_fail(struct ctl *ctl, const struct errbuf *err);
int ctl_exit_code(int status);

/* The reply does not hold what was asked for: prints that. Returns an exit code. */
int ctl_unexpected(struct ctl *ctl);

/* Prints a JSON value with a newline and gives it up. */
void ctl_print_json(struct ctl *ctl, json_t *value);

/* Gives up rows; with --json they are printed first, as the only field of an object. */
void ctl_print_rows(struct ctl *ctl, const char *title, json_t *rows);

/* "@12" is the object with number 12, everything else a name. -1 with a message: not a name. */
int ctl_target(struct ctl *ctl, const char *word, Kv__Wire__Target *target);

/* The same for a name that is to be given: a number is refused. */
int ctl_new_name(struct ctl *ctl, const char *word, Kv__Wire__Target *target);

/* The words as pairs of an object and a name for what is `made` from it; fills one source a pair
 * (the parser has seen to it that they are at most KV_TARGETS_MAX). -1 with a message. */
int ctl_pairs(struct ctl *ctl, const struct ctl_args *args, const char *made,
	      Kv__Wire__Target *sources);

/* ---- held.c ------------------------------------------------------------------------------- */

/* The session of the library, opened if there is none yet; NULL with the library's error. */
struct kvc_session *ctl_session(struct ctl *ctl);

/* ---- library.c ---------------------------------------------------------------------------- */

/* ctl->call over libkvcache; opens the session at the first call. */
int ctl_library_call(struct ctl *ctl, Kv__Wire__Request *request, Kv__Wire__Reply **reply,
		     struct errbuf *err);
void ctl_library_close(struct ctl *ctl);

#endif
