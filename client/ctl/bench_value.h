/* Random values to measure with, the same in each run. */
#ifndef KV_CTL_BENCH_VALUE_H
#define KV_CTL_BENCH_VALUE_H

#include <stdint.h>

/* Where a row of them begins. */
#define BENCH_RANDOM UINT64_C(88172645463325252)

/* The next one: a sum of four random numbers, between -4 and 4, not so far from what keys and
 * values are like. */
static inline float bench_value(uint64_t *random)
{
	uint64_t r = *random;

	r ^= r << 13;
	r ^= r >> 7;
	r ^= r << 17;
	*random = r;
	return (float)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48)) *
		       0x1p-15f -
	       4.0f;
}

#endif
