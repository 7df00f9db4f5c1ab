#include "daemon/settings.h"

#include <assert.h>
#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "offload/io.h"

#define GIB (UINT64_C(1) << 30)

#define POOL_BYTES_MIN (UINT64_C(1) << 20)
#define POOL_BYTES_MAX (UINT64_C(1) << 46)
#define COUNT_MAX 1000000u

void settings_default(struct settings *settings)
{
	*settings = (struct settings){
		.socket_mode = 0600,
		.log_level = LOG_LEVEL_INFO,
		.pool_bytes = GIB,
		.huge = SETTINGS_TRY,
		.mlock = SETTINGS_TRY,
		.arena_bytes = 64 * GIB,
		.disk_bytes = 16 * GIB,
		.preallocate = SETTINGS_ON,
		.io = IO_AUTO,
		.n_sessions_max = 256,
		.n_sequences_max = 65536,
		.n_jobs_max = 16,
	};
}

/* ---- one value --------------------------------------------------------------------------- */

int settings_bytes(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	const char *unit = "";
	unsigned shift = 0;
	uintmax_t number;
	char *end;

	if (*text < '0' || *text > '9')
		return -1;
	errno = 0;
	number = strtoumax(text, &end, 10);
	if (errno != 0)
		return -1;
	if (*end) {
		unit = strchr(units, *end);
		if (!unit || end[1])
			return -1;
		shift = 10 * (unsigned)(unit - units + 1);
	}
	if (number > UINT64_MAX >> shift)
		return -1;
	*bytes = (uint64_t)number << shift;
	return 0;
}

/* What a key takes and where its value goes. */
struct key {
	const char *section;
	const char *name;
	int (*set)(void *field, const struct key *key, const char *value, struct errbuf *err);
	size_t field_off;
	uint64_t min;
	uint64_t max; /* for text: bytes of the field */
};

static int set_text(void *field, const struct key *key, const char *value, struct errbuf *err)
{
	size_t n = strlen(value);

	if (n >= key->max)
		return errbuf_set(err, KV_ERANGE, "%s has %zu bytes, the limit is %" PRIu64,
				  key->name, n, key->max - 1);
	memcpy(field, value, n + 1);
	return 0;
}

static int set_bytes(void *field, const struct key *key, const char *value, struct errbuf *err)
{
	uint64_t bytes;

	if (settings_bytes(value, &bytes) != 0)
		return errbuf_set(
			err, KV_EINVAL,
			"%s = %.60s is not a size: write bytes, or a number with K, M, G or T",
			key->name, value);
	if (bytes < key->min || bytes > key->max)
		return errbuf_set(err, KV_ERANGE,
				  "%s = %.60s is out of range: %" PRIu64 " to %" PRIu64 " bytes",
				  key->name, value, key->min, key->max);
	memcpy(field, &bytes, sizeof(bytes));
	return 0;
}

static int set_count(void *field, const struct key *key, const char *value, struct errbuf *err)
{
	unsigned long number;
	uint32_t count;
	char *end;

	errno = 0;
	number = strtoul(value, &end, 10);
	if (*value < '0' || *value > '9' || *end)
		return errbuf_set(err, KV_EINVAL, "%s = %.60s is not a number", key->name, value);
	if (errno != 0 || number < key->min || number > key->max)
		return errbuf_set(err, KV_ERANGE,
				  "%s = %.60s is out of range: %" PRIu64 " to %" PRIu64, key->name,
				  value, key->min, key->max);
	count = (uint32_t)number;
	memcpy(field, &count, sizeof(count));
	return 0;
}

static int set_mode(void *field, const struct key *key, const char *value, struct errbuf *err)
{
	unsigned long number;
	unsigned mode;
	char *end;

	number = strtoul(value, &end, 8);
	if (*value < '0' || *value > '7' || *end || number > 0777 || (number & 0600) != 0600)
		return errbuf_set(err, KV_EINVAL,
				  "%s = %.60s is not a mode: write it in octal, 0600 to 0666, "
				  "read and write for the owner included",
				  key->name, value);
	mode = (unsigned)number & 0666;
	memcpy(field, &mode, sizeof(mode));
	return 0;
}

static int set_word(void *field, const struct key *key, const char *value, const char *const *words,
		    struct errbuf *err)
{
	for (int i = 0; words[i]; i++) {
		if (strcmp(value, words[i]) == 0) {
			memcpy(field, &i, sizeof(i));
			return 0;
		}
	}
	return errbuf_set(err, KV_EINVAL, "%s = %.60s is not one of: %s, %s%s%s%s%s", key->name,
			  value, words[0], words[1], words[2] ? ", " : "", words[2] ? words[2] : "",
			  words[2] && words[3] ? ", " : "", words[2] && words[3] ? words[3] : "");
}

static int set_try(void *field, const struct key *key, const char *value, struct errbuf *err)
{
	static const char *const words[] = {"no", "try", NULL};

	static_assert(SETTINGS_NO == 0 && SETTINGS_TRY == 1, "order of the words");
	static_assert(sizeof(enum settings_try) == sizeof(int), "stored as int");
	return set_word(field, key, value, words, err);
}

static int set_level(void *field, const struct key *key, const char *value, struct errbuf *err)
{
	static const char *const words[] = {"error", "warn", "info", "debug", NULL};

	static_assert(LOG_LEVEL_ERROR == 0 && LOG_LEVEL_DEBUG == 3, "order of the words");
	return set_word(field, key, value, words, err);
}

static int set_switch(void *field, const struct key *key, const char *value, struct errbuf *err)
{
	static const char *const words[] = {"no", "yes", NULL};

	static_assert(SETTINGS_OFF == 0 && SETTINGS_ON == 1, "order of the words");
	return set_word(field, key, value, words, err);
}

static int set_io(void *field, const struct key *key, const char *value, struct errbuf *err)
{
	static const char *const words[] = {"auto", "uring", "threads", NULL};

	static_assert(IO_AUTO == 0 && IO_URING == 1 && IO_THREADS == 2, "order of the words");
	return set_word(field, key, value, words, err);
}

#define FIELD(name) offsetof(struct settings, name)
#define TEXT(name) FIELD(name), 0, sizeof(((struct settings *)0)->name)

static const struct key keys[] = {
	{"service", "runtime_dir", set_text, TEXT(runtime_dir)},
	{"service", "socket_mode", set_mode, FIELD(socket_mode), 0, 0},
	{"service", "socket_group", set_text, TEXT(socket_group)},
	{"service", "log_level", set_level, FIELD(log_level), 0, 0},
	{"pool host", "bytes", set_bytes, FIELD(pool_bytes), POOL_BYTES_MIN, POOL_BYTES_MAX},
	{"pool host", "huge", set_try, FIELD(huge), 0, 0},
	{"pool host", "mlock", set_try, FIELD(mlock), 0, 0},
	{"pool host", "arena_bytes", set_bytes, FIELD(arena_bytes), POOL_BYTES_MIN, POOL_BYTES_MAX},
	{"pool disk", "dir", set_text, TEXT(disk_dir)},
	{"pool disk", "bytes", set_bytes, FIELD(disk_bytes), POOL_BYTES_MIN, POOL_BYTES_MAX},
	{"pool disk", "preallocate", set_switch, FIELD(preallocate), 0, 0},
	{"pool disk", "io", set_io, FIELD(io), 0, 0},
	{"limits", "sessions", set_count, FIELD(n_sessions_max), 1, COUNT_MAX},
	{"limits", "sequences", set_count, FIELD(n_sequences_max), 1, COUNT_MAX},
	{"limits", "bytes_per_user", set_bytes, FIELD(user_bytes_max), 0, POOL_BYTES_MAX},
	{"limits", "jobs", set_count, FIELD(n_jobs_max), 1, COUNT_MAX},
};

static const struct key *find_key(const char *section, const char *name, bool *section_known)
{
	*section_known = false;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (strcmp(keys[i].section, section) != 0)
			continue;
		*section_known = true;
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	}
	return NULL;
}

int settings_set(struct settings *settings, const char *section, const char *key, const char *value,
		 struct errbuf *err)
{
	bool section_known;
	const struct key *found = find_key(section, key, &section_known);

	if (!section_known)
		return errbuf_set(
			err, KV_EINVAL,
			"unknown section [%.60s]; there are [service], [pool host], [pool disk], "
			"[limits]",
			section);
	if (!found)
		return errbuf_set(err, KV_EINVAL, "unknown key %.60s in section [%.60s]", key,
				  section);
	return found->set((char *)settings + found->field_off, found, value, err);
}

/* ---- the file ---------------------------------------------------------------------------- */

struct reading {
	struct settings *settings;
	const char *path;
	struct errbuf *err;
	struct errbuf own; /* when the caller takes no text */
	bool failed;
	int n_lines; /* handed out by next_line() so far */
	FILE *file;
};

/* Only the first fault is told. Returns 0: "not understood" for inih. */
static int fail_line(struct reading *reading)
{
	errbuf_wrap(reading->err, "%s:%d", reading->path, reading->n_lines);
	reading->failed = true;
	return 0;
}

/*
 * Counts lines: inih tells its handler no numbers unless it was built to. Takes away what inih
 * would read in its own way: an indented line (a continuation) and a long one (cut in two).
 */
static char *next_line(char *text, int n_bytes, void *stream)
{
	struct reading *reading = stream;
	size_t indent;
	size_t n;

	if (reading->failed || !fgets(text, n_bytes, reading->file))
		return NULL;
	reading->n_lines++;
	n = strlen(text);
	if (n + 1 == (size_t)n_bytes && text[n - 1] != '\n') {
		errbuf_set(reading->err, KV_ETOOBIG, "a line has at most %d bytes", n_bytes - 2);
		fail_line(reading);
		return NULL;
	}
	indent = strspn(text, " \t");
	memmove(text, text + indent, n - indent + 1);
	return text;
}

static int take_value(void *user, const char *section, const char *name, const char *value)
{
	struct reading *reading = user;

	if (reading->failed)
		return 0;
	if (settings_set(reading->settings, section, name, value, reading->err) == 0)
		return 1;
	return fail_line(reading);
}

int settings_read(struct settings *settings, const char *path, struct errbuf *err)
{
	struct reading reading = {.settings = settings, .path = path};
	int line;

	reading.err = err ? err : &reading.own;
	reading.file = fopen(path, "re");
	if (!reading.file)
		return errbuf_errno(err, KV_EINVAL, errno, "cannot read %s", path);
	line = ini_parse_stream(next_line, &reading, take_value, &reading);
	fclose(reading.file);
	if (reading.failed)
		return -1;
	if (line != 0)
		return errbuf_set(err, KV_EINVAL,
				  "%s:%d: neither [section], key = value nor ; comment", path,
				  line > 0 ? line : 0);
	return 0;
}

int settings_check(const struct settings *settings, struct errbuf *err)
{
	if (settings->runtime_dir[0] != '/')
		return errbuf_set(
			err, KV_EINVAL,
			"the runtime directory must be an absolute path: set --runtime-dir "
			"or runtime_dir in [service]");
	if (settings->disk_dir[0] && settings->disk_dir[0] != '/')
		return errbuf_set(err, KV_EINVAL, "dir = %s of [pool disk] is not an absolute path",
				  settings->disk_dir);
	if (settings->user_bytes_max > settings->pool_bytes)
		return errbuf_set(err, KV_ERANGE,
				  "bytes_per_user = %" PRIu64 " is above bytes = %" PRIu64
				  " of [pool host]; lower one or raise the other",
				  settings->user_bytes_max, settings->pool_bytes);
	return 0;
}
