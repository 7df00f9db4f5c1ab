/* A tile: scores, softmax, values, for the queries of one head that see the same of it together. */
#include "client/attend.h"

/* Runs of seen rows, cut out of the pieces of a tile; returns how many. A tile that is seen whole
 * needs no cutting. */
static uint32_t cut_pieces(const struct attend_tile *tile, uint64_t seen, struct attend_piece *cut)
{
	uint32_t n_cut = 0;

	for (uint32_t i = 0; i < tile->n_pieces; i++) {
		const struct attend_piece *piece = &tile->pieces[i];
		uint32_t row = piece->first, end = piece->first + piece->n;

		while (row < end) {
			uint32_t first;

			while (row < end && !(seen >> row & 1))
				row++;
			first = row;
			while (row < end && seen >> row & 1)
				row++;
			if (row == first)
				break;
			cut[n_cut++] = (struct attend_piece){
				.first = first,
				.n = row - first,
				.is_exact = piece->is_exact,
				.k = kv_codec_at(&piece->k, first - piece->first),
				.v = kv_codec_at(&piece->v, first - piece->first),
			};
		}
	}
	return n_cut;
}

/* What some tokens see of the tile: their pieces, the keys counted from 0 in them. */
struct seen {
	const struct attend_piece *pieces;
	uint32_t n_pieces, n_keys;
	uint64_t rows;
	/* queries of the block that see it */
	uint32_t first, n;
};

/* The next tokens of the block that see the same, from query seen->first + seen->n on. False: there
 * are none. */
static bool next_seen(const struct attend *a, struct attend_room *room,
		      const struct attend_block *block, struct seen *seen)
{
	const struct attend_tile *tile = &room->tile;
	uint32_t query = seen->first + seen->n, end;

	for (;; query += a->group_heads) {
		if (query >= block->query.n)
			return false;
		seen->rows = keys_seen(a, tile, block->first_token + query / a->group_heads);
		if (seen->rows)
			break;
	}
	end = query + a->group_heads;
	while (end < block->query.n &&
	       keys_seen(a, tile, block->first_token + end / a->group_heads) == seen->rows)
		end += a->group_heads;
	seen->first = query;
	seen->n = end - query;
	seen->n_keys = (uint32_t)__builtin_popcountll(seen->rows);
	seen->pieces = tile->pieces;
	seen->n_pieces = tile->n_pieces;
	if (seen->rows != tile->rows) {
		seen->pieces = room->cut;
		seen->n_pieces = cut_pieces(tile, seen->rows, room->cut);
	}
	return true;
}

/*
 * What is to be fetched while a piece is computed, key `at` of what is seen being its first: its
 * share of what comes next. Where that is not known, rows in the dtype go on as they lie: those of a
 * journal mostly do. NULL: nothing.
 */
static const struct kv_attend_ahead *share_of(const struct kv_attend_ahead *next, uint32_t at,
					      const struct kv_codec *codec,
					      const struct attend_piece *piece,
					      const struct kv_codec_at *rows,
					      struct kv_attend_ahead *share)
{
	if (next->bytes) {
		*share = *next;
		share->at = (const char *)next->at + at * next->stride;
		return share;
	}
	if (!piece->is_exact || piece->n == 1)
		return NULL;
	share->at = (const void *)((uintptr_t)rows->codes + ATTEND_TILE * rows->codes_stride);
	share->stride = rows->codes_stride;
	share->bytes = codec->bytes.codes;
	return share;
}

/* Scores of the keys that are seen, in order: s [seen->n][ATTEND_TILE]. */
static void score(const struct attend *a, const struct seen *seen, const struct attend_block *block,
		  const struct kv_attend_ahead *next, float *s)
{
	struct kv_attend_query query = kv_attend_query_part(&block->query, seen->first, seen->n);
	struct kv_attend_ahead share;
	uint32_t at = 0;

	for (uint32_t i = 0; i < seen->n_pieces; at += seen->pieces[i++].n) {
		const struct attend_piece *piece = &seen->pieces[i];
		const struct kv_codec *codec = piece->is_exact ? &a->k_exact : a->k_codec;

		kv_attend_scores(codec, &query, piece->n, &piece->k,
				 share_of(next, at, codec, piece, &piece->k, &share), a->scale,
				 s + at, ATTEND_TILE);
	}
	for (uint32_t j = 0; a->args.softcap != 0 && j < seen->n; j++)
		kv_attend_cap(s + j * ATTEND_TILE, seen->n_keys, a->args.softcap);
}

/* Adds the values of what is seen, with the weights that the scores became. */
static void mix(const struct attend *a, const struct seen *seen, const float *w,
		const struct kv_attend_ahead *next, const struct kv_attend_sums *sums)
{
	struct kv_attend_ahead share;
	uint32_t at = 0;

	for (uint32_t i = 0; i < seen->n_pieces; at += seen->pieces[i++].n) {
		const struct attend_piece *piece = &seen->pieces[i];
		const struct kv_codec *codec = piece->is_exact ? &a->v_exact : a->v_codec;

		kv_attend_mix(codec, seen->n, w + at, ATTEND_TILE, piece->n, &piece->v,
			      share_of(next, at, codec, piece, &piece->v, &share), sums->o,
			      sums->stride);
	}
}

void walk_tile(const struct attend *a, struct attend_room *room, const struct attend_block *block,
	       const struct kv_attend_sums *block_sums)
{
	for (struct seen seen = {0}; next_seen(a, room, block, &seen);) {
		struct kv_attend_sums sums = kv_attend_sums_at(block_sums, seen.first);

		score(a, &seen, block, &room->ahead.k, room->s);
		kv_attend_sums_tile(&sums, seen.n, a->v_codec->width, room->s, ATTEND_TILE,
				    seen.n_keys);
		mix(a, &seen, room->s, &room->ahead.v, &sums);
		room->ahead.k.bytes = room->ahead.v.bytes = 0; /* once is enough */
	}
}

void walk_weights(const struct attend *a, struct attend_room *room,
		  const struct attend_block *block, const float *m, const float *l, float *w,
		  size_t stride)
{
	for (struct seen seen = {0}; next_seen(a, room, block, &seen);) {
		score(a, &seen, block, &room->ahead.k, room->s);
		room->ahead.k.bytes = 0;
		for (uint32_t j = 0; j < seen.n; j++) {
			float *to = w + (j % a->group_heads) * stride;
			float *s = room->s + j * ATTEND_TILE;
			uint32_t at = 0;

			kv_attend_weigh_begin(s, seen.n_keys, m[seen.first + j]);
			for (uint32_t i = 0; i < seen.n_pieces; i++) {
				kv_attend_weigh(to + seen.pieces[i].first, s + at, seen.pieces[i].n,
						l[seen.first + j]);
				at += seen.pieces[i].n;
			}
		}
	}
}
