#include "client/ctl/disk.h"

#include "client/ctl/gauge.h"

static bool is_faulty(const Kv__Wire__DiskInfo *info)
{
	return info->fault && info->fault[0];
}

static uint64_t left(const Kv__Wire__DiskInfo *info)
{
	return info->max_bytes > info->file_bytes ? info->max_bytes - info->file_bytes : 0;
}

static void print_gauges(const struct ctl *ctl, const Kv__Wire__DiskInfo *info)
{
	const struct gauge gauges[] = {
		{"used", info->used_bytes, GREEN, '#', "in saved snapshots, or being moved"},
		{"cached", info->cached_bytes, DIM, '-', "kept while there is room"},
		{"empty", info->free_bytes, CYAN, '.', "in slot files, unused"},
		{"free", left(info), PLAIN, ' ', "for more slot files"},
	};

	gauges_print(ctl, gauges, sizeof(gauges) / sizeof(gauges[0]), info->max_bytes);
}

static void print_state(const struct ctl *ctl, const Kv__Wire__DiskInfo *info)
{
	FILE *stream = ctl->out.stream;

	fprintf(stream, "            %s, %s on the disk",
		units_of(info->n_saved, "saved snapshot").s, units_of(info->n_images, "block").s);
	if (info->n_set_aside)
		fprintf(stream, ", %s%s set aside%s", out_colour(&ctl->out, RED),
			units_of(info->n_set_aside, "damaged file").s, out_plain(&ctl->out, RED));
	fputc('\n', stream);
	if (info->is_full)
		fprintf(stream, "            %sfull: the last save found no room%s\n",
			out_colour(&ctl->out, YELLOW), out_plain(&ctl->out, YELLOW));
	if (info->quarantined_bytes)
		fprintf(stream, "            %s%s wait for the disk to answer%s\n",
			out_colour(&ctl->out, YELLOW), units_bytes(info->quarantined_bytes).s,
			out_plain(&ctl->out, YELLOW));
}

static void print_transfers(const struct ctl *ctl, const Kv__Wire__DiskInfo *info)
{
	enum colour colour = info->n_failed || info->n_late ? YELLOW : PLAIN;
	FILE *stream = ctl->out.stream;

	fprintf(stream, "\nI/O         %s\n", units_clean(info->io).s);
	fprintf(stream, "            %s read, %s written, %s in flight\n",
		units_bytes(info->n_read_bytes).s, units_bytes(info->n_written_bytes).s,
		units_count(info->n_in_flight).s);
	fprintf(stream, "            %s%s failed, %s late%s, queue full %s\n",
		out_colour(&ctl->out, colour), units_count(info->n_failed).s,
		units_count(info->n_late).s, out_plain(&ctl->out, colour),
		units_of(info->n_full, "time").s);
}

void disk_print(const struct ctl *ctl, const Kv__Wire__DiskInfo *info, bool all)
{
	FILE *stream = ctl->out.stream;

	if (!info) {
		fprintf(stream, "Disk pool   none\n");
		return;
	}
	if (is_faulty(info)) {
		fprintf(stream, "Disk pool   %snone: %s%s\n", out_colour(&ctl->out, RED),
			units_clean(info->fault).s, out_plain(&ctl->out, RED));
		return;
	}
	fprintf(stream, "Disk pool   %s in %s\n", units_bytes(info->max_bytes).s,
		units_clean(info->dir).s);
	print_gauges(ctl, info);
	print_state(ctl, info);
	if (all)
		print_transfers(ctl, info);
}

json_t *disk_json(const Kv__Wire__DiskInfo *info)
{
	json_t *fault;

	if (!info)
		return json_null();
	fault = is_faulty(info) ? json_string(units_clean(info->fault).s) : json_null();
	return json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I,"
			 " s:I, s:I, s:I, s:I, s:I}",
			 "dir", units_clean(info->dir).s, "fault", fault, "io",
			 units_clean(info->io).s, "max_bytes", (json_int_t)info->max_bytes,
			 "file_bytes", (json_int_t)info->file_bytes, "used_bytes",
			 (json_int_t)info->used_bytes, "cached_bytes",
			 (json_int_t)info->cached_bytes, "free_bytes", (json_int_t)info->free_bytes,
			 "n_images", (json_int_t)info->n_images, "n_saved",
			 (json_int_t)info->n_saved, "n_set_aside", (json_int_t)info->n_set_aside,
			 "is_full", info->is_full, "n_in_flight", (json_int_t)info->n_in_flight,
			 "quarantined_bytes", (json_int_t)info->quarantined_bytes, "n_read_bytes",
			 (json_int_t)info->n_read_bytes, "n_written_bytes",
			 (json_int_t)info->n_written_bytes, "n_failed", (json_int_t)info->n_failed,
			 "n_late", (json_int_t)info->n_late, "n_full", (json_int_t)info->n_full);
}
