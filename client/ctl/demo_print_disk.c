/*
 * The fourth act in the report of the demonstration: saved, stopped, started again, loaded.
 */
#include <stdlib.h>
#include <string.h>

#include "client/ctl/demo.h"

static bool digests_are_equal(const struct demo_result *r)
{
	return memcmp(r->disk.save.report.disk.digest, r->disk.load.report.disk.digest,
		      sizeof(r->disk.save.report.disk.digest)) == 0;
}

static bool was_loaded(const struct demo_result *r)
{
	return r->disk.load.report.disk.n_blocks > 0;
}

bool demo_disk_is_good(const struct demo_result *r)
{
	const struct demo_process *again = r->disk.again;

	return r->disk.is_skipped ||
	       (was_loaded(r) && digests_are_equal(r) && DEMO_SUM(again, n_rows) > 0 &&
		DEMO_SUM(again, n_rows) == DEMO_SUM(r->together, n_rows) &&
		DEMO_SUM(again, n_rows_differ) == 0 &&
		DEMO_SUM(again, n_kv_bytes) == DEMO_SUM(r->together, n_kv_bytes) &&
		DEMO_SUM(again, n_kv_rows_differ) == 0 && r->disk.damage.report.disk.is_refused);
}

/* From nothing to the first token: computed by process A, or loaded, and forked then. */
static double first_computed_s(const struct demo_result *r)
{
	return r->first.report.first_s + DEMO_MEAN(r->together, first_s);
}

static double first_loaded_s(const struct demo_result *r)
{
	return r->disk.load.report.disk.seconds + DEMO_MEAN(r->disk.again, first_s);
}

/* ---- for people --------------------------------------------------------------------------- */

static void print_story(const struct ctl *ctl, const struct demo_settings *s,
			const struct demo_result *r)
{
	demo_line(ctl, r->disk.save.report.disk.seconds,
		  ctl_format("9. the prompt is saved: %s in %s",
			     units_bytes(r->disk.save.report.disk.n_bytes).s,
			     units_of(r->disk.save.report.disk.n_blocks, "block").s));
	demo_line(ctl, r->disk.stop_s,
		  ctl_format("   everything is stopped; the daemon saves the forks too"));
	demo_line(ctl, r->disk.start_s,
		  ctl_format("10. the daemon starts on the same folder, with empty memory"));
	demo_line(ctl, r->disk.load.report.disk.seconds, ctl_format("    and loads the prompt"));
	demo_line(ctl, r->disk.again_s,
		  ctl_format("11. %d processes fork it and sample %zu tokens at the same time",
			     DEMO_SAMPLERS, s->n_tokens));
}

static void row(struct table *table, const char *what, const char *computed, const char *loaded,
		const char *note)
{
	table_cell(table, PLAIN, "%s", what);
	table_cell(table, PLAIN, "%s", computed);
	table_cell(table, GREEN, "%s", loaded);
	table_cell(table, DIM, "%s", note);
}

static void print_costs(const struct ctl *ctl, const struct demo_result *r)
{
	const struct demo_disk *saved = &r->disk.save.report.disk;
	struct table *table = table_new();

	table_column(table, "", TABLE_LEFT);
	table_column(table, "COMPUTED", TABLE_RIGHT);
	table_column(table, "FROM DISK", TABLE_RIGHT);
	table_column(table, "", TABLE_SHRINKS);
	row(table, "the prompt is there after", units_time(r->first.report.first_s).s,
	    units_time(r->disk.load.report.disk.seconds).s, "prefill; read and checked");
	row(table, "time to the first token", units_time(first_computed_s(r)).s,
	    units_time(first_loaded_s(r)).s, "with a fork, mean of the four");
	row(table, "on the disk", "-", units_bytes(saved->used_bytes).s, units_clean(saved->io).s);
	fputc('\n', ctl->out.stream);
	table_print(table, &ctl->out, 2);
}

static void print_damage(const struct ctl *ctl, const struct demo_disk *damage)
{
	enum colour colour = damage->is_refused ? GREEN : RED;

	fprintf(ctl->out.stream, "  %s%-7s%s one bit flipped on the disk:\n",
		out_colour(&ctl->out, colour), damage->is_refused ? "refused" : "LOADED",
		out_plain(&ctl->out, colour));
	demo_print_wrapped(ctl, damage->is_refused ? units_clean(damage->refusal).s :
						     "a load has not seen it");
}

static void print_checks(const struct ctl *ctl, const struct demo_result *r)
{
	const struct demo_process *again = r->disk.again;
	const struct demo_disk *loaded = &r->disk.load.report.disk;
	uint64_t bad = DEMO_SUM(again, n_rows_differ);
	char hex[2 * sizeof(loaded->digest) + 1];
	char *text = ctl_format("%s of %s differ", units_of(bad, "row").s,
				units_count(DEMO_SUM(again, n_rows)).s);

	if (bad == 0) {
		free(text);
		text = ctl_format("%s rows of %s", units_count(DEMO_SUM(again, n_rows)).s,
				  units_count(r->first.report.vocab).s);
	}
	units_hex(hex, loaded->digest, sizeof(loaded->digest));
	demo_check(ctl, digests_are_equal(r), "digest, saved and loaded", hex);
	demo_check(ctl, bad == 0 && DEMO_SUM(again, n_rows) > 0,
		   "logits, each sampler with its run alone", text);
	free(text);
	bad = DEMO_SUM(again, n_kv_rows_differ);
	text = ctl_format("%s by each, %s differ",
			  units_bytes(DEMO_SUM(again, n_kv_bytes) / DEMO_SAMPLERS).s,
			  units_of(bad, "row").s);
	demo_check(ctl, bad == 0, "K and V of the prompt", text);
	free(text);
	print_damage(ctl, &r->disk.damage.report.disk);
}

void demo_print_disk(const struct ctl *ctl, const struct demo_settings *settings,
		     const struct demo_result *result)
{
	demo_heading(ctl, "Saved, stopped, started again, loaded");
	if (result->disk.is_skipped) {
		fprintf(ctl->out.stream, "  Left out: a daemon that others may use is not "
					 "stopped.\n");
		return;
	}
	if (!was_loaded(result)) {
		demo_check(ctl, false, "the prompt", "it is damaged, and not saved:");
		demo_print_wrapped(ctl, units_clean(result->disk.save.report.disk.refusal).s);
		return;
	}
	print_story(ctl, settings, result);
	print_costs(ctl, result);
	print_checks(ctl, result);
}

/* ---- for programs ------------------------------------------------------------------------- */

static json_t *hex_json(const uint8_t digest[16])
{
	char hex[2 * 16 + 1];

	units_hex(hex, digest, 16);
	return json_string(hex);
}

/* null where it was left out. */
json_t *demo_disk_json(const struct demo_result *r)
{
	const struct demo_disk *saved = &r->disk.save.report.disk;
	const struct demo_disk *loaded = &r->disk.load.report.disk;
	const struct demo_disk *damage = &r->disk.damage.report.disk;

	if (r->disk.is_skipped)
		return json_null();
	return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:s, s:o, s:o, s:b,"
			 " s:I, s:b, s:b, s:b, s:s, s:b, s:s}",
			 "save_s", saved->seconds, "stop_s", r->disk.stop_s, "start_s",
			 r->disk.start_s, "load_s", loaded->seconds, "seconds", r->disk.again_s,
			 "first_token_computed_s", first_computed_s(r), "first_token_loaded_s",
			 was_loaded(r) ? first_loaded_s(r) : 0, "n_bytes",
			 (json_int_t)saved->n_bytes, "n_blocks", (json_int_t)saved->n_blocks,
			 "disk_bytes", (json_int_t)saved->used_bytes, "io",
			 units_clean(saved->io).s, "digest_saved", hex_json(saved->digest),
			 "digest_loaded", hex_json(loaded->digest), "digests_equal",
			 (int)(was_loaded(r) && digests_are_equal(r)), "n_loaded_logit_rows",
			 (json_int_t)DEMO_SUM(r->disk.again, n_rows), "loaded_logits_equal",
			 (int)(was_loaded(r) && DEMO_SUM(r->disk.again, n_rows_differ) == 0),
			 "loaded_kv_equal",
			 (int)(was_loaded(r) && DEMO_SUM(r->disk.again, n_kv_rows_differ) == 0),
			 "save_refused", (int)saved->is_refused, "save_refusal",
			 units_clean(saved->refusal).s, "damage_refused", (int)damage->is_refused,
			 "damage_refusal", units_clean(damage->refusal).s);
}
