/*
 * Several arrays in one piece of memory, each at a multiple of 64 bytes. Carved twice in the same
 * order: first without memory, which only counts, then from a piece of that size, aligned to 64.
 */
#ifndef KV_CLIENT_COMPUTE_CARVE_H
#define KV_CLIENT_COMPUTE_CARVE_H

#include <stddef.h>

struct kv_carve {
	char *memory; /* NULL: only the size is wanted */
	size_t used;
};

static inline void *kv_carve(struct kv_carve *from, size_t n, size_t element_bytes)
{
	void *piece = from->memory ? from->memory + from->used : NULL;

	from->used += (n * element_bytes + 63) & ~(size_t)63;
	return piece;
}

#endif
