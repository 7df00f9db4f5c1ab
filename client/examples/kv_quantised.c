#include "client/examples/kv_quantised.h"

#include <stdlib.h>

#include "client/compute/codec.h"

/* K or V of a layer: vectors [token][head], part by part. */
struct stored {
	char *codes, *scale, *zero;
};

struct kv_quantised {
	struct kv_cache base;
	size_t n_heads;
	size_t n_step;             /* tokens of the step that has begun */
	size_t n_stored;           /* tokens below the journal */
	struct kv_cache *journal;  /* the tokens behind; NULL: none */
	struct kv_codec codecs[2]; /* K, V */
	struct stored *stored;     /* [layer][K or V] */
	float *tiles;              /* [K or V][KV_TILE_SLOTS][row] */
};

static struct kv_codec_at stored_at(const struct kv_quantised *kv, size_t layer, size_t which,
				    size_t token)
{
	const struct kv_format_bytes *bytes = &kv->codecs[which].bytes;
	const struct stored *s = &kv->stored[layer * 2 + which];
	struct kv_codec_at at = {s->codes,     s->scale,     s->zero,
				 bytes->codes, bytes->scale, bytes->zero};

	return kv_codec_at(&at, token * kv->n_heads);
}

static int quantised_begin(struct kv_cache *base, size_t n_tokens, struct errbuf *err)
{
	struct kv_quantised *kv = (struct kv_quantised *)base;

	if (n_tokens > base->max_tokens - base->n_tokens)
		return errbuf_set(err, KV_ERESERVE,
				  "no room for %zu tokens behind %zu: the cache is for %zu",
				  n_tokens, base->n_tokens, base->max_tokens);
	kv->n_step = n_tokens;
	return kv->journal ? kv->journal->ops->begin(kv->journal, n_tokens, err) : 0;
}

static int quantise(const struct kv_quantised *kv, size_t layer, size_t which, const float *rows,
		    struct errbuf *err)
{
	struct kv_codec_at to = stored_at(kv, layer, which, kv->n_stored);
	size_t n = kv->n_step * kv->n_heads, width = kv->codecs[which].width;
	size_t done = kv_quantise(&kv->codecs[which], n, rows, width * sizeof(*rows), &to);

	if (done == n)
		return 0;
	return errbuf_set(err, KV_EVALUE,
			  "layer %zu, token %zu of the step, head %zu: a NaN or an infinity in %c",
			  layer, done / kv->n_heads, done % kv->n_heads, "KV"[which]);
}

static int quantised_write(struct kv_cache *base, size_t layer, const float *k, const float *v,
			   struct errbuf *err)
{
	struct kv_quantised *kv = (struct kv_quantised *)base;

	if (kv->journal)
		return kv->journal->ops->write(kv->journal, layer, k, v, err);
	if (quantise(kv, layer, 0, k, err) < 0)
		return -1;
	return quantise(kv, layer, 1, v, err);
}

static int quantised_commit(struct kv_cache *base, struct errbuf *err)
{
	struct kv_quantised *kv = (struct kv_quantised *)base;

	if (kv->journal && kv->journal->ops->commit(kv->journal, err) < 0)
		return -1;
	if (!kv->journal)
		kv->n_stored += kv->n_step;
	base->n_tokens += kv->n_step;
	kv->n_step = 0;
	return 0;
}

static int quantised_truncate(struct kv_cache *base, size_t keep_tokens, struct errbuf *err)
{
	struct kv_quantised *kv = (struct kv_quantised *)base;

	if (keep_tokens > base->n_tokens)
		return errbuf_set(err, KV_ERANGE, "cannot keep %zu tokens of %zu", keep_tokens,
				  base->n_tokens);
	if (kv->journal && keep_tokens >= kv->n_stored) {
		if (kv->journal->ops->truncate(kv->journal, keep_tokens - kv->n_stored, err) < 0)
			return -1;
	} else {
		kv_free(kv->journal);
		kv->journal = NULL;
		kv->n_stored = keep_tokens;
	}
	base->n_tokens = keep_tokens;
	return 0;
}

static const float *dequantise(const struct kv_quantised *kv, size_t layer, size_t which,
			       size_t first, size_t n_slots)
{
	struct kv_codec_at from = stored_at(kv, layer, which, first);
	float *to = kv->tiles + which * KV_TILE_SLOTS * kv->base.row_floats;

	kv_dequantise(&kv->codecs[which], n_slots * kv->n_heads, &from, to,
		      kv->codecs[which].width * sizeof(*to));
	return to;
}

static int quantised_tile(struct kv_cache *base, size_t layer, size_t first, unsigned int want,
			  struct kv_run *tile, struct errbuf *err)
{
	struct kv_quantised *kv = (struct kv_quantised *)base;
	size_t n = kv->n_stored - first;

	if (first >= kv->n_stored)
		return kv->journal->ops->tile(kv->journal, layer, first - kv->n_stored, want, tile,
					      err);
	if (n > KV_TILE_SLOTS)
		n = KV_TILE_SLOTS;
	*tile = (struct kv_run){want & KV_WANT_K ? dequantise(kv, layer, 0, first, n) : NULL,
				want & KV_WANT_V ? dequantise(kv, layer, 1, first, n) : NULL,
				base->row_floats, base->row_floats, n};
	return 0;
}

static int quantised_replay(struct kv_cache *base, struct errbuf *err)
{
	struct kv_quantised *kv = (struct kv_quantised *)base;

	if (kv->journal)
		return 0;
	kv->journal = kv_private_new(base->n_layers, base->row_floats,
				     base->max_tokens - base->n_tokens, err);
	return kv->journal ? 0 : -1;
}

static void quantised_free(struct kv_cache *base)
{
	struct kv_quantised *kv = (struct kv_quantised *)base;

	for (size_t i = 0; kv->stored && i < base->n_layers * 2; i++) {
		free(kv->stored[i].codes);
		free(kv->stored[i].scale);
		free(kv->stored[i].zero);
	}
	kv_free(kv->journal);
	free(kv->stored);
	free(kv->tiles);
	free(kv);
}

static const struct kv_ops quantised_ops = {
	.begin = quantised_begin,
	.write = quantised_write,
	.commit = quantised_commit,
	.truncate = quantised_truncate,
	.tile = quantised_tile,
	.replay = quantised_replay,
	.free = quantised_free,
};

/* One byte more: a part that the format has not is no failure. */
static int new_stored(struct kv_quantised *kv, size_t i)
{
	const struct kv_format_bytes *bytes = &kv->codecs[i % 2].bytes;
	size_t n = kv->base.max_tokens * kv->n_heads;
	struct stored *s = &kv->stored[i];

	s->codes = calloc(n * bytes->codes + 1, 1);
	s->scale = calloc(n * bytes->scale + 1, 1);
	s->zero = calloc(n * bytes->zero + 1, 1);
	return s->codes && s->scale && s->zero ? 0 : -1;
}

static int quantised_init(struct kv_quantised *kv, const struct llama_geometry *g,
			  struct kv_formats formats, size_t max_tokens, struct errbuf *err)
{
	size_t row = g->n_kv_heads * g->head_dim;
	bool ok;

	kv->base = (struct kv_cache){&quantised_ops, 0, max_tokens, g->n_layers, row};
	kv->n_heads = g->n_kv_heads;
	if (kv_codec_init(&kv->codecs[0], formats.k, KV_DTYPE_F32, (uint32_t)g->head_dim, err) <
		    0 ||
	    kv_codec_init(&kv->codecs[1], formats.v, KV_DTYPE_F32, (uint32_t)g->head_dim, err) < 0)
		return -1;
	kv->stored = calloc(g->n_layers * 2, sizeof(*kv->stored));
	kv->tiles = calloc(2 * KV_TILE_SLOTS * row, sizeof(*kv->tiles));
	ok = kv->stored && kv->tiles;
	for (size_t i = 0; ok && i < g->n_layers * 2; i++)
		ok = new_stored(kv, i) == 0;
	if (ok)
		return 0;
	return errbuf_set(err, KV_ENOMEM, "no memory for a cache of %zu tokens", max_tokens);
}

struct kv_cache *kv_private_for(const struct llama *m, struct kv_formats formats, size_t max_tokens,
				struct errbuf *err)
{
	const struct llama_geometry *g = llama_geometry(m);
	struct kv_quantised *kv;

	if (kv_formats_are_raw(formats))
		return kv_private_new(g->n_layers, llama_row_floats(m), max_tokens, err);
	kv = calloc(1, sizeof(*kv));
	if (!kv)
		errbuf_set(err, KV_ENOMEM, "no memory for a cache");
	if (kv && quantised_init(kv, g, formats, max_tokens, err) == 0)
		return &kv->base;
	if (kv)
		quantised_free(&kv->base);
	return NULL;
}
