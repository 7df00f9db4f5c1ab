/*
 * Codecs of the storage formats: vectors in the compute dtype to stored bytes, and back.
 *
 * Promise: one vector is one quantisation group (q4: its groups of 32 elements), so nothing that
 * is stored ever depends on a neighbour. The bytes are the same on every machine and with every
 * set of kernels, and whatever rounding or flushing the calling thread has switched on. A vector
 * that a format cannot hold (NaN or infinity in it) is refused, never stored as something else.
 * kvcache-formats(7) has the arithmetic, the rules for odd vectors and the error bounds.
 *
 * A codec is a value: initialised once for a region of a layout, then shared by any number of
 * threads. No call allocates, keeps anything, or has a set-up that a call for one vector would
 * feel. Pointers need the alignment of their elements only where the caller has it anyway: codes,
 * scales, zero points and vectors may lie at any address. Stored bytes and vectors do not overlap.
 */
#ifndef KV_CLIENT_COMPUTE_CODEC_H
#define KV_CLIENT_COMPUTE_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "proto/errbuf.h"
#include "proto/format.h"

struct kv_codec_ops;
struct kv_attend_ops;

/* What a region holds. Read it, do not write it. */
struct kv_codec {
	uint32_t format, dtype, width;
	struct kv_format_bytes bytes; /* of one vector in each part */
	uint32_t element_bytes;       /* of the dtype */
	const struct kv_codec_ops *ops;
	const struct kv_attend_ops *attend; /* client/compute/attend.h */
};

/*
 * 0; -1 with KV_EUNSUPPORTED (unknown format or dtype), KV_EINVAL (a width that the format cannot
 * hold; KVCACHE_KERNELS names kernels that are not there or that this machine cannot run). A
 * width of 0 is fine and takes no bytes.
 */
int kv_codec_init(struct kv_codec *codec, uint32_t format, uint32_t dtype, uint32_t width,
		  struct errbuf *err);

/*
 * Where vectors lie stored: part p of vector i is at p + i * p_stride. scale and zero are not
 * looked at where the format has none.
 */
struct kv_codec_at {
	void *codes, *scale, *zero;
	size_t codes_stride, scale_stride, zero_stride; /* bytes */
};

/* The same, from vector i on. (A part that is not there moves too: as a number.) */
static inline struct kv_codec_at kv_codec_at(const struct kv_codec_at *at, size_t i)
{
	struct kv_codec_at moved = *at;

	moved.codes = (void *)((uintptr_t)at->codes + i * at->codes_stride);
	moved.scale = (void *)((uintptr_t)at->scale + i * at->scale_stride);
	moved.zero = (void *)((uintptr_t)at->zero + i * at->zero_stride);
	return moved;
}

/*
 * Stores n vectors; vector i is at src + i * src_stride, its elements dense. Returns n, or the
 * index of the first vector that cannot be stored (a NaN or an infinity in a quantised format):
 * those before it are stored, that one and those behind it are untouched.
 */
size_t kv_quantise(const struct kv_codec *codec, size_t n, const void *src, size_t src_stride,
		   const struct kv_codec_at *to);

/*
 * Reads n vectors into dst + i * dst_stride, in the codec's dtype. Any bytes may lie there:
 * damaged ones give some values, never a fault. What kv_quantise stored gives finite values.
 */
void kv_dequantise(const struct kv_codec *codec, size_t n, const struct kv_codec_at *from,
		   void *dst, size_t dst_stride);

/*
 * How far n vectors are from what is stored of them: the L2 norm of the differences, which are
 * rounded to the dtype first (kvcache-formats(7)), at (char *)error + i * error_stride. Infinite
 * where the sum of squares leaves f32.
 */
void kv_quantise_error(const struct kv_codec *codec, size_t n, const void *src, size_t src_stride,
		       const struct kv_codec_at *stored, float *error, size_t error_stride);

/*
 * The published bound: no element of a vector whose elements lie in least .. greatest comes back
 * from its stored form further away than this. 0 for raw.
 */
float kv_codec_error_bound(const struct kv_codec *codec, float least, float greatest);

/*
 * The kernels that new codecs use: "scalar", "avx2" or "avx512"; the best that this machine can
 * run, or what the environment's KVCACHE_KERNELS names (not heeded in a set-user-ID program).
 * Chosen at the first call of this or of kv_codec_init, for good.
 */
const char *kv_codec_kernel_name(void);

#endif
