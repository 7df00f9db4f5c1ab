/*
 * Attention in tests: sequences of tokens whose vectors follow from a number, in any dtype, and what
 * attention over any list of keys is, in f64.
 */
#ifndef KVCACHED_TESTS_UNIT_ATTEND_WORLD_H
#define KVCACHED_TESTS_UNIT_ATTEND_WORLD_H

#include "tests/unit/journal-world.h"

#define AW_HEADS 8u   /* query groups, at most */
#define AW_KEYS 4096u /* of a reference, at most */

/* ---- tokens -------------------------------------------------------------------------------- */

/* Vectors of tokens [first, first + n) of layer 0 in the dtype: [n][head][width]. The caller frees
 * them. */
void *aw_vectors(const struct jw *w, bool is_value, uint64_t first, uint64_t n);

/* Queries [n][n_query_heads][k_width] of tokens [first, first + n). The caller frees them. */
float *aw_queries(const struct jw *w, uint32_t n_query_heads, uint64_t first, uint64_t n);

/* Appends tokens first, first + 1, ... to a one-layer sequence, chunk by chunk of a commit each. */
void aw_append(struct jw *w, kvc_seq *seq, uint64_t first, uint64_t n, uint64_t chunk);

/* ---- a call -------------------------------------------------------------------------------- */

/* Arguments with current tokens, their number being first, first + 1, ... (n_current 0: the queries
 * are of cached tokens, of those numbers). */
struct aw_call {
	struct kvc_attend_args args;
	void *k, *v;
	float *q, *out, *weights;
	size_t n_out, n_weights;
};

void aw_call_init(struct aw_call *call, struct jw *w, uint32_t n_query_heads, uint64_t first,
		  uint64_t n_tokens, bool is_current);
/* Has room for the weights of n_slots slots. */
void aw_call_weights(struct aw_call *call, struct jw *w, uint64_t n_slots);
void aw_call_free(struct aw_call *call);

/* ---- reference ----------------------------------------------------------------------------- */

struct aw_key {
	float k[256], v[256];
	int64_t position;
	int64_t current; /* token of the call; -1: cached */
	uint32_t slot;
};

struct aw_keys {
	uint32_t n[AW_HEADS];
	struct aw_key *keys[AW_HEADS]; /* [AW_KEYS] each */
};

struct aw_keys *aw_keys_new(void);
void aw_keys_free(struct aw_keys *keys);

/* Adds what kvc_read gives of a slot, for one head, as the token of a position. */
void aw_key_cached(struct jw *w, kvc_seq *seq, struct aw_keys *keys, uint32_t head, uint64_t slot,
		   int64_t position);
/* Adds a current token of a call. */
void aw_key_current(struct jw *w, const struct aw_call *call, struct aw_keys *keys, uint32_t head,
		    uint64_t token, int64_t position, uint32_t slot);

/* The keys of a call by position. */
struct aw_keys *aw_keys_of(struct jw *w, kvc_seq *seq, const struct aw_call *call);

/*
 * Asserts that what a call gave is attention over those keys: out within (2e + 2^-16) * max |v|, e
 * being the published error of a score; weights within as much of theirs. first_position: of query
 * 0; a key is seen if it is cached or not behind the query, and in the window.
 */
void aw_check(struct jw *w, const struct aw_call *call, const struct aw_keys *keys,
	      int64_t first_position, uint64_t window);

/* kvc_attend, and aw_check against aw_keys_of. */
void aw_attend_checked(struct jw *w, kvc_seq *seq, struct aw_call *call);

#endif
