#include "client/examples/sample.h"

#include <math.h>

uint32_t sample_greedy(const float *logits, size_t vocab)
{
	size_t best = 0;

	for (size_t i = 1; i < vocab; i++)
		if (logits[i] > logits[best])
			best = i;
	return (uint32_t)best;
}

/* The output step of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits. */
static uint64_t mix_bits(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* In [0, 1), from seed and position. */
static double uniform(uint64_t seed, uint64_t position)
{
	uint64_t bits = mix_bits(mix_bits(seed + 0x9e3779b97f4a7c15u) + position);

	return (double)(bits >> 11) * 0x1p-53;
}

uint32_t sample_token(const float *logits, size_t vocab, double temperature, uint64_t seed,
		      uint64_t position)
{
	uint32_t greedy = sample_greedy(logits, vocab);
	double max = (double)logits[greedy], total = 0, at = 0, mark;

	if (!(temperature > 0))
		return greedy;
	for (size_t i = 0; i < vocab; i++)
		total += exp(((double)logits[i] - max) / temperature);
	if (!isfinite(total))
		return greedy;
	mark = uniform(seed, position) * total;
	for (size_t i = 0; i < vocab; i++) {
		at += exp(((double)logits[i] - max) / temperature);
		if (at > mark)
			return (uint32_t)i;
	}
	return greedy;
}
