/*
 * The catalogue: an append-only log in a memfd that the core alone writes and reads
 * (daemon/catalogue_format.h has the bytes).
 *
 * Promise: what catalogue_commit() covered is there after the core's death, whole batches in
 * order; what it did not cover never happened.
 *
 *   payload = catalogue_add(c, CAT_BLOCKS, n);  fill it;  more;  catalogue_commit(c);
 *
 * Room is taken with fallocate before it is written, so a machine without memory gives an error
 * and not SIGBUS. An add that found no room spoils its batch: commit refuses it as a whole.
 * Core thread only.
 */
#ifndef KV_DAEMON_CATALOGUE_H
#define KV_DAEMON_CATALOGUE_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/catalogue_format.h"
#include "proto/errbuf.h"

#define CATALOGUE_BYTES_MAX (UINT64_C(8) << 30) /* address space; pages come as they are needed */

struct catalogue {
	int fd;
	char *base;
	uint64_t end_off;           /* committed */
	uint64_t write_off;         /* end of the open batch */
	uint64_t ready_off;         /* memory is there up to here */
	uint64_t rewritten_end_off; /* end_off when it was last written anew */
	bool spoiled;
};

/* A new, empty catalogue. 0, or -1 with err. */
int catalogue_make(struct catalogue *catalogue, struct errbuf *err);

/*
 * Takes up a kept one (fd becomes owned, also on failure) and checks every record. -1 with the
 * offset and what is wrong there.
 */
int catalogue_adopt(struct catalogue *catalogue, int fd, struct errbuf *err);
void catalogue_fini(struct catalogue *catalogue);

/* Calls each() for every committed record in order; stops at its first -1, which it returns. */
typedef int catalogue_each_fn(void *arg, enum cat_type type, const void *payload, uint32_t n_bytes,
			      struct errbuf *err);
int catalogue_each(const struct catalogue *catalogue, catalogue_each_fn *each, void *arg,
		   struct errbuf *err);

/* Makes sure that records of n_bytes in all can be added. 0, or -1 with err (KV_ENOMEM). */
int catalogue_room(struct catalogue *catalogue, uint64_t n_bytes, struct errbuf *err);

/*
 * Adds a record to the open batch: n_bytes of payload, zeroed, to be filled before the commit.
 * NULL when there is no room; the batch is spoiled then.
 */
void *catalogue_add(struct catalogue *catalogue, enum cat_type type, size_t n_bytes);

/* Makes the batch true. 0, or -1 (the batch was spoiled and is dropped). */
int catalogue_commit(struct catalogue *catalogue);

/* Forgets the open batch. */
void catalogue_discard(struct catalogue *catalogue);

/* More than half of it is dead (estimated by its size after the last rewrite). */
bool catalogue_is_stale(const struct catalogue *catalogue);

static inline uint64_t catalogue_bytes(const struct catalogue *catalogue)
{
	return catalogue->end_off;
}

#endif
