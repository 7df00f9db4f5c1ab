/* kvcachectl status: the daemon, the gauges of its pools, what it holds. */
#include <inttypes.h>

#include "client/ctl/disk.h"
#include "client/ctl/gauge.h"

static void print_pool(const struct ctl *ctl, const Kv__Wire__StatusResult *s)
{
	const struct gauge gauges[] = {
		{"live", s->pool_live_bytes, GREEN, '#', "in sequences being written"},
		{"reserved", s->pool_reserved_bytes, CYAN, '+', "set aside for writers"},
		{"cached", s->pool_cached_bytes, DIM, '-', "in snapshots, parked sequences"},
		{"quarantined", s->pool_quarantined_bytes, YELLOW, '!',
		 "waits for a process to end"},
		{"free", s->pool_free_bytes, PLAIN, ' ', "for new blocks"},
	};

	fprintf(ctl->out.stream, "\nHost pool   %s\n", units_bytes(s->pool_total_bytes).s);
	gauges_print(ctl, gauges, sizeof(gauges) / sizeof(gauges[0]), s->pool_total_bytes);
	fputc('\n', ctl->out.stream);
	disk_print(ctl, s->disk, false);
}

/* One of the two things that go on behind a start. */
static void print_part(FILE *stream, const char *what, uint64_t n_bytes, uint64_t n_all_bytes)
{
	if (n_all_bytes == 0)
		return;
	fprintf(stream, ", %s %s", what, units_bytes(n_bytes).s);
	if (n_bytes < n_all_bytes)
		fprintf(stream, " of %s", units_bytes(n_all_bytes).s);
}

static void print_start(const struct ctl *ctl, const Kv__Wire__StartInfo *start)
{
	FILE *stream = ctl->out.stream;

	fprintf(stream, "Last start  %" PRIu64 ".%" PRIu64 " ms", start->took_us / 1000,
		start->took_us / 100 % 10);
	print_part(stream, "locked", start->locked_bytes, start->to_lock_bytes);
	print_part(stream, "verified", start->verified_bytes, start->to_verify_bytes);
	if (start->n_bad_blocks)
		fprintf(stream, ": %s%" PRIu64 " bad%s", out_colour(&ctl->out, RED),
			start->n_bad_blocks, out_plain(&ctl->out, RED));
	fputc('\n', stream);
}

static void print_rest(const struct ctl *ctl, const Kv__Wire__StatusResult *s)
{
	FILE *stream = ctl->out.stream;

	fprintf(stream, "\nHolds       %s, %s, %s, %s\n", units_of(s->n_sequences, "sequence").s,
		units_of(s->n_snapshots, "snapshot").s, units_of(s->n_layouts, "layout").s,
		units_of(s->n_arenas, "arena").s);
	fprintf(stream, "Serves      %s, %s so far\n", units_of(s->n_sessions, "session").s,
		units_of(s->n_requests, "request").s);
	fprintf(stream, "Yours       %s", units_bytes(s->used_bytes).s);
	if (s->quota_bytes)
		fprintf(stream, " of %s", units_bytes(s->quota_bytes).s);
	fprintf(stream, "\nCopied      %s, because a block was shared or frozen\n",
		units_bytes(s->n_copied_bytes).s);
	fprintf(stream, "Bookkeeping %s control segments, %s catalogue\n",
		units_bytes(s->control_bytes).s, units_bytes(s->catalogue_bytes).s);
	if (s->huge && s->huge[0])
		fprintf(stream, "Huge pages  %s\n", units_clean(s->huge).s);
	if (s->mlock && s->mlock[0])
		fprintf(stream, "Locked      %s\n", units_clean(s->mlock).s);
	if (s->start)
		print_start(ctl, s->start);
}

static void print_text(const struct ctl *ctl, const Kv__Wire__StatusResult *s)
{
	fprintf(ctl->out.stream, "%skvcached %s%s in %s\n", out_colour(&ctl->out, BOLD),
		units_clean(s->version).s, out_plain(&ctl->out, BOLD),
		units_clean(s->runtime_dir).s);
	fprintf(ctl->out.stream, "            up %s, core is process %" PRIu32,
		units_age(s->uptime_ms).s, s->core_pid);
	if (s->n_core_restarts)
		fprintf(ctl->out.stream, ", %srestarted %s%s", out_colour(&ctl->out, YELLOW),
			units_of(s->n_core_restarts, "time").s, out_plain(&ctl->out, YELLOW));
	fputc('\n', ctl->out.stream);
	print_pool(ctl, s);
	print_rest(ctl, s);
}

static json_t *start_json(const Kv__Wire__StartInfo *start)
{
	if (!start)
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "took_us", (json_int_t)start->took_us,
			 "locked_bytes", (json_int_t)start->locked_bytes, "to_lock_bytes",
			 (json_int_t)start->to_lock_bytes, "verified_bytes",
			 (json_int_t)start->verified_bytes, "to_verify_bytes",
			 (json_int_t)start->to_verify_bytes, "n_bad_blocks",
			 (json_int_t)start->n_bad_blocks);
}

static json_t *status_json(const Kv__Wire__StatusResult *s)
{
	json_t *pool = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "total_bytes",
				 (json_int_t)s->pool_total_bytes, "live_bytes",
				 (json_int_t)s->pool_live_bytes, "reserved_bytes",
				 (json_int_t)s->pool_reserved_bytes, "cached_bytes",
				 (json_int_t)s->pool_cached_bytes, "quarantined_bytes",
				 (json_int_t)s->pool_quarantined_bytes, "free_bytes",
				 (json_int_t)s->pool_free_bytes);

	return json_pack(
		"{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
		" s:I, s:I, s:I, s:s, s:s, s:o}",
		"version", units_clean(s->version).s, "runtime_dir", units_clean(s->runtime_dir).s,
		"uptime_ms", (json_int_t)s->uptime_ms, "core_pid", (json_int_t)s->core_pid,
		"n_core_restarts", (json_int_t)s->n_core_restarts, "pool", pool, "disk",
		disk_json(s->disk), "n_sessions", (json_int_t)s->n_sessions, "n_sequences",
		(json_int_t)s->n_sequences, "n_snapshots", (json_int_t)s->n_snapshots, "n_layouts",
		(json_int_t)s->n_layouts, "n_arenas", (json_int_t)s->n_arenas, "n_requests",
		(json_int_t)s->n_requests, "quota_bytes", (json_int_t)s->quota_bytes, "used_bytes",
		(json_int_t)s->used_bytes, "n_copied_bytes", (json_int_t)s->n_copied_bytes,
		"control_bytes", (json_int_t)s->control_bytes, "catalogue_bytes",
		(json_int_t)s->catalogue_bytes, "huge", units_clean(s->huge).s, "mlock",
		units_clean(s->mlock).s, "start", start_json(s->start));
}

int cmd_status(struct ctl *ctl, const struct ctl_args *args)
{
	Kv__Wire__Reply *reply;
	int code;

	(void)args;
	if (ctl_ask_status(ctl, &reply, &code))
		return code;
	if (ctl->json)
		ctl_print_json(ctl, status_json(reply->status_result));
	else
		print_text(ctl, reply->status_result);
	ctl_free_reply(reply);
	return CTL_OK;
}
