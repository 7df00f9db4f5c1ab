#include "client/ctl/plain_read.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/error.h"
#include "client/seq.h"
#include "client/workers.h"
#include "proto/format.h"

#define STREAMS 8u
#define LINE_BYTES 64u
#define STEP_BYTES (STREAMS * LINE_BYTES) /* parts are multiples of it: zeros fill the last one */

/* ---- reading -------------------------------------------------------------------------------- */

typedef uint64_t words __attribute__((vector_size(32), may_alias));

static inline __attribute__((always_inline)) uint64_t sum_body(const char *at, size_t n_bytes)
{
	const size_t distance = n_bytes / STREAMS;
	words sums[STREAMS] = {0}, sum = {0};

	for (const char *end = at + distance; at < end; at += LINE_BYTES) {
#pragma GCC unroll 8
		for (size_t i = 0; i < STREAMS; i++) {
			const words *line = (const words *)(at + i * distance);

			sums[i] += line[0];
			sums[i] += line[1];
		}
	}
	for (size_t i = 0; i < STREAMS; i++)
		sum += sums[i];
	return sum[0] + sum[1] + sum[2] + sum[3];
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static uint64_t sum_avx2(const char *at, size_t n_bytes)
{
	return sum_body(at, n_bytes);
}

static uint64_t sum_base(const char *at, size_t n_bytes)
{
	return sum_body(at, n_bytes);
}

static uint64_t sum(const char *at, size_t n_bytes)
{
	return __builtin_cpu_supports("avx2") ? sum_avx2(at, n_bytes) : sum_base(at, n_bytes);
}
#else
static uint64_t sum(const char *at, size_t n_bytes)
{
	return sum_body(at, n_bytes);
}
#endif

struct reading {
	const struct plain_plane *plane;
	uint32_t n_threads;
	_Atomic uint64_t sum;
};

/* The part of one thread. */
static void read_part(void *arg, uint32_t number)
{
	struct reading *reading = arg;
	size_t n_steps = reading->plane->n_mapped_bytes / STEP_BYTES;
	size_t first = n_steps * number / reading->n_threads * STEP_BYTES;
	size_t end = n_steps * (number + 1) / reading->n_threads * STEP_BYTES;

	reading->sum += sum((const char *)reading->plane->memory + first, end - first);
}

uint64_t plain_read(const struct plain_plane *plane, kvc_workers *workers)
{
	struct reading reading = {.plane = plane, .n_threads = workers ? workers_n(workers) : 1};

	if (workers)
		workers_run(workers, read_part, &reading);
	else
		read_part(&reading, 0);
	return reading.sum;
}

/* ---- the plane ------------------------------------------------------------------------------ */

static char *add(char *to, const void *from, size_t n_bytes)
{
	if (n_bytes)
		memcpy(to, from, n_bytes);
	return to + n_bytes;
}

/* Bytes of one vector in each part, times heads: of one slot. */
struct slot {
	struct kv_format_bytes k, v;
	size_t n_bytes;
};

static int slot_init(struct slot *slot, const struct kvc_layer_view *view, uint32_t dtype)
{
	struct kv_format_bytes *parts[] = {&slot->k, &slot->v};
	struct errbuf err;

	if (kv_format_bytes(view->k_format, dtype, view->k_width, &slot->k, &err) ||
	    kv_format_bytes(view->v_format, dtype, view->v_width, &slot->v, &err))
		return kvc_fail(err.status, "%s", err.text);
	slot->n_bytes = 0;
	for (size_t i = 0; i < 2; i++) {
		parts[i]->codes *= view->n_query_groups;
		parts[i]->scale *= view->n_query_groups;
		parts[i]->zero *= view->n_query_groups;
		slot->n_bytes += parts[i]->codes + parts[i]->scale + parts[i]->zero;
	}
	return 0;
}

static void copy_runs(char *at, const struct kvc_run *runs, int64_t n, const struct slot *slot)
{
	for (int64_t i = 0; i < n; i++) {
		size_t n_slots = runs[i].n_tokens;

		at = add(at, runs[i].k, n_slots * slot->k.codes);
		at = add(at, runs[i].k_scale, n_slots * slot->k.scale);
		at = add(at, runs[i].k_zero, n_slots * slot->k.zero);
		at = add(at, runs[i].v, n_slots * slot->v.codes);
		at = add(at, runs[i].v_scale, n_slots * slot->v.scale);
		at = add(at, runs[i].v_zero, n_slots * slot->v.zero);
	}
}

int plain_plane_init(struct plain_plane *plane, kvc_seq *seq, uint32_t layer)
{
	struct kvc_layer_view view;
	struct kvc_run *runs = NULL;
	struct slot slot;
	int64_t n;
	int rc = -1;

	*plane = (struct plain_plane){0};
	n = kvc_view_runs(seq, layer, NULL, 0);
	if (n < 0 || kvc_view_table(seq, layer, &view) ||
	    slot_init(&slot, &view, seq->layout->fields->dtype))
		return -1;
	plane->n_bytes = view.n_base_slots * slot.n_bytes;
	plane->n_mapped_bytes = (plane->n_bytes / STEP_BYTES + 1) * STEP_BYTES;
	plane->memory = mmap(NULL, plane->n_mapped_bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (plane->memory == MAP_FAILED)
		plane->memory = NULL;
	runs = calloc((size_t)n + 1, sizeof(*runs));
	if (!runs || !plane->memory) {
		kvc_fail(KVC_ENOMEM, "no memory for a plane of %zu bytes to compare with",
			 plane->n_bytes);
		goto out;
	}
	if (kvc_view_runs(seq, layer, runs, (size_t)n) != n)
		goto out;
	copy_runs(plane->memory, runs, n, &slot);
	rc = 0;
out:
	free(runs);
	if (rc)
		plain_plane_fini(plane);
	return rc;
}

void plain_plane_fini(struct plain_plane *plane)
{
	if (plane->memory)
		munmap(plane->memory, plane->n_mapped_bytes);
	*plane = (struct plain_plane){0};
}
