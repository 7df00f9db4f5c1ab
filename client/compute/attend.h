/*
 * The inside of attention over stored bytes: scores of stored keys, and sums of stored values, of
 * one query group (KV head), a few rows at a time. client/attend.c walks a sequence with it.
 *
 * Promise: every result has one order of operations. A score or an element of a sum has the same
 * bits with every set of kernels, whatever else is computed with it: how many queries and rows a
 * call has, and where the rows lie, changes nothing. Only where a result is no number, which NaN it
 * is may differ. kv_codec_kernel_name() says which set runs (avx2 without FMA: the scalar one).
 *
 * Every line is one binary32 operation, rounded to nearest; fma is one. dot8 is eight partial sums
 * and a tree: p[l] = 0, then fma(x[i], y[i], p[i mod 8]) from the first element to the last, the
 * vectors continued with zeros to a multiple of 16; then
 * ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7)).
 *
 *   score          t * scale, or (t * scale) * row scale in fp8, where t is
 *     raw, fp8       dot8 of the query and the elements (fp8: without the row's scale)
 *                  (t * (unit * scale)) * row scale, where t is
 *     int8           the exact sum of q16 * code, as f32
 *     u8, u4         the exact sum S of q16 * code, then f64 fma(-zero, sum16, S), as f32
 *                  t * (unit * scale), where t is
 *     q4             p[l] = fma(f32(n), scale, p[l]) for each group of 32 from the first, n the
 *                    exact sum of q16 * code of its elements i with (i mod 16) / 2 = l; the tree
 *   sum of values  o[d] = fma(w, v[d], o[d]), from the first row
 *     raw            v[d] is the element
 *     int8, fp8      the code's value; w times the row's scale in place of w
 *     u8, u4         code - zero, in int32, as f32; w times the row's scale in place of w
 *     q4             code * scale of the group, which is exact
 *   exponential    kv_attend_exp, a polynomial: the same operations everywhere
 *
 * Error of a score, against the exact product with code * scale as it is stored: with A the sum of
 * |q[i]| * |k[i]| and B the sum of |k[i]| times max |q|, at most
 *
 *   raw, fp8       |scale| * A * (width / 8 + 8) * 2^-24
 *   int8, u8, u4   |scale| * (B * 2^-15.9 + A * 2^-20)
 *   q4             the same
 *
 * and of an element of a sum of n values, with C the sum of |w| * |v[d]|, C * (n + 3) * 2^-24,
 * as long as nothing leaves the range of f32 (2^-60 to 2^60 for all that is not 0 is enough). A
 * query whose largest magnitude is below 2^-100 counts as 0 with integer codes.
 *
 * The caller has the thread's floating-point settings at IEEE's own for the time of all this
 * (client/compute/fpmode.h, once for all calls of a kvc_attend): nothing here looks at them.
 *
 * Thread: no state; any.
 */
#ifndef KV_CLIENT_COMPUTE_ATTEND_H
#define KV_CLIENT_COMPUTE_ATTEND_H

#include "client/compute/codec.h"

/* Slots that are scored, then summed: the most rows of a call. */
#define KV_ATTEND_TILE 64u
/* Keys that are summed from nothing, tile by tile, before they are added to those before: part of
 * the order of operations, for whoever goes through tiles. */
#define KV_ATTEND_SPAN 4096u
/* Elements of a vector, at most. */
#define KV_ATTEND_WIDTH_MAX 256u

/*
 * Queries of one query group as kernels want them: kv_attend_query_init makes them from n f32
 * vectors (q_stride floats apart), in memory of the caller: kv_attend_query_bytes(width, n) bytes,
 * aligned to 32. Elements that are not finite give scores that are no numbers, or infinite.
 */
struct kv_attend_query {
	uint32_t n, width;
	size_t stride;      /* elements from one query to the next: width, made a multiple of 16 */
	const float *f32;   /* [n][stride], zeros behind width */
	const int16_t *q16; /* [n][stride], the same: rint(q * (32767 / max |q|)) */
	const float
		*unit; /* [n]: what one of q16 stands for: max |q| / 32767, 0 for a zero query */
	const int32_t *sum16; /* [n]: of q16 */
};

size_t kv_attend_query_bytes(uint32_t width, uint32_t n);
void kv_attend_query_init(struct kv_attend_query *query, uint32_t width, uint32_t n, const float *q,
			  size_t q_stride, void *memory);

/* Queries [first, first + n) of them. */
struct kv_attend_query kv_attend_query_part(const struct kv_attend_query *query, uint32_t first,
					    uint32_t n);

/*
 * What comes next, for the memory to be asked for early: while row i of a call is computed, the
 * `bytes` bytes at at + i * stride are. One head's rows are some hundred bytes with as much of each
 * other head between: whoever goes through the heads of a tile one after the other asks, in the
 * call for head h, for bytes [h * 64 * c, (h + 1) * 64 * c) of the next tile's codes, c those of
 * one vector (stride = bytes = c): memory is then read in a row, which is faster by half than rows
 * of the head itself (at = the next tile's row 0, stride that of the rows). Nothing has to be
 * there.
 */
struct kv_attend_ahead {
	const void *at;
	size_t stride;
	uint32_t bytes;
};

/*
 * s[j * s_stride + i] = scale * (query j . row i), for n rows (at most KV_ATTEND_TILE) stored as
 * the codec has it: row i at kv_codec_at(rows, i) (strides are from slot to slot: a row of the
 * arena has all heads). ahead: NULL, or what comes next.
 */
void kv_attend_scores(const struct kv_codec *codec, const struct kv_attend_query *query, uint32_t n,
		      const struct kv_codec_at *rows, const struct kv_attend_ahead *ahead,
		      float scale, float *s, size_t s_stride);

/*
 * o[j * o_stride + d] += sum over rows i of w[j * w_stride + i] * value i [d], from the first row
 * on, for n_queries queries. A weight of 0 skips nothing: 0 times what is no number is none. So
 * rows that a query does not see are left out by the caller.
 */
void kv_attend_mix(const struct kv_codec *codec, uint32_t n_queries, const float *w,
		   size_t w_stride, uint32_t n, const struct kv_codec_at *rows,
		   const struct kv_attend_ahead *ahead, float *o, size_t o_stride);

/* A codec for vectors in the dtype, as the current tokens and the rows of a replay journal are:
 * kv_codec_init with KV_FORMAT_RAW. */

/* exp(x) for x <= 0: at most 2 ulp from it, denormals too; 0 from -104 down; NaN gives NaN. */
float kv_attend_exp(float x);

/*
 * One tile of an online softmax. s: n scores of one query, at most KV_ATTEND_TILE; m: the largest
 * score before it (-INFINITY: none). Returns the largest with them, M, NaN not counted, never -0;
 * s[i] becomes exp(s[i] - M), their sum, in eight partial sums i mod 8 and the tree, goes to *sum.
 * Where M is -INFINITY all are 0 (NaN stays NaN).
 */
float kv_attend_softmax(float *s, uint32_t n, float m, float *sum);

/* o[i] *= x, and o[i] = a * x[i] + b * o[i] by fma(a, x[i], b * o[i]): to merge what spans gave. */
void kv_attend_scale(float *o, uint32_t n, float x);
void kv_attend_merge(float *o, uint32_t n, float b, const float *x, float a);

#endif
