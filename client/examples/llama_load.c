/*
 * llama_load: from a weight file to a struct llama. The only place that reads the file's metadata
 * and tensors; what it lets through has the sizes that the rest relies on.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "client/compute/attend.h"
#include "client/examples/llama_model.h"
#include "client/examples/safetensors.h"

struct loader {
	struct llama *m;
	struct safetensors *st;
	const char *path;
	struct errbuf *err;
};

/* ---- metadata ---- */

static const char *meta_text(struct loader *l, const char *key)
{
	const char *text = safetensors_metadata(l->st, key);

	if (!text)
		errbuf_set(l->err, KV_EINVAL, "%s: metadata has no %s", l->path, key);
	return text;
}

static int meta_size(struct loader *l, const char *key, size_t max, size_t *out)
{
	const char *text = meta_text(l, key);
	unsigned long long value;
	char *end;

	if (!text)
		return -1;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end || text[0] < '0' || text[0] > '9' || value < 1 || value > max)
		return errbuf_set(l->err, KV_ERANGE, "%s: metadata %s is \"%.40s\", not 1 to %zu",
				  l->path, key, text, max);
	*out = (size_t)value;
	return 0;
}

static int meta_real(struct loader *l, const char *key, double min, double max, double *out)
{
	const char *text = meta_text(l, key);
	char *end;

	if (!text)
		return -1;
	*out = strtod(text, &end);
	if (end == text || *end || !(*out >= min && *out <= max))
		return errbuf_set(l->err, KV_ERANGE, "%s: metadata %s is \"%.40s\", not %g to %g",
				  l->path, key, text, min, max);
	return 0;
}

static int meta_fixed(struct loader *l, const char *key, const char *want, const char *also)
{
	const char *text = meta_text(l, key);

	if (!text)
		return -1;
	if (strcmp(text, want) != 0 && strcmp(text, also) != 0)
		return errbuf_set(l->err, KV_EUNSUPPORTED,
				  "%s: metadata %s is \"%.40s\"; this decoder knows only \"%s\"",
				  l->path, key, text, want);
	return 0;
}

static int read_geometry(struct loader *l)
{
	struct llama_geometry *g = &l->m->g;
	double eps;

	if (meta_size(l, "n_layers", 1024, &g->n_layers) < 0 ||
	    meta_size(l, "d_model", 65536, &g->d_model) < 0 ||
	    meta_size(l, "n_heads", 1024, &g->n_heads) < 0 ||
	    meta_size(l, "n_kv_heads", 1024, &g->n_kv_heads) < 0 ||
	    meta_size(l, "head_dim", KV_ATTEND_WIDTH_MAX, &g->head_dim) < 0 ||
	    meta_size(l, "d_ffn", 262144, &g->d_ffn) < 0 ||
	    meta_size(l, "vocab", 1u << 24, &g->vocab) < 0 ||
	    meta_size(l, "context", 1u << 24, &g->context) < 0 ||
	    meta_real(l, "rope_theta", 1.0, 1e12, &g->rope_theta) < 0 ||
	    meta_real(l, "norm_eps", 0.0, 1.0, &eps) < 0 ||
	    meta_fixed(l, "rope_pairing", "half", "half") < 0 ||
	    meta_fixed(l, "tied_embedding", "1", "true") < 0)
		return -1;
	g->norm_eps = (float)eps;
	if (g->head_dim % 2)
		return errbuf_set(l->err, KV_EINVAL, "%s: head_dim %zu is odd", l->path,
				  g->head_dim);
	if (g->n_heads % g->n_kv_heads)
		return errbuf_set(l->err, KV_EINVAL,
				  "%s: %zu query heads cannot be shared out among %zu KV heads",
				  l->path, g->n_heads, g->n_kv_heads);
	return 0;
}

/* ---- tensors ---- */

/* Element i as f32; the data is little-endian and not aligned. */
static float element(const struct safetensors_tensor *t, size_t i)
{
	const unsigned char *at = t->data + i * (t->type == ST_F32 ? 4 : 2);
	uint32_t bits;
	float value;

	if (t->type == ST_F32)
		bits = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
		       (uint32_t)at[3] << 24;
	else
		bits = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 24;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* The tensor of that name with n_dims dimensions [d0][d1]; d1 is 1 for a vector. */
static const struct safetensors_tensor *find(struct loader *l, const char *name, size_t n_dims,
					     size_t d0, size_t d1)
{
	const struct safetensors_tensor *t = safetensors_find(l->st, name);

	if (!t) {
		errbuf_set(l->err, KV_EINVAL, "%s: tensor %s is missing", l->path, name);
		return NULL;
	}
	if (t->type != ST_BF16 && t->type != ST_F32) {
		errbuf_set(l->err, KV_EUNSUPPORTED, "%s: tensor %s has type %s, not BF16 or F32",
			   l->path, name, safetensors_type_name(t->type));
		return NULL;
	}
	if (t->n_dims != n_dims || t->dims[0] != d0 || t->n_elements != d0 * d1) {
		errbuf_set(l->err, KV_EINVAL,
			   "%s: tensor %s has %zu dimensions and %zu elements; the metadata asks "
			   "for %zu x %zu",
			   l->path, name, t->n_dims, t->n_elements, d0, d1);
		return NULL;
	}
	return t;
}

static int load_vector(struct loader *l, float **out, const char *name, size_t n)
{
	const struct safetensors_tensor *t = find(l, name, 1, n, 1);

	if (!t)
		return -1;
	*out = malloc(n * sizeof(**out));
	if (!*out)
		return errbuf_set(l->err, KV_ENOMEM, "%s: out of memory", l->path);
	for (size_t i = 0; i < n; i++)
		(*out)[i] = element(t, i);
	return 0;
}

static int load_matrix(struct loader *l, struct matrix *m, const char *name, size_t n_out,
		       size_t n_in)
{
	const struct safetensors_tensor *t = find(l, name, 2, n_out, n_in);
	size_t n_panels = (n_out + MATRIX_PANEL_OUTPUTS - 1) / MATRIX_PANEL_OUTPUTS, n_bytes;

	if (!t)
		return -1;
	n_bytes = n_panels * MATRIX_PANEL_OUTPUTS * n_in * sizeof(float);
	*m = (struct matrix){n_out, n_in, aligned_alloc(64, n_bytes)};
	if (!m->panels)
		return errbuf_set(l->err, KV_ENOMEM, "%s: no memory for tensor %s", l->path, name);
	memset(m->panels, 0, n_bytes);
	for (size_t o = 0; o < n_out; o++) {
		float *column = m->panels + o / MATRIX_PANEL_OUTPUTS * MATRIX_PANEL_OUTPUTS * n_in +
				o % MATRIX_PANEL_OUTPUTS;

		for (size_t i = 0; i < n_in; i++)
			column[i * MATRIX_PANEL_OUTPUTS] = element(t, o * n_in + i);
	}
	return 0;
}

static int load_layer(struct loader *l, size_t number)
{
	const struct llama_geometry *g = &l->m->g;
	struct llama_layer *layer = &l->m->layers[number];
	size_t q = g->n_heads * g->head_dim, kv = g->n_kv_heads * g->head_dim;
	const struct {
		const char *name;
		struct matrix *m;
		size_t n_out, n_in;
	} list[] = {
		{"wq", &layer->wq, q, g->d_model},        {"wk", &layer->wk, kv, g->d_model},
		{"wv", &layer->wv, kv, g->d_model},       {"wo", &layer->wo, g->d_model, q},
		{"w1", &layer->w1, g->d_ffn, g->d_model}, {"w3", &layer->w3, g->d_ffn, g->d_model},
		{"w2", &layer->w2, g->d_model, g->d_ffn},
	};
	char name[32];

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		snprintf(name, sizeof(name), "l%zu.%s", number, list[i].name);
		if (load_matrix(l, list[i].m, name, list[i].n_out, list[i].n_in) < 0)
			return -1;
	}
	snprintf(name, sizeof(name), "l%zu.attn_norm", number);
	if (load_vector(l, &layer->attn_norm, name, g->d_model) < 0)
		return -1;
	snprintf(name, sizeof(name), "l%zu.ffn_norm", number);
	return load_vector(l, &layer->ffn_norm, name, g->d_model);
}

static int load_weights(struct loader *l)
{
	struct llama *m = l->m;

	m->layers = calloc(m->g.n_layers, sizeof(*m->layers));
	if (!m->layers)
		return errbuf_set(l->err, KV_ENOMEM, "%s: out of memory", l->path);
	if (load_matrix(l, &m->embed, "embed", m->g.vocab, m->g.d_model) < 0 ||
	    load_vector(l, &m->norm, "norm", m->g.d_model) < 0)
		return -1;
	for (size_t i = 0; i < m->g.n_layers; i++)
		if (load_layer(l, i) < 0)
			return -1;
	return 0;
}

/* ---- scratch ---- */

static int new_scratch(struct loader *l)
{
	const struct llama_geometry *g = &l->m->g;
	struct llama_scratch *s = &l->m->s;
	size_t q = g->n_heads * g->head_dim, kv = g->n_kv_heads * g->head_dim;
	const struct {
		float **at;
		size_t n;
	} list[] = {
		{&s->x, g->d_model},
		{&s->h, g->d_model},
		{&s->q, q},
		{&s->o, q},
		{&s->k, kv},
		{&s->v, kv},
		{&s->w1, g->d_ffn},
		{&s->w3, g->d_ffn},
		{&s->cosine, g->head_dim / 2},
		{&s->sine, g->head_dim / 2},
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		*list[i].at = calloc(LLAMA_CHUNK_TOKENS * list[i].n, sizeof(float));
		if (!*list[i].at)
			return errbuf_set(l->err, KV_ENOMEM, "%s: out of memory", l->path);
	}
	return 0;
}

int llama_open(struct llama **out, const char *path, struct errbuf *err)
{
	struct loader l = {calloc(1, sizeof(*l.m)), NULL, path, err};
	const unsigned char *bytes;
	size_t n_bytes;
	int rc = -1;

	*out = NULL;
	if (!l.m) {
		errbuf_set(err, KV_ENOMEM, "%s: out of memory", path);
		goto out;
	}
	l.m->chunk = LLAMA_CHUNK_TOKENS;
	l.m->kernels = kernels_get();
	if (safetensors_open(&l.st, path, err) < 0 || read_geometry(&l) < 0 ||
	    load_weights(&l) < 0 || new_scratch(&l) < 0)
		goto out;
	bytes = safetensors_bytes(l.st, &n_bytes);
	crypto_generichash(l.m->fingerprint, sizeof(l.m->fingerprint), bytes, n_bytes, NULL, 0);
	*out = l.m;
	l.m = NULL;
	rc = 0;
out:
	safetensors_close(l.st);
	llama_close(l.m);
	return rc;
}

static void free_layer(struct llama_layer *layer)
{
	free(layer->attn_norm);
	free(layer->ffn_norm);
	free(layer->wq.panels);
	free(layer->wk.panels);
	free(layer->wv.panels);
	free(layer->wo.panels);
	free(layer->w1.panels);
	free(layer->w2.panels);
	free(layer->w3.panels);
}

static void free_scratch(struct llama_scratch *s)
{
	free(s->x);
	free(s->h);
	free(s->q);
	free(s->o);
	free(s->k);
	free(s->v);
	free(s->w1);
	free(s->w3);
	free(s->cosine);
	free(s->sine);
}

void llama_close(struct llama *m)
{
	if (!m)
		return;
	for (size_t i = 0; m->layers && i < m->g.n_layers; i++)
		free_layer(&m->layers[i]);
	free(m->layers);
	free(m->embed.panels);
	free(m->norm);
	free_scratch(&m->s);
	free(m);
}
