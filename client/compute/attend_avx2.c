/*
 * Attention for AVX2, FMA and F16C: what attend_scalar.c does, 8 or 16 elements at a time and in
 * blocks of queries and rows, bit for bit. Built for those instructions, so nothing here may run
 * before kernels_x86.c has asked for them.
 *
 * Queries go by 4, the rest by 2 and 1 (attend_scores_avx2.h, attend_mix_avx2.h); for many of them
 * rows are unpacked first (attend_many_avx2.h). The memory that the caller will want next is asked
 * for on the way. Widths that are no multiple of 16 (u4: its half) are copied first, and continued
 * with zeros.
 */
#include "client/compute/attend_many_avx2.h"

/* ---- the table ----------------------------------------------------------------------------- */

#define DEFINE(name, load) \
	static void scores_##name(const struct kv_codec *codec, \
				  const struct kv_attend_query *query, uint32_t n, \
				  const struct kv_codec_at *rows, \
				  const struct kv_attend_ahead *ahead, float scale, float *s, \
				  size_t s_stride) \
	{ \
		struct tile t; \
\
		tile_init(load, &t, codec, n, rows, ahead); \
		if (query->n >= MANY && can_unpack(load, &t)) \
			scores_of_many(load, &t, query, scale, s, s_stride); \
		else \
			scores_of(load, &t, query, scale, s, s_stride); \
	} \
	static void mix_##name(const struct kv_codec *codec, uint32_t n_queries, const float *w, \
			       size_t w_stride, uint32_t n, const struct kv_codec_at *rows, \
			       const struct kv_attend_ahead *ahead, float *o, size_t o_stride) \
	{ \
		struct tile t; \
\
		tile_init(load, &t, codec, n, rows, ahead); \
		if (n_queries >= MANY) \
			mix_of_many(load, &t, n_queries, w, w_stride, o, o_stride); \
		else \
			mix_of(load, &t, n_queries, w, w_stride, o, o_stride); \
	}

DEFINE(f32, LOAD_F32)
DEFINE(f16, LOAD_F16)
DEFINE(bf16, LOAD_BF16)
DEFINE(fp8, LOAD_FP8)
DEFINE(i8, LOAD_I8)
DEFINE(u8, LOAD_U8)
DEFINE(u4, LOAD_U4)
DEFINE(q4, LOAD_Q4)

static const struct kv_attend_ops by_load[N_LOADS] = {
	[LOAD_F32] = {.scores = scores_f32, .mix = mix_f32},
	[LOAD_F16] = {.scores = scores_f16, .mix = mix_f16},
	[LOAD_BF16] = {.scores = scores_bf16, .mix = mix_bf16},
	[LOAD_FP8] = {.scores = scores_fp8, .mix = mix_fp8},
	[LOAD_I8] = {.scores = scores_i8, .mix = mix_i8},
	[LOAD_U8] = {.scores = scores_u8, .mix = mix_u8},
	[LOAD_U4] = {.scores = scores_u4, .mix = mix_u4},
	[LOAD_Q4] = {.scores = scores_q4, .mix = mix_q4},
};

static enum load load_of(const struct kv_codec *codec)
{
	switch (codec->format) {
	case KV_FORMAT_RAW:
		return codec->dtype == KV_DTYPE_F32 ? LOAD_F32 :
		       codec->dtype == KV_DTYPE_F16 ? LOAD_F16 :
						      LOAD_BF16;
	case KV_FORMAT_FP8: return LOAD_FP8;
	case KV_FORMAT_U8: return LOAD_U8;
	case KV_FORMAT_U4: return LOAD_U4;
	case KV_FORMAT_Q4: return LOAD_Q4;
	default: return LOAD_I8;
	}
}

/* ---- odd widths ---------------------------------------------------------------------------- */

static bool is_odd(const struct kv_codec *codec)
{
	return codec->width % (codec->format == KV_FORMAT_U4 ? 2 * STEP : STEP) != 0;
}

/* Copies of some rows, continued with zeros. */
struct copies {
	char bytes[BLOCK][KV_ATTEND_WIDTH_MAX * sizeof(float)];
	struct kv_codec_at rows;
	struct kv_codec codec; /* u4: of the copies' width; else as it was */
	uint32_t n;
};

static void copy_rows(struct copies *copies, const struct kv_codec *codec, uint32_t first,
		      uint32_t n, const struct kv_codec_at *rows)
{
	copies->n = n - first < BLOCK ? n - first : BLOCK;
	copies->rows = kv_codec_at(rows, first);
	copies->rows.codes = copies->bytes;
	copies->rows.codes_stride = sizeof(copies->bytes[0]);
	copies->codec = *codec;
	for (uint32_t i = 0; i < copies->n; i++) {
		struct kv_codec_at at = kv_codec_at(rows, first + i);

		memset(copies->bytes[i], 0, sizeof(copies->bytes[i]));
		memcpy(copies->bytes[i], at.codes, codec->bytes.codes);
	}
}

static void scores(const struct kv_codec *codec, const struct kv_attend_query *query, uint32_t n,
		   const struct kv_codec_at *rows, const struct kv_attend_ahead *ahead, float scale,
		   float *s, size_t s_stride)
{
	const struct kv_attend_ops *ops = &by_load[load_of(codec)];
	struct copies copies;

	if (n == 0)
		return;
	if (!is_odd(codec)) {
		ops->scores(codec, query, n, rows, ahead, scale, s, s_stride);
		return;
	}
	for (uint32_t i = 0; i < n; i += BLOCK) {
		copy_rows(&copies, codec, i, n, rows);
		ops->scores(&copies.codec, query, copies.n, &copies.rows, NULL, scale, s + i,
			    s_stride);
	}
}

/* The sums of one query, continued to whole steps; in u4 each half is. */
static void copy_sums(const struct kv_codec *codec, float *wide, float *o, bool back)
{
	uint32_t n = codec->format == KV_FORMAT_U4 ? codec->width / 2 : codec->width;
	uint32_t n_wide = (n + STEP - 1) / STEP * STEP;

	for (uint32_t i = 0, k = 0; i < codec->width; i += n, k += n_wide)
		memcpy(back ? o + i : wide + k, back ? wide + k : o + i, n * sizeof(*o));
}

static void mix_odd(const struct kv_codec *codec, const float *w, uint32_t n,
		    const struct kv_codec_at *rows, float *o)
{
	float wide[KV_ATTEND_WIDTH_MAX + 2 * STEP] = {0};
	struct copies copies;

	copy_sums(codec, wide, o, false);
	for (uint32_t i = 0; i < n; i += BLOCK) {
		copy_rows(&copies, codec, i, n, rows);
		if (codec->format == KV_FORMAT_U4)
			copies.codec.width = (codec->width / 2 + STEP - 1) / STEP * STEP * 2;
		by_load[load_of(codec)].mix(&copies.codec, 1, w + i, 0, copies.n, &copies.rows,
					    NULL, wide, 0);
	}
	copy_sums(codec, wide, o, true);
}

static void mix(const struct kv_codec *codec, uint32_t n_queries, const float *w, size_t w_stride,
		uint32_t n, const struct kv_codec_at *rows, const struct kv_attend_ahead *ahead,
		float *o, size_t o_stride)
{
	if (n == 0)
		return;
	if (!is_odd(codec)) {
		by_load[load_of(codec)].mix(codec, n_queries, w, w_stride, n, rows, ahead, o,
					    o_stride);
		return;
	}
	for (uint32_t j = 0; j < n_queries; j++)
		mix_odd(codec, w + j * w_stride, n, rows, o + j * o_stride);
}

const struct kv_attend_ops kv_attend_avx2 = {scores,
					     mix,
					     kv_attend_integers_avx2,
					     kv_attend_softmax_avx2,
					     kv_attend_scale_avx2,
					     kv_attend_merge_avx2};
