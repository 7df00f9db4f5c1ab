/*
 * What the parts of tests/vectors/quant share: the tally, and vectors as they lie stored.
 *
 * Files are not trusted: every tensor is there, of its type, with as many bytes as the case needs,
 * or the case fails.
 */
#ifndef KVCACHED_TESTS_VECTORS_QUANT_H
#define KVCACHED_TESTS_VECTORS_QUANT_H

#include <stdbool.h>

#include "client/compute/kernels.h"
#include "client/examples/safetensors.h"

/* One check of one set of kernels; failures are printed with `what`. */
void tally(bool passed, const char *what, const struct kv_codec *codec,
	   const struct kv_codec_kernels *kernels, const char *reason);

/* The tensor's bytes, or NULL (with the reason in `reason`) if it is not as it must be. */
const unsigned char *tensor(const struct safetensors *file, const char *name,
			    enum safetensors_type type, size_t n_bytes, char reason[160]);

enum safetensors_type tensor_type_of(uint32_t dtype);

/* Room for n vectors and what they read back as. */
struct stored {
	struct kv_codec_at at;
	char *back;
	size_t n, back_stride;
};

/* Fills everything with a pattern first, which tells what has been written. */
#define STORED_PATTERN 0xa5
struct stored stored_new(const struct kv_codec *codec, size_t n);
void stored_free(struct stored *stored);

/* All vectors of a file of special rows, by kvcached's own rules. */
void run_special(const struct safetensors *file);

#endif
