/*
 * llama: a Llama-shaped decoder on the CPU, in f32: RMSNorm, rotary positions on half pairs,
 * grouped-query attention, SwiGLU, tied embedding, no biases.
 *
 * Promise: geometry, rotary base and norm come from the weight file's metadata; every tensor is
 * checked against them before it is used. The logits of a position depend on the tokens and the
 * cached rows alone, bit for bit: not on how many tokens are computed together, nor on where the
 * rows lie (see kernels.h, kv.h). The tokens of a chunk see one another in full
 * precision, earlier ones as the cache stores them: on a quantised cache, and only there, logits
 * depend on where a chunk begins.
 *
 * Happy path: llama_open, then llama_forward with the ids of the prompt (prefill), then
 * llama_forward with one id after the other (decode), each time on the same struct kv_cache.
 *
 * Thread: a model has scratch memory and belongs to one thread at a time.
 */
#ifndef KV_EXAMPLES_LLAMA_H
#define KV_EXAMPLES_LLAMA_H

#include <stddef.h>
#include <stdint.h>

#include "client/examples/kv.h"
#include "proto/errbuf.h"

#define LLAMA_FINGERPRINT_BYTES 32
#define LLAMA_CHUNK_TOKENS 64

struct llama_geometry {
	size_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ffn;
	size_t vocab, context;
	double rope_theta;
	float norm_eps;
};

struct llama;

/* Loads a safetensors file with BF16 or F32 weights. 0, or -1 with err filled and *out NULL. */
int llama_open(struct llama **out, const char *path, struct errbuf *err);
void llama_close(struct llama *m);

/* Owned by m. */
const struct llama_geometry *llama_geometry(const struct llama *m);

/* BLAKE2b-256 of the weight file: a changed file is another model. Owned by m. */
const uint8_t *llama_fingerprint(const struct llama *m);

/* Floats of K (and of V) of a token and layer: KV heads x head dim. */
size_t llama_row_floats(const struct llama *m);

/* How many tokens are computed together, 1 to LLAMA_CHUNK_TOKENS (the default). */
void llama_set_chunk(struct llama *m, size_t n_tokens);

/*
 * Appends n tokens to the cache, which must have rows of llama_row_floats and room, and computes
 * the logits after the last n_rows of them (0 to n): n_rows rows of vocab floats into logits.
 * The tokens are committed chunk by chunk; after an error the chunks before it stay.
 */
int llama_forward(struct llama *m, struct kv_cache *kv, const uint32_t *ids, size_t n,
		  float *logits, size_t n_rows, struct errbuf *err);

#endif
