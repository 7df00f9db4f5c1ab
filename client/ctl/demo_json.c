/*
 * The report of the demonstration, for programs: one object.
 */
#include <stdlib.h>

#include "client/ctl/demo.h"
#include "client/examples/tokenizer.h"

static json_t *sample_json(const struct tokenizer *tokenizer, const struct demo_process *process,
			   const struct demo_process *alone)
{
	const struct demo_report *r = &process->report;
	char *text = tokenizer ? demo_sample_text(tokenizer, r) : ctl_format("%s", "");
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
			 DEMO_MEAN(r->alone, first_s), "cache_bytes",
			 (json_int_t)DEMO_SUM(r->alone, cache_bytes), "pss_bytes",
			 (json_int_t)r->alone_pss_bytes);
}

static json_t *shared_json(const struct demo_result *r)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			 "prefill_process_s", r->first_s, "publication_s", r->first.report.first_s,
			 "seconds", r->together_s, "first_token_s", DEMO_MEAN(r->together, first_s),
			 "live_bytes", (json_int_t)r->look.report.live_bytes, "cached_bytes",
			 (json_int_t)r->look.report.gauge_cached_bytes, "reserved_bytes",
			 (json_int_t)r->look.report.reserved_bytes, "pss_bytes",
			 (json_int_t)(r->together_pss_bytes + r->look.report.daemon_pss_bytes),
			 "daemon_pss_bytes", (json_int_t)r->look.report.daemon_pss_bytes,
			 "n_copied_bytes", (json_int_t)DEMO_SUM(r->together, n_copied_bytes),
			 "copy_limit_bytes", (json_int_t)demo_copy_limit(r));
}

static json_t *tree_json(const struct demo_settings *settings)
{
	char *path = ctl_format("%s/tree", settings->dir);
	json_t *tree = json_load_file(path, 0, NULL);

	free(path);
	return tree ? tree : json_array();
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
			"{s:b, s:I, s:I, s:I, s:o, s:o, s:b, s:b, s:{s:I, s:I, s:I, s:I, s:I}, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			"good",
			(int)(demo_is_good(result) && demo_journal_is_good(result) &&
			      demo_evict_is_good(result) && demo_disk_is_good(result)),
			"n_prompt_tokens", (json_int_t)result->first.report.n_prompt_tokens,
			"token_bytes", (json_int_t)result->first.report.token_bytes, "block_tokens",
			(json_int_t)result->first.report.block_tokens, "alone", alone_json(result),
			"shared", shared_json(result), "logits_equal",
			(int)(DEMO_SUM(result->together, n_rows_differ) == 0), "kv_equal",
			(int)(DEMO_SUM(result->together, n_kv_rows_differ) == 0), "verify",
			"n_bytes", (json_int_t)result->look.report.verify_bytes, "n_blocks",
			(json_int_t)result->look.report.verify_blocks, "n_known",
			(json_int_t)result->look.report.verify_known, "n_bad_blocks",
			(json_int_t)result->look.report.verify_bad, "first_bad_token",
			(json_int_t)result->look.report.verify_bad_token, "samples", samples,
			"tree", tree_json(settings), "journal", demo_journal_json(result),
			"formats", demo_formats_json(result), "drafts", demo_drafts_json(result),
			"eviction", demo_evict_json(result), "disk", demo_disk_json(result)));
}
