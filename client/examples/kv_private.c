#include "client/examples/kv_private.h"

#include <stdlib.h>

#include "client/examples/kv_attention.h"

/* K or V of a layer: vectors [token][head], part by part. */
struct stored {
	char *codes, *scale, *zero;
};

/* Consecutive tokens. */
struct store {
	struct kv_codec codecs[2]; /* K, V */
	struct stored *stored;     /* [layer][K or V] */
	size_t n_tokens;
};

struct kv_private {
	struct kv_cache base;
	size_t n_heads;
	size_t n_step;          /* tokens of the step that has begun */
	struct store stores[2]; /* in the format; behind it the journal, raw */
	size_t n_stores;
	struct kv_codec exact[2]; /* of a step's own rows */
	struct kv_attention_room room;
};

/* ---- stores ---- */

static struct kv_codec_at stored_at(const struct kv_private *kv, const struct store *store,
				    size_t layer, size_t which, size_t token)
{
	const struct kv_format_bytes *bytes = &store->codecs[which].bytes;
	const struct stored *s = &store->stored[layer * 2 + which];
	struct kv_codec_at at = {s->codes,     s->scale,     s->zero,
				 bytes->codes, bytes->scale, bytes->zero};

	return kv_codec_at(&at, token * kv->n_heads);
}

static void store_fini(const struct kv_private *kv, struct store *store)
{
	for (size_t i = 0; store->stored && i < kv->base.n_layers * 2; i++) {
		free(store->stored[i].codes);
		free(store->stored[i].scale);
		free(store->stored[i].zero);
	}
	free(store->stored);
	*store = (struct store){0};
}

/* One byte more: a part that the format has not is no failure. */
static int new_stored(struct stored *s, const struct kv_format_bytes *bytes, size_t n)
{
	s->codes = calloc(n * bytes->codes + 1, 1);
	s->scale = calloc(n * bytes->scale + 1, 1);
	s->zero = calloc(n * bytes->zero + 1, 1);
	return s->codes && s->scale && s->zero ? 0 : -1;
}

static int init_codecs(const struct kv_private *kv, struct kv_formats formats,
		       struct kv_codec codecs[2], struct errbuf *err)
{
	uint32_t width = (uint32_t)(kv->base.row_floats / kv->n_heads);

	if (kv_codec_init(&codecs[0], formats.k, KV_DTYPE_F32, width, err) < 0)
		return -1;
	return kv_codec_init(&codecs[1], formats.v, KV_DTYPE_F32, width, err);
}

static int store_init(const struct kv_private *kv, struct store *store, struct kv_formats formats,
		      size_t max_tokens, struct errbuf *err)
{
	size_t n;
	bool ok;

	if (init_codecs(kv, formats, store->codecs, err) < 0)
		return -1;
	store->stored = calloc(kv->base.n_layers * 2, sizeof(*store->stored));
	ok = store->stored && !__builtin_mul_overflow(max_tokens, kv->base.row_floats * 8, &n);
	for (size_t i = 0; ok && i < kv->base.n_layers * 2; i++)
		ok = new_stored(&store->stored[i], &store->codecs[i % 2].bytes,
				max_tokens * kv->n_heads) == 0;
	if (ok)
		return 0;
	store_fini(kv, store);
	return errbuf_set(err, KV_ENOMEM, "no memory for a cache of %zu tokens", max_tokens);
}

/* ---- steps ---- */

static int private_begin(struct kv_cache *base, size_t n_tokens, struct errbuf *err)
{
	struct kv_private *kv = (struct kv_private *)base;

	if (kv_check_room(base, n_tokens, err) < 0)
		return -1;
	kv->n_step = n_tokens;
	return 0;
}

static int store_rows(const struct kv_private *kv, size_t layer, size_t which, const float *rows,
		      struct errbuf *err)
{
	const struct store *store = &kv->stores[kv->n_stores - 1];
	const struct kv_codec *codec = &store->codecs[which];
	struct kv_codec_at to = stored_at(kv, store, layer, which, store->n_tokens);
	size_t n = kv->n_step * kv->n_heads;
	size_t done = kv_quantise(codec, n, rows, codec->width * sizeof(*rows), &to);

	if (done == n)
		return 0;
	return errbuf_set(err, KV_EVALUE,
			  "layer %zu, token %zu of the step, head %zu: a NaN or an infinity in %c",
			  layer, done / kv->n_heads, done % kv->n_heads, "KV"[which]);
}

static int private_write(struct kv_cache *base, size_t layer, const float *k, const float *v,
			 struct errbuf *err)
{
	struct kv_private *kv = (struct kv_private *)base;

	if (store_rows(kv, layer, 0, k, err) < 0)
		return -1;
	return store_rows(kv, layer, 1, v, err);
}

static int private_commit(struct kv_cache *base, struct errbuf *err)
{
	struct kv_private *kv = (struct kv_private *)base;

	(void)err;
	kv->stores[kv->n_stores - 1].n_tokens += kv->n_step;
	base->n_tokens += kv->n_step;
	kv->n_step = 0;
	return 0;
}

/* The journal goes with the first token that was there before it. */
static int private_truncate(struct kv_cache *base, size_t keep_tokens, struct errbuf *err)
{
	struct kv_private *kv = (struct kv_private *)base;

	if (kv_check_keep(keep_tokens, base->n_tokens, err) < 0)
		return -1;
	if (kv->n_stores == 2 && keep_tokens < kv->stores[0].n_tokens)
		store_fini(kv, &kv->stores[--kv->n_stores]);
	base->n_tokens = keep_tokens;
	if (kv->n_stores == 2)
		keep_tokens -= kv->stores[0].n_tokens;
	kv->stores[kv->n_stores - 1].n_tokens = keep_tokens;
	return 0;
}

static int private_truncate_many(struct kv_cache *const *kvs, const size_t *keep_tokens, size_t n,
				 struct errbuf *err)
{
	for (size_t i = 0; i < n; i++)
		if (kv_check_keep(keep_tokens[i], kvs[i]->n_tokens, err) < 0)
			return -1;
	/* Nothing else can go wrong. */
	for (size_t i = 0; i < n; i++)
		private_truncate(kvs[i], keep_tokens[i], err);
	return 0;
}

/* Raw rows are in full precision already, and rows are only added behind. */
static int private_replay(struct kv_cache *base, struct errbuf *err)
{
	struct kv_private *kv = (struct kv_private *)base;
	struct kv_formats formats = {kv->stores[0].codecs[0].format,
				     kv->stores[0].codecs[1].format};

	if (kv->n_stores == 2 || kv_formats_are_raw(formats))
		return 0;
	if (store_init(kv, &kv->stores[1], KV_FORMATS_RAW, base->max_tokens - base->n_tokens, err) <
	    0)
		return -1;
	kv->n_stores = 2;
	return 0;
}

/* ---- reading ---- */

/* A step's own rows, as the caller has them. */
static struct kv_codec_at exact_at(const struct kv_private *kv, const float *rows)
{
	size_t stride = kv->exact[0].width * sizeof(*rows);

	return (struct kv_codec_at){.codes = (void *)(uintptr_t)rows, .codes_stride = stride};
}

static int private_attend(struct kv_cache *base, size_t layer, const struct kv_queries *q,
			  struct errbuf *err)
{
	struct kv_private *kv = (struct kv_private *)base;
	struct kv_rows rows[3];
	size_t n = 0;

	for (; n < kv->n_stores; n++)
		rows[n] = (struct kv_rows){kv->stores[n].codecs,
					   {stored_at(kv, &kv->stores[n], layer, 0, 0),
					    stored_at(kv, &kv->stores[n], layer, 1, 0)},
					   kv->stores[n].n_tokens};
	rows[n++] = (struct kv_rows){
		kv->exact, {exact_at(kv, q->k), exact_at(kv, q->v)}, q->n_tokens};
	return kv_attention(&kv->room, rows, n, kv->n_heads, q, err);
}

static void read_store(const struct kv_private *kv, const struct store *store, size_t layer,
		       size_t first, size_t n_tokens, float *const to[2])
{
	for (size_t which = 0; which < 2; which++) {
		const struct kv_codec *codec = &store->codecs[which];
		struct kv_codec_at from = stored_at(kv, store, layer, which, first);

		kv_dequantise(codec, n_tokens * kv->n_heads, &from, to[which],
			      codec->width * sizeof(float));
	}
}

static int private_read(struct kv_cache *base, size_t layer, size_t first, size_t n_tokens,
			float *k, float *v, struct errbuf *err)
{
	struct kv_private *kv = (struct kv_private *)base;

	if (first > base->n_tokens || n_tokens > base->n_tokens - first)
		return errbuf_set(err, KV_ERANGE, "%zu tokens from %zu of %zu", n_tokens, first,
				  base->n_tokens);
	for (size_t i = 0; i < kv->n_stores; i++) {
		const struct store *store = &kv->stores[i];
		size_t n = store->n_tokens - first;

		if (first >= store->n_tokens) {
			first -= store->n_tokens;
			continue;
		}
		n = n < n_tokens ? n : n_tokens;
		read_store(kv, store, layer, first, n, (float *[]){k, v});
		k += n * base->row_floats;
		v += n * base->row_floats;
		n_tokens -= n;
		first = 0;
	}
	return 0;
}

/* ---- begin and end ---- */

static void private_free(struct kv_cache *base)
{
	struct kv_private *kv = (struct kv_private *)base;

	while (kv->n_stores)
		store_fini(kv, &kv->stores[--kv->n_stores]);
	kv_attention_fini(&kv->room);
	free(kv);
}

static const struct kv_ops private_ops = {
	.begin = private_begin,
	.write = private_write,
	.attend = private_attend,
	.commit = private_commit,
	.truncate = private_truncate,
	.truncate_many = private_truncate_many,
	.read = private_read,
	.replay = private_replay,
	.free = private_free,
};

struct kv_cache *kv_private_new(const struct llama *m, struct kv_formats formats, size_t max_tokens,
				struct errbuf *err)
{
	const struct llama_geometry *g = llama_geometry(m);
	struct kv_private *kv = calloc(1, sizeof(*kv));

	if (!kv) {
		errbuf_set(err, KV_ENOMEM, "no memory for a cache");
		return NULL;
	}
	kv->base = (struct kv_cache){&private_ops, 0, max_tokens, g->n_layers,
				     g->n_kv_heads * g->head_dim};
	kv->n_heads = g->n_kv_heads;
	if (init_codecs(kv, KV_FORMATS_RAW, kv->exact, err) == 0 &&
	    store_init(kv, &kv->stores[0], formats, max_tokens, err) == 0) {
		kv->n_stores = 1;
		return &kv->base;
	}
	private_free(&kv->base);
	return NULL;
}
