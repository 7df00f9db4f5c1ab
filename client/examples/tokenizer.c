#include "client/examples/tokenizer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct merge {
	uint32_t left, right;
};

struct token {
	size_t n_bytes;
	unsigned char *bytes;
};

struct tokenizer {
	size_t n_merges;
	struct merge *merges; /* by rank */
	struct token *tokens; /* by id */
	uint32_t *table;      /* open addressing: rank + 1 of a pair, 0 is empty */
	uint32_t table_mask;
};

static uint32_t pair_hash(uint32_t left, uint32_t right)
{
	return (uint32_t)((left * 0x9e3779b97f4a7c15u ^ right * 0xc2b2ae3d27d4eb4fu) >> 32);
}

/* Where the pair is in the table, or the empty place where it belongs. */
static uint32_t *pair_place(const struct tokenizer *tok, uint32_t left, uint32_t right)
{
	for (uint32_t i = pair_hash(left, right);; i++) {
		uint32_t *place = &tok->table[i & tok->table_mask];

		if (*place == 0 || (tok->merges[*place - 1].left == left &&
				    tok->merges[*place - 1].right == right))
			return place;
	}
}

static int token_init(struct token *t, const struct token *left, const struct token *right)
{
	t->n_bytes = left->n_bytes + right->n_bytes;
	t->bytes = malloc(t->n_bytes);
	if (!t->bytes)
		return -1;
	memcpy(t->bytes, left->bytes, left->n_bytes);
	memcpy(t->bytes + left->n_bytes, right->bytes, right->n_bytes);
	return 0;
}

static int add_merge(struct tokenizer *tok, const char *path, uint32_t left, uint32_t right,
		     struct errbuf *err)
{
	uint32_t rank = (uint32_t)tok->n_merges, id = 256 + rank, *place;

	if (left >= id || right >= id)
		return errbuf_set(err, KV_EPROTO, "%s:%u: ids %u %u must be below %u", path,
				  rank + 1, left, right, id);
	if (tok->tokens[left].n_bytes + tok->tokens[right].n_bytes > TOKENIZER_MAX_TOKEN_BYTES)
		return errbuf_set(err, KV_ETOOBIG, "%s:%u: token is longer than %d bytes", path,
				  rank + 1, TOKENIZER_MAX_TOKEN_BYTES);
	place = pair_place(tok, left, right);
	if (*place)
		return errbuf_set(err, KV_EPROTO, "%s:%u: pair %u %u is already in line %u", path,
				  rank + 1, left, right, *place);
	if (token_init(&tok->tokens[id], &tok->tokens[left], &tok->tokens[right]) < 0)
		return errbuf_set(err, KV_ENOMEM, "%s: out of memory", path);
	tok->merges[rank] = (struct merge){left, right};
	tok->n_merges = rank + 1;
	*place = rank + 1;
	return 0;
}

static int read_merges(struct tokenizer *tok, FILE *file, const char *path, struct errbuf *err)
{
	char line[64], rest;
	unsigned int left, right;

	while (fgets(line, sizeof(line), file)) {
		if (tok->n_merges == TOKENIZER_MAX_MERGES)
			return errbuf_set(err, KV_ETOOBIG, "%s: more than %d merges", path,
					  TOKENIZER_MAX_MERGES);
		/* At most seven digits: larger numbers would be undefined in sscanf. */
		if (sscanf(line, "%7u %7u %c", &left, &right, &rest) != 2)
			return errbuf_set(err, KV_EPROTO, "%s:%zu: not two ids", path,
					  tok->n_merges + 1);
		if (add_merge(tok, path, left, right, err) < 0)
			return -1;
	}
	if (ferror(file))
		return errbuf_errno(err, KV_EINVAL, errno, "%s: read", path);
	return 0;
}

static struct tokenizer *tokenizer_new(void)
{
	struct tokenizer *tok = calloc(1, sizeof(*tok));

	if (!tok)
		return NULL;
	tok->table_mask = 4 * TOKENIZER_MAX_MERGES - 1;
	tok->merges = calloc(TOKENIZER_MAX_MERGES, sizeof(*tok->merges));
	tok->tokens = calloc(256 + TOKENIZER_MAX_MERGES, sizeof(*tok->tokens));
	tok->table = calloc(4 * TOKENIZER_MAX_MERGES, sizeof(*tok->table));
	if (!tok->merges || !tok->tokens || !tok->table)
		goto fail;
	for (unsigned int i = 0; i < 256; i++) {
		tok->tokens[i].bytes = malloc(1);
		if (!tok->tokens[i].bytes)
			goto fail;
		tok->tokens[i].bytes[0] = (unsigned char)i;
		tok->tokens[i].n_bytes = 1;
	}
	return tok;
fail:
	tokenizer_close(tok);
	return NULL;
}

int tokenizer_open(struct tokenizer **out, const char *path, struct errbuf *err)
{
	struct tokenizer *tok = tokenizer_new();
	FILE *file = NULL;
	int rc = -1;

	*out = NULL;
	if (!tok) {
		errbuf_set(err, KV_ENOMEM, "%s: out of memory", path);
		goto out;
	}
	file = fopen(path, "re");
	if (!file) {
		errbuf_errno(err, KV_ENOTFOUND, errno, "%s: cannot open", path);
		goto out;
	}
	if (read_merges(tok, file, path, err) < 0)
		goto out;
	*out = tok;
	tok = NULL;
	rc = 0;
out:
	if (file)
		fclose(file);
	tokenizer_close(tok);
	return rc;
}

void tokenizer_close(struct tokenizer *tok)
{
	if (!tok)
		return;
	for (size_t i = 0; tok->tokens && i < 256 + tok->n_merges; i++)
		free(tok->tokens[i].bytes);
	free(tok->merges);
	free(tok->tokens);
	free(tok->table);
	free(tok);
}

size_t tokenizer_n_ids(const struct tokenizer *tok)
{
	return 256 + tok->n_merges;
}

static bool is_letter(unsigned char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c >= 128;
}

/* Length of the chunk that starts at bytes[0]; n_bytes is at least 1. */
static size_t chunk_bytes(const unsigned char *bytes, size_t n_bytes)
{
	size_t n = 1;

	if (!is_letter(bytes[0]) && !(bytes[0] == ' ' && n_bytes > 1 && is_letter(bytes[1])))
		return 1;
	while (n < n_bytes && is_letter(bytes[n]))
		n++;
	return n;
}

/* Lowest rank of all neighbouring pairs plus one; 0 when none of them is in the table. */
static uint32_t lowest_rank(const struct tokenizer *tok, const uint32_t *ids, size_t n)
{
	uint32_t best = 0;

	for (size_t i = 0; i + 1 < n; i++) {
		uint32_t rank = *pair_place(tok, ids[i], ids[i + 1]);

		if (rank && (!best || rank < best))
			best = rank;
	}
	return best;
}

/*
 * All pairs of the lowest rank are merged in one pass from the left. That is the rule "lowest
 * first, leftmost of those first": a pair that such a merge makes has the new id in it and hence a
 * higher rank, so it waits. A long chunk costs a pass for each rank, not for each merge.
 */
static size_t merge_chunk(const struct tokenizer *tok, uint32_t *ids, size_t n)
{
	uint32_t rank;

	while ((rank = lowest_rank(tok, ids, n)) != 0) {
		struct merge pair = tok->merges[rank - 1];
		size_t n_out = 0;

		for (size_t i = 0; i < n; i++) {
			if (i + 1 < n && ids[i] == pair.left && ids[i + 1] == pair.right) {
				ids[n_out++] = 255 + rank;
				i++;
			} else {
				ids[n_out++] = ids[i];
			}
		}
		n = n_out;
	}
	return n;
}

size_t tokenizer_encode(const struct tokenizer *tok, const unsigned char *bytes, size_t n_bytes,
			uint32_t *ids)
{
	size_t n_ids = 0;

	for (size_t at = 0; at < n_bytes;) {
		size_t n = chunk_bytes(bytes + at, n_bytes - at);

		/* n_ids <= at, so the chunk's single bytes have room behind what is there. */
		for (size_t i = 0; i < n; i++)
			ids[n_ids + i] = bytes[at + i];
		n_ids += merge_chunk(tok, ids + n_ids, n);
		at += n;
	}
	return n_ids;
}

const unsigned char *tokenizer_decode(const struct tokenizer *tok, uint32_t id, size_t *n_bytes)
{
	if (id >= tokenizer_n_ids(tok)) {
		*n_bytes = 0;
		return NULL;
	}
	*n_bytes = tok->tokens[id].n_bytes;
	return tok->tokens[id].bytes;
}
