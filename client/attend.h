/*
 * The inside of kvc_attend: one call, its keys, its sums.
 *
 * Keys have one logical order. By position: key x is the token of absolute position x, in slot x,
 * or x % bound in a ring; current token j is at position length + j. By slot (the caller has said
 * where the current tokens are): key x is what slot x holds with this update, and behind the slots
 * are the current tokens that are in none. *Tiles* are 64 keys,
 * *spans* 4,096, each aligned to its size. Each query goes through the keys that it sees tile by
 * tile, each span from nothing, and the spans are added in their order: the result depends on the
 * keys alone, not on who computes what, nor on what else is computed with it. Keys that a query does
 * not see are not read for it: there may be anything.
 *
 * attend.c checks a call, attend_puts.c and attend_keys.c find keys, attend_walk.c computes a tile,
 * attend_run.c shares the work out. Many threads read a call, none changes it.
 */
#ifndef KV_CLIENT_ATTEND_H
#define KV_CLIENT_ATTEND_H

#include "client/compute/attend.h"
#include "client/compute/attend_sums.h"
#include "client/seq.h"
#include "client/workers.h"
#include "proto/journal.h"

#define ATTEND_TILE KV_ATTEND_TILE
#define ATTEND_SPAN KV_ATTEND_SPAN
/* Queries that are computed together, if they are more than the query heads of one token. */
#define ATTEND_BLOCK_QUERIES 64u

/* A vector that the open update has put into a slot: a current token, or a staged row. */
struct attend_put {
	uint64_t order; /* slot << 32 | later ones are greater */
	uint64_t row;   /* staged; UINT64_MAX: a current token */
	uint64_t token; /* current; not looked at of a row */
};

struct attend {
	struct kvc_seq *seq;
	const struct kv_layout *layout;
	struct kvc_attend_args args;
	uint32_t layer, group;
	uint32_t n_heads;                         /* query groups, as the cache has heads */
	uint32_t group_heads;                     /* query heads of each */
	const struct kv_codec *k_codec, *v_codec; /* of what is stored */
	struct kv_codec k_exact, v_exact;         /* of vectors in the dtype */
	struct kv_row_parts parts;
	float scale;

	uint64_t length;    /* cached tokens that count */
	uint64_t n_current; /* n_tokens, or 0 where the queries are of cached tokens */
	uint64_t window;    /* tokens that a query sees by position; UINT64_MAX: all */
	uint64_t n_slots;   /* with this update */
	uint64_t first_key, end_key;
	uint64_t base_slots;  /* those that blocks hold, with this update */
	uint64_t overlay_low; /* no row of a replay journal names a slot below */

	/* by slot: of head h put[put_first[h] .. put_first[h + 1]), in order of slots */
	struct attend_put *put;
	uint64_t *put_first;
};

/* ---- attend_puts.c ------------------------------------------------------------------------- */

/* Bytes of the list of what the open update has put into slots, at most. */
size_t puts_bytes(const struct attend *a);
/* Fills it, in memory of the caller. -1 with KVC_EINVAL: a slot has two current tokens. */
int puts_init(struct attend *a, void *memory);
/* The number in `put` of the first of a head in a slot not below. */
uint64_t puts_from(const struct attend *a, uint32_t head, uint64_t slot);

/* ---- attend_keys.c ------------------------------------------------------------------------- */

/* Consecutive rows of a tile that lie at equal distances, K and V. */
struct attend_piece {
	uint32_t first, n;
	bool is_exact; /* in the dtype */
	struct kv_codec_at k, v;
};

/* The keys of one head in a tile. */
struct attend_tile {
	uint64_t first; /* key of row 0 */
	uint32_t head;
	uint32_t n_pieces;
	bool same_everywhere; /* other heads lie beside it */
	uint64_t rows;        /* bits of those that there are */
	uint32_t n_late;      /* rows of current tokens, by slot */
	struct {
		uint64_t row_bit, token;
	} late[ATTEND_TILE];
	struct attend_piece pieces[ATTEND_TILE];
	/* the block of the journal that was looked at last */
	uint64_t journal_block;
	char *journal_memory;
};

/* No tile yet. */
static inline void keys_no_tile(struct attend_tile *tile)
{
	tile->first = tile->journal_block = UINT64_MAX;
}

/* The tile that begins at key `first`; fast where it was this tile of the head before. */
void keys_tile(const struct attend *a, uint64_t first, uint32_t head, struct attend_tile *tile);

/* Which rows of a tile the queries of a token see. */
uint64_t keys_seen(const struct attend *a, const struct attend_tile *tile, uint64_t token);

/* By position: the keys that a token sees, [*first, *end). By slot: all. */
void keys_range(const struct attend *a, uint64_t token, uint64_t *first, uint64_t *end);

/* What is to be fetched while a tile of a head is computed: of the tile that begins at `next`. whole:
 * the heads are computed one after the other, each fetches a part of all; else each its own rows. */
struct attend_ahead {
	struct kv_attend_ahead k, v; /* bytes 0: nothing */
};
struct attend_ahead keys_ahead(const struct attend *a, uint64_t next, uint32_t head, bool whole);

/* The slot that a key is in with this update; UINT64_MAX: in none any more. */
uint64_t keys_slot(const struct attend *a, uint64_t key);

/* ---- attend_walk.c ------------------------------------------------------------------------- */

/* Memory of one thread. */
struct attend_room {
	float *s; /* [queries of a block][ATTEND_TILE] */
	struct attend_ahead ahead;
	struct attend_tile tile;
	struct attend_piece cut[ATTEND_TILE];
};

/* Queries of one head: those of tokens [first_token, first_token + n / group_heads). */
struct attend_block {
	uint64_t first_token;
	struct kv_attend_query query;
};

/* Adds the tile that is in the room to the sums of a block. */
void walk_tile(const struct attend *a, struct attend_room *room, const struct attend_block *block,
	       const struct kv_attend_sums *sums);

/* Adds the weights of the tile's rows to w [group_heads][stride]; m and l are of the block. */
void walk_weights(const struct attend *a, struct attend_room *room,
		  const struct attend_block *block, const float *m, const float *l, float *w,
		  size_t stride);

/* ---- attend_run.c -------------------------------------------------------------------------- */

/* Computes a call that was checked. -1 with KVC_ENOMEM, or what puts_init says. */
int attend_run(struct attend *a, kvc_workers *workers);

#endif
