/*
 * The lowest of many values. One token at a time is the common case: a scan that looks at groups of
 * values. Else a heap of the n lowest so far, the worst on top.
 */
#include <math.h>
#include <string.h>

#include "client/policy/policy.h"

#define LANES 4u
#define GROUP 32u /* values that are looked at together */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t mask __attribute__((vector_size(LANES * sizeof(float))));

/* Is one of a group lower? (No number is lower than nothing.) */
static bool has_lower(const float *values, float least)
{
	mask any = {0};
	uint64_t halves[2];
	lanes x;

	for (uint32_t i = 0; i < GROUP; i += KV_POLICY_LINE)
		__builtin_prefetch(values + i + KV_POLICY_AHEAD);
	for (uint32_t i = 0; i < GROUP; i += LANES) {
		memcpy(&x, values + i, sizeof(x));
		any |= x < least;
	}
	memcpy(halves, &any, sizeof(halves));
	return halves[0] | halves[1];
}

/* If none is less than infinity, the first infinity; if none is a number, the first. */
static uint32_t lowest_at_all(const float *values, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (values[i] == INFINITY)
			return i;
	return 0;
}

/* Most groups have nothing lower than what was found before them. */
static uint32_t lowest_one(const float *values, uint32_t n)
{
	uint32_t lowest = UINT32_MAX;
	float least = INFINITY;

	for (uint32_t first = 0; first < n; first += GROUP) {
		uint32_t end = n - first < GROUP ? n : first + GROUP;

		if (end - first == GROUP && !has_lower(values + first, least))
			continue;
		for (uint32_t i = first; i < end; i++)
			if (values[i] < least) {
				least = values[i];
				lowest = i;
			}
	}
	return lowest == UINT32_MAX ? lowest_at_all(values, n) : lowest;
}

/* Is a to be evicted before b? */
static bool is_before(const float *values, uint32_t a, uint32_t b)
{
	float x = values[a], y = values[b];

	if (x < y || y < x)
		return x < y;
	if (isnan(x) != isnan(y))
		return isnan(y);
	return a < b;
}

/* heap[at] may be before those below it. */
static void sink(const float *values, uint32_t *heap, uint32_t n, uint32_t at)
{
	uint32_t slot = heap[at];

	for (uint32_t below; (below = 2 * at + 1) < n; at = below) {
		if (below + 1 < n && is_before(values, heap[below], heap[below + 1]))
			below++;
		if (!is_before(values, slot, heap[below]))
			break;
		heap[at] = heap[below];
	}
	heap[at] = slot;
}

static void sort_heap(const float *values, uint32_t *heap, uint32_t n)
{
	for (uint32_t left = n; left > 1; left--) {
		uint32_t last = heap[left - 1];

		heap[left - 1] = heap[0];
		heap[0] = last;
		sink(values, heap, left - 1, 0);
	}
}

void kv_policy_lowest(const float *values, uint32_t n_candidates, uint32_t n, uint32_t *slots)
{
	if (n == 1) {
		slots[0] = lowest_one(values, n_candidates);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		slots[i] = i;
	for (uint32_t i = n / 2; i-- > 0;)
		sink(values, slots, n, i);
	for (uint32_t i = n; i < n_candidates; i++)
		if (is_before(values, i, slots[0])) {
			slots[0] = i;
			sink(values, slots, n, 0);
		}
	sort_heap(values, slots, n);
}
