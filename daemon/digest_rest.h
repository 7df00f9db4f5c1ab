/*
 * What comes behind the blocks in the digest of a state: the sequence planes that count, then the
 * rows of a replay journal that are in force, by layer, head and slot (proto/digest.h).
 *
 *	digest_rest_begin(&rest, state);
 *	while ((rc = digest_rest_step(core, &rest, &digest, max_bytes, &n_bytes, &err)) == 0)
 *		;                                 1: all is in the digest, -1: err says what failed
 *	digest_rest_end(&rest);
 *
 * A step reads about max_bytes with pread. The headers of all rows come first: the newest row of
 * each (layer, head, slot) is kept, 16 bytes each, sorted run by run; then their payloads. A row
 * is what a client wrote: one that makes no sense is not in force. Memory is bounded by the window
 * of the journal, and by the rows that differ: no memory for them is KV_ENOMEM. Core thread.
 */
#ifndef KV_DAEMON_DIGEST_REST_H
#define KV_DAEMON_DIGEST_REST_H

#include "daemon/state.h"

struct row_key;

struct digest_rest {
	const struct state *state;
	/* sequence planes */
	uint32_t plane;
	uint64_t plane_off;
	/* rows: keys[0..n_keys) are runs that are sorted, the last one is being filled */
	uint64_t next_row;
	struct row_key *keys, *spare;
	size_t n_keys, keys_cap, spare_cap;
	size_t runs[64]; /* where each begins */
	uint32_t n_runs;
	bool is_sorted; /* all of it is one run */
	size_t next_key;
	char *buffer;
};

/* Begins the digest of a state; blocks come next. No memory ends the core. */
void digest_state_begin(struct kv_digest *digest, const struct state *state);

/* The state must outlive it. */
void digest_rest_begin(struct digest_rest *rest, const struct state *state);
int digest_rest_step(struct core *core, struct digest_rest *rest, struct kv_digest *digest,
		     uint64_t max_bytes, uint64_t *n_bytes, struct errbuf *err);
void digest_rest_end(struct digest_rest *rest);

/* Bytes that it reads at most. */
uint64_t digest_rest_bytes(const struct state *state);

#endif
