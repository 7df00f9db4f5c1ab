#include "client/examples/generate_options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>

#include "client/examples/draft.h"

/* What decodes fastest with the models in the tree. */
#define DRAFT_TOKENS 2
#define SLOTS_MAX 1048576u

const char generate_help[] =
	"Usage: kvc-generate --model FILE --tokenizer FILE (--prompt FILE | --ids FILE)\n"
	"                    --tokens N [--seed S] [--temperature T] [--logits FILE]\n"
	"                    [--draft FILE [--draft-tokens K] [--rows B]]\n"
	"                    [--format F] [--replay | --policy P --slots N]\n"
	"                    [--private | --runtime-dir DIR] [--json]\n"
	"       kvc-generate --model FILE --tokenizer FILE --score FILE\n"
	"                    [--format F] [--replay | --policy P --slots N]\n"
	"                    [--private | --runtime-dir DIR] [--json]\n"
	"\n"
	"Writes on from a prompt with a Llama-shaped model, its KV cache in kvcached.\n"
	"\n"
	"  --model FILE       weights (safetensors, BF16 or F32); geometry, rotary base and\n"
	"                     norm are in its metadata\n"
	"  --tokenizer FILE   merges of the byte-level BPE, one a line\n"
	"  --prompt FILE      the prompt, as text\n"
	"  --ids FILE         the prompt, as token ids, one a line; without --tokenizer the\n"
	"                     result is printed as ids too\n"
	"  --tokens N         how many tokens to write, at least 1\n"
	"  --seed S           seed of the sampling (default 0)\n"
	"  --temperature T    0 takes the most likely token (default 0.8)\n"
	"  --logits FILE      write the logits: N rows, each with one f32 (little-endian) for\n"
	"                     every id of the vocabulary. Token i was chosen from row i, so\n"
	"                     row 0 holds the logits after the prompt\n"
	"  --draft FILE       speculative decoding: this smaller model, with the same tokens,\n"
	"                     drafts, the model runs its drafts at once and keeps those that\n"
	"                     it would have chosen. Text and digest are those without --draft,\n"
	"                     but for quantised formats without --replay: there a draft is\n"
	"                     seen in full precision by those behind it, and text may differ\n"
	"  --draft-tokens K   how many are drafted in a step, 1 to 63 (default 2)\n"
	"  --rows B           write B texts on from the prompt, 1 to 64, in steps together,\n"
	"                     with the seeds S, S + 1, ...; each is what it is alone\n"
	"  --score FILE       the loss on a text in bits per byte, in windows of the model's\n"
	"                     context, end to end; the first token is not counted\n"
	"  --format F         how the cache stores K and V: raw, int8, int8-model, u8, u4, q4,\n"
	"                     fp8, or one for each, as int8:u4 (default raw). Tokens that are\n"
	"                     computed together (up to 64 of a prompt or text) see one another\n"
	"                     in full precision, all earlier ones as they are stored\n"
	"  --replay           the prompt is stored in the format, what is written on goes to a\n"
	"                     replay journal over it, in full precision; with --score the first\n"
	"                     half of each window takes the part of the prompt\n"
	"  --policy P         a layer holds N tokens, and P says which go: ring, lastrec,\n"
	"                     smart-lastrec, h2o, h2o-orig, h2o-vlen, qh2o, qh2o-vlen, or dense,\n"
	"                     where none go. In kvcached only. Policies with scores keep the\n"
	"                     newest N / 8 tokens, and a step has at most as many\n"
	"  --slots N          1 to 1048576; goes with --policy\n"
	"  --private          keep the cache in private buffers, without kvcached\n"
	"  --runtime-dir DIR  the directory of kvcached's sockets\n"
	"  --json             print one JSON object instead of text\n"
	"  --help, --version\n"
	"\n"
	"Text and digest of the logits (XXH3, 128 bits, over what --logits writes) go to\n"
	"standard output, times to standard error. The exit status is 0, 1 after an error,\n"
	"2 for a wrong command line.\n";

enum {
	OPT_MODEL = 256,
	OPT_TOKENIZER,
	OPT_PROMPT,
	OPT_IDS,
	OPT_SCORE,
	OPT_LOGITS,
	OPT_DRAFT,
	OPT_DRAFT_TOKENS,
	OPT_ROWS,
	OPT_RUNTIME_DIR,
	OPT_TOKENS,
	OPT_SEED,
	OPT_TEMPERATURE,
	OPT_FORMAT,
	OPT_PRIVATE,
	OPT_REPLAY,
	OPT_POLICY,
	OPT_SLOTS,
	OPT_JSON,
	OPT_HELP,
	OPT_VERSION,
};

static const struct option names[] = {
	{"model", required_argument, NULL, OPT_MODEL},
	{"tokenizer", required_argument, NULL, OPT_TOKENIZER},
	{"prompt", required_argument, NULL, OPT_PROMPT},
	{"ids", required_argument, NULL, OPT_IDS},
	{"score", required_argument, NULL, OPT_SCORE},
	{"logits", required_argument, NULL, OPT_LOGITS},
	{"draft", required_argument, NULL, OPT_DRAFT},
	{"draft-tokens", required_argument, NULL, OPT_DRAFT_TOKENS},
	{"rows", required_argument, NULL, OPT_ROWS},
	{"runtime-dir", required_argument, NULL, OPT_RUNTIME_DIR},
	{"tokens", required_argument, NULL, OPT_TOKENS},
	{"seed", required_argument, NULL, OPT_SEED},
	{"temperature", required_argument, NULL, OPT_TEMPERATURE},
	{"format", required_argument, NULL, OPT_FORMAT},
	{"private", no_argument, NULL, OPT_PRIVATE},
	{"replay", no_argument, NULL, OPT_REPLAY},
	{"policy", required_argument, NULL, OPT_POLICY},
	{"slots", required_argument, NULL, OPT_SLOTS},
	{"json", no_argument, NULL, OPT_JSON},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

static int parse_number(const char *name, const char *text, uint64_t *out, struct errbuf *err)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 10);
	if (errno || *end || *text < '0' || *text > '9')
		return errbuf_set(err, KV_EINVAL, "--%s: \"%.40s\" is not a whole number", name,
				  text);
	return 0;
}

static int parse_range(const char *name, const char *text, uint64_t max, uint64_t *out,
		       struct errbuf *err)
{
	if (parse_number(name, text, out, err) < 0)
		return -1;
	if (*out < 1 || *out > max)
		return errbuf_set(err, KV_ERANGE, "--%s: %.40s is not 1 to %" PRIu64, name, text,
				  max);
	return 0;
}

static int parse_temperature(const char *text, double *out, struct errbuf *err)
{
	char *end;

	*out = strtod(text, &end);
	if (end == text || *end || !(*out >= 0 && *out <= 1000))
		return errbuf_set(err, KV_EINVAL, "--temperature: \"%.40s\" is not 0 to 1000",
				  text);
	return 0;
}

static int parse_formats(const char *text, struct kv_formats *out, struct errbuf *err)
{
	if (kv_formats_parse(text, out, err) == 0)
		return 0;
	errbuf_wrap(err, "--format");
	return -1;
}

static int parse_one(struct generate_options *o, int option, struct errbuf *err)
{
	switch (option) {
	case OPT_MODEL: o->model = optarg; return 0;
	case OPT_TOKENIZER: o->tokenizer = optarg; return 0;
	case OPT_PROMPT: o->prompt = optarg; return 0;
	case OPT_IDS: o->ids = optarg; return 0;
	case OPT_SCORE: o->score = optarg; return 0;
	case OPT_LOGITS: o->logits = optarg; return 0;
	case OPT_DRAFT: o->draft = optarg; return 0;
	case OPT_DRAFT_TOKENS:
		return parse_range("draft-tokens", optarg, DRAFT_TOKENS_MAX, &o->draft_tokens, err);
	case OPT_ROWS: return parse_range("rows", optarg, DRAFT_ROWS_MAX, &o->n_rows, err);
	case OPT_RUNTIME_DIR: o->runtime_dir = optarg; return 0;
	case OPT_TOKENS: return parse_number("tokens", optarg, &o->n_tokens, err);
	case OPT_SEED: return parse_number("seed", optarg, &o->seed, err);
	case OPT_TEMPERATURE: return parse_temperature(optarg, &o->temperature, err);
	case OPT_FORMAT: return parse_formats(optarg, &o->formats, err);
	case OPT_POLICY: o->policy = optarg; return 0;
	case OPT_SLOTS: return parse_range("slots", optarg, SLOTS_MAX, &o->n_slots, err);
	case OPT_REPLAY: o->replay = true; return 0;
	case OPT_PRIVATE: o->is_private = true; return 0;
	case OPT_JSON: o->json = true; return 0;
	case OPT_HELP: o->help = true; return 0;
	case OPT_VERSION: o->version = true; return 0;
	default: return errbuf_set(err, KV_EINVAL, "wrong options; see --help");
	}
}

static int check(const struct generate_options *o, struct errbuf *err)
{
	int n_inputs = (o->prompt != NULL) + (o->ids != NULL) + (o->score != NULL);

	if (!o->model)
		return errbuf_set(err, KV_EINVAL, "--model is missing");
	if (n_inputs != 1)
		return errbuf_set(err, KV_EINVAL, "give one of --prompt, --ids and --score");
	if (!o->tokenizer && !o->ids)
		return errbuf_set(err, KV_EINVAL, "--tokenizer is missing");
	if (!o->score && o->n_tokens < 1)
		return errbuf_set(err, KV_EINVAL, "--tokens must be at least 1");
	if (o->score && (o->n_tokens || o->logits))
		return errbuf_set(err, KV_EINVAL, "--score goes without --tokens and --logits");
	if (!o->draft && (o->draft_tokens || o->n_rows))
		return errbuf_set(err, KV_EINVAL, "--draft-tokens and --rows go with --draft");
	if (o->draft && o->score)
		return errbuf_set(err, KV_EINVAL, "--score goes without --draft");
	if (o->logits && o->n_rows > 1)
		return errbuf_set(err, KV_EINVAL, "--logits goes with one row");
	if (!o->policy != !o->n_slots)
		return errbuf_set(err, KV_EINVAL, "--policy and --slots go together");
	if (o->policy && (o->is_private || o->replay || o->draft))
		return errbuf_set(err, KV_EINVAL,
				  "--policy goes without --private, --replay and --draft");
	if (o->is_private && o->runtime_dir)
		return errbuf_set(err, KV_EINVAL, "--private goes without --runtime-dir");
	return 0;
}

int generate_options_parse(struct generate_options *o, int argc, char **argv, struct errbuf *err)
{
	int option;

	*o = (struct generate_options){.temperature = 0.8, .formats = KV_FORMATS_RAW};
	while ((option = getopt_long(argc, argv, "", names, NULL)) != -1)
		if (parse_one(o, option, err) < 0)
			return -1;
	if (o->help || o->version)
		return 0;
	if (optind < argc)
		return errbuf_set(err, KV_EINVAL, "\"%.40s\" is not an option; see --help",
				  argv[optind]);
	if (check(o, err) < 0)
		return -1;
	o->draft_tokens = o->draft_tokens ? o->draft_tokens : DRAFT_TOKENS;
	o->n_rows = o->n_rows ? o->n_rows : 1;
	return 0;
}
