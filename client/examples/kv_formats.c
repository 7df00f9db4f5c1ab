#include "client/examples/kv_formats.h"

#include <stdio.h>
#include <string.h>

static int parse_one(const char *text, size_t n, uint32_t *out, struct errbuf *err)
{
	char name[16] = "", known[96] = "";

	if (n < sizeof(name))
		memcpy(name, text, n);
	*out = kv_format_find(name);
	if (*out)
		return 0;
	for (uint32_t f = 1; f <= KV_FORMAT_MAX; f++) {
		size_t at = strlen(known);

		snprintf(known + at, sizeof(known) - at, "%s%s", f > 1 ? ", " : "",
			 kv_format_name(f));
	}
	return errbuf_set(err, KV_EINVAL, "\"%.*s\" is no format; formats are %s",
			  (int)(n > 40 ? 40 : n), text, known);
}

int kv_formats_parse(const char *text, struct kv_formats *out, struct errbuf *err)
{
	size_t n_k = strcspn(text, ":");
	const char *v = text[n_k] ? text + n_k + 1 : text;

	if (parse_one(text, n_k, &out->k, err) < 0)
		return -1;
	return parse_one(v, strlen(v), &out->v, err);
}

void kv_formats_text(struct kv_formats f, char text[KV_FORMATS_TEXT_BYTES])
{
	if (f.k == f.v)
		snprintf(text, KV_FORMATS_TEXT_BYTES, "%s", kv_format_name(f.k));
	else
		snprintf(text, KV_FORMATS_TEXT_BYTES, "%s:%s", kv_format_name(f.k),
			 kv_format_name(f.v));
}
