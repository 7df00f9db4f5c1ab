/*
 * The report of the demonstration.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/demo.h"
#include "client/examples/tokenizer.h"

#define TEXT_COLUMNS 76
#define TEXT_LINES 3

uint64_t demo_sum(const struct demo_process *four, size_t off)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		n += *(const uint64_t *)(const void *)((const char *)&four[i].report + off);
	return n;
}

double demo_mean(const struct demo_process *four, size_t off)
{
	double sum = 0;

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		sum += *(const double *)(const void *)((const char *)&four[i].report + off);
	return sum / DEMO_SAMPLERS;
}

/* Of the prompt: the filled slots of the last block, once a fork, if it is partly filled. */
uint64_t demo_copy_limit(const struct demo_result *r)
{
	const struct demo_report *first = &r->first.report;
	uint64_t n_cached = first->n_prompt_tokens - 1;

	return DEMO_SAMPLERS * (n_cached % first->block_tokens) * first->token_bytes;
}

bool demo_is_good(const struct demo_result *r)
{
	const struct demo_report *first = &r->first.report;

	return DEMO_SUM(r->together, n_rows) > 0 && DEMO_SUM(r->together, n_rows_differ) == 0 &&
	       DEMO_SUM(r->together, n_kv_bytes) ==
		       DEMO_SAMPLERS * (first->n_prompt_tokens - 1) * first->token_bytes &&
	       DEMO_SUM(r->together, n_kv_rows_differ) == 0 && r->look.report.verify_known > 0 &&
	       r->look.report.verify_bad == 0 &&
	       DEMO_SUM(r->together, n_copied_bytes) <= demo_copy_limit(r);
}

/* ---- for people --------------------------------------------------------------------------- */

static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

void demo_heading(const struct ctl *ctl, const char *text)
{
	fprintf(ctl->out.stream, "\n%s%s%s\n", out_colour(&ctl->out, BOLD), text,
		out_plain(&ctl->out, BOLD));
}

void demo_line(const struct ctl *ctl, double seconds, char *text)
{
	fprintf(ctl->out.stream, "  %-66s %9s\n", text, units_time(seconds).s);
	free(text);
}

static void print_story(const struct ctl *ctl, const struct demo_settings *s,
			const struct demo_result *r)
{
	const struct demo_report *first = &r->first.report;
	FILE *stream = ctl->out.stream;

	fprintf(stream, "%sOne prompt, several processes%s\n", out_colour(&ctl->out, BOLD),
		out_plain(&ctl->out, BOLD));
	fprintf(stream, "  prompt: %s tokens of %s\n", units_count(first->n_prompt_tokens).s,
		units_clean(base(s->prompt)).s);
	fprintf(stream, "  model: %s, %s, %" PRIu64 " KV heads of %" PRIu64 ", cache f32\n",
		units_clean(base(s->model)).s, units_of(first->n_layers, "layer").s,
		first->n_kv_heads, first->head_dim);
	demo_line(ctl, r->alone_s,
		  ctl_format("1. %d processes alone: each computes the prompt, samples %zu tokens",
			     DEMO_SAMPLERS, s->n_tokens));
	demo_line(ctl, r->first_s,
		  ctl_format("2. process A computes the prompt, publishes it, and goes"));
	demo_line(ctl, r->together_s,
		  ctl_format("3. %d processes fork it and sample %zu tokens at the same time",
			     DEMO_SAMPLERS, s->n_tokens));
}

static void row(struct table *table, const char *what, struct units_text alone,
		struct units_text together, const char *note)
{
	table_cell(table, PLAIN, "%s", what);
	table_cell(table, PLAIN, "%s", alone.s);
	table_cell(table, GREEN, "%s", together.s);
	table_cell(table, DIM, "%s", note);
}

static void print_costs(const struct ctl *ctl, const struct demo_result *r)
{
	const struct units_text four = {"4 times"}, once = {"once"};
	struct table *table = table_new();
	char *limit = ctl_format("at most %s", units_bytes(demo_copy_limit(r)).s);

	table_column(table, "", TABLE_LEFT);
	table_column(table, "ALONE", TABLE_RIGHT);
	table_column(table, "SHARED", TABLE_RIGHT);
	table_column(table, "", TABLE_SHRINKS);
	row(table, "prompt computed", four, once, "by the same code");
	row(table, "time to the first token", units_time(DEMO_MEAN(r->alone, first_s)),
	    units_time(DEMO_MEAN(r->together, first_s)), "mean of the four");
	row(table, "  process A, to publication", (struct units_text){"-"},
	    units_time(r->first.report.first_s), "once");
	row(table, "caches", units_bytes(DEMO_SUM(r->alone, cache_bytes)),
	    units_bytes(r->look.report.live_bytes + r->look.report.gauge_cached_bytes),
	    "gauges: live, cached");
	row(table, "  reserved ahead", (struct units_text){"-"},
	    units_bytes(r->look.report.reserved_bytes), "gauge: reserved");
	row(table, "memory of all processes", units_bytes(r->alone_pss_bytes),
	    units_bytes(r->together_pss_bytes + r->look.report.daemon_pss_bytes),
	    "PSS, with model and daemon");
	row(table, "bytes copied", (struct units_text){"-"},
	    units_bytes(DEMO_SUM(r->together, n_copied_bytes)), limit);
	demo_heading(ctl, "What it costs");
	table_print(table, &ctl->out, 2);
	free(limit);
}

void demo_check(const struct ctl *ctl, bool good, const char *what, const char *found)
{
	enum colour colour = good ? GREEN : RED;

	fprintf(ctl->out.stream, "  %s%-7s%s %s: %s\n", out_colour(&ctl->out, colour),
		good ? "equal" : "DIFFER", out_plain(&ctl->out, colour), what, found);
}

static uint64_t first_kv_token(const struct demo_result *r)
{
	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		if (r->together[i].report.n_kv_rows_differ)
			return r->together[i].report.first_kv_differs;
	return 0;
}

static void print_checks(const struct ctl *ctl, const struct demo_result *r)
{
	uint64_t bad = DEMO_SUM(r->together, n_rows_differ);
	char *text;

	demo_heading(ctl, "Is it the same, bit for bit?");
	text = bad ? ctl_format("%s of %s rows of logits differ", units_count(bad).s,
				units_count(DEMO_SUM(r->together, n_rows)).s) :
		     ctl_format("%s rows of %s", units_count(DEMO_SUM(r->together, n_rows)).s,
				units_count(r->first.report.vocab).s);
	demo_check(ctl, bad == 0, "logits, each sampler with its run alone", text);
	free(text);
	bad = DEMO_SUM(r->together, n_kv_rows_differ);
	text = bad ? ctl_format("%s differ, from token %s on", units_of(bad, "row").s,
				units_count(first_kv_token(r)).s) :
		     ctl_format("%s by each",
				units_bytes(DEMO_SUM(r->together, n_kv_bytes) / DEMO_SAMPLERS).s);
	demo_check(ctl, bad == 0, "K and V of the prompt", text);
	free(text);
	text = r->look.report.verify_bad ?
		       ctl_format("%s of %s, from token %s on",
				  units_of(r->look.report.verify_bad, "bad block").s,
				  units_count(r->look.report.verify_known).s,
				  units_count(r->look.report.verify_bad_token).s) :
		       ctl_format("%s intact, digests known since A",
				  units_of(r->look.report.verify_known, "block").s);
	demo_check(ctl, r->look.report.verify_bad == 0 && r->look.report.verify_known > 0,
		   "the daemon's own look", text);
	free(text);
}

void demo_print_table(const struct ctl *ctl, const struct demo_settings *settings,
		      const struct demo_result *result)
{
	print_story(ctl, settings, result);
	print_costs(ctl, result);
	print_checks(ctl, result);
}

char *demo_sample_text(const struct tokenizer *tokenizer, const struct demo_report *report)
{
	size_t size = 0, n;
	char *text = NULL;
	FILE *stream = open_memstream(&text, &size);

	if (!stream)
		return ctl_format("%s", "");
	for (uint32_t i = 0; i < report->n_ids; i++) {
		const unsigned char *bytes = tokenizer_decode(tokenizer, report->ids[i], &n);

		for (size_t b = 0; bytes && b < n; b++)
			fputc(bytes[b] > ' ' && bytes[b] <= '~' ? bytes[b] : ' ', stream);
	}
	fclose(stream);
	return text;
}

void demo_print_wrapped(const struct ctl *ctl, const char *text)
{
	for (int line = 0; line < TEXT_LINES; line++) {
		size_t n;

		text += strspn(text, " ");
		if (!*text)
			return;
		n = strlen(text);
		if (n > TEXT_COLUMNS - 6)
			for (n = TEXT_COLUMNS - 6; n > 20 && text[n] != ' '; n--)
				;
		fprintf(ctl->out.stream, "     %.*s%s\n", (int)n, text,
			line + 1 == TEXT_LINES && text[n] ? " .." : "");
		text += n;
	}
}

void demo_print_samples(const struct ctl *ctl, const struct demo_settings *settings,
			const struct demo_result *result)
{
	struct tokenizer *tokenizer;
	struct errbuf err;

	if (tokenizer_open(&tokenizer, settings->tokenizer, &err))
		return;
	demo_heading(ctl, "What they wrote");
	for (unsigned i = 0; i < DEMO_SAMPLERS; i++) {
		const struct demo_report *report = &result->together[i].report;
		char *text = demo_sample_text(tokenizer, report);

		fprintf(ctl->out.stream, "  %u. seed %u, %s tokens/s", i + 1, i + 1,
			units_count((uint64_t)((double)report->n_ids /
					       (report->decode_s > 0 ? report->decode_s : 1)))
				.s);
		if (report->n_drafted)
			fprintf(ctl->out.stream,
				"; drafted %" PRIu64 " tokens, rolled back %" PRIu64,
				report->n_drafted, report->n_rolled_back);
		fputc('\n', ctl->out.stream);
		demo_print_wrapped(ctl, text);
		free(text);
	}
	tokenizer_close(tokenizer);
}
