/*
 * tokenizer: byte-level BPE.
 *
 * Ids 0..255 are the bytes. Line r (from 0) of the merge file, "left right", makes id 256 + r
 * from two smaller ids; a token's bytes are those of the left one followed by those of the right
 * one. Text is cut into chunks by ` ?[A-Za-z\x80-\xff]+|.` (on bytes; `.` is every byte), and
 * merges never cross a chunk.
 *
 * Promise: encode takes every byte string, also with NUL bytes and broken UTF-8, and decode of
 * its result gives the same bytes. A merge file that breaks the rules is refused with its line.
 *
 * Thread: a tokenizer is read-only once open.
 */
#ifndef KV_EXAMPLES_TOKENIZER_H
#define KV_EXAMPLES_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "proto/errbuf.h"

#define TOKENIZER_MAX_MERGES 65536
#define TOKENIZER_MAX_TOKEN_BYTES 4096

struct tokenizer;

/* 0, or -1 with err filled; *out is then NULL. */
int tokenizer_open(struct tokenizer **out, const char *path, struct errbuf *err);
void tokenizer_close(struct tokenizer *tok);

/* How many ids there are: 256 and the merges. */
size_t tokenizer_n_ids(const struct tokenizer *tok);

/* Ids of n_bytes bytes into ids, which has room for n_bytes of them; returns how many. */
size_t tokenizer_encode(const struct tokenizer *tok, const unsigned char *bytes, size_t n_bytes,
			uint32_t *ids);

/* The bytes of one id, owned by tok; NULL and 0 for an id that does not exist. */
const unsigned char *tokenizer_decode(const struct tokenizer *tok, uint32_t id, size_t *n_bytes);

#endif
