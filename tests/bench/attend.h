/*
 * What the rows of attention share: sequences to attend over, queries, and the plain read.
 *
 * A product attends over a layer of 8 query groups of width 128 by kvc_attend, one query head or
 * more a group, with one current token. It walks through several sequences in turn, so many that
 * they do not fit into a cache, and so does the read through as many planes: neither finds in a
 * cache what it, or the other, has touched before.
 */
#ifndef KVCACHED_TESTS_BENCH_ATTEND_H
#define KVCACHED_TESTS_BENCH_ATTEND_H

#include "client/ctl/plain_read.h"
#include "tests/bench/bench.h"

/* Together, sequences or planes of a walk have at least so many bytes, and are at least two. */
#define ATTEND_WALK_BYTES ((uint64_t)256 << 20)
#define ATTEND_SEQS 16u
#define ATTEND_GROUP_MAX 4u
#define ATTEND_TOKENS 32768u
#define ATTEND_PAIRS 41u

/* n finite floats, sums of random numbers: not so far from what queries are like. */
void bench_attend_fill(float *at, size_t n, uint64_t seed);

/* ---- the product (attend.c) ----------------------------------------------------------------- */

struct bench_attend {
	struct bench_cache *cache;
	kvc_seq *seqs[ATTEND_SEQS];
	unsigned n_seqs, at; /* of the next call */
	uint32_t layer;
	uint64_t n_tokens;   /* queries */
	uint32_t group;      /* query heads of a query group */
	float *q, *out;      /* of n_tokens */
	const void *current; /* K and V of n_tokens, in the dtype */
	kvc_workers *workers;
	double unit; /* what is given is nanoseconds by this */
};

/* How many sequences of n_bytes make a walk. */
unsigned bench_attend_n_seqs(uint64_t n_bytes);

/* Queries for n_tokens current tokens, `group` heads a query group; the sequences are the
 * caller's. n_threads 1: no workers. */
void bench_attend_make(struct bench_attend *attend, struct bench_cache *cache, uint64_t n_tokens,
		       uint32_t group, uint32_t n_threads);
/* Workers and queries; not the sequences. */
void bench_attend_free(struct bench_attend *attend);
void bench_attend_drop(struct bench_attend *attend);

/* One call of kvc_attend over the next sequence; a bench_call. */
double bench_attend_call(void *attend);

/* ---- the plain read -------------------------------------------------------------------------- */

/* Sums the stored bytes of the product's sequences, copied into planes of their own, by the same
 * threads. */
struct bench_read {
	struct plain_plane planes[ATTEND_SEQS];
	unsigned n_planes, at;
	uint64_t sum; /* of the last call: nothing is left out as unused */
	kvc_workers *workers;
};

void bench_read_make(struct bench_read *read, const struct bench_attend *of);
void bench_read_free(struct bench_read *read);

/* One plane; a bench_call. */
double bench_read_call(void *read);

#endif
