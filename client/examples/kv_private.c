#include "client/examples/kv.h"

#include <stdlib.h>
#include <string.h>

/* One buffer [layer][K or V][token][row]. */
struct kv_private {
	struct kv_cache base;
	size_t n_step; /* tokens of the step that has begun */
	float *rows;
};

static float *plane(const struct kv_private *kv, size_t layer, size_t which)
{
	return kv->rows + (layer * 2 + which) * kv->base.max_tokens * kv->base.row_floats;
}

static int private_begin(struct kv_cache *base, size_t n_tokens, struct errbuf *err)
{
	struct kv_private *kv = (struct kv_private *)base;

	if (n_tokens > base->max_tokens - base->n_tokens)
		return errbuf_set(err, KV_ERESERVE,
				  "no room for %zu tokens behind %zu: the cache is for %zu",
				  n_tokens, base->n_tokens, base->max_tokens);
	kv->n_step = n_tokens;
	return 0;
}

static int private_write(struct kv_cache *base, size_t layer, const float *k, const float *v,
			 struct errbuf *err)
{
	struct kv_private *kv = (struct kv_private *)base;
	size_t at = base->n_tokens * base->row_floats, n = kv->n_step * base->row_floats;

	(void)err;
	memcpy(plane(kv, layer, 0) + at, k, n * sizeof(*k));
	memcpy(plane(kv, layer, 1) + at, v, n * sizeof(*v));
	return 0;
}

static int private_commit(struct kv_cache *base, struct errbuf *err)
{
	struct kv_private *kv = (struct kv_private *)base;

	(void)err;
	base->n_tokens += kv->n_step;
	kv->n_step = 0;
	return 0;
}

static int private_truncate(struct kv_cache *base, size_t keep_tokens, struct errbuf *err)
{
	if (keep_tokens > base->n_tokens)
		return errbuf_set(err, KV_ERANGE, "cannot keep %zu tokens of %zu", keep_tokens,
				  base->n_tokens);
	base->n_tokens = keep_tokens;
	return 0;
}

static int private_tile(struct kv_cache *base, size_t layer, size_t first, unsigned int want,
			struct kv_run *tile, struct errbuf *err)
{
	struct kv_private *kv = (struct kv_private *)base;
	size_t row = base->row_floats;

	(void)err;
	*tile = (struct kv_run){want & KV_WANT_K ? plane(kv, layer, 0) + first * row : NULL,
				want & KV_WANT_V ? plane(kv, layer, 1) + first * row : NULL, row,
				row, base->n_tokens - first};
	return 0;
}

/* All of it is in full precision already, and rows are only added behind. */
static int private_replay(struct kv_cache *base, struct errbuf *err)
{
	(void)base;
	(void)err;
	return 0;
}

static void private_free(struct kv_cache *base)
{
	struct kv_private *kv = (struct kv_private *)base;

	free(kv->rows);
	free(kv);
}

static const struct kv_ops private_ops = {
	.begin = private_begin,
	.write = private_write,
	.commit = private_commit,
	.truncate = private_truncate,
	.tile = private_tile,
	.replay = private_replay,
	.free = private_free,
};

struct kv_cache *kv_private_new(size_t n_layers, size_t row_floats, size_t max_tokens,
				struct errbuf *err)
{
	struct kv_private *kv = calloc(1, sizeof(*kv));
	size_t n;

	if (kv && !__builtin_mul_overflow(n_layers * 2, row_floats, &n) &&
	    !__builtin_mul_overflow(n, max_tokens, &n))
		kv->rows = calloc(n + 1, sizeof(*kv->rows));
	if (!kv || !kv->rows) {
		free(kv);
		errbuf_set(err, KV_ENOMEM, "no memory for a cache of %zu tokens", max_tokens);
		return NULL;
	}
	kv->base = (struct kv_cache){&private_ops, 0, max_tokens, n_layers, row_floats};
	return &kv->base;
}
