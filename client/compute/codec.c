#include "client/compute/codec.h"

#include <pthread.h>
#include <stdlib.h>

#include "client/compute/arithmetic.h"
#include "client/compute/fpmode.h"
#include "client/compute/kernels.h"
#include "proto/limits.h"

/* ---- the choice ---------------------------------------------------------------------------- */

static pthread_once_t choose_once = PTHREAD_ONCE_INIT;
static const struct kv_codec_kernels *chosen;
static struct errbuf chosen_error; /* what is wrong with KVCACHE_KERNELS; status 0: nothing */

static const struct kv_codec_kernels *best(void)
{
	size_t i = kv_codec_n_kernels - 1;

	while (i > 0 && !kv_codec_kernels[i].is_supported())
		i--;
	return &kv_codec_kernels[i];
}

const struct kv_codec_kernels *kv_codec_kernels_find(const char *name, struct errbuf *err)
{
	if (!name)
		return best();
	for (size_t i = 0; i < kv_codec_n_kernels; i++) {
		const struct kv_codec_kernels *kernels = &kv_codec_kernels[i];

		if (strcmp(kernels->name, name) != 0)
			continue;
		if (kernels->is_supported())
			return kernels;
		errbuf_set(err, KV_EINVAL, "kernels %s: this machine cannot run them", name);
		return NULL;
	}
	errbuf_set(err, KV_EINVAL, "kernels %s: there are none of this name; the best here are %s",
		   name, best()->name);
	return NULL;
}

static void choose(void)
{
	chosen = kv_codec_kernels_find(secure_getenv("KVCACHE_KERNELS"), &chosen_error);
	if (chosen)
		return;
	errbuf_wrap(&chosen_error, "KVCACHE_KERNELS");
	chosen = best();
}

const struct kv_codec_kernels *kv_codec_kernels_chosen(void)
{
	pthread_once(&choose_once, choose);
	return chosen;
}

const char *kv_codec_kernel_name(void)
{
	return kv_codec_kernels_chosen()->name;
}

/* ---- raw ----------------------------------------------------------------------------------- */

static size_t quantise_raw(const struct kv_codec *codec, size_t n, const char *src,
			   size_t src_stride, const struct kv_codec_at *to)
{
	char *dst = to->codes;

	if (src_stride == codec->bytes.codes && to->codes_stride == src_stride) {
		memcpy(dst, src, n * src_stride);
		return n;
	}
	for (size_t i = 0; i < n; i++)
		memcpy(dst + i * to->codes_stride, src + i * src_stride, codec->bytes.codes);
	return n;
}

static void dequantise_raw(const struct kv_codec *codec, size_t n, const struct kv_codec_at *from,
			   char *dst, size_t dst_stride)
{
	struct kv_codec_at to = {.codes = dst, .codes_stride = dst_stride};

	quantise_raw(codec, n, from->codes, from->codes_stride, &to);
}

static const struct kv_codec_ops raw_ops = {quantise_raw, dequantise_raw};

/* ---- calls --------------------------------------------------------------------------------- */

void kv_codec_use(struct kv_codec *codec, const struct kv_codec_kernels *kernels)
{
	codec->ops = &(*kernels->table)[codec->format][codec->dtype];
	if (codec->format == KV_FORMAT_RAW || codec->width == 0)
		codec->ops = &raw_ops;
	codec->attend = kernels->attend();
}

int kv_codec_init(struct kv_codec *codec, uint32_t format, uint32_t dtype, uint32_t width,
		  struct errbuf *err)
{
	struct kv_format_bytes bytes;

	pthread_once(&choose_once, choose);
	if (chosen_error.status)
		return errbuf_set(err, chosen_error.status, "%s", chosen_error.text);
	if (width > KV_WIDTH_MAX)
		return errbuf_set(err, KV_EINVAL, "width %u; the limit is %u", width, KV_WIDTH_MAX);
	if (kv_format_bytes(format, dtype, width, &bytes, err))
		return -1;
	*codec = (struct kv_codec){.format = format,
				   .dtype = dtype,
				   .width = width,
				   .bytes = bytes,
				   .element_bytes = kv_dtype_bytes(dtype)};
	kv_codec_use(codec, chosen);
	return 0;
}

size_t kv_quantise(const struct kv_codec *codec, size_t n, const void *src, size_t src_stride,
		   const struct kv_codec_at *to)
{
	kv_fpmode mode = kv_fpmode_enter();
	size_t n_stored = codec->ops->quantise(codec, n, src, src_stride, to);

	kv_fpmode_leave(mode);
	return n_stored;
}

void kv_dequantise(const struct kv_codec *codec, size_t n, const struct kv_codec_at *from,
		   void *dst, size_t dst_stride)
{
	kv_fpmode mode = kv_fpmode_enter();

	codec->ops->dequantise(codec, n, from, dst, dst_stride);
	kv_fpmode_leave(mode);
}
