/*
 * kvc-generate as a program, on private caches: what it prints and writes, and what it refuses.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <jansson.h>
#include <xxhash.h>

#include "client/examples/safetensors.h"
#include "client/examples/tokenizer.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"

struct fixture {
	char *folder;
	char model[1024]; /* folder of the model files */
	char out[32768];  /* what the last run wrote to standard output */
	int status;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const char *top = getenv("top_srcdir");

	if (!f)
		return -1;
	f->folder = kt_tmpdir_new();
	snprintf(f->model, sizeof(f->model), "%s/client/examples/model", top ? top : ".");
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	kt_tmpdir_free(f->folder);
	free(f);
	return 0;
}

/* Runs kvc-generate in the folder of the fixture; $M is the folder of the model files. */
static void run(struct fixture *f, const char *options)
{
	const char *builddir = getenv("top_builddir");
	char command[4096];
	size_t n;
	FILE *pipe;

	snprintf(command, sizeof(command), "cd '%s' && M='%s' && '%s/kvc-generate' %s", f->folder,
		 f->model, builddir ? builddir : ".", options);
	pipe = popen(command, "re");
	assert_non_null(pipe);
	n = fread(f->out, 1, sizeof(f->out) - 1, pipe);
	f->out[n] = '\0';
	f->status = pclose(pipe);
	assert_true(WIFEXITED(f->status));
	f->status = WEXITSTATUS(f->status);
}

#define DRAFT "--private --model $M/kjv-draft.safetensors --tokenizer $M/tokenizer.txt "

static json_t *run_json(struct fixture *f, const char *options)
{
	json_error_t fault;
	json_t *object;

	run(f, options);
	assert_int_equal(f->status, 0);
	object = json_loads(f->out, 0, &fault);
	assert_non_null(object);
	return object;
}

static const char *text_of(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	assert_non_null(text);
	return text;
}

static void *read_file(const struct fixture *f, const char *name, size_t *n_bytes)
{
	char path[2048];
	unsigned char *bytes = malloc(1 << 20);
	FILE *file;

	assert_non_null(bytes);
	snprintf(path, sizeof(path), "%s/%s", f->folder, name);
	file = fopen(path, "re");
	assert_non_null(file);
	*n_bytes = fread(bytes, 1, 1 << 20, file);
	fclose(file);
	return bytes;
}

/* Text of the golden greedy tokens of a model. */
static void golden_text(const struct fixture *f, const char *name, char *text)
{
	struct tokenizer *tok;
	struct safetensors *st;
	const struct safetensors_tensor *t;
	struct errbuf err;
	char path[2048];

	snprintf(path, sizeof(path), "%s/tokenizer.txt", f->model);
	assert_int_equal(tokenizer_open(&tok, path, &err), 0);
	snprintf(path, sizeof(path), "%s/golden.safetensors", f->model);
	assert_int_equal(safetensors_open(&st, path, &err), 0);
	t = safetensors_find(st, name);
	assert_non_null(t);
	for (size_t i = 0; i < t->n_elements; i++) {
		size_t n;
		const unsigned char *bytes = tokenizer_decode(
			tok, (uint32_t)(t->data[i * 4] | t->data[i * 4 + 1] << 8), &n);

		memcpy(text, bytes, n);
		text += n;
	}
	*text = '\0';
	safetensors_close(st);
	tokenizer_close(tok);
}

static void test_text(void **state)
{
	struct fixture *f = *state;
	char want[2048];
	size_t n;

	golden_text(f, "draft.greedy", want);
	n = strlen(want);
	run(f, DRAFT "--prompt $M/prompt.txt --tokens 64 --temperature 0 2>/dev/null");
	assert_int_equal(f->status, 0);
	assert_memory_equal(f->out, want, n);
	assert_memory_equal(f->out + n, "\n\nlogits digest  ", 17);
	assert_int_equal(strlen(f->out + n + 17), 33);
}

static void test_logits_file(void **state)
{
	struct fixture *f = *state;
	json_t *object = run_json(f,
				  DRAFT "--prompt $M/prompt.txt --tokens 3 --json --logits rows");
	size_t n;
	float *rows = read_file(f, "rows", &n);
	XXH128_hash_t hash = XXH3_128bits(rows, n);
	char digest[64];

	snprintf(digest, sizeof(digest), "%016llx%016llx", (unsigned long long)hash.high64,
		 (unsigned long long)hash.low64);
	assert_int_equal(n, 3 * 1024 * sizeof(float));
	assert_string_equal(text_of(object, "logits_digest"), digest);
	assert_int_equal(json_array_size(json_object_get(object, "ids")), 3);
	assert_int_equal(json_integer_value(json_object_get(object, "prompt_tokens")), 1600);
	assert_true(json_real_value(json_object_get(object, "prefill_tokens_per_s")) > 0);
	assert_true(json_real_value(json_object_get(object, "first_token_ms")) > 0);
	json_decref(object);
	free(rows);
}

static void write_file(const struct fixture *f, const char *name, const char *text)
{
	char path[2048];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", f->folder, name);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static void test_ids(void **state)
{
	struct fixture *f = *state;
	json_t *by_text, *by_ids;

	/* A newline and a digit are chunks by themselves, so their ids are the bytes. */
	write_file(f, "text", "\n1");
	write_file(f, "ids", "10\n49\n");
	by_text = run_json(f, DRAFT "--prompt text --tokens 30 --json");
	by_ids = run_json(f, DRAFT "--ids ids --tokens 30 --json");
	assert_string_equal(text_of(by_text, "logits_digest"), text_of(by_ids, "logits_digest"));
	assert_string_equal(text_of(by_text, "text"), text_of(by_ids, "text"));
	json_decref(by_text);
	json_decref(by_ids);
	run(f, "--private --model $M/kjv-draft.safetensors --ids ids --tokens 3 --temperature 0 "
	       "2>/dev/null");
	assert_int_equal(f->status, 0);
	assert_true(strtoul(f->out, NULL, 10) < 1024);
	assert_non_null(strstr(f->out, "\n\nlogits digest  "));
}

static void test_seed(void **state)
{
	struct fixture *f = *state;
	char digests[3][40];
	static const char *const seeds[] = {"1", "1", "2"};

	write_file(f, "text", "\n");
	for (int i = 0; i < 3; i++) {
		char options[256];
		json_t *object;

		snprintf(options, sizeof(options),
			 DRAFT "--prompt text --tokens 20 --json --seed %s", seeds[i]);
		object = run_json(f, options);
		snprintf(digests[i], sizeof(digests[i]), "%s", text_of(object, "logits_digest"));
		json_decref(object);
	}
	assert_string_equal(digests[0], digests[1]);
	assert_string_not_equal(digests[0], digests[2]);
}

/* Digest of the logits with these options. */
static void digest_of(struct fixture *f, const char *options, char digest[40])
{
	char all[512];
	json_t *object;

	snprintf(all, sizeof(all), DRAFT "--prompt text --tokens 20 --json %s", options);
	object = run_json(f, all);
	snprintf(digest, 40, "%s", text_of(object, "logits_digest"));
	json_decref(object);
}

static void test_formats(void **state)
{
	struct fixture *f = *state;
	char raw[40], other[40], replay[40];
	json_t *object;

	write_file(f, "text", "2:3 And the waters were upon the face of the earth, and upon the ");
	digest_of(f, "", raw);
	digest_of(f, "--format raw --replay", other);
	assert_string_equal(raw, other);
	digest_of(f, "--format u4", other);
	assert_string_not_equal(raw, other);
	digest_of(f, "--format u4 --replay", replay);
	assert_string_not_equal(other, replay);
	digest_of(f, "--format u4:u4", replay);
	assert_string_equal(other, replay);
	digest_of(f, "--format u4:fp8", replay);
	assert_string_not_equal(other, replay);
	object = run_json(f, DRAFT "--score text --format u4:fp8 --replay --json");
	assert_string_equal(text_of(object, "cache"), "private");
	assert_string_equal(text_of(object, "format"), "u4:fp8");
	assert_true(json_is_true(json_object_get(object, "replay")));
	json_decref(object);
}

#define DRAFTED \
	"--model $M/kjv-3m.safetensors --tokenizer $M/tokenizer.txt --private --prompt text "

static void test_draft(void **state)
{
	static const char *const options[] = {"--temperature 0", "--seed 6",
					      "--seed 6 --format int8:u4 --replay"};
	struct fixture *f = *state;

	write_file(f, "text", "2:3 And the waters were upon the face of the earth, and upon the ");
	for (size_t i = 0; i < 3; i++) {
		char plain[sizeof(f->out)], all[512];

		snprintf(all, sizeof(all), DRAFTED "--tokens 60 %s 2>/dev/null", options[i]);
		run(f, all);
		assert_int_equal(f->status, 0);
		memcpy(plain, f->out, sizeof(plain));
		snprintf(all, sizeof(all),
			 DRAFTED "--tokens 60 %s --draft $M/kjv-draft.safetensors 2>/dev/null",
			 options[i]);
		run(f, all);
		assert_int_equal(f->status, 0);
		assert_string_equal(f->out, plain);
	}
}

/* Rows differ in their seeds, and each is what it is alone. */
static void test_draft_rows(void **state)
{
	struct fixture *f = *state;
	json_t *rows, *object, *draft;

	write_file(f, "text", "2:3 And the waters were upon the face of the earth, and upon the ");
	object = run_json(f, DRAFTED "--tokens 40 --seed 8 --rows 3 --json --draft-tokens 3 "
				     "--draft $M/kjv-draft.safetensors");
	rows = json_object_get(object, "rows");
	assert_int_equal(json_array_size(rows), 3);
	for (size_t i = 0; i < 3; i++) {
		json_t *row = json_array_get(rows, i), *plain;
		char all[256];

		snprintf(all, sizeof(all), DRAFTED "--tokens 40 --json --seed %zu", 8 + i);
		plain = run_json(f, all);
		assert_int_equal(json_integer_value(json_object_get(row, "seed")), 8 + i);
		assert_string_equal(text_of(row, "text"), text_of(plain, "text"));
		assert_string_equal(text_of(row, "logits_digest"), text_of(plain, "logits_digest"));
		draft = json_object_get(row, "draft");
		assert_int_equal(json_integer_value(json_object_get(draft, "steps")) +
					 json_integer_value(json_object_get(draft, "accepted")),
				 40);
		json_decref(plain);
	}
	draft = json_object_get(object, "draft");
	assert_int_equal(json_integer_value(json_object_get(draft, "tokens")), 3);
	assert_int_equal(json_integer_value(json_object_get(draft, "steps")) +
				 json_integer_value(json_object_get(draft, "accepted")),
			 120);
	assert_true(json_real_value(json_object_get(draft, "acceptance_rate")) > 0.1);
	assert_true(json_real_value(json_object_get(draft, "tokens_per_step")) > 1.1);
	assert_true(json_real_value(json_object_get(object, "decode_tokens_per_s")) > 0);
	json_decref(object);
	run(f, DRAFTED "--tokens 2 --rows 2 --draft $M/kjv-draft.safetensors 2>&1");
	assert_int_equal(f->status, 0);
	assert_memory_equal(f->out, "row 0, seed 0\n", 14);
	assert_non_null(strstr(f->out, "\n\nrow 1, seed 1\n"));
	assert_non_null(strstr(f->out, " tokens a step\n"));
}

static void test_score(void **state)
{
	struct fixture *f = *state;

	run(f, DRAFT "--score $M/prompt.txt 2>/dev/null");
	assert_int_equal(f->status, 0);
	assert_string_equal(f->out, "bits per byte     1.8388\nnats per token    3.3805\n"
				    "tokens            1599\n");
}

static void test_refusals(void **state)
{
	static const struct {
		const char *options;
		int status;
		const char *text;
	} list[] = {
		{"", 2, "--model is missing"},
		{"--model x", 2, "give one of --prompt, --ids and --score"},
		{DRAFT "--ids i --prompt p", 2, "give one of --prompt, --ids and --score"},
		{"--model x --prompt p", 2, "--tokenizer is missing"},
		{DRAFT "--prompt p", 2, "--tokens must be at least 1"},
		{DRAFT "--prompt p --tokens 0", 2, "--tokens must be at least 1"},
		{DRAFT "--prompt p --tokens -1", 2, "--tokens: \"-1\" is not a whole number"},
		{DRAFT "--prompt p --tokens 1 --seed x", 2, "--seed: \"x\" is not a whole number"},
		{DRAFT "--prompt p --tokens 1 --temperature nan", 2, "is not 0 to 1000"},
		{DRAFT "--score p --tokens 1", 2, "--score goes without"},
		{DRAFT "--runtime-dir x --score p", 2, "--private goes without --runtime-dir"},
		{DRAFT "--prompt p --tokens 1 more", 2, "\"more\" is not an option"},
		{DRAFT "--prompt p --tokens 1 --format int9", 2,
		 "--format: \"int9\" is no format; formats are raw, int8, u8, u4, q4, fp8, "
		 "int8-model"},
		{DRAFT "--prompt p --tokens 1 --format int8:", 2, "\"\" is no format"},
		{DRAFT "--prompt p --tokens 1 --format int8:u4:u4", 2, "\"u4:u4\" is no format"},
		{DRAFT "--prompt p --tokens 1 --rows 2", 2, "--draft-tokens and --rows go with"},
		{DRAFT "--prompt p --tokens 1 --draft-tokens 2", 2, "go with --draft"},
		{DRAFT "--prompt p --tokens 1 --draft d --draft-tokens 0", 2,
		 "--draft-tokens: 0 is not 1 to 63"},
		{DRAFT "--prompt p --tokens 1 --draft d --draft-tokens 64", 2,
		 "--draft-tokens: 64 is not 1 to 63"},
		{DRAFT "--prompt p --tokens 1 --draft d --rows 0", 2, "--rows: 0 is not 1 to 64"},
		{DRAFT "--prompt p --tokens 1 --draft d --rows 65", 2, "--rows: 65 is not 1 to 64"},
		{DRAFT "--prompt p --tokens 1 --draft d --rows 2 --logits l", 2,
		 "--logits goes with one row"},
		{DRAFT "--score p --draft d", 2, "--score goes without --draft"},
		{DRAFT "--prompt text1 --tokens 1 --draft missing", 1, "missing: cannot open"},
		{DRAFT "--prompt p --tokens 1 --policy h2o", 2, "--policy and --slots go together"},
		{DRAFT "--prompt p --tokens 1 --slots 9", 2, "--policy and --slots go together"},
		{DRAFT "--prompt p --tokens 1 --policy h2o --slots 0", 2,
		 "--slots: 0 is not 1 to 1048576"},
		{DRAFT "--prompt p --tokens 1 --policy h2o --slots 9", 2,
		 "--policy goes without --private, --replay and --draft"},
		{DRAFT "--wrong", 2, "wrong options"},
		{DRAFT "--prompt missing --tokens 1", 1, "missing: cannot open"},
		{DRAFT "--prompt /dev/null --tokens 1", 1, "the prompt is empty"},
		{DRAFT "--score text1", 1, "1 tokens: a score needs two"},
		{DRAFT "--prompt $M/prompt.txt --tokens 450", 1,
		 "a prompt of 1600 tokens and 450 more are beyond the model's context of 2048"},
		{DRAFT "--ids large --tokens 1", 1, "token id 1024; the model knows 0 to 1023"},
		{DRAFT "--prompt text1 --tokens 1 --logits /nonexistent/x", 1, "cannot create"},
		{DRAFT "--prompt text1 --tokens 9 --logits /dev/full", 1, "/dev/full: write"},
		{"--model $M/kjv-draft.safetensors --ids one --tokens 1 --runtime-dir none", 1,
		 "no daemon at none/attach.sock"},
		{"--private --model $M/tokenizer.txt --ids large --tokens 1", 1,
		 "tokenizer.txt: header of"},
	};
	struct fixture *f = *state;

	write_file(f, "text1", "a");
	write_file(f, "large", "1024\n");
	write_file(f, "one", "1\n");
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		char options[512];

		snprintf(options, sizeof(options), "%s 2>&1", list[i].options);
		run(f, options);
		if (f->status != list[i].status || !strstr(f->out, list[i].text))
			fail_msg("%s: status %d, \"%s\"", list[i].options, f->status, f->out);
	}
}

/* The last row of the data of a tensor of 1,024 rows goes. */
static void drop_row(json_t *offsets)
{
	json_int_t first = json_integer_value(json_array_get(offsets, 0));
	json_int_t end = json_integer_value(json_array_get(offsets, 1));

	json_array_set_new(offsets, 1, json_integer(end - (end - first) / 1024));
}

/* A copy of the draft model with one token less. */
static void write_smaller(const struct fixture *f, const char *name)
{
	json_t *header, *embed, *dims;
	unsigned char *bytes;
	uint64_t n_header;
	size_t n_bytes;
	char path[2048], *text;
	FILE *file;

	snprintf(path, sizeof(path), "cp '%s/kjv-draft.safetensors' '%s/%s'", f->model, f->folder,
		 name);
	assert_int_equal(system(path), 0);
	bytes = read_file(f, name, &n_bytes);
	memcpy(&n_header, bytes, sizeof(n_header));
	header = json_loadb((char *)bytes + 8, n_header, 0, NULL);
	json_object_set_new(json_object_get(header, "__metadata__"), "vocab", json_string("1023"));
	embed = json_object_get(header, "embed");
	dims = json_object_get(embed, "shape");
	assert_int_equal(json_integer_value(json_array_get(dims, 0)), 1024);
	json_array_set_new(dims, 0, json_integer(1023));
	drop_row(json_object_get(embed, "data_offsets"));
	n_bytes -= 8 + n_header;
	text = json_dumps(header, JSON_COMPACT);
	snprintf(path, sizeof(path), "%s/%s", f->folder, name);
	file = fopen(path, "we");
	assert_non_null(file);
	fwrite(&(uint64_t){strlen(text)}, 8, 1, file);
	fwrite(text, strlen(text), 1, file);
	fwrite(bytes + 8 + n_header, n_bytes, 1, file);
	assert_int_equal(fclose(file), 0);
	json_decref(header);
	free(text);
	free(bytes);
}

/* Said before anything is written or computed: here the file of logits could not even be made. */
static void test_other_vocabulary(void **state)
{
	struct fixture *f = *state;

	write_file(f, "one", "1\n");
	write_smaller(f, "smaller");
	run(f, "--private --model $M/kjv-draft.safetensors --draft smaller --ids one --tokens 1 "
	       "--logits /nonexistent/x 2>&1");
	assert_int_equal(f->status, 1);
	assert_string_equal(f->out, "kvc-generate: the draft model knows 1023 tokens, the main "
				    "model 1024: it must be one with the same tokens\n");
}

static void test_limit(void **state)
{
	/* The last token needs no place: 1,600 + 449 - 1 = 2,048. */
	struct fixture *f = *state;
	json_t *object = run_json(f, DRAFT "--prompt $M/prompt.txt --tokens 449 --json");

	assert_int_equal(json_array_size(json_object_get(object, "ids")), 449);
	json_decref(object);
}

static void test_help(void **state)
{
	struct fixture *f = *state;

	run(f, "--help");
	assert_int_equal(f->status, 0);
	assert_memory_equal(f->out, "Usage: kvc-generate", 19);
	run(f, "--version");
	assert_int_equal(f->status, 0);
	assert_memory_equal(f->out, "kvcached ", 9);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("greedy text is the golden one, the digest follows", test_text),
	KT_TEST("--logits writes one row a token, and the digest is of that file",
		test_logits_file),
	KT_TEST("--ids gives what the same prompt as text gives", test_ids),
	KT_TEST("a seed repeats its text, another seed gives another one", test_seed),
	KT_TEST("--format and --replay change what is stored, and raw with replay nothing",
		test_formats),
	KT_TEST("with --draft text and digest are those of plain decoding", test_draft),
	KT_TEST("--rows gives each row what it has alone, and the counts of drafts",
		test_draft_rows),
	KT_TEST("--score prints the loss of the reference", test_score),
	KT_TEST("wrong options, prompts and files are refused with status and reason",
		test_refusals),
	KT_TEST("a draft model of another vocabulary is refused before anything is done",
		test_other_vocabulary),
	KT_TEST("prompt and tokens may fill the context to the last place", test_limit),
	KT_TEST("--help and --version", test_help),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), set_up, tear_down};

	return kt_run(argc, argv, &group, 1);
}
