/*
 * Sets of kernels: for each format and dtype a pair of functions that do the work, and one table of
 * those of attention.
 *
 * The scalar set is the reference that defines every bit (scalar.c); the others are the same
 * arithmetic on many elements at once and must give the same bytes. kernels_x86.c or
 * kernels_portable.c, picked by the build, lists what there is, best last. A set for another
 * machine (NEON, say) is one more file that fills in the primitives of vector.h and one more row.
 */
#ifndef KV_CLIENT_COMPUTE_KERNELS_H
#define KV_CLIENT_COMPUTE_KERNELS_H

#include <stdbool.h>

#include "client/compute/attend.h"

/* As kv_quantise and kv_dequantise, of which they are the inside. */
struct kv_codec_ops {
	size_t (*quantise)(const struct kv_codec *codec, size_t n, const char *src,
			   size_t src_stride, const struct kv_codec_at *to);
	void (*dequantise)(const struct kv_codec *codec, size_t n, const struct kv_codec_at *from,
			   char *dst, size_t dst_stride);
};

/*
 * As the calls of attend.h, of which they are the inside. A set for another machine (NEON) is one
 * more file with one such table. The AVX-512 set uses that of AVX2: bytes come no faster.
 */
struct kv_attend_ops {
	void (*scores)(const struct kv_codec *codec, const struct kv_attend_query *query,
		       uint32_t n, const struct kv_codec_at *rows,
		       const struct kv_attend_ahead *ahead, float scale, float *s, size_t s_stride);
	void (*mix)(const struct kv_codec *codec, uint32_t n_queries, const float *w,
		    size_t w_stride, uint32_t n, const struct kv_codec_at *rows,
		    const struct kv_attend_ahead *ahead, float *o, size_t o_stride);
	/* One query of stride elements, as integers; what one stands for in *unit. Their sum. */
	int32_t (*integers)(const float *q, uint32_t n, int16_t *q16, float *unit);
	float (*softmax)(float *s, uint32_t n, float m, float *sum);
	void (*scale)(float *o, uint32_t n, float x);
	void (*merge)(float *o, uint32_t n, float b, const float *x, float a);
};

extern const struct kv_attend_ops kv_attend_scalar;
extern const struct kv_attend_ops kv_attend_avx2;

#define KV_DTYPE_MAX KV_DTYPE_BF16

/* [format][dtype]; raw is the same for all sets and has no row (codec.c). */
typedef struct kv_codec_ops kv_codec_table[KV_FORMAT_MAX + 1][KV_DTYPE_MAX + 1];

struct kv_codec_kernels {
	const char *name;
	bool (*is_supported)(void); /* by this machine */
	const kv_codec_table *table;
	const struct kv_attend_ops *(*attend)(void); /* what of it this machine can run */
};

extern const struct kv_codec_kernels kv_codec_kernels[];
extern const size_t kv_codec_n_kernels;

extern const kv_codec_table kv_codec_scalar;
extern const kv_codec_table kv_codec_avx2;
extern const kv_codec_table kv_codec_avx512;

/* Puts a codec on certain kernels, whatever the machine would choose: for tests. */
void kv_codec_use(struct kv_codec *codec, const struct kv_codec_kernels *kernels);

/*
 * The kernels of a name, or, where name is NULL, the best; NULL with KV_EINVAL if there are none
 * of that name, or this machine cannot run them.
 */
const struct kv_codec_kernels *kv_codec_kernels_find(const char *name, struct errbuf *err);

/* Those that new codecs use. */
const struct kv_codec_kernels *kv_codec_kernels_chosen(void);

#endif
