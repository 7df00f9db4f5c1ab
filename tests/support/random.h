/*
 * Numbers for tests that try many things: the same ones for the same seed, on every machine.
 * (Knuth's linear congruential generator; the upper bits, which are the better ones.)
 */
#ifndef KVCACHED_TESTS_SUPPORT_RANDOM_H
#define KVCACHED_TESTS_SUPPORT_RANDOM_H

#include <stdint.h>

/* The next number of a state that began as the seed: 0 to n - 1. */
static inline uint64_t kt_draw(uint64_t *state, uint64_t n)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*state >> 33) % n;
}

#endif
