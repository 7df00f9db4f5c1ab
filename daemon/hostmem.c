#include "daemon/hostmem.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Finds "KEY NUMBER" in a file of such lines. False if it is not there. */
static bool read_key(const char *path, const char *key, uint64_t *number)
{
	size_t n_key = strlen(key);
	bool found = false;
	char line[256];
	FILE *file = fopen(path, "re");

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file))
		found = strncmp(line, key, n_key) == 0 &&
			sscanf(line + n_key, " %" SCNu64, number) == 1;
	fclose(file);
	return found;
}

/* A file with one number; "max" and a missing file are false. */
static bool read_number(const char *path, uint64_t *number)
{
	return read_key(path, "", number);
}

/* What the control group leaves: page cache that nobody uses now counts as free. */
static bool group_left(const char *dir, uint64_t *left)
{
	uint64_t limit;
	uint64_t used = 0;
	uint64_t cache = 0;
	char path[640];

	snprintf(path, sizeof(path), "%s/memory.max", dir);
	if (!read_number(path, &limit))
		return false;
	snprintf(path, sizeof(path), "%s/memory.current", dir);
	read_number(path, &used);
	snprintf(path, sizeof(path), "%s/memory.stat", dir);
	read_key(path, "inactive_file", &cache);
	used -= cache < used ? cache : used;
	*left = used < limit ? limit - used : 0;
	return true;
}

/* Our group in the unified hierarchy: the line "0::/path". */
static bool own_group(const char *proc, char *path, size_t n_bytes)
{
	char name[256];
	char line[512];
	bool found = false;
	FILE *file;

	snprintf(name, sizeof(name), "%s/self/cgroup", proc);
	file = fopen(name, "re");
	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		found = strncmp(line, "0::/", 4) == 0 && strlen(line + 3) < n_bytes &&
			!strstr(line, "/..");
		if (found)
			strcpy(path, line + 3);
	}
	fclose(file);
	return found;
}

static void read_groups(struct hostmem *mem, const char *proc, const char *cgroup)
{
	char group[256];
	char dir[512];
	uint64_t left;
	char *slash;

	if (!own_group(proc, group, sizeof(group)))
		return;
	do {
		snprintf(dir, sizeof(dir), "%s%s", cgroup, group);
		if (group_left(dir, &left) && left < mem->group_bytes) {
			mem->group_bytes = left;
			snprintf(mem->group, sizeof(mem->group), "%s", group[0] ? group : "/");
		}
		slash = strrchr(group, '/');
		if (slash)
			*slash = '\0';
	} while (slash);
}

int hostmem_read(struct hostmem *mem, const char *proc, const char *cgroup, struct errbuf *err)
{
	char path[256];
	uint64_t kib;

	memset(mem, 0, sizeof(*mem));
	mem->group_bytes = UINT64_MAX;
	snprintf(path, sizeof(path), "%s/meminfo", proc);
	if (!read_key(path, "MemAvailable:", &kib))
		return errbuf_set(err, KV_EINTERNAL, "no MemAvailable in %s: is /proc mounted?",
				  path);
	mem->system_bytes = kib * 1024;
	read_groups(mem, proc, cgroup);
	mem->available_bytes = mem->group_bytes < mem->system_bytes ? mem->group_bytes :
								      mem->system_bytes;
	return 0;
}

const char *hostmem_human(uint64_t bytes, char text[32])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	unsigned unit = 0;

	while (value >= 1024 && unit < 4) {
		value /= 1024;
		unit++;
	}
	snprintf(text, 32, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return text;
}

int hostmem_check(const struct hostmem *mem, uint64_t pool_bytes, struct errbuf *err)
{
	bool grouped = mem->group_bytes < mem->system_bytes;
	char asked[32];
	char there[32];

	if (pool_bytes <= mem->available_bytes)
		return 0;
	return errbuf_set(
		err, KV_EPOOL,
		"the host pool asks for %s, %s available (%s%s); lower bytes in [pool host] "
		"or --pool-bytes",
		hostmem_human(pool_bytes, asked), hostmem_human(mem->available_bytes, there),
		grouped ? "limit of control group " : "of the machine", grouped ? mem->group : "");
}
