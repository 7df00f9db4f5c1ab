/* What kvc-generate prints. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include <jansson.h>

#include "client/examples/generate_job.h"

static double rate(double n, double seconds)
{
	return seconds > 0 ? n / seconds : 0;
}

/* Tokens a second, of all rows, behind the first token. */
static double decode_rate(const struct job *j)
{
	return rate((double)(j->o.n_rows * j->o.n_tokens) - 1, j->decode_s);
}

static void digest_text(const struct generated *row, char text[33])
{
	XXH128_hash_t hash = XXH3_128bits_digest(row->hash);

	snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64,
		 (uint64_t)hash.low64);
}

/* The bytes of all tokens; NULL without a tokenizer or without memory. The caller frees. */
static char *decode_text(const struct job *j, const struct generated *row, size_t *n_bytes)
{
	FILE *to;
	char *text = NULL;

	to = j->tok ? open_memstream(&text, n_bytes) : NULL;
	if (!to)
		return NULL;
	for (size_t i = 0; i < row->n; i++) {
		size_t n;
		const unsigned char *bytes = tokenizer_decode(j->tok, row->ids[i], &n);

		if (bytes)
			fwrite(bytes, 1, n, to);
		else
			fprintf(to, "<%" PRIu32 ">", row->ids[i]);
	}
	fclose(to);
	return text;
}

static void print_row(const struct job *j, const struct generated *row)
{
	char digest[33];
	size_t n_bytes = 0;
	char *text = decode_text(j, row, &n_bytes);

	digest_text(row, digest);
	if (text)
		fwrite(text, 1, n_bytes, stdout);
	for (size_t i = 0; !text && i < row->n; i++)
		printf("%" PRIu32 "\n", row->ids[i]);
	if (text)
		printf("\n");
	printf("\nlogits digest  %s\n", digest);
	free(text);
}

/* Of all rows. */
static struct draft_row draft_counts(const struct job *j)
{
	struct draft_row sum = {0};

	for (size_t i = 0; i < j->o.n_rows; i++) {
		sum.n_steps += j->drafts[i].n_steps;
		sum.n_drafted += j->drafts[i].n_drafted;
		sum.n_accepted += j->drafts[i].n_accepted;
	}
	return sum;
}

static void print_drafts(const struct job *j)
{
	struct draft_row sum = draft_counts(j);

	fprintf(stderr,
		"drafts         %" PRIu64 " of %" PRIu64 " accepted (%.1f %%), %.2f a step; "
		"%.2f tokens a step\n",
		sum.n_accepted, sum.n_drafted,
		100 * rate((double)sum.n_accepted, (double)sum.n_drafted),
		rate((double)sum.n_accepted, (double)sum.n_steps),
		rate((double)(j->o.n_rows * j->o.n_tokens), (double)sum.n_steps));
}

static void print_generated(const struct job *j)
{
	for (size_t i = 0; i < j->o.n_rows; i++) {
		if (j->o.n_rows > 1)
			printf("%srow %zu, seed %" PRIu64 "\n", i ? "\n" : "", i, j->rows[i].seed);
		print_row(j, &j->rows[i]);
	}
	fflush(stdout);
	fprintf(stderr,
		"prompt         %zu tokens, %.0f tokens/s\n"
		"first token    after %.1f ms\n"
		"decode         %" PRIu64 " tokens, %.0f tokens/s\n",
		j->prompt.n, rate((double)j->n_prefilled, j->prefill_s), j->first_s * 1e3,
		j->o.n_rows * j->o.n_tokens, decode_rate(j));
	if (j->small)
		print_drafts(j);
}

static json_t *counts_json(const struct draft_row *row, size_t n_tokens)
{
	return json_pack("{s:I, s:I, s:I, s:f, s:f, s:f}", "steps", (json_int_t)row->n_steps,
			 "drafted", (json_int_t)row->n_drafted, "accepted",
			 (json_int_t)row->n_accepted, "acceptance_rate",
			 rate((double)row->n_accepted, (double)row->n_drafted), "accepted_per_step",
			 rate((double)row->n_accepted, (double)row->n_steps), "tokens_per_step",
			 rate((double)n_tokens, (double)row->n_steps));
}

static json_t *row_json(const struct job *j, const struct generated *row)
{
	char digest[33];
	size_t n_bytes = 0;
	char *text = decode_text(j, row, &n_bytes);
	json_t *ids = json_array(), *words = text ? json_stringn(text, n_bytes) : NULL;

	digest_text(row, digest);
	for (size_t i = 0; i < row->n; i++)
		json_array_append_new(ids, json_integer(row->ids[i]));
	free(text);
	/* Sampled bytes need not be UTF-8: the text is null then, the ids are always there. */
	return json_pack("{s:o?, s:o, s:s}", "text", words, "ids", ids, "logits_digest", digest);
}

/* Each with its own counts. */
static json_t *rows_json(const struct job *j)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < j->o.n_rows; i++) {
		json_t *row = row_json(j, &j->rows[i]);

		json_object_set_new(row, "seed", json_integer((json_int_t)j->rows[i].seed));
		json_object_set_new(row, "draft", counts_json(&j->drafts[i], j->o.n_tokens));
		json_array_append_new(rows, row);
	}
	return rows;
}

static json_t *generated_json(const struct job *j)
{
	json_t *object = j->o.n_rows > 1 ? json_pack("{s:o}", "rows", rows_json(j)) :
					   row_json(j, &j->rows[0]);
	json_t *times = json_pack("{s:I, s:f, s:f, s:f}", "prompt_tokens", (json_int_t)j->prompt.n,
				  "first_token_ms", j->first_s * 1e3, "prefill_tokens_per_s",
				  rate((double)j->n_prefilled, j->prefill_s), "decode_tokens_per_s",
				  decode_rate(j));
	struct draft_row sum = draft_counts(j);
	json_t *counts;

	json_object_update(object, times);
	json_decref(times);
	if (j->small) {
		counts = counts_json(&sum, j->o.n_rows * j->o.n_tokens);
		json_object_set_new(counts, "tokens", json_integer((json_int_t)j->o.draft_tokens));
		json_object_set_new(object, "draft", counts);
	}
	return object;
}

static void print_score(const struct job *j)
{
	printf("bits per byte     %.4f\nnats per token    %.4f\ntokens            %zu\n",
	       score_bits_per_byte(&j->score), j->score.nats / (double)j->score.n_tokens,
	       j->score.n_tokens);
	fflush(stdout);
	fprintf(stderr, "rate              %.0f tokens/s\n",
		rate((double)j->score.n_tokens, j->prefill_s));
}

static json_t *score_json(const struct job *j)
{
	return json_pack("{s:f, s:f, s:I, s:I, s:f}", "bits_per_byte",
			 score_bits_per_byte(&j->score), "nats_per_token",
			 j->score.nats / (double)j->score.n_tokens, "tokens",
			 (json_int_t)j->score.n_tokens, "bytes", (json_int_t)j->score.n_bytes,
			 "tokens_per_s", rate((double)j->score.n_tokens, j->prefill_s));
}

static void add_common(const struct job *j, json_t *object)
{
	char format[KV_FORMATS_TEXT_BYTES];

	kv_formats_text(j->o.formats, format);
	json_object_set_new(object, "cache", json_string(j->o.is_private ? "private" : "kvcached"));
	json_object_set_new(object, "format", json_string(format));
	json_object_set_new(object, "replay", json_boolean(j->o.replay));
	if (j->o.policy) {
		json_object_set_new(object, "policy", json_string(j->o.policy));
		json_object_set_new(object, "slots", json_integer((json_int_t)j->o.n_slots));
	}
	json_object_set_new(object, "load_ms", json_real(j->load_s * 1e3));
}

int generate_report(const struct job *j, struct errbuf *err)
{
	json_t *object;

	if (j->o.json) {
		object = j->o.score ? score_json(j) : generated_json(j);
		if (object)
			add_common(j, object);
		if (!object || json_dumpf(object, stdout, JSON_INDENT(2)) < 0)
			return errbuf_set(err, KV_ENOMEM, "cannot print the result");
		json_decref(object);
		printf("\n");
	} else if (j->o.score) {
		print_score(j);
	} else {
		print_generated(j);
	}
	if (fflush(stdout) != 0 || ferror(stdout))
		return errbuf_errno(err, KV_EINVAL, errno, "standard output");
	return 0;
}
