/*
 * Storage formats: which bytes one vector of K or V takes in a cache, in each of its parts.
 *
 * A vector (one layer, head, slot; `width` elements in the layout's dtype) is stored in up to
 * three parts, each in a plane region of its own (proto/layout.h): codes, scale, zero point. What
 * the bytes mean is the codecs' (client/compute/codec.h) and kvcache-formats(7); this file only
 * knows how many there are and which widths a format can hold, so that the daemon, which never
 * looks into a vector, can size and hash them.
 *
 *   format      codes            scale                          zero point   width
 *   raw         width * dtype    -                              -            any
 *   int8        width            1, in dtype                    -            from 2
 *   int8-model  width            1, in dtype                    -            from 2
 *   u8          width            1, f32                         1, int32     from 16
 *   u4          width / 2        1, f32                         1, int32     from 16, even
 *   q4          width / 2        width / 32, bf16               -            multiples of 32
 *   fp8         width            1, f32 (a power of two)        -            any
 */
#ifndef KV_PROTO_FORMAT_H
#define KV_PROTO_FORMAT_H

#include <stdint.h>

#include "proto/errbuf.h"

/* Numbers are on the wire and in the hash: never changed. */
enum kv_dtype { KV_DTYPE_F32 = 1, KV_DTYPE_F16 = 2, KV_DTYPE_BF16 = 3 };
enum kv_format {
	KV_FORMAT_RAW = 1,  /* the compute dtype */
	KV_FORMAT_INT8 = 2, /* symmetric; arithmetic in f32 */
	KV_FORMAT_U8 = 3,   /* affine */
	KV_FORMAT_U4 = 4,
	KV_FORMAT_Q4 = 5,        /* symmetric, groups of 32 */
	KV_FORMAT_FP8 = 6,       /* e4m3 */
	KV_FORMAT_INT8_MODEL = 7 /* as int8, arithmetic in the compute dtype */
};
#define KV_FORMAT_MAX 7u
#define KV_Q4_GROUP 32u

/* Bytes of one vector in each part. */
struct kv_format_bytes {
	uint32_t codes, scale, zero;
};

/* Bytes of one element of a raw plane; 0 for an unknown dtype. */
uint32_t kv_dtype_bytes(uint32_t dtype);
const char *kv_dtype_name(uint32_t dtype);   /* "bf16"; "?" if unknown */
const char *kv_format_name(uint32_t format); /* "raw", "int8-model" */

/* The number of a name, 0 if there is none. */
uint32_t kv_format_find(const char *name);

/*
 * What a vector of `width` elements takes. 0; -1 with KV_EUNSUPPORTED (unknown format) or
 * KV_EINVAL (a width that the format cannot hold), naming format, width and what it can hold.
 * A width of 0 takes nothing in every format.
 */
int kv_format_bytes(uint32_t format, uint32_t dtype, uint32_t width, struct kv_format_bytes *bytes,
		    struct errbuf *err);

#endif
