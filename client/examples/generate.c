/*
 * kvc-generate: writes on from a prompt with a small Llama-shaped model, its KV cache in private
 * buffers or in a sequence of kvcached, in any storage format, with or without a replay journal; or
 * scores a text.
 *
 * Standard output has what is the same in each run with the same arguments (the text, the digest of
 * the logits); times go to standard error. With --json everything is one object on standard output.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>
#include <xxhash.h>

#include "client/examples/decode.h"
#include "client/examples/generate_options.h"
#include "client/examples/kv_quantised.h"
#include "client/examples/kv_shared.h"
#include "client/examples/prompt.h"
#include "client/examples/score.h"

struct job {
	struct generate_options o;
	struct llama *model;
	struct tokenizer *tok; /* NULL without --tokenizer */
	struct prompt prompt;
	struct kv_cache *kv;
	/* Behind kv when it is in kvcached. */
	kvc_session *session;
	kvc_layout *layout;
	kvc_writer *writer;
	kvc_seq *seq;
	FILE *logits;
	XXH3_state_t *hash;
	uint32_t *out;
	size_t n_out;
	struct score score;
	/* Seconds: loading; the prompt; from its start to the first token; the other tokens. */
	double load_s, prefill_s, first_s, decode_s;
	double started_s;
};

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double rate(double n, double seconds)
{
	return seconds > 0 ? n / seconds : 0;
}

/* ---- work ---- */

static int load(struct job *j, struct errbuf *err)
{
	const char *text = j->o.prompt ? j->o.prompt : j->o.score;
	double start_s = now_s();

	if (llama_open(&j->model, j->o.model, err) < 0)
		return -1;
	if (j->o.tokenizer && tokenizer_open(&j->tok, j->o.tokenizer, err) < 0)
		return -1;
	j->load_s = now_s() - start_s;
	if (j->o.ids)
		return prompt_from_ids(&j->prompt, j->o.ids, err);
	return prompt_from_text(&j->prompt, j->tok, text, err);
}

static int open_shared(struct job *j, size_t max_tokens, struct errbuf *err)
{
	struct kvc_session_options session = {.size = sizeof(session),
					      .runtime_dir = j->o.runtime_dir};
	struct kvc_seq_options seq = {.size = sizeof(seq), .max_tokens = max_tokens};

	j->session = kvc_open(&session);
	if (!j->session)
		return kv_shared_error(err);
	j->layout = kv_shared_layout(j->session, j->model, j->o.formats, err);
	if (!j->layout)
		return -1;
	j->writer = kvc_writer_new(j->session);
	if (!j->writer)
		return kv_shared_error(err);
	j->seq = kvc_seq_new(j->writer, j->layout, &seq);
	if (!j->seq)
		return kv_shared_error(err);
	j->kv = kv_shared_new(j->writer, j->seq, j->model, max_tokens, err);
	return j->kv ? 0 : -1;
}

static int open_cache(struct job *j, size_t max_tokens, struct errbuf *err)
{
	if (!j->o.is_private)
		return open_shared(j, max_tokens, err);
	j->kv = kv_private_for(j->model, j->o.formats, max_tokens, err);
	return j->kv ? 0 : -1;
}

static int each_token(void *arg, uint32_t id, const float *logits, struct errbuf *err)
{
	struct job *j = arg;
	size_t vocab = llama_geometry(j->model)->vocab;

	(void)id;
	if (j->n_out++ == 0)
		j->first_s = now_s() - j->started_s;
	XXH3_128bits_update(j->hash, logits, vocab * sizeof(*logits));
	if (j->logits && fwrite(logits, sizeof(*logits), vocab, j->logits) != vocab)
		return errbuf_errno(err, KV_EINVAL, errno, "%s: write", j->o.logits);
	return 0;
}

static int open_logits(struct job *j, struct errbuf *err)
{
	j->hash = XXH3_createState();
	j->out = calloc(j->o.n_tokens, sizeof(*j->out));
	if (!j->hash || !j->out)
		return errbuf_set(err, KV_ENOMEM, "no memory for %" PRIu64 " tokens",
				  j->o.n_tokens);
	XXH3_128bits_reset(j->hash);
	if (!j->o.logits)
		return 0;
	j->logits = fopen(j->o.logits, "we");
	if (!j->logits)
		return errbuf_errno(err, KV_EINVAL, errno, "%s: cannot create", j->o.logits);
	return 0;
}

static int close_logits(struct job *j, struct errbuf *err)
{
	FILE *file = j->logits;

	j->logits = NULL;
	if (file && fclose(file) != 0)
		return errbuf_errno(err, KV_EINVAL, errno, "%s: write", j->o.logits);
	return 0;
}

/* The prompt but its last token is prefilled; decoding starts with that one. */
static int generate(struct job *j, struct errbuf *err)
{
	size_t n = j->prompt.n, context = llama_geometry(j->model)->context;
	struct decode d = {.temperature = j->o.temperature, .seed = j->o.seed, .arg = j};

	if (n == 0)
		return errbuf_set(err, KV_EINVAL, "the prompt is empty");
	if (n > context || j->o.n_tokens > context - n + 1)
		return errbuf_set(err, KV_ERANGE,
				  "a prompt of %zu tokens and %" PRIu64
				  " more are beyond the model's context of %zu",
				  n, j->o.n_tokens, context);
	if (open_cache(j, n - 1 + j->o.n_tokens, err) < 0 || open_logits(j, err) < 0)
		return -1;
	j->started_s = now_s();
	if (llama_forward(j->model, j->kv, j->prompt.ids, n - 1, NULL, 0, err) < 0)
		return -1;
	if (j->o.replay && j->kv->ops->replay(j->kv, err) < 0)
		return -1;
	j->prefill_s = now_s() - j->started_s;
	d.model = j->model;
	d.kv = j->kv;
	d.each = each_token;
	if (decode_run(&d, j->prompt.ids[n - 1], j->o.n_tokens, j->out, err) < 0)
		return -1;
	j->decode_s = now_s() - j->started_s - j->first_s;
	return close_logits(j, err);
}

static int score(struct job *j, struct errbuf *err)
{
	size_t context = llama_geometry(j->model)->context;

	if (open_cache(j, j->prompt.n < context ? j->prompt.n : context, err) < 0)
		return -1;
	j->started_s = now_s();
	if (score_ids(j->model, j->kv, j->tok, j->prompt.ids, j->prompt.n, j->o.replay, &j->score,
		      err) < 0)
		return -1;
	j->prefill_s = now_s() - j->started_s;
	return 0;
}

/* ---- report ---- */

static void digest_text(const struct job *j, char text[33])
{
	XXH128_hash_t hash = XXH3_128bits_digest(j->hash);

	snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64,
		 (uint64_t)hash.low64);
}

/* The bytes of all tokens; NULL without a tokenizer or without memory. The caller frees. */
static char *decode_text(const struct job *j, size_t *n_bytes)
{
	FILE *to;
	char *text = NULL;

	to = j->tok ? open_memstream(&text, n_bytes) : NULL;
	if (!to)
		return NULL;
	for (size_t i = 0; i < j->n_out; i++) {
		size_t n;
		const unsigned char *bytes = tokenizer_decode(j->tok, j->out[i], &n);

		if (bytes)
			fwrite(bytes, 1, n, to);
		else
			fprintf(to, "<%" PRIu32 ">", j->out[i]);
	}
	fclose(to);
	return text;
}

static void print_generated(const struct job *j)
{
	char digest[33];
	size_t n_bytes = 0;
	char *text = decode_text(j, &n_bytes);

	digest_text(j, digest);
	if (text)
		fwrite(text, 1, n_bytes, stdout);
	for (size_t i = 0; !text && i < j->n_out; i++)
		printf("%" PRIu32 "\n", j->out[i]);
	if (text)
		printf("\n");
	printf("\nlogits digest  %s\n", digest);
	free(text);
	fflush(stdout);
	fprintf(stderr,
		"prompt         %zu tokens, %.0f tokens/s\n"
		"first token    after %.1f ms\n"
		"decode         %zu tokens, %.0f tokens/s\n",
		j->prompt.n, rate((double)j->prompt.n - 1, j->prefill_s), j->first_s * 1e3,
		j->n_out, rate((double)j->n_out - 1, j->decode_s));
}

static json_t *generated_json(const struct job *j)
{
	char digest[33];
	size_t n_bytes = 0;
	char *text = decode_text(j, &n_bytes);
	json_t *ids = json_array(), *words = text ? json_stringn(text, n_bytes) : NULL;

	digest_text(j, digest);
	for (size_t i = 0; i < j->n_out; i++)
		json_array_append_new(ids, json_integer(j->out[i]));
	free(text);
	/* Sampled bytes need not be UTF-8: the text is null then, the ids are always there. */
	return json_pack("{s:o?, s:o, s:s, s:I, s:f, s:f, s:f}", "text", words, "ids", ids,
			 "logits_digest", digest, "prompt_tokens", (json_int_t)j->prompt.n,
			 "first_token_ms", j->first_s * 1e3, "prefill_tokens_per_s",
			 rate((double)j->prompt.n - 1, j->prefill_s), "decode_tokens_per_s",
			 rate((double)j->n_out - 1, j->decode_s));
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
	json_object_set_new(object, "load_ms", json_real(j->load_s * 1e3));
}

static int report(const struct job *j, struct errbuf *err)
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

static void close_cache(struct job *j)
{
	kv_free(j->kv);
	kvc_seq_free(j->seq);
	if (j->writer)
		kvc_writer_free(j->writer);
	kvc_layout_free(j->layout);
	kvc_close(j->session);
}

static void fini(struct job *j)
{
	close_cache(j);
	if (j->logits)
		fclose(j->logits);
	XXH3_freeState(j->hash);
	free(j->out);
	prompt_fini(&j->prompt);
	tokenizer_close(j->tok);
	llama_close(j->model);
}

int main(int argc, char **argv)
{
	struct errbuf err = {0};
	struct job j = {0};
	int rc = 1;

	if (generate_options_parse(&j.o, argc, argv, &err) < 0) {
		rc = 2;
		goto out;
	}
	if (j.o.help || j.o.version) {
		fputs(j.o.help ? generate_help : PACKAGE_STRING "\n", stdout);
		return 0;
	}
	if (load(&j, &err) < 0 || (j.o.score ? score(&j, &err) : generate(&j, &err)) < 0 ||
	    report(&j, &err) < 0)
		goto out;
	rc = 0;
out:
	if (rc)
		fprintf(stderr, "kvc-generate: %s\n", err.text);
	fini(&j);
	return rc;
}
