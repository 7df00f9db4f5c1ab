/*
 * attend_*: a decode step over 32k tokens of one layer as each format stores them, against the
 * plain read of the same bytes; one query head a query group and four, one thread and two.
 *
 * attend_int8_vs_bf16_*: steps a second over int8 against bf16, one thread.
 */
#include <stdio.h>

#include "tests/bench/attend.h"

struct sequences {
	struct bench_cache cache;
	kvc_seq *seqs[ATTEND_SEQS];
	unsigned n;
};

static void open_sequences(struct sequences *s, uint32_t format)
{
	bench_cache_open(&s->cache, 1, format, BENCH_SOURCE_BYTES);
	s->n = bench_attend_n_seqs(kvc_layout_token_bytes(s->cache.layout) * ATTEND_TOKENS);
	for (unsigned i = 0; i < s->n; i++)
		s->seqs[i] = bench_seq(&s->cache, ATTEND_TOKENS, 0, NULL);
}

static void close_sequences(struct sequences *s)
{
	for (unsigned i = 0; i < s->n; i++)
		BENCH_CHECK(kvc_seq_drop(s->seqs[i]) == 0);
	bench_cache_close(&s->cache);
}

static void make(struct bench_attend *attend, struct sequences *s, uint32_t group,
		 uint32_t n_threads)
{
	bench_attend_make(attend, &s->cache, 1, group, n_threads);
	attend->n_seqs = s->n;
	for (unsigned i = 0; i < s->n; i++)
		attend->seqs[i] = s->seqs[i];
}

/* ---- against the read ------------------------------------------------------------------------ */

static void measure(struct sequences *s, const char *format, uint32_t group, uint32_t n_threads)
{
	struct bench_attend product;
	struct bench_result *result;
	struct bench_read reference;
	char name[32];

	snprintf(name, sizeof(name), "attend_%s_g%u%s", format, group, n_threads > 1 ? "_t2" : "");
	result = bench_result(name);
	make(&product, s, group, n_threads);
	bench_read_make(&reference, &product);
	bench_compare(result, (struct bench_side){bench_attend_call, &product},
		      (struct bench_side){bench_read_call, &reference}, ATTEND_PAIRS, 1000);
	snprintf(result->note, sizeof(result->note), "%.1f GB/s, the read %.1f",
		 (double)reference.planes[0].n_bytes / (result->value * 1000),
		 (double)reference.planes[0].n_bytes / (result->reference_value * 1000));
	bench_read_free(&reference);
	bench_attend_free(&product);
}

static void measure_format(const char *name, uint32_t format)
{
	struct sequences s;

	open_sequences(&s, format);
	for (uint32_t n_threads = 1; n_threads <= 2; n_threads++)
		for (uint32_t group = 1; group <= ATTEND_GROUP_MAX; group *= ATTEND_GROUP_MAX)
			measure(&s, name, group, n_threads);
	close_sequences(&s);
}

void bench_group_attend_int8(void)
{
	measure_format("int8", KVC_INT8);
}

void bench_group_attend_bf16(void)
{
	measure_format("bf16", KVC_RAW);
}

void bench_group_attend_u8(void)
{
	measure_format("u8", KVC_U8);
}

void bench_group_attend_fp8(void)
{
	measure_format("fp8", KVC_FP8);
}

void bench_group_attend_u4(void)
{
	measure_format("u4", KVC_U4);
}

void bench_group_attend_q4(void)
{
	measure_format("q4", KVC_Q4);
}

/* ---- against one another --------------------------------------------------------------------- */

static double steps_a_second(void *arg)
{
	return 1e9 / bench_attend_call(arg);
}

static void compare_formats(const char *name, struct sequences *int8, struct sequences *bf16,
			    uint32_t group)
{
	struct bench_attend product, reference;

	make(&product, int8, group, 1);
	make(&reference, bf16, group, 1);
	bench_compare(bench_result(name), (struct bench_side){steps_a_second, &product},
		      (struct bench_side){steps_a_second, &reference}, ATTEND_PAIRS, 1);
	bench_attend_free(&product);
	bench_attend_free(&reference);
}

void bench_group_attend_versus(void)
{
	struct sequences int8, bf16;

	open_sequences(&int8, KVC_INT8);
	open_sequences(&bf16, KVC_RAW);
	compare_formats("attend_int8_vs_bf16_g1", &int8, &bf16, 1);
	compare_formats("attend_int8_vs_bf16_g4", &int8, &bf16, ATTEND_GROUP_MAX);
	close_sequences(&int8);
	close_sequences(&bf16);
}
