/*
 * Copies past the cache. Appended tokens go to memory that is cold, as a rule, and are read much
 * later: stores that do not first fetch the line are a third faster there. They become visible in
 * no order until stream_fence(), which comes before the swap of the commit word.
 */
#ifndef KV_CLIENT_STREAM_H
#define KV_CLIENT_STREAM_H

#include <stdint.h>
#include <string.h>

#define STREAM_BYTES_MIN 1024u /* shorter ones leave write buffers half full */

#if defined(__SSE2__)
#include <emmintrin.h>

static inline void stream_lines(char *to, const char *from, size_t n_bytes)
{
	const __m128i *source = (const void *)from;
	__m128i *line = (void *)to;

	for (; n_bytes; n_bytes -= 64, source += 4, line += 4) {
		__m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
		__m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);

		_mm_stream_si128(line, a);
		_mm_stream_si128(line + 1, b);
		_mm_stream_si128(line + 2, c);
		_mm_stream_si128(line + 3, d);
	}
}

static inline void stream_fence(void)
{
	_mm_sfence();
}
#else
static inline void stream_lines(char *to, const char *from, size_t n_bytes)
{
	memcpy(to, from, n_bytes);
}

static inline void stream_fence(void)
{
}
#endif

/* Whole cache lines at least, to an address that begins one. */
static inline void stream_copy(char *to, const char *from, size_t n_bytes)
{
	if (n_bytes >= STREAM_BYTES_MIN && n_bytes % 64 == 0 && (uintptr_t)to % 64 == 0)
		stream_lines(to, from, n_bytes);
	else
		memcpy(to, from, n_bytes);
}

#endif
