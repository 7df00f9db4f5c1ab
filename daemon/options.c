#include "daemon/options.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Values of getopt_long(); from OPTION_FLAG on, an index into flags[]. */
enum { OPTION_CHECK = 256, OPTION_READY, OPTION_FOREGROUND, OPTION_FLAG };

/* Flags that stand for a key of the configuration file. */
static const struct flag {
	const char *name;
	const char *section;
	const char *key;
	const char *help;
} flags[] = {
	{"runtime-dir", "service", "runtime_dir", "DIR    where the sockets are"},
	{"socket-mode", "service", "socket_mode", "MODE   access to the sockets, octal (0600)"},
	{"socket-group", "service", "socket_group", "GROUP  group of the sockets"},
	{"log-level", "service", "log_level", "LEVEL  error, warn, info or debug (info)"},
	{"pool-bytes", "pool host", "bytes", "SIZE   host pool, with K, M, G or T (1G)"},
	{"huge", "pool host", "huge", "try|no huge pages for the pool (try)"},
	{"mlock", "pool host", "mlock", "try|no lock the pool in memory (try)"},
	{"arena-bytes", "pool host", "arena_bytes", "SIZE   largest arena (64G)"},
	{"disk-dir", "pool disk", "dir", "DIR    disk pool: where it is (none)"},
	{"disk-bytes", "pool disk", "bytes", "SIZE   disk pool, with K, M, G or T (16G)"},
	{"preallocate", "pool disk", "preallocate", "yes|no take room on the disk ahead (yes)"},
	{"io", "pool disk", "io", "auto|uring|threads (auto)"},
	{"sessions", "limits", "sessions", "N      sessions of one user (256)"},
	{"sequences", "limits", "sequences", "N      sequences and snapshots of one user (65536)"},
	{"bytes-per-user", "limits", "bytes_per_user",
	 "SIZE   pool bytes of one user (0: the pool)"},
	{"jobs", "limits", "jobs", "N      jobs of one user at a time (16)"},
};
#define N_FLAGS (sizeof(flags) / sizeof(flags[0]))

static const struct option plain[] = {
	{"config", required_argument, NULL, 'c'},
	{"check-config", no_argument, NULL, OPTION_CHECK},
	{"foreground", no_argument, NULL, OPTION_FOREGROUND},
	{"ready-fd", required_argument, NULL, OPTION_READY},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
};
#define N_PLAIN (sizeof(plain) / sizeof(plain[0]))

static void print_help(void)
{
	printf("usage: kvcached [--config FILE] [options]\n\n"
	       "Keeps the KV caches of inference processes: kvcached(8), kvcached.conf(5).\n\n"
	       "  -c, --config=FILE       read settings from FILE; flags win over it\n"
	       "      --check-config      check settings, print them, and exit\n"
	       "      --foreground        stay in the foreground, as always\n"
	       "      --ready-fd=N        write a newline to descriptor N when serving\n"
	       "  -h, --help              print this and exit\n"
	       "  -V, --version           print the version and exit\n\n");
	for (size_t i = 0; i < N_FLAGS; i++)
		printf("      --%-15s %s\n", flags[i].name, flags[i].help);
}

static void long_options(struct option *all)
{
	memcpy(all, plain, sizeof(plain));
	for (size_t i = 0; i < N_FLAGS; i++)
		all[N_PLAIN + i] = (struct option){flags[i].name, required_argument, NULL,
						   OPTION_FLAG + (int)i};
	all[N_PLAIN + N_FLAGS] = (struct option){0};
}

/* ---- two passes: the file first, then the flags over it ---------------------------------- */

struct pass {
	struct options *options;
	bool settings_now; /* second pass: apply the flags */
	const char *config;
};

static enum options_next wrong(const char *text)
{
	fprintf(stderr, "kvcached: %s\n", text);
	return OPTIONS_WRONG;
}

static enum options_next set_ready_fd(struct options *options, const char *text)
{
	char *end;
	long fd = strtol(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || fd > 1 << 20 || fcntl((int)fd, F_GETFD) < 0)
		return wrong("--ready-fd: that is not an open descriptor");
	options->ready_fd = (int)fd;
	return OPTIONS_RUN;
}

static enum options_next set_flag(struct options *options, const struct flag *flag,
				  const char *value)
{
	struct errbuf err;

	if (settings_set(&options->settings, flag->section, flag->key, value, &err) == 0)
		return OPTIONS_RUN;
	fprintf(stderr, "kvcached: --%s: %s\n", flag->name, err.text);
	return OPTIONS_WRONG;
}

static enum options_next take_option(struct pass *pass, int option, const char *value)
{
	switch (option) {
	case 'c': pass->config = value; return OPTIONS_RUN;
	case 'h': print_help(); return OPTIONS_DONE;
	case 'V': puts("kvcached " PACKAGE_VERSION); return OPTIONS_DONE;
	case OPTION_CHECK: pass->options->check_config = true; return OPTIONS_RUN;
	case OPTION_FOREGROUND: return OPTIONS_RUN;
	case OPTION_READY: return set_ready_fd(pass->options, value);
	case '?': fputs("kvcached: try --help\n", stderr); return OPTIONS_WRONG;
	default:
		if (!pass->settings_now)
			return OPTIONS_RUN;
		return set_flag(pass->options, &flags[option - OPTION_FLAG], value);
	}
}

static enum options_next walk(struct pass *pass, int argc, char **argv)
{
	struct option all[N_PLAIN + N_FLAGS + 1];
	enum options_next next = OPTIONS_RUN;
	int option;

	long_options(all);
	optind = 1;
	while (next == OPTIONS_RUN && (option = getopt_long(argc, argv, "c:hV", all, NULL)) != -1)
		next = take_option(pass, option, optarg);
	if (next == OPTIONS_RUN && optind < argc)
		next = wrong("there are no arguments besides options; try --help");
	return next;
}

/* ---- what follows from the environment --------------------------------------------------- */

static void default_runtime_dir(struct settings *settings)
{
	const char *named = getenv("KVCACHED_RUNTIME_DIR");
	const char *xdg = getenv("XDG_RUNTIME_DIR");

	if (settings->runtime_dir[0])
		return;
	if (named && *named)
		snprintf(settings->runtime_dir, sizeof(settings->runtime_dir), "%s", named);
	else if (geteuid() == 0)
		snprintf(settings->runtime_dir, sizeof(settings->runtime_dir), "/run/kvcached");
	else if (xdg && *xdg)
		snprintf(settings->runtime_dir, sizeof(settings->runtime_dir), "%s/kvcached", xdg);
}

static void print_settings(const struct settings *s)
{
	static const char *const levels[] = {"error", "warn", "info", "debug"};
	static const char *const tries[] = {"no", "try"};
	static const char *const switches[] = {"no", "yes"};
	static const char *const engines[] = {"auto", "uring", "threads"};

	printf("[service]\nruntime_dir = %s\nsocket_mode = %04o\nsocket_group = %s\n"
	       "log_level = %s\n\n",
	       s->runtime_dir, s->socket_mode, s->socket_group, levels[s->log_level]);
	printf("[pool host]\nbytes = %" PRIu64 "\nhuge = %s\nmlock = %s\narena_bytes = %" PRIu64
	       "\n\n",
	       s->pool_bytes, tries[s->huge], tries[s->mlock], s->arena_bytes);
	printf("[pool disk]\ndir = %s\nbytes = %" PRIu64 "\npreallocate = %s\nio = %s\n\n",
	       s->disk_dir, s->disk_bytes, switches[s->preallocate], engines[s->io]);
	printf("[limits]\nsessions = %u\nsequences = %u\nbytes_per_user = %" PRIu64 "\njobs = %u\n",
	       s->n_sessions_max, s->n_sequences_max, s->user_bytes_max, s->n_jobs_max);
}

enum options_next options_parse(struct options *options, int argc, char **argv)
{
	struct pass pass = {.options = options};
	enum options_next next;
	struct errbuf err;

	*options = (struct options){.ready_fd = -1};
	settings_default(&options->settings);
	next = walk(&pass, argc, argv);
	if (next != OPTIONS_RUN)
		return next;
	if (pass.config && settings_read(&options->settings, pass.config, &err) != 0)
		return wrong(err.text);
	pass.settings_now = true;
	next = walk(&pass, argc, argv);
	if (next != OPTIONS_RUN)
		return next;
	default_runtime_dir(&options->settings);
	if (settings_check(&options->settings, &err) != 0)
		return wrong(err.text);
	if (options->check_config) {
		print_settings(&options->settings);
		return OPTIONS_DONE;
	}
	return OPTIONS_RUN;
}
