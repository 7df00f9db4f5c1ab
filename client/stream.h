/*
 * Copies past the cache. Appended tokens go to memory that is cold, as a rule, and are read much
 * later: stores that do not first fetch the line are a third faster there. They become visible in
 * no order until stream_fence(), which comes before the swap of the commit word.
 */
#ifndef KV_CLIENT_STREAM_H
#define KV_CLIENT_STREAM_H

#include <stdint.h>
#include <string.h>

#define CACHE_LINE_BYTES 64u
#define STREAM_BYTES_MIN 1024u /* shorter ones leave write buffers half full */

/* Whole cache lines, to an address that begins one. */
void stream_lines(char *to, const char *from, size_t n_bytes);
void stream_fence(void);

/* Any copy; past the cache if it is worth it. */
static inline void stream_copy(char *to, const char *from, size_t n_bytes)
{
	if (n_bytes >= STREAM_BYTES_MIN && ((n_bytes | (uintptr_t)to) % CACHE_LINE_BYTES) == 0)
		stream_lines(to, from, n_bytes);
	else
		memcpy(to, from, n_bytes);
}

#endif
