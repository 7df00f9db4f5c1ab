/*
 * Storing and reading vectors in the quantised formats, on one core.
 *
 * Product and memcpy both walk through 512 MiB of bf16 vectors of width 128, 4 MiB a call and half
 * a turn apart, so that neither finds in the cache what the other has just touched. Values are
 * rates: bytes of full precision by time. All memory was written once before.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "client/compute/codec.h"
#include "client/ctl/bench_value.h"
#include "tests/bench/bench.h"

#define FULL_BYTES ((size_t)512 << 20)
#define CALL_BYTES ((size_t)4 << 20)
#define N_CALLS (FULL_BYTES / CALL_BYTES)
#define WIDTH 128u
#define VECTOR_BYTES (WIDTH * 2)
#define CALL_VECTORS (CALL_BYTES / VECTOR_BYTES)
#define PARAMETER_BYTES 8 /* q4 has the most: four bf16 */

struct walk {
	const struct kv_codec *codec; /* NULL: memcpy */
	char *vectors, *copy, *codes, *scales, *zeros;
	size_t call;
	bool reads;
};

static char *room(size_t n_bytes)
{
	char *at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	BENCH_CHECK(at != MAP_FAILED);
	return at;
}

/* The upper halves of f32. */
static void fill_vectors(char *at)
{
	uint64_t random = BENCH_RANDOM;

	for (size_t i = 0; i < FULL_BYTES; i += 2) {
		union {
			float value;
			uint16_t halves[2];
		} x = {bench_value(&random)};

		memcpy(at + i, &x.halves[1], 2);
	}
}

static struct walk walk_make(void)
{
	struct walk walk = {.vectors = room(FULL_BYTES), .copy = room(FULL_BYTES)};

	fill_vectors(walk.vectors);
	walk.codes = room(FULL_BYTES / 2);
	walk.scales = room(FULL_BYTES / VECTOR_BYTES * PARAMETER_BYTES);
	walk.zeros = room(FULL_BYTES / VECTOR_BYTES * sizeof(int32_t));
	return walk;
}

static void walk_fini(struct walk *walk)
{
	munmap(walk->vectors, FULL_BYTES);
	munmap(walk->copy, FULL_BYTES);
	munmap(walk->codes, FULL_BYTES / 2);
	munmap(walk->scales, FULL_BYTES / VECTOR_BYTES * PARAMETER_BYTES);
	munmap(walk->zeros, FULL_BYTES / VECTOR_BYTES * sizeof(int32_t));
}

static double step(void *arg)
{
	struct walk *walk = arg;
	size_t off = walk->call++ % N_CALLS * CALL_BYTES, n = CALL_VECTORS;
	const struct kv_codec *codec = walk->codec;
	struct kv_codec_at at = {walk->codes, walk->scales, walk->zeros, 0, 0, 0};
	uint64_t begin;

	if (codec) {
		at.codes_stride = codec->bytes.codes;
		at.scale_stride = codec->bytes.scale;
		at.zero_stride = codec->bytes.zero;
		at = kv_codec_at(&at, off / VECTOR_BYTES);
	}
	begin = bench_now_ns();
	if (!codec)
		memcpy(walk->copy + off, walk->vectors + off, CALL_BYTES);
	else if (walk->reads)
		kv_dequantise(codec, n, &at, walk->copy + off, VECTOR_BYTES);
	else
		n = kv_quantise(codec, n, walk->vectors + off, VECTOR_BYTES, &at);
	BENCH_CHECK(n == CALL_VECTORS);
	return (double)CALL_BYTES / bench_since_ns(begin);
}

/* The walk begins with a turn that does not count: what is to be read must have been stored. */
static void measure(const struct walk *base, uint32_t format)
{
	struct walk product = *base, reference = *base;
	struct kv_codec codec;
	char name[32];

	BENCH_CHECK(kv_codec_init(&codec, format, KV_DTYPE_BF16, WIDTH, NULL) == 0);
	product.codec = &codec;
	product.reads = false;
	for (size_t i = 0; i < N_CALLS; i++)
		step(&product);
	product.reads = base->reads;
	reference.call = N_CALLS / 2;
	snprintf(name, sizeof(name), "%s_%s", base->reads ? "dequantise" : "quantise",
		 kv_format_name(format));
	bench_compare(bench_result(name), (struct bench_side){step, &product},
		      (struct bench_side){step, &reference}, N_CALLS - 2, 1);
}

static void measure_all(bool reads)
{
	static const uint32_t formats[] = {KV_FORMAT_INT8, KV_FORMAT_U8, KV_FORMAT_U4, KV_FORMAT_Q4,
					   KV_FORMAT_FP8};
	struct walk walk = walk_make();

	walk.reads = reads;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		measure(&walk, formats[i]);
	walk_fini(&walk);
}

void bench_group_quantise(void)
{
	measure_all(false);
}

void bench_group_dequantise(void)
{
	measure_all(true);
}
