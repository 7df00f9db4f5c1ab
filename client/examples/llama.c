#include "client/examples/llama.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/llama_model.h"

/* Slots that are read for all tokens of a chunk before the next ones: small enough to stay near. */
#define BLOCK_SLOTS 32

const struct llama_geometry *llama_geometry(const struct llama *m)
{
	return &m->g;
}

const uint8_t *llama_fingerprint(const struct llama *m)
{
	return m->fingerprint;
}

size_t llama_row_floats(const struct llama *m)
{
	return m->g.n_kv_heads * m->g.head_dim;
}

void llama_set_chunk(struct llama *m, size_t n_tokens)
{
	m->chunk = n_tokens < 1 ? 1 : n_tokens > LLAMA_CHUNK_TOKENS ? LLAMA_CHUNK_TOKENS : n_tokens;
}

/* ---- rotary positions ---- */

/* Angles in f64, their cosine and sine rounded to f32. */
static void rope_table(struct llama *m, size_t first, size_t n)
{
	size_t half = m->g.head_dim / 2;

	for (size_t i = 0; i < half; i++) {
		double base = pow(m->g.rope_theta, -2.0 * (double)i / (double)m->g.head_dim);

		for (size_t t = 0; t < n; t++) {
			double angle = (double)(first + t) * base;

			m->s.cosine[t * half + i] = (float)cos(angle);
			m->s.sine[t * half + i] = (float)sin(angle);
		}
	}
}

/* Turns n_heads heads of each of n tokens; element i goes with element i + half. */
static void rope(const struct llama *m, float *rows, size_t n_heads, size_t n)
{
	size_t dim = m->g.head_dim, half = dim / 2;

	for (size_t t = 0; t < n; t++) {
		const float *c = m->s.cosine + t * half, *s = m->s.sine + t * half;

		for (size_t h = 0; h < n_heads; h++) {
			float *x = rows + (t * n_heads + h) * dim;

			for (size_t i = 0; i < half; i++) {
				float a = x[i], b = x[i + half];

				x[i] = a * c[i] - b * s[i];
				x[i + half] = b * c[i] + a * s[i];
			}
		}
	}
}

/* ---- attention ---- */

/* What one KV head and the n tokens from position `first` on attend to. */
struct attention {
	struct llama *m;
	size_t head; /* KV head */
	size_t first, n;
};

/* One pass over some slots, for one token: the query heads of the group, the rows that it sees. */
typedef void attend_fn(const struct attention *a, size_t token, size_t position,
		       const struct kv_run *slots);

/* Query heads of a KV head. */
static size_t group_of(const struct llama_geometry *g)
{
	return g->n_heads / g->n_kv_heads;
}

static struct rows head_rows(const struct attention *a, const float *at, size_t stride, size_t n)
{
	return (struct rows){at + a->head * a->m->g.head_dim, stride, n};
}

/* The scores of a token, query after query of the group. */
static float *scores_of(const struct attention *a, size_t token)
{
	return a->m->s.scores +
	       (a->head * a->n + token) * group_of(&a->m->g) * a->m->s.scores_stride;
}

static void attend_scores(const struct attention *a, size_t token, size_t position,
			  const struct kv_run *slots)
{
	const struct llama_geometry *g = &a->m->g;
	const struct llama_scratch *s = &a->m->s;
	size_t group = group_of(g);
	struct rows q = {s->q + (token * g->n_heads + a->head * group) * g->head_dim, g->head_dim,
			 group};

	a->m->kernels->scores(q, head_rows(a, slots->k, slots->k_stride, slots->n_slots),
			      g->head_dim, 1.0f / sqrtf((float)g->head_dim),
			      scores_of(a, token) + position, s->scores_stride);
}

static void attend_mix(const struct attention *a, size_t token, size_t position,
		       const struct kv_run *slots)
{
	const struct llama_geometry *g = &a->m->g;
	const struct llama_scratch *s = &a->m->s;
	size_t group = group_of(g);

	a->m->kernels->mix(scores_of(a, token) + position, s->scores_stride, group,
			   head_rows(a, slots->v, slots->v_stride, slots->n_slots), g->head_dim,
			   s->o + (token * g->n_heads + a->head * group) * g->head_dim,
			   g->head_dim);
}

/* Shows the slots of a tile, which starts at `position`, to all tokens, each up to its own. */
static void attend_tile(const struct attention *a, const struct kv_run *tile, size_t position,
			attend_fn *fn)
{
	for (size_t at = 0; at < tile->n_slots; at += BLOCK_SLOTS) {
		struct kv_run block = {tile->k ? tile->k + at * tile->k_stride : NULL,
				       tile->v ? tile->v + at * tile->v_stride : NULL,
				       tile->k_stride, tile->v_stride, 0};
		size_t n = tile->n_slots - at < BLOCK_SLOTS ? tile->n_slots - at : BLOCK_SLOTS;

		for (size_t t = 0; t < a->n; t++) {
			size_t end = a->first + t + 1;

			if (position + at >= end)
				continue;
			block.n_slots = end - (position + at) < n ? end - (position + at) : n;
			fn(a, t, position + at, &block);
		}
	}
}

/* The same for all KV heads, while the tile is there. */
static void attend_heads(struct attention *a, const struct kv_run *tile, size_t position,
			 attend_fn *fn)
{
	for (a->head = 0; a->head < a->m->g.n_kv_heads; a->head++)
		attend_tile(a, tile, position, fn);
}

/* The cached tokens tile by tile, then the chunk's own rows, which are not committed yet: these
 * in full precision, whatever the cache makes of them. */
static int attend_all(struct attention *a, struct kv_cache *kv, size_t layer, unsigned int want,
		      attend_fn *fn, struct errbuf *err)
{
	size_t stride = llama_row_floats(a->m);
	struct kv_run own = {a->m->s.k, a->m->s.v, stride, stride, a->n}, tile;

	for (size_t at = 0; at < kv->n_tokens; at += tile.n_slots) {
		if (kv->ops->tile(kv, layer, at, want, &tile, err) < 0)
			return -1;
		if (tile.n_slots == 0 || tile.n_slots > kv->n_tokens - at)
			return errbuf_set(err, KV_EINTERNAL,
					  "layer %zu: a tile of %zu slots at %zu of %zu", layer,
					  tile.n_slots, at, kv->n_tokens);
		attend_heads(a, &tile, at, fn);
	}
	attend_heads(a, &own, kv->n_tokens, fn);
	return 0;
}

static void softmax_rows(const struct attention *a)
{
	const struct llama_scratch *s = &a->m->s;
	size_t group = group_of(&a->m->g);

	for (size_t i = 0; i < a->n * a->m->g.n_heads; i++)
		s->sums[i] = a->m->kernels->softmax(s->scores + i * s->scores_stride,
						    a->first + i / group % a->n + 1);
}

static void divide_rows(const struct attention *a)
{
	const struct llama_geometry *g = &a->m->g;
	size_t group = group_of(g);

	for (size_t i = 0; i < a->n * g->n_heads; i++) {
		size_t token = i / group % a->n, head = i / group / a->n * group + i % group;
		float *o = a->m->s.o + (token * g->n_heads + head) * g->head_dim;

		for (size_t d = 0; d < g->head_dim; d++)
			o[d] /= a->m->s.sums[i];
	}
}

static int attention(struct llama *m, struct kv_cache *kv, size_t layer, size_t n,
		     struct errbuf *err)
{
	struct attention a = {m, 0, kv->n_tokens, n};

	memset(m->s.o, 0, n * m->g.n_heads * m->g.head_dim * sizeof(float));
	if (attend_all(&a, kv, layer, KV_WANT_K, attend_scores, err) < 0)
		return -1;
	softmax_rows(&a);
	if (attend_all(&a, kv, layer, KV_WANT_V, attend_mix, err) < 0)
		return -1;
	divide_rows(&a);
	return 0;
}

/* ---- one chunk ---- */

static void norm_rows(struct llama *m, const float *gain, size_t n)
{
	for (size_t t = 0; t < n; t++)
		m->kernels->rms_norm(m->s.h + t * m->g.d_model, m->s.x + t * m->g.d_model, gain,
				     m->g.d_model, m->g.norm_eps);
}

/* out = w in, or out += w in, for n tokens; rows lie one behind the other. */
static void apply(const struct llama *m, const struct matrix *w, const float *in, float *out,
		  size_t n, bool add)
{
	m->kernels->matmul(w, (struct rows){in, w->n_in, n}, out, w->n_out, add);
}

static int layer_forward(struct llama *m, struct kv_cache *kv, size_t number, size_t n,
			 struct errbuf *err)
{
	const struct llama_layer *layer = &m->layers[number];
	struct llama_scratch *s = &m->s;

	norm_rows(m, layer->attn_norm, n);
	apply(m, &layer->wq, s->h, s->q, n, false);
	apply(m, &layer->wk, s->h, s->k, n, false);
	apply(m, &layer->wv, s->h, s->v, n, false);
	rope(m, s->q, m->g.n_heads, n);
	rope(m, s->k, m->g.n_kv_heads, n);
	if (kv->ops->write(kv, number, s->k, s->v, err) < 0 || attention(m, kv, number, n, err) < 0)
		return -1;
	apply(m, &layer->wo, s->o, s->x, n, true);
	norm_rows(m, layer->ffn_norm, n);
	apply(m, &layer->w1, s->h, s->w1, n, false);
	apply(m, &layer->w3, s->h, s->w3, n, false);
	m->kernels->swiglu(s->w1, s->w3, n * m->g.d_ffn);
	apply(m, &layer->w2, s->w1, s->x, n, true);
	return 0;
}

static void embed_rows(struct llama *m, const uint32_t *ids, size_t n)
{
	const struct matrix *e = &m->embed;

	for (size_t t = 0; t < n; t++) {
		const float *column = e->panels +
				      ids[t] / MATRIX_PANEL_OUTPUTS * MATRIX_PANEL_OUTPUTS *
					      e->n_in +
				      ids[t] % MATRIX_PANEL_OUTPUTS;

		for (size_t i = 0; i < e->n_in; i++)
			m->s.x[t * e->n_in + i] = column[i * MATRIX_PANEL_OUTPUTS];
	}
}

/* The score rows hold all positions up to the end of the chunk. */
static int grow_scores(struct llama *m, size_t n_positions, struct errbuf *err)
{
	size_t rows = m->g.n_heads * LLAMA_CHUNK_TOKENS;
	size_t stride = (n_positions + 1023) / 1024 * 1024;
	float *scores;

	if (stride <= m->s.scores_stride)
		return 0;
	scores = realloc(m->s.scores, rows * stride * sizeof(*scores));
	if (!scores)
		return errbuf_set(err, KV_ENOMEM, "no memory for %zu positions", n_positions);
	m->s.scores = scores;
	m->s.scores_stride = stride;
	return 0;
}

/* Logits after the last n_rows tokens of the chunk. */
static int chunk_forward(struct llama *m, struct kv_cache *kv, const uint32_t *ids, size_t n,
			 float *logits, size_t n_rows, struct errbuf *err)
{
	if (grow_scores(m, kv->n_tokens + n, err) < 0 || kv->ops->begin(kv, n, err) < 0)
		return -1;
	embed_rows(m, ids, n);
	rope_table(m, kv->n_tokens, n);
	for (size_t i = 0; i < m->g.n_layers; i++)
		if (layer_forward(m, kv, i, n, err) < 0)
			return -1;
	if (n_rows) {
		norm_rows(m, m->norm, n);
		apply(m, &m->embed, m->s.h + (n - n_rows) * m->g.d_model, logits, n_rows, false);
	}
	return kv->ops->commit(kv, err);
}

static int check_call(const struct llama *m, const struct kv_cache *kv, const uint32_t *ids,
		      size_t n, size_t n_rows, struct errbuf *err)
{
	if (kv->n_layers != m->g.n_layers || kv->row_floats != llama_row_floats(m))
		return errbuf_set(err, KV_ELAYOUT,
				  "cache has %zu layers of %zu values, the model %zu of %zu",
				  kv->n_layers, kv->row_floats, m->g.n_layers, llama_row_floats(m));
	if (n > m->g.context || kv->n_tokens > m->g.context - n)
		return errbuf_set(err, KV_ERANGE,
				  "%zu tokens behind %zu are beyond the model's context of %zu", n,
				  kv->n_tokens, m->g.context);
	if (n_rows > n)
		return errbuf_set(err, KV_EINVAL, "logits of %zu positions of %zu", n_rows, n);
	for (size_t i = 0; i < n; i++)
		if (ids[i] >= m->g.vocab)
			return errbuf_set(err, KV_ERANGE, "token id %u; the model knows 0 to %zu",
					  ids[i], m->g.vocab - 1);
	return 0;
}

int llama_forward(struct llama *m, struct kv_cache *kv, const uint32_t *ids, size_t n,
		  float *logits, size_t n_rows, struct errbuf *err)
{
	if (check_call(m, kv, ids, n, n_rows, err) < 0)
		return -1;
	for (size_t at = 0; at < n; at += m->chunk) {
		size_t n_chunk = n - at < m->chunk ? n - at : m->chunk;
		size_t left = n - at - n_chunk; /* tokens behind this chunk */
		size_t rows = n_rows > left ? n_rows - left : 0;

		if (rows > n_chunk)
			rows = n_chunk;
		if (chunk_forward(m, kv, ids + at, n_chunk, logits, rows, err) < 0)
			return -1;
		if (rows)
			logits += rows * m->g.vocab;
	}
	return 0;
}
