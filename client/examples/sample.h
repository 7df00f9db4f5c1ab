/*
 * sample: the choice of the next token.
 *
 * Promise: the choice depends on the logits, the temperature, the seed and the position alone.
 * There is no state, so a decoder that rolls back and goes on draws what it would have drawn.
 *
 * Thread: any.
 */
#ifndef KV_EXAMPLES_SAMPLE_H
#define KV_EXAMPLES_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

/* The lowest id among the largest logits. */
uint32_t sample_greedy(const float *logits, size_t vocab);

/*
 * A token drawn with probabilities softmax(logits / temperature); greedy when temperature is 0 or
 * the logits are not finite. position is that of the new token in its sequence.
 */
uint32_t sample_token(const float *logits, size_t vocab, double temperature, uint64_t seed,
		      uint64_t position);

#endif
