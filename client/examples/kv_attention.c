#include "client/examples/kv_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/compute/attend.h"
#include "client/compute/attend_sums.h"
#include "client/compute/fpmode.h"

/* The queries of one head. */
struct work {
	const struct kv_rows *rows;
	size_t n_heads, head;
	size_t group;    /* query heads of a head */
	size_t n_cached; /* keys before those of the queries' own tokens */
	const struct kv_queries *q;
	uint32_t n, width; /* queries; elements */
	float scale;
	struct kv_attend_query query;
	/* memory */
	float *gather; /* queries side by side */
	void *query_memory;
	float *s; /* [n][KV_ATTEND_TILE] */
	struct kv_attend_sums span, total;
};

/* ---- memory ---- */

/* memory NULL: only counts. */
static size_t lay_out(struct work *w, char *memory)
{
	struct kv_carve from = {memory, 0};

	w->gather = kv_carve(&from, (size_t)w->n * w->width, sizeof(float));
	w->query_memory = kv_carve(&from, 1, kv_attend_query_bytes(w->width, w->n));
	w->s = kv_carve(&from, (size_t)w->n * KV_ATTEND_TILE, sizeof(float));
	w->span = kv_attend_sums_carve(&from, w->n, w->width);
	w->total = kv_attend_sums_carve(&from, w->n, w->width);
	return from.used;
}

static int room_take(struct kv_attention_room *room, struct work *w, struct errbuf *err)
{
	size_t n_bytes = lay_out(w, NULL);

	if (n_bytes > room->n_bytes) {
		free(room->memory);
		room->memory = aligned_alloc(64, n_bytes);
		room->n_bytes = room->memory ? n_bytes : 0;
		if (!room->memory)
			return errbuf_set(err, KV_ENOMEM, "no memory for %u queries", w->n);
	}
	lay_out(w, room->memory);
	return 0;
}

void kv_attention_fini(struct kv_attention_room *room)
{
	free(room->memory);
	*room = (struct kv_attention_room){0};
}

/* ---- tiles ---- */

/* Keys that lie at equal distances. */
struct piece {
	uint32_t n;
	const struct kv_codec *codec;
	struct kv_codec_at at;
};

/* K or V of the keys from `key` on, as many of those before `end` as are in the same rows. */
static struct piece piece_at(const struct work *w, size_t which, size_t key, size_t end)
{
	const struct kv_rows *rows = w->rows;
	struct piece piece;

	for (; key >= rows->n_tokens; rows++) {
		key -= rows->n_tokens;
		end -= rows->n_tokens;
	}
	if (end > rows->n_tokens)
		end = rows->n_tokens;
	piece.n = (uint32_t)(end - key);
	piece.codec = &rows->codecs[which];
	piece.at = kv_codec_at(&rows->at[which], key * w->n_heads + w->head);
	piece.at.codes_stride *= w->n_heads;
	piece.at.scale_stride *= w->n_heads;
	piece.at.zero_stride *= w->n_heads;
	return piece;
}

/* Keys [first, end) of a tile, for n queries that see just these of it. */
static void attend_keys(const struct work *w, size_t first, size_t end, uint32_t query, uint32_t n)
{
	struct kv_attend_query part = kv_attend_query_part(&w->query, query, n);
	struct kv_attend_sums sums = kv_attend_sums_at(&w->span, query);
	struct piece piece;

	for (size_t key = first; key < end; key += piece.n) {
		piece = piece_at(w, 0, key, end);
		kv_attend_scores(piece.codec, &part, piece.n, &piece.at, NULL, w->scale,
				 w->s + (key - first), KV_ATTEND_TILE);
	}
	kv_attend_sums_tile(&sums, n, w->width, w->s, KV_ATTEND_TILE, (uint32_t)(end - first));
	for (size_t key = first; key < end; key += piece.n) {
		piece = piece_at(w, 1, key, end);
		kv_attend_mix(piece.codec, n, w->s + (key - first), KV_ATTEND_TILE, piece.n,
			      &piece.at, NULL, sums.o, sums.stride);
	}
}

/* Tokens that see the whole tile go together. */
static void attend_tile(const struct work *w, size_t first)
{
	size_t t = first > w->n_cached ? first - w->n_cached : 0, n;

	for (; t < w->q->n_tokens; t += n) {
		size_t end = w->n_cached + t + 1;

		n = 1;
		if (end >= first + KV_ATTEND_TILE) {
			end = first + KV_ATTEND_TILE;
			n = w->q->n_tokens - t;
		}
		attend_keys(w, first, end, (uint32_t)(t * w->group), (uint32_t)(n * w->group));
	}
}

static void attend_head(struct work *w)
{
	size_t n_keys = w->n_cached + w->q->n_tokens, n_row = w->q->n_heads * w->width;
	size_t n_group = w->group * w->width;

	for (size_t t = 0; t < w->q->n_tokens; t++)
		memcpy(w->gather + t * n_group, w->q->q + t * n_row + w->head * n_group,
		       n_group * sizeof(float));
	kv_attend_query_init(&w->query, w->width, w->n, w->gather, w->width, w->query_memory);
	kv_attend_sums_init(&w->total, w->n, w->width);
	for (size_t span = 0; span < n_keys; span += KV_ATTEND_SPAN) {
		size_t end = span + KV_ATTEND_SPAN < n_keys ? span + KV_ATTEND_SPAN : n_keys;

		kv_attend_sums_init(&w->span, w->n, w->width);
		for (size_t first = span; first < end; first += KV_ATTEND_TILE)
			attend_tile(w, first);
		kv_attend_sums_span(&w->total, w->n, w->width, &w->span);
	}
	for (size_t i = 0; i < w->n; i++) {
		struct kv_attend_sums sums = kv_attend_sums_at(&w->total, i);

		kv_attend_sums_out(&sums, w->width,
				   w->q->out + i / w->group * n_row + w->head * n_group +
					   i % w->group * w->width);
	}
}

int kv_attention(struct kv_attention_room *room, const struct kv_rows *rows, size_t n_rows,
		 size_t n_heads, const struct kv_queries *q, struct errbuf *err)
{
	size_t n_keys = 0, group = q->n_heads / n_heads;
	uint32_t width = rows->codecs[0].width;
	struct work w = {.rows = rows,
			 .n_heads = n_heads,
			 .group = group,
			 .q = q,
			 .n = (uint32_t)(q->n_tokens * group),
			 .width = width,
			 .scale = 1 / sqrtf((float)width)};
	kv_fpmode mode;

	for (size_t i = 0; i < n_rows; i++)
		n_keys += rows[i].n_tokens;
	w.n_cached = n_keys - q->n_tokens;
	if (room_take(room, &w, err) < 0)
		return -1;
	mode = kv_fpmode_enter();
	for (w.head = 0; w.head < n_heads; w.head++)
		attend_head(&w);
	kv_fpmode_leave(mode);
	return 0;
}
