/*
 * Option structs by size; see options.h. The caller's struct is read once, never written.
 * Any thread.
 */
#include "client/options.h"

#include <stdint.h>
#include <string.h>

#include "client/error.h"

/* Nobody's struct is that large: a size that was not set, not a later release. */
#define OPTIONS_BYTES_MAX 4096u

static size_t size_of(const void *given)
{
	size_t size;

	memcpy(&size, given, sizeof(size));
	return size;
}

static int tail_is_zero(const uint8_t *tail, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i++)
		if (tail[i] != 0)
			return 0;
	return 1;
}

int options_take(const void *given, const char *name, size_t least_bytes, void *known,
		 size_t known_bytes)
{
	size_t size;

	memset(known, 0, known_bytes);
	if (!given)
		return 0;
	size = size_of(given);
	if (size < least_bytes || size > OPTIONS_BYTES_MAX)
		return kvc_fail(KV_EINVAL,
				"struct %s: size is %zu, it has at least %zu and at most %u bytes; "
				"set size to sizeof(struct %s)",
				name, size, least_bytes, OPTIONS_BYTES_MAX, name);
	if (size > known_bytes &&
	    !tail_is_zero((const uint8_t *)given + known_bytes, size - known_bytes))
		return kvc_fail(KV_EINVAL,
				"struct %s: a field behind byte %zu is set that this library (%s) "
				"does not know",
				name, known_bytes, VERSION);
	memcpy(known, given, size < known_bytes ? size : known_bytes);
	return 0;
}

const void *options_element(const void *array, size_t i)
{
	return array ? (const char *)array + i * size_of(array) : NULL;
}
