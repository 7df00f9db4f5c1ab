#include "client/examples/llama.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/llama_model.h"

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
	struct kv_queries q = {n, m->g.n_heads, s->q, s->k, s->v, s->o};

	norm_rows(m, layer->attn_norm, n);
	apply(m, &layer->wq, s->h, s->q, n, false);
	apply(m, &layer->wk, s->h, s->k, n, false);
	apply(m, &layer->wv, s->h, s->v, n, false);
	rope(m, s->q, m->g.n_heads, n);
	rope(m, s->k, m->g.n_kv_heads, n);
	if (kv->ops->write(kv, number, s->k, s->v, err) < 0 ||
	    kv->ops->attend(kv, number, &q, err) < 0)
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

/* Logits after the last n_rows tokens of the chunk. */
static int chunk_forward(struct llama *m, struct kv_cache *kv, const uint32_t *ids, size_t n,
			 float *logits, size_t n_rows, struct errbuf *err)
{
	if (kv->ops->begin(kv, n, err) < 0)
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

/* Tokens of the next step; where the cache takes none, begin says why. */
static size_t chunk_tokens(const struct llama *m, struct kv_cache *kv, size_t n)
{
	size_t limit = kv->ops->limit ? kv->ops->limit(kv) : n;

	n = n < m->chunk ? n : m->chunk;
	n = n < limit ? n : limit;
	return n ? n : 1;
}

int llama_forward(struct llama *m, struct kv_cache *kv, const uint32_t *ids, size_t n,
		  float *logits, size_t n_rows, struct errbuf *err)
{
	if (check_call(m, kv, ids, n, n_rows, err) < 0)
		return -1;
	for (size_t at = 0, n_chunk; at < n; at += n_chunk) {
		size_t left, rows;

		n_chunk = chunk_tokens(m, kv, n - at);
		left = n - at - n_chunk; /* tokens behind this chunk */
		rows = n_rows > left ? n_rows - left : 0;
		if (rows > n_chunk)
			rows = n_chunk;
		if (chunk_forward(m, kv, ids + at, n_chunk, logits, rows, err) < 0)
			return -1;
		if (rows)
			logits += rows * m->g.vocab;
	}
	return 0;
}
