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

static uint64_t sum_rows(const struct demo_result *r, bool differ)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		n += differ ? r->together[i].report.n_rows_differ : r->together[i].report.n_rows;
	return n;
}

static uint64_t sum_kv(const struct demo_result *r, bool differ)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		n += differ ? r->together[i].report.n_kv_rows_differ :
			      r->together[i].report.n_kv_bytes;
	return n;
}

static uint64_t sum_copied(const struct demo_result *r)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		n += r->together[i].report.n_copied_bytes;
	return n;
}

/* Of the prompt: the filled slots of the last block, once a fork, if it is partly filled. */
static uint64_t copy_limit(const struct demo_result *r)
{
	const struct demo_report *first = &r->first.report;
	uint64_t n_cached = first->n_prompt_tokens - 1;

	return DEMO_SAMPLERS * (n_cached % first->block_tokens) * first->token_bytes;
}

static double mean(const struct demo_process *four, size_t off)
{
	double sum = 0;

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		sum += *(const double *)(const void *)((const char *)&four[i].report + off);
	return sum / DEMO_SAMPLERS;
}

static uint64_t alone_cache_bytes(const struct demo_result *r)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		n += r->alone[i].report.cache_bytes;
	return n;
}

bool demo_is_good(const struct demo_result *r)
{
	const struct demo_report *first = &r->first.report;

	return sum_rows(r, false) > 0 && sum_rows(r, true) == 0 &&
	       sum_kv(r, false) ==
		       DEMO_SAMPLERS * (first->n_prompt_tokens - 1) * first->token_bytes &&
	       sum_kv(r, true) == 0 && r->verify_known > 0 && r->verify_bad == 0 &&
	       sum_copied(r) <= copy_limit(r);
}

/* ---- for people --------------------------------------------------------------------------- */

static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void heading(const struct ctl *ctl, const char *text)
{
	fprintf(ctl->out.stream, "\n%s%s%s\n", out_colour(&ctl->out, BOLD), text,
		out_plain(&ctl->out, BOLD));
}

/* A line of the story, which is freed, and how long it took. */
static void act(const struct ctl *ctl, double seconds, char *text)
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
	act(ctl, r->alone_s,
	    ctl_format("1. %d processes alone: each computes the prompt, samples %zu tokens",
		       DEMO_SAMPLERS, s->n_tokens));
	act(ctl, r->first_s,
	    ctl_format("2. process A computes the prompt, publishes it, and goes"));
	act(ctl, r->together_s,
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
	char *limit = ctl_format("at most %s", units_bytes(copy_limit(r)).s);

	table_column(table, "", TABLE_LEFT);
	table_column(table, "ALONE", TABLE_RIGHT);
	table_column(table, "SHARED", TABLE_RIGHT);
	table_column(table, "", TABLE_SHRINKS);
	row(table, "prompt computed", four, once, "by the same code");
	row(table, "time to the first token",
	    units_time(mean(r->alone, offsetof(struct demo_report, first_s))),
	    units_time(mean(r->together, offsetof(struct demo_report, first_s))),
	    "mean of the four");
	row(table, "  process A, to publication", (struct units_text){"-"},
	    units_time(r->first.report.first_s), "once");
	row(table, "caches", units_bytes(alone_cache_bytes(r)),
	    units_bytes(r->live_bytes + r->cached_bytes), "gauges: live, cached");
	row(table, "  reserved ahead", (struct units_text){"-"}, units_bytes(r->reserved_bytes),
	    "gauge: reserved");
	row(table, "memory of all processes", units_bytes(r->alone_pss_bytes),
	    units_bytes(r->together_pss_bytes + r->daemon_pss_bytes), "PSS, with model and daemon");
	row(table, "bytes copied", (struct units_text){"-"}, units_bytes(sum_copied(r)), limit);
	heading(ctl, "What it costs");
	table_print(table, &ctl->out, 2);
	free(limit);
}

static void check(const struct ctl *ctl, bool good, const char *what, const char *found)
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
	uint64_t bad = sum_rows(r, true);
	char *text;

	heading(ctl, "Is it the same, bit for bit?");
	text = bad ? ctl_format("%s of %s rows of logits differ", units_count(bad).s,
				units_count(sum_rows(r, false)).s) :
		     ctl_format("%s rows of %s", units_count(sum_rows(r, false)).s,
				units_count(r->first.report.vocab).s);
	check(ctl, bad == 0, "logits, each sampler with its run alone", text);
	free(text);
	bad = sum_kv(r, true);
	text = bad ? ctl_format("%s differ, from token %s on", units_of(bad, "row").s,
				units_count(first_kv_token(r)).s) :
		     ctl_format("%s by each", units_bytes(sum_kv(r, false) / DEMO_SAMPLERS).s);
	check(ctl, bad == 0, "K and V of the prompt", text);
	free(text);
	text = r->verify_bad ? ctl_format("%s of %s, from token %s on",
					  units_of(r->verify_bad, "bad block").s,
					  units_count(r->verify_known).s,
					  units_count(r->verify_bad_token).s) :
			       ctl_format("%s intact, digests known since A",
					  units_of(r->verify_known, "block").s);
	check(ctl, r->verify_bad == 0 && r->verify_known > 0, "the daemon's own look", text);
	free(text);
}

void demo_print_table(const struct ctl *ctl, const struct demo_settings *settings,
		      const struct demo_result *result)
{
	print_story(ctl, settings, result);
	print_costs(ctl, result);
	print_checks(ctl, result);
}

/* The text of a sample; what is not printable ASCII is a space. The caller frees. */
static char *sample_text(const struct tokenizer *tokenizer, const struct demo_report *report)
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

/* Wrapped at blanks, at most TEXT_LINES lines. */
static void print_wrapped(const struct ctl *ctl, const char *text)
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
	heading(ctl, "What they wrote");
	for (unsigned i = 0; i < DEMO_SAMPLERS; i++) {
		const struct demo_report *report = &result->together[i].report;
		char *text = sample_text(tokenizer, report);

		fprintf(ctl->out.stream, "  %u. seed %u, %s tokens/s", i + 1, i + 1,
			units_count((uint64_t)((double)report->n_ids /
					       (report->decode_s > 0 ? report->decode_s : 1)))
				.s);
		if (report->n_drafted)
			fprintf(ctl->out.stream,
				"; drafted %" PRIu64 " tokens, rolled back %" PRIu64,
				report->n_drafted, report->n_rolled_back);
		fputc('\n', ctl->out.stream);
		print_wrapped(ctl, text);
		free(text);
	}
	tokenizer_close(tokenizer);
}

/* ---- for programs ------------------------------------------------------------------------- */

static json_t *sample_json(const struct tokenizer *tokenizer, const struct demo_process *process,
			   const struct demo_process *alone)
{
	const struct demo_report *r = &process->report;
	char *text = tokenizer ? sample_text(tokenizer, r) : ctl_format("%s", "");
	json_t *value = json_pack(
		"{s:i, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "seed",
		(int)process->index + 1, "text", text, "n_tokens", (json_int_t)r->n_ids,
		"n_drafted", (json_int_t)r->n_drafted, "n_rolled_back",
		(json_int_t)r->n_rolled_back, "first_token_s", r->first_s, "first_token_alone_s",
		alone->report.first_s, "decode_s", r->decode_s, "n_copied_bytes",
		(json_int_t)r->n_copied_bytes, "n_logit_rows", (json_int_t)r->n_rows,
		"n_logit_rows_differ", (json_int_t)r->n_rows_differ, "n_kv_bytes",
		(json_int_t)r->n_kv_bytes, "n_kv_rows_differ", (json_int_t)r->n_kv_rows_differ);

	free(text);
	return value;
}

static json_t *alone_json(const struct demo_result *r)
{
	return json_pack("{s:f, s:f, s:I, s:I}", "seconds", r->alone_s, "first_token_s",
			 mean(r->alone, offsetof(struct demo_report, first_s)), "cache_bytes",
			 (json_int_t)alone_cache_bytes(r), "pss_bytes",
			 (json_int_t)r->alone_pss_bytes);
}

static json_t *shared_json(const struct demo_result *r)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			 "prefill_process_s", r->first_s, "publication_s", r->first.report.first_s,
			 "seconds", r->together_s, "first_token_s",
			 mean(r->together, offsetof(struct demo_report, first_s)), "live_bytes",
			 (json_int_t)r->live_bytes, "cached_bytes", (json_int_t)r->cached_bytes,
			 "reserved_bytes", (json_int_t)r->reserved_bytes, "pss_bytes",
			 (json_int_t)(r->together_pss_bytes + r->daemon_pss_bytes),
			 "daemon_pss_bytes", (json_int_t)r->daemon_pss_bytes, "n_copied_bytes",
			 (json_int_t)sum_copied(r), "copy_limit_bytes", (json_int_t)copy_limit(r));
}

void demo_print_json(struct ctl *ctl, const struct demo_settings *settings,
		     const struct demo_result *result)
{
	json_t *samples = json_array();
	struct tokenizer *tokenizer = NULL;
	struct errbuf err;

	tokenizer_open(&tokenizer, settings->tokenizer, &err);
	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		json_array_append_new(samples, sample_json(tokenizer, &result->together[i],
							   &result->alone[i]));
	tokenizer_close(tokenizer);
	ctl_print_json(
		ctl,
		json_pack(
			"{s:b, s:I, s:I, s:I, s:o, s:o, s:b, s:b, s:{s:I, s:I, s:I, s:I, s:I}, s:o, s:o}",
			"good", (int)demo_is_good(result), "n_prompt_tokens",
			(json_int_t)result->first.report.n_prompt_tokens, "token_bytes",
			(json_int_t)result->first.report.token_bytes, "block_tokens",
			(json_int_t)result->first.report.block_tokens, "alone", alone_json(result),
			"shared", shared_json(result), "logits_equal",
			(int)(sum_rows(result, true) == 0), "kv_equal",
			(int)(sum_kv(result, true) == 0), "verify", "n_bytes",
			(json_int_t)result->verify_bytes, "n_blocks",
			(json_int_t)result->verify_blocks, "n_known",
			(json_int_t)result->verify_known, "n_bad_blocks",
			(json_int_t)result->verify_bad, "first_bad_token",
			(json_int_t)result->verify_bad_token, "samples", samples, "tree",
			result->tree ? result->tree : json_array()));
}
