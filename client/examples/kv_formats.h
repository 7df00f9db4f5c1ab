/*
 * kv_formats: in which storage formats a cache keeps K and V, and their names as people give
 * them: "int8", or "int8:u4" for K and V.
 *
 * Thread: any.
 */
#ifndef KV_EXAMPLES_KV_FORMATS_H
#define KV_EXAMPLES_KV_FORMATS_H

#include <stdbool.h>

#include "proto/errbuf.h"
#include "proto/format.h"

struct kv_formats {
	uint32_t k, v; /* enum kv_format */
};

#define KV_FORMATS_RAW ((struct kv_formats){KV_FORMAT_RAW, KV_FORMAT_RAW})
#define KV_FORMATS_TEXT_BYTES 32

static inline bool kv_formats_are_raw(struct kv_formats f)
{
	return f.k == KV_FORMAT_RAW && f.v == KV_FORMAT_RAW;
}

/* 0, or -1 with err filled: names the word that is no format, and those that are. */
int kv_formats_parse(const char *text, struct kv_formats *out, struct errbuf *err);

void kv_formats_text(struct kv_formats f, char text[KV_FORMATS_TEXT_BYTES]);

#endif
