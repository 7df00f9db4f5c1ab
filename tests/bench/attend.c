/* Sequences and queries for the rows of attention; see attend.h. */
#include "tests/bench/attend.h"

#include <stdlib.h>

#include "client/ctl/bench_value.h"

void bench_attend_fill(float *at, size_t n, uint64_t seed)
{
	uint64_t random = BENCH_RANDOM + seed;

	for (size_t i = 0; i < n; i++)
		at[i] = bench_value(&random);
}

unsigned bench_attend_n_seqs(uint64_t n_bytes)
{
	uint64_t n = (ATTEND_WALK_BYTES + n_bytes - 1) / n_bytes;

	return n < 2 ? 2 : n > ATTEND_SEQS ? ATTEND_SEQS : (unsigned)n;
}

void bench_attend_make(struct bench_attend *attend, struct bench_cache *cache, uint64_t n_tokens,
		       uint32_t group, uint32_t n_threads)
{
	size_t n = n_tokens * BENCH_HEADS * group * BENCH_WIDTH;

	*attend = (struct bench_attend){
		.cache = cache,
		.n_tokens = n_tokens,
		.group = group,
		.q = calloc(n, sizeof(float)),
		.out = calloc(n, sizeof(float)),
		.current = cache->source,
		.unit = 1,
	};
	BENCH_CHECK(attend->q && attend->out);
	BENCH_CHECK(n_tokens <= cache->n_source_tokens * cache->n_layers * 2);
	bench_attend_fill(attend->q, n, group);
	if (n_threads > 1)
		BENCH_CHECK(attend->workers = kvc_workers_new(n_threads));
}

void bench_attend_free(struct bench_attend *attend)
{
	kvc_workers_free(attend->workers);
	free(attend->q);
	free(attend->out);
}

void bench_attend_drop(struct bench_attend *attend)
{
	for (unsigned i = 0; i < attend->n_seqs; i++)
		BENCH_CHECK(kvc_seq_drop(attend->seqs[i]) == 0);
}

double bench_attend_call(void *arg)
{
	struct bench_attend *attend = arg;
	const struct kvc_attend_args args = {
		.size = sizeof(args),
		.n_query_heads = BENCH_HEADS * attend->group,
		.n_tokens = attend->n_tokens,
		.q = attend->q,
		.k = attend->current,
		.v = attend->current,
		.out = attend->out,
		.workers = attend->workers,
	};
	kvc_seq *seq = attend->seqs[attend->at++ % attend->n_seqs];
	uint64_t begin = bench_now_ns();
	int rc = kvc_attend(seq, attend->layer, &args);
	double ns = bench_since_ns(begin);

	BENCH_CHECK(rc == 0);
	return ns / attend->unit;
}

void bench_read_make(struct bench_read *read, const struct bench_attend *of)
{
	*read = (struct bench_read){.n_planes = of->n_seqs, .workers = of->workers};
	for (unsigned i = 0; i < read->n_planes; i++)
		BENCH_CHECK(plain_plane_init(&read->planes[i], of->seqs[i], of->layer) == 0);
}

void bench_read_free(struct bench_read *read)
{
	for (unsigned i = 0; i < read->n_planes; i++)
		plain_plane_fini(&read->planes[i]);
}

double bench_read_call(void *arg)
{
	struct bench_read *read = arg;
	const struct plain_plane *plane = &read->planes[read->at++ % read->n_planes];
	uint64_t begin = bench_now_ns();

	read->sum = plain_read(plane, read->workers);
	return bench_since_ns(begin);
}
