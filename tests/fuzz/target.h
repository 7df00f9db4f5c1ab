/*
 * What a fuzz target provides. It must return 0, leave nothing behind, and
 * behave the same each time it sees the same bytes. data may be NULL if size
 * is 0. Thread: one.
 */
#ifndef KVCACHED_TESTS_FUZZ_TARGET_H
#define KVCACHED_TESTS_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* What a target finds wrong is a crash. */
static inline void must(int condition)
{
	if (!condition)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
