/*
 * Sharing out one call of kvc_attend. Few queries: a task is a span for some heads, all queries of
 * them; spans come in waves, so that what they gave is added in order from memory that does not
 * grow with the length. Many queries: a task is a block of queries of one head, through all spans.
 * Weights are a second pass over the keys, when the sums are known: a task is a span of one head.
 * Tasks are taken from a counter; which thread has which changes no bit.
 */
#include <string.h>

#include "client/attend.h"
#include "client/compute/fpmode.h"

/* Few queries: their sums are kept for each span of a wave. */
#define FEW_TOKENS 8u
#define FEW_QUERIES 4096u
#define WAVE_SPANS 4u /* of each thread */

struct room {
	struct attend_room walk;
	void *query;
	float *gather;                     /* queries of a block, side by side */
	struct kv_attend_sums part, total; /* of a block */
	float *w;                          /* [group_heads][ATTEND_SPAN] */
};

struct run {
	const struct attend *a;
	uint32_t n_threads;
	bool few;
	uint32_t block_tokens;
	uint64_t n_blocks;  /* of one head */
	uint64_t n_queries; /* of all heads: [head][token][group_heads] */

	struct room *rooms;          /* [n_threads] */
	struct attend_block *blocks; /* few: [n_heads][n_blocks] */
	char *queries;
	size_t query_bytes;          /* of a block */
	struct kv_attend_sums total; /* few: of all queries; else m and l, for the weights */
	struct kv_attend_sums parts; /* few: [wave_spans] of all queries */
	uint32_t wave_spans;
	void *put;

	/* what is shared out now */
	void (*task)(const struct run *run, struct room *room, uint64_t number);
	uint64_t first_span, n_ranges;
	uint32_t range_heads;
	uint64_t n_tasks;
	_Atomic uint64_t next;
};

/* ---- memory -------------------------------------------------------------------------------- */

static void take_room(struct run *run, struct kv_carve *c, struct room *room)
{
	const struct attend *a = run->a;
	uint32_t n = run->block_tokens * a->group_heads, width = run->few ? 0 : a->v_codec->width;

	room->walk.s = kv_carve(c, (size_t)n * ATTEND_TILE, sizeof(float));
	room->query = kv_carve(c, 1, run->query_bytes);
	room->gather = kv_carve(c, (size_t)n * a->k_codec->width, sizeof(float));
	room->part = kv_attend_sums_carve(c, n, width);
	room->total = kv_attend_sums_carve(c, n, width);
	room->w = a->args.weights ?
			  kv_carve(c, (size_t)a->group_heads * ATTEND_SPAN, sizeof(float)) :
			  NULL;
}

/* All that the call needs; returns how many bytes. */
static size_t lay_out(struct run *run, char *memory)
{
	const struct attend *a = run->a;
	struct kv_carve c = {.memory = memory};
	struct room none;

	run->rooms = kv_carve(&c, run->n_threads, sizeof(run->rooms[0]));
	for (uint32_t i = 0; i < run->n_threads; i++)
		take_room(run, &c, memory ? &run->rooms[i] : &none);
	if (run->few) {
		uint64_t n_blocks = a->n_heads * run->n_blocks;

		run->blocks = kv_carve(&c, n_blocks, sizeof(run->blocks[0]));
		run->queries = kv_carve(&c, n_blocks, run->query_bytes);
		run->parts = kv_attend_sums_carve(&c, run->wave_spans * run->n_queries,
						  a->v_codec->width);
	}
	if (run->few || a->args.weights)
		run->total = kv_attend_sums_carve(&c, run->n_queries,
						  run->few ? a->v_codec->width : 0);
	run->put = kv_carve(&c, 1, puts_bytes(a));
	return c.used;
}

static struct run run_of(const struct attend *a, uint32_t n_threads)
{
	struct run run = {.a = a, .n_threads = n_threads};
	uint32_t tokens = ATTEND_BLOCK_QUERIES / a->group_heads;

	run.block_tokens = tokens > 1 ? tokens : 1;
	if (run.block_tokens > a->args.n_tokens)
		run.block_tokens = (uint32_t)a->args.n_tokens;
	run.n_blocks = (a->args.n_tokens + run.block_tokens - 1) / run.block_tokens;
	run.n_queries = a->args.n_tokens * a->args.n_query_heads;
	run.few = a->args.n_tokens <= FEW_TOKENS && run.n_queries <= FEW_QUERIES;
	run.query_bytes = kv_attend_query_bytes(a->k_codec->width,
						run.block_tokens * a->group_heads);
	run.query_bytes = (run.query_bytes + 63) / 64 * 64;
	run.wave_spans = n_threads > 1 ? WAVE_SPANS * n_threads : 1;
	return run;
}

/* ---- queries ------------------------------------------------------------------------------- */

static uint64_t block_tokens(const struct run *run, uint64_t number)
{
	uint64_t left = run->a->args.n_tokens - number * run->block_tokens;

	return left < run->block_tokens ? left : run->block_tokens;
}

/* The first query of a block among those of all heads. */
static uint64_t block_query(const struct run *run, uint32_t head, uint64_t number)
{
	return (head * run->a->args.n_tokens + number * run->block_tokens) * run->a->group_heads;
}

static void make_block(const struct run *run, uint32_t head, uint64_t number, float *gather,
		       void *memory, struct attend_block *block)
{
	const struct attend *a = run->a;
	uint32_t n_tokens = (uint32_t)block_tokens(run, number), width = a->k_codec->width;
	size_t n = (size_t)a->group_heads * width, stride = (size_t)a->args.n_query_heads * width;
	const float *q = a->args.q + number * run->block_tokens * stride + head * n;

	for (uint32_t t = 0; n_tokens > 1 && t < n_tokens; t++)
		memcpy(gather + t * n, q + t * stride, n * sizeof(float));
	block->first_token = number * run->block_tokens;
	kv_attend_query_init(&block->query, width, n_tokens * a->group_heads,
			     n_tokens > 1 ? gather : q, width, memory);
}

/* The block of a head, made in the room, or long ago. */
static const struct attend_block *block_of(const struct run *run, struct room *room, uint32_t head,
					   uint64_t number, struct attend_block *made)
{
	if (run->few)
		return &run->blocks[head * run->n_blocks + number];
	make_block(run, head, number, room->gather, room->query, made);
	return made;
}

/* Of a block through all its keys: sinks, then what comes out. */
static void finish(const struct run *run, uint32_t head, uint64_t number,
		   const struct kv_attend_sums *block_sums)
{
	const struct attend *a = run->a;
	uint64_t n = block_tokens(run, number) * a->group_heads;
	uint32_t width = a->v_codec->width;

	for (uint64_t j = 0; j < n; j++) {
		struct kv_attend_sums sums = kv_attend_sums_at(block_sums, j);
		uint64_t token = number * run->block_tokens + j / a->group_heads;
		uint64_t query_head = head * a->group_heads + j % a->group_heads;

		if (a->args.sinks)
			kv_attend_sums_sink(&sums, width, a->args.sinks[query_head]);
		kv_attend_sums_out(&sums, width,
				   a->args.out +
					   (token * a->args.n_query_heads + query_head) * width);
	}
}

/* ---- spans --------------------------------------------------------------------------------- */

/* Keys of a span, from the tile of the first on, among [first, end). */
struct keys {
	uint64_t first, end;
};

static struct keys keys_of_span(uint64_t span, uint64_t first, uint64_t end)
{
	struct keys keys = {span * ATTEND_SPAN, (span + 1) * ATTEND_SPAN};

	if (keys.first < first)
		keys.first = first / ATTEND_TILE * ATTEND_TILE;
	if (keys.end > end)
		keys.end = end;
	return keys;
}

/* What any query of a block sees. */
static struct keys keys_of_block(const struct run *run, uint64_t number)
{
	uint64_t first_token = number * run->block_tokens;
	uint64_t last_token = first_token + block_tokens(run, number) - 1;
	struct keys keys;
	uint64_t other;

	keys_range(run->a, first_token, &keys.first, &other);
	keys_range(run->a, last_token, &other, &keys.end);
	return keys;
}

static uint64_t span_of(uint64_t key)
{
	return key / ATTEND_SPAN;
}

/* ---- few queries --------------------------------------------------------------------------- */

static void span_task(const struct run *run, struct room *room, uint64_t number)
{
	const struct attend *a = run->a;
	uint64_t in_wave = number / run->n_ranges;
	uint32_t first = (uint32_t)(number % run->n_ranges) * run->range_heads;
	uint32_t end = first + run->range_heads < a->n_heads ? first + run->range_heads :
							       a->n_heads;
	struct keys keys = keys_of_span(run->first_span + in_wave, a->first_key, a->end_key);
	struct kv_attend_sums span = kv_attend_sums_at(&run->parts, in_wave * run->n_queries), sums;

	sums = kv_attend_sums_at(&span, block_query(run, first, 0));
	kv_attend_sums_init(&sums, (uint32_t)((end - first) * run->n_queries / a->n_heads),
			    a->v_codec->width);
	for (uint64_t key = keys.first; key < keys.end; key += ATTEND_TILE)
		for (uint32_t h = first; h < end; h++) {
			keys_tile(a, key, h, &room->walk.tile);
			room->walk.ahead = keys_ahead(a, key + ATTEND_TILE, h,
						      end - first == a->n_heads);
			for (uint64_t b = 0; b < run->n_blocks; b++) {
				sums = kv_attend_sums_at(&span, block_query(run, h, b));
				walk_tile(a, &room->walk, &run->blocks[h * run->n_blocks + b],
					  &sums);
			}
		}
}

static void make_blocks(struct run *run)
{
	for (uint32_t h = 0; h < run->a->n_heads; h++)
		for (uint64_t b = 0; b < run->n_blocks; b++) {
			uint64_t i = h * run->n_blocks + b;

			make_block(run, h, b, run->rooms[0].gather,
				   run->queries + i * run->query_bytes, &run->blocks[i]);
		}
}

/* ---- many queries -------------------------------------------------------------------------- */

static void block_task(const struct run *run, struct room *room, uint64_t number)
{
	const struct attend *a = run->a;
	uint32_t head = (uint32_t)(number / run->n_blocks);
	struct keys seen = keys_of_block(run, number % run->n_blocks);
	struct attend_block block;
	uint32_t n;

	number %= run->n_blocks;
	make_block(run, head, number, room->gather, room->query, &block);
	n = block.query.n;
	kv_attend_sums_init(&room->total, n, a->v_codec->width);
	for (uint64_t span = span_of(seen.first); span * ATTEND_SPAN < seen.end; span++) {
		struct keys keys = keys_of_span(span, seen.first, seen.end);

		kv_attend_sums_init(&room->part, n, a->v_codec->width);
		for (uint64_t key = keys.first; key < keys.end; key += ATTEND_TILE) {
			keys_tile(a, key, head, &room->walk.tile);
			room->walk.ahead = keys_ahead(a, key + ATTEND_TILE, head, false);
			walk_tile(a, &room->walk, &block, &room->part);
		}
		kv_attend_sums_span(&room->total, n, a->v_codec->width, &room->part);
	}
	finish(run, head, number, &room->total);
	if (a->args.weights) {
		memcpy(run->total.m + block_query(run, head, number), room->total.m,
		       n * sizeof(float));
		memcpy(run->total.l + block_query(run, head, number), room->total.l,
		       n * sizeof(float));
	}
}

/* ---- weights ------------------------------------------------------------------------------- */

static void put_weights(const struct run *run, struct room *room, uint32_t head, struct keys keys)
{
	const struct attend *a = run->a;
	float *to = a->args.weights + head * a->n_slots;

	kv_attend_weights_of(room->w, ATTEND_SPAN, a->group_heads,
			     (uint32_t)(keys.end - keys.first),
			     a->args.weights_how == KVC_WEIGHTS_MEAN ? (float)a->group_heads : 1,
			     room->w);
	for (uint64_t key = keys.first; key < keys.end; key++) {
		uint64_t slot = keys_slot(a, key);

		if (key >= a->first_key && slot != UINT64_MAX)
			to[slot] = room->w[key - keys.first];
	}
}

static void weights_task(const struct run *run, struct room *room, uint64_t number)
{
	const struct attend *a = run->a;
	uint32_t head = (uint32_t)(number % a->n_heads);
	struct keys keys = keys_of_span(run->first_span + number / a->n_heads, a->first_key,
					a->end_key);
	struct attend_block made;

	memset(room->w, 0, (size_t)a->group_heads * ATTEND_SPAN * sizeof(float));
	for (uint64_t b = 0; b < run->n_blocks; b++) {
		const struct attend_block *block;
		struct keys seen = keys_of_block(run, b);
		uint64_t query = block_query(run, head, b);

		if (seen.first >= keys.end || seen.end <= keys.first)
			continue;
		block = block_of(run, room, head, b, &made);
		for (uint64_t key = keys.first; key < keys.end; key += ATTEND_TILE) {
			keys_tile(a, key, head, &room->walk.tile);
			room->walk.ahead = keys_ahead(a, key + ATTEND_TILE, head, false);
			walk_weights(a, &room->walk, block, run->total.m + query,
				     run->total.l + query, room->w + (key - keys.first),
				     ATTEND_SPAN);
		}
	}
	put_weights(run, room, head, keys);
}

/* ---- all ----------------------------------------------------------------------------------- */

static void do_tasks(void *arg, uint32_t thread)
{
	struct run *run = arg;
	struct room *room = &run->rooms[thread];
	kv_fpmode mode = kv_fpmode_enter();
	uint64_t number;

	while ((number = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed)) <
	       run->n_tasks) {
		keys_no_tile(&room->walk.tile);
		run->task(run, room, number);
	}
	kv_fpmode_leave(mode);
}

static void share_out(struct run *run, kvc_workers *workers,
		      void (*task)(const struct run *run, struct room *room, uint64_t number),
		      uint64_t n_tasks)
{
	run->task = task;
	run->n_tasks = n_tasks;
	atomic_store_explicit(&run->next, 0, memory_order_relaxed);
	workers_run(workers, do_tasks, run);
}

static void run_few(struct run *run, kvc_workers *workers)
{
	const struct attend *a = run->a;
	uint64_t last = span_of(a->end_key - 1), n, want;
	uint32_t width = a->v_codec->width, n_queries = (uint32_t)run->n_queries;

	make_blocks(run);
	kv_attend_sums_init(&run->total, n_queries, width);
	for (uint64_t span = span_of(a->first_key); span <= last; span += n) {
		n = last + 1 - span < run->wave_spans ? last + 1 - span : run->wave_spans;
		/* Some tasks for each thread, so that none waits long for another. */
		want = run->n_threads > 1 ? (WAVE_SPANS * run->n_threads + n - 1) / n : 1;
		want = want < a->n_heads ? want : a->n_heads;
		run->range_heads = (uint32_t)((a->n_heads + want - 1) / want);
		run->n_ranges = (a->n_heads + run->range_heads - 1) / run->range_heads;
		run->first_span = span;
		share_out(run, workers, span_task, n * run->n_ranges);
		for (uint64_t i = 0; i < n; i++) {
			struct kv_attend_sums part = kv_attend_sums_at(&run->parts,
								       i * run->n_queries);

			kv_attend_sums_span(&run->total, n_queries, width, &part);
		}
	}
	for (uint32_t h = 0; h < a->n_heads; h++)
		for (uint64_t b = 0; b < run->n_blocks; b++) {
			struct kv_attend_sums sums = kv_attend_sums_at(&run->total,
								       block_query(run, h, b));

			finish(run, h, b, &sums);
		}
}

static void run_weights(struct run *run, kvc_workers *workers)
{
	const struct attend *a = run->a;

	memset(a->args.weights, 0, a->n_heads * a->n_slots * sizeof(float));
	run->first_span = span_of(a->first_key);
	share_out(run, workers, weights_task,
		  (span_of(a->end_key - 1) + 1 - run->first_span) * a->n_heads);
}

int attend_run(struct attend *a, kvc_workers *workers)
{
	struct run run = run_of(a, workers_n(workers));
	void *memory = workers_scratch(workers, lay_out(&run, NULL));
	kv_fpmode mode;

	if (!memory)
		return -1;
	lay_out(&run, memory);
	if (puts_init(a, run.put))
		return -1;
	mode = kv_fpmode_enter();
	if (run.few)
		run_few(&run, workers);
	else
		share_out(&run, workers, block_task, a->n_heads * run.n_blocks);
	if (a->args.weights)
		run_weights(&run, workers);
	kv_fpmode_leave(mode);
	return 0;
}
