/*
 * safetensors: reads a file of named tensors (8 bytes little-endian header length, a JSON header,
 * the data).
 *
 * Promise: after safetensors_open every tensor that the file names lies inside the file, has
 * exactly the bytes that its type and shape ask for, and shares none with another one. Anything
 * else is refused with the name of the tensor and the numbers that disagree.
 *
 * The file is read into private memory once, so that whoever shortens or changes it later changes
 * nothing here. Gaps between tensors are allowed: writers align data.
 *
 * Thread: an open file is read-only and may be used by several threads.
 */
#ifndef KV_EXAMPLES_SAFETENSORS_H
#define KV_EXAMPLES_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/errbuf.h"

#define SAFETENSORS_MAX_DIMS 8
#define SAFETENSORS_MAX_HEADER_BYTES 100000000

enum safetensors_type { ST_U8, ST_I8, ST_I16, ST_I32, ST_I64, ST_F16, ST_BF16, ST_F32, ST_F64 };

struct safetensors_tensor {
	const char *name;
	enum safetensors_type type;
	size_t n_dims;
	size_t dims[SAFETENSORS_MAX_DIMS];
	size_t n_elements;
	const unsigned char *data; /* little-endian, not aligned */
	size_t n_bytes;
};

struct safetensors;

/* Reads the file at path. 0, or -1 with err filled; *out is then NULL. */
int safetensors_open(struct safetensors **out, const char *path, struct errbuf *err);

/* As safetensors_open, on bytes in memory; name is only for messages. Copies nothing: bytes must
 * stay until safetensors_close. */
int safetensors_parse(struct safetensors **out, const char *name, const unsigned char *bytes,
		      size_t n_bytes, struct errbuf *err);

/* Frees everything that the calls below have returned. NULL is allowed. */
void safetensors_close(struct safetensors *st);

/* The tensor, or NULL when there is none of that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *st, const char *name);

/* Value of a key of "__metadata__", or NULL. */
const char *safetensors_metadata(const struct safetensors *st, const char *key);

/* The whole file as it was read. */
const unsigned char *safetensors_bytes(const struct safetensors *st, size_t *n_bytes);

/* Name of a type as the format spells it. */
const char *safetensors_type_name(enum safetensors_type type);

#endif
