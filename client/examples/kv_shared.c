#include "client/examples/kv_shared.h"

#include <stdbool.h>
#include <stdlib.h>

#define RESERVE_TOKENS 256

struct kv_shared {
	struct kv_cache base;
	kvc_writer *writer;
	kvc_seq *seq;
	bool is_open; /* an update has begun */
	/* Tokens below its replay journal; SIZE_MAX: it has none. */
	size_t n_base;
	/* Runs of `layer`, as they were found; none after a step or a rollback. */
	struct kvc_run *runs;
	size_t n_runs, n_room, layer;
	float *tiles; /* [K or V][KV_TILE_SLOTS][row] */
};

int kv_shared_error(struct errbuf *err)
{
	return errbuf_set(err, kvc_error(), "%s", kvc_error_text());
}

/* Sets memory aside for the step and for some after it. A restart of the daemon is told once. */
static int reserve(struct kv_shared *kv, size_t n_tokens, struct errbuf *err)
{
	size_t room = kv->base.max_tokens - kv->base.n_tokens;
	size_t n = n_tokens < RESERVE_TOKENS ? RESERVE_TOKENS : n_tokens;

	if (n > room)
		n = room;
	if (kvc_reserve(kv->seq, n) == 0)
		return 0;
	if (kvc_error() == KVC_ERESTARTED && kvc_reserve(kv->seq, n) == 0)
		return 0;
	return kv_shared_error(err);
}

static int shared_begin(struct kv_cache *base, size_t n_tokens, struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;

	if (kv->is_open)
		kvc_abort(kv->seq);
	kv->is_open = false;
	kv->n_runs = 0;
	base->n_tokens = (size_t)kvc_length(kv->seq);
	if (n_tokens > base->max_tokens - base->n_tokens)
		return errbuf_set(err, KV_ERESERVE,
				  "no room for %zu tokens behind %zu: the cache is for %zu",
				  n_tokens, base->n_tokens, base->max_tokens);
	if (kvc_append_begin(kv->seq, n_tokens) < 0) {
		if (kvc_error() != KVC_ERESERVE)
			return kv_shared_error(err);
		if (reserve(kv, n_tokens, err) < 0)
			return -1;
		if (kvc_append_begin(kv->seq, n_tokens) < 0)
			return kv_shared_error(err);
	}
	kv->is_open = true;
	return 0;
}

static int shared_write(struct kv_cache *base, size_t layer, const float *k, const float *v,
			struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;

	return kvc_write(kv->seq, (uint32_t)layer, k, v) < 0 ? kv_shared_error(err) : 0;
}

static int shared_commit(struct kv_cache *base, struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;
	int rc = kvc_commit(kv->writer, &kv->seq, 1);

	if (rc < 0)
		kv_shared_error(err);
	if (rc == 0 || kvc_error() == KVC_EMOVED)
		kv->is_open = false;
	kv->n_runs = 0;
	base->n_tokens = (size_t)kvc_length(kv->seq);
	return rc;
}

/* A journal over tokens that are gone has nothing to protect. */
static int end_journal(struct kv_shared *kv, struct errbuf *err)
{
	const struct kvc_journal_options none = {.size = sizeof(none)};

	if (kvc_journal_set(kv->seq, &none) < 0)
		return kv_shared_error(err);
	kv->n_base = SIZE_MAX;
	return 0;
}

static int shared_truncate(struct kv_cache *base, size_t keep_tokens, struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;

	if (kv->is_open)
		kvc_abort(kv->seq);
	kv->is_open = false;
	kv->n_runs = 0;
	if (kvc_rollback_keep(kv->seq, keep_tokens) < 0)
		return kv_shared_error(err);
	base->n_tokens = (size_t)kvc_length(kv->seq);
	return kv->n_base != SIZE_MAX && keep_tokens < kv->n_base ? end_journal(kv, err) : 0;
}

static int shared_replay(struct kv_cache *base, struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;
	const struct kvc_journal_options replay = {.size = sizeof(replay),
						   .mode = KVC_JOURNAL_REPLAY};

	if (kv->n_base != SIZE_MAX)
		return 0;
	if (kvc_journal_set(kv->seq, &replay) < 0)
		return kv_shared_error(err);
	kv->n_base = (size_t)kvc_length(kv->seq);
	return 0;
}

/* ---- tiles ---- */

static int grow_runs(struct kv_shared *kv, size_t n)
{
	struct kvc_run *runs = realloc(kv->runs, n * sizeof(*runs));

	if (!runs)
		return -1;
	kv->runs = runs;
	kv->n_room = n;
	return 0;
}

static int find_runs(struct kv_shared *kv, size_t layer, struct errbuf *err)
{
	int64_t n;

	while ((n = kvc_view_runs(kv->seq, (uint32_t)layer, kv->runs, kv->n_room)) >
	       (int64_t)kv->n_room)
		if (grow_runs(kv, (size_t)n) < 0)
			return errbuf_set(err, KV_ENOMEM, "no memory for %lld runs", (long long)n);
	if (n < 0)
		return kv_shared_error(err);
	kv->n_runs = (size_t)n;
	kv->layer = layer;
	return 0;
}

/* What is stored as the decoder reads it: from `first` to the end of its run, where it lies. */
static int show_run(struct kv_shared *kv, size_t layer, size_t first, unsigned int want,
		    struct kv_run *tile, struct errbuf *err)
{
	if ((kv->n_runs == 0 || kv->layer != layer) && find_runs(kv, layer, err) < 0)
		return -1;
	for (size_t i = 0; i < kv->n_runs; i++) {
		const struct kvc_run *run = &kv->runs[i];
		size_t at = first - (size_t)run->first_token;

		if (at >= run->n_tokens)
			continue;
		*tile = (struct kv_run){
			.k_stride = run->k_row_bytes / sizeof(float),
			.v_stride = run->v_row_bytes / sizeof(float),
			.n_slots = (size_t)run->n_tokens - at,
		};
		if (want & KV_WANT_K)
			tile->k = (const float *)run->k + at * tile->k_stride;
		if (want & KV_WANT_V)
			tile->v = (const float *)run->v + at * tile->v_stride;
		return 0;
	}
	return errbuf_set(err, KV_EINTERNAL, "layer %zu: token %zu is in no run", layer, first);
}

/* What is not: dequantised, with the journal laid over. */
static int make_tile(struct kv_shared *kv, size_t layer, size_t first, unsigned int want,
		     struct kv_run *tile, struct errbuf *err)
{
	size_t row = kv->base.row_floats, n = kv->base.n_tokens - first;
	float *k = want & KV_WANT_K ? kv->tiles : NULL;
	float *v = want & KV_WANT_V ? kv->tiles + KV_TILE_SLOTS * row : NULL;

	if (n > KV_TILE_SLOTS)
		n = KV_TILE_SLOTS;
	if (kvc_read(kv->seq, (uint32_t)layer, first, n, k, v) < 0)
		return kv_shared_error(err);
	*tile = (struct kv_run){k, v, row, row, n};
	return 0;
}

static int shared_tile(struct kv_cache *base, size_t layer, size_t first, unsigned int want,
		       struct kv_run *tile, struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;
	struct kvc_layer_view view;

	if (kvc_view_table(kv->seq, (uint32_t)layer, &view) < 0)
		return kv_shared_error(err);
	if (view.k_format == KVC_RAW && view.v_format == KVC_RAW && view.n_rows == 0)
		return show_run(kv, layer, first, want, tile, err);
	return make_tile(kv, layer, first, want, tile, err);
}

static void shared_free(struct kv_cache *base)
{
	struct kv_shared *kv = (struct kv_shared *)base;

	if (kv->is_open)
		kvc_abort(kv->seq);
	free(kv->runs);
	free(kv->tiles);
	free(kv);
}

static const struct kv_ops shared_ops = {
	.begin = shared_begin,
	.write = shared_write,
	.commit = shared_commit,
	.truncate = shared_truncate,
	.tile = shared_tile,
	.replay = shared_replay,
	.free = shared_free,
};

static int shared_init(struct kv_shared *kv, kvc_writer *writer, kvc_seq *seq,
		       const struct llama *m, size_t max_tokens, struct errbuf *err)
{
	struct kvc_journal_info journal;

	kv->base = (struct kv_cache){&shared_ops, (size_t)kvc_length(seq), max_tokens,
				     llama_geometry(m)->n_layers, llama_row_floats(m)};
	kv->writer = writer;
	kv->seq = seq;
	kv->tiles = calloc(2 * KV_TILE_SLOTS * kv->base.row_floats, sizeof(*kv->tiles));
	if (!kv->tiles || grow_runs(kv, 16) < 0)
		return errbuf_set(err, KV_ENOMEM, "no memory for a cache");
	if (kvc_journal_info(seq, &journal) < 0)
		return kv_shared_error(err);
	kv->n_base = journal.mode == KVC_JOURNAL_REPLAY ? (size_t)journal.base_tokens : SIZE_MAX;
	return 0;
}

struct kv_cache *kv_shared_new(kvc_writer *writer, kvc_seq *seq, const struct llama *m,
			       size_t max_tokens, struct errbuf *err)
{
	struct kv_shared *kv = calloc(1, sizeof(*kv));

	if (kv && shared_init(kv, writer, seq, m, max_tokens, err) == 0)
		return &kv->base;
	if (kv)
		shared_free(&kv->base);
	else
		errbuf_set(err, KV_ENOMEM, "no memory for a cache");
	return NULL;
}
