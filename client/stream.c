/* Copies past the cache, with the widest stores that the processor has; see stream.h. */
#include "client/stream.h"

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx"))) static void lines_avx(char *to, const char *from, size_t n_bytes)
{
	for (; n_bytes; n_bytes -= 64, from += 64, to += 64) {
		__m256i a = _mm256_loadu_si256((const __m256i *)(const void *)from);
		__m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(from + 32));

		_mm256_stream_si256((__m256i *)(void *)to, a);
		_mm256_stream_si256((__m256i *)(void *)(to + 32), b);
	}
}

static void lines_sse2(char *to, const char *from, size_t n_bytes)
{
	for (; n_bytes; n_bytes -= 16, from += 16, to += 16)
		_mm_stream_si128((__m128i *)(void *)to,
				 _mm_loadu_si128((const __m128i *)(const void *)from));
}

void stream_lines(char *to, const char *from, size_t n_bytes)
{
	if (__builtin_cpu_supports("avx"))
		lines_avx(to, from, n_bytes);
	else
		lines_sse2(to, from, n_bytes);
}

void stream_fence(void)
{
	_mm_sfence();
}
#else
void stream_lines(char *to, const char *from, size_t n_bytes)
{
	memcpy(to, from, n_bytes);
}

void stream_fence(void)
{
}
#endif
