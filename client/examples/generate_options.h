/* generate_options: the command line of kvc-generate. */
#ifndef KV_EXAMPLES_GENERATE_OPTIONS_H
#define KV_EXAMPLES_GENERATE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/examples/kv_formats.h"

struct generate_options {
	const char *model, *tokenizer, *prompt, *ids, *score, *logits, *runtime_dir;
	const char *draft;     /* NULL: no drafts */
	uint64_t draft_tokens; /* that are drafted in a step */
	uint64_t n_rows;       /* 1 without drafts */
	const char *policy;    /* NULL: none */
	uint64_t n_slots;      /* with a policy */
	uint64_t n_tokens, seed;
	double temperature;
	struct kv_formats formats;
	bool is_private, replay, json;
	bool help, version; /* asked for; nothing else was checked */
};

/* 0, or -1 with err filled. The texts point into argv. */
int generate_options_parse(struct generate_options *o, int argc, char **argv, struct errbuf *err);

extern const char generate_help[];

#endif
