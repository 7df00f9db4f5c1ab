/*
 * The second act in the report of the demonstration, and the table of formats.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "client/ctl/demo.h"

/* Nothing of the prompt is copied: a journal lies over it. */
bool demo_journal_is_good(const struct demo_result *r)
{
	const struct demo_process *together = r->journal.together;
	const struct demo_report *look = &r->journal.look.report;

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		if (together[i].report.replay_differs ||
		    together[i].report.n_replayed != DEMO_DRAFT_WRONG)
			return false;
	return DEMO_SUM(together, n_rows) > 0 && DEMO_SUM(together, n_rows_differ) == 0 &&
	       DEMO_SUM(together, n_copied_bytes) == 0 && look->verify_known > 0 &&
	       look->verify_bad == 0;
}

static unsigned count_replay_differs(const struct demo_result *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		n += r->journal.together[i].report.replay_differs;
	return n;
}

static void print_checks(const struct ctl *ctl, const struct demo_result *r)
{
	const struct demo_process *together = r->journal.together;
	const struct demo_report *look = &r->journal.look.report;
	uint64_t bad = DEMO_SUM(together, n_rows_differ), n = DEMO_SUM(together, n_rows);
	char *text;

	text = bad ? ctl_format("%s of %s rows of logits differ", units_count(bad).s,
				units_count(n).s) :
		     ctl_format("%s rows of %s", units_count(n).s,
				units_count(r->journal.first.report.vocab).s);
	demo_check(ctl, bad == 0, "logits, each sampler with the run alone", text);
	free(text);
	text = ctl_format("%s by each, equal digests",
			  units_of(together[0].report.n_replayed, "token").s);
	demo_check(ctl, count_replay_differs(r) == 0, "rolled back and replayed", text);
	free(text);
	text = look->verify_bad ? ctl_format("%s of %s", units_of(look->verify_bad, "bad block").s,
					     units_count(look->verify_known).s) :
				  ctl_format("%s intact", units_of(look->verify_known, "block").s);
	demo_check(ctl, look->verify_bad == 0 && look->verify_known > 0,
		   "the prompt below the journals", text);
	free(text);
}

void demo_print_journal(const struct ctl *ctl, const struct demo_settings *s,
			const struct demo_result *r)
{
	const struct demo_report *first = &r->journal.first.report;
	const struct demo_process *together = r->journal.together;

	(void)s;
	demo_heading(ctl, "A prompt in 8 bits, with replay journals over it");
	demo_line(ctl, r->journal.alone_s,
		  ctl_format("4. one process alone: the prompt, then four samples of %u tokens",
			     together[0].report.n_ids));
	demo_line(ctl, r->journal.first_s,
		  ctl_format("5. process B computes the prompt, publishes it, and goes"));
	demo_line(ctl, r->journal.together_s,
		  ctl_format("6. %d processes fork it; each drafts %d, rolls back %d, replays them",
			     DEMO_SAMPLERS, DEMO_DRAFT, DEMO_DRAFT_WRONG));
	fprintf(ctl->out.stream, "  prompt %s, journals %s, ", units_bytes(first->cache_bytes).s,
		units_bytes(DEMO_SUM(together, journal_bytes)).s);
	fprintf(ctl->out.stream, "bytes copied: %s\n",
		units_bytes(DEMO_SUM(together, n_copied_bytes)).s);
	print_checks(ctl, r);
}

void demo_print_formats(const struct ctl *ctl, const struct demo_settings *s,
			const struct demo_result *r)
{
	struct table *table = table_new();
	uint64_t raw_bytes = r->formats[0].report.token_bytes;
	char *title = ctl_format("What each format takes, and what it costs the text (%s, %s)",
				 units_of(r->formats[0].report.n_scored, "token").s,
				 units_time(r->formats_s).s);

	(void)s;
	table_column(table, "FORMAT", TABLE_LEFT);
	table_column(table, "BYTES A TOKEN", TABLE_RIGHT);
	table_column(table, "OF RAW", TABLE_RIGHT);
	table_column(table, "BITS A BYTE", TABLE_RIGHT);
	table_column(table, "2ND HALF IN A JOURNAL", TABLE_RIGHT);
	for (unsigned i = 0; i < DEMO_FORMATS; i++) {
		const struct demo_report *report = &r->formats[i].report;

		table_cell(table, PLAIN, "%s", kv_format_name(demo_formats[i]));
		table_cell(table, PLAIN, "%s", units_count(report->token_bytes).s);
		table_cell(table, GREEN, "%s", units_percent(report->token_bytes, raw_bytes).s);
		table_cell(table, PLAIN, "%.4f", report->bits_per_byte);
		table_cell(table, PLAIN, "%.4f", report->bits_per_byte_replay);
	}
	demo_heading(ctl, title);
	table_print(table, &ctl->out, 2);
	fprintf(ctl->out.stream, "  A token in a journal takes %s bytes until it is folded.\n",
		units_count(r->formats[0].report.journal_token_bytes).s);
	free(title);
}

/* ---- for programs ------------------------------------------------------------------------- */

static json_t *sampler_json(const struct demo_report *r)
{
	return json_pack("{s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I}", "n_tokens",
			 (json_int_t)r->n_ids, "n_rolled_back", (json_int_t)r->n_rolled_back,
			 "n_replayed", (json_int_t)r->n_replayed, "replay_equal",
			 (int)!r->replay_differs, "n_copied_bytes", (json_int_t)r->n_copied_bytes,
			 "journal_bytes", (json_int_t)r->journal_bytes, "n_logit_rows",
			 (json_int_t)r->n_rows, "n_logit_rows_differ",
			 (json_int_t)r->n_rows_differ);
}

json_t *demo_journal_json(const struct demo_result *r)
{
	const struct demo_process *together = r->journal.together;
	const struct demo_report *look = &r->journal.look.report;
	json_t *samples = json_array();

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		json_array_append_new(samples, sampler_json(&together[i].report));
	return json_pack("{s:s, s:b, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:o}", "format",
			 kv_format_name(DEMO_JOURNAL_FORMAT), "logits_equal",
			 (int)(DEMO_SUM(together, n_rows_differ) == 0), "alone_s",
			 r->journal.alone_s, "prefill_process_s", r->journal.first_s, "seconds",
			 r->journal.together_s, "prompt_bytes",
			 (json_int_t)r->journal.first.report.cache_bytes, "journals_bytes",
			 (json_int_t)DEMO_SUM(together, journal_bytes), "copied_bytes",
			 (json_int_t)DEMO_SUM(together, n_copied_bytes), "n_known_blocks",
			 (json_int_t)look->verify_known, "n_bad", (json_int_t)look->verify_bad,
			 "samples", samples);
}

json_t *demo_formats_json(const struct demo_result *r)
{
	json_t *formats = json_array();

	for (unsigned i = 0; i < DEMO_FORMATS; i++) {
		const struct demo_report *report = &r->formats[i].report;

		json_array_append_new(
			formats, json_pack("{s:s, s:I, s:I, s:I, s:f, s:f}", "format",
					   kv_format_name(demo_formats[i]), "token_bytes",
					   (json_int_t)report->token_bytes, "journal_token_bytes",
					   (json_int_t)report->journal_token_bytes,
					   "n_scored_tokens", (json_int_t)report->n_scored,
					   "bits_per_byte", report->bits_per_byte,
					   "bits_per_byte_replay", report->bits_per_byte_replay));
	}
	return formats;
}
