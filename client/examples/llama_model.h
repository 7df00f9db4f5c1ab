/* llama_model: the inside of a struct llama, shared by llama.c and llama_load.c. */
#ifndef KV_EXAMPLES_LLAMA_MODEL_H
#define KV_EXAMPLES_LLAMA_MODEL_H

#include "client/examples/kernels.h"
#include "client/examples/llama.h"

struct llama_layer {
	float *attn_norm, *ffn_norm;
	struct matrix wq, wk, wv, wo, w1, w2, w3;
};

/* Working memory for one chunk: [token][element] each. */
struct llama_scratch {
	float *x, *h;         /* d_model */
	float *q, *o;         /* query heads x head dim */
	float *k, *v;         /* KV heads x head dim */
	float *w1, *w3;       /* d_ffn */
	float *cosine, *sine; /* head_dim / 2 */
};

struct llama {
	struct llama_geometry g;
	uint8_t fingerprint[LLAMA_FINGERPRINT_BYTES];
	struct matrix embed;
	struct llama_layer *layers;
	float *norm;
	size_t chunk;
	const struct kernels *kernels;
	struct llama_scratch s;
};

#endif
