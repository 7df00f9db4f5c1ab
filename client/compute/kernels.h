/*
 * Sets of kernels: for each format and dtype a pair of functions that do the work.
 *
 * The scalar set is the reference that defines every bit (scalar.c); the others are the same
 * arithmetic on many elements at once and must give the same bytes. kernels_x86.c or
 * kernels_portable.c, picked by the build, lists what there is, best last. A set for another
 * machine (NEON, say) is one more file that fills in the primitives of vector.h and one more row.
 */
#ifndef KV_CLIENT_COMPUTE_KERNELS_H
#define KV_CLIENT_COMPUTE_KERNELS_H

#include <stdbool.h>

#include "client/compute/codec.h"

/* As kv_quantise and kv_dequantise, of which they are the inside. */
struct kv_codec_ops {
	size_t (*quantise)(const struct kv_codec *codec, size_t n, const char *src,
			   size_t src_stride, const struct kv_codec_at *to);
	void (*dequantise)(const struct kv_codec *codec, size_t n, const struct kv_codec_at *from,
			   char *dst, size_t dst_stride);
};

#define KV_DTYPE_MAX KV_DTYPE_BF16

/* [format][dtype]; raw is the same for all sets and has no row (codec.c). */
typedef struct kv_codec_ops kv_codec_table[KV_FORMAT_MAX + 1][KV_DTYPE_MAX + 1];

struct kv_codec_kernels {
	const char *name;
	bool (*is_supported)(void); /* by this machine */
	const kv_codec_table *table;
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

#endif
