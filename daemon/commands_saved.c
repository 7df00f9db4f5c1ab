/* Commands about what is saved: list, remove; and the disk pool's part of the status. */
#include <string.h>

#include "daemon/command.h"
#include "daemon/disk.h"
#include "daemon/session.h"
#include "proto/runtime.h"

/* ---- list --------------------------------------------------------------------------------- */

static Kv__Wire__SavedInfo *saved_wire(const struct saved *saved)
{
	const Kv__Saved__Saved *head = saved->head;
	Kv__Wire__SavedInfo *wire = reply_alloc(1, sizeof(*wire));

	kv__wire__saved_info__init(wire);
	wire->number = head->number;
	wire->name = reply_string(head->name);
	wire->kind = head->kind;
	wire->length_tokens = head->length_tokens;
	wire->update = head->update;
	wire->n_bytes = saved->n_bytes;
	for (size_t g = 0; g < head->n_groups; g++)
		wire->n_blocks += head->groups[g]->n_places;
	wire->saved_unix_ns = head->saved_unix_ns;
	wire->digest = reply_bytes(head->digest.data, head->digest.len);
	wire->layout_hash = reply_bytes(saved->layout_hash, sizeof(saved->layout_hash));
	wire->parent_name = reply_string(head->parent_name);
	wire->parent_update = head->parent_update;
	return wire;
}

static enum cmd_step run_saved_list(struct command *cmd)
{
	const Kv__Wire__SavedList *list = cmd->request->saved_list;
	struct disk *disk = disk_of(cmd->core, &cmd->err);
	Kv__Wire__SavedResult *result;
	struct saved *saved;
	uint64_t after = list->after_number;

	if (!disk)
		return CMD_FAIL;
	result = reply_alloc(1, sizeof(*result));
	kv__wire__saved_result__init(result);
	result->saved = reply_alloc(KV_PAGE_OBJECTS_MAX, sizeof(result->saved[0]));
	cmd->reply->result_case = KV__WIRE__REPLY__RESULT_SAVED;
	cmd->reply->saved = result;
	while ((saved = store_saved_next(disk->store, cmd->session->uid, after)) != NULL) {
		after = saved->head->number;
		if (strncmp(saved->head->name, list->prefix, strlen(list->prefix)) != 0)
			continue;
		if (result->n_saved == KV_PAGE_OBJECTS_MAX) {
			result->more = 1;
			break;
		}
		result->saved[result->n_saved++] = saved_wire(saved);
	}
	return CMD_DONE;
}

const struct command_entry cmd_saved_list = {.run = run_saved_list};

/* ---- remove ------------------------------------------------------------------------------- */

static enum cmd_step run_saved_remove(struct command *cmd)
{
	const char *name = cmd->request->saved_remove->name;
	struct disk *disk = disk_of(cmd->core, &cmd->err);
	struct saved *saved;

	if (!disk || kv_name_check(name, &cmd->err))
		return CMD_FAIL;
	saved = store_saved_find(disk->store, cmd->session->uid, name);
	if (!saved)
		return cmd_fail(cmd, KV_ENOTFOUND, "nothing is saved as %s", name);
	return store_saved_remove(disk->store, saved, &cmd->err) ? CMD_FAIL : CMD_DONE;
}

const struct command_entry cmd_saved_remove = {.run = run_saved_remove, .changes = true};

/* ---- status ------------------------------------------------------------------------------- */

static void fill_store(const struct disk *disk, Kv__Wire__DiskInfo *info)
{
	struct store_stats stats;

	store_stats(disk->store, &stats);
	info->max_bytes = stats.max_bytes;
	info->file_bytes = stats.file_bytes;
	info->used_bytes = stats.used_bytes;
	info->cached_bytes = stats.cached_bytes;
	info->free_bytes = stats.free_bytes;
	info->n_images = stats.n_images;
	info->n_saved = stats.n_saved;
	info->n_set_aside = stats.n_set_aside;
	info->is_full = stats.is_full;
}

static void fill_io(const struct disk *disk, Kv__Wire__DiskInfo *info)
{
	struct io_gauges gauges;

	io_gauges(disk->io, &gauges);
	info->io = reply_string(io_text(disk->io));
	info->n_in_flight = gauges.n_in_flight;
	info->quarantined_bytes = gauges.quarantined_bytes;
	info->n_read_bytes = gauges.n_read_bytes;
	info->n_written_bytes = gauges.n_written_bytes;
	info->n_failed = gauges.n_failed;
	info->n_late = gauges.n_late;
	info->n_full = gauges.n_full;
}

Kv__Wire__DiskInfo *disk_wire(const struct core *core)
{
	const struct disk *disk = core->disk;
	Kv__Wire__DiskInfo *info;

	if (!disk)
		return NULL;
	info = reply_alloc(1, sizeof(*info));
	kv__wire__disk_info__init(info);
	info->dir = reply_string(core->env->settings->disk_dir);
	if (disk->store) {
		fill_store(disk, info);
		fill_io(disk, info);
	} else {
		info->fault = reply_string(disk->fault.text);
	}
	return info;
}
