#include "proto/format.h"

#include <string.h>

static const char *const dtype_names[] = {"?", "f32", "f16", "bf16"};
static const char *const format_names[] = {"?",  "raw", "int8", "u8",
					   "u4", "q4",  "fp8",  "int8-model"};

uint32_t kv_dtype_bytes(uint32_t dtype)
{
	if (dtype == KV_DTYPE_F32)
		return 4;
	return dtype == KV_DTYPE_F16 || dtype == KV_DTYPE_BF16 ? 2 : 0;
}

const char *kv_dtype_name(uint32_t dtype)
{
	return dtype_names[dtype <= KV_DTYPE_BF16 ? dtype : 0];
}

const char *kv_format_name(uint32_t format)
{
	return format_names[format <= KV_FORMAT_MAX ? format : 0];
}

uint32_t kv_format_find(const char *name)
{
	for (uint32_t f = KV_FORMAT_RAW; f <= KV_FORMAT_MAX; f++)
		if (strcmp(format_names[f], name) == 0)
			return f;
	return 0;
}

/* Which widths a format can hold. */
struct width_rule {
	uint32_t least, multiple;
};
static const struct width_rule width_rules[] = {
	[KV_FORMAT_RAW] = {1, 1},           [KV_FORMAT_INT8] = {2, 1},
	[KV_FORMAT_U8] = {16, 1},           [KV_FORMAT_U4] = {16, 2},
	[KV_FORMAT_Q4] = {32, KV_Q4_GROUP}, [KV_FORMAT_FP8] = {1, 1},
	[KV_FORMAT_INT8_MODEL] = {2, 1},
};

static int check_width(uint32_t format, uint32_t width, struct errbuf *err)
{
	const struct width_rule *rule = &width_rules[format];

	if (width >= rule->least && width % rule->multiple == 0)
		return 0;
	if (rule->multiple == 1)
		return errbuf_set(err, KV_EINVAL,
				  "width %u with format %s, which holds %u and more", width,
				  kv_format_name(format), rule->least);
	return errbuf_set(err, KV_EINVAL,
			  "width %u with format %s, which holds multiples of %u from %u on", width,
			  kv_format_name(format), rule->multiple, rule->least);
}

int kv_format_bytes(uint32_t format, uint32_t dtype, uint32_t width, struct kv_format_bytes *bytes,
		    struct errbuf *err)
{
	uint32_t element = kv_dtype_bytes(dtype);

	*bytes = (struct kv_format_bytes){0, 0, 0};
	if (format < KV_FORMAT_RAW || format > KV_FORMAT_MAX || element == 0)
		return errbuf_set(err, KV_EUNSUPPORTED, "format %u, dtype %u: unknown", format,
				  dtype);
	if (width == 0)
		return 0;
	if (check_width(format, width, err))
		return -1;
	switch (format) {
	case KV_FORMAT_RAW: bytes->codes = width * element; break;
	case KV_FORMAT_INT8:
	case KV_FORMAT_INT8_MODEL: *bytes = (struct kv_format_bytes){width, element, 0}; break;
	case KV_FORMAT_U8: *bytes = (struct kv_format_bytes){width, 4, 4}; break;
	case KV_FORMAT_U4: *bytes = (struct kv_format_bytes){width / 2, 4, 4}; break;
	case KV_FORMAT_Q4:
		*bytes = (struct kv_format_bytes){width / 2, width / KV_Q4_GROUP * 2, 0};
		break;
	default: *bytes = (struct kv_format_bytes){width, 4, 0}; break;
	}
	return 0;
}
