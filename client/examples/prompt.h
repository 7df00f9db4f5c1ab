/*
 * prompt: token ids from a file, as text or as numbers.
 *
 * Thread: any.
 */
#ifndef KV_EXAMPLES_PROMPT_H
#define KV_EXAMPLES_PROMPT_H

#include "client/examples/tokenizer.h"

struct prompt {
	uint32_t *ids;
	size_t n;
};

/* The whole file, encoded. 0, or -1 with err filled. The caller calls prompt_fini in any case. */
int prompt_from_text(struct prompt *p, const struct tokenizer *tok, const char *path,
		     struct errbuf *err);

/* A file with one id a line, in decimal; blank lines are skipped. */
int prompt_from_ids(struct prompt *p, const char *path, struct errbuf *err);

void prompt_fini(struct prompt *p);

#endif
