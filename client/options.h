/*
 * Option structs that begin with their size, so that programs and libraries of different age
 * understand one another.
 */
#ifndef KV_CLIENT_OPTIONS_H
#define KV_CLIENT_OPTIONS_H

#include <stddef.h>

/*
 * Copies the struct that a caller gave (NULL: all defaults) into `known`, which has known_bytes
 * and is zeroed first. A struct smaller than `least_bytes` (the first release's) is refused; a
 * larger one only if what this library does not know of it is zero. 0, or -1 with KVC_EINVAL;
 * `name` is the struct's, for the text.
 */
int options_take(const void *given, const char *name, size_t least_bytes, void *known,
		 size_t known_bytes);

/* Element i of an array of such structs, by the size that the caller's first element names. */
const void *options_element(const void *array, size_t i);

#endif
