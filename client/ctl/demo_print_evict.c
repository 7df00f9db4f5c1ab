/*
 * The third act in the report of the demonstration: drafts and bounded caches in one table.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "client/ctl/demo.h"

static const char *const prompt_names[DEMO_PROMPTS] = {"raw", "int8, replay journal"};

static bool drafts_are_equal(const struct demo_drafts *d)
{
	return d->n_rows > 0 && d->n_rows == d->n_tokens && d->n_rows_differ == 0 &&
	       d->n_ids_differ == 0;
}

bool demo_evict_is_good(const struct demo_result *r)
{
	for (unsigned i = 0; i < DEMO_PROMPTS; i++)
		if (!drafts_are_equal(&r->evict.drafts.report.drafts[i]))
			return false;
	return true;
}

static double rate(uint64_t n, double seconds)
{
	return (double)n / (seconds > 0 ? seconds : 1);
}

/* ---- for people ----------------------------------------------------------------------------- */

static void row(struct table *table, const char *what, double tokens_s, uint64_t bytes,
		uint64_t all_bytes)
{
	table_cell(table, PLAIN, "%s", what);
	table_cell(table, PLAIN, "%s", units_count((uint64_t)tokens_s).s);
	table_cell(table, PLAIN, "%s", units_bytes(bytes).s);
	table_cell(table, GREEN, "%s", units_percent(bytes, all_bytes).s);
}

static void bounded_row(struct table *table, const struct demo_result *r, unsigned i)
{
	const struct demo_report *report = &r->evict.policies[i].report;
	char *what = demo_policies[i] ?
			     ctl_format("%s, %s slots", demo_policies[i],
					units_count(report->n_slots).s) :
			     ctl_format("all %s tokens, raw", units_count(report->n_slots).s);

	row(table, what, rate(report->n_ids, report->decode_s), report->cache_bytes,
	    r->evict.policies[0].report.cache_bytes);
	table_cell(table, PLAIN, "%s", units_bytes(report->journal_bytes).s);
	table_cell(table, PLAIN, "%.4f", report->bits_per_byte);
	free(what);
}

/* Plain, then with drafts: the draft model's cache comes on top. The raw fork has the bytes, and so
 * the loss, of a raw cache with all tokens; no text was scored over the other. */
static void drafts_rows(struct table *table, const struct demo_result *r, unsigned i)
{
	const struct demo_report *report = &r->evict.drafts.report;
	const struct demo_drafts *d = &report->drafts[i];
	uint64_t all_bytes = r->evict.policies[0].report.cache_bytes;
	const char *bits = i == 0 ? "the same" : "-";
	char *what = ctl_format("fork, %s", prompt_names[i]);

	row(table, what, rate(d->n_tokens, d->plain_s), d->cache_bytes, all_bytes);
	table_cell(table, PLAIN, "%s", units_bytes(d->journal_bytes).s);
	table_cell(table, PLAIN, "%s", bits);
	row(table, "  with drafts", rate(d->n_tokens, d->drafted_s),
	    d->cache_bytes + report->cache_bytes, all_bytes);
	table_cell(table, PLAIN, "%s", units_bytes(d->journal_bytes).s);
	table_cell(table, PLAIN, "%s", bits);
	free(what);
}

static void print_costs(const struct ctl *ctl, const struct demo_result *r)
{
	struct table *table = table_new();

	table_column(table, "CACHE", TABLE_LEFT);
	table_column(table, "TOKENS/S", TABLE_RIGHT);
	table_column(table, "MEMORY", TABLE_RIGHT);
	table_column(table, "OF RAW", TABLE_RIGHT);
	table_column(table, "JOURNAL", TABLE_RIGHT);
	table_column(table, "BITS/BYTE", TABLE_RIGHT);
	bounded_row(table, r, 0);
	for (unsigned i = 0; i < DEMO_PROMPTS; i++)
		drafts_rows(table, r, i);
	for (unsigned i = 1; i < DEMO_POLICIES; i++)
		bounded_row(table, r, i);
	fputc('\n', ctl->out.stream);
	table_print(table, &ctl->out, 2);
	fprintf(ctl->out.stream,
		"  Tokens/s: of decoding, behind the prompt. Memory, in the end: blocks with all\n"
		"  planes, shared ones too, by the daemon's count; with drafts also the draft\n"
		"  model's. Bits/byte: of the text's second half, %s.\n",
		units_of(r->evict.policies[0].report.n_scored, "token").s);
}

static void print_check(const struct ctl *ctl, const struct demo_drafts *d, const char *prompt,
			uint64_t vocab)
{
	char *what = ctl_format("ids and logits with drafts, %s", prompt);
	char *found = drafts_are_equal(d) ?
			      ctl_format("%s rows of %s", units_count(d->n_rows).s,
					 units_count(vocab).s) :
			      ctl_format("%s ids and %s rows of %s", units_count(d->n_ids_differ).s,
					 units_count(d->n_rows_differ).s, units_count(d->n_rows).s);

	demo_check(ctl, drafts_are_equal(d), what, found);
	free(found);
	free(what);
}

void demo_print_evict(const struct ctl *ctl, const struct demo_result *r)
{
	const struct demo_report *report = &r->evict.drafts.report;

	demo_heading(ctl, "Speculative decoding, and a quarter of the memory");
	demo_line(ctl, r->evict.drafts_s,
		  ctl_format("7. one process decodes %" PRIu64 " tokens behind each prompt, twice",
			     report->drafts[0].n_tokens));
	demo_line(ctl, r->evict.policies_s,
		  ctl_format("8. %d processes read the text, then decode, one after the other",
			     DEMO_POLICIES));
	for (unsigned i = 0; i < DEMO_PROMPTS; i++)
		fprintf(ctl->out.stream, "  %s: %s of %s kept, %.2f times as fast as plain\n",
			prompt_names[i], units_count(report->drafts[i].n_accepted).s,
			units_of(report->drafts[i].n_drafted, "draft").s,
			report->drafts[i].plain_s / report->drafts[i].drafted_s);
	for (unsigned i = 0; i < DEMO_PROMPTS; i++)
		print_check(ctl, &report->drafts[i], prompt_names[i], report->vocab);
	print_costs(ctl, r);
}

/* ---- for programs --------------------------------------------------------------------------- */

static json_t *drafts_json(const struct demo_report *report, unsigned i)
{
	const struct demo_drafts *d = &report->drafts[i];

	return json_pack("{s:s, s:b, s:b, s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:I}", "cache",
			 prompt_names[i], "drafted_ids_equal",
			 (int)(d->n_rows > 0 && d->n_ids_differ == 0), "drafted_logits_equal",
			 (int)(d->n_rows > 0 && d->n_rows_differ == 0), "n_tokens",
			 (json_int_t)d->n_tokens, "n_draft_tokens", (json_int_t)d->n_drafted,
			 "n_accepted_tokens", (json_int_t)d->n_accepted, "plain_tokens_s",
			 rate(d->n_tokens, d->plain_s), "drafted_tokens_s",
			 rate(d->n_tokens, d->drafted_s), "cache_bytes", (json_int_t)d->cache_bytes,
			 "draft_cache_bytes", (json_int_t)report->cache_bytes, "journal_bytes",
			 (json_int_t)d->journal_bytes);
}

json_t *demo_drafts_json(const struct demo_result *r)
{
	json_t *drafts = json_array();

	for (unsigned i = 0; i < DEMO_PROMPTS; i++)
		json_array_append_new(drafts, drafts_json(&r->evict.drafts.report, i));
	return drafts;
}

json_t *demo_evict_json(const struct demo_result *r)
{
	json_t *policies = json_array();

	for (unsigned i = 0; i < DEMO_POLICIES; i++) {
		const struct demo_report *report = &r->evict.policies[i].report;

		json_array_append_new(
			policies, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}",
					    "policy", demo_policies[i] ? demo_policies[i] : "all",
					    "n_slots", (json_int_t)report->n_slots, "token_bytes",
					    (json_int_t)report->token_bytes, "cache_bytes",
					    (json_int_t)report->cache_bytes, "journal_bytes",
					    (json_int_t)report->journal_bytes, "n_scored_tokens",
					    (json_int_t)report->n_scored, "bits_per_byte",
					    report->bits_per_byte, "read_s", report->prefill_s,
					    "tokens_s", rate(report->n_ids, report->decode_s)));
	}
	return policies;
}
