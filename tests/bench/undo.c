/*
 * In-place updates of an int8 cache of 4k tokens, and their rollback.
 *
 * The reference works in the blocks of a second sequence, in slots that are drawn alike: it
 * fetches the slots of a layer ahead, as the library does, and stores the vectors there; for the
 * rollback it has saved the stored bytes side by side, and copies them back.
 */
#include <string.h>

#include "client/compute/codec.h"
#include "tests/bench/bench.h"

#define TOKENS 4096u
#define SOURCE_BYTES (64u << 20)
#define PAIRS 401u
#define SCALE_BYTES 2u
#define STORED_BYTES (2 * (BENCH_WIDTH + SCALE_BYTES))

/* Where the vectors of a layer lie. */
struct layer {
	char *codes[2], *scales[2]; /* of K and V, slot 0 */
};

struct stored {
	struct bench_scatter scatter;
	struct kv_codec codec;
	struct layer layers[BENCH_LAYERS];
	char saved[BENCH_LAYERS][BENCH_HEADS][STORED_BYTES];
};

/* ---- product ------------------------------------------------------------------------------ */

static double update(void *arg)
{
	struct bench_scatter *scatter = arg;
	double ns = bench_scatter_call(scatter);

	BENCH_CHECK(kvc_rollback_steps(scatter->seq, 1) == 0);
	return ns;
}

/* ---- reference ---------------------------------------------------------------------------- */

static char *codes_at(const struct layer *layer, bool is_value, uint64_t slot, uint64_t head)
{
	return layer->codes[is_value] + (slot * BENCH_HEADS + head) * BENCH_WIDTH;
}

static char *scale_at(const struct layer *layer, bool is_value, uint64_t slot, uint64_t head)
{
	return layer->scales[is_value] + (slot * BENCH_HEADS + head) * SCALE_BYTES;
}

static void fetch(const struct layer *layer, const uint32_t *slots)
{
	for (uint32_t h = 0; h < BENCH_HEADS; h++) {
		for (unsigned v = 0; v < 2; v++) {
			__builtin_prefetch(codes_at(layer, v, slots[h], h), 1);
			__builtin_prefetch(codes_at(layer, v, slots[h], h) + 64, 1);
			__builtin_prefetch(scale_at(layer, v, slots[h], h), 1);
		}
	}
}

static size_t store_layer(const struct stored *stored, uint32_t number, const char *source)
{
	const struct layer *layer = &stored->layers[number];
	const uint32_t *slots = stored->scatter.slots[number];
	size_t done = 0;

	for (uint32_t h = 0; h < BENCH_HEADS; h++) {
		for (unsigned v = 0; v < 2; v++) {
			struct kv_codec_at at = {.codes = codes_at(layer, v, slots[h], h),
						 .scale = scale_at(layer, v, slots[h], h)};

			done += kv_quantise(&stored->codec, 1,
					    source + v * BENCH_ROW_BYTES + h * BENCH_WIDTH * 2,
					    BENCH_WIDTH * 2, &at);
		}
	}
	return done;
}

static size_t store_all(const struct stored *stored)
{
	const char *source = stored->scatter.source;
	size_t done = 0;

	for (uint32_t i = 0; i < BENCH_LAYERS; i++, source += 2 * BENCH_ROW_BYTES) {
		fetch(&stored->layers[i], stored->scatter.slots[i]);
		done += store_layer(stored, i, source);
	}
	return done;
}

/* Out of the slots, or back into them. */
static void copy_all(struct stored *stored, bool back)
{
	for (uint32_t i = 0; i < BENCH_LAYERS; i++) {
		for (uint32_t h = 0; h < BENCH_HEADS; h++) {
			uint32_t slot = stored->scatter.slots[i][h];
			char *saved = stored->saved[i][h];

			for (unsigned v = 0; v < 2; v++) {
				char *codes = codes_at(&stored->layers[i], v, slot, h);
				char *scale = scale_at(&stored->layers[i], v, slot, h);

				memcpy(back ? codes : saved, back ? saved : codes, BENCH_WIDTH);
				saved += BENCH_WIDTH;
				memcpy(back ? scale : saved, back ? saved : scale, SCALE_BYTES);
				saved += SCALE_BYTES;
			}
		}
	}
}

static double quantise_in_slots(void *arg)
{
	struct stored *stored = arg;
	uint64_t begin;
	size_t done;
	double ns;

	bench_scatter_draw(&stored->scatter);
	begin = bench_now_ns();
	done = store_all(stored);
	ns = bench_since_ns(begin);
	BENCH_CHECK(done == BENCH_LAYERS * BENCH_HEADS * 2);
	return ns;
}

static double copy_back(void *arg)
{
	struct stored *stored = arg;
	uint64_t begin;

	bench_scatter_draw(&stored->scatter);
	copy_all(stored, false);
	store_all(stored);
	begin = bench_now_ns();
	copy_all(stored, true);
	return bench_since_ns(begin);
}

static void find_slots(struct stored *stored)
{
	for (uint32_t i = 0; i < BENCH_LAYERS; i++) {
		struct kvc_run run;

		BENCH_CHECK(kvc_view_run(stored->scatter.seq, i, &run) == 0);
		stored->layers[i] = (struct layer){
			.codes = {(char *)(uintptr_t)run.k, (char *)(uintptr_t)run.v},
			.scales = {(char *)(uintptr_t)run.k_scale, (char *)(uintptr_t)run.v_scale},
		};
	}
}

void bench_group_undo(void)
{
	struct bench_cache cache;
	struct bench_scatter product = {.cache = &cache, .n_slots = TOKENS};
	static struct stored reference;

	bench_cache_open(&cache, BENCH_LAYERS, KVC_INT8, SOURCE_BYTES);
	product.seq = bench_seq(&cache, TOKENS, 0, NULL);
	reference.scatter = product;
	reference.scatter.seq = bench_seq(&cache, TOKENS, 0, NULL);
	reference.scatter.n_drawn = cache.n_source_tokens / 2;
	BENCH_CHECK(kv_codec_init(&reference.codec, KV_FORMAT_INT8, KV_DTYPE_BF16, BENCH_WIDTH,
				  NULL) == 0);
	find_slots(&reference);
	bench_journal(product.seq, KVC_JOURNAL_UNDO, 2, 2 * BENCH_LAYERS * BENCH_HEADS);
	bench_compare(bench_result("undo_update"), (struct bench_side){update, &product},
		      (struct bench_side){quantise_in_slots, &reference}, PAIRS, 1000);
	bench_compare(bench_result("undo_rollback"),
		      (struct bench_side){bench_scatter_back_call, &product},
		      (struct bench_side){copy_back, &reference}, PAIRS, 1000);
	BENCH_CHECK(kvc_seq_drop(product.seq) == 0 && kvc_seq_drop(reference.scatter.seq) == 0);
	bench_cache_close(&cache);
}
